"""The inbox in `herma.db`: staged writes that wait for a person."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from typing import Any, Literal

import apsw

from herma.store.sqlite.curated import author_columns
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.errors import parsed
from herma.store.sqlite.queries import queries
from herma.types import Add, Author, MemoryOp, Origin, Pending, Remove, Replace, Scope, Who

_KINDS: dict[str, type[Add | Replace | Remove]] = {"add": Add, "replace": Replace, "remove": Remove}


class SqliteInbox:
    """Implements `Inbox`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("curated")

    def put(self, pending: Pending) -> Pending:
        operations = _encode(pending.operations)
        scope = pending.scope
        place = {"profile": scope.profile, "project": scope.project, "user": scope.user, "target": pending.target}
        fingerprint = sha256(json.dumps([*place.values(), operations]).encode()).hexdigest()
        bindings = {
            **place,
            **author_columns(pending.author),
            "at": pending.at,
            "expires": pending.expires,
            "reason": pending.reason,
            "operations": operations,
            "fingerprint": fingerprint,
        }

        def work(connection: apsw.Connection) -> Pending:
            known = {"fingerprint": fingerprint, "now": pending.at}
            for same in connection.execute(self._sql["same_proposal"], known).fetchall():
                return _pending(same)
            return replace(pending, id=insert_returning_id(connection, self._sql["insert_pending"], bindings))

        return self._db.write(work)

    def list(self, now: float) -> Sequence[Pending]:
        return [_pending(row) for row in self._db.rows(self._sql["waiting"], {"now": now, "id": None})]

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        def work(connection: apsw.Connection) -> bool:
            waiting = connection.execute(self._sql["waiting"], {"now": now, "id": pending_id}).fetchall()
            if waiting:
                connection.execute(self._sql["decide"], {"decision": decision, "now": now, "id": pending_id})
            return bool(waiting)

        return self._db.write(work)


def _encode(operations: Sequence[MemoryOp]) -> str:
    return json.dumps([{"action": type(op).__name__.lower(), **_fields(op)} for op in operations], ensure_ascii=False)


def _fields(op: MemoryOp) -> dict[str, Any]:
    """What is not said is left out, so that a proposal from before it could be said is still the same proposal."""
    return {name: value for name, value in asdict(op).items() if value or name not in ("kept", "reworded")}


def _decode(text: str) -> tuple[MemoryOp, ...]:
    operations: list[MemoryOp] = []
    for fields in parsed(text):
        kind = _KINDS[fields.pop("action")]
        if "tags" in fields:
            fields["tags"] = tuple(fields["tags"])
        operations.append(kind(**fields))
    return tuple(operations)


def _pending(row: Sequence[Any]) -> Pending:
    (
        id_,
        at,
        expires,
        profile,
        project,
        user,
        target,
        who,
        origin,
        session,
        message,
        reason,
        operations,
        decision,
    ) = row
    return Pending(
        id=id_,
        at=at,
        expires=expires,
        scope=Scope(profile, project, user),
        target=target,
        author=Author(Who(who), Origin(origin), session, message),
        operations=_decode(operations),
        reason=reason,
        decision=decision,
    )
