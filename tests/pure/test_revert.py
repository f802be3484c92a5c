"""Taking a change back: exact when it is the newest, and otherwise without touching what came later."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from herma.memory.entries import join, parse, unique
from herma.memory.store import revert
from herma.types import Author, Change, Scope

LETTERS = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6)
EDITED = st.text(alphabet=st.sampled_from("ab§\n\r \ufeff"), max_size=20)


def change(before: str, after: str) -> Change:
    return Change(1, 0.0, Scope(), "memory", Author(), "edit", before, after)


@given(EDITED, EDITED)
def test_the_newest_change_is_taken_back_to_the_byte(before: str, after: str) -> None:
    undone = revert(after, change(before, after))
    assert undone == before
    assert revert(undone, change(after, undone)) == after


@given(LETTERS, LETTERS, LETTERS)
def test_later_entries_stay(before: list[str], after: list[str], later: list[str]) -> None:
    """Whatever was added or removed since, undoing touches only what the change itself touched."""
    now = unique([*after, *(text.upper() for text in later)])
    assume(now != after)
    reverted = revert(join(now), change(join(before), join(after)))
    assert reverted is not None
    entries = parse(reverted)
    assert len(entries) == len(set(entries))
    assert set(entries) == (set(now) - (set(after) - set(before))) | set(before)
    untouched = [text for text in now if text not in set(after) ^ set(before)]
    assert [text for text in entries if text in untouched] == untouched, "order is kept"


@given(LETTERS, LETTERS, LETTERS)
def test_what_was_changed_again_is_not_undone_alone(before: list[str], after: list[str], now: list[str]) -> None:
    gone = [text for text in after if text not in before and text not in now]
    assume(gone and now != after)
    assert revert(join(now), change(join(before), join(after))) is None


def test_a_removed_or_replaced_entry_comes_back_where_it_stood() -> None:
    taken = change(join("abcd"), join("ad"))
    assert revert(join("adx"), taken) == join("abcdx")
    assert revert(join("xd"), taken) == join("bcxd"), "no predecessor left: at the front"
    assert revert(join("xcd"), taken) == join("bxcd"), "one is there again already"
    assert revert(join("aBcx"), change(join("abc"), join("aBc"))) == join("abcx")


def test_large_files_are_reverted_in_one_pass() -> None:
    many = [f"entry {number}" for number in range(20_000)]
    reverted = revert(join([*many[::2], "later"]), change(join(many), join(many[::2])))
    assert reverted == join([*many, "later"])
