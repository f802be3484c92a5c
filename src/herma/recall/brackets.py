"""AND, OR and brackets, read from left to right into groups of which each must occur. Pure, linear.

    a b OR c             [a b c]               what stands side by side is an OR: any of it
    a AND (b OR c)       [a] [b c]
    (a AND b) OR c       [a c] [b c]           the same, said as groups
    NOT (a OR b)         neither

A bracket that is not closed ends with the text, and one that was never opened is none: nothing is a mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

MOST_GROUPS = 16
"""Groups that one bracket may come to; from more, one is made of all that stands in them."""
MOST_DEPTH = 32
"""Brackets within brackets that are followed."""


@dataclass(slots=True)
class _Level(Generic[T]):
    """What one pair of brackets holds so far: groups that are closed by an AND, and those that still grow."""

    closed: list[list[T]] = field(default_factory=list)
    growing: list[list[T]] = field(default_factory=list)
    negated: bool = False


class Groups(Generic[T]):
    """Takes what is read, piece by piece."""

    def __init__(self) -> None:
        self._levels: list[_Level[T]] = [_Level()]
        self._too_deep = 0
        self.loosened = False
        """Whether brackets were too many to be followed to the letter."""

    @property
    def negated(self) -> bool:
        """Whether what comes next is in a bracket that must not occur."""
        return self._levels[-1].negated

    def put(self, item: T) -> None:
        growing = self._levels[-1].growing
        if not growing:
            growing.append([])
        for group in growing:
            group.append(item)

    def conjoin(self) -> None:
        """AND: what was read stands on its own."""
        level = self._levels[-1]
        level.closed += level.growing
        level.growing = []

    def open(self, *, negated: bool) -> None:
        if len(self._levels) > MOST_DEPTH:
            self._too_deep += 1
            return
        self._levels.append(_Level(negated=negated or self._levels[-1].negated))

    def close(self) -> list[list[T]]:
        """→ the groups of a bracket that must not occur; otherwise none: they are part of what stands around it."""
        if self._too_deep or len(self._levels) == 1:
            self._too_deep = max(0, self._too_deep - 1)
            return []
        self.conjoin()
        level = self._levels.pop()
        if level.negated:
            return level.closed
        if level.closed:
            around = self._levels[-1]
            around.growing = self._either(around.growing, level.closed)
        return []

    def finish(self) -> tuple[list[list[T]], list[T]]:
        """→ the groups, and what must not occur by a bracket that was never closed."""
        unwanted, self._too_deep = list[T](), 0
        while len(self._levels) > 1:
            unwanted += [item for group in self.close() for item in group]
        self.conjoin()
        return self._levels[0].closed or [[]], unwanted

    def _either(self, some: list[list[T]], others: list[list[T]]) -> list[list[T]]:
        """Groups that say: all of these, or all of those."""
        if not some:
            return others
        if len(some) == len(others) == 1:
            some[0].extend(others[0])
            return some
        if self.loosened or len(some) * len(others) > MOST_GROUPS:
            self.loosened = True
            whole = some[0] if len(some) == 1 else [item for group in some for item in group]
            whole.extend(item for group in others for item in group)
            return [whole]
        return [[*one, *other] for one in some for other in others]
