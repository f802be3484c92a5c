"""Skills as everybody uses them: tools, command line, curator and dashboard all come through here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from herma.errors import StoreError, UsageError
from herma.ports.skills import (
    ArchivedSkill,
    Counted,
    Incoming,
    SkillHistory,
    SkillInbox,
    SkillUsageRows,
    SkillWriting,
)
from herma.skills.catalogue import Catalogue
from herma.skills.compose import compose
from herma.skills.find import SkillFinder
from herma.skills.guard import inspect
from herma.skills.inbox import SkillApprovals
from herma.skills.incoming import described
from herma.skills.installing import Installed, InstallWish, take_in
from herma.skills.reading import SkillReading, SkillView
from herma.skills.undo import Undoing
from herma.skills.writer import SkillWriter
from herma.types import (
    SKILL_STATES,
    Author,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    RemoveSkillFile,
    Skill,
    SkillChange,
    SkillFile,
    SkillOp,
    SkillOutcome,
    SkillPending,
    SkillRefused,
    SkillReport,
    SkillState,
    SkillUsage,
    Trust,
    Who,
    WriteSkillFile,
)

__all__ = ["SkillLibrary", "SkillView"]

BY_USER = Author()


class SkillLibrary(SkillReading):
    """The skills of one home, and of the folders that it reads besides."""

    def __init__(
        self,
        catalogue: Catalogue,
        writing: SkillWriting,
        history: SkillHistory,
        inbox: SkillInbox,
        usage: SkillUsageRows,
        finder: SkillFinder,
        *,
        clock: Callable[[], float],
        write_approval: bool = False,
        inbox_days: float = 30,
        read: Callable[[Path], Sequence[Incoming]] = lambda _: (),
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(catalogue, finder, alive)
        self._history = history
        self._usage = usage
        self._clock = clock
        self._write_approval = write_approval
        self._read = read
        self._writer = SkillWriter(catalogue, writing, usage, clock)
        self._approvals = SkillApprovals(inbox, self._writer, days=inbox_days, clock=clock)
        self._undoing = Undoing(catalogue, history, self._writer)

    # ── writing ──

    def apply(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "", trust: bool = False) -> SkillOutcome:
        """Carry out one operation. When it returns `SkillWritten`, it is on disk.

        `trust` stores a text although the scanner calls it dangerous; only a person may say so.
        """
        self._alive()
        if trust and author.who is not Who.USER:
            raise UsageError("Only a person can vouch for a text that the scanner objects to.")
        if not author.origin.trusted or (self._write_approval and author.who is not Who.USER):
            return self._approvals.stage(op, author, reason)
        return self._writer.write(op, author, reason, trust=trust)

    def propose(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Keep an operation for a person's decision, if it could be carried out now."""
        self._alive()
        return self._approvals.stage(op, author, reason)

    def rehearse(self, op: SkillOp, *, author: Author = BY_USER) -> SkillRefused | None:
        """Why an operation could not be carried out now, if so. Writes nothing."""
        self._alive()
        return self._writer.rehearse(op, author)

    def create(
        self,
        skill: Skill | str,
        content: str = "",
        *,
        category: str = "",
        despite_similar: bool = False,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> SkillOutcome:
        """Write a new skill: a `Skill`, or its name and the whole text of its SKILL.md."""
        name, text = (skill.name, compose(skill)) if isinstance(skill, Skill) else (skill, content)
        where = category or (skill.category if isinstance(skill, Skill) else "")
        op = CreateSkill(name, text, where, despite_similar)
        return self.apply(op, author=author, reason=reason, trust=trust)

    def edit(
        self, name: str, content: str, *, author: Author = BY_USER, reason: str = "", trust: bool = False
    ) -> SkillOutcome:
        """Replace the whole SKILL.md."""
        return self.apply(EditSkill(name, content), author=author, reason=reason, trust=trust)

    def patch(
        self,
        name: str,
        old: str,
        new: str,
        *,
        file: str = "SKILL.md",
        replace_all: bool = False,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> SkillOutcome:
        """Replace one passage of a file."""
        return self.apply(PatchSkill(name, old, new, file, replace_all), author=author, reason=reason, trust=trust)

    def delete(self, name: str, *, absorbed_into: str = "", author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Move a skill to the archive."""
        return self.apply(DeleteSkill(name, absorbed_into), author=author, reason=reason)

    def write_file(
        self, name: str, file: str, content: str, *, author: Author = BY_USER, reason: str = "", trust: bool = False
    ) -> SkillOutcome:
        """Write a file under references/, templates/, scripts/ or assets/."""
        return self.apply(WriteSkillFile(name, file, content), author=author, reason=reason, trust=trust)

    def remove_file(self, name: str, file: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        return self.apply(RemoveSkillFile(name, file), author=author, reason=reason)

    # ── archive ──

    def archive(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Move a skill to the archive, from where `restore` brings it back. For people and the curator."""
        skill = self.get(name)
        if skill.external:
            raise UsageError(f"{skill.name} lies in {skill.root}, which is only read.")
        if self._catalogue.usage_of(skill).pinned:
            raise UsageError(f"{skill.name} is pinned.", hint=f"herma skills unpin {skill.name}")
        return self._writer.archive(skill, author, reason)

    def archived(self) -> Sequence[ArchivedSkill]:
        """What lies in the archive."""
        self._alive()
        return self._catalogue.folders.archived()

    def restore(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Bring a skill back from the archive: by its name the one that was archived last, by its folder there any."""
        archived = self.archived()
        kept = [k for k in archived if name == k.folder] or [k for k in archived if name == k.name]
        kept = kept or [k for k in archived if name == k.folder.removeprefix(".archive/")]
        if not kept:
            raise UsageError(f"{name!r} is not in the archive.", hint="`herma skills archive --list` shows it.")
        kept.sort(key=lambda k: k.at or 0.0, reverse=True)
        return self._writer.restore(kept[0], author, reason)

    # ── from outside ──

    def scan(self, source: str | Path | Incoming | Sequence[SkillFile]) -> SkillReport:
        """What the scanner says of a skill: of a folder or archive that holds one, or of files."""
        self._alive()
        if isinstance(source, str | Path):
            found = self.incoming(source)
            return inspect([file for each in found for file in described(each)])
        return inspect(described(source) if isinstance(source, Incoming) else source)

    def incoming(self, path: str | Path) -> Sequence[Incoming]:
        """The skills in a folder or an archive, read into memory."""
        return self._read(Path(path))

    def install(
        self,
        source: str | Path | Incoming,
        *,
        trust: Trust = "community",
        category: str = "",
        name: str = "",
        force: bool = False,
        rehearsal: bool = False,
        author: Author = BY_USER,
    ) -> Sequence[Installed]:
        """Take in every skill of a folder or an archive, each if the policy for its origin lets it."""
        self._alive()
        found = [source] if isinstance(source, Incoming) else self.incoming(source)
        if name and len(found) > 1:
            raise UsageError(f"{source} holds {len(found)} skills; one name cannot be for all.")
        wish = InstallWish(trust, category, name, force, rehearsal)
        return [take_in(each, wish, self._catalogue, self._writer, author) for each in found]

    # ── history and decisions ──

    def history(self, name: str | None = None, *, limit: int | None = None) -> Sequence[SkillChange]:
        """What happened to skills, newest first. Edits made by hand are recorded on the way."""
        self._alive()
        self.settle()
        return self._history.changes(name, limit=limit)

    def change(self, change_id: int) -> SkillChange | None:
        self._alive()
        return self._history.change(change_id)

    def undo(self, change_id: int | None = None, *, name: str | None = None, author: Author = BY_USER) -> SkillOutcome:
        """Take back the newest change that still stands (of one skill, if named), or the one given."""
        self._alive()
        self.settle()
        return self._undoing.undo(change_id, name, author)

    def undoable(self, change_id: int | None = None, *, name: str | None = None) -> SkillChange:
        """What `undo` would take back."""
        self._alive()
        self.settle()
        return self._undoing.undoable(change_id, name)

    def settle(self) -> None:
        """Record edits by hand where the home can be written; a read-only home has a history all the same."""
        if not self._history.changes(limit=1):
            return
        try:
            self._writer.settle()
        except StoreError:
            return

    def pending(self) -> Sequence[SkillPending]:
        """Writes that wait for a person, oldest first."""
        self._alive()
        return self._approvals.list()

    def approve(self, pending_id: int, *, by: Author = BY_USER) -> SkillOutcome:
        self._alive()
        return self._approvals.approve(pending_id, by=by)

    def reject(self, pending_id: int, *, by: Author = BY_USER) -> SkillPending:
        self._alive()
        return self._approvals.reject(pending_id, by=by)

    # ── how they do ──

    def usage(self, name: str | None = None) -> Mapping[str, SkillUsage]:
        """What is known about the use of skills: of all, or of one."""
        self._alive()
        known = self._catalogue.usage()
        if name is None:
            return known
        skill = self.get(name)
        return {skill.name: self._catalogue.usage_of(skill)}

    def record(self, name: str, success: bool | None = None) -> SkillUsage:
        """A skill was used, and whether it did its work."""
        skill = self.get(name)
        counted = Counted(uses=1, successes=int(success is True), failures=int(success is False), resolves=True)
        return self._usage.count(skill.name, counted, self._clock())

    def judge(self, name: str, successes: int, failures: int) -> None:
        """How the work went in which a skill was read; below 0 takes back what was said before. The use was counted
        when it was read. A skill that is there no longer, or was never, is passed over."""
        skill = self._catalogue.resolve(name)
        if not isinstance(skill, SkillRefused):
            self._usage.count(skill.name, Counted(successes=successes, failures=failures), self._clock())

    def viewed(self, skill: Skill, *, used: bool = True) -> None:
        """An agent read a skill: that is a use, unless it read one of its files only."""
        self._usage.count(skill.name, Counted(uses=int(used), views=1), self._clock())

    def pin(self, name: str, *, pinned: bool = True) -> SkillUsage:
        """Protect a skill from agents and from the curator; or no longer."""
        return self._put(name, pinned=pinned)

    def unpin(self, name: str) -> SkillUsage:
        return self.pin(name, pinned=False)

    def set_state(self, name: str, state: SkillState) -> SkillUsage:
        """Say how healthy a skill is. Archiving is `archive`."""
        if state not in SKILL_STATES or state == "archived":
            raise UsageError(f"{state!r} cannot be set.", hint="active, needs_review, stale or deprecated.")
        return self._put(name, state=state)

    def vouch(self, name: str) -> SkillUsage:
        """A person trusts a skill as it is now, although the scanner calls it dangerous."""
        return self._put(name, vouched=self.get(name).hash)

    def _put(self, name: str, **fields: object) -> SkillUsage:
        skill = self.get(name)
        known = self._catalogue.usage().get(skill.name)
        usage = known or replace(self._catalogue.usage_of(skill), created=self._clock())
        changed = replace(usage, **fields)  # type: ignore[arg-type]
        self._usage.put(changed)
        return changed
