"""Looking at skills: which there are, what one says, which fits a task. Changes nothing, counts nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from herma.errors import UsageError
from herma.ports.skills import Shelf
from herma.skills.catalogue import Catalogue
from herma.skills.fill import Filled, MissingParameters, UnsafeValue, fill
from herma.skills.find import SkillFinder
from herma.types import (
    FindMode,
    Skill,
    SkillFile,
    SkillMatches,
    SkillOffer,
    SkillRefused,
    SkillReport,
    SkillUsage,
    UnreadableSkill,
)


@dataclass(frozen=True, slots=True)
class SkillView:
    """A skill as it is read: its whole SKILL.md, its files, how it is offered, and what the scanner says of it.

    `withheld` says why its text must not reach a model; the text is empty then.
    """

    skill: Skill
    text: str
    files: tuple[SkillFile, ...]
    offer: SkillOffer
    report: SkillReport
    usage: SkillUsage
    where: str
    withheld: str = ""


class SkillReading:
    """The half of the library that only reads."""

    def __init__(self, catalogue: Catalogue, finder: SkillFinder, alive: Callable[[], None]) -> None:
        self._catalogue = catalogue
        self._finder = finder
        self._alive = alive

    def list(
        self, category: str | None = None, *, everything: bool = False, tools: Collection[str] | None = None
    ) -> Sequence[Skill]:
        """The skills that can be used here, by category and name; `everything` lists the others too."""
        self._alive()
        skills = [s for s in self._catalogue.shelf().skills if everything or self._catalogue.offer(s, tools).offered]
        wanted = [s for s in skills if category is None or s.category == category]
        return sorted(wanted, key=lambda skill: (skill.category, skill.name, skill.path))

    def shelf(self) -> Shelf:
        """Everything that was found, refused files included."""
        self._alive()
        return self._catalogue.shelf()

    def refused(self) -> Sequence[UnreadableSkill]:
        """Files that are no skills, and why."""
        return self.shelf().refused

    def resolve(self, name: str) -> Skill | SkillRefused:
        """The skill of this name or path, or why there is not exactly one."""
        self._alive()
        return self._catalogue.resolve(name)

    def get(self, name: str) -> Skill:
        """The skill of this name or path; an error when there is not exactly one."""
        found = self.resolve(name)
        if isinstance(found, SkillRefused):
            raise UsageError(found.message, hint=self._next_step(name.strip().strip("/"), found))
        return found

    def _next_step(self, name: str, refused: SkillRefused) -> str:
        if refused.kind == "invalid":
            return f"Mend the file, or take back what broke it: herma skills undo --skill {name}"
        if refused.kind == "not found" and any(kept.name == name for kept in self._catalogue.folders.archived()):
            return f"It is in the archive: herma skills restore {name}"
        return "`herma skills list` shows them."

    def view(self, name: str) -> SkillView:
        """A skill with everything that belongs to it. Counts nothing; see `record`."""
        skill = self.get(name)
        data = self._catalogue.folders.read(skill, "SKILL.md") or b""
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        report = self._catalogue.report(skill, text)
        usage = self._catalogue.usage_of(skill)
        withheld = ""
        if report.verdict == "dangerous" and usage.vouched != skill.hash:
            first = report.findings[0]
            withheld = f"the scanner calls it dangerous (rule {first.rule}, line {first.line}: it {first.why})"
        return SkillView(
            skill,
            "" if withheld else text,
            tuple(self._catalogue.folders.files(skill, texts=False)),
            self._catalogue.offer(skill),
            report,
            usage,
            self._catalogue.folders.where(skill),
            withheld,
        )

    def read_file(self, name: str, file: str) -> bytes | None:
        """One file of a skill; None when there is none."""
        return self._catalogue.folders.read(self.get(name), file)

    def files(self, name: str) -> Sequence[SkillFile]:
        """The files of a skill with their texts, as the scanner reads them."""
        return self._catalogue.folders.files(self.get(name))

    def offer(self, skill: Skill, tools: Collection[str] | None = None) -> SkillOffer:
        """Whether it can be used here, and if not, why."""
        return self._catalogue.offer(skill, tools)

    def find(
        self, task: str, limit: int = 5, *, tools: Sequence[str] | None = None, mode: FindMode = "hybrid"
    ) -> SkillMatches:
        """The skills that fit a task, best first, with reasons; or none, with the reason for that. By words and, where
        there is an embedder, by meaning; or by one of them only."""
        self._alive()
        return self._finder.find(task, limit=limit, tools=tools, mode=mode)

    def fill(self, name: str, values: Mapping[str, object] | None = None, /, **more: object) -> Filled:
        """A skill's code template with its parameters put in, quoted as its language quotes. Nothing is run."""
        values = {**(values or {}), **more}
        skill = self.get(name)
        if not skill.template:
            raise UsageError(f"{skill.name} has no template.", hint=f"`herma skills show {skill.name}` shows it.")
        filled = fill(skill.template, skill.parameters, values, skill.language)
        if isinstance(filled, MissingParameters):
            names = ", ".join(filled.names)
            raise UsageError(f"The template of {skill.name} needs a value for {names}.", hint=f"Give: {names}.")
        if isinstance(filled, UnsafeValue):
            raise UsageError(
                f"The value for {filled.name} cannot be put in safely: {filled.why}.",
                hint="Use letters, digits and _ @ % + = : , . / - there, or put it in yourself.",
            )
        return filled
