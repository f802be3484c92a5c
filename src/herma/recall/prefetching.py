"""Looking back before a turn, within its deadline: exact facts first, then past conversations. `h.prefetch`.

Who is late is not waited for: the turn goes on without, and that is counted. Nothing is embedded but the question, and
not even that before the embedder is loaded, aside and after the second look, nor where it has shown to be too slow.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import TypeVar

from herma.errors import HermaError
from herma.ports import Watcher
from herma.recall.prefetch import CHARACTERS, Prefetched, Prefetcher
from herma.transcript.wire import text_of
from herma.types import Fact, Scope, SessionView

SLOW, PATIENCE = 3, 20
"""After so many questions that were not embedded in time, so many are asked without."""
T = TypeVar("T")
GRACE = 5.0
"""Seconds that a session waits, at the very most, for a look that keeps its own deadline."""
_CLOSE = 2.0
FACTS = "From memory:"


@dataclass(frozen=True, slots=True)
class PrefetchParts:
    """What looking back is made of. `prefetcher` is given how to know whether the question may be embedded."""

    prefetcher: Callable[[Callable[[], bool]], Prefetcher]
    fact: Callable[[str, Scope | None], Fact | None]
    room: Callable[[str], int] = lambda _: CHARACTERS
    """Characters that the window of a model has for this."""
    warm: Callable[[], None] = lambda: None
    """Load what compares meanings, if there is anything."""


class Prefetch:
    """One for all sessions of a home. `counts` says how often each outcome came about, `last` how the last did."""

    def __init__(self, parts: PrefetchParts, *, enabled: bool = True, deadline: float = 0.15) -> None:
        self._parts = parts
        self._prefetcher: Prefetcher | None = None
        self.enabled = enabled
        self.deadline = deadline
        self.counts: Counter[str] = Counter()
        self.last: Prefetched | None = None
        self._mutex = threading.Lock()
        self._looks = self._slow = self._rest = 0
        self._warming: threading.Thread | None = None
        self._warmed = False

    def look(
        self,
        text: str,
        *,
        scope: Scope | None = None,
        conversation: str | None = None,
        within: float | None = None,
        model: str = "",
        known: Callable[[], str] = lambda: "",
    ) -> Prefetched:
        """What past conversations tell about a text, and why or why not. `within` is a deadline in seconds, `known` is
        what the model has before it anyway.
        """
        if self._prefetcher is None:
            self._prefetcher = self._parts.prefetcher(self._is_warm)
        until = None if within is None else time.monotonic() + within
        found = self._prefetcher.look(
            text, scope=scope, conversation=conversation, until=until, room=self._parts.room(model), known=known
        )
        fact = self.fact(text, scope)
        if fact is not None:
            found = replace(found, fact=fact)
        self._learn(found)
        if self._looks >= 2 and self._warming is None and not self._warmed:
            self._warming = threading.Thread(target=self.warm, name="herma-warm", daemon=True)
            self._warming.start()
        return found

    def warm(self) -> None:
        """Load what compares meanings, so that the next look has it."""
        try:
            self._parts.warm()
        except HermaError:  # the home was closed meanwhile, or the embedder is not there: words go on without it
            return
        self._warmed = True

    def fact(self, text: str, scope: Scope | None = None) -> Fact | None:
        """The fact that a text plainly asks for."""
        return self._parts.fact(text, scope)

    def note(self, found: Prefetched) -> None:
        """Count what came of a look for a turn."""
        with self._mutex:
            self.counts[found.outcome] += 1
            self.last = found

    def watchers(self) -> list[Watcher]:
        """Who looks back in one session: what memory says, and what others said, apart."""
        return [FactWatcher(self), PastWatcher(self)] if self.enabled else []

    def _is_warm(self) -> bool:
        """Loading a model takes longer than a turn waits, and who asks once needs none."""
        with self._mutex:
            self._looks += 1
            if self._rest:
                self._rest -= 1
                return False
            return self._warmed

    def _learn(self, found: Prefetched) -> None:
        with self._mutex:
            late = any("did not answer within" in note for note in found.notes)
            self._slow = self._slow + 1 if late else 0
            if self._slow >= SLOW:
                self._slow, self._rest = 0, PATIENCE


class FactWatcher(Watcher):
    """Tells the fact that the user asks for, unless the prompt has it. It is the user's own memory."""

    name = "facts"
    outside = False

    def __init__(self, prefetch: Prefetch) -> None:
        self._prefetch = prefetch
        self._desk = _Desk("facts")
        self.deadline = prefetch.deadline + GRACE

    def turn_began(self, view: SessionView, text: str) -> str:
        if view.circumstances.context != "primary":
            return ""
        fact = self._desk.ask(lambda: self._prefetch.fact(text, view.scope), self._prefetch.deadline)
        return "" if fact is None or fact.source == "review" else fact_line(fact, view)

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        self._desk.close()


class PastWatcher(Watcher):
    """Tells what past conversations say, where that is worth it; and facts that a look back concluded from them."""

    name = "prefetch"
    outside = True

    def __init__(self, prefetch: Prefetch) -> None:
        self._prefetch = prefetch
        self._desk = _Desk("past")
        self.deadline = prefetch.deadline + GRACE

    def turn_began(self, view: SessionView, text: str) -> str:
        if view.circumstances.context != "primary":
            return ""
        seconds = self._prefetch.deadline
        found = self._desk.ask(
            lambda: self._prefetch.look(
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
            self._prefetch.note(replace(found, outcome="late") if found else Prefetched(outcome="late"))
            return ""
        self._prefetch.note(found)
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
            wait([self._running], timeout=_CLOSE)
            self._running = None
