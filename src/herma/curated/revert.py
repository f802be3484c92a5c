"""Taking one change back, on top of whatever happened since. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from herma.curated.entries import join, parse, unique
from herma.types import Change


@dataclass(frozen=True, slots=True)
class Reverted:
    """The text without the change. `exact` when nothing happened since, so that it is the old text to the byte."""

    text: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Overtaken:
    """It cannot be taken back alone: these entries of it were changed again since."""

    entries: tuple[str, ...]


def revert(current: str, change: Change) -> Reverted | Overtaken:
    """Take out what the change put in, and put back what it took out, where it stood."""
    if current == change.after:
        return Reverted(change.before, exact=True)
    before, after, now = (unique(parse(text)) for text in (change.before, change.after, current))
    added = [entry for entry in after if entry not in before]
    gone = tuple(entry for entry in added if entry not in now)
    if gone:
        return Overtaken(gone)
    result = [entry for entry in now if entry not in added]
    for index, entry in enumerate(before):
        if entry not in after and entry not in result:
            result.insert(_place_after(before[:index], result), entry)
    return Reverted(join(result), exact=False)


def _place_after(predecessors: list[str], result: list[str]) -> int:
    """Behind the nearest predecessor that is still there; at the front when none is."""
    for entry in reversed(predecessors):
        if entry in result:
            return result.index(entry) + 1
    return 0
