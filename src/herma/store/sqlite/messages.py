"""Messages in `herma.db`: implements `MessageRows`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import apsw

from herma.store.sqlite.database import Database
from herma.store.sqlite.payloads import Cell, Stored, cell, stored, texts, use
from herma.store.sqlite.queries import queries
from herma.types import Content, Hidden, Message, TranscriptStats, Usage

_LARGE = (
    2,
    3,
    4,
    7,
    8,
    9,
    14,
)  # where a row to be written may hold pieces: content, parts, calls, reasoning, sent, extra
_NEVER = 2**62


class SqliteMessages:
    """Rows of the table `messages`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("messages")

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        preview: str = "",
        staged: bool = False,
        compacts: int | None = None,
    ) -> list[int]:
        rows = [_row(message) for message in messages]
        times = [message.timestamp for message in messages]
        visible = sum(not message.hidden for message in messages)
        totals = {"messages": visible, "calls": sum(len(message.tool_calls) for message in messages)}

        def work(connection: apsw.Connection) -> list[int]:
            found: Any = connection.execute(self._sql["key"], {"id": session_id, "deleted": staged}).fetchone()
            if found is None:
                raise KeyError(session_id)
            key = int(found[0])
            ids = [_insert(connection, self._sql["insert"], key, row) for row in rows]
            at = {"key": key, "first": ids[0], "oldest": min(times), "newest": max(times)}
            connection.execute(self._sql["count_in"], {**totals, **at, "preview": preview})
            connection.execute(self._sql["change"], {"first": ids[0], "count": len(ids)})
            if compacts is not None:
                hidden = {"key": key, "first": 0, "last": compacts, "old": "", "new": "compacted"}
                connection.execute(self._sql["hide"], hidden)
                connection.execute(self._sql["recount"], {"key": key})
            return ids

        return self._db.write(work) if rows else []

    def of_session(
        self, session_id: str, *, hidden: bool, after: int | None = None, limit: int | None = None
    ) -> list[Message]:
        return self._messages(
            "of_session",
            id=session_id,
            hidden=hidden,
            after=-1 if after is None else after,
            limit=-1 if limit is None else limit,
        )

    def by_ids(self, message_ids: Sequence[int]) -> dict[int, Message]:
        found = self._messages("by_ids", ids=json.dumps(list(message_ids)))
        return {message.id: message for message in found}

    def around(self, message_id: int, window: int) -> list[Message]:
        def work(connection: apsw.Connection) -> list[Message]:
            found: Any = connection.execute(self._sql["session_of"], {"id": message_id}).fetchone()
            if found is None:
                return []
            at = {"key": found[0], "id": message_id}
            before = self._load(connection, "before", {**at, "limit": window})
            return before[::-1] + self._load(connection, "from", {**at, "limit": window + 1})

        return self._db.read(work, [])

    def edges(
        self, session_id: str, count: int, outside: tuple[int, int] | None, roles: Sequence[str]
    ) -> tuple[list[Message], list[Message]]:
        first, last = outside or (_NEVER, -1)
        which = {"id": session_id, "count": count, "roles": json.dumps(list(roles))}

        def work(connection: apsw.Connection) -> tuple[list[Message], list[Message]]:
            start = self._load(connection, "first_ones", {**which, "before": first})
            after = max(last, start[-1].id) if start and outside is None else last
            end = self._load(connection, "last_ones", {**which, "after": after})
            return start, end[::-1]

        nothing: tuple[list[Message], list[Message]] = ([], [])
        return self._db.read(work, nothing)

    def hide(self, session_id: str, first: int, last: int, old: Hidden, new: Hidden) -> int:
        def work(connection: apsw.Connection) -> int:
            found: Any = connection.execute(self._sql["key"], {"id": session_id, "deleted": False}).fetchone()
            if found is None:
                raise KeyError(session_id)
            bindings = {"key": found[0], "first": first, "last": last, "old": old, "new": new}
            connection.execute(self._sql["hide"], bindings)
            changed = connection.changes()
            connection.execute(self._sql["recount"], {"key": found[0]})
            return changed

        return self._db.write(work)

    def stats(self) -> TranscriptStats:
        def work(connection: apsw.Connection) -> TranscriptStats:
            def all_of(name: str) -> list[Any]:
                return connection.execute(self._sql[name]).fetchall()

            (totals,) = all_of("totals")
            (payloads,) = all_of("payload_totals")
            return TranscriptStats(
                sessions=totals[0],
                conversations=totals[1],
                messages=totals[2],
                hidden_messages=all_of("hidden_messages")[0][0],
                archived_sessions=totals[3],
                deleted_sessions=all_of("waiting")[0][0],
                sources={source: (sessions, messages) for source, sessions, messages in all_of("by_source")},
                usage=Usage(*totals[4:10]),
                first=totals[10],
                last=totals[11],
                payloads=payloads[0],
                payload_bytes=payloads[1],
                payload_text_bytes=payloads[2],
                file_bytes=int(str(connection.pragma("page_count"))) * int(str(connection.pragma("page_size"))),
            )

        return self._db.read(work, TranscriptStats())

    def _messages(self, name: str, **bindings: Any) -> list[Message]:
        return self._db.read(lambda connection: self._load(connection, name, bindings), [])

    def _load(self, connection: apsw.Connection, name: str, bindings: dict[str, Any]) -> list[Message]:
        rows: list[Any] = connection.execute(f"{self._sql['columns']} {self._sql[name]}", bindings).fetchall()
        text = texts(connection, [row[at] for row in rows for at in (4, 5, 6, 9, 10, 11, 16)])
        return [_message(row, text) for row in rows]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _row(message: Message) -> list[Any]:
    """The columns after `session`, in order; large values are taken apart before anybody waits for the database."""
    content, parts = _columns(message.content)
    sent, sent_parts = _columns(message.sent)
    return [
        message.role,
        message.timestamp,
        content,
        parts,
        cell(_json(message.tool_calls)) if message.tool_calls else None,
        message.tool_call_id,
        message.tool_name,
        cell(message.reasoning),
        sent,
        sent_parts,
        message.told,
        message.tokens,
        message.finish_reason,
        message.hidden,
        cell(_json(message.extra)) if message.extra else None,
    ]


def _columns(content: Content) -> tuple[Cell, Cell]:
    return (cell(content), None) if content is None or isinstance(content, str) else (None, cell(_json(content)))


def _insert(connection: apsw.Connection, sql: str, key: int, row: list[Any]) -> int:
    used: set[int] = set()
    if any(isinstance(row[at], list) for at in _LARGE):
        row = [stored(connection, value, used) if at in _LARGE else value for at, value in enumerate(row)]
    connection.execute(sql, (key, *row))
    message_id = connection.last_insert_rowid()
    if used:
        use(connection, message_id, used)
    return message_id


def _message(row: Sequence[Any], text: Callable[[Stored], str | None]) -> Message:
    return Message(
        id=row[0],
        session_id=row[1],
        role=row[2],
        timestamp=row[3],
        content=_content(text(row[4]), text(row[5])),
        tool_calls=tuple(json.loads(calls)) if (calls := text(row[6])) else (),
        tool_call_id=row[7],
        tool_name=row[8],
        reasoning=text(row[9]),
        sent=_content(text(row[10]), text(row[11])),
        told=row[12],
        tokens=row[13],
        finish_reason=row[14],
        hidden=row[15],
        extra=json.loads(extra) if (extra := text(row[16])) else {},
    )


def _content(content: str | None, parts: str | None) -> Content:
    return content if parts is None else json.loads(parts)
