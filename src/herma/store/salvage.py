"""Make a new `herma.db` from everything that can still be read in a damaged one.

Rows are taken as they are. Lost rows that they refer to are replaced so that the new database is whole: a session
that only its messages remember gets a stand-in, a lost payload a line that says so. Data derived from other rows
(uses of payloads, counts, the change feed) is rebuilt.
"""

from __future__ import annotations

import json
import re
import secrets
import shutil
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import apsw

from herma.errors import StoreError
from herma.store.archive import Progress
from herma.store.database import migrations, queries
from herma.store.files import make_folder, real_path, sync_file, sync_folder
from herma.store.replace import BESIDE, Alone, repaired_copy
from herma.store.salvage_pages import (
    INDEX_INTERIOR,
    INDEX_LEAF,
    TABLE_INTERIOR,
    TABLE_LEAF,
    Miscounted,
    PageFile,
    Record,
    Unreadable,
    Value,
)
from herma.store.sqlite import SqliteConnection, create_empty, open_writer, our_schema, translated
from herma.transcript.rows import PURGE_SLICE, unpack

# The change feed of a damaged file, as far as it is plausible: one wrong bit in it must not lose a message.
# Numbers of messages are given out once, so what was appended never overlaps; and only what was appended can be gone.

Span = tuple[int, int]
"""The first and the last of some messages."""


class FeedRow(NamedTuple):
    """One row of the feed, as it was read: messages that were appended, or that are gone."""

    gone: bool
    first: int
    last: int


def appended(rows: Iterable[FeedRow], highest: int) -> list[Span]:
    """Return what was appended, in order, none reaching into the next or beyond the highest number."""
    spans = sorted({(row.first, row.last) for row in rows if not row.gone and row.last >= row.first and row.first > 0})
    ends = [*(first - 1 for first, _ in spans[1:]), highest][: len(spans)]
    spans = [(first, min(last, end, highest)) for (first, last), end in zip(spans, ends, strict=True)]
    return [span for span in spans if span[0] <= span[1]]


def purged(rows: Iterable[FeedRow], there: Sequence[Span], *, gaps: bool) -> list[Span]:
    """Return what is gone for good. With `gaps` the row that appended it may be lost: its size is the proof."""
    spans = sorted({(row.first, row.last) for row in rows if row.gone and row.last >= row.first and row.first > 0})
    return [span for span in spans if covered(span, there) or (gaps and span[1] - span[0] < PURGE_SLICE)]


def covered(span: Span, spans: Sequence[Span]) -> bool:
    """Return whether all of it lies in spans that are in order."""
    at, last = span
    place = max(bisect_right(spans, (at, 2**63)) - 1, 0)
    while place < len(spans) and spans[place][0] <= at:
        if spans[place][1] >= last:
            return True
        at = max(at, spans[place][1] + 1)
        place += 1
    return False


def within(numbers: Iterable[int], spans: Sequence[Span]) -> set[int]:
    """Return those numbers that lie in any of the spans, which are in order and may overlap."""
    reach: list[Span] = []
    for first, last in spans:
        if reach and first <= reach[-1][1] + 1:
            reach[-1] = (reach[-1][0], max(last, reach[-1][1]))
        else:
            reach.append((first, last))
    found = set()
    for number in numbers:
        place = bisect_right(reach, (number, 2**63)) - 1
        if place >= 0 and number <= reach[place][1]:
            found.add(number)
    return found


# The rows of each table in a damaged file: along its tree first, then on pages that no tree leads to.

_KINDS: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}
_INTERIOR = (TABLE_INTERIOR, INDEX_INTERIOR)
_ADD_COLUMN = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN", re.MULTILINE)


class Column(NamedTuple):
    name: str
    type: str
    required: bool
    default: Value
    is_rowid: bool = False


class Shape(NamedTuple):
    """The columns of a table, and where its tree begins. Rows of one without row numbers lie in an index."""

    name: str
    root: int
    columns: tuple[Column, ...]
    keyed: bool = True
    """By row numbers."""
    row_index: str = ""
    """An index that names every row."""
    added: int = 0
    """Number of last columns that came with later formats: rows from before do not have them."""

    def fitted(self, record: Record, *, exactly: bool = False) -> list[Value] | None:
        """Return the record's values as this table's columns take them, or None when they cannot be its."""
        values, count = record.values, len(self.columns)
        if len(values) > count or (len(values) < count - self.added and exactly and not record.cut):
            return None
        row: list[Value] = []
        for at, column in enumerate(self.columns):
            value = values[at] if at < len(values) else column.default
            if column.is_rowid:
                if at < len(values) and value is not None:
                    return None
                value = record.rowid
            elif value is None:
                if column.required:
                    return None
            elif not isinstance(value, _KINDS.get(column.type, (object,))):
                return None
            row.append(value)
        return row


@dataclass(slots=True)
class Reading:
    """The result of reading one table."""

    shape: Shape
    seen: set[int] = field(default_factory=set)
    damaged: bool = False
    later: list[int] = field(default_factory=list)
    """Leaves whose rows are not where the tree says: read last."""
    named: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    """Row number → what the index says about it."""
    named_all: bool = False
    unreadable: int = 0
    """Rows that are there and make no sense."""
    strays: set[int] = field(default_factory=set)
    """Rows from pages that no tree leads to: deleted rows may be among them."""


Take = Callable[[Reading, list[Value], Record], None]


class TableList:
    """The tables that a file has: as its own list says where that can be read, else as our schema makes them."""

    def __init__(self, pages: PageFile, ours: SqliteConnection) -> None:
        self.ours = {shape.name: shape for shape in _shapes(ours)}
        self.roots: dict[str, int] = {}
        self.listed = False
        sql: dict[str, str] = {}
        with_list = TreeWalk(pages)
        try:
            for record in with_list.tree(1, TABLE_LEAF):
                if len(record.values) == 5 and isinstance(record.values[3], int):
                    kind, name, _, root, text = record.values
                    if kind in ("table", "index") and isinstance(name, str):
                        self.roots[name] = int(root)  # type: ignore[arg-type]
                        sql[name] = text if isinstance(text, str) else ""
        except Unreadable:
            pass
        self.listed = not with_list.damaged and bool(self.roots)
        self.pages = with_list.visited
        template = ours.rows("SELECT type, name, rootpage FROM sqlite_master")
        for _, name, root in template:
            self.roots.setdefault(name, 0 if self.listed else root)  # 0: the file has no such table or index
        self.shapes = [self._as_found(shape, sql.get(shape.name, "")) for shape in self.ours.values()]
        self._indexes = {name for kind, name, *_ in template if kind == "index"}

    def others(self) -> list[str]:
        """Return our indexes that no table is read by. Without the file's list they cannot be located."""
        used = {shape.row_index for shape in self.shapes}
        return [name for name in sorted(self._indexes - used) if self.listed and self.roots[name]]

    def _as_found(self, shape: Shape, sql: str) -> Shape:
        """Put columns in the order that the file has, if they are those of a format of ours."""
        columns, added = shape.columns, shape.added
        if sql:
            with closing(SqliteConnection(":memory:")) as scratch:
                try:
                    scratch.execute(sql)
                    found = _columns(scratch, shape.name)
                    missing = len(columns) - len(found)
                    if set(found) == set(columns) or (0 < missing <= added and found == columns[:-missing]):
                        columns, added = found, added - missing
                except apsw.Error:
                    pass  # the list of tables is damaged at this place
        return shape._replace(root=self.roots[shape.name], columns=columns, added=added)


class TreeWalk:
    """Walks trees and remembers which pages were seen and whether anything was wrong."""

    def __init__(self, pages: PageFile, visited: set[int] | None = None) -> None:
        self._pages = pages
        self.visited: set[int] = set() if visited is None else visited
        self.damaged = False
        self.unreadable = 0

    def tree(self, root: int, leaf: int) -> Iterator[Record]:
        """Yield all rows of a tree whose leaves are of this kind, as far as pages lead to each other."""
        interior = TABLE_INTERIOR if leaf == TABLE_LEAF else INDEX_INTERIOR
        for number, _, _ in self.leaves(root, leaf):
            yield from self.rows(number)
            if self._pages.kind(number) not in (leaf, interior):
                self.damaged = True

    def leaves(self, root: int, leaf: int) -> Iterator[tuple[int, int | None, int | None]]:
        """Yield pages that hold rows, with the keys between which they should lie."""
        interior = TABLE_INTERIOR if leaf == TABLE_LEAF else INDEX_INTERIOR
        stack: list[tuple[int, int | None, int | None]] = [(root, None, None)]
        while stack:
            number, low, high = stack.pop()
            try:
                kind = self._pages.kind(number)
                if number in self.visited or kind not in (leaf, interior):
                    raise Unreadable(f"page {number} does not belong here")
                below = self._pages.children(number) if kind == interior else []
                self._pages.rows(number)
            except (Unreadable, IndexError):
                self.damaged = True
                continue
            self.visited.add(number)
            if kind == leaf or leaf == INDEX_LEAF:
                yield number, low, high
            for child, key in below:
                stack.append((child, low, key if key is not None else high))
                low = key if key is not None else low

    def rows(self, number: int, kind: int = 0) -> Iterator[Record]:
        """Yield the rows of one page that make sense."""
        try:
            for record in self._pages.rows(number, kind):
                if isinstance(record, Unreadable):
                    self.damaged = True
                    self.unreadable += not isinstance(record, Miscounted)
                else:
                    yield record
        except Unreadable:
            self.damaged = True


def read_tables(pages: PageFile, catalogue: TableList, take: Take, step: Callable[[int], None]) -> list[Reading]:
    """Hand every readable row to `take`, which never gets a row number of a table twice."""
    visited = set(catalogue.pages)
    readings = [Reading(shape, damaged=not catalogue.listed) for shape in catalogue.shapes]
    for reading in readings:
        if reading.shape.root:
            _follow(pages, reading, visited, take, step)
    for reading in readings:
        if catalogue.roots.get(reading.shape.row_index):
            _follow_index(pages, reading, catalogue.roots[reading.shape.row_index], visited)
            reading.named_all = reading.named_all and catalogue.listed  # else it may be another's index
    for name in catalogue.others():  # indexes have no data of their own: their pages belong to no table
        for record in TreeWalk(pages, visited).tree(catalogue.roots[name], INDEX_LEAF):
            visited.update(record.pages)
    for reading in readings:
        if reading.named_all and not reading.seen.issuperset(reading.named):
            reading.damaged = True
        for number in reading.later:
            if not _leaf(pages, reading, number, visited, take, only_new=True):
                visited.discard(number)
    _strays(pages, readings, visited | pages.free(), take, step)
    return readings


def _follow(pages: PageFile, reading: Reading, visited: set[int], take: Take, step: Callable[[int], None]) -> None:
    leaf = TABLE_LEAF if reading.shape.keyed else INDEX_LEAF
    walk = TreeWalk(pages, visited)
    for number, low, high in walk.leaves(reading.shape.root, leaf):
        step(len(visited))
        records = list(walk.rows(number))
        fitting = [(record, row) for record in records if (row := reading.shape.fitted(record)) is not None]
        walk.unreadable += len(records) - len(fitting)
        placed = leaf == INDEX_LEAF or all(
            (low is None or record.rowid > low) and (high is None or record.rowid <= high) for record in records
        )
        if len(fitting) < len(records) or not placed or (not records and number != reading.shape.root):
            walk.damaged = True
        if not placed:
            reading.later.append(number)
            continue
        if records and not fitting:
            visited.discard(number)  # most likely another tree's
            continue
        for record, row in fitting:
            _hand_over(reading, record, row, visited, take)
            if record.cut:
                walk.damaged = True
    reading.damaged = reading.damaged or walk.damaged
    reading.unreadable += walk.unreadable


def _follow_index(pages: PageFile, reading: Reading, root: int, visited: set[int]) -> None:
    walk = TreeWalk(pages, visited)
    for record in walk.tree(root, INDEX_LEAF):
        visited.update(record.pages)
        if record.values and isinstance(record.values[-1], int) and not record.cut:
            reading.named[record.values[-1]] = tuple(record.values[:-1])
        else:
            walk.damaged = True
    reading.named_all = not walk.damaged


def _strays(
    pages: PageFile, readings: Sequence[Reading], known: set[int], take: Take, step: Callable[[int], None]
) -> None:
    """Read pages that no tree leads to any more: those below a damaged one. A row's values tell whose it is.

    A table that the file's list does not name may be one whose name was hit.
    """
    likeliest = [reading for reading in readings if reading.damaged]
    likeliest += [reading for reading in readings if not reading.damaged and not reading.shape.root]
    for number in range(2, pages.count + 1) if likeliest else ():
        if number in known:
            continue
        step(number)
        for reading in likeliest:
            if _leaf(pages, reading, number, known, take, only_new=True):
                reading.damaged = True
                break


def _leaf(pages: PageFile, reading: Reading, number: int, visited: set[int], take: Take, *, only_new: bool) -> bool:
    """Return rows of a page taken for a leaf of this table. Return whether there were any that could be its."""
    walk = TreeWalk(pages, visited)
    shape = reading.shape
    leaf = TABLE_LEAF if shape.keyed else INDEX_LEAF
    kind = pages.kind(number)
    if not shape.keyed and kind not in (INDEX_LEAF, INDEX_INTERIOR):
        return False
    found = False
    for record in walk.rows(number, leaf if kind not in _INTERIOR else kind if kind == INDEX_INTERIOR else leaf):
        row = shape.fitted(record, exactly=True)
        if row is None:
            continue
        found = True
        stale = shape.keyed and (
            (only_new and record.rowid in reading.seen) or (reading.named_all and record.rowid not in reading.named)
        )
        if not stale and not (shape.keyed and record.rowid < 0):
            reading.strays.add(record.rowid)
            _hand_over(reading, record, row, visited, take)
    return found


def _hand_over(reading: Reading, record: Record, row: list[Value], visited: set[int], take: Take) -> None:
    if reading.shape.keyed:
        if record.rowid in reading.seen:
            return
        reading.seen.add(record.rowid)
    visited.update(record.pages)
    take(reading, row, record)


def has_rows_of(table: str, pages: PageFile, ours: SqliteConnection) -> bool:
    """Return whether any page looks like a leaf of this table of ours."""
    shape = next(shape for shape in _shapes(ours) if shape.name == table)
    walk = TreeWalk(pages)
    return any(
        pages.kind(number) == TABLE_LEAF and shape.fitted(record, exactly=True) is not None
        for number in range(2, pages.count + 1)
        for record in walk.rows(number, TABLE_LEAF)
    )


def _shapes(connection: SqliteConnection) -> Iterator[Shape]:
    listed = connection.rows(
        "SELECT l.name, l.wr, m.rootpage FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name"
        " WHERE l.type = 'table' ORDER BY m.rowid"
    )
    for name, without_rowid, root in listed:
        indexes = connection.rows(
            "SELECT name FROM pragma_index_list(?) WHERE NOT partial AND origin <> 'pk' ORDER BY origin DESC, seq",
            (name,),
        )
        index = indexes[0][0] if indexes and not without_rowid else ""
        yield Shape(name, root, _columns(connection, name), not without_rowid, index, _added().get(name, 0))


@cache
def _added() -> Counter[str]:
    """Return how many columns migrations added to each table, always at its end."""
    steps = (script.read_text(encoding="utf-8") for _, script in migrations())
    return Counter(name for text in steps for name in _ADD_COLUMN.findall(text))


def _columns(connection: SqliteConnection, table: str) -> tuple[Column, ...]:
    rows = connection.rows("SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)", (table,))
    wr = connection.rows("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (table,))
    keyed = bool(wr) and not wr[0][0]
    return tuple(
        Column(name, kind, bool(required), _literal(default), keyed and pk == 1 and kind == "INTEGER")
        for name, kind, required, default, pk in rows
    )


def _literal(text: str | None) -> Value:
    if text is None:
        return None
    return text[1:-1] if text.startswith("'") else int(text)


# A value that is only partly there ends with a note in the place of the rest.

CUT = "\n[The rest of this text could not be read when the database was repaired.]"
LOST = "[This part could not be read when the database was repaired.]"
CELLS = ("content", "parts", "tool_calls", "reasoning", "sent", "sent_parts", "extra")
"""Columns of a message whose values may be in pieces."""
JSON_COLUMNS: dict[str, dict[str, Value]] = {
    "messages": {"parts": None, "tool_calls": None, "sent_parts": None, "extra": None, "outside": None},
    "sessions": {"prompt_outside": None},
    "curated_entries": {"tags": "[]"},
    "episodes": {"steps": "[]", "tools": "{}", "skills_applied": "[]", "skills_created": "[]"},
    "session_states": {"open_tasks": "[]", "files": "[]"},
    "reviews": {"actions": "[]"},
    "curated_inbox": {"operations": None},
    "skill_inbox": {"operation": None},
}
"""Columns that hold JSON, and what takes the place of a value that is none any more."""
_JSON = JSON_COLUMNS["messages"]


def is_whole(payload: dict[str, Value]) -> bool:
    """Return whether a payload is what its hash says."""
    codec, data = payload["codec"], payload["data"]
    if not isinstance(codec, str) or not isinstance(data, bytes):
        return False
    try:
        return sha256(unpack(codec, data).encode()).digest() == payload["hash"]
    except (StoreError, UnicodeError):
        return False


def say_cut(values: dict[str, Value], count: int, reading: Reading) -> None:
    """Mark the text at which a row breaks off. A value that is not plain text is of no use without its end."""
    last = reading.shape.columns[count - 1].name if count else ""
    text = values.get(last)
    if last in _JSON or isinstance(text, bytes):
        values[last] = None
        if values["content"] is None and values["parts"] is None:
            values["content"] = CUT.strip()
    elif last in CELLS and isinstance(text, str):
        values[last] = text + CUT
    if values["content"] is None and values["parts"] is None and count <= 4:
        values["content"] = CUT.strip()


def mend_json(table: str, values: dict[str, Value]) -> bool:
    """Replace values that are no JSON any more. Return whether there were any."""
    wrong = {
        name: instead
        for name, instead in JSON_COLUMNS.get(table, {}).items()
        if isinstance(text := values.get(name), str) and not _is_json(text)
    }
    if table == "messages" and wrong:
        say_lost(found := dict(wrong), values)
        wrong = found
    values.update(wrong)
    return bool(wrong)


def mended_pieces(cell: bytes, there: set[int], column: str) -> tuple[Value, set[int]]:
    """Return a value in pieces, with a line for each that is gone; and the payloads that it still needs."""
    try:
        pieces = json.loads(cell)
        if not isinstance(pieces, list) or not all(isinstance(piece, str | int) for piece in pieces):
            raise ValueError("not pieces")
    except ValueError:
        return None if column in _JSON else LOST, set()
    used = {piece for piece in pieces if isinstance(piece, int) and piece in there}
    if all(isinstance(piece, str) or piece in there for piece in pieces):
        return cell, used
    whole = [piece if isinstance(piece, str) or piece in there else LOST for piece in pieces]
    if column in _JSON and not _is_json("".join(piece if isinstance(piece, str) else "A" for piece in whole)):
        return None, set()
    return json.dumps(whole, ensure_ascii=False).encode(), used


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def say_lost(changed: dict[str, Value], values: Mapping[str, Value] = MappingProxyType({})) -> None:
    """Put a sentence in the place of a message whose parts are gone as a whole."""
    for parts, text in (("parts", "content"), ("sent_parts", "sent")):
        if parts in changed and changed[parts] is None and values.get(text) is None:
            changed.setdefault(text, LOST)


Terms = Callable[[SqliteConnection], dict[str, int]]
"""Write the words by which episodes and archived entries are found, again from their texts; return the rows per table.
Without the file's list of tables, their old rows look like those of some indexes.
"""
_DERIVED = {"payload_uses", "changes"}
_TERMS = {"episode_terms", "curated_tail_terms"}
_STRAYS = {
    "payloads": "unused_stray",
    "sessions": "empty_stray",
    "episodes": "homeless_stray",
    "reviews": "homeless_review",
}
_NUMBERED = (
    *("messages", "curated_changes", "curated_inbox", "curated_tail", "skill_changes", "skill_inbox"),
    *("episodes", "facts"),
)
_RUN = 1000
Ranges = tuple[tuple[int, int], ...]


class TableSalvage(NamedTuple):
    """The result for one table. `lost` is as many as are known; `mended` rows lack a part of their text."""

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
    """The rows that were copied, and exactly those that were not."""

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
    source: Path,
    log: Path | None,
    target: Path,
    progress: Progress | None = None,
    terms: Terms | None = None,
    *,
    empty: bool = False,
) -> Salvaged:
    """Read a copy of the damaged file, and its log, into a new database at `target`; it is durable when this returns.

    `source` must be a copy that no other process has open: it is read as bytes. Without `terms`, the words by which
    episodes and archived entries are found are taken as they are. With `empty`, nothing at all is a result too.
    """
    if empty and not source.stat().st_size and (log is None or not log.exists()):
        create_empty(target)
        return Salvaged((), (), ("Nothing was left of the database itself; herma.db is new and empty.",))
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
    sync_file(target)
    return made


def _refuse_unsound(connection: SqliteConnection, target: Path) -> None:
    trouble = connection.rows("PRAGMA integrity_check(5)")
    orphans = connection.rows("PRAGMA foreign_key_check")
    if trouble != [("ok",)] or orphans:
        raise StoreError(
            f"The salvaged database {target} is not consistent ({(trouble + orphans)[0]}).",
            hint="Nothing was replaced. Restore a backup, and report this.",
        )


class _Salvage:
    def __init__(self, connection: SqliteConnection, pages: PageFile, progress: Progress, terms: Terms | None) -> None:
        self._db = connection
        self._pages = pages
        self._progress = progress
        self._terms = terms
        self._sql = queries("store.salvage")
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
        catalogue = TableList(self._pages, ours)
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
            self._kept.update(self._terms(self._db))
        if not catalogue.listed:
            self._drop("curated_tail_uses", "not_uses")
        self._identify()
        self._rebuild_feed(readings)
        self._progress(total, total)
        return self._report(readings, stand_ins)

    def _take(self, reading: Reading, row: list[Value], record: Record) -> None:
        name = reading.shape.name
        if name == "meta":
            self._meta[str(row[0])] = str(row[1])
        elif name == "sqlite_sequence":
            if isinstance(row[0], str) and isinstance(row[1], int):
                self._sequence[row[0]] = max(row[1], self._sequence.get(row[0], 0))
        elif name == "changes":
            first = int(row[2] or 0)
            self._feed.append(FeedRow(bool(row[1]), first, first + int(row[3] or 0) - 1))
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
            rows = self._db.rows("SELECT name FROM pragma_table_info(?)", (table,))
            self._columns_of[table] = [name for (name,) in rows]
        return self._columns_of[table]

    def _free_title(self, values: dict[str, Value]) -> None:
        if values["title"] is not None and values["deleted"] is None:
            same = [values["title"], values["profile"], values["user"]]
            if self._db.execute(self._sql["untitled"], same).fetchone():
                values["title"] = None

    def _stay_deleted(self, readings: dict[str, Reading]) -> None:
        """Delete again what the feed says is gone, unless a tree or an index leads to it."""
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
        """Return sessions for messages that have none, named as an index remembers them."""
        sessions, made = readings["sessions"], {}
        for key, first, last in self._db.rows(self._sql["without_session"]):
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
        there = {row[0] for row in self._db.rows(self._sql["payload_ids"])}
        after = 0
        while rows := self._db.rows(self._sql["in_pieces"], {"after": after}):
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
        """Delete rows that nothing refers to and no tree led to: most likely they were deleted before."""
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
        """Keep the store's id in a new epoch: data derived from the old file is no longer valid."""
        if "store_id" not in self._meta:
            self._notes.append("The store's own name could not be read; it has a new one.")
        for key, value in self._meta.items():
            if key != "epoch":
                self._db.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    def _rebuild_feed(self, readings: dict[str, Reading]) -> None:
        run: list[int] = []
        for (number,) in [*self._db.rows(self._sql["message_ids"]), (None,)]:
            if run and (number is None or number != run[-1] + 1 or len(run) == _RUN):
                self._db.execute(self._sql["change"], (run[0], len(run)))
                run = []
            run.append(number)
        highest = dict(self._sequence)
        for name in _NUMBERED:
            known = [highest.get(name, 0), *readings[name].named, *readings[name].seen]
            highest[name] = max(number for number in known if number < 2**62)
        highest["messages"] = max([highest["messages"], *(last for _, last in self._appended)])
        self._db.execute("DELETE FROM sqlite_sequence")
        self._db.executemany(self._sql["sequence"], [item for item in highest.items() if item[1]])

    def _report(self, readings: dict[str, Reading], stand_ins: dict[int, str]) -> Salvaged:
        lost = sorted(self._expected_messages(readings["messages"]) - readings["messages"].seen)
        tables = []
        for name, reading in readings.items():
            if name in _DERIVED or name in ("meta", "sqlite_sequence"):
                continue
            missing = lost if name == "messages" else sorted(reading.named.keys() - reading.seen)
            count = len(missing) if reading.shape.row_index else reading.unreadable + self._refused[name]
            mended = ranges(sorted(set(self._mended.get(name, ()))))
            tables.append(TableSalvage(name, self._kept[name], count, mended, ranges(missing)))
            if (
                reading.damaged
                and not reading.named_all
                and not (name == "messages" and not readings["changes"].damaged)
            ):
                self._notes.append(f"Rows of {name} may be missing that nothing else in the file mentions.")
        if unused := self._db.rows(self._sql["unused"])[0][0]:
            self._notes.append(f"{unused} stored texts belong to no message that could be read; they were kept.")
        sessions = self._session_losses(readings["messages"], lost, stand_ins)
        return Salvaged(tuple(tables), sessions, tuple(self._notes))

    def _expected_messages(self, messages: Reading) -> set[int]:
        """Return every message that should be there, by what the index and the change feed say."""
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
        for key, session_id, count in self._db.rows(self._sql["counted"]):
            ids = by_session.pop(key, [])
            missing = max(len(ids), self._counted.get(key, 0) - count)
            if missing or key in stand_ins:
                found.append(SessionLoss(session_id, missing, ranges(ids), key in stand_ins))
        return (*found, *(SessionLoss(f"#{key}", len(ids), ranges(ids)) for key, ids in by_session.items()))


def ranges(numbers: Sequence[int]) -> Ranges:
    """Return runs of numbers: 1, 2, 3, 7 → (1, 3), (7, 7)."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return tuple(found)


def repair_database(
    path: Path,
    keep_in: Path,
    timeout: float,
    progress: Progress | None = None,
    terms: Terms | None = None,
    *,
    base: Path | None = None,
    also_keep: Sequence[Path] = (),
) -> Salvaged:
    """Keep the damaged file in the new folder `keep_in`, and put what could be read in its place.

    `base` is an older copy of the file, for where the file itself is lost: its log is read on top of it. `also_keep`
    are other files that know something of what was lost.
    """
    path = real_path(path)
    lost = not path.exists() or not path.stat().st_size
    with Alone(path, timeout) as held:
        _refuse_without_space(path)
        started = keep_in.with_name(f".{keep_in.name}.tmp")
        shutil.rmtree(started, ignore_errors=True)
        new = path.with_name(f".{path.name}.repaired.tmp")
        try:
            make_folder(started)
            held.copy_to(started)
            for file in also_keep:
                shutil.copyfile(file, started / file.name)
            _forget(new)
            source = base or _rolled_back(started, path.name)
            made = salvage(source, started / f"{path.name}-wal", new, progress, terms, empty=base is None and lost)
            new.chmod(0o600)
            started.rename(keep_in)
            sync_folder(keep_in.parent)
            if (waiting := repaired_copy(path)).exists():
                waiting.rename(keep_in / f"{path.name}.earlier-repair")
            ready = new.rename(repaired_copy(path))
        except OSError as exc:
            raise StoreError(
                f"{path} could not be repaired: {exc.strerror or exc}. It is as it was.",
                hint="Check free space and permissions, then try again.",
            ) from exc
        finally:
            _forget(new)
            shutil.rmtree(started, ignore_errors=True)
        try:
            held.replace(ready)
        except OSError as exc:
            raise StoreError(
                f"{path} is repaired, but could not be put in its place: {exc.strerror or exc}.",
                hint="Check free space and permissions, then run: herma doctor --repair",
            ) from exc
    return made


def _rolled_back(folder: Path, name: str) -> Path:
    """Return the copy to read. A transaction that a crash cut off is rolled back by SQLite, on another copy."""
    copy, journal = folder / name, folder / f"{name}-journal"
    if not journal.exists() or not journal.stat().st_size:
        return copy
    work = folder / "work"
    for suffix in ("", "-journal"):
        shutil.copyfile(folder / f"{name}{suffix}", folder / f"work{suffix}")
    try:
        with apsw.Connection(str(work)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        connection.close()
    except apsw.Error:
        return copy
    return work


def _refuse_without_space(path: Path) -> None:
    needed = 2 * sum(p.stat().st_size for p in (path, path.with_name(f"{path.name}-wal")) if p.exists())
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreError(
            f"Repairing {path} needs {needed // 2**20:,} MB of free space, and there are {free // 2**20:,}.",
            hint="Free some space and try again; nothing was changed.",
        )


def _forget(database: Path) -> None:
    for suffix in ("", *BESIDE):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
