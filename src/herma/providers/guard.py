"""Stands between us and one guest: a deadline for every question, and a failure is caught once, counted and shown.

A guest that hangs is left out until it has come back: threads do not pile up behind it. What fails again and again is
left out for a while, then tried once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
State: TypeAlias = Literal["well", "busy", "paused"]
FAILURES = 5
"""Failures in a row, at the same thing, after which a guest is not asked for it for a while."""
PAUSE = 120.0
"""Seconds that this lasts."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that went wrong with a guest: which, at what, and in words."""

    guest: str
    what: str
    why: str
    late: bool = False
    """Whether it was only too slow."""


@dataclass(frozen=True, slots=True)
class Health:
    """How a guest has been so far."""

    state: State = "well"
    asked: int = 0
    failures: int = 0
    timeouts: int = 0
    skipped: int = 0
    """Questions it was not asked, because it had not come back or was left out for a while."""
    last: Trouble | None = None


class Guard:
    """One per guest. May be used by several threads; questions with a deadline are asked one at a time."""

    def __init__(
        self,
        guest: str,
        *,
        shown: Callable[[Trouble], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        failures: int = FAILURES,
        pause: float = PAUSE,
    ) -> None:
        self.guest = guest
        self._shown = [shown]
        self._clock = clock
        self._most = failures
        self._pause = pause
        self._mutex = threading.Lock()
        self._asked = self._failures = self._timeouts = self._skipped = 0
        self._in_a_row: Counter[str] = Counter()
        self._until: dict[str, float] = {}
        self._running: _Call[object] | None = None
        self._last: Trouble | None = None

    @property
    def health(self) -> Health:
        with self._mutex:
            paused = any(self._clock() < until for until in self._until.values())
            state: State = "busy" if self._hangs() else "paused" if paused else "well"
            return Health(state, self._asked, self._failures, self._timeouts, self._skipped, self._last)

    def ask(self, what: str, question: Callable[[], T], otherwise: T, *, within: float | None = None) -> T:
        """The guest's answer; `otherwise` when it fails, takes longer than `within` seconds, or is left out.

        Without a deadline it is asked in this thread.
        """
        call = self.begin(what, question, wait=within is not None)
        return otherwise if call is None else self.answer(call, otherwise, within)

    def begin(self, what: str, question: Callable[[], T], *, wait: bool = True) -> _Call[T] | None:
        """Ask in a thread of its own; the answer is fetched by `answer`. Nothing when the guest is left out.

        With `wait=False` in this thread, and in any case: what is news to a guest must not be lost.
        """
        call = _Call(what, question)
        with self._mutex:
            if wait and (self._hangs() or self._paused(what)):
                self._skipped += 1
                return None
            self._asked += 1
            if wait:
                self._running = call  # type: ignore[assignment]
        if wait:
            threading.Thread(target=call.run, name=f"herma: {self.guest}", daemon=True).start()
        else:
            call.run()
        return call

    def answer(self, call: _Call[T], otherwise: T, within: float | None = None, *, of: float | None = None) -> T:
        """What came of it, `within` seconds from now, the rest `of` so many. An error that is no failure of the guest,
        such as Ctrl-C, is raised.
        """
        if not call.done.wait(within):
            self._failed(call.what, f"did not answer within {within if of is None else of:g} s", timeout=True)
            return otherwise
        if call.error is not None:
            if not isinstance(call.error, Exception) and threading.current_thread() is call.thread:
                raise call.error
            self._failed(call.what, f"{type(call.error).__name__}: {call.error}")
            return otherwise
        with self._mutex:
            del self._in_a_row[call.what]
        return call.answers[0]

    def listen(self, shown: Callable[[Trouble], None]) -> None:
        """Tell this one too when something goes wrong, in the thread in which it does."""
        self._shown.append(shown)

    def left_out(self, what: str) -> bool:
        """Whether the guest failed so often at this that it is left out; that is counted."""
        with self._mutex:
            out = self._paused(what)
            self._skipped += out
        return out

    def count(self, what: str, why: str) -> None:
        """Something about the guest's answer is wrong, although it gave one."""
        self._failed(what, why)

    def note(self, what: str, *, failed: bool) -> None:
        """Another guard of the same guest has seen it fail at this, or not. It is counted there."""
        with self._mutex:
            self._in_a_row[what] = self._in_a_row[what] + 1 if failed else 0
            self._pause_if_due(what)

    def take_over(self, health: Health) -> None:
        """Count what another guard of the same guest has counted."""
        with self._mutex:
            self._asked += health.asked
            self._failures += health.failures
            self._timeouts += health.timeouts
            self._skipped += health.skipped
            self._last = health.last or self._last

    def _hangs(self) -> bool:
        return self._running is not None and not self._running.done.is_set()

    def _paused(self, what: str) -> bool:
        return self._clock() < self._until.get(what, 0.0)

    def _pause_if_due(self, what: str) -> None:
        if self._in_a_row[what] >= self._most:
            self._until[what] = self._clock() + self._pause
            self._in_a_row[what] = self._most - 1  # one more try after that; when it fails, the pause begins again

    def _failed(self, what: str, why: str, *, timeout: bool = False) -> None:
        trouble = Trouble(self.guest, what, " ".join(why.split())[:_LONGEST], late=timeout)
        with self._mutex:
            self._failures += 1
            self._timeouts += timeout
            self._in_a_row[what] += 1
            self._last = trouble
            self._pause_if_due(what)
        for shown in self._shown:
            shown(trouble)


class _Call(Generic[T]):
    """One question on its way."""

    def __init__(self, what: str, question: Callable[[], T]) -> None:
        self.what = what
        self._question = question
        self.done = threading.Event()
        self.answers: list[T] = []
        self.error: BaseException | None = None
        self.thread: threading.Thread | None = None

    def run(self) -> None:
        self.thread = threading.current_thread()
        try:
            self.answers.append(self._question())
        except BaseException as exc:  # noqa: BLE001  a guest may do anything, in a thread of its own as in ours
            self.error = exc
        finally:
            self.done.set()
