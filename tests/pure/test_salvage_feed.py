"""What the change feed of a damaged file says is believed only as far as it can be true."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.store.salvage import FeedRow, appended, covered, purged, within

SIZES = st.lists(st.integers(1, 50), min_size=1, max_size=20)


def feed_of(sizes: list[int]) -> tuple[list[FeedRow], int]:
    rows, first = [], 1
    for size in sizes:
        rows.append(FeedRow(gone=False, first=first, last=first + size - 1))
        first += size
    return rows, first - 1


@given(SIZES, st.data())
def test_what_was_appended_and_purged_is_believed(sizes: list[int], data: st.DataObject) -> None:
    rows, highest = feed_of(sizes)
    first = data.draw(st.integers(1, highest))
    count = data.draw(st.integers(1, highest - first + 1))
    there = appended([*rows, FeedRow(gone=True, first=first, last=first + count - 1)], highest)
    assert [n for a, b in there for n in range(a, b + 1)] == list(range(1, highest + 1))
    gone = purged([*rows, FeedRow(gone=True, first=first, last=first + count - 1)], there, gaps=False)
    assert gone == [(first, first + count - 1)]
    assert within(range(1, highest + 5), gone) == set(range(first, first + count))


@given(SIZES, st.data())
def test_an_append_that_says_it_is_a_purge_is_not_believed(sizes: list[int], data: st.DataObject) -> None:
    rows, highest = feed_of(sizes)
    at = data.draw(st.integers(0, len(rows) - 1))
    extra = data.draw(st.sampled_from([0, 1 << 7, 1 << 28]))
    rows[at] = FeedRow(gone=True, first=rows[at].first, last=rows[at].last + extra)
    assert purged(rows, appended(rows, highest), gaps=False) == []


@given(SIZES, st.integers(0, 40))
def test_a_count_that_is_too_large_ends_where_the_next_begins(sizes: list[int], bit: int) -> None:
    rows, highest = feed_of(sizes)
    wrong = [FeedRow(gone=False, first=row.first, last=row.last + (1 << bit)) for row in rows]
    assert appended(wrong, highest) == appended(rows, highest)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), max_size=12), st.integers(1, 60), st.integers(0, 9))
def test_covered_is_what_counting_says(starts: list[tuple[int, int]], first: int, more: int) -> None:
    spans = appended([FeedRow(gone=False, first=a, last=a + b) for a, b in starts], 80)
    numbers = {n for a, b in spans for n in range(a, b + 1)}
    assert covered((first, first + more), spans) == (set(range(first, first + more + 1)) <= numbers)
