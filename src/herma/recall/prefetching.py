"""Looking back before a turn, within its deadline: exact facts first, then past conversations. `h.prefetch`.

Who is late is not waited for: the turn goes on without, and that is counted. Nothing is embedded but the question, and
not even that before the embedder is loaded, aside and after the second look, nor where it has shown to be too slow.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from herma.errors import HermaError
from herma.recall.prefetch import CHARACTERS, Prefetched, Prefetcher
from herma.types import Fact, Scope

SLOW, PATIENCE = 3, 20
"""After so many questions that were not embedded in time, so many are asked without."""


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

    def late(self, found: Prefetched | None) -> None:
        """Count a look for a turn that was not done in time, as far as it got."""
        self.note(Prefetched(outcome="late") if found is None else replace(found, outcome="late"))

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
