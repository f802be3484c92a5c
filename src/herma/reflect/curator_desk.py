"""What the curator works with, and how it looks at the skills: each with all that is known of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from herma import __version__
from herma.ports import ChatModel
from herma.ports.curator import CuratorBook, SkillSnapshots
from herma.ports.skills import SkillUsageRows
from herma.skills import SkillLibrary
from herma.skills.catalogue import Catalogue
from herma.skills.curator_plan import plan
from herma.types import Author, Origin, Skill, SkillUsage, Who
from herma.types.curator import CuratorMemory, CuratorPlan, CuratorRules, SkillStanding

_SHORT = 16
CURATOR = Author(Who.CURATOR, Origin.AGENT_CONCLUDED)


@dataclass(frozen=True, slots=True)
class CuratorOptions:
    """How the curator is set."""

    rules: CuratorRules
    enabled: bool = True
    idle: float = 7_200.0
    """Seconds without a word before it begins by itself."""
    keep: int = 5
    """Snapshots that are kept."""
    approval: bool = False
    """By itself it archives nothing: it proposes, and a person decides."""
    consolidate: bool = False
    """Ask a model to propose one text for two skills that nearly repeat each other."""


@dataclass(frozen=True, slots=True)
class CuratorDesk:
    """What the curator is given."""

    library: Callable[[], SkillLibrary]
    catalogue: Catalogue
    usage: SkillUsageRows
    hold: Callable[[], AbstractContextManager[None]]
    snapshots: SkillSnapshots
    book: CuratorBook
    clock: Callable[[], float]
    model: Callable[[], ChatModel | None] = lambda: None
    alive: Callable[[], None] = lambda: None
    failed: Callable[[str, str], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Look:
    """The skills as they are now, and what should be done."""

    standings: tuple[SkillStanding, ...]
    usage: Mapping[str, SkillUsage]
    archived: tuple[str, ...]
    memory: CuratorMemory
    plan: CuratorPlan

    @property
    def own(self) -> list[Skill]:
        return [each.skill for each in self.standings if not each.skill.external]

    @property
    def states(self) -> dict[str, str]:
        return {each.skill.name: each.usage.state if each.usage else "active" for each in self.standings}


def look(desk: CuratorDesk, rules: CuratorRules, now: float, cancel: threading.Event | None = None) -> Look:
    """Reads everything, changes nothing. Cancelled half-way, its plan is worth nothing; what it has read is."""
    shelf = desk.catalogue.shelf()
    usage = desk.usage.all()
    changed = desk.book.changed()
    memory = desk.book.memory()
    scanning = _Scanning(desk.catalogue, set(memory.clean) if memory.scanner == __version__ else set(), cancel)
    archived = tuple(kept.name for kept in desk.catalogue.folders.archived())
    there = {skill.name for skill in shelf.skills}
    standings = tuple(
        SkillStanding(
            skill,
            usage.get(skill.name),
            changed.get(skill.name),
            "" if skill.external else _broken(scanning, skill, usage.get(skill.name), there, archived),
        )
        for skill in shelf.skills
    )
    present = {skill.hash[:_SHORT] for skill in shelf.skills}
    memory = replace(memory, clean=tuple(sorted(scanning.clean & present)), scanner=__version__)
    return Look(standings, usage, archived, memory, plan(standings, archived, usage, memory, now, rules))


@dataclass(frozen=True, slots=True)
class _Scanning:
    """Reading texts takes long, so each is read once."""

    catalogue: Catalogue
    clean: set[str]
    cancel: threading.Event | None

    def objection(self, skill: Skill, vouched: str) -> str:
        if skill.hash[:_SHORT] in self.clean or (self.cancel and self.cancel.is_set()):
            return ""
        data = self.catalogue.folders.read(skill, "SKILL.md") or b""
        report = self.catalogue.report(skill, data.decode("utf-8-sig", "replace").replace("\r\n", "\n"))
        if report.verdict != "dangerous":
            self.clean.add(skill.hash[:_SHORT])
            return ""
        first = report.findings[0]
        dangerous = f"the scanner calls it dangerous (rule {first.rule}, line {first.line})"
        return "" if vouched == skill.hash else dangerous


def _broken(
    scanning: _Scanning, skill: Skill, usage: SkillUsage | None, there: set[str], archived: tuple[str, ...]
) -> str:
    missing = sorted(set(skill.dependencies) - there)
    if missing:
        where = "is in the archive" if missing[0] in archived else "is not there"
        return f"it needs {missing[0]}, which {where}"
    return scanning.objection(skill, usage.vouched if usage else "")
