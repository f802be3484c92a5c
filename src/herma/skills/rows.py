"""Rows about skills in `herma.db`: history, inbox, usage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from typing import Any, Literal

import apsw

from herma.memory.files import author_columns
from herma.skills.types import (
    Counted,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    NewSkillChange,
    PatchSkill,
    RemoveSkillFile,
    SkillChange,
    SkillOp,
    SkillPending,
    SkillState,
    SkillUsage,
    WriteSkillFile,
)
from herma.store.database import Database, insert_returning_id, parsed, queries
from herma.types import Author, Origin, Who

_KINDS: dict[str, type[SkillOp]] = {
    "create": CreateSkill,
    "edit": EditSkill,
    "patch": PatchSkill,
    "delete": DeleteSkill,
    "write_file": WriteSkillFile,
    "remove_file": RemoveSkillFile,
}
_ACTIONS = {kind: action for action, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class OpenChange:
    """A change that was intended; the files tell whether it happened."""

    id: int
    path: str
    file: str
    before_hash: str
    after_hash: str
    moved_from: str
    moved_to: str


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as the history has it."""

    hash: str
    content: str | bytes | None
    skill: str


class SkillRows:
    """Implements `SkillHistory`; the rest is for the adapter that writes the files."""

    def __init__(self, database: Database, profile: str = "") -> None:
        self._db = database
        self._sql = queries("skills")
        self._profile = {"profile": profile}

    # ── writing ──

    def intend(
        self,
        path: str,
        file: str,
        change: NewSkillChange,
        at: float,
        *,
        before: bytes | None = None,
        after: bytes | None = None,
        moved: tuple[str, str] = ("", ""),
        done: bool = False,
    ) -> int:
        """Make a change durable in the history before (or, for a hand edit, after) it is on disk. → its id."""
        bindings = {
            **self._profile,
            **author_columns(change.author),
            "at": at,
            "skill": change.skill,
            "path": path,
            "file": file,
            "action": change.action,
            "reason": change.reason,
            "undoes": change.undoes,
            "before_hash": hash_of(before),
            "after_hash": hash_of(after),
            "before": _kept(before),
            "after": _kept(after),
            "moved_from": moved[0],
            "moved_to": moved[1],
            "state": "done" if done else "open",
        }
        return self._db.write(lambda c: insert_returning_id(c, self._sql["insert_change"], bindings))

    def settle(self, change_id: int, state: Literal["done", "void"]) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["settle"], {"id": change_id, "state": state})

        self._db.write(work)

    def open(self) -> list[OpenChange]:
        return [OpenChange(*row) for row in self._db.rows(self._sql["open_changes"], self._profile)]

    def known(self, path: str) -> dict[str, KnownFile]:
        """The files of a skill as the history has them; those that are gone have no hash."""
        rows = self._db.rows(self._sql["known_files"], {**self._profile, "path": path})
        return {file: KnownFile(hash_, content, skill) for file, hash_, content, skill, _ in rows}

    def known_paths(self) -> list[str]:
        return [path for (path,) in self._db.rows(self._sql["known_paths"], self._profile)]

    def is_moved_away(self, path: str) -> bool:
        """Whether the last thing that happened to the folder as a whole was that it went elsewhere."""
        rows = self._db.rows(self._sql["last_move"], {**self._profile, "path": path})
        return bool(rows) and rows[0][1] == path

    # ── reading ──

    def changes(self, skill: str | None = None, *, limit: int | None = None) -> list[SkillChange]:
        which = "all_changes" if skill is None else "changes_of"
        bindings = {**self._profile, "limit": -1 if limit is None else limit}
        return self._changes(which, bindings if skill is None else {**bindings, "skill": skill})

    def change(self, change_id: int) -> SkillChange | None:
        found = self._changes("change", {**self._profile, "id": change_id})
        return found[0] if found else None

    def archived_from(self) -> dict[str, tuple[str, float]]:
        """Folder in the archive → where it was before, and when it was put there."""
        rows = self._db.rows(self._sql["archived_from"], self._profile)
        return {target: (source, at) for target, source, at in rows}

    def _changes(self, which: str, bindings: Mapping[str, Any]) -> list[SkillChange]:
        rows = self._db.rows(f"{self._sql['columns']}\n {self._sql[which]}", bindings)
        standing: dict[int, int] = {}
        undos = self._db.rows(self._sql["undos"]) if rows else []
        for change_id, undo_id in sorted(undos, key=lambda pair: -pair[1]):  # an undo may be undone: the newest first
            if undo_id not in standing:
                standing.setdefault(change_id, undo_id)
        return [_change(row, standing) for row in rows]


class SqliteSkillInbox:
    """Implements `SkillInbox`."""

    def __init__(self, database: Database, profile: str = "") -> None:
        self._db = database
        self._sql = queries("skills")
        self._profile = {"profile": profile}

    def put(self, pending: SkillPending) -> SkillPending:
        operation = _encode(pending.operation)
        fingerprint = sha256(f"{self._profile['profile']}\n{operation}".encode()).hexdigest()
        bindings = {
            **self._profile,
            **author_columns(pending.author),
            "at": pending.at,
            "expires": pending.expires,
            "reason": pending.reason,
            "operation": operation,
            "fingerprint": fingerprint,
        }

        def work(connection: apsw.Connection) -> SkillPending:
            known = {"fingerprint": fingerprint, "now": pending.at}
            for same in connection.execute(self._sql["same_proposal"], known).fetchall():
                return _pending(same)
            return replace(pending, id=insert_returning_id(connection, self._sql["insert_pending"], bindings))

        return self._db.write(work)

    def list(self, now: float) -> Sequence[SkillPending]:
        rows = self._db.rows(self._sql["waiting"], {**self._profile, "now": now, "id": None})
        return [_pending(row) for row in rows]

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        def work(connection: apsw.Connection) -> bool:
            bindings = {**self._profile, "now": now, "id": pending_id}
            waiting = connection.execute(self._sql["waiting"], bindings).fetchall()
            if waiting:
                connection.execute(self._sql["decide"], {"decision": decision, "now": now, "id": pending_id})
            return bool(waiting)

        return self._db.write(work)


class SqliteSkillUsage:
    """Implements `SkillUsageRows`."""

    def __init__(self, database: Database, profile: str = "") -> None:
        self._db = database
        self._sql = queries("skills")
        self._profile = {"profile": profile}

    def all(self) -> dict[str, SkillUsage]:
        rows = self._db.rows(self._sql["usage"], {**self._profile, "name": None})
        return {row[0]: _usage(row) for row in rows}

    def count(self, name: str, counted: Counted, at: float) -> SkillUsage:
        def work(connection: apsw.Connection) -> SkillUsage:
            connection.execute(self._sql["count"], {**self._profile, "name": name, "at": at, **asdict(counted)})
            rows: list[Any] = connection.execute(self._sql["usage"], {**self._profile, "name": name}).fetchall()
            return _usage(rows[0])

        return self._db.write(work)

    def put(self, usage: SkillUsage) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["put_usage"], {**self._profile, **asdict(usage), "pinned": int(usage.pinned)})

        self._db.write(work)

    def set_states(self, states: Mapping[str, SkillState], at: float) -> None:
        def work(connection: apsw.Connection) -> None:
            for name, state in states.items():
                connection.execute(self._sql["set_state"], {**self._profile, "name": name, "state": state, "at": at})

        self._db.write(work)


def hash_of(data: bytes | None) -> str:
    """'' where there is no file."""
    return "" if data is None else sha256(data).hexdigest()


def _kept(data: bytes | None) -> str | bytes | None:
    """Text as text, so that it can be read in any browser of databases; the rest as it is."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return data if "\x00" in text else text


def _encode(operation: SkillOp) -> str:
    fields = {"action": _ACTIONS[type(operation)], **asdict(operation)}
    return json.dumps(fields, ensure_ascii=False, sort_keys=True)


def _decode(text: str) -> SkillOp:
    fields = parsed(text)
    return _KINDS[fields.pop("action")](**fields)


def _pending(row: Sequence[Any]) -> SkillPending:
    id_, at, expires, who, origin, session, message, reason, operation, decision = row
    author = Author(Who(who), Origin(origin), session, message)
    return SkillPending(id_, at, expires, author, _decode(operation), reason, decision)


def _usage(row: Sequence[Any]) -> SkillUsage:
    usage = SkillUsage(*row)  # the query names the columns in this order
    return replace(usage, pinned=bool(usage.pinned))


def _change(row: Sequence[Any], undone_by: Mapping[int, int]) -> SkillChange:
    id_, at, skill, path, file, who, origin, session, message, action, reason, undoes = row[:12]
    before, after, moved_from, moved_to = row[12:]
    return SkillChange(
        id=id_,
        at=at,
        skill=skill,
        path=path,
        file=file,
        author=Author(Who(who), Origin(origin), session, message),
        action=action,
        before=before,
        after=after,
        moved_from=moved_from,
        moved_to=moved_to,
        reason=reason,
        undoes=undoes,
        undone_by=undone_by.get(id_),
    )
