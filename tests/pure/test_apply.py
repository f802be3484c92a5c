"""Operations on entries: what is refused changes nothing, what is applied fits, and every number is right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import ApplyResult, apply, clean, join, locate, parse, unfit, used
from herma.types import Add, Ambiguous, Applied, Blocked, Duplicate, MemoryOp, NoMatch, OverBudget, Remove, Replace

WORDS = st.sampled_from(
    ["a", "b", "ab", "abc", "b c", "c", "xxxxxxxxxx", "§ 3", "two\nlines", " padded ", "", "a\n§\nb"]
)
ENTRIES = st.lists(WORDS.map(clean).filter(lambda text: unfit(text) is None), unique=True, max_size=6)
OPS: st.SearchStrategy[MemoryOp] = st.one_of(
    st.builds(Add, WORDS), st.builds(Replace, WORDS, WORDS), st.builds(Remove, WORDS)
)
BATCHES = st.lists(OPS, min_size=1, max_size=5)
LIMITS = st.integers(min_value=1, max_value=40)


@given(ENTRIES, BATCHES, LIMITS)
def test_what_is_refused_changes_nothing_and_what_is_applied_fits(
    entries: list[str], ops: list[MemoryOp], limit: int
) -> None:
    result = apply(entries, ops, limit, "user")
    after, outcome = result.entries, result.outcome
    assert isinstance(outcome, Applied) == (after != tuple(entries))
    assert after == tuple(entries) or used(after) <= limit or used(after) < used(entries), (
        "or an over-limit file shrinks"
    )
    assert all(len(entry) <= limit for entry in after if entry not in entries)
    assert parse(join(after)) == list(after), "it can be written and read again"
    assert len(set(after)) == len(after)
    assert (outcome.entry_count, outcome.used, outcome.limit, outcome.target) == (
        len(after),
        used(after),
        limit,
        "user",
    )
    assert outcome.message


def one_by_one(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int) -> tuple[str, ...] | None:
    """What the operations do as single calls, or None when one of them fails."""
    for op in ops:
        result = apply(entries, [op], limit)
        if not result.outcome.ok:
            return None
        entries = result.entries
    return tuple(entries)


@given(ENTRIES, BATCHES, LIMITS)
def test_a_batch_is_its_operations_one_by_one(entries: list[str], ops: list[MemoryOp], limit: int) -> None:
    singly = one_by_one(entries, ops, limit)
    if singly is not None:
        together = apply(entries, ops, limit)
        assert together.outcome.ok
        assert together.entries == singly


@given(ENTRIES, BATCHES)
def test_without_a_limit_a_batch_fails_exactly_where_a_single_operation_does(
    entries: list[str], ops: list[MemoryOp]
) -> None:
    assert (one_by_one(entries, ops, 10**6) is not None) == apply(entries, ops, 10**6).outcome.ok


@given(ENTRIES, WORDS)
def test_adding_twice_is_adding_once(entries: list[str], text: str) -> None:
    once = apply(entries, [Add(text)], 10**6)
    twice = apply(once.entries, [Add(text)], 10**6)
    assert twice.entries == once.entries
    if once.outcome.ok:
        assert isinstance(twice.outcome, Duplicate)


@given(ENTRIES, WORDS, st.text(alphabet="xyz", min_size=11, max_size=20))
def test_a_replaced_entry_keeps_its_position(entries: list[str], old: str, new: str) -> None:
    result = apply(entries, [Replace(old, new)], 10**6)
    if isinstance(result.outcome, Applied):
        index = result.entries.index(new)
        assert clean(old) in entries[index]
        assert [*entries[:index], new, *entries[index + 1 :]] == list(result.entries)
        assert result.successors == {entries[index]: new}


def test_locating_by_a_part() -> None:
    entries = ["red fox", "red dog", "blue", "blue"]
    assert locate(entries, "green") == []
    assert locate(entries, "fox") == [0]
    assert locate(entries, "red") == [0, 1]
    assert locate(entries, "blue") == [2], "several identical: the first"
    assert locate(entries, "Fox") == [], "case matters"


@pytest.mark.parametrize("old_text", ["three", "", "  \n"])
def test_no_match_names_the_entries(old_text: str) -> None:
    outcome = apply(["one", "two"], [Remove(old_text)], 100).outcome
    assert isinstance(outcome, NoMatch)
    assert outcome.entries == ("one", "two")


def test_several_different_matches_are_previewed() -> None:
    long = "red " + "x" * 200
    outcome = apply([long, "red"], [Remove("red")], 1000).outcome
    assert isinstance(outcome, Ambiguous)
    assert outcome.matches == (long[:80] + "...", "red")


def test_over_budget_says_how_much_is_needed() -> None:
    outcome = apply(["12345"], [Add("67890")], 12).outcome
    assert isinstance(outcome, OverBudget)
    assert (outcome.needed, outcome.used, outcome.entries) == (13, 5, ("12345",))
    assert "1 too many" in outcome.message


@pytest.mark.parametrize(
    ("entries", "op", "limit", "kind"),
    [
        (["12345"], Add("67890"), 13, Applied),
        (["x" * 8, "y" * 8], Remove("x"), 10, Applied),
        (["x" * 8, "y" * 8], Replace("x", "z" * 7), 10, Applied),
        (["x" * 8, "y" * 8], Replace("x", "z" * 8), 10, OverBudget),
        (["x" * 8, "y" * 8], Add("z"), 10, OverBudget),
    ],
)
def test_on_an_over_limit_file_only_what_shrinks_it_is_applied(
    entries: list[str], op: MemoryOp, limit: int, kind: type
) -> None:
    assert isinstance(apply(entries, [op], limit).outcome, kind)
    assert apply(["x" * 8], [Add("y" * 8), Remove("x")], 10).entries == ("y" * 8,), "a batch may pass it on the way"


def test_shrinking_does_not_let_in_an_entry_longer_than_the_limit() -> None:
    """It would make the file one that must not be rewritten."""
    entries = [letter * 8 for letter in "uvwxyz"]
    ops = [Remove(letter) for letter in "uvwx"] + [Replace("y", "n" * 11)]
    outcome = apply(entries, ops, 10).outcome
    assert isinstance(outcome, OverBudget)
    assert "11 characters" in outcome.message


def test_a_failed_batch_names_the_operation_and_that_nothing_happened() -> None:
    result = apply(["one"], [Add("two"), Remove("three"), Add("four")], 100)
    assert isinstance(result.outcome, NoMatch)
    assert result.outcome.message.startswith("Operation 2: ")
    assert result.outcome.message.endswith("No operation was applied.")
    assert result.outcome.entries == result.entries == ("one",)


@pytest.mark.parametrize("op", [Add(""), Add(" \n"), Replace("one", ""), Add("a\n§\nb"), Add("a\x00")])
def test_what_cannot_be_an_entry_is_blocked(op: MemoryOp) -> None:
    result = apply(["one"], [op], 100)
    assert isinstance(result.outcome, Blocked)
    assert result.outcome.findings == ()


def test_replacing_by_another_entry_keeps_one_of_them() -> None:
    assert apply(["one", "two", "three"], [Replace("three", "one")], 100).entries == ("one", "two")


def successors(entries: list[str], *ops: MemoryOp) -> Mapping[str, str]:
    result: ApplyResult = apply(entries, ops, 1000)
    assert result.outcome.ok
    return result.successors


def test_a_chain_of_replacements_has_one_successor() -> None:
    assert successors(["one"], Replace("one", "two"), Replace("two", "three")) == {"one": "three"}
    assert successors(["one"], Replace("one", "two"), Remove("two"), Add("new")) == {}
    assert successors(["x"], Add("one"), Replace("one", "two")) == {}
    assert successors(["one", "two"], Replace("one", "two"), Add("new")) == {}
