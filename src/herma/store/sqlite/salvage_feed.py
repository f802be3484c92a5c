"""What the change feed of a damaged file says, as far as it can be believed: one wrong bit in it must cost no message.

Numbers of messages are given out once, so what was appended never overlaps; and only what was appended can be gone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from herma.store.sqlite.sessions import PURGE_SLICE

Span = tuple[int, int]
"""The first and the last of some messages."""


@dataclass(frozen=True, slots=True)
class FeedRow:
    """One row of the feed, as it was read."""

    gone: bool
    first: int
    count: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1


def appended(rows: Iterable[FeedRow], highest: int) -> list[Span]:
    """What was appended, in order, none reaching into the next or beyond the highest number that was given out."""
    told = sorted({(row.first, row.last) for row in rows if not row.gone and row.count > 0 and row.first > 0})
    ends = [*(first - 1 for first, _ in told[1:]), highest][: len(told)]
    spans = [(first, min(last, end, highest)) for (first, last), end in zip(told, ends, strict=True)]
    return [span for span in spans if span[0] <= span[1]]


def purged(rows: Iterable[FeedRow], there: Sequence[Span], *, gaps: bool) -> list[Span]:
    """What is gone for good. With `gaps` the row that appended it may be lost: then its size has to do as a proof."""
    told = sorted({(row.first, row.last) for row in rows if row.gone and row.count > 0 and row.first > 0})
    return [span for span in told if covered(span, there) or (gaps and span[1] - span[0] < PURGE_SLICE)]


def covered(span: Span, spans: Sequence[Span]) -> bool:
    """Whether all of it lies in spans that are in order."""
    at, last = span
    place = max(bisect_right(spans, (at, 2**63)) - 1, 0)
    while place < len(spans) and spans[place][0] <= at:
        if spans[place][1] >= last:
            return True
        at = max(at, spans[place][1] + 1)
        place += 1
    return False


def within(numbers: Iterable[int], spans: Sequence[Span]) -> set[int]:
    """Those numbers that lie in any of the spans, which are in order and may overlap."""
    reach: list[Span] = []
    for first, last in spans:
        if reach and first <= reach[-1][1] + 1:
            reach[-1] = (reach[-1][0], max(last, reach[-1][1]))
        else:
            reach.append((first, last))
    found = set()
    for number in numbers:
        place = bisect_right(reach, (number, 2**63)) - 1
        if place >= 0 and number <= reach[place][1]:
            found.add(number)
    return found
