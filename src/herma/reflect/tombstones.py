"""What was taken out of curated memory, read off its history: it does not come back by itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from herma.reflect.likeness import COVERED, coverage, gist, likeness
from herma.types import Change, Message

MOST = 500
"""Newest ones that are looked at."""


@dataclass(frozen=True, slots=True)
class Tombstone:
    """An entry that was there once."""

    text: str
    at: float
    by: str


def tombstones(changes: Iterable[Change], entries_of: Callable[[str], Sequence[str]]) -> list[Tombstone]:
    """What is gone, the newest first. `changes` come in any order, and all of one document."""
    gone: dict[str, Tombstone] = {}
    for change in sorted(changes, key=lambda one: one.id):
        before, after = entries_of(change.before), entries_of(change.after)
        for text in after:
            gone.pop(text, None)
        kept = set(after)
        for text in before:
            if text not in kept:
                gone.pop(text, None)  # so that the newest stand last
                gone[text] = Tombstone(text, change.at, str(change.author.who))
    return list(reversed(gone.values()))[:MOST]


def buried(text: str, stones: Iterable[Tombstone], said: Sequence[Message]) -> Tombstone | None:
    """The tombstone that a text would bring back, unless the user said it again since.

    `said` are the user's messages. That an entry was corrected does not bury the correction: texts that differ in a
    number, a name with digits or a negation are different facts.
    """
    for stone in stones:
        if likeness(text, stone.text) == "same" and not said_again(text, stone.at, said):
            return stone
    return None


def said_again(text: str, since: float, said: Iterable[Message]) -> bool:
    """Whether one message of the user's that is newer has most of its words, and every value in it."""
    wanted = gist(text)
    for message in said:
        if message.timestamp <= since or not isinstance(message.content, str):
            continue
        heard = gist(message.content)
        if wanted.values <= heard.values and coverage(wanted.words, heard.words) >= COVERED:
            return True
    return False
