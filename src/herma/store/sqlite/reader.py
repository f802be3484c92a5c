"""What search reads of `herma.db`: implements `TranscriptReader`, one query per batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import apsw

from herma.ports import Head, Spot, Standing, Surroundings
from herma.store.searchable import searchable_text
from herma.store.sqlite.database import Database
from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries
from herma.store.sqlite.sessions import SqliteSessions
from herma.types import Message, Scope, SessionInfo

_SHOWN = ("before", "from", "first_ones", "last_ones")
_NEVER = 2**62


class SqliteReader:
    """Reads only; it creates nothing where there is no database yet."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("reader")
        self._counted: WeakKeyDictionary[apsw.Connection, tuple[int, int]] = WeakKeyDictionary()
        self._asked = {name: f"{self._sql['shown']} {self._sql[name]}" for name in _SHOWN}

    def heads(self, message_ids: Sequence[int]) -> list[Head]:
        return [Head(*row) for row in self._rows("heads", message_ids)]

    def texts(self, message_ids: Sequence[int], at_most: int) -> dict[int, str]:
        rows = self._stored("texts", message_ids, 1)
        return {id_: _searchable(content, parts, calls, tool, at_most) for id_, content, parts, calls, tool in rows}

    def turns(self, message_ids: Sequence[int], at_most: int) -> dict[int, tuple[Head, str]]:
        rows = self._stored("turns", message_ids, 5)
        return {
            id_: (Head(id_, session, role, timestamp, hidden), _searchable(content, parts, calls, tool, at_most))
            for id_, session, role, timestamp, hidden, content, parts, calls, tool in rows
        }

    def neighbours(self, message_ids: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
        return {id_: (before, after) for id_, before, after in self._rows("neighbours", message_ids)}

    def surroundings(self, spots: Sequence[Spot], window: int, ends: int) -> list[Surroundings]:
        return self._db.read(
            lambda connection: [self._around(connection, spot, window, ends) for spot in spots],
            [Surroundings() for _ in spots],
        )

    def members(self, conversations: Sequence[str]) -> dict[str, list[SessionInfo]]:
        found: dict[str, list[SessionInfo]] = {conversation: [] for conversation in conversations}
        sessions = self._sessions.of_conversations(list(found))
        for session in sorted(sessions, key=lambda session: (session.started, session.id)):
            found[session.conversation].append(session)
        return found

    def newest(self, limit: int) -> list[int]:
        return [row[0] for row in self._db.rows(self._sql["newest"], {"limit": limit})]

    def sessions(self, session_ids: Sequence[str]) -> dict[str, SessionInfo]:
        return self._sessions.get(session_ids, deleted=True)

    def standings(self, session_ids: Sequence[str]) -> dict[str, Standing]:
        scopes: dict[tuple[str, ...], Scope] = {}
        found = {}
        for id_, source, *place, conversation, archived, deleted in self._rows("standings", session_ids):
            scope = scopes.get(key := tuple(place)) or scopes.setdefault(key, Scope(*key))
            found[id_] = Standing(id_, source, scope, conversation, bool(archived), deleted)
        return found

    def titled(self, words: Sequence[str], limit: int) -> list[tuple[SessionInfo, int | None]]:
        words = [word.lower() for word in words]
        if not words or not self._db.rows(self._sql["any_titled"], {"word": max(words, key=len)}):
            return []
        bindings = {"words": json.dumps(words), "limit": limit}
        first = dict(self._db.rows(self._sql["titled"], bindings))
        known = self._sessions.get(list(first)) if first else {}
        return [(known[id_], message) for id_, message in first.items() if id_ in known]

    def size(self) -> int:
        return self._db.read(self._count, 0)

    def _count(self, connection: apsw.Connection) -> int:
        """Counting visits every session: it is done again only after something was written."""
        version = int(fetch(connection, "PRAGMA data_version")[0][0])
        counted = self._counted.get(connection)
        if counted is None or counted[0] != version:
            counted = self._counted[connection] = (version, int(fetch(connection, self._sql["size"])[0][0]))
        return counted[1]

    def _around(self, connection: apsw.Connection, spot: Spot, window: int, ends: int) -> Surroundings:
        """Four short statements take a third of the time of one for all messages, with its temporary tables."""
        for key, here in fetch(connection, self._sql["place"], (spot.message_id,)):
            messages = self._shown(connection, "before", (key, spot.message_id, window), here)[::-1]
            messages += self._shown(connection, "from", (key, spot.message_id, window + 1), here)
            before = messages[0].id if spot.first == here else _NEVER
            after = messages[-1].id if spot.last == here else -1
            start = self._shown(connection, "first_ones", (spot.first, before, ends), spot.first)
            end = self._shown(connection, "last_ones", (spot.last, after, ends), spot.last)
            return Surroundings(messages, start, end[::-1])
        return Surroundings()

    def _shown(self, connection: apsw.Connection, name: str, bindings: Sequence[Any], session_id: str) -> list[Message]:
        rows = fetch(connection, self._asked[name], bindings)
        if any(type(value) is bytes for row in rows for value in row[3:6]):
            whole = texts(connection, [value for row in rows for value in row[3:6]])
            rows = [(*row[:3], *map(whole, row[3:6]), *row[6:]) for row in rows]
        return [_message(row, session_id) for row in rows]

    def _stored(self, name: str, ids: Sequence[int], first: int) -> list[Any]:
        """Rows in which three columns from `first` on may refer to text that is kept elsewhere; mostly none does."""
        bindings = {"ids": _array(ids)}

        def work(connection: apsw.Connection) -> list[Any]:
            rows: list[Any] = connection.execute(self._sql[name], bindings).fetchall()
            apart = [value for row in rows for value in row[first : first + 3] if type(value) is bytes]
            if not apart:
                return rows
            whole = texts(connection, apart, base64=False)
            return [(*row[:first], *map(whole, row[first : first + 3]), *row[first + 3 :]) for row in rows]

        return self._db.read(work, [])

    def _rows(self, name: str, ids: Sequence[int] | Sequence[str]) -> list[Any]:
        return self._db.rows(self._sql[name], {"ids": _array(ids)})


def _searchable(content: str | None, parts: str | None, calls: str | None, tool: str | None, at_most: int) -> str:
    """Plain prose is what it is; what was taken out of it as noise is not what a query looks for."""
    if content is not None and calls is None and tool is None and "\x1b" not in content:
        return content[:at_most]
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool)[:at_most]


def _message(row: Sequence[Any], session_id: str) -> Message:
    id_, role, timestamp, content, parts, calls, call_id, tool_name, hidden = row
    return Message(
        role=role,
        content=content if parts is None else json.loads(parts),
        id=id_,
        session_id=session_id,
        timestamp=timestamp,
        tool_calls=tuple(json.loads(calls)) if calls else (),
        tool_call_id=call_id,
        tool_name=tool_name,
        hidden=hidden,
    )


def _array(ids: Sequence[int] | Sequence[str]) -> str:
    return json.dumps(list(ids))
