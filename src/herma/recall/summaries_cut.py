"""Which part of a long conversation a summary should be made of: where most of what was asked stands. Pure, linear.

The places that count are those of the whole question; where it does not occur, those where all of its words stand close
together; where there is none, those of any of its words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from herma.recall.match import Unit, fold

MOST = 100_000
"""Characters of a conversation that a model is given."""
CLOSE = 200
"""Characters within which words stand close together."""
BEFORE = 0.25
"""Part of the window that lies before the place it was chosen for."""
COUNTED = 20_000
"""Places of one word that are counted."""
By: TypeAlias = Literal["whole", "phrase", "close", "words", "nothing"]


@dataclass(frozen=True, slots=True)
class Cut:
    """From where to where, by what it was chosen, and how many places it holds of how many."""

    start: int
    end: int
    by: By
    places: int = 0
    of: int = 0

    def of_text(self, text: str) -> str:
        return text[self.start : self.end]


def cut(text: str, asked: str, units: Sequence[Unit], most: int = MOST) -> Cut:
    """The window of at most so many characters; all of a text that is no longer than that."""
    if len(text) <= most:
        return Cut(0, len(text), "whole")
    folded = fold(text)
    by, places = places_of(folded, asked, units)
    if not places:
        return Cut(0, most, "nothing")
    return best_window(places, len(text), most, by)


def places_of(folded: str, asked: str, units: Sequence[Unit]) -> tuple[By, list[int]]:
    """Where what was asked occurs, in order: as a whole, else its words close together, else any of them."""
    phrase = fold(" ".join(asked.split()))
    if phrase and (found := _all(folded, phrase)):
        return "phrase", found
    words = sorted((place[0], unit.name) for unit in units for place in unit.find(folded, COUNTED))
    together = _together(words) if len({name for _, name in words}) == len({unit.name for unit in units}) > 1 else []
    if together:
        return "close", together
    return "words", [at for at, _ in words]


def best_window(places: Sequence[int], length: int, most: int, by: By = "words") -> Cut:
    """The window with the most of these places, the first of equals; a quarter of it lies before the place that it is
    chosen for, unless the text ends there.
    """
    best, held = 0, -1
    first = last = 0
    for place in places:
        start = _start(place, length, most)
        while last < len(places) and places[last] < start + most:
            last += 1
        while places[first] < start:
            first += 1
        if last - first > held:
            best, held = start, last - first
    return Cut(best, min(length, best + most), by, held, len(places))


def _start(place: int, length: int, most: int) -> int:
    return max(0, min(place - int(most * BEFORE), length - most))


def _all(text: str, part: str) -> list[int]:
    found: list[int] = []
    at = text.find(part)
    while at >= 0 and len(found) < COUNTED:
        found.append(at)
        at = text.find(part, at + len(part))
    return found


def _together(words: Sequence[tuple[int, str]]) -> list[int]:
    """Where every word occurs within a few characters: the first place of each such group."""
    wanted = len({name for _, name in words})
    inside: Counter[str] = Counter()
    found: list[int] = []
    first = 0
    for last, (place, name) in enumerate(words):
        inside[name] += 1
        while place - words[first][0] > CLOSE:
            _less(inside, words[first][1])
            first += 1
        if len(inside) == wanted:
            found.append(words[first][0])
            inside.clear()
            first = last + 1
    return found


def _less(inside: Counter[str], name: str) -> None:
    inside[name] -= 1
    if not inside[name]:
        del inside[name]
