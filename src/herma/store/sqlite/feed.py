"""The change feed of `herma.db`: implements `ChangeFeed`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from herma.ports import FeedChange, Position, Searchable
from herma.store.searchable import searchable_text
from herma.store.sqlite.database import Database
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries


class SqliteFeed:
    """Messages of deleted sessions are still in the feed: they may come back, and are gone from it when purged."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("feed")

    def position(self) -> Position:
        for store_id, epoch, seq in self._db.rows(self._sql["identity"]):
            return Position(store_id, epoch, seq)
        return Position("", "", 0)

    def since(self, seq: int, limit: int) -> list[FeedChange]:
        rows = self._db.rows(self._sql["since"], {"seq": seq, "limit": limit})
        return [
            FeedChange(number, "purge" if gone else "append", tuple(range(first, first + count)))
            for number, gone, first, count in rows
        ]

    def searchable(self, message_ids: Sequence[int]) -> list[Searchable]:
        def work(connection: apsw.Connection) -> list[Searchable]:
            bindings = {"ids": json.dumps(list(message_ids))}
            rows: list[Any] = connection.execute(self._sql["searchable"], bindings).fetchall()
            whole = texts(connection, [value for row in rows for value in row[4:7]], base64=False)
            return [
                Searchable(id_, session_id, role, timestamp, _text(whole(content), whole(parts), whole(calls), tool))
                for id_, session_id, role, timestamp, content, parts, calls, tool in rows
            ]

        return self._db.read(work, [])

    def message_count(self) -> int:
        rows = self._db.rows(self._sql["message_count"])
        return int(rows[0][0]) if rows else 0


def _text(content: str | None, parts: str | None, calls: str | None, tool_name: str | None) -> str:
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool_name)
