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
    added = set(after) - set(before)
    missing = added - set(now)
    gone = tuple(entry for entry in after if entry in missing)
    if gone:
        return Overtaken(gone)
    kept = [entry for entry in now if entry not in added]
    lost = set(before) - set(after) - set(kept)
    return Reverted(join(_put_back(before, kept, lost)), exact=False)


def _put_back(before: list[str], kept: list[str], lost: set[str]) -> list[str]:
    """Each lost entry behind its nearest predecessor that is still there; at the front when none is."""
    there = set(kept)
    behind: dict[str, list[str]] = {}
    anchor = ""
    for entry in before:
        if entry in lost:
            behind.setdefault(anchor, []).append(entry)
        elif entry in there:
            anchor = entry
    return [*behind.get("", ()), *(text for entry in kept for text in (entry, *behind.get(entry, ())))]
