"""Background work: one queue with priority, cancel, deadline, drain (replaces five)."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from herma.errors import HermaError

# ---------- jobs.worker
#
# One thread for work that nobody waits for: what matters more goes first, else whatever came first.
#
# It begins with the first job and ends with the last. A job is given an event that says when to stop: it was cancelled,
# its time is up, or the program ends. A job that fails is counted and shown, and the next one is done all the same.

Work: TypeAlias = Callable[[threading.Event], None]
State: TypeAlias = Literal["waiting", "running", "done", "failed", "dropped"]
STOPPING = 1.0
"""Seconds that a job has to stop, once it was told to, before the worker is left to itself."""
_LINGER = 0.05
_LONGEST = 300


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work."""

    what: str
    work: Work
    owner: str = ""
    """On whose behalf, so that all of theirs can be cancelled."""
    deadline: float | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    state: State = "waiting"

    def stop(self) -> None:
        """Ask it to stop; one that has not begun never begins."""
        self.cancel.set()


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """How it went so far."""

    done: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0
    last_failure: str = ""


class Worker:
    """A queue with a thread of its own. Safe to use from several threads; nothing happens before the first job."""

    def __init__(
        self, name: str = "herma: background work", *, failed: Callable[[str, str], None] = lambda *_: None
    ) -> None:
        """`failed` is told what failed, and why, in the worker's thread."""
        self._name = name
        self._failed = failed
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, int, Job]] = []
        self._numbers = itertools.count()
        self._running: Job | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._counts = {"done": 0, "failed": 0, "dropped": 0}
        self._last = ""

    def submit(
        self,
        what: str,
        work: Work,
        *,
        priority: int = 0,
        owner: str = "",
        deadline: float | None = None,
        after: float = 0.0,
    ) -> Job | None:
        """Do this in the background; a smaller `priority` goes first. → None when the worker is closed.

        `deadline` is how many seconds it may run before it is asked to stop; `after`, how many to wait before it.
        """
        job = Job(what, work, owner, deadline)
        with self._changed:
            if self._closed:
                return None
            begins = time.monotonic() + after if after else 0.0
            heapq.heappush(self._queue, (begins, priority, next(self._numbers), job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return job

    def cancel(self, owner: str) -> int:
        """Stop everything that is done, or waits to be done, on somebody's behalf. → how many."""
        with self._changed:
            jobs = [job for *_, job in self._queue if job.owner == owner]
            if self._running is not None and self._running.owner == owner:
                jobs.append(self._running)
            for job in jobs:
                job.stop()
            self._changed.notify_all()
        return len(jobs)

    def wait(self, timeout: float) -> bool:
        """Until nothing runs, and nothing waits that could run now. → whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(self._idle, timeout)

    def close(self, timeout: float) -> list[str]:
        """Take nothing more; let what could run now be done within `timeout` seconds, then stop it. → what was dropped.

        Closing twice does no harm.
        """
        with self._changed:
            self._closed = True
            later = [entry for entry in self._queue if entry[0] > time.monotonic()]
            dropped = [job for *_, job in later]
            self._queue = [entry for entry in self._queue if entry not in later]
            heapq.heapify(self._queue)
            if not self._changed.wait_for(self._idle, timeout):
                dropped += [job for *_, job in self._queue]
                self._queue.clear()
                if self._running is not None:
                    self._running.stop()
                    dropped.append(self._running)
            self._drop([job for job in dropped if job is not self._running])
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._thread is None, STOPPING)
        return [job.what for job in dropped]

    @property
    def health(self) -> WorkerHealth:
        with self._changed:
            return WorkerHealth(**self._counts, waiting=len(self._queue), last_failure=self._last)

    # ── in its thread ──

    def _run(self) -> None:
        while (job := self._next()) is not None:
            timer = None
            if job.deadline is not None:
                timer = threading.Timer(job.deadline, job.stop)
                timer.daemon = True
                timer.start()
            why = ""
            try:
                job.work(job.cancel)
            except Exception as exc:  # noqa: BLE001  one job's failure is counted and shown, and ends no other
                why = f"{type(exc).__name__}: {exc}"
            if timer is not None:
                timer.cancel()
            self._ended(job, " ".join(why.split())[:_LONGEST])

    def _ended(self, job: Job, why: str) -> None:
        try:
            if why:
                self._failed(job.what, why)
        finally:
            with self._changed:
                self._running = None
                job.state = "failed" if why else "done"
                self._counts[job.state] += 1
                self._last = f"{job.what}: {why}" if why else self._last
                job.over.set()
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """The job to do now; None when there is none, and then the thread ends."""
        with self._changed:
            while True:
                self._drop([job for *_, job in self._queue if job.cancel.is_set()])
                self._queue = [entry for entry in self._queue if not entry[-1].cancel.is_set()]
                heapq.heapify(self._queue)
                now = time.monotonic()
                ready = [entry for entry in self._queue if entry[0] <= now]
                if ready:
                    chosen = min(ready, key=lambda entry: entry[1:3])
                    self._queue.remove(chosen)
                    heapq.heapify(self._queue)
                    self._running = chosen[-1]
                    self._running.state = "running"
                    return self._running
                self._changed.notify_all()
                if self._queue:
                    self._changed.wait(self._queue[0][0] - now)
                    continue
                if not self._closed:
                    self._changed.wait(_LINGER)  # another one often follows at once
                if not self._queue:
                    self._thread = None
                    self._changed.notify_all()
                    return None

    def _idle(self) -> bool:
        now = time.monotonic()
        waiting = any(begins <= now and not job.cancel.is_set() for begins, _, _, job in self._queue)
        return self._running is None and not waiting

    def _drop(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.state = "dropped"
            job.over.set()
            self._counts["dropped"] += 1


# ---------- episodes.aside
#
# Work that nobody waits for: done in a thread of its own that begins with the first piece and ends with the last.

T = TypeVar("T")


class Aside(Generic[T]):
    """One piece after the other, in order. A failure is counted and kept for whoever asks, and ends nothing.

    The thread is not a daemon: a program that ends lets it finish, which takes as long as one write may wait.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work = work
        self._name = name
        self._changed = threading.Condition()
        self._queue: deque[T] = deque()
        self._busy = False
        self.failures = 0
        self.trouble = ""

    def put(self, piece: T) -> None:
        with self._changed:
            self._queue.append(piece)
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._run, name=self._name).start()

    def wait(self, timeout: float) -> bool:
        """Until everything is done. → False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def _run(self) -> None:
        finished = False
        try:
            while (piece := self._next()) is not None:
                try:
                    self._work(piece[0])
                except HermaError as exc:  # the home is read-only or busy: the next run of `rebuild` makes up for it
                    self.failures += 1
                    self.trouble = str(exc)
            finished = True
        finally:
            if not finished:  # a mistake of ours ends the thread, and must not leave others waiting
                with self._changed:
                    self._busy = False
                    self._queue.clear()
                    self._changed.notify_all()

    def _next(self) -> tuple[T] | None:
        with self._changed:
            if self._queue:
                return (self._queue.popleft(),)
            self._busy = False
            self._changed.notify_all()
            return None


# ---------- providers.lane
#
# One after the other, in the background: what a guest is told but nobody waits for.

WAITING = 500
"""Things that may wait at most; when a guest is that far behind, the oldest are given up."""


class Lane:
    """A queue with one thread, which is begun with the first thing in it and ends when nothing is left."""

    def __init__(self, name: str, *, lost: Callable[[str], None] = lambda _: None, most: int = WAITING) -> None:
        self._name = name
        self._lost = lost
        self._most = most
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, what: str, work: Callable[[], None]) -> bool:
        """Do it after everything that was put here before. → whether it was taken; a closed lane takes nothing."""
        given_up = None
        with self._changed:
            if self._closed:
                return False
            if len(self._waiting) >= self._most:
                given_up = self._waiting.popleft()[0]
            self._waiting.append((what, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        if given_up is not None:
            self._lost(given_up)
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is left. → whether that was so in time."""
        until = time.monotonic() + timeout
        with self._changed:
            while self._thread is not None:
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    return False
        return True

    def close(self, timeout: float) -> list[str]:
        """Take nothing more, wait for what is there. → what was given up because it took too long."""
        with self._changed:
            self._closed = True
        if self.flush(timeout):
            return []
        with self._changed:
            left = [what for what, _ in self._waiting]
            self._waiting.clear()
        return left

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                _, work = self._waiting.popleft()
            work()
