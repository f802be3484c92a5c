"""Run background work: `app.worker` with its lanes, `BackgroundCall` for a question with a deadline, and `Guard` for
the questions that a plugin is asked.

The jobs of a lane run one after another; lanes run side by side, so that a review of some minutes does not hold up the
index. A lane has a thread only while it has jobs. A failed job is counted and shown, and the next one runs.

Other modules do not start threads, except those that `tests/arch/test_house.py` lists with a reason.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

from herma.safety.scan import scan
from herma.store.files import replace_file

T = TypeVar("T")
Work: TypeAlias = Callable[[threading.Event], object]
"""Called with an event that is set when the job should stop: cancelled, over its deadline, or the program ends."""
Failed: TypeAlias = Callable[[str, str, str], None]
"""Called with a lane, a job and why it failed, in the thread of the lane."""
State: TypeAlias = Literal["waiting", "running", "done", "failed", "dropped"]
STOPPING = 1.0
"""Seconds that `close` waits for a job that was asked to stop."""
_LINGER = 0.05
_LONGEST = 300


class Worker:
    """The background work of one opened Herma."""

    def __init__(self, failed: Failed = lambda *_: None) -> None:
        self._failed = failed
        self._lanes: list[Lane] = []

    def lane(
        self, name: str, *, most: int | None = None, lost: Callable[[str], None] = lambda _: None, daemon: bool = True
    ) -> Lane:
        """Make a lane. If more than `most` jobs wait, `lost` is called with the oldest, which is dropped.

        A program that ends without closing its Herma waits for lanes that are not `daemon`.
        """
        made = Lane(name, self._failed, most=most, lost=lost, daemon=daemon)
        self._lanes = [lane for lane in self._lanes if not lane.closed]
        self._lanes.append(made)
        return made

    def health(self) -> Mapping[str, WorkerHealth]:
        """Return what each lane did so far."""
        return {lane.name: lane.health for lane in self._lanes}

    def close(self, timeout: float = 0.0) -> list[str]:
        """Close every lane that its owner has not closed. Return what was dropped."""
        until = time.monotonic() + timeout
        lanes = [lane for lane in self._lanes if not lane.closed]
        return [what for lane in lanes for what in lane.close(max(0.0, until - time.monotonic()))]


class WorkerHealth(NamedTuple):
    """Counts of the jobs of a lane."""

    done: int = 0
    failed: int = 0
    dropped: int = 0
    waiting: int = 0
    last_failure: str = ""


@dataclass(eq=False, slots=True)
class Job:
    """One piece of work. Jobs with the same `owner` are cancelled together."""

    what: str
    work: Work
    owner: str = ""
    deadline: float | None = None
    cancel: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    state: State = "waiting"

    def stop(self) -> None:
        """Ask the job to stop; one that has not begun never begins."""
        self.cancel.set()


class Lane:
    """A queue with at most one thread. Safe to use from several threads."""

    def __init__(
        self,
        name: str,
        failed: Failed = lambda *_: None,
        *,
        most: int | None = None,
        lost: Callable[[str], None] = lambda _: None,
        daemon: bool = True,
    ) -> None:
        self.name = name
        self._failed = failed
        self._most = most
        self._lost = lost
        self._daemon = daemon
        self._changed = threading.Condition()
        self._queue: list[tuple[float, int, int, Job]] = []
        self._numbers = itertools.count()
        self._running: Job | None = None
        self._thread: threading.Thread | None = None
        self.closed = False
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
        replacing: bool = False,
    ) -> Job | None:
        """Run `work` in the background; a smaller `priority` goes first. Return None if the lane is closed.

        After `deadline` seconds of running it is asked to stop. It begins at the earliest `after` seconds from now.
        With `replacing`, a waiting job of the same name does not run.
        """
        job = Job(what, work, owner, deadline)
        lost: Job | None = None
        with self._changed:
            if self.closed:
                return None
            if replacing:
                for entry in [each for each in self._queue if each[-1].what == what]:
                    self._queue.remove(entry)
                    entry[-1].state = "dropped"
                    entry[-1].over.set()
            elif self._most is not None and len(self._queue) >= self._most:
                oldest = min(self._queue, key=lambda entry: entry[2])
                self._queue.remove(oldest)
                lost = oldest[-1]
                self._drop([lost])
            begins = time.monotonic() + after if after else 0.0
            self._queue.append((begins, priority, next(self._numbers), job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"herma: {self.name}", daemon=self._daemon)
                self._thread.start()
            self._changed.notify_all()
        if lost is not None:
            self._lost(lost.what)
        return job

    def cancel(self, owner: str) -> int:
        """Stop the running and the waiting jobs of an owner. Return how many there were."""
        with self._changed:
            jobs = [job for *_, job in self._queue if job.owner == owner]
            if self._running is not None and self._running.owner == owner:
                jobs.append(self._running)
            for job in jobs:
                job.stop()
            self._changed.notify_all()
        return len(jobs)

    def wait(self, timeout: float) -> bool:
        """Wait until no job runs or could run now. Return whether that was so in time."""
        with self._changed:
            return self._changed.wait_for(self._idle, timeout)

    def close(self, timeout: float, stopping: float = STOPPING) -> list[str]:
        """Take no more jobs, run what could run now for `timeout` seconds, then stop. Return what was dropped."""
        with self._changed:
            self.closed = True
            now = time.monotonic()
            dropped = [job for begins, _, _, job in self._queue if begins > now]
            self._queue = [entry for entry in self._queue if entry[0] <= now]
            if not self._changed.wait_for(self._idle, timeout):
                dropped += [job for *_, job in self._queue]
                self._queue.clear()
                if self._running is not None:
                    self._running.stop()
                    dropped.append(self._running)
            self._drop([job for job in dropped if job is not self._running])
            self._changed.notify_all()
            if self._thread is not threading.current_thread():
                self._changed.wait_for(lambda: self._thread is None, stopping)
        return [job.what for job in dropped]

    @property
    def waiting(self) -> int:
        """Return how many jobs have not begun."""
        return len(self._queue)

    @property
    def health(self) -> WorkerHealth:
        with self._changed:
            return WorkerHealth(**self._counts, waiting=len(self._queue), last_failure=self._last)

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
            except Exception as exc:  # noqa: BLE001  a job's failure is counted and shown, and stops no other
                why = " ".join(f"{type(exc).__name__}: {exc}".split())[:_LONGEST]
            if timer is not None:
                timer.cancel()
            self._ended(job, why)

    def _ended(self, job: Job, why: str) -> None:
        try:
            if why:
                self._failed(self.name, job.what, why)
        finally:
            with self._changed:
                self._running = None
                job.state = "failed" if why else "done"
                self._counts[job.state] += 1
                self._last = f"{job.what}: {why}" if why else self._last
                job.over.set()
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """Return the next job, once it may begin. Return None when there is none: then the thread ends."""
        with self._changed:
            while True:
                self._drop([job for *_, job in self._queue if job.cancel.is_set()])
                self._queue = [entry for entry in self._queue if not entry[-1].cancel.is_set()]
                now = time.monotonic()
                if ready := [entry for entry in self._queue if entry[0] <= now]:
                    chosen = min(ready, key=lambda entry: entry[1:3])
                    self._queue.remove(chosen)
                    self._running = chosen[-1]
                    self._running.state = "running"
                    return self._running
                self._changed.notify_all()
                if self._queue:
                    self._changed.wait(min(self._queue)[0] - now)
                    continue
                if not self.closed:
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


class BackgroundCall(Generic[T]):
    """A question that runs in a daemon thread of its own. The caller may stop waiting and leave it behind.

    It is for work that a caller waits for with a deadline, where one slow answer must not delay the others.
    """

    def __init__(self, name: str, question: Callable[[], T], what: str = "") -> None:
        """`name`: of the thread; `what`: what is asked, for the caller's own use."""
        self.name = name
        self.what = what
        self.done = threading.Event()
        self.error: BaseException | None = None
        self.started = False
        self._question = question
        self._answers: list[T] = []

    def start(self) -> Self:
        """Begin in a thread."""
        self.started = True
        threading.Thread(target=self.run, name=f"herma: {self.name}", daemon=True).start()
        return self

    def run(self) -> None:
        """Run in this thread."""
        try:
            self._answers.append(self._question())
        except BaseException as exc:  # noqa: BLE001  raised by `answer`, where it is asked for
            self.error = exc
        finally:
            self.done.set()

    def answer(self, within: float | None = None) -> T:
        """Return the answer, or raise its error; `TimeoutError` if it takes longer than `within` seconds."""
        if not self.done.wait(within):
            raise TimeoutError(f"{self.name} did not answer within {within:g} s.")
        if self.error is not None:
            raise self.error
        return self._answers[0]


# ── the guard of plugins ──
#
# A plugin that hangs is not called again until it has returned, so threads do not pile up. After several failures in a
# row of the same call, that call is skipped for a while, then tried once.

FAILURES = 5
"""Failures in a row of the same call after which it is skipped for `PAUSE` seconds."""
PAUSE = 120.0
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Trouble:
    """A failure: who failed, at which call, why, and when. `late`: it was only too slow."""

    name: str
    what: str
    why: str
    late: bool = False
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """Counts of calls so far. `skipped`: calls not made because of a pause or an earlier call that still runs."""

    state: Literal["well", "busy", "paused"] = "well"
    asked: int = 0
    failures: int = 0
    timeouts: int = 0
    skipped: int = 0
    last: Trouble | None = None

    def __add__(self, other: Health) -> Health:
        """Sum up; the worse state and the newer failure count."""
        states = (self.state, other.state)
        return Health(
            "paused" if "paused" in states else "busy" if "busy" in states else "well",
            self.asked + other.asked,
            self.failures + other.failures,
            self.timeouts + other.timeouts,
            self.skipped + other.skipped,
            other.last or self.last,
        )


class Guard:
    """Guards the calls of one plugin. Safe in several threads; calls with a deadline run one at a time."""

    def __init__(
        self,
        name: str,
        *,
        shown: Callable[[Trouble], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._shown = [shown]
        self._clock = clock
        self._mutex = threading.Lock()
        self._health = Health()
        self._in_a_row: Counter[str] = Counter()
        self._until: dict[str, float] = {}
        self._running: BackgroundCall[object] | None = None

    @property
    def health(self) -> Health:
        with self._mutex:
            paused = any(self._clock() < until for until in self._until.values())
            return replace(self._health, state="busy" if self._hangs() else "paused" if paused else "well")

    def ask(self, what: str, question: Callable[[], T], otherwise: T, *, within: float | None = None) -> T:
        """Return the answer; `otherwise` if the call fails, takes longer than `within` seconds, or is skipped.

        Without a deadline the call runs in this thread.
        """
        call = self.begin(what, question, wait=within is not None)
        return otherwise if call is None else self.answer(call, otherwise, within)

    def begin(
        self, what: str, question: Callable[[], T], *, wait: bool = True, beside: bool = False
    ) -> BackgroundCall[T] | None:
        """Start a call in a thread of its own; `answer` fetches its result. Return `None` if it is skipped.

        With `wait=False` the call runs in this thread and is never skipped: an event must not be lost. With `beside` it
        has a thread, and runs next to a call that the user waits for.
        """
        call = BackgroundCall(self.name, question, what)
        alone = wait and not beside
        with self._mutex:
            if alone and (self._hangs() or self._paused(what)):
                self._health += Health(skipped=1)
                return None
            self._health += Health(asked=1)
            if alone:
                self._running = call  # type: ignore[assignment]
        if wait:
            call.start()
        else:
            call.run()
        return call

    def answer(
        self, call: BackgroundCall[T], otherwise: T, within: float | None = None, *, of: float | None = None
    ) -> T:
        """Wait `within` seconds for the result, which is the rest of a deadline `of` so many.

        An error that the plugin did not cause, such as Ctrl-C, is raised.
        """
        if not call.done.wait(within):
            self._failed(call.what, f"did not answer within {within if of is None else of:g} s", late=True)
            return otherwise
        if call.error is not None:
            if not isinstance(call.error, Exception) and not call.started:
                raise call.error
            self._failed(call.what, f"{type(call.error).__name__}: {call.error}")
            return otherwise
        with self._mutex:
            del self._in_a_row[call.what]
        return call.answer()

    def listen(self, shown: Callable[[Trouble], None]) -> None:
        """Call this too after a failure, in the thread in which it happened."""
        self._shown.append(shown)

    def left_out(self, what: str) -> bool:
        """Say whether a call is skipped now, and count that."""
        with self._mutex:
            out = self._paused(what)
            self._health += Health(skipped=int(out))
        return out

    def count(self, what: str, why: str) -> None:
        """Count an answer that cannot be used as a failure."""
        self._failed(what, why)

    def note(self, what: str, *, failed: bool) -> None:
        """Take over a success or failure that another guard of the same plugin has counted."""
        with self._mutex:
            self._in_a_row[what] = self._in_a_row[what] + 1 if failed else 0
            self._pause_if_due(what)

    def take_over(self, health: Health) -> None:
        """Add the counts of another guard of the same plugin."""
        with self._mutex:
            self._health += health

    def _hangs(self) -> bool:
        return self._running is not None and not self._running.done.is_set()

    def _paused(self, what: str) -> bool:
        return self._clock() < self._until.get(what, 0.0)

    def _pause_if_due(self, what: str) -> None:
        if self._in_a_row[what] >= FAILURES:
            self._until[what] = self._clock() + PAUSE
            self._in_a_row[what] = FAILURES - 1  # after the pause one more failure is enough

    def _failed(self, what: str, why: str, *, late: bool = False) -> None:
        trouble = Trouble(self.name, what, " ".join(why.split())[:_LONGEST], late)
        with self._mutex:
            self._health += Health(failures=1, timeouts=int(late), last=trouble)
            self._in_a_row[what] += 1
            self._pause_if_due(what)
        for shown in self._shown:
            shown(trouble)


# ── the log of failures ──

LARGEST_LOG = 256 * 1024
"""Bytes after which the older half of a log is dropped."""


class TroubleLog:
    """Failures of plugins (`logs/plugins.jsonl`), or work that the daily cap stopped (`logs/spending.jsonl`).

    Several programs may write to it. The files are derived and bounded: they may be deleted at any time.
    """

    def __init__(self, home: Path, name: Literal["plugins", "spending"] = "plugins") -> None:
        self._path = home / "logs" / f"{name}.jsonl"
        self._mutex = threading.Lock()

    def add(self, trouble: Trouble, at: float) -> None:
        """Append a line, without secrets. A home that cannot be written has no log."""
        why = "the message holds something that must not be logged" if scan(trouble.why) else trouble.why
        value = {"at": at, "name": trouble.name, "what": trouble.what, "why": why[:_LONGEST]}
        line = json.dumps(value, ensure_ascii=True) + "\n"
        try:
            with self._mutex:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(opened, line.encode("ascii"))
                    large = os.fstat(opened).st_size > LARGEST_LOG
                finally:
                    os.close(opened)
                if large:
                    self._halve()
        except OSError:
            return

    def since(self, at: float) -> Iterator[Trouble]:
        """Return what was logged since then, oldest first. Lines that cannot be read are skipped."""
        try:
            lines = self._path.read_bytes()[-2 * LARGEST_LOG :].splitlines()
        except OSError:
            return
        for line in lines:
            try:
                value = json.loads(line)
                found = Trouble(str(value["name"]), str(value["what"]), str(value["why"]), at=float(value["at"]))
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if found.at >= at:
                yield found

    def _halve(self) -> None:
        replace_file(self._path, self._path.read_bytes()[-LARGEST_LOG // 2 :].partition(b"\n")[2])


def mark_working(home: Path, server: str) -> None:
    """Record that an MCP server works now, as the time of `logs/mcp/NAME`. A home that cannot be written has none."""
    path = home / "logs" / "mcp" / server
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)


def last_worked(home: Path, server: str) -> float | None:
    """Return when an MCP server last listed its tools or answered a call, in any program of the home."""
    with suppress(OSError):
        return (home / "logs" / "mcp" / server).stat().st_mtime
    return None
