"""A new `herma.db` from everything that can still be read in a damaged one.

Rows are taken as they are. What they refer to and is gone is replaced so that the new database is whole: a session
that only its messages remember gets a stand-in, a lost payload a line that says so. What is derived from other rows
(uses of payloads, counts, the change feed) is made anew.
"""

from __future__ import annotations

import os
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw

from herma.errors import StoreError
from herma.store.sqlite.errors import translated
from herma.store.sqlite.opening import open_writer
from herma.store.sqlite.queries import queries
from herma.store.sqlite.salvage_feed import FeedRow, Span, appended, purged, within
from herma.store.sqlite.salvage_mend import CELLS, is_whole, mend_json, mended_pieces, say_cut, say_lost
from herma.store.sqlite.salvage_pages import PageFile, Record, Value
from herma.store.sqlite.salvage_tables import Catalogue, Reading, our_schema, read_tables
from herma.store.sqlite.salvage_terms import Terms, terms_anew

_DERIVED = {"payload_uses", "changes"}
_TERMS = {"episode_terms", "curated_tail_terms"}
_STRAYS = {
    "payloads": "unused_stray",
    "sessions": "empty_stray",
    "episodes": "homeless_stray",
    "reviews": "homeless_review",
}
_RUN = 1000
Progress = Callable[[int, int], None]
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class TableSalvage:
    """What became of one table. `lost` is as many as are known; `mended` rows lack a part of their text."""

    table: str
    kept: int
    lost: int = 0
    mended: Ranges = ()
    missing: Ranges = ()


@dataclass(frozen=True, slots=True)
class SessionLoss:
    """A session that lacks messages, or whose own row is gone (`stand_in`). Numbers are as far as they are known."""

    session_id: str
    missing: int
    messages: Ranges = ()
    stand_in: bool = False


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was brought over, and exactly what was not."""

    tables: tuple[TableSalvage, ...]
    sessions: tuple[SessionLoss, ...]
    notes: tuple[str, ...]

    @property
    def kept(self) -> int:
        return sum(table.kept for table in self.tables)

    @property
    def lost(self) -> int:
        return sum(table.lost for table in self.tables)

    @property
    def complete(self) -> bool:
        return not self.lost and not self.sessions and not any(table.mended for table in self.tables)


def salvage(
    source: Path, log: Path | None, target: Path, progress: Progress | None = None, terms: Terms | None = None
) -> Salvaged:
    """Read a copy of the damaged file, and its log, into a new database at `target`; it is durable when this returns.

    `source` must be a copy that nobody else has open: it is read as bytes. With `terms`, the words by which episodes
    and entries of the long tail are found are made anew; else they are taken as they are.
    """
    pages = PageFile(source, log)
    try:
        with translated(target):
            connection = open_writer(target, 10)
            try:
                connection.pragma("journal_mode", "delete")
                connection.pragma("foreign_keys", False)
                connection.pragma("synchronous", "OFF")
                connection.execute("BEGIN")
                made = _Salvage(connection, pages, progress or (lambda _done, _total: None), terms).run()
                connection.execute("COMMIT")
                _refuse_unsound(connection, target)
            finally:
                connection.close()
    finally:
        pages.close()
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return made


def _refuse_unsound(connection: apsw.Connection, target: Path) -> None:
    trouble: list[Any] = connection.execute("PRAGMA integrity_check(5)").fetchall()
    orphans: list[Any] = connection.execute("PRAGMA foreign_key_check").fetchall()
    if trouble != [("ok",)] or orphans:
        raise StoreError(
            f"What was salvaged to {target} does not hold together ({(trouble + orphans)[0]}).",
            hint="Nothing was replaced. Restore a backup, and report this.",
        )


class _Salvage:
    def __init__(self, connection: apsw.Connection, pages: PageFile, progress: Progress, terms: Terms | None) -> None:
        self._db = connection
        self._pages = pages
        self._progress = progress
        self._terms = terms
        self._sql = queries("salvage")
        self._kept: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()
        self._mended: dict[str, list[int]] = {}
        self._meta: dict[str, str] = {}
        self._sequence: dict[str, int] = {}
        self._feed: list[FeedRow] = []
        self._appended: list[Span] = []
        self._purged: list[Span] = []
        self._counted: dict[int, int] = {}
        self._columns_of: dict[str, list[str]] = {}
        self._notes: list[str] = []

    def run(self) -> Salvaged:
        ours = our_schema(self._pages.size)
        catalogue = Catalogue(self._pages, ours)
        ours.close()
        if not self._pages.header_ok:
            self._notes.append("The head of the file was damaged; tables were found by their content.")
        elif not catalogue.listed:
            self._notes.append("The file's list of tables was damaged; tables were found by their content.")
        if self._pages.lost_frames:
            self._notes.append(f"Damaged pages in the write-ahead log: {self._pages.lost_frames}.")
        total = self._pages.count
        readings = {
            reading.shape.name: reading
            for reading in read_tables(self._pages, catalogue, self._take, lambda at: self._progress(at, total))
        }
        if not (self._kept or self._meta):
            raise StoreError("Nothing in the damaged file could be read.", hint="Restore a backup: herma backup list")
        self._stay_deleted(readings)
        stand_ins = self._stand_ins(readings)
        for name in ("lost_prompts", "lost_undone", "lost_undone_of_skills"):
            self._db.execute(self._sql[name])
        self._join_pieces()
        self._drop_strays(readings)
        self._db.execute(self._sql["recount"])
        if readings["session_states"].strays:
            self._drop("session_states", "homeless_states")
        self._drop("episode_terms", "homeless_terms")
        if self._terms is not None:
            self._kept.update(terms_anew(self._db, self._terms))
        if not catalogue.listed:
            self._drop("curated_tail_uses", "not_uses")
        self._identify()
        self._feed_anew(readings)
        self._progress(total, total)
        return self._report(readings, stand_ins)

    # ── row by row ──

    def _take(self, reading: Reading, row: list[Value], record: Record) -> None:
        name = reading.shape.name
        if name == "meta":
            self._meta[str(row[0])] = str(row[1])
        elif name == "sqlite_sequence":
            if isinstance(row[0], str) and isinstance(row[1], int):
                self._sequence[row[0]] = max(row[1], self._sequence.get(row[0], 0))
        elif name == "changes":
            self._feed.append(FeedRow(bool(row[1]), int(row[2] or 0), int(row[3] or 0)))
        elif name not in _DERIVED and not (self._terms and name in _TERMS):
            self._keep(reading, row, record)

    def _keep(self, reading: Reading, row: list[Value], record: Record) -> None:
        name = reading.shape.name
        values = dict(zip((column.name for column in reading.shape.columns), row, strict=True))
        mended = record.cut or record.garbled
        if name == "payloads" and not is_whole(values):
            self._refuse(reading, record)
            return
        if name == "curated_changes":
            mended = mended or sha256(str(values["after_text"]).encode()).hexdigest() != values["after_hash"]
        if name == "messages" and record.cut:
            say_cut(values, len(record.values), reading)
        mended = mend_json(name, values) or mended
        if name == "sessions":
            self._counted[record.rowid] = int(values.get("message_count") or 0)
            self._free_title(values)
        columns = [column for column in values if column in self._columns(name)]
        try:
            self._db.execute(
                f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                [values[column] for column in columns],
            )
        except (apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError):
            self._refuse(reading, record)
            return
        self._kept[name] += 1
        if mended:
            self._mended.setdefault(name, []).append(record.rowid)

    def _refuse(self, reading: Reading, record: Record) -> None:
        self._refused[reading.shape.name] += 1
        reading.seen.discard(record.rowid)

    def _columns(self, table: str) -> list[str]:
        if table not in self._columns_of:
            rows = _rows(self._db, "SELECT name FROM pragma_table_info(?)", (table,))
            self._columns_of[table] = [name for (name,) in rows]
        return self._columns_of[table]

    def _free_title(self, values: dict[str, Value]) -> None:
        if values["title"] is not None and values["deleted"] is None:
            same = [values["title"], values["profile"], values["user"]]
            if self._db.execute(self._sql["untitled"], same).fetchone():
                values["title"] = None

    # ── what rows refer to ──

    def _stay_deleted(self, readings: dict[str, Reading]) -> None:
        """What the feed says is gone stays so. What a tree or an index leads to is there, whatever the feed says."""
        messages = readings["messages"]
        highest = max([self._sequence.get("messages", 0), *messages.seen, *messages.named])
        self._appended = appended(self._feed, highest)
        self._purged = purged(self._feed, self._appended, gaps=readings["changes"].damaged)
        alive = messages.named.keys() if messages.named_all else set()
        gone = within(messages.strays & messages.seen - alive, self._purged)
        self._db.executemany(self._sql["purged"], [(number,) for number in sorted(gone)])
        self._kept["messages"] -= len(gone)
        messages.seen.difference_update(gone)

    def _stand_ins(self, readings: dict[str, Reading]) -> dict[int, str]:
        """Sessions for messages that have none, named as an index remembers them."""
        sessions, made = readings["sessions"], {}
        for key, first, last in _rows(self._db, self._sql["without_session"]):
            named = sessions.named.get(key, ())
            session_id = str(named[0]) if named and isinstance(named[0], str) and named[0] else f"recovered-{key}"
            values = {"key": key, "id": session_id, "started": first, "last_active": last}
            try:
                self._db.execute(self._sql["stand_in"], values)
            except apsw.ConstraintError:
                session_id = f"recovered-{key}-{secrets.token_hex(4)}"
                self._db.execute(self._sql["stand_in"], {**values, "id": session_id})
            made[key] = session_id
        return made

    def _join_pieces(self) -> None:
        """Record which payloads are used, and put a line in the place of those that are gone."""
        there = {row[0] for row in _rows(self._db, self._sql["payload_ids"])}
        after = 0
        while rows := _rows(self._db, self._sql["in_pieces"], {"after": after}):
            for message_id, *cells in rows:
                after = message_id
                changed: dict[str, Value] = {}
                used: set[int] = set()
                for name, cell in zip(CELLS, cells, strict=True):
                    if isinstance(cell, bytes):
                        value, needs = mended_pieces(cell, there, name)
                        used |= needs
                        if value != cell:
                            changed[name] = value
                if changed:
                    self._mended.setdefault("messages", []).append(message_id)
                    say_lost(changed)
                    assigned = ", ".join(f"{name} = :{name}" for name in changed)
                    self._db.execute(f"UPDATE messages SET {assigned} WHERE id = :id", {**changed, "id": message_id})
                self._db.executemany(self._sql["use"], [(number, message_id) for number in sorted(used)])

    def _drop_strays(self, readings: dict[str, Reading]) -> None:
        """What nothing refers to and no tree led to was deleted, most likely: it must not come back."""
        for name, query in _STRAYS.items():
            reading = readings[name]
            doubtful = reading.seen if reading.named_all else reading.strays & reading.seen
            for number in sorted(doubtful - reading.named.keys()):
                self._db.execute(self._sql[query], (number,))
                if self._db.changes():
                    self._kept[name] -= 1
                    reading.seen.discard(number)

    def _drop(self, table: str, query: str) -> None:
        self._db.execute(self._sql[query])
        self._kept[table] -= self._db.changes()

    def _identify(self) -> None:
        """The same store, in a new epoch: what was derived from the old file is not valid any more."""
        if "store_id" not in self._meta:
            self._notes.append("The store's own name could not be read; it has a new one.")
        for key, value in self._meta.items():
            if key != "epoch":
                self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def _feed_anew(self, readings: dict[str, Reading]) -> None:
        run: list[int] = []
        for (number,) in [*_rows(self._db, self._sql["message_ids"]), (None,)]:
            if run and (number is None or number != run[-1] + 1 or len(run) == _RUN):
                self._db.execute(self._sql["change"], (run[0], len(run)))
                run = []
            run.append(number)
        highest = dict(self._sequence)
        for name in (
            "messages",
            "curated_changes",
            "curated_inbox",
            "curated_tail",
            "skill_changes",
            "skill_inbox",
            "episodes",
            "facts",
        ):
            known = [highest.get(name, 0), *readings[name].named, *readings[name].seen]
            highest[name] = max(number for number in known if number < 2**62)
        highest["messages"] = max([highest["messages"], *(last for _, last in self._appended)])
        self._db.execute("DELETE FROM sqlite_sequence")
        self._db.executemany(self._sql["sequence"], [item for item in highest.items() if item[1]])

    # ── the report ──

    def _report(self, readings: dict[str, Reading], stand_ins: dict[int, str]) -> Salvaged:
        lost = sorted(self._expected_messages(readings["messages"]) - readings["messages"].seen)
        tables = []
        for name, reading in readings.items():
            if name in _DERIVED or name in ("meta", "sqlite_sequence"):
                continue
            missing = lost if name == "messages" else sorted(reading.named.keys() - reading.seen)
            count = len(missing) if reading.shape.index else reading.unreadable + self._refused[name]
            mended = ranges(sorted(set(self._mended.get(name, ()))))
            tables.append(TableSalvage(name, self._kept[name], count, mended, ranges(missing)))
            if (
                reading.damaged
                and not reading.named_all
                and not (name == "messages" and not readings["changes"].damaged)
            ):
                self._notes.append(f"Rows of {name} may be missing that nothing else in the file mentions.")
        if unused := _rows(self._db, self._sql["unused"])[0][0]:
            self._notes.append(f"{unused} stored texts belong to no message that could be read; they were kept.")
        sessions = self._session_losses(readings["messages"], lost, stand_ins)
        return Salvaged(tuple(tables), sessions, tuple(self._notes))

    def _expected_messages(self, messages: Reading) -> set[int]:
        """Every message that should be there, by what the index and the change feed say."""
        expected = set(messages.named)
        for first, last in () if messages.named_all else self._appended:
            expected.update(range(first, last + 1))
        return expected - within(expected - messages.seen, self._purged)

    def _session_losses(
        self, messages: Reading, lost: Sequence[int], stand_ins: dict[int, str]
    ) -> tuple[SessionLoss, ...]:
        by_session: dict[int, list[int]] = {}
        for number in lost:
            named = messages.named.get(number)
            if named and isinstance(named[0], int):
                by_session.setdefault(named[0], []).append(number)
        found = []
        for key, session_id, count in _rows(self._db, self._sql["counted"]):
            ids = by_session.pop(key, [])
            missing = max(len(ids), self._counted.get(key, 0) - count)
            if missing or key in stand_ins:
                found.append(SessionLoss(session_id, missing, ranges(ids), key in stand_ins))
        return (*found, *(SessionLoss(f"#{key}", len(ids), ranges(ids)) for key, ids in by_session.items()))


def _rows(connection: apsw.Connection, sql: str, bindings: Any = ()) -> list[Any]:
    return connection.execute(sql, bindings).fetchall()


def ranges(numbers: Sequence[int]) -> Ranges:
    """1, 2, 3, 7 → (1, 3), (7, 7)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)
