"""Rows about curated memory in `herma.db`: history, what is known about entries, and the inbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import apsw

from herma.ports import NewChange, Place
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.errors import parsed
from herma.store.sqlite.opening import refuse_foreign
from herma.store.sqlite.queries import queries
from herma.store.sqlite.tail import follow_change, follow_void
from herma.types import Author, Change, Entry, Origin, Scope, Who

_PLACE = ("profile", "project", "user", "target")


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest change of a document, as far as settling needs it."""

    id: int
    before_hash: str
    after_hash: str
    after_text: str
    open: bool


class CuratedRows:
    """History and notes.

    Implements `CuratedHistory`; `intend` and `settle_…` are for the adapter that writes the files.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("curated")

    # ── writing ──

    def identity(self) -> object:
        """Which database this is: another file may get the same name."""
        return self._db.identity()

    def refuse_foreign(self) -> None:
        """Raise when the database is not one of ours, before anything is made beside it."""
        refuse_foreign(self._db.path)

    def last(self, place: Place) -> LastChange | None:
        for change_id, before_hash, after_hash, after, state in self._db.rows(self._sql["last_change"], _key(place)):
            return LastChange(change_id, before_hash, after_hash, after, state == "open")
        return None

    def intend(
        self, place: Place, change: NewChange, at: float, before_hash: str, after: str, *, done: bool = False
    ) -> int:
        """Make a change durable in the history before (or, for a hand edit, after) its text is in the file.

        → its id.
        """

        bindings = {
            **_key(place),
            **author_columns(change.author),
            "at": at,
            "action": change.action,
            "reason": change.reason,
            "undoes": change.undoes,
            "before_hash": before_hash,
            "after_hash": hash_of(after),
            "after_text": after,
            "state": "done" if done else "open",
        }

        def work(connection: apsw.Connection) -> int:
            change_id = insert_returning_id(connection, self._sql["insert_change"], bindings)
            self._upsert(connection, place, list((change.notes or {}).values()), change_id)
            follow_change(connection, place, change_id, at, after, change.moved, undo=change.undoes is not None)
            return change_id

        return self._db.write(work)

    def settle_void(self, change_id: int) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["settle_void"], {"id": change_id})
            connection.execute(self._sql["forget_void"], {"id": change_id})
            follow_void(connection, change_id)

        self._db.write(work)

    # ── reading ──

    def changes(self, place: Place | None = None, *, limit: int | None = None) -> list[Change]:
        how_many = {"limit": -1 if limit is None else limit}
        if place is None:
            return self._changes(self._db.rows(self._sql["all_changes"], how_many))
        return self._changes(self._db.rows(self._sql["changes_of"], {**_key(place), **how_many}))

    def change(self, change_id: int) -> Change | None:
        found = self._changes([(change_id,)])
        return found[0] if found else None

    def text_at(self, place: Place, version: str) -> str | None:
        for (text,) in self._db.rows(self._sql["text_at"], {**_key(place), "version": version}) if version else ():
            return str(text)
        return None

    def notes(self, place: Place, texts: Sequence[str]) -> dict[str, Entry]:
        by_hash = {hash_of(text): text for text in texts}
        rows = self._db.rows(self._sql["notes"], {**_key(place), "hashes": json.dumps(list(by_hash))})
        return {by_hash[row[0]]: _entry(by_hash[row[0]], row) for row in rows}

    def annotate(self, place: Place, entries: Sequence[Entry]) -> None:
        self._db.write(lambda c: self._upsert(c, place, entries, None))

    def _changes(self, ids: Sequence[tuple[Any, ...]]) -> list[Change]:
        rows = self._db.rows(self._sql["changes"], {"ids": json.dumps([id_ for (id_,) in ids])}) if ids else []
        undone_by = _undone(self._db.rows(self._sql["undos"])) if rows else {}
        return [_change(row, undone_by) for row in rows]

    def _upsert(
        self, connection: apsw.Connection, place: Place, entries: Sequence[Entry], change_id: int | None
    ) -> None:
        for entry in entries:
            bindings = {
                **_key(place),
                "hash": hash_of(entry.text),
                "category": entry.category,
                "tags": json.dumps(entry.tags),
                "origin": entry.origin,
                "vouched": entry.vouched,
                "created": entry.created,
                "changed": entry.changed,
                "confirmed": entry.confirmed,
                "change": change_id if entry.change is None else entry.change,
            }
            connection.execute(self._sql["upsert_note"], bindings)


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def author_columns(author: Author) -> dict[str, Any]:
    """An author as the columns that every table uses for one."""
    return {"who": author.who, "origin": author.origin, "session": author.session, "message": author.message}


def _key(place: Place) -> dict[str, str]:
    return {name: getattr(place, name) for name in _PLACE}


def _entry(text: str, row: Sequence[Any]) -> Entry:
    _, category, tags, origin, vouched, created, changed, confirmed, change_id = row
    return Entry(
        text=text,
        category=category,
        tags=tuple(parsed(tags)),
        origin=Origin(origin) if origin else None,
        vouched=bool(vouched),
        created=created,
        changed=changed,
        confirmed=confirmed,
        change=change_id,
    )


def _undone(undos: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Change → the undo that took it back, as far as that undo still stands.

    An undo is always newer than what it undoes.
    """
    standing: dict[int, int] = {}
    for change_id, undo_id in reversed(undos):
        if undo_id not in standing:
            standing.setdefault(change_id, undo_id)
    return standing


def _change(row: Sequence[Any], undone_by: Mapping[int, int]) -> Change:
    (id_, at, profile, project, user, target, who, origin, session, message) = row[:10]
    action, reason, undoes, after, before = row[10:]
    return Change(
        id=id_,
        at=at,
        scope=Scope(profile, project, user),
        target=target,
        author=Author(Who(who), Origin(origin), session, message),
        action=action,
        before=before,
        after=after,
        reason=reason,
        undoes=undoes,
        undone_by=undone_by.get(id_),
    )
