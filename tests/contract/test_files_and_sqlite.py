"""Files with their history in SQLite keep the contract, and what only files can suffer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.homes import of_files

from herma.errors import StoreBusy, StoreChanged, UsageError
from herma.memory.entries import NewChange, Place
from herma.memory.files import InboxRows, MemoryFiles, MemoryRows
from herma.store.sqlite import SqliteDatabase
from herma.testing import FixedClock
from herma.types import Add, Author, Entry, MemoryOp, Origin, Pending, Remove, Replace, Scope, Who

pytestmark = of_files
MEMORY = Place("memory")
USER = Place("user")
PROJECT = Place("memory", project="acme/app")
ELSEWHERE = [USER, PROJECT, Place("memory", profile="work"), Place("user", user="u-1")]
AUTHOR = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session="s-1", message=7)


@dataclass(frozen=True, slots=True)
class Stores:
    """Files with their history and inbox. `reopen` is another view of the same, as another process has it."""

    documents: MemoryFiles
    history: MemoryRows
    inbox: InboxRows
    reopen: Callable[[], Stores]


@pytest.fixture
def stores(home: Path, clock: FixedClock) -> Iterator[Stores]:
    with ExitStack() as until:
        yield stores_at(home, clock, until)


def stores_at(home: Path, clock: FixedClock, until: ExitStack) -> Stores:
    database = until.enter_context(closing(SqliteDatabase(home / "herma.db", busy_timeout=5)))
    rows = MemoryRows(database)
    files = MemoryFiles(home, rows, lock_timeout=2.0, clock=clock)
    return Stores(files, rows, InboxRows(database), reopen=lambda: stores_at(home, clock, until))


def write(stores: Stores, place: Place, text: str, change: NewChange | None = None) -> int:
    """One swap, as the keeper makes it."""
    with stores.documents.hold(place) as document:
        return stores.documents.swap(place, document.version, text, change or NewChange(AUTHOR, "write"))


def note(text: str, **known: str) -> Mapping[str, Entry]:
    return {text: Entry(text, **known)}  # type: ignore[arg-type]


def proposal(*ops: MemoryOp) -> Pending:
    return Pending(0, 10.0, 100.0, Scope(), "memory", AUTHOR, ops, "seen on a page")


def assert_chain(stores: Stores, place: Place, length: int) -> None:
    """Each change begins with what the one before it left, and the last left what is there."""
    rows = list(reversed(stores.history.changes(place)))
    assert len(rows) == length
    before = ""
    for row in rows:
        assert row.before == before
        before = row.after
    assert before == stores.documents.read(place).text


def test_a_swap_on_an_outdated_version_changes_nothing(stores: Stores) -> None:
    old = stores.documents.read(MEMORY).version
    write(stores, MEMORY, "one")
    with stores.documents.hold(MEMORY), pytest.raises(StoreChanged):
        stores.documents.swap(MEMORY, old, "two", NewChange(AUTHOR, "add", notes=note("two", category="lesson")))
    with pytest.raises(UsageError):  # without holding it
        stores.documents.swap(MEMORY, stores.documents.read(MEMORY).version, "x", NewChange(AUTHOR, "add"))
    assert stores.documents.read(MEMORY).text == "one"
    assert [row.after for row in stores.history.changes(MEMORY)] == ["one"]
    assert stores.history.notes(MEMORY, ["two"]) == {}, "nothing is known of what was never written"


def test_only_one_holds_a_document_and_others_can_be_held_meanwhile(stores: Stores) -> None:
    other = stores.reopen()
    with stores.documents.hold(MEMORY) as document:
        with pytest.raises(StoreBusy), other.documents.hold(MEMORY):
            pytest.fail("two held the same document")
        for place in ELSEWHERE[:2]:
            write(other, place, "x")
        assert (document.text, document.edited_from) == ("", None)
    with pytest.raises(ZeroDivisionError), stores.documents.hold(MEMORY):
        raise ZeroDivisionError
    write(other, MEMORY, "an error while holding lets go")


def test_a_backup_is_kept_once_for_the_same_text(stores: Stores) -> None:
    write(stores, MEMORY, "one")
    first = stores.documents.back_up(MEMORY, stores.documents.read(MEMORY))
    assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) == first
    write(stores, MEMORY, "two")
    assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) != first


def test_an_undo_marks_what_it_undoes_until_it_is_undone_itself(stores: Stores) -> None:
    first = write(stores, MEMORY, "x")
    undo = write(stores, MEMORY, "", NewChange(AUTHOR, "undo", undoes=first))
    marks = [(row.id, row.undoes, row.undone_by) for row in stores.history.changes()]
    assert marks == [(undo, first, None), (first, None, undo)]
    redo = write(stores, MEMORY, "x", NewChange(AUTHOR, "undo", undoes=undo))
    assert {row.id: row.undone_by for row in stores.history.changes()} == {first: None, undo: redo, redo: None}
    assert_chain(stores, MEMORY, 3)


def test_notes_come_with_the_change_that_brings_them(stores: Stores) -> None:
    entry = Entry("x", "lesson", ("a", "ü"), Origin.WEB, vouched=True, created=1.5, changed=2.5, confirmed=3.5)
    change = write(stores, MEMORY, "x", NewChange(AUTHOR, "add", notes={"x": entry}))
    assert stores.reopen().history.notes(MEMORY, ["x", "y"]) == {"x": replace(entry, change=change)}
    stores.history.annotate(MEMORY, [Entry("x", tags=("t",)), Entry("y")])
    assert stores.history.notes(MEMORY, ["x", "y"]) == {"x": Entry("x", tags=("t",)), "y": Entry("y")}
    assert stores.history.notes(MEMORY, []) == {}


# ── inbox ──


def test_a_proposal_is_kept_whole_and_the_same_waits_once(stores: Stores) -> None:
    ops: tuple[MemoryOp, ...] = (Add("ü", "lesson", ("a",)), Replace("x", "y", "identity"), Remove("z"))
    kept = stores.inbox.put(proposal(*ops))
    assert kept == replace(proposal(*ops), id=kept.id)
    assert stores.inbox.put(replace(proposal(*ops), at=20.0, expires=200.0)) == kept
    others = [
        stores.inbox.put(replace(proposal(*ops), target="user")),
        stores.inbox.put(replace(proposal(*ops), scope=Scope(project="p"))),
        stores.inbox.put(proposal(Add("ü", "identity", ("a",)), *ops[1:])),
    ]
    assert list(stores.reopen().inbox.list(20.0)) == [kept, *others]


def test_what_expired_is_gone_and_may_be_proposed_again(stores: Stores) -> None:
    first = stores.inbox.put(proposal(Add("x")))
    assert [waiting.id for waiting in stores.inbox.list(99.9)] == [first.id]
    assert list(stores.inbox.list(100.0)) == []
    assert not stores.inbox.decide(first.id, "approved", 100.0)
    again = stores.inbox.put(replace(proposal(Add("x")), at=100.0, expires=200.0))
    assert again.id != first.id
    assert again.decision == ""


@pytest.mark.parametrize("decision", ["approved", "rejected"])
def test_a_decision_is_made_once_and_what_was_rejected_does_not_come_back(stores: Stores, decision: str) -> None:
    kept = stores.inbox.put(proposal(Add("x")))
    assert stores.inbox.decide(kept.id, decision, 11.0)  # type: ignore[arg-type]
    assert list(stores.inbox.list(11.0)) == []
    assert not stores.inbox.decide(kept.id, "rejected", 12.0)
    assert not stores.inbox.decide(kept.id + 1000, "approved", 12.0)
    again = stores.inbox.put(replace(proposal(Add("x")), at=5000.0, expires=6000.0))
    assert (again.id == kept.id, again.decision) == (decision == "rejected", decision if decision == "rejected" else "")


# ── what only files can suffer ──


@pytest.mark.parametrize("by_hand", [b"\xef\xbb\xbfone\r\n\xc2\xa7\r\ntwo\r\n", b"zero", None])
def test_a_hand_edit_is_recorded_when_the_file_is_next_held(stores: Stores, home: Path, by_hand: bytes | None) -> None:
    """Also one that puts an earlier text back, and a deleted file: what was acknowledged happened."""
    write(stores, MEMORY, "zero")
    change = write(stores, MEMORY, "one")
    file = home / "memories" / "MEMORY.md"
    file.unlink() if by_hand is None else file.write_bytes(by_hand)
    with stores.documents.hold(MEMORY) as document:
        assert document.edited_from == "one"
    with stores.documents.hold(MEMORY) as document:
        assert document.edited_from is None, "it is recorded once"
    newest, second, _ = stores.history.changes(MEMORY)
    assert (newest.author.who, newest.action, second.id) == (Who.HAND_EDIT, "edited by hand", change)
    assert newest.after == (by_hand or b"").decode()
    assert_chain(stores, MEMORY, 3)


def test_a_file_that_was_there_first_is_found(stores: Stores, home: Path) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_text("older than Herma")
    write(stores, MEMORY, "new")
    assert [row.action for row in stores.history.changes(MEMORY)] == ["write", "found"]
    assert_chain(stores, MEMORY, 2)
