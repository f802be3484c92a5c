"""Which skills there are, by name, and whether each can be used here."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from herma.ports.skills import Shelf, SkillFolders, SkillUsageRows
from herma.skills.guard import inspect
from herma.skills.offer import offer, this_platform
from herma.types import Skill, SkillFile, SkillOffer, SkillRefused, SkillReport, SkillUsage

_NEAR = 5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What skills find here: the system, the tools (None: nobody said), the variables that are set."""

    platform: str = field(default_factory=this_platform)
    tools: Collection[str] | None = None
    has_variable: Callable[[str], bool] = lambda name: bool(os.environ.get(name))


class Catalogue:
    """Reads; changes nothing."""

    def __init__(self, folders: SkillFolders, usage: SkillUsageRows, surroundings: Surroundings) -> None:
        self.folders = folders
        self._usage = usage
        self._surroundings = surroundings
        self._reports: dict[str, SkillReport] = {}

    def shelf(self) -> Shelf:
        return self.folders.look()

    def usage(self) -> Mapping[str, SkillUsage]:
        return self._usage.all()

    def usage_of(self, skill: Skill) -> SkillUsage:
        known = self.usage().get(skill.name)
        return known or SkillUsage(skill.name, origin="external" if skill.external else "found")

    def offer(self, skill: Skill, tools: Collection[str] | None = None) -> SkillOffer:
        here = self._surroundings
        return offer(skill, here.platform, here.tools if tools is None else tools, here.has_variable)

    def resolve(self, name: str) -> Skill | SkillRefused:
        """The skill of this name, or `category/name`; what is near, when there is none; all, when there are several."""
        shelf = self.shelf()
        wanted = name.strip().strip("/")
        matches = [skill for skill in shelf.skills if wanted in (skill.name, skill.path)]
        exact = [skill for skill in matches if skill.path == wanted]
        if len(matches) == 1 or (len(exact) == 1 and "/" in wanted):
            return exact[0] if len(exact) == 1 else matches[0]
        if matches:
            paths = tuple(sorted(skill.path for skill in matches))
            message = f"{len(matches)} skills are called {wanted!r}; say which by its path."
            return SkillRefused(name=name, kind="ambiguous", message=message, matches=paths)
        refused = next((each for each in shelf.refused if wanted in (each.path, each.path.rpartition("/")[2])), None)
        if refused is not None:
            return SkillRefused(name=name, kind="invalid", message=f"{refused.path} cannot be read: {refused.reason}.")
        near = tuple(_near(wanted, [skill.name for skill in shelf.skills]))
        hint = f" Did you mean {near[0]}?" if near else ""
        return SkillRefused(name=name, kind="not found", message=f"There is no skill {wanted!r}.{hint}", matches=near)

    def report(self, skill: Skill, text: str) -> SkillReport:
        """What the scanner says of a SKILL.md, read once as long as it stays the same."""
        kept = self._reports.get(skill.hash)
        if kept is None:
            kept = inspect([SkillFile("SKILL.md", len(text), text)])
            if len(self._reports) > 1_000:
                self._reports.clear()
            self._reports[skill.hash] = kept
        return kept


def _near(wanted: str, names: Collection[str]) -> list[str]:
    from rapidfuzz import fuzz, process

    found = process.extract(wanted.lower(), sorted(names), scorer=fuzz.WRatio, limit=_NEAR, score_cutoff=60)
    return [name for name, _, _ in found]
