"""What search reads of `herma.db`: implements `TranscriptReader`, one query per batch."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import apsw

from herma.ports import Edge, Head
from herma.store.searchable import searchable_text
from herma.store.sqlite.database import Database
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries
from herma.store.sqlite.sessions import SqliteSessions
from herma.types import Message, SessionInfo


class SqliteReader:
    """Reads only; it creates nothing where there is no database yet."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("reader")

    def heads(self, message_ids: Sequence[int]) -> list[Head]:
        return [Head(*row) for row in self._rows("heads", message_ids)]

    def texts(self, message_ids: Sequence[int], at_most: int) -> dict[int, str]:
        def work(connection: apsw.Connection) -> dict[int, str]:
            rows: list[Any] = connection.execute(self._sql["texts"], {"ids": _array(message_ids)}).fetchall()
            whole = texts(connection, [value for row in rows for value in row[1:4]], base64=False)
            return {
                id_: _searchable(whole(content), whole(parts), whole(calls), tool, at_most)
                for id_, content, parts, calls, tool in rows
            }

        return self._db.read(work, {})

    def neighbours(self, message_ids: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
        return {id_: (before, after) for id_, before, after in self._rows("neighbours", message_ids)}

    def windows(self, message_ids: Sequence[int], window: int) -> dict[int, list[Message]]:
        return self._shown("windows", {"ids": _array(message_ids), "window": window})

    def edges(self, edges: Sequence[Edge], count: int) -> dict[int, list[Message]]:
        asked = json.dumps([(edge.session_id, edge.before, edge.after) for edge in edges])
        return self._shown("edges", {"edges": asked, "count": count})

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

    def titled(self, words: Sequence[str], limit: int) -> list[tuple[SessionInfo, int | None]]:
        bindings = {"words": json.dumps([word.lower() for word in words]), "limit": limit}
        first = dict(self._db.rows(self._sql["titled"], bindings))
        known = self._sessions.get(list(first)) if first else {}
        return [(known[id_], message) for id_, message in first.items() if id_ in known]

    def size(self) -> int:
        rows = self._db.rows(self._sql["size"])
        return int(rows[0][0]) if rows else 0

    def _shown(self, name: str, bindings: dict[str, Any]) -> dict[int, list[Message]]:
        """Messages, by what they were asked for."""

        def work(connection: apsw.Connection) -> dict[int, list[Message]]:
            found: dict[int, list[Message]] = defaultdict(list)
            rows: list[Any] = connection.execute(self._sql[name], bindings).fetchall()
            whole = texts(connection, [value for row in rows for value in row[5:8]])
            for row in rows:
                found[row[0]].append(_message(row, whole(row[5]), whole(row[6]), whole(row[7])))
            return found

        return self._db.read(work, {})

    def _rows(self, name: str, ids: Sequence[int]) -> list[Any]:
        return self._db.rows(self._sql[name], {"ids": _array(ids)})


def _searchable(content: str | None, parts: str | None, calls: str | None, tool: str | None, at_most: int) -> str:
    """Plain prose is what it is; what was taken out of it as noise is not what a query looks for."""
    if content is not None and calls is None and tool is None and "\x1b" not in content:
        return content[:at_most]
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool)[:at_most]


def _message(row: Sequence[Any], content: str | None, parts: str | None, calls: str | None) -> Message:
    return Message(
        id=row[1],
        session_id=row[2],
        role=row[3],
        timestamp=row[4],
        content=content if parts is None else json.loads(parts),
        tool_calls=tuple(json.loads(calls)) if calls else (),
        tool_call_id=row[8],
        tool_name=row[9],
        hidden=row[10],
    )


def _array(ids: Sequence[int]) -> str:
    return json.dumps(list(ids))
