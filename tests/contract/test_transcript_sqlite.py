"""SQLite keeps the contract of transcripts, and what only SQLite can be asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from herma.store.database import Database
from herma.testing.contracts import BASE64, TranscriptStoreContract, TranscriptStores, say
from herma.testing.contracts import transcript_contract_begin as begin
from herma.transcript.rows import SqliteFeed, SqliteMessages, SqliteSessions


def stores_at(home: Path, until: ExitStack) -> TranscriptStores:
    database = until.enter_context(closing(Database(home / "herma.db", busy_timeout=5)))
    sessions = SqliteSessions(database)
    return TranscriptStores(
        sessions, sessions, SqliteMessages(database), SqliteFeed(database), reopen=lambda: stores_at(home, until)
    )


class TestSqlite(TranscriptStoreContract):
    @pytest.fixture
    def stores(self, home: Path) -> Iterator[TranscriptStores]:
        with ExitStack() as until:
            yield stores_at(home, until)

    def test_reading_creates_nothing(self, stores: TranscriptStores, home: Path) -> None:
        self.test_an_empty_store_answers(stores)
        assert list(home.iterdir()) == []

    def test_nothing_is_left_behind_by_a_purge(self, stores: TranscriptStores, home: Path) -> None:
        stores.sessions.add([], {})
        begin(stores, "a")
        say(stores, "a", *[f"{number} {BASE64}" for number in range(50)], "word " * 9999)
        stores.sessions.update(["a"], {"deleted": 1.0})
        stores.sessions.purge("a")
        with closing(sqlite3.connect(home / "herma.db")) as database:
            for table in ("sessions", "messages", "payloads", "payload_uses"):
                assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]

    def test_large_sessions_are_purged_in_slices(
        self, stores: TranscriptStores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("herma.transcript.rows.PURGE_SLICE", 7)
        begin(stores, "a", "b")
        gone: list[int] = []
        for number in range(10):
            gone += say(stores, "a", *"xyz")
            say(stores, "b", str(number))
        stores.sessions.update(["a"], {"deleted": 1.0})
        assert stores.sessions.purge("a") == 30
        told = [change for change in stores.feed.since(0, 999) if change.kind == "purge"]
        assert [message_id for change in told for message_id in change.message_ids] == gone

    def test_any_sqlite_reads_the_words(self, stores: TranscriptStores, home: Path) -> None:
        begin(stores, "a")
        say(stores, "a", "plain words")
        with closing(sqlite3.connect(home / "herma.db")) as database:
            sql = "SELECT s.id, m.role, m.content FROM messages m JOIN sessions s ON s.key = m.session"
            assert database.execute(sql).fetchall() == [("a", "user", "plain words")]
