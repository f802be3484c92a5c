"""What a SKILL.md says. Tolerant: whatever a person or another program wrote is understood, or refused with the reason.

Pure. The strict half, what may be written, is in `compose`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any

from herma.skills.frontmatter import BadFrontMatter, read, split
from herma.types import Parameter, Skill, UnreadableSkill

MOST_BYTES = 2**20
"""A larger file is no skill; it is refused."""
MOST_TEXT = 100_000
"""Characters that a text of a skill may have when it is written."""
MOST_NAME = 64
MOST_DESCRIPTION = 1024
NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SYSTEMS = {"darwin": "macos", "osx": "macos", "mac": "macos", "win32": "windows", "win": "windows", "linux2": "linux"}
_HEADING = re.compile(r"(?m)^#{1,6}[ \t]+(.+?)[ \t#]*$")
_FENCED = re.compile(r"(?m)^[ \t]*(```|~~~)")
_SEPARATOR = re.compile(r"[,;\n]")


def read_skill(data: bytes, path: str, root: str = "") -> Skill | UnreadableSkill:
    """The skill in these bytes; `path` is its folder, whose name stands in for a missing name."""
    if len(data) > MOST_BYTES:
        reason = f"it has {len(data):,} bytes; a SKILL.md may have {MOST_BYTES:,}"
        return UnreadableSkill(path, reason, root)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        return UnreadableSkill(path, f"it is not UTF-8 text (byte {exc.start})", root)
    if "\x00" in text:
        return UnreadableSkill(path, "it holds null characters, so it is no text", root)
    skill = parse(text, path)
    if isinstance(skill, str):
        return UnreadableSkill(path, skill, root)
    digest = sha256(data).hexdigest()
    return replace(skill, root=root, hash=digest)


def parse(text: str, path: str = "") -> Skill | str:
    """The skill in a text, or why there is none."""
    parts = split(text)
    if parts.head is None:
        return "it has no front matter (--- with name and description at its beginning)"
    try:
        head, mended = read(parts.head)
    except BadFrontMatter as exc:
        return str(exc)
    warnings = [mended] if mended else []
    if not parts.closed:
        warnings.append("its front matter is not closed by a line of ---")
    folder = path.rpartition("/")[2]
    name = _name(head, folder, warnings)
    if not name:
        return "it has no usable name (a-z, 0-9, dots, dashes; 64 at most)"
    description = " ".join(_text(head.get("description")).split())
    body = parts.body.strip("\n")
    if not description:
        description = _first_line(body)
        if not description:
            return "it has neither a description nor a body"
        warnings.append("it has no description; the first line of its body stands in")
    if len(description) > MOST_DESCRIPTION:
        warnings.append(f"its description has {len(description):,} characters; {MOST_DESCRIPTION:,} are the limit")
    if not body.strip():
        warnings.append("its body is empty")
    if len(text) > MOST_TEXT:
        warnings.append(f"it has {len(text):,} characters; {MOST_TEXT:,} may be written")
    return _skill(head, name, description, body, path, tuple(warnings))


def headings(body: str) -> list[str]:
    """The headings of a body, without those inside code."""
    found, inside = [], False
    for line in body.split("\n"):
        if _FENCED.match(line):
            inside = not inside
        elif not inside and (match := _HEADING.match(line)):
            found.append(match[1].strip())
    return found


# ── steps ──


def _skill(
    head: Mapping[str, Any], name: str, description: str, body: str, path: str, warnings: Iterable[str]
) -> Skill:
    metadata = _mapping(head.get("metadata"))
    ours, theirs = _mapping(metadata.get("herma")), _mapping(metadata.get("hermes"))
    wherever = (ours, metadata, theirs, head)
    parameters, trouble = _parameters(ours)
    version = _whole(ours.get("version"))
    if version is None and ours.get("version") is not None:
        trouble.append(f"its integer version {str(ours['version'])[:40]!r} is none (0, 1, 2, …)")
    return Skill(
        name=name,
        description=description,
        body=body,
        path=path,
        category=path.rpartition("/")[0] or _text(_first(wherever, "category")),
        license=_text(head.get("license")),
        release=_text(head.get("version")) or _text(metadata.get("version")),
        version=version,
        triggers=_texts(_first(wherever, "triggers")),
        template=_block(ours.get("template")),
        language=_text(ours.get("language")),
        parameters=parameters,
        dependencies=_names(_first((ours, theirs), "dependencies")),
        pitfalls=_texts(_first((ours, theirs), "pitfalls")),
        tags=_texts(_first((ours, theirs, metadata, head), "tags"), split_text=True),
        related=_names(_first((ours, theirs), "related_skills")),
        platforms=_systems(_first((head, ours, theirs), "platforms")),
        compatibility=_text(head.get("compatibility")),
        requires_tools=_names(_first((ours, theirs), "requires_tools")),
        fallback_for_tools=_names(_first((ours, theirs), "fallback_for_tools")),
        environment=_variables(head),
        warnings=(*warnings, *trouble),
    )


def _name(head: Mapping[str, Any], folder: str, warnings: list[str]) -> str:
    given = _text(head.get("name"))
    if NAME.fullmatch(given) and len(given) <= MOST_NAME:
        return given
    plain = slug(given) or slug(folder)
    if plain:
        said = f"its name {given[:MOST_NAME]!r} is not allowed" if given else "it has no name"
        warnings.append(f"{said}; it is known as {plain!r}")
    return plain


def slug(text: str) -> str:
    """A name made of any text: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:MOST_NAME].rstrip("-._")


def _first_line(body: str) -> str:
    for line in body.split("\n"):
        text = line.strip().lstrip("#>*- ").strip()
        if text and not text.startswith("```"):
            return text[:MOST_DESCRIPTION]
    return ""


def _first(places: Iterable[Mapping[str, Any]], key: str) -> Any:
    return next((place[key] for place in places if place.get(key) not in (None, "", [], {})), None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if value is None or isinstance(value, dict | list | bool):
        return ""
    return str(value).strip()


def _block(value: Any) -> str:
    """Code keeps its blanks; YAML's block has one line end too many."""
    return value.removesuffix("\n") if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        value = int(value[:18])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _texts(value: Any, *, split_text: bool = False) -> tuple[str, ...]:
    """One text or a list of them, without blanks and repetitions."""
    if isinstance(value, str):
        value = _SEPARATOR.split(value) if split_text else value.split("\n")
    if not isinstance(value, list):
        return ()
    items = (" ".join(_one_text(item).split()) for item in value)
    return tuple(dict.fromkeys(item for item in items if item))


def _one_text(item: Any) -> str:
    if isinstance(item, dict):  # `- Never: do this` is a mapping to YAML
        return "; ".join(f"{key}: {_text(inner)}" for key, inner in item.items())
    return _text(item)


def _names(value: Any) -> tuple[str, ...]:
    return _texts(value, split_text=True)


def _systems(value: Any) -> tuple[str, ...]:
    known = (name.lower() for name in _texts(value, split_text=True))
    return tuple(dict.fromkeys(_SYSTEMS.get(name, name) for name in known if name not in ("all", "any", "*")))


def _variables(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of environment variables that must be set; those marked optional need not."""
    found: list[str] = []
    wanted = head.get("required_environment_variables")
    prerequisites = _mapping(head.get("prerequisites"))
    for item in [*_items(wanted), *_items(prerequisites.get("env_vars"))]:
        if isinstance(item, dict) and (item.get("optional") is True or item.get("required") is False):
            continue
        name = (item.get("name") or item.get("env_var")) if isinstance(item, dict) else item
        if isinstance(name, str) and IDENTIFIER.fullmatch(name.strip()):
            found.append(name.strip())
    return tuple(dict.fromkeys(found))


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value] if isinstance(value, str | dict) else []


def _parameters(ours: Mapping[str, Any]) -> tuple[tuple[Parameter, ...], list[str]]:
    """`name: description`, `name: {description, required, default}`, or a list of such with their names inside."""
    required = _texts(ours.get("required"), split_text=True)
    given = ours.get("parameters")
    pairs: list[tuple[Any, Any]] = list(given.items()) if isinstance(given, dict) else []
    listed = given if isinstance(given, list) else []
    pairs += [(item.get("name"), item) if isinstance(item, dict) else (item, None) for item in listed]
    found: dict[str, Parameter] = {}
    trouble = []
    for name, about in [*pairs, *((name, None) for name in required if name not in {str(n) for n, _ in pairs})]:
        if not isinstance(name, str) or not IDENTIFIER.fullmatch(name):
            trouble.append(f"a parameter's name {str(name)[:40]!r} is not allowed (letters, digits, _)")
            continue
        fields = _mapping(about)
        default = fields.get("default")
        found[name] = Parameter(
            name,
            " ".join((_text(fields.get("description")) if fields else _text(about)).split()),
            name in required or fields.get("required") is True,
            None if default is None or isinstance(default, dict | list) else _default(default),
        )
    return tuple(found.values()), trouble


def _default(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
