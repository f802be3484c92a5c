"""The long tail of curated memory in `herma.db`: implements `TailRows` and `TidyRows`."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

import apsw

from herma.ports import Moved, Place
from herma.ports.tail import LastTidied
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.errors import parsed
from herma.store.sqlite.queries import queries
from herma.types import DELIMITER, Scope, TailEntry


class SqliteTail:
    """Rows of the tables `curated_tail…` and `curated_tidied`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("tail")

    # ── reading ──

    def select(self, place: Place | None) -> list[TailEntry]:
        if place is None:
            return self._entries("everything", {})
        return self._entries("of_place", _key(place))

    def get(self, ids: Sequence[int]) -> dict[int, TailEntry]:
        return {one.id: one for one in self._entries("get", {"ids": json.dumps(list(ids))})} if ids else {}

    def with_terms(self, terms: Sequence[str], most: int) -> list[list[int]]:
        def work(connection: apsw.Connection) -> list[list[int]]:
            found = []
            for term in terms:
                rows: Any = connection.execute(self._sql["with_term"], {"term": term, "most": most}).fetchall()
                found.append([row[0] for row in rows])
            return found

        return self._db.read(work, [[] for _ in terms])

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        by_hash = {_hash(text): text for text in texts}
        rows = self._db.rows(self._sql["kept"], {**_key(place), "hashes": json.dumps(list(by_hash))})
        undone = self._undone() if rows else set()
        return {by_hash[hash_] for hash_, change, back in rows if _stands(change, back, undone)}

    def moved_by(self, change: int) -> list[str]:
        """Entries that a change moved here to make room."""
        return [text for (text,) in self._db.rows(self._sql["moved_by"], {"change": change})]

    def is_empty(self, places: Sequence[Place]) -> bool:
        return not any(self._db.rows(self._sql["any"], _key(place)) for place in places)

    def version(self) -> str:
        """Something that changes whenever a text may have come or gone."""
        rows = self._db.rows(self._sql["version"])
        return "/".join(map(str, rows[0])) if rows else "0"

    # ── writing ──

    def used(self, ids: Sequence[int], conversation: str, at: float) -> None:
        def work(connection: apsw.Connection) -> None:
            for number in ids:
                connection.execute(self._sql["use"], {"id": number, "conversation": conversation})
                connection.execute(self._sql["used"], {"id": number, "at": at})

        self._db.write(work)

    def mark(self, ids: Sequence[int], what: Literal["proposed", "forgotten"], at: float | None) -> None:
        bindings = {"ids": json.dumps(list(ids)), "at": at}
        self._db.write(lambda connection: connection.execute(self._sql[what], bindings) and None)

    # ── when documents were tidied ──

    def tidied(self, place: Place) -> LastTidied | None:
        rows = self._db.rows(self._sql["tidied"], _key(place))
        return LastTidied(*rows[0]) if rows else None

    def note_tidied(self, place: Place, at: float, version: str) -> None:
        bindings = {**_key(place), "at": at, "version": version}
        self._db.write(lambda connection: connection.execute(self._sql["note_tidied"], bindings) and None)

    # ── inside ──

    def _entries(self, name: str, bindings: Mapping[str, Any]) -> list[TailEntry]:
        """Rows that count, each text of a document once: the newest."""
        rows = self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)
        undone = self._undone() if rows else set()
        found: dict[tuple[Any, ...], TailEntry] = {}
        for row in sorted(rows, key=lambda row: -int(row[0])):
            if _stands(row[8], row[9], undone):
                found.setdefault(tuple(row[1:6]), _entry(row))
        return list(found.values())

    def _undone(self) -> set[int]:
        """Changes that were taken back and stay so. An undo is always newer than what it undoes."""
        undone: set[int] = set()
        for change, undo in reversed(self._db.rows(queries("curated")["undos"])):
            if undo not in undone:
                undone.add(change)
        return undone


def follow_change(
    connection: apsw.Connection, place: Place, change: int, at: float, after: str, moved: Sequence[Moved], *, undo: bool
) -> None:
    """What a change of a document does to its long tail, in the transaction that records it.

    An undo does nothing: what it takes back stands no longer, and that is looked up.
    """
    sql, key = queries("tail"), _key(place)
    if not undo:
        there = [_hash(entry) for entry in _entries_of(after)]
        connection.execute(sql["back"], {**key, "change": change, "hashes": json.dumps(there)})
    for one in moved:
        row = {**key, "hash": _hash(one.text), "text": one.text, "at": at, "why": one.why, "change": change}
        number = insert_returning_id(connection, sql["move"], row)
        connection.executemany(sql["add_term"], [(term, number) for term in one.terms])


def follow_void(connection: apsw.Connection, change: int) -> None:
    """A change turned out never to have happened."""
    sql = queries("tail")
    for name in ("void_terms", "void", "void_back"):
        connection.execute(sql[name], {"id": change})


def _entries_of(text: str) -> list[str]:
    """The entries of a document, near enough: what an editor did round them is taken off."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n").removeprefix("\ufeff")
    return [entry for piece in plain.split(DELIMITER) if (entry := piece.strip())]


def _stands(change: int, back: int | None, undone: set[int]) -> bool:
    return change not in undone and (back is None or back in undone)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _key(place: Place) -> dict[str, str]:
    return {"profile": place.profile, "project": place.project, "user": place.user, "target": place.target}


def _entry(row: Sequence[Any]) -> TailEntry:
    (id_, profile, project, user, target, text, at, why, change, _, uses, last_used, proposed, forgotten) = row[:14]
    reason, category, tags = row[14:]
    return TailEntry(
        id=id_,
        text=text,
        scope=Scope(profile, project, user),
        target=target,
        left=at,
        why=why,
        reason=reason or "",
        change=change,
        category=category,
        tags=tuple(parsed(tags)) if tags else (),
        uses=uses,
        last_used=last_used,
        proposed=proposed,
        forgotten=forgotten,
    )
