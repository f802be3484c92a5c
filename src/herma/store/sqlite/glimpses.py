"""Transcripts as episodes are made from them: implements `Glimpses`. However long a conversation is, little is read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import apsw

from herma.ports.episodes import SOURCES_WITHOUT
from herma.store.sqlite.database import Database
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries
from herma.store.sqlite.sessions import SqliteSessions
from herma.types import Message, Scope, SessionInfo

LARGEST = 256 * 1024
"""Bytes of a stored text beyond which only its beginning is read."""
_BEGINNING = 192 * 1024
"""Bytes that are read of it, as they are stored: more than one block of what is compressed, which has up to 128 KiB."""
_LOOKED_AT = 500
"""Sessions among which the one that was broken off is looked for, the last active first."""
_TEXT = re.compile(r'"text":\s?"((?:[^"\\]|\\.)*)', re.DOTALL)
_UNESCAPED = re.compile(r"\\+\Z")
_TEXTS = (3, 4, 5)  # where a row holds content, parts and calls


class SqliteGlimpses:
    """Reads only."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("episodes")

    def sessions(self, conversation: str) -> list[SessionInfo]:
        ids = [row[0] for row in self._db.rows(self._sql["sessions"], {"conversation": conversation})]
        known = self._sessions.get(ids) if ids else {}
        return [known[id_] for id_ in ids] if len(known) == len(ids) else []

    def glimpse(self, conversation: str, first: int, last: int, at_most: int) -> list[Message]:
        def work(connection: apsw.Connection) -> list[Message]:
            keys: list[Any] = connection.execute(self._sql["keys"], {"conversation": conversation}).fetchall()
            rows = self._chosen(connection, keys, first, last)
            return _messages(connection, rows, at_most, self._sql["payload_sizes"], self._sql["payload_beginnings"])

        return self._db.read(work, [])

    def unended(self, scope: Scope, since: float, not_of: Sequence[str]) -> str | None:
        bindings = {
            "profile": scope.profile,
            "project": scope.project,
            "user": scope.user,
            "since": since,
            "not_of": json.dumps(list(not_of)),
            "others": json.dumps(SOURCES_WITHOUT),
            "looked_at": _LOOKED_AT,
        }
        rows = self._db.rows(self._sql["unended"], bindings)
        return str(rows[0][0]) if rows else None

    def without_episode(self, limit: int, after: str, everything: bool) -> list[str]:
        others = json.dumps(SOURCES_WITHOUT)
        bindings = {"limit": limit, "after": after, "everything": everything, "others": others}
        rows = self._db.rows(self._sql["without_episode"], bindings)
        return [row[0] for row in rows]

    def _chosen(
        self, connection: apsw.Connection, keys: Sequence[tuple[int, str]], first: int, last: int
    ) -> list[tuple[str, Any]]:
        """Rows with the ids of their sessions, in the order of the conversation."""
        head: list[tuple[str, Any]] = []
        for key, session_id in keys:
            if len(head) >= first:
                break
            rows: Any = connection.execute(self._sql["first_messages"], {"key": key, "limit": first - len(head)})
            head += [(session_id, row) for row in rows]
        seen = {row[0] for _, row in head}
        tail: list[tuple[str, Any]] = []
        for key, session_id in reversed(keys):
            if len(tail) >= last:
                break
            after = max((row[0] for id_, row in head if id_ == session_id), default=-1)
            more: Any = connection.execute(
                self._sql["last_messages"], {"key": key, "after": after, "limit": last - len(tail)}
            )
            tail += [(session_id, row) for row in more if row[0] not in seen]
        return head + tail[::-1]


def _messages(
    connection: apsw.Connection, rows: Sequence[tuple[str, Any]], at_most: int, sizes: str, beginnings: str
) -> list[Message]:
    cells = [row[at] for _, row in rows for at in _TEXTS]
    wanted = {piece for cell in cells if isinstance(cell, bytes) for piece in json.loads(cell)}
    numbers = json.dumps([piece for piece in wanted if isinstance(piece, int)])
    small = {row[0] for row in connection.execute(sizes, {"ids": numbers, "largest": LARGEST})} if wanted else set()
    large = json.dumps([piece for piece in wanted if isinstance(piece, int) and piece not in small])
    read: Any = connection.execute(beginnings, {"ids": large, "most": _BEGINNING}) if large != "[]" else ()
    begun = {number: _beginning(codec, data, at_most) for number, codec, data in read}

    def shrunk(cell: Any) -> Any:
        """The cell with the beginnings of what is too large to be read."""
        if not isinstance(cell, bytes):
            return cell
        return json.dumps(
            [p if isinstance(p, str) or p in small else begun.get(p, " ") for p in json.loads(cell)]
        ).encode()

    light = [[shrunk(value) if at in _TEXTS else value for at, value in enumerate(row)] for _, row in rows]
    whole = texts(connection, [row[at] for row in light for at in _TEXTS], base64=False)
    return [_message(session_id, row, whole, at_most) for (session_id, _), row in zip(rows, light, strict=True)]


def _message(session_id: str, row: Sequence[Any], whole: Any, at_most: int) -> Message:
    id_, role, timestamp, content, parts, calls, call_id, tool_name, finish_reason = row
    said: Any = whole(content)
    if said is None and parts is not None:
        read = _json(whole(parts))
        said = [
            {"type": "text", "text": _cut(part["text"], at_most)}
            for part in (read if isinstance(read, list) else _begun(whole(parts) or ""))
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
    else:
        said = _cut(said, at_most)
    called = _json(whole(calls)) if calls is not None else None
    return Message(
        role=role,
        content=said,
        id=id_,
        session_id=session_id,
        timestamp=timestamp,
        tool_calls=tuple(one for one in called if isinstance(one, dict)) if isinstance(called, list) else (),
        tool_call_id=call_id,
        tool_name=tool_name,
        finish_reason=finish_reason,
    )


def _beginning(codec: str, data: bytes, at_most: int) -> str:
    """The first characters of a text of which the first stored bytes are given."""
    if codec == "zstd":
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(data) as stream:
            data = stream.read(4 * at_most)
    return data[: 4 * at_most].decode(errors="ignore")[:at_most]


def _begun(parts: str) -> list[dict[str, str]]:
    """The first text of parts that are cut in its middle; without its end, where a sign may be cut."""
    found = _TEXT.search(parts)
    said = _json(f'"{found[1]}"') or _json(f'"{_UNESCAPED.sub("", found[1][:-8])}"') if found else None
    return [{"type": "text", "text": said}] if isinstance(said, str) else []


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):  # a piece of it was too large to be read
        return None


def _cut(text: str | None, at_most: int) -> str | None:
    if text is None or len(text) <= at_most:
        return text
    return f"{text[: at_most * 2 // 3]}\n…\n{text[-(at_most // 3) :]}"
