"""How looking back follows a session: it counts, and decides when; `reviews` does it, in the background.

A new turn stops what runs. Nothing is decided inside a turn: what time or topic divided is seen to after the reply.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

from herma.ports.observer import Watcher
from herma.reflect.boundary import FAR_MEANING, Boundary, apart, pause_between, topic_change
from herma.reflect.cadence import Counters, Due, after, due, hydrated, reviewed
from herma.reflect.requests import remember_request
from herma.types import MOVES, CompletedTurn, Divide, SessionView

if TYPE_CHECKING:
    from herma.reflect.reviews import Reviews

MOST_STOPPED = 3
"""How often in a row a review is tried again because a new turn came in between."""
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | None]
"""Vectors of texts; None where there is nothing to make them."""


class ReviewWatcher(Watcher):
    """One per session of the user's own agent."""

    name = "review"
    outside = False

    def __init__(
        self,
        reviews: Reviews,
        covered: Callable[[str], int],
        clock: Callable[[], float],
        embed: Embed | None = None,
    ) -> None:
        self._reviews = reviews
        self._policy = reviews.policy
        self._covered_of = covered
        self._clock = clock
        self._embed = embed
        self._counters = Counters()
        self._underway: Due | None = None
        self._stopped = 0
        self._covered: int | None = None
        self._boundary: Boundary | None = None
        self._hurry: threading.Event | None = None
        self._made_up = False
        self.notices: list[str] = []
        """What people should know; shown among the warnings of the session."""

    def opened(self, view: SessionView) -> None:
        self._counters = hydrated(view.messages, self._policy.memory_every)

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        self._stop(view)
        if view.messages and self._enough(view):
            why = pause_between(view.messages[-1].timestamp, self._clock(), self._policy.idle_minutes, self._watched())
            if why is not None:
                self._boundary = Boundary(why, view.messages[-1].id)
        return ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._counters = after(self._counters, turn)
        wanted = remember_request(turn.user) is not None and _is_wanted(view)
        if not self._reviews.has_model:
            if wanted:
                self._hurry = self._reviews.remember(view, Due(), self._tell)
            if not self._made_up:  # what a killed program was asked to remember
                self._made_up = True
                self._reviews.make_up(view.id)
            return
        what = self._due()
        if wanted:
            self._hurry = self._reviews.remember(view, what, self._tell)
        elif what:
            self._underway = what
            self._reviews.after_turn(view, what, self._tell, self._ended)
        self._divide(view)
        self._reviews.make_up(view.id)
        self._when_idle(view)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:  # noqa: ARG002
        if reset or reason == "rewind":  # what was looked back at is not what was said any more
            self._stop(old)
        if reset:
            self._counters = Counters()

    def closing(self, view: SessionView, reason: str) -> None:
        if reason == "reload" or not self._reviews.has_model:
            return
        if self._policy.at_end and self._enough(view):
            self._stop(view)
            kind = "boundary" if reason in MOVES else "end"  # what is summed up is not at hand any more afterwards
            self._owe(view, kind, reason, view.messages[-1].id)
        elif reason not in MOVES:
            self._reviews.calm(view.id)

    # ── steps ──

    def _due(self) -> Due:
        """What is due now, and what a new turn stopped before. It counts as done from here on, whatever comes of it: a
        failing one must not be tried every turn."""
        what = due(self._counters, self._policy.memory_every, self._policy.skills_every)
        left, self._underway = self._underway, None
        if left is not None:
            self._stopped += 1
            if self._stopped <= MOST_STOPPED:
                what = Due(what.memory or left.memory, what.skills or left.skills)
            else:
                self._stopped = 0
        self._counters = reviewed(self._counters, what)
        return what

    def _ended(self) -> None:
        """Told in the worker's thread."""
        self._underway = None
        self._stopped = 0

    def _divide(self, view: SessionView) -> None:
        """A virtual end, where a pause, another day or another topic lies between two turns."""
        found, self._boundary = self._boundary, None
        if found is None and "topic" in self._policy.boundaries:
            found = topic_change(view.messages, self._since(view))
        if found is None:
            return
        if self._embed is None or found.windows is None:
            self._owe(view, "boundary", found.why, found.last_message)
            return
        far, embed = found, self._embed

        def compare() -> None:
            """Words are apart; so should the meanings be."""
            vectors = embed(["\n".join(window) for window in far.windows or ()])
            if vectors is None or apart(*vectors) >= FAR_MEANING:
                self._owe(view, "boundary", far.why, far.last_message)

        self._reviews.aside("telling topics apart", compare)

    def _owe(self, view: SessionView, kind: str, why: str, last: int) -> None:
        self._covered = last
        self._reviews.owe(view, "boundary" if kind == "boundary" else "end", why, last, self._tell)

    def _when_idle(self, view: SessionView) -> None:
        """Nobody may ever say anything again: then a pause is a boundary when it is long enough."""
        if "idle" not in self._policy.boundaries or not self._policy.idle_minutes or not self._enough(view):
            return

        def then() -> None:
            if self._enough(view):
                self._owe(view, "boundary", "idle", view.messages[-1].id)

        self._reviews.when_idle(self._policy.idle_minutes * 60, view, then)

    def _enough(self, view: SessionView) -> bool:
        """Whether the user said enough since the last boundary for something to be learnt."""
        since, missing = self._since(view), max(self._policy.min_turns, 1)
        for message in reversed(view.messages):  # what was said before need not be looked at
            if message.id <= since:
                return False
            missing -= message.role == "user"
            if not missing:
                return True
        return False

    def _since(self, view: SessionView) -> int:
        if self._covered is None:
            self._covered = self._covered_of(view.info.conversation)
        return self._covered

    def _watched(self) -> Sequence[Divide]:
        return cast("Sequence[Divide]", self._policy.boundaries)

    def _stop(self, view: SessionView) -> None:
        self._reviews.stop(view.id)
        if self._hurry is not None:
            self._hurry.set()
            self._hurry = None

    def _tell(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def _is_wanted(view: SessionView) -> bool:
    """Whether what the user asks to be remembered is not remembered yet."""
    from herma.reflect.remember import wanted_in  # few ask for anything

    return wanted_in(view.messages) is not None
