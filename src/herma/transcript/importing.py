"""Bringing exported transcripts in: the whole file is checked first, and becomes visible as a whole or not at all.

What is written waits as deleted sessions until the last message is on disk; then one step makes all of it visible.
What an import leaves behind when it is killed is purged by the next one, or when the grace period is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from os import SEEK_END
from typing import BinaryIO, Protocol

from herma.errors import StoreChanged, StoreError, UsageError
from herma.transcript.log import Transcripts
from herma.transcript.reading import Parsed, read_lines
from herma.transcript.titles import next_title
from herma.transcript.wire import preview_of
from herma.types import Message

UNFINISHED = "unfinished import"
"""Why a session ended that an import has not made visible yet."""
SLICE = 500
_ATTEMPTS = 5


class Progress(Protocol):
    def __call__(self, done: int, total: int | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class Skipped:
    """A session that was left out because its id is taken. `here` and `there`: its messages that are not hidden."""

    id: str
    here: int
    there: int
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class Detached:
    """A session that lost its parent, and why."""

    id: str
    parent: str
    why: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """A session whose title was taken."""

    id: str
    old: str
    new: str


@dataclass(slots=True)
class ImportReport:
    """What an import brought in, or would bring in."""

    file: str
    imported: list[str] = field(default_factory=list)
    messages: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    detached: list[Detached] = field(default_factory=list)
    renamed: list[Renamed] = field(default_factory=list)
    dry_run: bool = False


@dataclass(slots=True)
class _Plan:
    """What a file holds, as far as it is new."""

    new: dict[str, Parsed]
    total: int
    report: ImportReport


class Importer:
    """Imports into one home."""

    def __init__(self, transcripts: Transcripts, *, clock: Callable[[], float] = time.time) -> None:
        self._transcripts = transcripts
        self._sessions = transcripts._sessions  # the rows beneath: an import keeps times and flags as they were
        self._rows = transcripts._rows
        self._profile = transcripts._profile
        self._clock = clock

    def run(
        self,
        file: BinaryIO,
        name: str,
        *,
        dry_run: bool = False,
        checking: Progress | None = None,
        progress: Progress | None = None,
    ) -> ImportReport:
        """Import one open file, which is read more than once; `name` is what it is called in reports.

        `checking` is told how many bytes have been checked, `progress` how many messages are written. `UsageError`
        names the line and field that is wrong; nothing is written then.
        """
        plan = self._plan(file, name, checking or _silent)
        plan.report.dry_run = dry_run
        if dry_run or not plan.new:
            return plan.report
        staged: list[str] = []
        try:
            self._stage(plan, file, staged, progress or _silent)
            self._publish(plan)
        except BaseException:
            with suppress(StoreError):  # what stays is hidden, and purged later
                for session_id in staged:
                    self._sessions.purge(session_id)
            raise
        return plan.report

    # ── checking ──

    def _plan(self, file: BinaryIO, name: str, checking: Progress) -> _Plan:
        """Read the whole file; → what would be imported. Nothing is written."""
        parsed: dict[str, Parsed] = {}
        counts: dict[str, int] = {}
        shown: dict[str, int] = {}
        size = file.seek(0, SEEK_END)
        for number, one in enumerate(read_lines(file, name)):
            if number % SLICE == 0:
                checking(file.tell(), size)
            if isinstance(one, Parsed):
                parsed[one.session.id] = replace(one, system_prompt=None)
                counts[one.session.id] = shown[one.session.id] = 0
            else:
                counts[one.session_id] += 1
                shown[one.session_id] += not one.hidden
        checking(size, size)
        report = ImportReport(name)
        there = self._sessions.get(list(parsed), deleted=True)
        for session in there.values():
            if session.deleted is None or session.end_reason != UNFINISHED:
                deleted = session.deleted is not None
                report.skipped.append(Skipped(session.id, session.message_count, shown[session.id], deleted))
        known = {skipped.id for skipped in report.skipped}
        new = {session_id: self._placed(one) for session_id, one in parsed.items() if session_id not in known}
        report.imported = list(new)
        report.messages = sum(counts[session_id] for session_id in new)
        plan = _Plan(new, report.messages, report)
        self._detach(plan)
        self._name(plan)
        return plan

    def _placed(self, one: Parsed) -> Parsed:
        """In this home's profile, unless it came from another than its own home's."""
        if one.has_profile:
            return one
        return replace(one, session=replace(one.session, scope=replace(one.session.scope, profile=self._profile)))

    def _detach(self, plan: _Plan) -> None:
        """Take away parents that are nowhere, or that lead back to the session itself."""
        wanted = {one.session.parent for one in plan.new.values() if one.session.parent} - plan.new.keys()
        here = self._sessions.get(sorted(wanted))
        lost: dict[str, str] = {}
        for session_id, one in plan.new.items():
            if one.session.parent and one.session.parent not in plan.new and one.session.parent not in here:
                lost[session_id] = "it is neither in the file nor here"
        lost |= dict.fromkeys(_in_circles(plan.new), "it leads back to the session itself")
        for session_id, why in lost.items():
            one = plan.new[session_id]
            plan.new[session_id] = replace(one, session=replace(one.session, parent=None))
            plan.report.detached.append(Detached(session_id, one.session.parent or "", why))

    def _name(self, plan: _Plan) -> None:
        """Give every session a title that is free here and in the file."""
        taken: dict[tuple[str, str], set[str]] = {}
        plan.report.renamed.clear()
        for session_id, one in plan.new.items():
            title, scope = one.session.title, one.session.scope
            if title is None:
                continue
            others = taken.setdefault((scope.profile, scope.user), set())
            free = self._transcripts.next_title(title, scope)
            while free in others:
                free = self._transcripts.next_title(next_title(free, others), scope)
            others.add(free)
            if free != title:
                plan.report.renamed.append(Renamed(session_id, title, free))

    # ── writing ──

    def _stage(self, plan: _Plan, file: BinaryIO, staged: list[str], progress: Progress) -> None:
        """Write everything, hidden."""
        for session in self._sessions.get(list(plan.new), deleted=True).values():
            self._sessions.purge(session.id)  # left by an import that was killed
        hidden = [
            replace(plan.new[session_id].session, title=None, deleted=self._clock(), end_reason=UNFINISHED)
            for session_id in _parents_first(plan.new)
        ]
        self._sessions.add(hidden, _prompts(file, plan))
        staged += plan.new
        done = 0
        for some in _runs(read_lines(file, plan.report.file), plan.new):
            self._add(some)
            done += len(some)
            progress(done, plan.total)

    def _add(self, some: list[Message]) -> None:
        try:
            self._rows.append(some[0].session_id, some, preview=preview_of(some), staged=True)
        except KeyError:
            raise UsageError(
                f"Session {some[0].session_id} vanished while it was being imported; nothing was imported.",
                hint="Is another import of the same file running? Wait for it, and try again.",
            ) from None

    def _publish(self, plan: _Plan) -> None:
        """Make everything visible at once. A title that was taken meanwhile gets another number."""
        for attempt in range(1, _ATTEMPTS + 1):
            names = {renamed.id: renamed.new for renamed in plan.report.renamed}
            for session_id, one in plan.new.items():
                title = names.get(session_id, one.session.title)
                self._sessions.update([session_id], {"title": title, "end_reason": one.session.end_reason})
            try:
                self._sessions.update(list(plan.new), {"deleted": None})
            except StoreChanged:
                if attempt == _ATTEMPTS:
                    raise
                self._name(plan)
            else:
                return


def _prompts(file: BinaryIO, plan: _Plan) -> dict[str, str]:
    """The system prompt of each new session; most are the same text, which is kept once."""
    texts: dict[str, str] = {}
    found: dict[str, str] = {}
    for one in read_lines(file, plan.report.file):
        if isinstance(one, Parsed) and one.system_prompt is not None and one.session.id in plan.new:
            found[one.session.id] = texts.setdefault(one.system_prompt, one.system_prompt)
    return found


def _runs(lines: Iterator[Parsed | Message], new: dict[str, Parsed]) -> Iterator[list[Message]]:
    """Messages of new sessions, in slices of one session each."""
    some: list[Message] = []
    for message in lines:
        if isinstance(message, Parsed) or message.session_id not in new:
            continue
        if some and (some[0].session_id != message.session_id or len(some) >= SLICE):
            yield some
            some = []
        some.append(message)
    if some:
        yield some


def _in_circles(new: dict[str, Parsed]) -> Iterator[str]:
    """One session of each circle of parents."""
    settled: set[str] = set()
    for session_id in new:
        trail: dict[str, None] = {}
        at: str | None = session_id
        while at is not None and at in new and at not in settled and at not in trail:
            trail[at] = None
            at = new[at].session.parent
        if at is not None and at in trail:
            yield at
        settled.update(trail)


def _parents_first(new: dict[str, Parsed]) -> Iterator[str]:
    """A session joins its parent's conversation only if the parent is there before it."""
    given: set[str] = set()
    for session_id in new:
        chain: list[str] = []
        at: str | None = session_id
        while at is not None and at in new and at not in given:
            chain.append(at)
            given.add(at)
            at = new[at].session.parent
        yield from reversed(chain)


def _silent(done: int, total: int | None = None) -> None:
    """No progress wanted."""
