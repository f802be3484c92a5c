"""Where an endless chat takes a turn: after a pause, on another day, or to another topic. Pure.

Learning happens at the end of a session; a chat that never ends has virtual ends, between two turns.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from herma.transcript.wire import text_of
from herma.types import Divide, Message

WINDOW, FEWEST = 3, 6
"""Turns of the user that make a new topic, and turns that the old one must have had."""
FAR = 0.97
"""Distance of the words of two windows, 0 to 1, from which they are about different things."""
FAR_MEANING = 0.15
"""The same for the cosine distance of their vectors, where there is an embedder."""
_WORDS = 12
"""Words that a window must have to be judged: short remarks have no topic."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Everything up to this message is a piece of its own."""

    why: Divide
    last_message: int
    windows: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Of a topic: what was said before and after it."""


def pause_between(last: float, now: float, idle_minutes: float, watched: Collection[Divide]) -> Divide | None:
    """Whether time makes a boundary between the last message and now."""
    if now <= last:
        return None
    if "idle" in watched and idle_minutes > 0 and now - last >= idle_minutes * 60:
        return "idle"
    if "day" in watched and _day(last) != _day(now):
        return "day"
    return None


def topic_change(messages: Sequence[Message], since: int) -> Boundary | None:
    """The place before the latest turns of the user, if they are about something else than those before.

    Only messages after `since` count, which is where the last boundary was.
    """
    turns = [at for at, one in enumerate(messages) if one.role == "user" and one.id > since]
    if len(turns) < FEWEST + WINDOW:
        return None
    said = [text_of(messages[at].content) for at in turns]
    before, after = tuple(said[-WINDOW - FEWEST : -WINDOW]), tuple(said[-WINDOW:])
    first = turns[-WINDOW]
    if first == 0 or distance(before, after) < FAR:
        return None
    return Boundary("topic", messages[first - 1].id, (before, after))


def distance(before: Sequence[str], after: Sequence[str]) -> float:
    """How far the words of two windows are from each other, 0 to 1; 0 where too little was said to judge."""
    one, other = _counted(before), _counted(after)
    if sum(one.values()) < _WORDS or sum(other.values()) < _WORDS:
        return 0.0
    dot = sum(weight * other[word] for word, weight in one.items())
    return max(0.0, 1.0 - dot / (_length(one) * _length(other)))


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine distance of two vectors; 0 where one has no direction."""
    lengths = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in other))
    return 1.0 - sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def _counted(texts: Sequence[str]) -> Counter[str]:
    from herma.reflect.likeness import gist  # nobody compares words before a chat has had some turns

    return Counter(word for text in texts for word in gist(text).words)


def _length(counts: Counter[str]) -> float:
    return math.sqrt(sum(weight * weight for weight in counts.values()))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
