"""A skill from outside, as files in memory. Pure: whoever reads a folder or an archive hands them over."""

from __future__ import annotations

from dataclasses import replace

from herma.ports.skills import Incoming
from herma.skills.compose import category_problem, file_problem, name_problem
from herma.skills.document import read_skill
from herma.types import Skill, SkillFile, SkillRefused, UnreadableSkill

DOCUMENT = "SKILL.md"


def described(incoming: Incoming) -> list[SkillFile]:
    """The files as the scanner reads them."""
    return [*(_described(*file) for file in incoming.files), *incoming.odd]


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
        if reason := _misplaced(path):
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


def _misplaced(path: str) -> str:
    """Files beside SKILL.md may have any name, LICENSE for one; nothing may lead out."""
    if path == DOCUMENT or not file_problem(path):
        return ""
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.startswith(".") for part in parts) or "\\" in path or ":" in path
    return f"{path!r} is no path inside a skill." if strange or len(parts) > 8 else ""


def renamed(document: bytes, name: str) -> bytes:
    """A SKILL.md whose front matter gives another name; everything else to the byte."""
    lines = document.split(b"\n")
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            break
        if line.startswith(b"name:"):
            end = b"\r" if line.endswith(b"\r") else b""
            return b"\n".join([*lines[:at], b"name: " + name.encode() + end, *lines[at + 1 :]])
    return b"\n".join([lines[0], b"name: " + name.encode(), *lines[1:]])
