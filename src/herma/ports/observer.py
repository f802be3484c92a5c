"""How parts follow a session without the session knowing them: they are told what happens, and may add to the prompt.

An observer never fails a turn: what it raises is caught once, counted and shown, and what it is asked for has a
deadline. What it is told has happened already; only `turn_began` and `compressing` are questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from herma.types import CompletedTurn, Contribution, MemoryWrite, Occasion, SessionView

LOCAL_DEADLINE = 0.15
"""Seconds that a part of our own may take to recall something for a turn."""


class Observer(Protocol):
    """What a session tells. `Watcher` has all of it, doing nothing."""

    def opened(self, view: SessionView) -> None:
        """A session began, or was taken up again: then it has messages."""
        ...

    def turn_began(self, view: SessionView, text: str) -> str:
        """The user says this; it is not in `view.messages` yet. → text that may help, fenced into their message."""
        ...

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        """A reply is on disk that asks for no more tools. Turns that were interrupted are not announced."""
        ...

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        """The session's tool changed curated memory, durably."""
        ...

    def compressing(self, view: SessionView) -> str:
        """The conversation is about to be shortened. → what the summary should not miss."""
        ...

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        """The same conversation goes on otherwise: another prompt, other messages, perhaps another id.

        `reason` is `reload`, `compression` or `rewind`; with `reset`, a new conversation begins in its place.
        """
        ...

    def closing(self, view: SessionView, reason: str) -> None:
        """The session ends. With a reason of `types.MOVES`, its conversation goes on and `switched` follows."""
        ...


class Watcher:
    """An observer that does nothing: the base of those that care for some of it."""

    name = ""
    """How it is called in warnings; nothing: like its class."""
    deadline = LOCAL_DEADLINE
    """Seconds that a question to it may take."""
    notices: Sequence[str] = ()
    """What people should know, among the warnings of the session; it may grow at any time."""
    outside = True
    """Whether what it recalls was said by others, so that the model's repeating it waits for a person's decision."""
    at_once = False
    """Whether `turn_began` answers from what is at hand, or keeps its deadline by itself: then it is asked in the
    session's own thread, and costs no other. For parts of our own: nobody can be kept from hanging there."""

    def may_recall(self, view: SessionView, text: str) -> bool:  # noqa: ARG002
        """Whether it may have something for this text. Asked before `turn_began`, in the session's own thread, so it
        must tell at once; who says no is not asked, and costs nothing more."""
        return True

    def opened(self, view: SessionView) -> None:
        """Nothing."""

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        """Nothing."""

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        """Nothing."""

    def compressing(self, view: SessionView) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        """Nothing."""

    def closing(self, view: SessionView, reason: str) -> None:
        """Nothing."""


class Contributor(Protocol):
    """A part that adds to the system prompt when it is made: at the beginning, and when it is built anew.

    The opening of a session waits for it. One that may take long has a `contribution_deadline`, in seconds.
    """

    def contribute(self, occasion: Occasion) -> Contribution: ...
