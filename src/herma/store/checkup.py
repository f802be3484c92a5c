"""A close look at `herma.db` that changes nothing: is it ours, is it whole, does everything in it hold together?"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import apsw

from herma.errors import ForeignStore, StoreBusy, StoreError
from herma.store.database import VERSION, queries
from herma.store.files import kind_of, real_path, refuse_special, special_beside
from herma.store.replace import beginning
from herma.store.salvage import JSON_COLUMNS, has_rows_of, is_whole
from herma.store.salvage_pages import PageFile
from herma.store.sqlite import (
    APPLICATION_ID,
    DamagedLog,
    SqliteConnection,
    index_position,
    open_reader,
    our_schema,
    refuse_behind,
    refuse_lost,
    translated,
    user_version,
)

State = Literal["missing", "empty", "ours", "foreign", "newer", "damaged", "unreadable"]
_SQLITE = b"SQLite format 3\0"
_MARK = APPLICATION_ID.to_bytes(4, "big")
_OURS = re.compile(rb"CREATE TABLE curated_changes|store_id[0-9a-f]{32}")
"""Strings in the list of tables, and among the facts, of every `herma.db`."""
_SAMPLE = 200


@dataclass(slots=True)
class Examination:
    """The findings. A list is empty where all is well, and cut off where there is much."""

    state: State
    why: str = ""
    version: int = VERSION
    trouble: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    schema: list[str] = field(default_factory=list)
    feed: list[str] = field(default_factory=list)
    payloads: list[str] = field(default_factory=list)
    payloads_seen: int = 0
    lost_parents: int = 0
    cycles: int = 0
    journal_mode: str = ""
    pages: int = 0
    free_pages: int = 0
    page_size: int = 0
    waiting: int = 0
    next_expiry: float | None = None
    store_id: str = ""
    epoch: str = ""
    seq: int = 0
    sessions: int = 0
    messages: int = 0
    changes: int = 0
    without_log: bool = False
    behind: str = ""
    """Changes that the index has seen and the database lacks."""


def state_of(path: Path) -> tuple[State, str]:
    """Return what is at this path, judged by its first bytes and by whether SQLite can read it."""
    try:
        if not path.exists():
            refuse_special(path)
            refuse_lost(path)
            return "missing", ""
        if not path.is_file():
            return "foreign", f"{path} is {kind_of(path.stat())}, not an ordinary file; it was left as it is."
        if not path.stat().st_size:
            refuse_special(path)
            refuse_lost(path)
            return "empty", ""
        connection = open_reader(path, 1.0)
        try:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        finally:
            connection.close()
    except ForeignStore as exc:
        if "newer" in str(exc):
            return "newer", str(exc)
        return ("damaged", "its head cannot be read") if _was_ours(path) else ("foreign", str(exc))
    except (apsw.CorruptError, apsw.NotADBError, DamagedLog) as exc:
        return "damaged", str(exc).rstrip(".")
    except (apsw.Error, OSError, StoreError) as exc:
        return "unreadable", str(exc)
    return "ours", ""


def _was_ours(path: Path) -> bool:
    head = beginning(path, 2**21)
    if head[68:72] == _MARK or _OURS.search(head) is not None:
        return True
    return not head.startswith(_SQLITE) and _holds_our_rows(head)


def _holds_our_rows(head: bytes) -> bool:
    """Return whether there are messages of ours in it, though nothing says so: the file was emptied in use."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "head"
        copy.write_bytes(head)
        pages, ours = PageFile(copy), our_schema()
        try:
            return has_rows_of("messages", pages, ours)
        finally:
            pages.close()
            ours.close()


def examine(path: Path, *, now: float, full: bool = False, busy_timeout: float = 10.0) -> Examination:
    """Return everything there is to know. Damage is a finding, not an error."""
    state, why = state_of(path)
    found = Examination(state, why)
    path_of_home, path = path, real_path(path)
    if state == "unreadable" and not special_beside(path) and path.with_name(path.name + "-wal").exists():
        return _without_log(path, found, now=now, full=full)
    if state != "ours":
        return found
    known = index_position(path_of_home.parent)
    with translated(path):
        connection = open_reader(path, busy_timeout)
    try:
        _look(connection, found, now=now, full=full)
        refuse_behind(path_of_home, connection, known)
    except DamagedLog as exc:
        found.behind = str(exc)
    except apsw.Error:  # said by the look already
        pass
    finally:
        connection.close()
    return found


def _without_log(path: Path, found: Examination, *, now: float, full: bool) -> Examination:
    """Examine the file alone: in a folder that cannot be written, SQLite cannot use the log."""
    try:
        connection = SqliteConnection(
            path.absolute().as_uri() + "?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
    except apsw.Error:
        return found
    try:
        found.state, found.without_log = "ours", True
        return _look(connection, found, now=now, full=full)
    finally:
        connection.close()


def _look(connection: SqliteConnection, found: Examination, *, now: float, full: bool) -> Examination:
    try:
        connection.execute("BEGIN")
        found.version = user_version(connection)
        found.trouble = [str(row[0]) for row in connection.rows("PRAGMA integrity_check(20)") if row[0] != "ok"]
        found.trouble += _unreadable_texts(connection)
        _facts(connection, found)
        _links(connection, found, now)
        _payloads(connection, found, full=full)
        connection.execute("COMMIT")
    except apsw.BusyError as exc:
        raise StoreBusy("herma.db is in use and did not become free in time.", hint="Try again.") from exc
    except (apsw.Error, ValueError, TypeError, OverflowError) as exc:  # damage, whatever the first check said
        found.trouble.append(str(exc))
    return found


def _unreadable_texts(connection: SqliteConnection) -> Iterator[str]:
    """Yield tables with broken text or JSON: SQLite's own check looks at neither."""
    for table, *names in connection.rows(queries("store.checkup")["texts"]):
        columns = [name for name in names[0].split(",") if name]
        try:
            for _ in connection.execute(f"SELECT {','.join(columns)} FROM {table}"):
                pass
        except UnicodeDecodeError as exc:
            yield f"{table} holds text that cannot be read ({exc})"
            continue
        for name in JSON_COLUMNS.get(table, {}).keys() & set(columns):
            sql = f"SELECT count(*) FROM {table} WHERE typeof({name}) = 'text' AND NOT json_valid({name})"
            if wrong := connection.rows(sql)[0][0]:
                yield f"{name} of {table} cannot be read in {wrong} rows"


def _facts(connection: SqliteConnection, found: Examination) -> None:
    sql = queries("store.checkup")
    found.journal_mode = str(connection.pragma("journal_mode"))
    found.page_size = int(connection.pragma("page_size"))
    found.pages = int(connection.pragma("page_count"))
    found.free_pages = int(connection.pragma("freelist_count"))
    if found.version == VERSION:
        ours = our_schema()
        wanted = {(kind, name): text for kind, name, text in ours.rows(sql["schema"])}
        there = {(kind, name): text for kind, name, text in connection.rows(sql["schema"])}
        found.schema = [f"{k} {n} is missing" for k, n in sorted(wanted.keys() - there.keys())]
        found.schema += [f"{k} {n} is not ours" for k, n in sorted(there.keys() - wanted.keys())]
        found.schema += [
            f"{k} {n} differs"
            for k, n in sorted(wanted)
            if there.get((k, n), wanted[k, n]) != wanted[k, n] and not _same_columns(connection, ours, k, n)
        ]
        ours.close()
    found.orphans = [f"{table} {row}" for table, row, *_ in connection.rows("PRAGMA foreign_key_check")[:20]]
    ((found.store_id, found.epoch, found.seq),) = connection.rows(sql["identity"])
    ((found.sessions, found.messages, found.changes, _),) = connection.rows(sql["counts"])


def _same_columns(one: SqliteConnection, other: SqliteConnection, kind: str, name: str) -> bool:
    """Return whether a table has the same columns: a migration adds them at the end, with other SQL."""
    if kind != "table":
        return False
    sql = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY name'
    return one.rows(sql, (name,)) == other.rows(sql, (name,))


def _links(connection: SqliteConnection, found: Examination, now: float) -> None:
    sql = queries("store.checkup")
    ((rows, last, left, there),) = connection.rows(sql["feed"])
    if rows != last:
        found.feed.append(f"{last - rows} of its {last} rows are missing")
    if left != there:
        found.feed.append(f"it counts {left} messages, and there are {there}")
    if newest := connection.rows(sql["unfed"]):
        found.feed.append(f"message {newest[0][0]} is not in it")
    parents: dict[str, str] = dict(connection.rows(sql["parents"]))
    ids = {row[0] for row in connection.rows(sql["ids"])}
    found.lost_parents = sum(parent not in ids for parent in parents.values())
    found.cycles = _cycles(parents)
    ((found.waiting, found.next_expiry),) = connection.rows(sql["inbox"], {"now": now})


def _cycles(parents: dict[str, str]) -> int:
    done: set[str] = set()
    circles = 0
    for start in parents:
        path: set[str] = set()
        at: str | None = start
        while at is not None and at not in done and at not in path:
            path.add(at)
            at = parents.get(at)
        circles += at is not None and at in path
        done |= path
    return circles


def _payloads(connection: SqliteConnection, found: Examination, *, full: bool) -> None:
    """Check that stored texts match their hashes, and that those which messages name are there."""
    sql = queries("store.checkup")
    most = None if full else _SAMPLE
    for number, digest, codec, data in _paged(connection, sql["newest_payloads"], most):
        found.payloads_seen += 1
        if not is_whole({"hash": digest, "codec": codec, "data": data}):
            found.payloads.append(f"stored text {number} is not what it was")
    for number, *cells in _paged(connection, sql["in_pieces"], most):
        pieces = [piece for cell in cells if isinstance(cell, bytes) for piece in json.loads(cell)]
        for piece in pieces:
            if isinstance(piece, int) and not connection.rows(sql["payload_there"], (piece,)):
                found.payloads.append(f"message {number} refers to stored text {piece}, which is not there")
    del found.payloads[20:]


def _paged(connection: SqliteConnection, sql: str, most: int | None) -> Iterator[Any]:
    before, count = 2**62, 0
    while rows := connection.rows(sql, {"before": before}):
        for row in rows:
            before = row[0]
            yield row
        count += len(rows)
        if most is not None and count >= most:
            return


def sqlite_version() -> str:
    return apsw.sqlite_lib_version()
