"""The curator: `h.curator`. It keeps skills in shape: by age and use, with a snapshot before and a report after.

It deletes nothing. What it puts away is in the archive, with a row in the history of skills that can be undone; how
everything was before is in the snapshot. Whoever kills it half-way loses nothing: the next run does the rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from herma.errors import HermaError, StoreBusy, StoreChanged, StoreError, UsageError
from herma.jobs.worker import Worker
from herma.ports.skills import ArchivedSkill
from herma.reflect.consolidate import consolidate
from herma.reflect.curator_desk import CURATOR, CuratorDesk, CuratorOptions, Look, look
from herma.reflect.curator_rollback import roll_back
from herma.reflect.curator_words import listing_diff, page
from herma.skills.curator_alike import COMPARED, merge_candidates
from herma.skills.curator_plan import remembered
from herma.types import (
    Author,
    DeleteSkill,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUsage,
    SkillWritten,
)
from herma.types.curator import (
    CuratorMove,
    CuratorReport,
    CuratorStatus,
    RolledBack,
    SkillSnapshotInfo,
)

Progress = Callable[[int, int], None]
BY_ITSELF = "by itself"
_CLOSING = 3.0
"""Seconds that the end of a program waits for a run that has begun."""


class Curator:
    """One per opened memory. Nothing happens before somebody asks, or a run is due."""

    def __init__(self, desk: CuratorDesk, options: CuratorOptions) -> None:
        self._desk = desk
        self.options = options
        self._worker = Worker("herma: curator", failed=desk.failed)
        self._due_at: float | None = None

    # ── looking ──

    def status(self) -> CuratorStatus:
        """When it ran and will run, how skills stand, and what a run would do now. Changes nothing."""
        self._desk.alive()
        seen = self._look()
        own = [each for each in seen.standings if not each.skill.external]
        states = [each.usage.state if each.usage else "active" for each in own]
        reports = self._desk.book.reports(1)
        return CuratorStatus(
            enabled=self.options.enabled,
            last_run=seen.memory.last_run,
            next_run=self._next(seen) if self.options.enabled else None,
            runs=seen.memory.runs,
            states={state: states.count(state) for state in sorted(set(states))},
            pinned=sum(bool(each.usage and each.usage.pinned) for each in own),
            archived=len(seen.archived),
            snapshots=sum(not one.trouble for one in self._desk.snapshots.list()),
            last=reports[0] if reports else None,
            plan=seen.plan,
        )

    def reports(self, limit: int | None = None) -> Sequence[CuratorReport]:
        """Earlier runs, newest first."""
        self._desk.alive()
        return self._desk.book.reports(limit)

    def report(self, run: str | None = None) -> CuratorReport:
        """The newest run, or the one of this id."""
        found = next((one for one in self.reports() if run in (None, one.id)), None)
        if found is None:
            what = "There was no run yet." if run is None else f"There is no run {run}."
            raise UsageError(what, hint="`herma curator run` makes one; `herma curator report --list` lists them.")
        return found

    def snapshots(self) -> Sequence[SkillSnapshotInfo]:
        """Copies of all skills, newest first."""
        self._desk.alive()
        return self._desk.snapshots.list()

    # ── a run ──

    def run(
        self,
        *,
        dry_run: bool = False,
        why: str = "by hand",
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> CuratorReport:
        """Look at every skill, do what is due, and report. With `dry_run`, report what would be done; change nothing.

        One run at a time over all processes: `StoreBusy` when another is at it.
        """
        self._desk.alive()
        if dry_run:
            now = self._desk.clock()
            seen = self._look()
            planned = self._report(_stamp(now), now, why, seen)
            return replace(planned, state="done", ended=now, dry_run=True, diff=_diff(seen, planned.moves))
        with self._alone():
            return self._run(why, progress or (lambda *_: None), cancel or threading.Event())

    def _run(self, why: str, progress: Progress, cancel: threading.Event) -> CuratorReport:
        desk, now = self._desk, self._desk.clock()
        self._settle_interrupted()
        seen = self._look(cancel)
        if cancel.is_set():  # nothing was done; what was read need not be read again
            desk.book.remember(seen.memory)
            return CuratorReport(_stamp(now), now, why, "interrupted", now)
        report = self._report(self._free_id(now), now, why, seen)
        report = replace(report, snapshot=self._snapshot(report.id, why) if seen.own else "")
        desk.book.write(report, page(report))  # before anything changes: a run that is killed leaves this behind
        flags = [move for move in report.moves if move.after == "needs_review"]
        desk.book.remember(remembered(seen.memory, seen.plan, flags, seen.usage, now))
        moves: list[CuratorMove] = []
        for count, move in enumerate(report.moves, 1):
            moves.append(self._do(move, report, cancel))
            progress(count, len(report.moves))
        self._seed(seen, now)
        done = [move for move in moves if move.result == "done"]
        memory = remembered(seen.memory, seen.plan, done, seen.usage, now)
        memory = replace(memory, seen=memory.seen or now, last_run=now, runs=memory.runs + 1)
        desk.book.remember(memory)
        self._due_at = None
        if self.options.consolidate and not cancel.is_set():
            report, asked = consolidate(report, desk, memory.asked, cancel)
            desk.book.remember(replace(memory, asked=asked))
        failed = any(move.result == "failed" for move in moves)
        report = replace(report, state="failed" if failed else "done", ended=desk.clock(), moves=tuple(moves))
        report = replace(report, diff=_diff(seen, done))
        desk.book.write(report, page(report))
        desk.snapshots.prune(self.options.keep, report.snapshot)
        return report

    def _report(self, run: str, now: float, why: str, seen: Look) -> CuratorReport:
        notes = []
        if len(seen.own) > COMPARED:
            notes.append(f"Only {COMPARED:,} skills were compared with each other.")
        if seen.plan.seeds:
            notes.append(f"{len(seen.plan.seeds)} skills are seen for the first time; their age counts from now on.")
        merges = merge_candidates(seen.own)
        return CuratorReport(
            run,
            now,
            why,
            checked=len(seen.standings),
            moves=seen.plan.moves,
            kept=seen.plan.kept,
            merges=merges,
            notes=tuple(notes),
        )

    def _do(self, move: CuratorMove, run: CuratorReport, cancel: threading.Event) -> CuratorMove:
        if cancel.is_set():
            return replace(move, result="skipped", said="the run was stopped")
        try:
            if move.after != "archived" or not move.path:
                self._desk.usage.set_states({move.skill: move.after}, self._desk.clock())
                return replace(move, result="done")
            if (why_not := self._overtaken(move)) is not None:
                return replace(move, result="skipped", said=why_not)
            reason = f"curator {run.id}: {move.reason}"
            if self.options.approval and run.why == BY_ITSELF:
                outcome = self._desk.library().propose(DeleteSkill(move.path), author=CURATOR, reason=move.reason)
            else:
                outcome = self._desk.library().archive(move.path, author=CURATOR, reason=reason)
        except StoreChanged:
            return replace(move, result="skipped", said="it was moved meanwhile")
        except HermaError as exc:
            return replace(move, result="failed", said=str(exc))
        if isinstance(outcome, SkillStaged):
            return replace(move, result="staged", said="a person decides", pending=outcome.pending)
        if isinstance(outcome, SkillRefused) and outcome.kind == "rejected":
            return replace(move, result="skipped", said=outcome.message)
        if isinstance(outcome, SkillWritten):
            return replace(move, result="done", change=outcome.change)
        return replace(move, result="failed", said=outcome.message)

    def _overtaken(self, move: CuratorMove) -> str | None:
        """Why a skill must not go after all: somebody used, changed or pinned it since it was looked at."""
        usage = self._desk.usage.all().get(move.skill)
        if usage is not None and usage.pinned:
            return "it was pinned meanwhile"
        newest = max([usage.last_touched or 0.0 if usage else 0.0, self._desk.book.changed().get(move.skill, 0.0)])
        if self._desk.clock() - newest < self.options.rules.archive:
            return "it was of use meanwhile"
        return None

    def _seed(self, seen: Look, now: float) -> None:
        for name in seen.plan.seeds:
            known = seen.usage.get(name) or SkillUsage(name)
            self._desk.usage.put(replace(known, created=now))

    def _settle_interrupted(self) -> None:
        """A run that has not ended and is not at work was killed: say so, and what of it happened."""
        states = {name: one.state for name, one in self._desk.usage.all().items()}
        archived = {kept.name for kept in self._desk.catalogue.folders.archived()}
        for report in self._desk.book.reports(20):
            if report.state == "running":
                moves = tuple(_settled(move, states, archived) for move in report.moves)
                ended = replace(report, state="interrupted", moves=moves, ended=self._desk.clock())
                ended = replace(ended, notes=(*report.notes, "This run was cut off; the next one does the rest."))
                self._desk.book.write(ended, page(ended))

    # ── people ──

    def archive(self, name: str, *, author: Author = Author(), reason: str = "") -> SkillOutcome:  # noqa: B008  frozen
        """Move a skill to the archive now."""
        return self._desk.library().archive(name, author=author, reason=reason)

    def restore(self, name: str, *, author: Author = Author(), reason: str = "") -> SkillOutcome:  # noqa: B008
        """Bring a skill back from the archive; its age counts from now on."""
        return self._desk.library().restore(name, author=author, reason=reason)

    def archived(self) -> Sequence[ArchivedSkill]:
        """What lies in the archive."""
        return self._desk.library().archived()

    def pin(self, name: str) -> SkillUsage:
        """Leave this skill as it is, whatever happens."""
        return self._desk.library().pin(name)

    def unpin(self, name: str) -> SkillUsage:
        return self._desk.library().unpin(name)

    def rollback(
        self,
        snapshot: str | None = None,
        *,
        exact: bool = False,
        dry_run: bool = False,
        author: Author = Author(),  # noqa: B008
    ) -> RolledBack:
        """Bring skills back as they were in a snapshot: without one, before the newest run that did anything.

        Skills that were changed or made since stay as they are, unless `exact`: then what is there now goes to the
        archive first. Everything is in the history, and how it was before is in a snapshot of its own.
        """
        self._desk.alive()
        chosen = snapshot or self._newest_snapshot()
        if dry_run:
            return roll_back(self._desk, self._desk.snapshots.read(chosen), author, exact=exact, dry_run=True)
        with self._alone():
            self._settle_interrupted()
            content = self._desk.snapshots.read(chosen)
            before = self._snapshot(self._free_id(self._desk.clock()), f"before a rollback to {chosen}")
            return replace(roll_back(self._desk, content, author, exact=exact), before=before)

    def _newest_snapshot(self) -> str:
        good = [one.id for one in self._desk.snapshots.list() if not one.trouble]
        for report in self._desk.book.reports():
            if report.snapshot in good and (report.done or report.state == "running"):
                return report.snapshot
        if not good:
            raise UsageError("There is no snapshot yet.", hint="Every run of the curator makes one.")
        return good[0]

    # ── by itself ──

    def due(self, now: float | None = None) -> bool:
        """Whether a run is due. The first time, only that is written down, and one interval goes by."""
        if not self.options.enabled:
            return False
        at = self._desk.clock() if now is None else now
        if self._due_at is None:
            memory = self._desk.book.memory()
            last = memory.last_run if memory.last_run is not None else memory.seen
            if last is None:
                if not any(not skill.external for skill in self._desk.catalogue.shelf().skills):
                    return False
                last = at
                self._desk.book.remember(replace(memory, seen=at))
            self._due_at = min(last, at) + self.options.rules.interval
        return at >= self._due_at

    def later(self, session: str, *, ended: bool) -> None:
        """A reply was given, or a session ended: run in the background if that is due, once nobody is at work."""
        self._worker.cancel(session)
        try:
            if not self.due():
                return
        except StoreError:
            return  # a home that cannot be written is curated by whoever can write it
        wait = 0.0 if ended else self.options.idle
        self._worker.submit("keeping skills in shape", self._by_itself(session, ended), owner=session, after=wait)

    def wait(self, timeout: float = 60.0) -> bool:
        """Until no run is at work. → whether that was so in time."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Let a run that has begun come to its end, for a few seconds."""
        self._worker.close(_CLOSING)

    def _by_itself(self, session: str, ended: bool) -> Callable[[threading.Event], None]:
        def work(cancel: threading.Event) -> None:
            self._due_at = None  # others may have been quicker
            now = self._desk.clock()
            if not self.due(now) or not self._is_quiet(now, session if ended else ""):
                return
            try:
                self.run(why=BY_ITSELF, cancel=cancel)
            except StoreBusy:
                return  # somebody else is at it

        return work

    def _is_quiet(self, now: float, besides: str) -> bool:
        """Whether nobody said anything for a while; or the run is so long overdue that it need not matter."""
        said = self._desk.book.last_said(besides)
        overdue = self._due_at is not None and now - self._due_at >= self.options.rules.interval
        return said is None or now - said >= self.options.idle or (overdue and bool(besides))

    # ── steps ──

    def _look(self, cancel: threading.Event | None = None) -> Look:
        return look(self._desk, self.options.rules, self._desk.clock(), cancel)

    def _next(self, seen: Look) -> float | None:
        last = seen.memory.last_run if seen.memory.last_run is not None else seen.memory.seen
        return None if last is None else last + self.options.rules.interval

    def _snapshot(self, snapshot_id: str, why: str) -> str:
        desk = self._desk
        with desk.hold():  # so that files and states belong together
            return desk.snapshots.take(snapshot_id, why, desk.usage.all(), desk.clock()).id

    def _free_id(self, now: float) -> str:
        taken = {one.id for one in self._desk.snapshots.list()} | {one.id for one in self._desk.book.reports()}
        plain = _stamp(now)
        return next(each for n in range(1, 10_000) if (each := plain if n == 1 else f"{plain}-{n}") not in taken)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._desk.book.alone() as free:
            if not free:
                raise StoreBusy("The curator is at work already, in this program or another.", hint="Wait for it.")
            yield


def _stamp(at: float) -> str:
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime(at))


def _diff(seen: Look, moves: Sequence[CuratorMove]) -> str:
    return listing_diff(seen.states, moves)


def _settled(move: CuratorMove, states: Mapping[str, str], archived: set[str]) -> CuratorMove:
    happened = states.get(move.skill) == move.after or (move.after == "archived" and move.skill in archived)
    return replace(move, result="done" if happened else "skipped", said="" if happened else "the run was cut off")
