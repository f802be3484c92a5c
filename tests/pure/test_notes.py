"""What is known about entries goes with them: through operations and through edits by hand."""

from __future__ import annotations

from herma.memory.entries import apply, carried_over, inherited, notes_after
from herma.types import Add, Author, Entry, MemoryOp, Origin, Remove, Replace

AGENT = Author(origin=Origin.AGENT_CONCLUDED)
OLD = Entry("old", "lesson", ("t",), Origin.USER_SAID, vouched=True, created=1.0, changed=2.0, confirmed=3.0, change=4)


def after(entries: list[str], *ops: MemoryOp, vouched: bool = False) -> dict[str, Entry]:
    result = apply(entries, ops, 1000)
    known = {text: OLD for text in inherited(entries, ops, result) if text == "old"}
    return notes_after(ops, result, known, AGENT, 9.0, vouched=vouched)


def test_a_new_entry_begins_now() -> None:
    assert after([], Add("new", "identity", ("x",))) == {
        "new": Entry("new", "identity", ("x",), Origin.AGENT_CONCLUDED, created=9.0, changed=9.0, confirmed=9.0)
    }


def test_a_replaced_entry_hands_on_all_but_trust_and_origin() -> None:
    expected = Entry("new", "lesson", ("t",), Origin.AGENT_CONCLUDED, created=1.0, changed=9.0, confirmed=9.0)
    assert after(["old"], Replace("old", "new")) == {"new": expected}
    assert after(["old"], Replace("old", "between"), Replace("between", "new")) == {"new": expected}


def test_an_entry_said_again_is_confirmed_and_nothing_else() -> None:
    notes = after(["old"], Add("old"), Add("new"))
    assert notes["old"] == Entry("old", "lesson", ("t",), Origin.USER_SAID, True, 1.0, 2.0, 9.0, 4)
    assert notes["new"].created == 9.0
    assert after(["old"], Add("old", "identity"))["old"].category == "identity"


def test_what_did_not_stay_has_no_note_and_trust_is_kept_for_what_was_vouched_for() -> None:
    assert after(["old"], Add("new"), Remove("new"), Remove("old")) == {}
    assert after([], Add("new"), vouched=True)["new"].vouched
    assert not after(["old"], Replace("old", "new"))["new"].vouched
    known = {"port is 8080 here": Entry("port is 8080 here", "environment")}
    notes = carried_over(["port is 8080 here"], ["port is 8081 here", "port is 8082 here"], known, 9.0)
    assert [note.category for note in notes] == ["environment", None], "one entry has one heir"
    assert carried_over([], ["x"], {"x": Entry("x", "lesson")}, 9.0) == []


def test_a_hand_edit_keeps_what_was_known_of_the_entry_it_rewords() -> None:
    before = ["The server listens on port 8080", "Coffee is in the kitchen"]
    reworded = "The server listens on port 9090"
    known = {before[0]: Entry(before[0], "environment", ("net",), Origin.USER_SAID, True, 1.0, 1.0, 1.0, 3)}
    notes = carried_over(before, [reworded, before[1], "Entirely new"], known, 9.0)
    assert notes == [
        Entry(reworded, "environment", ("net",), Origin.USER_SAID, False, 1.0, 9.0, 9.0),
        Entry("Entirely new", created=9.0, changed=9.0, confirmed=9.0),
    ]


def test_large_files_are_compared_in_one_pass() -> None:
    before = [f"{number} before" for number in range(30_000)]
    after_edit = [f"{number} after" for number in range(30_000)]
    assert len(carried_over(before, after_edit, {}, 9.0)) == 30_000
