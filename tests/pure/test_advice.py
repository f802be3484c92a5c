"""What to merge or drop: entries that say the same first, then the stalest, and the numbers are true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import MOST, suggest, used

SAME = ["The project uses pytest with xdist", "the project uses pytest with xdist for tests"]
OTHER = ["Deploys happen on Fridays", "Coffee is in the kitchen", "The database runs in Frankfurt"]


def test_near_duplicates_come_first_then_the_stalest() -> None:
    touched = {SAME[0]: 900.0, SAME[1]: 901.0, OTHER[0]: 300.0, OTHER[1]: 100.0, OTHER[2]: 200.0}
    advice = suggest([OTHER[0], SAME[0], OTHER[1], SAME[1], OTHER[2]], touched, 10_000)
    assert [(each.action, *each.entries) for each in advice] == [
        ("merge", *SAME),
        ("drop", OTHER[1]),
        ("drop", OTHER[2]),
    ]


def test_an_entry_that_nobody_recorded_counts_as_the_oldest() -> None:
    assert suggest(OTHER, {OTHER[0]: 1.0, OTHER[2]: 2.0}, 1)[0].entries == (OTHER[1],)


def test_no_more_is_suggested_than_is_needed() -> None:
    assert len(suggest(OTHER, {}, 1)) == 1
    assert len(suggest(OTHER, {}, len(OTHER[0]) + 4)) == 2
    assert suggest([], {}, 10) == ()


@given(st.lists(st.text(alphabet="ab c", min_size=1, max_size=30).map(str.strip).filter(bool), unique=True, max_size=8))
def test_each_suggestion_frees_what_it_says(entries: list[str]) -> None:
    for each in suggest(entries, {}, 10_000)[:MOST]:
        shortest = min(each.entries, key=len)
        rest = [entry for entry in entries if entry != shortest]
        assert used(entries) - used(rest) == each.frees


def test_thousands_of_entries_are_no_reason_to_think_for_ever() -> None:
    many = [f"entry number {number} says something of its own" for number in range(5_000)]
    assert len(suggest(many, {}, 10**6)) == MOST
