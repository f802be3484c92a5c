"""What every store of curated memory must keep, as one suite: subclass `CuratedStoreContract` and give it a `stores`
fixture.

    class TestMyStore(CuratedStoreContract):
        @pytest.fixture
        def stores(self, tmp_path, clock):
            yield Stores(documents, history, inbox, reopen=…)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pytest

from herma.errors import StoreBusy, StoreChanged, UsageError
from herma.ports import CuratedDocuments, CuratedHistory, Inbox, NewChange, Place
from herma.testing.clock import FixedClock
from herma.types import Add, Author, Entry, MemoryOp, Origin, Pending, Remove, Replace, Scope, Who

MEMORY = Place("memory")
USER = Place("user")
PROJECT = Place("memory", project="acme/app")
ELSEWHERE = [USER, PROJECT, Place("memory", profile="work"), Place("user", user="u-1")]
AUTHOR = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session="s-1", message=7)


@dataclass(frozen=True, slots=True)
class Stores:
    """One store behind its three ports. `reopen` is another view of the same, as another process has it."""

    documents: CuratedDocuments
    history: CuratedHistory
    inbox: Inbox
    reopen: Callable[[], Stores]


class CuratedStoreContract:
    """The ports' promises, one test each."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock()

    @pytest.fixture
    def stores(self) -> Stores:
        raise NotImplementedError("give the contract a store to prove")

    # ── documents ──

    def test_what_is_not_there_is_empty(self, stores: Stores) -> None:
        document = stores.documents.read(MEMORY)
        assert (document.text, document.trouble, document.raw) == ("", "", None)
        assert stores.history.changes() == stores.history.changes(MEMORY) == []
        assert stores.history.change(1) is None

    def test_a_swap_is_seen_by_everybody_when_it_returns(self, stores: Stores) -> None:
        change = write(stores, MEMORY, "one\n§\ntwö 日本 🙂")
        for view in (stores, stores.reopen()):
            assert view.documents.read(MEMORY).text == "one\n§\ntwö 日本 🙂"
            assert [row.id for row in view.history.changes(MEMORY)] == [change]

    def test_a_version_is_the_same_as_long_as_the_text_is(self, stores: Stores) -> None:
        write(stores, MEMORY, "one")
        first = stores.documents.read(MEMORY).version
        assert stores.reopen().documents.read(MEMORY).version == first
        write(stores, MEMORY, "two")
        assert stores.documents.read(MEMORY).version != first

    def test_a_swap_on_an_outdated_version_changes_nothing(self, stores: Stores) -> None:
        old = stores.documents.read(MEMORY).version
        write(stores, MEMORY, "one")
        with stores.documents.hold(MEMORY), pytest.raises(StoreChanged):
            stores.documents.swap(MEMORY, old, "two", NewChange(AUTHOR, "add", notes=note("two", category="lesson")))
        assert stores.documents.read(MEMORY).text == "one"
        assert [row.after for row in stores.history.changes(MEMORY)] == ["one"]
        assert stores.history.notes(MEMORY, ["two"]) == {}, "nothing is known of what was never written"

    def test_a_swap_without_holding_is_a_usage_error(self, stores: Stores) -> None:
        with pytest.raises(UsageError):
            stores.documents.swap(MEMORY, stores.documents.read(MEMORY).version, "x", NewChange(AUTHOR, "add"))

    def test_holding_gives_the_text_as_it_is_now(self, stores: Stores) -> None:
        write(stores.reopen(), MEMORY, "by another")
        with stores.documents.hold(MEMORY) as document:
            assert document.text == "by another"
            assert document.edited_from is None

    def test_only_one_holds_a_document(self, stores: Stores) -> None:
        other = stores.reopen()
        with stores.documents.hold(MEMORY), pytest.raises(StoreBusy), other.documents.hold(MEMORY):
            pytest.fail("two held the same document")

    def test_another_document_can_be_held_meanwhile(self, stores: Stores) -> None:
        other = stores.reopen()
        with stores.documents.hold(MEMORY):
            for place in ELSEWHERE[:2]:
                write(other, place, "x")
        assert stores.documents.read(MEMORY).text == ""

    def test_an_error_while_holding_lets_go(self, stores: Stores) -> None:
        with pytest.raises(ZeroDivisionError), stores.documents.hold(MEMORY):
            raise ZeroDivisionError
        write(stores.reopen(), MEMORY, "x")

    def test_threads_take_turns(self, stores: Stores) -> None:
        def append(number: int) -> None:
            for step in range(5):
                with stores.documents.hold(MEMORY) as document:
                    text = f"{document.text}|{number}.{step}"
                    stores.documents.swap(MEMORY, document.version, text, NewChange(AUTHOR, "add"))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = stores.documents.read(MEMORY).text.split("|")[1:]
        assert sorted(written) == sorted(f"{number}.{step}" for number in range(4) for step in range(5))
        assert_chain(stores, MEMORY, 20)

    def test_a_backup_is_kept_once_for_the_same_text(self, stores: Stores) -> None:
        write(stores, MEMORY, "one")
        first = stores.documents.back_up(MEMORY, stores.documents.read(MEMORY))
        assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) == first
        write(stores, MEMORY, "two")
        assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) != first

    def test_every_document_has_a_name_of_its_own(self, stores: Stores) -> None:
        names = {stores.documents.where(place) for place in [MEMORY, USER, PROJECT, Place("user", user="u-1")]}
        assert len(names) == 4

    # ── history ──

    def test_history_is_newest_first_and_without_gaps(self, stores: Stores) -> None:
        texts = ["one", "one\n§\ntwo", "two", ""]
        ids = [write(stores, MEMORY, text) for text in texts]
        rows = stores.history.changes(MEMORY)
        assert [row.id for row in rows] == sorted(ids, reverse=True)
        assert [row.after for row in reversed(rows)] == texts
        assert_chain(stores, MEMORY, 4)
        assert [row.id for row in stores.history.changes(MEMORY, limit=2)] == ids[:1:-1]

    def test_a_change_keeps_who_when_and_why(self, stores: Stores, clock: FixedClock) -> None:
        clock.advance(5)
        change = write(stores, PROJECT, "x", NewChange(AUTHOR, "add", "because"))
        row = stores.history.change(change)
        assert row is not None
        assert (row.at, row.author, row.action, row.reason) == (clock.now, AUTHOR, "add", "because")
        assert (row.scope, row.target, row.before, row.after) == (Scope(project="acme/app"), "memory", "", "x")

    def test_documents_do_not_mix(self, stores: Stores) -> None:
        write(stores, MEMORY, "home", NewChange(AUTHOR, "add", notes=note("home", category="lesson")))
        for place in ELSEWHERE:
            assert stores.history.changes(place) == []
            assert stores.history.notes(place, ["home"]) == {}
        assert [stores.documents.read(place).text for place in [USER, PROJECT, ELSEWHERE[3]]] == ["", "", ""]
        write(stores, USER, "me")
        assert [row.after for row in stores.history.changes()] == ["me", "home"]

    def test_an_undo_marks_what_it_undoes_until_it_is_undone_itself(self, stores: Stores) -> None:
        first = write(stores, MEMORY, "x")
        undo = write(stores, MEMORY, "", NewChange(AUTHOR, "undo", undoes=first))
        assert [(row.id, row.undoes, row.undone_by) for row in stores.history.changes()] == [
            (undo, first, None),
            (first, None, undo),
        ]
        redo = write(stores, MEMORY, "x", NewChange(AUTHOR, "undo", undoes=undo))
        assert {row.id: row.undone_by for row in stores.history.changes()} == {first: None, undo: redo, redo: None}

    # ── notes ──

    def test_notes_come_with_the_change_that_brings_them(self, stores: Stores) -> None:
        entry = Entry("x", "lesson", ("a", "ü"), Origin.WEB, vouched=True, created=1.5, changed=2.5, confirmed=3.5)
        change = write(stores, MEMORY, "x", NewChange(AUTHOR, "add", notes={"x": entry}))
        assert stores.reopen().history.notes(MEMORY, ["x", "y"]) == {"x": replace(entry, change=change)}

    def test_annotating_replaces_what_was_known(self, stores: Stores) -> None:
        stores.history.annotate(MEMORY, [Entry("x", "lesson", created=1.0, change=3), Entry("y")])
        stores.history.annotate(MEMORY, [Entry("x", tags=("t",))])
        assert stores.history.notes(MEMORY, ["x", "y"]) == {"x": Entry("x", tags=("t",)), "y": Entry("y")}
        assert stores.history.notes(MEMORY, []) == {}

    # ── inbox ──

    def test_a_proposal_is_kept_whole(self, stores: Stores) -> None:
        ops: tuple[MemoryOp, ...] = (Add("ü", "lesson", ("a",)), Replace("x", "y", "identity"), Remove("z"))
        kept = stores.inbox.put(proposal(*ops))
        assert kept == replace(proposal(*ops), id=kept.id)
        assert list(stores.reopen().inbox.list(10.0)) == [kept]

    def test_the_same_proposal_waits_once(self, stores: Stores) -> None:
        first = stores.inbox.put(proposal(Add("x")))
        assert stores.inbox.put(replace(proposal(Add("x")), at=20.0, expires=200.0)) == first
        others = [
            stores.inbox.put(proposal(Add("y"))),
            stores.inbox.put(replace(proposal(Add("x")), target="user")),
            stores.inbox.put(replace(proposal(Add("x")), scope=Scope(project="p"))),
            stores.inbox.put(proposal(Add("x", "lesson"))),
        ]
        assert [waiting.id for waiting in stores.inbox.list(20.0)] == [first.id, *(other.id for other in others)]

    def test_what_expired_is_gone_and_may_be_proposed_again(self, stores: Stores) -> None:
        first = stores.inbox.put(proposal(Add("x")))
        assert [waiting.id for waiting in stores.inbox.list(99.9)] == [first.id]
        assert list(stores.inbox.list(100.0)) == []
        assert not stores.inbox.decide(first.id, "approved", 100.0)
        again = stores.inbox.put(replace(proposal(Add("x")), at=100.0, expires=200.0))
        assert again.id != first.id
        assert again.decision == ""

    def test_a_decision_is_made_once(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        assert stores.inbox.decide(kept.id, "approved", 11.0)
        assert list(stores.inbox.list(11.0)) == []
        assert not stores.inbox.decide(kept.id, "rejected", 12.0)
        assert not stores.inbox.decide(kept.id + 1000, "approved", 12.0)

    def test_what_a_person_rejected_does_not_come_back(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        stores.inbox.decide(kept.id, "rejected", 11.0)
        again = stores.inbox.put(replace(proposal(Add("x")), at=5000.0, expires=6000.0))
        assert (again.id, again.decision) == (kept.id, "rejected")
        assert list(stores.inbox.list(5000.0)) == []

    def test_what_was_approved_may_be_proposed_again(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        stores.inbox.decide(kept.id, "approved", 11.0)
        assert stores.inbox.put(proposal(Add("x"))).id != kept.id


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
