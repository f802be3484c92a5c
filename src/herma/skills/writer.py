"""Every change to skills: decide (`plan`), then act under the lock, again when somebody else was quicker."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256

from herma.errors import StoreChanged
from herma.ports.skills import ArchivedSkill, Counted, NewSkillChange, SkillUsageRows, SkillWriting, UnsafePath
from herma.skills.catalogue import Catalogue
from herma.skills.plan import DOCUMENT, Plan, Planner
from herma.types import (
    Author,
    Skill,
    SkillChange,
    SkillOp,
    SkillOrigin,
    SkillOutcome,
    SkillRefused,
    SkillUsage,
    SkillWritten,
    Who,
)

ARCHIVE = ".archive"
_TRIES = 3


class SkillWriter:
    """The one way in which skills are changed."""

    def __init__(
        self,
        catalogue: Catalogue,
        writing: SkillWriting,
        usage: SkillUsageRows,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue = catalogue
        self._writing = writing
        self._usage = usage
        self._clock = clock
        self._planner = Planner(catalogue)

    def rehearse(self, op: SkillOp, author: Author) -> SkillRefused | None:
        """Why the operation could not be carried out now, if so."""
        planned = self._planner.plan(op, author)
        return planned if isinstance(planned, SkillRefused) else None

    def write(self, op: SkillOp, author: Author, reason: str = "", *, trust: bool = False) -> SkillOutcome:
        def work() -> SkillOutcome:
            planned = self._planner.plan(op, author, trust=trust)
            if not isinstance(planned, Plan):
                return planned
            with self._writing.hold(planned.path):
                planned = self._planner.plan(op, author, trust=trust)
                return self._act(planned, author, reason) if isinstance(planned, Plan) else planned

        return self._retried(op.name, work)

    def archive(
        self, skill: Skill, author: Author, reason: str, action: str = "archive", undoes: int | None = None
    ) -> SkillOutcome:
        """Move a skill to the archive."""

        def work() -> SkillOutcome:
            with self._writing.hold(skill.path):
                plan = Plan(skill.name, skill.path, "", action, f"Skill {skill.name} archived.", archive=True)
                return self._act(plan, author, reason, undoes)

        return self._retried(skill.name, work)

    def restore(self, kept: ArchivedSkill, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        """Bring a skill back to where it was."""

        def work() -> SkillOutcome:
            with self._writing.hold():
                taken = next((each.path for each in self._catalogue.shelf().skills if each.name == kept.name), None)
                if taken is not None:
                    message = f"A skill of this name is there already ({taken}); archive or rename it first."
                    return SkillRefused(name=kept.name, kind="exists", message=message, matches=(taken,))
                change = NewSkillChange(author, kept.name, "restore", reason, undoes)
                change_id = self._writing.move(kept.folder, kept.path, change)
                self._usage.set_states({kept.name: "active"}, self._clock())
                message = f"Skill {kept.name} is back at {kept.path}."
                return SkillWritten(name=kept.name, message=message, path=kept.path, change=change_id)

        return self._retried(kept.name, work)

    def take_in(
        self, skill: Skill, files: Sequence[tuple[str, bytes, bool]], author: Author, reason: str, source: str
    ) -> SkillOutcome:
        """Make a whole skill out of files that were looked at already."""

        def work() -> SkillOutcome:
            with self._writing.hold():
                change = NewSkillChange(author, skill.name, "install", reason)
                change_id = self._writing.take_in(skill.path, files, change)
                self._born(skill.name, "installed", source, skill.hash)
                message = f"Skill {skill.name} installed at {skill.path}."
                return SkillWritten(name=skill.name, message=message, path=skill.path, change=change_id)

        return self._retried(skill.name, work)

    def put_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """Give a file the content it had before a change, if the change's own content is still there."""

        def work() -> SkillOutcome:
            with self._writing.hold(change.path):
                expected = _hash(change.after)
                new = NewSkillChange(author, change.skill, "undo", f"takes back change {change.id}", change.id)
                try:
                    change_id = self._writing.write(change.path, change.file, expected, _bytes(change.before), new)
                except StoreChanged:
                    message = f"Change {change.id} cannot be undone alone: {change.file} was changed again since."
                    return SkillRefused(name=change.skill, kind="overtaken", message=message)
                message = f"Change {change.id} undone: {change.file} of {change.skill} is as it was before."
                return SkillWritten(name=change.skill, message=message, path=change.path, change=change_id)

        return self._retried(change.skill, work)

    def settle(self) -> None:
        """Bring the history up to date with the files: finish what a killed process began, record edits by hand."""
        with self._writing.hold():
            pass

    # ── steps ──

    def _act(self, plan: Plan, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        why = "; ".join(part for part in (plan.reason, reason) if part)
        change = NewSkillChange(author, plan.skill, plan.action, why, undoes)
        if plan.archive:
            change_id = self._writing.move(plan.path, self._free_place(plan.skill), change)
            self._usage.set_states({plan.skill: "archived"}, self._clock())
        else:
            expected = _hash(plan.expected)
            change_id = self._writing.write(plan.path, plan.file, expected, plan.data, change)
            self._noted(plan, author)
        return SkillWritten(name=plan.skill, message=plan.message, path=plan.path, change=change_id)

    def _noted(self, plan: Plan, author: Author) -> None:
        if plan.action == "create":
            origin: SkillOrigin = "user" if author.who is Who.USER else "agent"
            self._born(plan.skill, origin, "", _hash(plan.data) if plan.dangerous else "")
            return
        self._usage.count(plan.skill, Counted(patches=1), self._clock())
        if plan.dangerous and plan.file == DOCUMENT:
            known = self._usage.all()[plan.skill]
            self._usage.put(replace(known, vouched=_hash(plan.data)))

    def _born(self, name: str, origin: SkillOrigin, source: str, vouched: str) -> None:
        """A new skill under this name: its numbers are those of one that was there before, if there was one."""
        known = self._usage.all().get(name) or SkillUsage(name, created=self._clock())
        new = replace(known, origin=origin, source=source, vouched=vouched, state="active", archived_at=None)
        self._usage.put(new)

    def _free_place(self, name: str) -> str:
        taken = {kept.folder for kept in self._catalogue.folders.archived()}
        plain = f"{ARCHIVE}/{name}"
        if plain not in taken:
            return plain
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._clock()))
        dated = f"{plain}-{stamp}"
        return next(each for n in range(1000) if (each := dated + (f".{n}" if n else "")) not in taken)

    def _retried(self, name: str, work: Callable[[], SkillOutcome]) -> SkillOutcome:
        try:
            for _ in range(_TRIES - 1):
                try:
                    return work()
                except StoreChanged:
                    continue
            return work()
        except UnsafePath as exc:
            return SkillRefused(name=name, kind="unsafe path", message=f"{exc} {exc.hint}")


def _hash(content: str | bytes | None) -> str:
    data = _bytes(content)
    return "" if data is None else sha256(data).hexdigest()


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
