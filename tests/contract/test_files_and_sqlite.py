"""Files with their history in SQLite keep the contract, and what only files can suffer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from herma.memory.files import CuratedFiles, CuratedRows, SqliteInbox
from herma.store.database import Database
from herma.testing import FixedClock
from herma.testing.contracts import MEMORY, CuratedStoreContract, Stores, assert_chain, write
from herma.types import Who


def stores_at(home: Path, clock: FixedClock, until: ExitStack) -> Stores:
    database = until.enter_context(closing(Database(home / "herma.db", busy_timeout=5)))
    rows = CuratedRows(database)
    return Stores(
        CuratedFiles(home, rows, lock_timeout=2.0, clock=clock),
        rows,
        SqliteInbox(database),
        reopen=lambda: stores_at(home, clock, until),
    )


class TestFilesAndSqlite(CuratedStoreContract):
    @pytest.fixture
    def stores(self, home: Path, clock: FixedClock) -> Iterator[Stores]:
        with ExitStack() as until:
            yield stores_at(home, clock, until)

    def test_reading_creates_nothing(self, stores: Stores, home: Path) -> None:
        stores.documents.read(MEMORY)
        stores.history.changes(MEMORY)
        stores.inbox.list(0.0)
        assert list(home.iterdir()) == []

    def test_a_hand_edit_is_recorded_when_the_file_is_next_held(self, stores: Stores, home: Path) -> None:
        write(stores, MEMORY, "one")
        (home / "memories" / "MEMORY.md").write_bytes(b"\xef\xbb\xbfone\r\n\xc2\xa7\r\ntwo\r\n")
        with stores.documents.hold(MEMORY) as document:
            assert document.edited_from == "one"
        with stores.documents.hold(MEMORY) as document:
            assert document.edited_from is None, "it is recorded once"
        newest = stores.history.changes(MEMORY)[0]
        assert (newest.author.who, newest.action) == (Who.HAND_EDIT, "edited by hand")
        assert newest.after == "\ufeffone\r\n§\r\ntwo\r\n"
        assert_chain(stores, MEMORY, 2)

    def test_a_file_that_was_there_first_is_found(self, stores: Stores, home: Path) -> None:
        (home / "memories").mkdir()
        (home / "memories" / "MEMORY.md").write_text("older than Herma")
        write(stores, MEMORY, "new")
        assert [row.action for row in stores.history.changes(MEMORY)] == ["write", "found"]
        assert_chain(stores, MEMORY, 2)

    def test_putting_the_old_text_back_by_hand_keeps_the_change_in_the_history(
        self, stores: Stores, home: Path
    ) -> None:
        """It was acknowledged, so it happened, although the file looks as if it never did."""
        write(stores, MEMORY, "one")
        change = write(stores, MEMORY, "two")
        (home / "memories" / "MEMORY.md").write_text("one")
        with stores.documents.hold(MEMORY) as document:
            assert document.edited_from == "two"
        assert [row.id for row in stores.history.changes(MEMORY)][1] == change
        assert_chain(stores, MEMORY, 3)

    def test_deleting_the_file_is_a_hand_edit_too(self, stores: Stores, home: Path) -> None:
        write(stores, MEMORY, "one")
        (home / "memories" / "MEMORY.md").unlink()
        with stores.documents.hold(MEMORY) as document:
            assert (document.text, document.edited_from) == ("", "one")
        assert_chain(stores, MEMORY, 2)

    def test_missing_and_empty_are_the_same(self, stores: Stores, home: Path) -> None:
        write(stores, MEMORY, "one")
        write(stores, MEMORY, "")
        (home / "memories" / "MEMORY.md").unlink()
        write(stores, MEMORY, "two")
        assert_chain(stores, MEMORY, 3)
