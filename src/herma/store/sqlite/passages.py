"""What the vector index reads of `herma.db`: implements `PassageSource`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from herma.ports import Place
from herma.ports.vectors import Outline, Said
from herma.store.searchable import searchable_text
from herma.store.sqlite.database import Database
from herma.store.sqlite.payloads import texts
from herma.store.sqlite.queries import queries


class SqlitePassages:
    """Prose of users and assistants only. What tools were given and what they said is found by its words."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("passages")

    def said(self, message_ids: Sequence[int], at_most: int, before: int) -> list[Said]:
        def work(connection: apsw.Connection) -> list[Said]:
            rows: list[Any] = connection.execute(self._sql["said"], {"ids": json.dumps([*message_ids])}).fetchall()
            earlier = json.dumps([row[5] for row in rows if row[5] is not None])
            context: list[Any] = []
            if before:
                context = connection.execute(self._sql["contents"], {"ids": earlier}).fetchall()
            stored = [value for row in rows for value in row[3:5]] + [value for row in context for value in row[1:3]]
            whole = texts(connection, stored, base64=False)
            prose = {id_: _prose(whole(content), whole(parts)) for id_, content, parts in context}
            found = []
            for id_, session, role, content, parts, previous in rows:
                text = _prose(whole(content), whole(parts))[:at_most]
                if text.strip():
                    found.append(Said(id_, session, role, text, prose.get(previous, "")[-before:] if before else ""))
            return found

        return self._db.read(work, [])

    def outlines(self, session_ids: Sequence[str], messages: int, at_most: int) -> list[Outline]:
        def work(connection: apsw.Connection) -> list[Outline]:
            def edge(which: str, session: int) -> list[tuple[str, str]]:
                rows: list[Any] = connection.execute(
                    self._sql[which], {"session": session, "limit": messages}
                ).fetchall()
                whole = texts(connection, [value for row in rows for value in row[1:]], base64=False)
                said = [(role, _prose(whole(content), whole(parts))[:at_most]) for role, content, parts in rows]
                return [(role, text) for role, text in said if text.strip()]

            rows: list[Any] = connection.execute(self._sql["sessions"], {"ids": json.dumps([*session_ids])}).fetchall()
            return [
                Outline(id_, title, tuple(edge("first", key)), tuple(reversed(edge("last", key))))
                for key, id_, title in rows
            ]

        return self._db.read(work, [])

    def places(self) -> list[Place]:
        """Curated documents that were ever written to."""
        return [Place(*row) for row in self._db.rows(self._sql["places"])]

    def titles(self) -> dict[str, str]:
        return dict(self._db.rows(self._sql["titles"]))


def _prose(content: str | None, parts: str | None) -> str:
    return searchable_text(content if parts is None else json.loads(parts), (), None)
