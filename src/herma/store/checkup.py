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
from herma.store.database import (
    APPLICATION_ID,
    VERSION,
    DamagedLog,
    open_reader,
    queries,
    real_path,
    refuse_lone_log,
    translated,
    user_version,
)
from herma.store.salvage import JSON_COLUMNS, beginning, has_rows_of, is_whole, our_schema
from herma.store.salvage_pages import PageFile

State = Literal["missing", "empty", "ours", "foreign", "newer", "damaged", "unreadable"]
_SQLITE = b"SQLite format 3\0"
_MARK = APPLICATION_ID.to_bytes(4, "big")
_OURS = re.compile(rb"CREATE TABLE curated_changes|store_id[0-9a-f]{32}")
"""What stands in the list of tables, and among the facts, of every `herma.db`."""
_SAMPLE = 200


@dataclass(slots=True)
class Examination:
    """What was found. Lists are empty where all is well, and cut off where there is much."""

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


def state_of(path: Path) -> tuple[State, str]:
    """What is at this path, judged by its first bytes and by whether SQLite can read it."""
    try:
        if not path.exists():
            return "missing", ""
        if not path.stat().st_size:
            refuse_lone_log(path)
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
    """Whether there are messages of ours in it, though nothing says so: the file was emptied while it was in use."""
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
    """Everything there is to know. Damage is a finding, not an error."""
    state, why = state_of(path)
    found = Examination(state, why)
    path = real_path(path)
    if state == "unreadable" and path.with_name(path.name + "-wal").exists():
        return _without_log(path, found, now=now, full=full)
    if state != "ours":
        return found
    with translated(path):
        connection = open_reader(path, busy_timeout)
    try:
        return _look(connection, found, now=now, full=full)
    finally:
        connection.close()


def _without_log(path: Path, found: Examination, *, now: float, full: bool) -> Examination:
    """In a folder that cannot be written, SQLite cannot use the log. The file alone can be looked at."""
    try:
        connection = apsw.Connection(
            path.absolute().as_uri() + "?immutable=1", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
    except apsw.Error:
        return found
    try:
        found.state, found.without_log = "ours", True
        return _look(connection, found, now=now, full=full)
    finally:
        connection.close()


def _look(connection: apsw.Connection, found: Examination, *, now: float, full: bool) -> Examination:
    try:
        connection.execute("BEGIN")
        found.version = user_version(connection)
        found.trouble = [str(row[0]) for row in _rows(connection, "PRAGMA integrity_check(20)") if row[0] != "ok"]
        found.trouble += _unreadable_texts(connection)
        _facts(connection, found)
        _links(connection, found, now)
        _payloads(connection, found, full=full)
        connection.execute("COMMIT")
    except apsw.BusyError as exc:
        raise StoreBusy("herma.db is in use and did not become free in time.", hint="Try again.") from exc
    except (
        apsw.Error,
        ValueError,
        TypeError,
        OverflowError,
    ) as exc:  # what cannot be read at all is damage, whatever the first check said
        found.trouble.append(str(exc))
    return found


def _rows(connection: apsw.Connection, sql: str, bindings: Any = ()) -> list[Any]:
    return connection.execute(sql, bindings).fetchall()


def _unreadable_texts(connection: apsw.Connection) -> Iterator[str]:
    """Tables with text that is no text, or JSON that is none: SQLite's own check looks at neither."""
    for table, *names in _rows(connection, queries("checkup")["texts"]):
        columns = [name for name in names[0].split(",") if name]
        try:
            for _ in connection.execute(f"SELECT {','.join(columns)} FROM {table}"):
                pass
        except UnicodeDecodeError as exc:
            yield f"{table} holds text that cannot be read ({exc})"
            continue
        for name in JSON_COLUMNS.get(table, {}):
            sql = f"SELECT count(*) FROM {table} WHERE typeof({name}) = 'text' AND NOT json_valid({name})"
            if wrong := _rows(connection, sql)[0][0]:
                yield f"{name} of {table} cannot be read in {wrong} rows"


def _facts(connection: apsw.Connection, found: Examination) -> None:
    sql = queries("checkup")
    found.journal_mode = str(connection.pragma("journal_mode"))
    found.page_size = int(connection.pragma("page_size"))
    found.pages = int(connection.pragma("page_count"))
    found.free_pages = int(connection.pragma("freelist_count"))
    if found.version == VERSION:
        ours = our_schema()
        wanted = {(kind, name): text for kind, name, text in _rows(ours, sql["schema"])}
        there = {(kind, name): text for kind, name, text in _rows(connection, sql["schema"])}
        found.schema = [f"{k} {n} is missing" for k, n in sorted(wanted.keys() - there.keys())]
        found.schema += [f"{k} {n} is not ours" for k, n in sorted(there.keys() - wanted.keys())]
        found.schema += [
            f"{k} {n} differs"
            for k, n in sorted(wanted)
            if there.get((k, n), wanted[k, n]) != wanted[k, n] and not _same_columns(connection, ours, k, n)
        ]
        ours.close()
    found.orphans = [f"{table} {row}" for table, row, *_ in _rows(connection, "PRAGMA foreign_key_check")[:20]]
    ((found.store_id, found.epoch, found.seq),) = _rows(connection, sql["identity"])
    ((found.sessions, found.messages, found.changes, _),) = _rows(connection, sql["counts"])


def _same_columns(one: apsw.Connection, other: apsw.Connection, kind: str, name: str) -> bool:
    """Whether a table has the same columns: a migration adds them at the end, and writes the table's SQL otherwise."""
    if kind != "table":
        return False
    sql = 'SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?) ORDER BY name'
    return _rows(one, sql, (name,)) == _rows(other, sql, (name,))


def _links(connection: apsw.Connection, found: Examination, now: float) -> None:
    sql = queries("checkup")
    ((rows, last, left, there),) = _rows(connection, sql["feed"])
    if rows != last:
        found.feed.append(f"{last - rows} of its {last} rows are missing")
    if left != there:
        found.feed.append(f"it counts {left} messages, and there are {there}")
    if newest := _rows(connection, sql["unfed"]):
        found.feed.append(f"message {newest[0][0]} is not in it")
    parents = dict(_rows(connection, sql["parents"]))
    ids = {row[0] for row in _rows(connection, sql["ids"])}
    found.lost_parents = sum(parent not in ids for parent in parents.values())
    found.cycles = _cycles(parents)
    ((found.waiting, found.next_expiry),) = _rows(connection, sql["inbox"], {"now": now})


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


def _payloads(connection: apsw.Connection, found: Examination, *, full: bool) -> None:
    """Whether stored texts are what their hashes say, and whether those that messages name are there."""
    sql = queries("checkup")
    most = None if full else _SAMPLE
    for number, digest, codec, data in _paged(connection, sql["newest_payloads"], most):
        found.payloads_seen += 1
        if not is_whole({"hash": digest, "codec": codec, "data": data}):
            found.payloads.append(f"stored text {number} is not what it was")
    for number, *cells in _paged(connection, sql["in_pieces"], most):
        pieces = [piece for cell in cells if isinstance(cell, bytes) for piece in json.loads(cell)]
        for piece in pieces:
            if isinstance(piece, int) and not _rows(connection, sql["payload_there"], (piece,)):
                found.payloads.append(f"message {number} refers to stored text {piece}, which is not there")
    del found.payloads[20:]


def _paged(connection: apsw.Connection, sql: str, most: int | None) -> Iterator[Any]:
    before, count = 2**62, 0
    while rows := _rows(connection, sql, {"before": before}):
        for row in rows:
            before = row[0]
            yield row
        count += len(rows)
        if most is not None and count >= most:
            return


def sqlite_version() -> str:
    return apsw.sqlite_lib_version()
