"""What may be written as a SKILL.md. Strict: other programs have to read it too. Pure."""

from __future__ import annotations

import io
import re
from typing import Any

from herma.skills.document import MOST_DESCRIPTION, MOST_NAME, MOST_TEXT, NAME, parse
from herma.skills.frontmatter import split
from herma.types import SUPPORT_FOLDERS, Skill

MOST_FILE_BYTES = 2**20
_CATEGORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(?:/[a-z0-9][a-z0-9._-]{0,63}){0,2}")
_RESERVED = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f<>:\"|?*\\/]{1,128}")
EXCLUDED = frozenset(
    ("node_modules", "venv", "env", "__pycache__", "site-packages", "dist", "build", "target", *SUPPORT_FOLDERS)
)
"""Folders in which no skills are looked for, besides those whose names begin with a dot."""


_ODD = ("not YAML", "parameter's name", "integer version")
"""Remarks of the reader that the writer does not pass."""


def name_problem(name: str) -> str:
    """Why this cannot be the name of a new skill; empty when it can."""
    if not isinstance(name, str) or not name:
        return "A skill needs a name."
    if len(name) > MOST_NAME:
        return f"The name has {len(name)} characters; {MOST_NAME} are the limit."
    if not NAME.fullmatch(name):
        allowed = "small letters, digits, dots, dashes and underscores, a letter or a digit first"
        return f"The name {name!r} is not allowed: {allowed}."
    if name in EXCLUDED or name.partition(".")[0] in _RESERVED or name.endswith("."):
        return f"The name {name!r} is not allowed: it means something else to programs that read folders."
    return ""


def category_problem(category: str) -> str:
    """Why this cannot be a category; empty when it can, or when there is none."""
    if not category:
        return ""
    if not _CATEGORY.fullmatch(category) or any(name_problem(part) for part in category.split("/")):
        return f"The category {category!r} is not allowed: names of small letters, digits and dashes, at most 3 deep."
    return ""


def content_problem(text: str, name: str) -> str:
    """Why this cannot be written as the SKILL.md of `name`; empty when it can."""
    if not isinstance(text, str):
        return "The content of a skill is text."
    if len(text) > MOST_TEXT:
        return f"The text has {len(text):,} characters; {MOST_TEXT:,} are the limit. Move parts to references/."
    if "\x00" in text:
        return "The text holds null characters."
    try:
        text.encode()
    except UnicodeEncodeError:
        return "The text holds halves of surrogate pairs, which no file can keep."
    parts = split(text)
    if parts.head is None or not parts.closed:
        return "A SKILL.md begins with front matter: a line of ---, name and description, a line of ---."
    skill = parse(text, name)
    if isinstance(skill, str):
        return f"The text cannot be read back: {skill}."
    odd = next((said for said in skill.warnings if any(sign in said for sign in _ODD)), "")
    if odd:
        return f"{odd[0].upper()}{odd[1:]}."
    if skill.name != name or any("known as" in warning for warning in skill.warnings):
        return f"The front matter must say name: {name}."
    if any("no description" in warning for warning in skill.warnings):
        return "The front matter must have a description: what the skill does, and when to use it."
    if len(skill.description) > MOST_DESCRIPTION:
        return f"The description has {len(skill.description):,} characters; {MOST_DESCRIPTION:,} are the limit."
    if not skill.body.strip():
        return "The body is empty: write the steps below the front matter."
    return ""


def file_problem(path: str) -> str:
    """Why this cannot be a file beside a SKILL.md; empty when it can."""
    if not isinstance(path, str) or not path.strip():
        return "A path is needed, as in references/details.md."
    if path.startswith(("/", "\\", "~")) or re.match(r"[A-Za-z]:", path) or "\\" in path:
        return f"{path!r} is not a path inside the skill."
    segments = path.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        return f"{path!r} is not a path inside the skill."
    if segments[0] not in SUPPORT_FOLDERS or len(segments) < 2:
        return f"Files of a skill lie under {', '.join(f'{name}/' for name in SUPPORT_FOLDERS)}, not at {path!r}."
    if len(segments) > 8 or any(not _fits(segment) for segment in segments):
        return f"{path!r} is not a name that every system can keep."
    return ""


def _fits(segment: str) -> bool:
    plain = _SEGMENT.fullmatch(segment) is not None and not segment.endswith((".", " "))
    return plain and not segment.startswith(".") and segment.partition(".")[0].lower() not in _RESERVED


_VERSION = re.compile(r"([ \t]+)version:([ \t]*)(\d{1,15})([ \t]*)")


def counted_up(text: str, version: int) -> str:
    """A SKILL.md whose integer version is the next one, if it still says this one; everything else to the byte."""
    lines = text.split("\n")
    inside = ""
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == "---":
            break
        indent = line[: len(line) - len(line.lstrip())]
        if line.strip() == "herma:":
            inside = indent + " "
        elif inside and line.strip() and not indent.startswith(inside):
            inside = ""
        match = _VERSION.fullmatch(line.rstrip("\r")) if inside else None
        if match and int(match[3]) == version:
            end = "\r" if line.endswith("\r") else ""
            lines[at] = f"{match[1]}version:{match[2]}{version + 1}{match[4]}{end}"
            break
    return "\n".join(lines)


# ── from values to text ──


def compose(skill: Skill) -> str:
    """The SKILL.md of a skill: what `parse` reads as the same values."""
    head: dict[str, Any] = {"name": skill.name, "description": skill.description}
    if skill.release:
        head["version"] = skill.release
    if skill.license:
        head["license"] = skill.license
    if skill.compatibility:
        head["compatibility"] = skill.compatibility
    if skill.platforms:
        head["platforms"] = list(skill.platforms)
    if skill.environment:
        head["required_environment_variables"] = list(skill.environment)
    metadata = {"herma": ours} if (ours := _ours(skill)) else {}
    if theirs := _theirs(skill):  # where other programs look for these
        metadata["hermes"] = theirs
    if metadata:
        head["metadata"] = metadata
    return f"---\n{_yaml(head)}---\n\n{skill.body.strip(chr(10))}\n"


def _ours(skill: Skill) -> dict[str, Any]:
    said: dict[str, Any] = {
        "version": skill.version,
        "triggers": list(skill.triggers),
        "template": skill.template,
        "language": skill.language,
        "parameters": {
            each.name: each.description
            if each.default is None
            else {"description": each.description, "default": each.default}
            for each in skill.parameters
        },
        "required": list(skill.required),
        "dependencies": list(skill.dependencies),
        "pitfalls": list(skill.pitfalls),
    }
    return {key: value for key, value in said.items() if value not in (None, "", [], {})}


def _theirs(skill: Skill) -> dict[str, Any]:
    said = {
        "tags": list(skill.tags),
        "related_skills": list(skill.related),
        "requires_tools": list(skill.requires_tools),
        "fallback_for_tools": list(skill.fallback_for_tools),
    }
    return {key: value for key, value in said.items() if value}


def _yaml(value: dict[str, Any]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def written(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: written(inner) for key, inner in item.items()}
        if isinstance(item, list):
            return [written(inner) for inner in item]
        return LiteralScalarString(item + "\n") if isinstance(item, str) and _is_block(item) else item

    writer: Any = YAML()
    writer.width = 10**6
    writer.allow_unicode = True
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(written(value), stream)
    return stream.getvalue()


def _is_block(text: str) -> bool:
    """Whether a text of several lines can stand as it is; else it is quoted."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and bool(lines[0]) and not lines[0].startswith(" ") and bool(lines[-1])
