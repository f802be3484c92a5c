"""Curated memory kept in order: `h.tidy()`, and by itself after a reply when it is due.

Due means: a file is fuller than four fifths of its limit and has changed since it was last tidied, or the interval is
over. One process tidies at a time. What is done is one change per file, which `undo` takes back; what a person took
back is not done again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Literal, TypeAlias

from herma.curated import MemoryStore
from herma.curated.entries import join, parse, unique, used
from herma.errors import StoreBusy
from herma.ports import ChatModel, Place
from herma.ports.tail import TidyRows
from herma.reflect.tidy_value import FULL, SURE
from herma.types import (
    TARGETS,
    Author,
    Entry,
    MemoryOutcome,
    Origin,
    Proposal,
    Scope,
    Staged,
    Target,
    Tidied,
    TidyReport,
    Who,
)

if TYPE_CHECKING:
    from herma.reflect.tidy import Plan
    from herma.reflect.tidy_stale import Checks

Policy: TypeAlias = Literal["off", "propose", "apply"]
BY_ITSELF = Author(Who.TIDY, Origin.AGENT_CONCLUDED)
PREFIX = "tidy: "
"""How the reason of every change by tidying begins."""
_DAY = 86_400.0
_LOOKED_BACK = 50
"""Changes that are looked at for what a person took back."""
_DONE = {
    "merge": "merged",
    "superseded": "overtaken by newer ones",
    "expired": "over",
    "mark": "marked",
    "unmark": "no longer marked",
    "move": "moved to the long tail",
}


@dataclass(frozen=True, slots=True)
class TidyNeeds:
    """What tidying works with; `app` puts it together."""

    memory: MemoryStore
    rows: TidyRows
    checks: Callable[[Scope], Checks] = lambda _: _no_checks()
    model: Callable[[], ChatModel | None] = lambda: None
    alone: Callable[[], AbstractContextManager[object]] = nullcontext
    """Held while a file is tidied; `StoreBusy` when another process does."""
    policy: Policy = "apply"
    days: float = 7.0
    deadline: float = 60.0
    clock: Callable[[], float] = time.time


class Tidying:
    """Puts the files of a scope in order: called by a person, or by itself."""

    def __init__(self, needs: TidyNeeds) -> None:
        self._needs = needs
        self._memory = needs.memory
        self.policy = needs.policy

    def __call__(
        self,
        target: Target | None = None,
        *,
        scope: Scope | None = None,
        dry_run: bool = False,
        author: Author | None = None,
        model: bool = True,
    ) -> TidyReport:
        """Put both files of a scope in order, or one; each becomes one change that can be undone.

        With `dry_run`, only say what would be done: `apply` then does exactly that. `model`: let it word merges.
        """
        files = [self._planned(status, model=model) for status in self._files(target, scope)]
        report = TidyReport(tuple(files), dry_run)
        return report if dry_run else self.apply(report, author=author)

    def apply(self, report: TidyReport, *, author: Author | None = None) -> TidyReport:
        """Do what a report proposes, one change per file. A file that changed since is left as it is."""
        with self._needs.alone():
            done = [self._written(one, author or Author()) for one in report.files]
        return TidyReport(tuple(done))

    # ── by itself ──

    def is_due(self, target: Target, scope: Scope) -> bool:
        """Whether a file should be tidied now. The interval begins when it is first looked at."""
        entries = self._memory.entries(target, scope=scope)
        where, limit, _ = self._memory.room(target, scope=scope)
        place = Place.of(target, where)
        last = self._needs.rows.tidied(place)
        now = self._needs.clock()
        if used(entries) > FULL * limit and (last is None or last.version != _version(entries)):
            return True
        if last is None and entries:
            self._needs.rows.note_tidied(place, now, "")
        over = last is not None and self._needs.days > 0 and now - last.at >= self._needs.days * _DAY
        return bool(entries) and over

    def by_itself(self, scope: Scope, cancel: threading.Event | None = None) -> TidyReport:
        """Tidy what is due of the files that a session of this scope sees, as the settings allow.

        `cancel`: a turn begins. Nothing is changed any more then, and it is due again after the reply.
        """
        done: list[Tidied] = []
        if self.policy == "off":
            return TidyReport()
        for target, where in self._seen_by(scope):
            if (cancel is not None and cancel.is_set()) or not self.is_due(target, where):
                continue
            try:
                with self._needs.alone():
                    if self.is_due(target, where):  # another process may have done it while we waited
                        done += self._quietly(target, where, cancel)
            except StoreBusy:
                break  # another process is at it
        return TidyReport(tuple(done))

    def _quietly(self, target: Target, scope: Scope, cancel: threading.Event | None) -> list[Tidied]:
        status = self._files(target, scope)[0]
        last = self._needs.rows.tidied(status.place)
        asks = last is None or last.version != _version([one.text for one in status.entries])
        proposed = self._planned(status, model=asks, least=SURE if self.policy == "apply" else 0.0, cancel=cancel)
        if cancel is not None and cancel.is_set():
            return []
        if self.policy == "propose":
            return [self._kept_for_a_person(proposed)]
        done = self._written(proposed, BY_ITSELF)
        rest = self._planned(self._files(target, scope)[0], model=False)
        return [done, *([self._kept_for_a_person(rest)] if rest.proposals else [])]

    # ── inside ──

    def _seen_by(self, scope: Scope) -> list[tuple[Target, Scope]]:
        """The home's notes, the project's, and one profile of the user; those that are switched off are left out."""
        home = Scope(scope.profile)
        seen: list[tuple[Target, Scope]] = [("memory", home)]
        if scope.project:
            seen.append(("memory", Scope(scope.profile, scope.project)))
        seen.append(("user", Scope(scope.profile, user=scope.user)))
        return [one for one in seen if self._memory.is_enabled(one[0])]

    def _files(self, target: Target | None, scope: Scope | None) -> list[_File]:
        wanted = [one for one in TARGETS if target in (None, one) and (target or self._memory.is_enabled(one))]
        files = []
        for one in wanted:
            where, limit, trouble = self._memory.room(one, scope=scope)
            files.append(_File(Place.of(one, where), tuple(self._memory.describe(one, scope=scope)), limit, trouble))
        return files

    def _planned(
        self, file: _File, *, model: bool, least: float = 0.0, cancel: threading.Event | None = None
    ) -> Tidied:
        from herma.reflect.tidy import plan  # loaded when a file is due, which most turns find not to be so
        from herma.reflect.tidy_ask import ask, candidates

        place, now = file.place, self._needs.clock()
        alone = self._taken_back(place)
        notes: list[str] = []
        wordings: list[Proposal] = []
        shown = candidates(file.entries, alone) if model else []
        asked = self._needs.model() if len(shown) > 1 else None
        if asked is not None:
            wordings, notes = ask(asked, shown, deadline=self._needs.deadline, cancel=cancel)
        found: Plan = plan(
            file.entries,
            limit=file.limit,
            now=now,
            target=place.target,
            subject=_subject(place),
            checks=self._needs.checks(place.scope),
            alone=alone,
            wordings=wordings,
            least=least,
        )
        if file.trouble:
            notes = [*notes, f"{file.trouble}."]
        return Tidied(
            place.target,
            place.scope,
            found.before,
            found.after,
            used(found.before),
            used(found.after),
            file.limit,
            found.proposals,
            found.held,
            notes=tuple(dict.fromkeys(notes)),
        )

    def _written(self, file: Tidied, author: Author) -> Tidied:
        """Carry out one file's proposals as one change, and remember that it is tidy."""
        place = Place.of(file.target, file.scope)
        outcome: MemoryOutcome | None = None
        if file.proposals:
            operations = [op for proposal in file.proposals for op in proposal.operations]
            outcome = self._memory.apply(
                file.target, operations, scope=file.scope, author=author, reason=summary(file.proposals)
            )
        if outcome is None or outcome.ok:
            self._note(place)
        staged = (outcome.pending,) if isinstance(outcome, Staged) else ()
        return replace(file, outcome=outcome, staged=staged)

    def _kept_for_a_person(self, file: Tidied) -> Tidied:
        """Into the inbox: each proposal for itself, unless one builds on another."""
        numbers: list[int] = []
        for group in _groups(file.proposals):
            operations = [op for proposal in group for op in proposal.operations]
            outcome = self._memory.propose(
                file.target, operations, scope=file.scope, author=BY_ITSELF, reason=summary(group)
            )
            if isinstance(outcome, Staged):
                numbers.append(outcome.pending)
        self._note(Place.of(file.target, file.scope))
        return replace(file, staged=tuple(numbers))

    def _note(self, place: Place) -> None:
        entries = self._memory.entries(place.target, scope=place.scope)
        self._needs.rows.note_tidied(place, self._needs.clock(), _version(entries))

    def _taken_back(self, place: Place) -> list[str]:
        """Entries that a person put back after tidying had taken them away."""
        changes = self._memory.history(place.target, scope=place.scope, limit=_LOOKED_BACK)
        return [
            text
            for change in changes
            if change.undone_by is not None and PREFIX in change.reason
            for text in unique(parse(change.before))
            if text not in set(unique(parse(change.after)))
        ]


@dataclass(frozen=True, slots=True)
class _File:
    """One file as it is now."""

    place: Place
    entries: tuple[Entry, ...]
    limit: int
    trouble: str = ""


def summary(proposals: Sequence[Proposal]) -> str:
    """What was done, for the history: `tidy: 2 merged, 1 moved to the long tail`; one alone with its reason."""
    counts = {kind: sum(one.kind == kind for one in proposals) for kind in _DONE}
    said = ", ".join(f"{count} {_DONE[kind]}" for kind, count in counts.items() if count)
    return f"{PREFIX}{said}" + (f" ({proposals[0].reason})" if len(proposals) == 1 else "")


def _groups(proposals: Sequence[Proposal]) -> list[list[Proposal]]:
    """Proposals that have to be decided together: one is about what another one writes."""
    groups: list[tuple[set[str], list[Proposal]]] = []
    for one in proposals:
        texts = {*one.entries, one.result} - {""}
        mine = [group for group in groups if group[0] & texts]
        others = [group for group in groups if not group[0] & texts]
        joined = set().union(texts, *(known for known, _ in mine))
        groups = [*others, (joined, [*(each for _, some in mine for each in some), one])]
    return [some for _, some in groups]


def _subject(place: Place) -> str:
    """What a bare label in this file is about, as facts have it."""
    from herma.facts.extract import USER

    if place.target == "user":
        return USER
    return "project" if place.project else "home"


def _no_checks() -> Checks:
    from herma.reflect.tidy_stale import NoChecks

    return NoChecks()


def _version(entries: Sequence[str]) -> str:
    return sha256(join(entries).encode("utf-8", "surrogatepass")).hexdigest()
