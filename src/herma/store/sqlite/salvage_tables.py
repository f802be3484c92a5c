"""Finding the rows of each table in a damaged file: along its tree first, then on pages that no tree leads to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from herma.store.sqlite.migrate import migrations
from herma.store.sqlite.salvage_pages import (
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

_KINDS: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}
_INTERIOR = (TABLE_INTERIOR, INDEX_INTERIOR)
_ADD_COLUMN = re.compile(r"^ALTER TABLE (\w+) ADD COLUMN", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: str
    required: bool
    default: Value
    is_rowid: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table looks like, and where its tree begins. Rows of one without row numbers lie in an index."""

    name: str
    root: int
    columns: tuple[Column, ...]
    keyed: bool = True
    """By row numbers."""
    index: str = ""
    """An index that names every row."""
    added: int = 0
    """How many of the last columns came with later formats: rows from before do not have them."""

    def fitted(self, record: Record, *, exactly: bool = False) -> list[Value] | None:
        """The record's values as this table's columns take them, or None when they cannot be its."""
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
    """How reading one table went."""

    shape: Shape
    seen: set[int] = field(default_factory=set)
    damaged: bool = False
    later: list[int] = field(default_factory=list)
    """Leaves whose rows are not where the tree says: looked at last."""
    named: dict[int, tuple[Value, ...]] = field(default_factory=dict)
    """Row number → what the index says about it."""
    named_all: bool = False
    unreadable: int = 0
    """Rows that are there and make no sense."""
    strays: set[int] = field(default_factory=set)
    """Rows from pages that no tree leads to: what was deleted may be among them."""


Take = Callable[[Reading, list[Value], Record], None]


class Catalogue:
    """The tables that a file has: as its own list says where that can be read, else as our schema makes them."""

    def __init__(self, pages: PageFile, ours: apsw.Connection) -> None:
        self.ours = {shape.name: shape for shape in _shapes(ours)}
        self.roots: dict[str, int] = {}
        self.listed = False
        sql: dict[str, str] = {}
        with_list = Walk(pages)
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
        template: list[Any] = ours.execute("SELECT type, name, rootpage FROM sqlite_master").fetchall()
        for _, name, root in template:
            self.roots.setdefault(name, 0 if self.listed else root)  # 0: the file has no such table or index
        self.shapes = [self._as_found(shape, sql.get(shape.name, "")) for shape in self.ours.values()]
        self._indexes = {name for kind, name, *_ in template if kind == "index"}

    def others(self) -> list[str]:
        """Indexes of ours that no table is read by. Without a list nobody knows whether they are where they were."""
        used = {shape.index for shape in self.shapes}
        return [name for name in sorted(self._indexes - used) if self.listed and self.roots[name]]

    def _as_found(self, shape: Shape, sql: str) -> Shape:
        """In the order of columns that the file has, where they are those of a format of ours: else its list is hit."""
        columns, added = shape.columns, shape.added
        if sql:
            with apsw.Connection(":memory:") as scratch:
                try:
                    scratch.execute(sql)
                    found = _columns(scratch, shape.name)
                    missing = len(columns) - len(found)
                    if set(found) == set(columns) or (0 < missing <= added and found == columns[:-missing]):
                        columns, added = found, added - missing
                except apsw.Error:
                    pass  # the list of tables is damaged at this place
        return replace(shape, root=self.roots[shape.name], columns=columns, added=added)


class Walk:
    """Walks trees and remembers which pages were seen and whether anything was wrong."""

    def __init__(self, pages: PageFile, visited: set[int] | None = None) -> None:
        self._pages = pages
        self.visited: set[int] = set() if visited is None else visited
        self.damaged = False
        self.unreadable = 0

    def tree(self, root: int, leaf: int) -> Iterator[Record]:
        """All rows of a tree whose leaves are of this kind, as far as pages lead to each other."""
        interior = TABLE_INTERIOR if leaf == TABLE_LEAF else INDEX_INTERIOR
        for number, _, _ in self.leaves(root, leaf):
            yield from self.rows(number)
            if self._pages.kind(number) not in (leaf, interior):
                self.damaged = True

    def leaves(self, root: int, leaf: int) -> Iterator[tuple[int, int | None, int | None]]:
        """Pages that hold rows, with the keys between which they should lie."""
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
        """The rows of one page that make sense."""
        try:
            for record in self._pages.rows(number, kind):
                if isinstance(record, Unreadable):
                    self.damaged = True
                    self.unreadable += not isinstance(record, Miscounted)
                else:
                    yield record
        except Unreadable:
            self.damaged = True


def read_tables(pages: PageFile, catalogue: Catalogue, take: Take, step: Callable[[int], None]) -> list[Reading]:
    """Hand every readable row to `take`, which never gets a row number of a table twice."""
    visited = set(catalogue.pages)
    readings = [Reading(shape, damaged=not catalogue.listed) for shape in catalogue.shapes]
    for reading in readings:
        if reading.shape.root:
            _follow(pages, reading, visited, take, step)
    for reading in readings:
        if catalogue.roots.get(reading.shape.index):
            _follow_index(pages, reading, catalogue.roots[reading.shape.index], visited)
            reading.named_all = reading.named_all and catalogue.listed  # else it may be another's index
    for name in catalogue.others():
        _pass_over(pages, catalogue.roots[name], visited)
    for reading in readings:
        if reading.named_all and not reading.seen.issuperset(reading.named):
            reading.damaged = True
        for number in reading.later:
            if not _leaf(pages, reading, number, visited, take, only_new=True):
                visited.discard(number)
    _strays(pages, readings, visited | pages.free(), take, step)
    return readings


def _pass_over(pages: PageFile, root: int, visited: set[int]) -> None:
    """The pages of an index that tells nothing new: they are nobody else's."""
    for record in Walk(pages, visited).tree(root, INDEX_LEAF):
        visited.update(record.pages)


def _follow(pages: PageFile, reading: Reading, visited: set[int], take: Take, step: Callable[[int], None]) -> None:
    leaf = TABLE_LEAF if reading.shape.keyed else INDEX_LEAF
    walk = Walk(pages, visited)
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
            visited.discard(number)  # somebody else's, most likely
            continue
        for record, row in fitting:
            _hand_over(reading, record, row, visited, take)
            if record.cut:
                walk.damaged = True
    reading.damaged = reading.damaged or walk.damaged
    reading.unreadable += walk.unreadable


def _follow_index(pages: PageFile, reading: Reading, root: int, visited: set[int]) -> None:
    walk = Walk(pages, visited)
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
    """Pages that no tree leads to any more: those below a damaged one. A row's values tell whose it is.

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
    """Rows of a page taken for a leaf of this table. → whether there were any that could be its."""
    walk = Walk(pages, visited)
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


def has_rows_of(table: str, pages: PageFile, ours: apsw.Connection) -> bool:
    """Whether any page looks like a leaf of this table of ours."""
    shape = next(shape for shape in _shapes(ours) if shape.name == table)
    walk = Walk(pages)
    return any(
        pages.kind(number) == TABLE_LEAF and shape.fitted(record, exactly=True) is not None
        for number in range(2, pages.count + 1)
        for record in walk.rows(number, TABLE_LEAF)
    )


# ── our own schema ──


def our_schema(page_size: int = 4096) -> apsw.Connection:
    """An empty database with our tables, in memory: with pages of the same size, its tables begin on the same ones."""
    connection = apsw.Connection(":memory:")
    connection.pragma("page_size", page_size)
    connection.execute(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    return connection


def _shapes(connection: apsw.Connection) -> Iterator[Shape]:
    listed: list[Any] = connection.execute(
        "SELECT l.name, l.wr, m.rootpage FROM pragma_table_list l JOIN sqlite_master m ON m.name = l.name"
        " WHERE l.type = 'table' ORDER BY m.rowid"
    ).fetchall()
    for name, without_rowid, root in listed:
        indexes: list[Any] = connection.execute(
            "SELECT name FROM pragma_index_list(?) WHERE NOT partial AND origin <> 'pk' ORDER BY origin DESC, seq",
            (name,),
        ).fetchall()
        index = indexes[0][0] if indexes and not without_rowid else ""
        yield Shape(name, root, _columns(connection, name), not without_rowid, index, _added().get(name, 0))


@cache
def _added() -> Counter[str]:
    """How many columns migrations added to each table, always at its end."""
    steps = (script.read_text(encoding="utf-8") for _, script in migrations())
    return Counter(name for text in steps for name in _ADD_COLUMN.findall(text))


def _columns(connection: apsw.Connection, table: str) -> tuple[Column, ...]:
    rows: list[Any] = connection.execute(
        "SELECT name, type, [notnull], dflt_value, pk FROM pragma_table_info(?)", (table,)
    ).fetchall()
    wr: list[Any] = connection.execute("SELECT wr FROM pragma_table_list(?) WHERE schema = 'main'", (table,)).fetchall()
    keyed = bool(wr) and not wr[0][0]
    return tuple(
        Column(name, kind, bool(required), _literal(default), keyed and pk == 1 and kind == "INTEGER")
        for name, kind, required, default, pk in rows
    )


def _literal(text: str | None) -> Value:
    if text is None:
        return None
    return text[1:-1] if text.startswith("'") else int(text)
