"""Sessions in `herma.db`: implements `SessionRows` and `SessionQueries`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import apsw

from herma.errors import StoreChanged
from herma.ports import SessionChange, SessionNews
from herma.store.sqlite.commits import Work
from herma.store.sqlite.database import Database
from herma.store.sqlite.filters import conditions
from herma.store.sqlite.payloads import Payload, payload, store, unpack
from herma.store.sqlite.queries import queries
from herma.types import Scope, SessionFilter, SessionInfo, Usage

T = TypeVar("T")
CHANGEABLE = frozenset(SessionChange.__annotations__)
PLACE = ("provider", "chat_type", "folder", "branch")
_DISTILLED = ("episode_terms", "episode", "state", "facts", "reviews", "tries")
PURGE_SLICE = 2_000
"""Messages that one transaction purges, so that nobody waits long behind it."""


class SqliteSessions:
    """Rows of the table `sessions`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("sessions")

    # ── one by one ──

    def add(self, sessions: Sequence[SessionInfo], prompts: Mapping[str, str]) -> list[SessionInfo]:
        ready = {session_id: payload(text) for session_id, text in prompts.items()}

        def work(connection: apsw.Connection) -> list[SessionInfo]:
            return [self._insert(connection, session, ready.get(session.id)) for session in sessions]

        return self._unless_taken(work) if sessions else []

    def get(self, session_ids: Sequence[str], *, deleted: bool = False) -> dict[str, SessionInfo]:
        found = self._sessions("get", ids=json.dumps(list(session_ids)), deleted=deleted)
        return {session.id: session for session in found}

    def news(self, session_id: str) -> SessionNews | None:
        """How it stands; None when it is not there."""
        found = self._db.rows(self._sql["news"], {"id": session_id})
        return SessionNews(*found[0]) if found else None

    def others_spoken(self, conversation: str) -> bool:
        """Whether there is anything that was said in other conversations."""
        found = self._db.rows(self._sql["others_spoken"], {"conversation": conversation})
        return bool(found and found[0][0])

    def update(self, session_ids: Sequence[str], change: SessionChange) -> int:
        unknown = set(change) - CHANGEABLE
        if unknown:
            raise KeyError(*unknown)
        columns = ", ".join(f"{name} = :{name}" for name in change)

        def work(connection: apsw.Connection) -> int:
            changed = 0
            for session_id in session_ids:
                bindings = {**change, "id": session_id}
                if change.get("title") is not None:
                    connection.execute(self._sql["free_title"], bindings)
                connection.execute(f"UPDATE sessions SET {columns} WHERE id = :id", bindings)
                changed += connection.changes()
            return changed

        return self._unless_taken(work)

    def end(self, session_id: str, at: float, reason: str) -> bool:
        return self._changes_one("end", id=session_id, at=at, reason=reason)

    def spend(self, session_id: str, usage: Usage) -> bool:
        return self._changes_one("spend", id=session_id, **_usage_bindings(usage))

    def system_prompt(self, session_id: str) -> str | None:
        for codec, data in self._db.rows(self._sql["system_prompt"], {"id": session_id}):
            return unpack(codec, data)
        return None

    def purge(self, session_id: str) -> int:
        gone = 0
        while (count := self._db.write(lambda connection: self._purge_slice(connection, session_id))) is not None:
            gone += count
        return gone

    # ── finding ──

    def with_prefix(self, prefix: str, limit: int, user: str | None = None) -> list[str]:
        bindings = {"prefix": prefix, "limit": limit, "user": user}
        return [row[0] for row in self._db.rows(self._sql["with_prefix"], bindings)]

    def titles(self, base: str, scope: Scope) -> list[tuple[str, str]]:
        bindings = {"base": base, "profile": scope.profile, "user": scope.user}
        return [(title, session_id) for title, session_id in self._db.rows(self._sql["titles"], bindings)]

    def of_conversations(self, conversations: Sequence[str]) -> list[SessionInfo]:
        return self._sessions("of_conversations", conversations=json.dumps(list(conversations)))

    def children(self, parents: Sequence[str]) -> list[SessionInfo]:
        return self._sessions("children", parents=json.dumps(list(parents)))

    def recent(self, which: SessionFilter, limit: int, offset: int) -> list[str]:
        if limit <= 0:
            return []
        matches, bindings = conditions(which, "m")
        sql = self._sql["recent"].replace("{matches}", matches)

        def work(connection: apsw.Connection) -> list[str]:
            seen: dict[str, None] = {}
            rows: Any = connection.execute(sql, bindings)
            for (conversation,) in rows:
                seen[conversation] = None
                if len(seen) >= offset + limit:
                    rows.close(True)
                    break
            return list(seen)[offset:]

        return self._db.read(work, [])

    def matching(self, which: SessionFilter) -> list[SessionInfo]:
        matches, bindings = conditions(which, "s")
        sql = f"{self._sql['columns']} WHERE s.deleted IS NULL{matches} ORDER BY s.started, s.key"
        return [_session(row) for row in self._db.rows(sql, bindings)]

    def deleted(self, before: float) -> list[SessionInfo]:
        return self._sessions("deleted", before=before)

    # ── inside ──

    def _insert(self, connection: apsw.Connection, session: SessionInfo, prompt: Payload | None) -> SessionInfo:
        bindings = {**_bindings(session), "prompt": None if prompt is None else store(connection, prompt)}
        ((conversation,),) = _all(connection, self._sql["insert"], bindings)
        return replace(session, conversation=conversation)

    def _sessions(self, name: str, **bindings: Any) -> list[SessionInfo]:
        return [_session(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]

    def _changes_one(self, name: str, **bindings: Any) -> bool:
        def work(connection: apsw.Connection) -> bool:
            connection.execute(self._sql[name], bindings)
            return connection.changes() > 0

        return self._db.write(work)

    def _unless_taken(self, work: Work[T]) -> T:
        def guarded(connection: apsw.Connection) -> T:
            try:
                return work(connection)
            except apsw.ConstraintError as exc:
                if getattr(exc, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_UNIQUE:
                    raise
                raise StoreChanged("That title or id belongs to another session.") from exc

        return self._db.write(guarded)

    def _purge_slice(self, connection: apsw.Connection, session_id: str) -> int | None:
        """One step of purging: some messages, or, when none are left, the session. → None when there was nothing."""
        key: Any = connection.execute(self._sql["key_of_deleted"], {"id": session_id}).fetchone()
        if key is None:
            return None
        for distilled in _DISTILLED:
            connection.execute(self._sql[f"purge_{distilled}"], {"key": key[0], "id": session_id})
        where = {"key": key[0], "limit": PURGE_SLICE}
        ids = [row[0] for row in _all(connection, self._sql["purge_slice"], where)]
        if ids:
            freed = [row[0] for row in _all(connection, self._sql["purge_uses"], {"ids": json.dumps(ids)})]
            connection.execute(self._sql["purge_messages"], {"ids": json.dumps(ids)})
            connection.executemany(self._sql["purge_change"], list(_runs(ids)))
        else:
            freed = [row[0] for row in _all(connection, self._sql["purge_session"], {"key": key[0]})]
        connection.execute(self._sql["purge_payloads"], {"ids": json.dumps(freed)})
        return len(ids)


def _all(connection: apsw.Connection, sql: str, bindings: dict[str, Any]) -> list[Any]:
    return connection.execute(sql, bindings).fetchall()


def _runs(ids: Sequence[int]) -> Iterator[dict[str, int]]:
    """Increasing ids as runs without gaps."""
    first = previous = ids[0]
    for message_id in [*ids[1:], None]:
        if message_id != previous + 1:
            yield {"first": first, "count": previous - first + 1}
            first = message_id or 0
        previous = message_id or 0


def _usage_bindings(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
        "cost_usd": usage.cost_usd,
    }


def _bindings(session: SessionInfo) -> dict[str, Any]:
    return {
        "id": session.id,
        "source": session.source,
        "profile": session.scope.profile,
        "project": session.scope.project,
        "user": session.scope.user,
        "chat": session.scope.chat,
        "model": session.model,
        "title": session.title,
        "parent": session.parent,
        "reason": session.reason,
        "started": session.started,
        "ended": session.ended,
        "end_reason": session.end_reason,
        "archived": session.archived,
        "deleted": session.deleted,
        "last_active": session.last_active or session.started,
        "preview": session.preview,
        **{name: getattr(session, name) for name in PLACE},
        **_usage_bindings(session.usage),
    }


def _session(row: Sequence[Any]) -> SessionInfo:
    (id_, source, profile, project, user, chat, started, conversation, title, model, parent, reason) = row[:12]
    (ended, end_reason, archived, message_count, tool_call_count) = row[12:17]
    (last_active, preview, deleted) = row[23:26]
    return SessionInfo(
        id=id_,
        source=source,
        scope=Scope(profile, project, user, chat),
        started=started,
        conversation=conversation,
        title=title,
        model=model,
        parent=parent,
        reason=reason,
        ended=ended,
        end_reason=end_reason,
        archived=bool(archived),
        message_count=message_count,
        tool_call_count=tool_call_count,
        usage=Usage(*row[17:23]),
        last_active=last_active,
        preview=preview,
        deleted=deleted,
        **dict(zip(PLACE, row[26:], strict=True)),
    )
