"""What search reads of `herma.db`: implements `TranscriptReader`, one query per batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

import apsw

from herma.ports import Head, Spot, Standing, Surroundings
from herma.ports.search import Admitted, Shown, Turns
from herma.store.searchable import searchable_text
from herma.store.sqlite.database import Database
from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries
from herma.store.sqlite.sessions import SqliteSessions
from herma.types import Scope, SessionInfo

_SHOWN = ("following", "first_ones", "last_ones")
_NEVER = 2**62


class SqliteReader:
    """Reads only; it creates nothing where there is no database yet."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("reader")
        self._counted: WeakKeyDictionary[apsw.Connection, tuple[int, int]] = WeakKeyDictionary()
        self._asked = {name: f"{self._sql['shown']} {self._sql[name]}" for name in _SHOWN}

    def steady(self) -> AbstractContextManager[None]:
        return self._db.steady()

    def texts(self, message_ids: Sequence[int], at_most: int) -> dict[int, str]:
        rows = self._stored("texts", message_ids, 1)
        return {row[0]: _searchable(row[1:], at_most) for row in rows}

    def turns(self, message_ids: Sequence[int], at_most: int = 0) -> Turns:
        rows = self._stored("turns", message_ids, 13) if at_most else self._rows("heads", message_ids)
        heads, sessions = [], {}
        scopes: dict[tuple[str, ...], Scope] = {}
        for row in rows:
            heads.append(Head._make(row[:5]))
            if (session := row[1]) not in sessions:
                scope = scopes.get(key := row[6:10]) or scopes.setdefault(key, Scope(*key))
                sessions[session] = Standing(session, row[5], scope, row[10], bool(row[11]), row[12])
        return Turns(heads, sessions, {row[0]: _searchable(row[13:], at_most) for row in rows} if at_most else {})

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

    def newest(self, limit: int, admitted: Admitted | None = None) -> list[int]:
        if admitted is None:
            return [row[0] for row in self._db.rows(self._sql["newest"], {"limit": limit})]
        return self._db.read(lambda connection: self._newest_of(connection, limit, admitted), [])

    def _newest_of(self, connection: apsw.Connection, limit: int, admitted: Admitted) -> list[int]:
        """Sessions are gone through from the one last active on, until they have enough messages. There are many of
        them, and few places they come from: those are chosen here, and SQLite does the rest.
        """
        kinds = [
            kind
            for kind in fetch(connection, self._sql["kinds"])
            if admitted.wanted(kind[0], Scope(*kind[1:4]), bool(kind[4]))
        ]
        if not kinds:
            return []
        times = {"since": admitted.since, "before": admitted.before}
        asked = {**times, "kinds": json.dumps(kinds), "sessions": json.dumps([*admitted.sessions])}
        keys, messages = list[int](), 0
        for key, count in connection.execute(self._sql["of_kinds"], asked):
            keys.append(key)
            messages += count
            if messages >= limit:
                break
        of_these = {**times, "keys": json.dumps(keys), "roles": json.dumps([*admitted.roles]), "limit": limit}
        return [row[0] for row in fetch(connection, self._sql["newest_of"], of_these)]

    def sessions(self, session_ids: Sequence[str]) -> dict[str, SessionInfo]:
        return self._sessions.get(session_ids, deleted=True)

    def titled(
        self, words: Sequence[str], limit: int, *, exactly: bool = False
    ) -> list[tuple[SessionInfo, int | None]]:
        words = list(words) if exactly else [word.lower() for word in words]
        if not words or not (exactly or self._db.rows(self._sql["any_titled"], {"word": max(words, key=len)})):
            return []
        bindings = {"words": json.dumps(words), "limit": limit}
        first = dict(self._db.rows(self._sql["entitled" if exactly else "titled"], bindings))
        known = self._sessions.get(list(first)) if first else {}
        return [(known[id_], message) for id_, message in first.items() if id_ in known]

    def size(self) -> int:
        return self._db.glance(self._count, 0)

    def _count(self, connection: apsw.Connection) -> int:
        """Counting visits every session: it is done again only after something was written."""
        version = int(fetch(connection, "PRAGMA data_version")[0][0])
        counted = self._counted.get(connection)
        if counted is None or counted[0] != version:
            counted = self._counted[connection] = (version, int(fetch(connection, self._sql["size"])[0][0]))
        return counted[1]

    def _around(self, connection: apsw.Connection, spot: Spot, window: int, ends: int) -> Surroundings:
        """Four short statements take a third of the time of one for all messages, with its temporary tables. Where the
        window reaches an end of the session, there is nothing beyond it to ask for.
        """
        rows = fetch(connection, self._sql["until"], (spot.message_id, window + 1))
        if not rows:
            return Surroundings()
        key, here = rows[0][8:]
        messages = self._messages(connection, rows[::-1])
        messages += self._shown(connection, "following", (key, spot.message_id, window))
        start: list[Shown] = []
        end: list[Shown] = []
        if spot.first != here or len(rows) > window:
            first = key if spot.first == here else self._key(connection, spot.first)
            before = messages[0].id if spot.first == here else _NEVER
            start = self._shown(connection, "first_ones", (first, before, ends))
        if spot.last != here or len(messages) == len(rows) + window:
            last = key if spot.last == here else self._key(connection, spot.last)
            after = messages[-1].id if spot.last == here else -1
            end = self._shown(connection, "last_ones", (last, after, ends))
        return Surroundings(messages, start, end[::-1])

    def _key(self, connection: apsw.Connection, session_id: str) -> int | None:
        return next((row[0] for row in fetch(connection, self._sql["key"], (session_id,))), None)

    def _shown(self, connection: apsw.Connection, name: str, bindings: Sequence[Any]) -> list[Shown]:
        return self._messages(connection, fetch(connection, self._asked[name], bindings))

    def _messages(self, connection: apsw.Connection, rows: Sequence[Any]) -> list[Shown]:
        if _apart(rows, 3):
            whole = texts(connection, [value for row in rows for value in row[3:6]])
            rows = [(*row[:3], *map(whole, row[3:6]), *row[6:]) for row in rows]
        return [_shown(row) for row in rows]

    def _stored(self, name: str, ids: Sequence[int], first: int) -> list[Any]:
        """Rows in which three columns from `first` on may refer to text that is kept elsewhere; mostly none does."""
        if not _apart(rows := self._rows(name, ids), first):
            return rows

        def work(connection: apsw.Connection) -> list[Any]:
            rows = fetch(connection, self._sql[name], {"ids": _array(ids)})
            whole = texts(connection, _apart(rows, first), base64=False)
            return [(*row[:first], *map(whole, row[first : first + 3]), *row[first + 3 :]) for row in rows]

        return self._db.read(work, [])

    def _rows(self, name: str, ids: Sequence[int]) -> list[Any]:
        return self._db.rows(self._sql[name], {"ids": _array(ids)})


def _apart(rows: Sequence[Any], first: int) -> list[bytes]:
    return [value for row in rows for value in row[first : first + 3] if type(value) is bytes]


def _searchable(stored: Sequence[str | None], at_most: int) -> str:
    """Plain prose is what it is; what was taken out of it as noise is not what a query looks for."""
    content, parts, calls, tool = stored
    if content is not None and calls is None and tool is None and "\x1b" not in content:
        return content[:at_most]
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool)[:at_most]


def _shown(row: Sequence[Any]) -> Shown:
    id_, role, timestamp, content, parts, calls, call_id, tool_name = row[:8]
    if parts is None and not calls:
        return Shown(id_, role, timestamp, content, (), call_id, tool_name)
    said = content if parts is None else json.loads(parts)
    return Shown(id_, role, timestamp, said, tuple(json.loads(calls)) if calls else (), call_id, tool_name)


def _array(ids: Sequence[int]) -> str:
    """JSON, as `json.dumps` would write it in ten times the time."""
    return f"[{','.join(map(str, ids))}]"
