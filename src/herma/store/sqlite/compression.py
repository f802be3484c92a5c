"""What was tried to shorten a conversation, in `herma.db`: implements `CompressionRows`."""

from __future__ import annotations

from dataclasses import asdict

from herma.ports import Tries
from herma.store.sqlite.database import Database
from herma.store.sqlite.queries import queries


class SqliteCompression:
    """Rows of the table `compression_tries`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("compression")

    def tries(self, conversation: str) -> Tries:
        for row in self._db.rows(self._sql["tries"], {"conversation": conversation}):
            return Tries(*row)
        return Tries()

    def remember(self, conversation: str, tries: Tries) -> None:
        bindings = {"conversation": conversation, **asdict(tries)}
        self._db.write(lambda connection: connection.execute(self._sql["remember"], bindings))
