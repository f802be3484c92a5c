"""Bringing skills back as a snapshot has them. Every step is a move that the history of skills knows and can undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from herma.errors import HermaError
from herma.ports.skills import ArchivedSkill, Incoming
from herma.reflect.curator_desk import CuratorDesk
from herma.types import Author, Skill, SkillOutcome, SkillState, SkillUsage
from herma.types.curator import RolledBack, SkillSnapshotContent

_Files = tuple[tuple[str, bytes, bool], ...]


def roll_back(
    desk: CuratorDesk, content: SkillSnapshotContent, author: Author, *, exact: bool, dry_run: bool = False
) -> RolledBack:
    """Do it, or say what would be done."""
    work = _Work(desk, content, author, dry_run, f"rollback to {content.info.id}")
    shelf = desk.catalogue.shelf()
    there = {skill.path: skill for skill in shelf.skills if not skill.external}
    taken = {path: skill.name for path, skill in there.items()}
    refused = {each.path for each in shelf.refused if not each.root}
    if exact:
        for path, skill in sorted(there.items()):
            if path not in content.folders:
                work.put_away(skill, "it was made since")
                taken.pop(path)
    for path, files in sorted(content.folders.items()):
        if path in there:
            work.compare(there[path], files, exact=exact)
        elif path in refused:
            if not work.is_same(Skill(path, "", path=path), files):
                work.leave(path, "its SKILL.md cannot be read now; look at it yourself")
        elif other := _namesake(_name_of(path, content.usage), taken):
            work.leave(path, f"another skill of this name is there now ({other})")
        else:
            work.bring_back(path, files)
    work.states()
    return RolledBack(content.info.id, dry_run, "", tuple(work.done), tuple(work.left), tuple(work.failed))


@dataclass(slots=True)
class _Work:
    desk: CuratorDesk
    content: SkillSnapshotContent
    author: Author
    dry_run: bool
    reason: str
    done: list[tuple[str, str]] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)

    def leave(self, path: str, why: str) -> None:
        self.left.append((path, why))

    def compare(self, skill: Skill, files: _Files, *, exact: bool) -> None:
        """A skill that is there: as it was, or changed since."""
        if self.is_same(skill, files):
            return
        if not exact:
            self.leave(skill.path, "it was changed since")
        elif self.put_away(skill, "it was changed since"):
            self.bring_back(skill.path, files)

    def put_away(self, skill: Skill, why: str) -> bool:
        usage = self.desk.usage.all().get(skill.name)
        if usage is not None and usage.pinned:
            self.leave(skill.path, "it is pinned")
            return False
        reason = f"{self.reason}: {why}"
        return self._try(
            skill.path,
            f"to the archive: {why}",
            lambda: self.desk.library().archive(skill.path, author=self.author, reason=reason),
        )

    def bring_back(self, path: str, files: _Files) -> None:
        kept = self._archived(path, files)
        if kept is not None:
            folder = kept.folder.removeprefix(".archive/")
            self._try(
                path,
                "back from the archive",
                lambda: self.desk.library().restore(folder, author=self.author, reason=self.reason),
            )
        elif self._try(path, "back from the snapshot", lambda: self._install(path, files)) and not self.dry_run:
            self._know(path)

    def states(self) -> None:
        """States as they were, of what is in its place. How often a skill was used since is not forgotten."""
        usage = self.desk.usage.all()
        there = {skill.name for skill in self.desk.catalogue.shelf().skills if not skill.external}
        there |= {_name_of(path, self.content.usage) for path, what in self.done if what.startswith("back ")}
        changed: dict[str, SkillState] = {}
        for name, then in sorted(self.content.usage.items()):
            now = usage.get(name)
            if name in there and then.state != "archived" and now is not None and not now.pinned:
                was = "active" if self.dry_run and now.state == "archived" else now.state
                if was != then.state:
                    changed[name] = then.state
                    self.done.append((name, f"{then.state} again (it was {was})"))
        if changed and not self.dry_run:
            self.desk.usage.set_states(changed, self.desk.clock())

    # ── steps ──

    def _try(self, path: str, what: str, act: Callable[[], SkillOutcome]) -> bool:
        if self.dry_run:
            self.done.append((path, what))
            return True
        try:
            outcome = act()
        except HermaError as exc:
            self.failed.append((path, str(exc)))
            return False
        (self.done if outcome.ok else self.failed).append((path, what if outcome.ok else outcome.message))
        return outcome.ok

    def _archived(self, path: str, files: _Files) -> ArchivedSkill | None:
        """What lies in the archive and is the same: it was only moved."""
        for kept in self.desk.catalogue.folders.archived():
            if kept.path == path and self.is_same(Skill(kept.name, "", path=kept.folder), files):
                return kept
        return None

    def is_same(self, skill: Skill, files: _Files) -> bool:
        read = self.desk.catalogue.folders
        now = {each.path for each in read.files(skill, texts=False) if not each.link}
        return now == {path for path, _, _ in files} and all(read.read(skill, path) == data for path, data, _ in files)

    def _install(self, path: str, files: _Files) -> SkillOutcome:
        category, _, folder = path.rpartition("/")
        incoming = Incoming(f"snapshot {self.content.info.id}", folder, files)
        installed = self.desk.library().install(
            incoming, trust="builtin", category=category, force=True, author=self.author
        )
        return installed[0].outcome

    def _know(self, path: str) -> None:
        """What was known of a skill that was made anew from the snapshot."""
        then = self.content.usage.get(_name_of(path, self.content.usage))
        if then is not None:
            self.desk.usage.put(replace(then, state="active", archived_at=None))


def _name_of(path: str, usage: Mapping[str, SkillUsage]) -> str:
    """The name of the skill in a folder, as its row has it; as a rule the folder's own."""
    last = path.rpartition("/")[2]
    return next((name for name in usage if name.casefold() == last.casefold()), last)


def _namesake(name: str, taken: Mapping[str, str]) -> str:
    return next((path for path, other in taken.items() if other.casefold() == name.casefold()), "")
