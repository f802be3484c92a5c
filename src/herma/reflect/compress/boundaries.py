"""Which messages stay as they are when the rest becomes a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herma.types import Message

HEAD = 2
"""Messages that are kept from the beginning: the first request, and what it was answered."""
FEWEST_LAST = 4


@dataclass(frozen=True, slots=True)
class Cut:
    """`messages[:head]` and `messages[tail:]` stay; what lies between is summarised."""

    head: int
    tail: int

    @property
    def empty(self) -> bool:
        return self.tail - self.head < 1


def choose(messages: Sequence[Message], weights: Sequence[int], tail_tokens: int, *, head: int = HEAD) -> Cut:
    """The head that is wanted, and as long a tail as fits; a tool call and its results are never parted.

    The tail holds the last request of the user and the last reply in words, whatever they weigh.
    """
    if len(messages) != len(weights):
        raise ValueError("every message has a weight")
    start = len(messages)
    left = tail_tokens
    while start > 0 and (weights[start - 1] <= left or len(messages) - start < FEWEST_LAST):
        start -= 1
        left -= weights[start]
    must = [_last(messages, "user"), _last_said(messages)]
    start = min([start, *(at for at in must if at is not None)])
    start = _whole(messages, start)
    end = min(head, len(messages))
    while 0 < end < len(messages) and messages[end].role == "tool":  # results belong to the call before them
        end += 1
    return Cut(min(end, start), start)


def _last(messages: Sequence[Message], role: str) -> int | None:
    return next((at for at in reversed(range(len(messages))) if messages[at].role == role), None)


def _last_said(messages: Sequence[Message]) -> int | None:
    """The last reply in words, unless the user's last request came after it: that alone is what goes on."""
    for at in reversed(range(len(messages))):
        if messages[at].role == "user":
            return None
        if messages[at].role == "assistant" and messages[at].content:
            return at
    return None


def _whole(messages: Sequence[Message], start: int) -> int:
    """A tail that would begin with results begins with the call that they answer."""
    while 0 < start < len(messages) and messages[start].role == "tool":
        start -= 1
    return start
