"""How looking back follows a session: what memory says to what the user says, and what past conversations do, apart.

What looks is made when a turn first has a text to look for, so that opening a session loads nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from herma.ports.observer import Watcher
from herma.transcript.wire import text_of
from herma.types import SessionView

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from herma.facts import Facts
    from herma.recall.prefetching import Prefetch
    from herma.types import Fact

T = TypeVar("T")
GRACE = 5.0
"""Seconds that a session waits, at the very most, for a look that keeps its own deadline."""
_CLOSE = 2.0
FACTS = "From memory:"


class FactWatcher(Watcher):
    """Tells the fact that the user asks for, unless the prompt has it. It is the user's own memory."""

    name = "facts"
    outside = False

    def __init__(self, facts: Callable[[], Facts], deadline: float) -> None:
        self._facts = facts
        self._desk = _Desk("facts")
        self._seconds = deadline
        self.deadline = deadline + GRACE

    def may_recall(self, view: SessionView, text: str) -> bool:
        return view.circumstances.context == "primary" and self._facts().asks(text)

    def turn_began(self, view: SessionView, text: str) -> str:
        fact = self._desk.ask(lambda: self._facts().answer(text, view.scope), self._seconds)
        return "" if fact is None or fact.source == "review" else fact_line(fact, view)

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        self._desk.close()


class PastWatcher(Watcher):
    """Tells what past conversations say, where that is worth it; and facts that a look back concluded from them."""

    name = "prefetch"
    outside = True
    at_once = True  # its desk keeps the deadline, with one thread for all turns

    def __init__(self, made: Callable[[], Prefetch], past: Callable[[str], bool], deadline: float) -> None:
        """`past`: whether there is anything besides a conversation."""
        self._made = made
        self._past = past
        self._has_past = False
        self._desk = _Desk("past")
        self._seconds = deadline
        self.deadline = deadline + GRACE

    def may_recall(self, view: SessionView, text: str) -> bool:
        if view.circumstances.context != "primary" or not text.strip():
            return False
        self._has_past = self._has_past or self._past(view.info.conversation)
        return self._has_past

    def turn_began(self, view: SessionView, text: str) -> str:
        prefetch, seconds = self._made(), self._seconds
        found = self._desk.ask(
            lambda: prefetch.look(
                text,
                scope=view.scope,
                conversation=view.info.conversation,
                within=seconds,
                model=view.model,
                known=lambda: _before(view),
            ),
            seconds,
        )
        if found is None or found.outcome == "late":
            prefetch.late(found)
            return ""
        prefetch.note(found)
        concluded = found.fact if found.fact is not None and found.fact.source == "review" else None
        return "\n\n".join(filter(None, (fact_line(concluded, view) if concluded else "", found.text)))

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        self._desk.close()


def fact_line(fact: Fact, view: SessionView) -> str:
    """A fact for the model; nothing where the prompt says it already."""
    if fact.text and fact.text in view.system_prompt:
        return ""
    day = time.strftime("%Y-%m-%d", time.localtime(fact.valid_from))
    return f"{FACTS}\n- {fact.subject}: {fact.attribute} = {' '.join(fact.value.split())} (since {day})"


def _before(view: SessionView) -> str:
    """What the model has before it: a branch begins with what another conversation said."""
    return "\n".join(text_of(message.content) for message in view.messages)


class _Desk:
    """One question at a time, in a thread of its own, for as long as the deadline lasts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[object] | None = None

    def ask(self, question: Callable[[], T], seconds: float) -> T | None:
        """The answer; nothing when it is late, or the last one is not there yet. An error is the guard's to count."""
        if self._running is not None and not self._running.done():
            return None
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"herma-{self._name}")
        future = self._pool.submit(question)
        self._running = future  # type: ignore[assignment]
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Let what still runs come to its end: it reads databases that may be closed next."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if self._running is not None:
            from concurrent.futures import wait

            wait([self._running], timeout=_CLOSE)
            self._running = None
