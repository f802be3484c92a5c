"""Deadline, circuit breaker, failure log."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

from herma.safety.scan import scan

# ---------- providers.guard
#
# Stands between us and one guest: a deadline for every question, and a failure is caught once, counted and shown.
#
# A guest that hangs is left out until it has come back: threads do not pile up behind it. What fails again and again is
# left out for a while, then tried once.

T = TypeVar("T")
State: TypeAlias = Literal["well", "busy", "paused"]
FAILURES = 5
"""Failures in a row, at the same thing, after which a guest is not asked for it for a while."""
PAUSE = 120.0
"""Seconds that this lasts."""
_GUARD_LONGEST = 300


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
        trouble = Trouble(self.guest, what, " ".join(why.split())[:_GUARD_LONGEST], late=timeout)
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


# ---------- store.trouble_log
#
# `logs/guests.jsonl`: what went wrong with guests, for whoever looks later: the doctor, the dashboard, or a person.
#
# `logs/spending.jsonl` is of the same kind: what background work left undone because the day's cap was reached.
#
# Derived and bounded: it may be deleted at any time, and a home that cannot be written has none.

LARGEST = 256 * 1024
"""Bytes after which the older half is dropped."""
_TROUBLE_LOG_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Noted:
    """One thing that went wrong."""

    at: float
    guest: str
    what: str
    why: str


class TroubleLog:
    """Appends one line each; several programs may write to it."""

    def __init__(self, home: Path, name: Literal["guests", "spending"] = "guests") -> None:
        self._path = home / "logs" / f"{name}.jsonl"
        self._mutex = threading.Lock()

    def add(self, noted: Noted) -> None:
        """Write it down, without secrets. Where that is not possible, nothing happens: it was shown already."""
        why = "its message holds something that should not be written down" if scan(noted.why) else noted.why
        value = {"at": noted.at, "guest": noted.guest, "what": noted.what, "why": why[:_TROUBLE_LOG_LONGEST]}
        line = json.dumps(value, ensure_ascii=True) + "\n"
        try:
            with self._mutex:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(opened, line.encode("ascii"))
                    large = os.fstat(opened).st_size > LARGEST
                finally:
                    os.close(opened)
                if large:
                    self._halve()
        except OSError:
            return

    def since(self, at: float) -> Iterator[Noted]:
        """What was noted since then, oldest first. A line that makes no sense is passed over."""
        try:
            lines = self._path.read_bytes()[-2 * LARGEST :].splitlines()
        except OSError:
            return
        for line in lines:
            noted = _read(line)
            if noted is not None and noted.at >= at:
                yield noted

    def _halve(self) -> None:
        kept = self._path.read_bytes()[-LARGEST // 2 :].partition(b"\n")[2]
        temporary = self._path.with_name(f".{self._path.stem}.{os.getpid()}.tmp")
        temporary.write_bytes(kept)
        temporary.chmod(0o600)
        temporary.replace(self._path)


def _read(line: bytes) -> Noted | None:
    try:
        value = json.loads(line)
        return Noted(float(value["at"]), str(value["guest"]), str(value["what"]), str(value["why"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
