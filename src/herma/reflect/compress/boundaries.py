"""Which messages stay as they are when the rest becomes a summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herma.reflect.compress.summary import stands_in
from herma.types import Message

HEAD = 2
"""Messages that are kept from the beginning: the first request, and what it was answered."""
FEWEST_LAST = 4
_TOO_LONG = 2
"""Times what a tail may take: a turn that is longer is summarised from its beginning on."""


@dataclass(frozen=True, slots=True)
class Cut:
    """`messages[:head]` and `messages[tail:]` stay; what lies between is summarised.

    In one long turn the user's last request lies between too: then it is `request`, and stays before the tail.
    """

    head: int
    tail: int
    request: int | None = None

    @property
    def empty(self) -> bool:
        return self.replaced < 1

    @property
    def replaced(self) -> int:
        """How many messages are summarised."""
        return self.tail - self.head - (self.request is not None)


def choose(messages: Sequence[Message], weights: Sequence[int], tail_tokens: int, *, head: int = HEAD) -> Cut:
    """The head that is wanted, and as long a tail as fits; a tool call and its results are never parted.

    The last request of the user stays, whatever it weighs, and so does the last reply in words after it. The tail
    begins with that request, unless so much was done since then that this would leave nothing to summarise.
    """
    if len(messages) != len(weights):
        raise ValueError("every message has a weight")
    start = len(messages)
    left = tail_tokens
    while start > 0 and (weights[start - 1] <= left or len(messages) - start < FEWEST_LAST):
        start -= 1
        left -= weights[start]
    end = min(head, len(messages))
    while 0 < end < len(messages) and messages[end].role == "tool":  # results belong to the call before them
        end += 1
    asked, said = _last_request(messages), _last_said(messages)
    whole = _whole(messages, min([start, *(at for at in (asked, said) if at is not None)]))
    if asked is not None and sum(weights[whole:]) > _TOO_LONG * tail_tokens:
        shorter = _whole(messages, min(start, len(messages) if said is None else said))
        if shorter - max(end, asked) > FEWEST_LAST:
            return Cut(min(end, shorter), shorter, asked if end <= asked else None)
    return Cut(min(end, whole), whole)


def _last_request(messages: Sequence[Message]) -> int | None:
    return next((at for at in reversed(range(len(messages))) if _asks(messages[at])), None)


def _asks(message: Message) -> bool:
    """Whether the user says it; a summary asks for nothing, whoever is taken to say it."""
    return message.role == "user" and not stands_in(message)


def _last_said(messages: Sequence[Message]) -> int | None:
    """The last reply in words, unless the user's last request came after it: that alone is what goes on."""
    for at in reversed(range(len(messages))):
        if _asks(messages[at]):
            return None
        if messages[at].role == "assistant" and messages[at].content:
            return at
    return None


def _whole(messages: Sequence[Message], start: int) -> int:
    """A tail that would begin with results begins with the call that they answer."""
    while 0 < start < len(messages) and messages[start].role == "tool":
        start -= 1
    return start
