"""A skill from outside, as files in memory. Pure: whoever reads a folder or an archive hands them over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from herma.skills.compose import category_problem, file_problem, name_problem
from herma.skills.document import read_skill
from herma.types import Skill, SkillFile, SkillRefused, UnreadableSkill

DOCUMENT = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Incoming:
    """`files`: (path, bytes, executable). `odd`: what could not be taken as a file, a link that leads out for one."""

    source: str
    folder: str
    files: Sequence[tuple[str, bytes, bool]]
    odd: Sequence[SkillFile] = ()

    def described(self) -> list[SkillFile]:
        """The files as the scanner reads them."""
        return [*(_described(*file) for file in self.files), *self.odd]


def read_incoming(incoming: Incoming, category: str = "", name: str = "") -> Skill | SkillRefused:
    """The skill that the files make, at the place it would have."""

    def refused(message: str) -> SkillRefused:
        return SkillRefused(name=name or incoming.folder, kind="invalid", message=message)

    document = next((data for path, data, _ in incoming.files if path == DOCUMENT), None)
    if document is None:
        return refused(f"{incoming.source} has no SKILL.md.")
    skill = read_skill(document, name or incoming.folder)
    if isinstance(skill, UnreadableSkill):
        return refused(f"The SKILL.md of {incoming.source} is refused: {skill.reason}.")
    called = name or skill.name
    problem = name_problem(called) or category_problem(category)
    if problem:
        return refused(problem)
    for path, _, _ in incoming.files:
        if path != DOCUMENT and "/" not in path:
            continue  # LICENSE and the like beside it
        if path != DOCUMENT and (reason := file_problem(path)) and path.split("/")[0] in ("..", "", "."):
            return refused(reason)
    folded = [path.casefold() for path, _, _ in incoming.files]
    if len(set(folded)) != len(folded):
        return refused(f"{incoming.source} has files that differ in nothing but case.")
    return replace(skill, name=called, path=f"{category}/{called}" if category else called, category=category)


def _described(path: str, data: bytes, executable: bool) -> SkillFile:
    try:
        text: str | None = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = None
    if text is not None and "\x00" in text:
        text = None
    return SkillFile(path, len(data), text, executable)
