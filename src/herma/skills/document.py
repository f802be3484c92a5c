"""Read, check, write, patch and fill a SKILL.md. Pure: nothing here touches a file or runs anything."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from math import isfinite
from typing import Any, NamedTuple

from herma.errors import UsageError
from herma.skills.rows import SUPPORT_FOLDERS, Parameter, Skill, UnreadableSkill
from herma.store.files import plain_yaml

MOST_BYTES = 2**20
"""Bytes that a SKILL.md, or a file beside it, may have."""
MOST_TEXT = 100_000
"""Characters that a text may have when it is written."""
MOST_HEAD = 64_000
"""Characters of front matter that are read."""
MOST_NAME = 64
MOST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FENCE = re.compile(r"---[ \t]*")
_HEADING = re.compile(r"(?m)^#{1,6}[ \t]+(.+?)[ \t#]*$")
_CODE_FENCE = re.compile(r"(?m)^[ \t]*(```|~~~)")
_SYSTEMS = {"darwin": "macos", "osx": "macos", "mac": "macos", "win32": "windows", "win": "windows", "linux2": "linux"}


# ── reading: tolerant, because people and other programs write these files ──


def read_skill(data: bytes, path: str, root: str = "") -> Skill | UnreadableSkill:
    """Return the skill in these bytes. `path` is its folder, whose name replaces a missing name."""
    if len(data) > MOST_BYTES:
        reason = f"it has {len(data):,} bytes; a SKILL.md may have {MOST_BYTES:,}"
        return UnreadableSkill(path, reason, root)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        return UnreadableSkill(path, f"it is not UTF-8 text (byte {exc.start})", root)
    if "\x00" in text:
        return UnreadableSkill(path, "it is not text: it holds null characters", root)
    skill = parse(text, path)
    if isinstance(skill, str):
        return UnreadableSkill(path, skill, root)
    return replace(skill, root=root, hash=sha256(data).hexdigest())


def parse(text: str, path: str = "") -> Skill | str:
    """Return the skill in a text, or the reason why it is refused. `Skill.warnings` names what is odd about it."""
    head, body, closed = split(text)
    if head is None:
        return "it has no front matter (--- with name and description at its beginning)"
    try:
        fields, mended = _front_matter(head)
    except _BadFrontMatter as exc:
        return str(exc)
    warnings = [mended] if mended else []
    if not closed:
        warnings.append("its front matter is not closed by a line of ---")
    name = _name(fields, path.rpartition("/")[2], warnings)
    if not name:
        return "it has no usable name (a-z, 0-9, dots, dashes; 64 at most)"
    description = " ".join(_text(fields.get("description")).split())
    body = body.strip("\n")
    if not description:
        description = _first_line(body)
        if not description:
            return "it has neither a description nor a body"
        warnings.append("it has no description; the first line of its body is used instead")
    if len(description) > MOST_DESCRIPTION:
        warnings.append(f"its description has {len(description):,} characters; the limit is {MOST_DESCRIPTION:,}")
    if not body.strip():
        warnings.append("its body is empty")
    if len(text) > MOST_TEXT:
        warnings.append(f"it has {len(text):,} characters; the limit for writing is {MOST_TEXT:,}")
    return _skill(fields, name, description, body, path, warnings)


def split(text: str) -> tuple[str | None, str, bool]:
    """Return the front matter (None without any), the body, and whether the front matter has an end of its own.

    Accept a byte order mark, any line ends, and blank lines before the front matter. Without a closing line, it ends
    at the first blank line or heading.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not _FENCE.fullmatch(lines[start]):
        return None, text, True
    lines = lines[start + 1 :]
    for at, line in enumerate(lines):
        if _FENCE.fullmatch(line) or line.rstrip() == "...":
            return "\n".join(lines[:at]), "\n".join(lines[at + 1 :]), True
    end = next((at for at, line in enumerate(lines) if not line.strip() or line.startswith("# ")), len(lines))
    return "\n".join(lines[:end]), "\n".join(lines[end:]), False


def headings(body: str) -> list[str]:
    """Return the headings of a body, without those inside code."""
    found, inside = [], False
    for line in body.split("\n"):
        if _CODE_FENCE.match(line):
            inside = not inside
        elif not inside and (match := _HEADING.match(line)):
            found.append(match[1].strip())
    return found


def slug(text: str) -> str:
    """Return a name made of any text: small letters, digits and dashes."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-._")[:MOST_NAME].rstrip("-._")


class _BadFrontMatter(Exception):
    """The front matter cannot be understood; the text says why, for people."""


def _front_matter(head: str) -> tuple[dict[str, Any], str]:
    """Return the fields, and a warning if they are not valid YAML and were read line by line."""
    if len(head) > MOST_HEAD:
        raise _BadFrontMatter(f"its front matter has {len(head):,} characters; the limit is {MOST_HEAD:,}")
    try:
        value = _yaml_value(head)
    except _BadFrontMatter as exc:
        fields = _line_by_line(head)
        if not {"name", "description"} & fields.keys():
            raise
        return fields, f"its front matter is not YAML ({exc}); it was read line by line"
    if not isinstance(value, dict):
        raise _BadFrontMatter("its front matter is not a list of keys and values")
    return {str(key): item for key, item in value.items()}, ""


def _yaml_value(head: str) -> Any:
    """Read plain YAML. Anchors, merge keys and tags are refused: a small text must not stand for a huge one."""
    from ruamel.yaml.error import YAMLError

    try:
        return _value_of(plain_yaml().compose(head))
    except (YAMLError, ValueError, TypeError, AttributeError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""
        raise _BadFrontMatter(f"{where}{getattr(exc, 'problem', None) or str(exc).partition(chr(10))[0]}") from None


def _value_of(node: Any) -> Any:
    """Return the text, number, truth value, list or mapping of a YAML node. Dates and odd numbers stay text."""
    if node is None:
        return None
    if node.id == "sequence":
        return [_value_of(item) for item in node.value]
    if node.id == "mapping":
        found: dict[Any, Any] = {}
        for key, item in node.value:
            name = _value_of(key)
            if key.id != "scalar" or name in found:
                raise _BadFrontMatter(f"line {key.start_mark.line + 2}: a key is repeated, or is not plain text")
            found[name] = _value_of(item)
        return found
    kind, text = str(node.tag).rpartition(":")[2], node.value
    if kind == "int" and re.fullmatch(r"[-+]?(?:0|[1-9][0-9]{0,14})", text):
        return int(text)
    if kind == "float" and isfinite(number := float(text)):
        return number
    return {"null": None, "bool": text.lower() in ("true", "yes", "on", "y")}.get(kind, text)


_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):[ \t]+(?![|>][+-]?$)(\S.*)")


def _line_by_line(head: str) -> dict[str, Any]:
    """Read one key and one value a line, where a value has what YAML would quote (a colon, most often)."""
    lines = filter(None, map(_LINE.fullmatch, map(str.rstrip, head.split("\n"))))
    return {found[1]: _plain_value(found[2]) for found in lines}


def _plain_value(text: str) -> str | list[str]:
    """Return a text without the quotes around it, or the items of a list in brackets."""
    if text[0] == "[" and text[-1] == "]":
        return [item.strip().strip("\"'") for item in text[1:-1].split(",")]
    return text[1:-1] if len(text) > 1 and text[0] in "\"'" and text[0] == text[-1] else text


def _skill(fields: Mapping[str, Any], name: str, description: str, body: str, path: str, warnings: list[str]) -> Skill:
    metadata = _mapping(fields.get("metadata"))
    ours, theirs = _mapping(metadata.get("herma")), _mapping(metadata.get("hermes"))
    wherever = (ours, metadata, theirs, fields)
    template = ours.get("template")
    systems = [name.lower() for name in _names(_first((fields, ours, theirs), "platforms"))]
    return Skill(
        name=name,
        description=description,
        body=body,
        path=path,
        category=path.rpartition("/")[0] or _text(_first(wherever, "category")),
        license=_text(fields.get("license")),
        release=_text(fields.get("version")) or _text(metadata.get("version")),
        version=_version(ours.get("version"), warnings),
        triggers=_texts(_first(wherever, "triggers")),
        template=template.removesuffix("\n") if isinstance(template, str) else "",
        language=_text(ours.get("language")),
        parameters=_parameters(ours, warnings),
        dependencies=_names(_first((ours, theirs), "dependencies")),
        pitfalls=_texts(_first((ours, theirs), "pitfalls")),
        tags=_names(_first((ours, theirs, metadata, fields), "tags")),
        related=_names(_first((ours, theirs), "related_skills")),
        platforms=tuple(dict.fromkeys(_SYSTEMS.get(name, name) for name in systems if name not in ("all", "any", "*"))),
        compatibility=_text(fields.get("compatibility")),
        requires_tools=_names(_first((ours, theirs), "requires_tools")),
        fallback_for_tools=_names(_first((ours, theirs), "fallback_for_tools")),
        environment=_variables(fields),
        warnings=tuple(warnings),
    )


def _name(fields: Mapping[str, Any], folder: str, warnings: list[str]) -> str:
    given = _text(fields.get("name"))
    if _NAME.fullmatch(given) and len(given) <= MOST_NAME:
        return given
    plain = slug(given) or slug(folder)
    if plain:
        said = f"its name {given[:MOST_NAME]!r} is not allowed" if given else "it has no name"
        warnings.append(f"{said}; it is known as {plain!r}")
    return plain


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
    return "" if value is None or isinstance(value, dict | list | bool) else str(value).strip()


def _texts(value: Any, separator: str = "\n") -> tuple[str, ...]:
    """Return one text, or a list of texts, without blanks and repetitions."""
    if isinstance(value, str):
        value = re.split(f"[{separator}]", value)
    if not isinstance(value, list):
        return ()
    pairs = (  # YAML reads `- Never: do this` as a mapping
        "; ".join(f"{key}: {_text(inner)}" for key, inner in item.items()) if isinstance(item, dict) else _text(item)
        for item in value
    )
    items = (" ".join(text.split()) for text in pairs)
    return tuple(dict.fromkeys(item for item in items if item))


def _names(value: Any) -> tuple[str, ...]:
    return _texts(value, ",;\n")


def _version(value: Any, warnings: list[str]) -> int | None:
    number = int(value[:18]) if isinstance(value, str) and value.isascii() and value.isdigit() else value
    if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
        return number
    if value is not None:
        warnings.append(f"its integer version {str(value)[:40]!r} is not a whole number (0, 1, 2, …)")
    return None


def _variables(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the environment variables that must be set; those marked optional need not be."""
    found: list[str] = []
    listed = (fields.get("required_environment_variables"), _mapping(fields.get("prerequisites")).get("env_vars"))
    for item in (each for value in listed for each in (value if isinstance(value, list) else [value])):
        if isinstance(item, dict) and (item.get("optional") is True or item.get("required") is False):
            continue
        name = (item.get("name") or item.get("env_var")) if isinstance(item, dict) else item
        if isinstance(name, str) and _IDENTIFIER.fullmatch(name.strip()):
            found.append(name.strip())
    return tuple(dict.fromkeys(found))


def _parameters(ours: Mapping[str, Any], warnings: list[str]) -> tuple[Parameter, ...]:
    """Read `name: description`, `name: {description, required, default}`, or a list of such with their names inside."""
    required = _names(ours.get("required"))
    given = ours.get("parameters")
    pairs: list[tuple[Any, Any]] = list(given.items()) if isinstance(given, dict) else []
    listed = given if isinstance(given, list) else []
    pairs += [(item.get("name"), item) if isinstance(item, dict) else (item, None) for item in listed]
    pairs += [(name, None) for name in required if name not in {str(each) for each, _ in pairs}]
    found: dict[str, Parameter] = {}
    for name, about in pairs:
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
            warnings.append(f"a parameter's name {str(name)[:40]!r} is not allowed (letters, digits, _)")
            continue
        fields = _mapping(about)
        default = fields.get("default")
        if isinstance(default, bool):
            default = str(default).lower()
        found[name] = Parameter(
            name,
            " ".join((_text(fields.get("description")) if fields else _text(about)).split()),
            name in required or fields.get("required") is True,
            None if default is None or isinstance(default, dict | list) else str(default),
        )
    return tuple(found.values())


# ── checking: strict, because other programs have to read what we write ──

_CATEGORY = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(?:/[a-z0-9][a-z0-9._-]{0,63}){0,2}")
_RESERVED = {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10))}
_SEGMENT = re.compile(r"[^\x00-\x1f\x7f<>:\"|?*\\/]{1,128}")
SKIPPED_FOLDERS = frozenset(("node_modules", "venv", "env", "__pycache__", "site-packages", *SUPPORT_FOLDERS))
"""Folders in which no skills are looked for, besides those whose names begin with a dot."""


def name_problem(name: str) -> str:
    """Return why this cannot be the name of a new skill; empty if it can."""
    if not isinstance(name, str) or not name:
        return "A skill needs a name."
    if len(name) > MOST_NAME:
        return f"The name has {len(name)} characters; the limit is {MOST_NAME}."
    if not _NAME.fullmatch(name):
        allowed = "Use small letters, digits, dots, dashes and underscores; begin with a letter or a digit"
        return f"The name {name!r} is not allowed. {allowed}."
    taken = {*SKIPPED_FOLDERS, "dist", "build", "target"}
    if name in taken or name.partition(".")[0] in _RESERVED or name.endswith("."):
        return f"The name {name!r} is not allowed: other programs give folders of this name a meaning."
    return ""


def category_problem(category: str) -> str:
    """Return why this cannot be a category; empty if it can, or if there is none."""
    if not category:
        return ""
    if not _CATEGORY.fullmatch(category) or any(name_problem(part) for part in category.split("/")):
        return f"The category {category!r} is not allowed. Use small letters, digits and dashes, at most 3 levels."
    return ""


def content_problem(text: str, name: str) -> str:
    """Return why this cannot be written as the SKILL.md of `name`; empty if it can."""
    if problem := text_problem(text):
        return problem
    if "\x00" in text:
        return "The text holds null characters."
    head, _, closed = split(text)
    if head is None or not closed:
        return "A SKILL.md begins with front matter: a line of ---, name and description, a line of ---."
    skill = parse(text, name)
    if isinstance(skill, str):
        return f"The SKILL.md is not valid: {skill}."
    if skill.name != name:
        return f"The front matter must say name: {name}."
    return f"The SKILL.md is not valid: {skill.warnings[0]}." if skill.warnings else ""


def text_problem(text: str) -> str:
    """Return why a file of a skill cannot have this content; empty if it can."""
    if not isinstance(text, str):
        return "The content must be text."
    if len(text) > MOST_TEXT:
        return f"The text has {len(text):,} characters; the limit is {MOST_TEXT:,}. Move parts to references/."
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "The text holds halves of surrogate pairs, which cannot be stored."
    return ""


def file_problem(path: str) -> str:
    """Return why this cannot be a file beside a SKILL.md; empty if it can."""
    if not isinstance(path, str) or not path.strip():
        return "A path is needed, for example references/details.md."
    segments = path.split("/")
    outside = path.startswith(("/", "~")) or "\\" in path or re.match(r"[A-Za-z]:", path)
    if outside or any(segment in ("", ".", "..") for segment in segments):
        return f"{path!r} is not a path inside the skill."
    if segments[0] not in SUPPORT_FOLDERS or len(segments) < 2:
        return f"Put files of a skill under {', '.join(f'{name}/' for name in SUPPORT_FOLDERS)}, not at {path!r}."
    odd = (one[:1] == "." or one[-1:] in ". " or one.partition(".")[0].lower() in _RESERVED for one in segments)
    if len(segments) > 8 or any(odd) or not all(map(_SEGMENT.fullmatch, segments)):
        return f"{path!r} is not a name that every system can store."
    return ""


# ── writing ──


def compose(skill: Skill) -> str:
    """Return the SKILL.md of a skill, which `parse` reads as the same values."""
    ours = {
        "version": skill.version,
        "triggers": skill.triggers,
        "template": skill.template,
        "language": skill.language,
        "parameters": {
            each.name: each.description
            if each.default is None
            else {"description": each.description, "default": each.default}
            for each in skill.parameters
        },
        "required": skill.required,
        "dependencies": skill.dependencies,
        "pitfalls": skill.pitfalls,
    }
    theirs = {  # where other programs look for these
        "tags": skill.tags,
        "related_skills": skill.related,
        "requires_tools": skill.requires_tools,
        "fallback_for_tools": skill.fallback_for_tools,
    }
    head = {
        "name": skill.name,
        "description": skill.description,
        "version": skill.release,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "platforms": skill.platforms,
        "required_environment_variables": skill.environment,
        "metadata": _filled_in({"herma": _filled_in(ours), "hermes": _filled_in(theirs)}),
    }
    return f"---\n{_yaml_text(_filled_in(head))}---\n\n{skill.body.strip(chr(10))}\n"


def _filled_in(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that have a value."""
    return {key: value for key, value in fields.items() if value not in (None, "", (), {})}


def _yaml_text(value: dict[str, Any]) -> str:
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def written(item: Any) -> Any:
        if isinstance(item, dict):
            return {key: written(inner) for key, inner in item.items()}
        if isinstance(item, tuple):
            return [written(inner) for inner in item]
        return LiteralScalarString(item + "\n") if isinstance(item, str) and _fits_block(item) else item

    writer: Any = YAML()
    writer.width = 10**6
    writer.allow_unicode = True
    writer.indent(mapping=2, sequence=4, offset=2)
    stream = io.StringIO()
    writer.dump(written(value), stream)
    return stream.getvalue()


def _fits_block(text: str) -> bool:
    """Return whether YAML can hold a text of several lines as it is, without quotes."""
    lines = text.split("\n")
    plain = all(line.isprintable() and line == line.rstrip() for line in lines)
    return len(lines) > 1 and plain and bool(lines[0]) and not lines[0].startswith(" ") and bool(lines[-1])


_VERSION = re.compile(r"([ \t]+version:[ \t]*)(\d{1,15})([ \t]*\r?)")


def counted_up(text: str, version: int) -> str:
    """Return a SKILL.md with its integer version increased by 1, if it is still `version`; change nothing else."""
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
        match = _VERSION.fullmatch(line) if inside else None
        if match and int(match[2]) == version:
            lines[at] = f"{match[1]}{version + 1}{match[3]}"
            break
    return "\n".join(lines)


# ── patching ──

_PREVIEW = 1_200
_CONTEXT = 60
_MOST_PLACES = 1_000


class Patched(NamedTuple):
    """The text after a patch, None if nothing was replaced; in how many places the passage is; `loose` if it was found
    with other blanks. `previews`: the places if there are several, or the most similar part of the text if there is
    none."""

    text: str | None
    places: int
    loose: bool = False
    previews: tuple[str, ...] = ()


def patch(text: str, old: str, new: str, *, replace_all: bool = False) -> Patched:
    """Replace the one passage `old`, or all such passages. Keep the line ends of the text.

    A passage that is not there as it stands is looked for with any blanks for its blanks: models often get the
    indentation wrong.
    """
    if not old.strip():
        return Patched(None, 0, previews=(text[:_PREVIEW],))
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = (side.replace("\r\n", "\n").replace("\n", "\r\n") for side in (old, new))
    places = [(at, at + len(old)) for at in _occurrences(text, old)]
    loose = not places
    if loose:
        places = _loose_places(text, old)
        new = new.lstrip() if old[:1].isspace() else new  # the blanks around `old` stay in the text
        new = new.rstrip() if old[-1:].isspace() else new
    if not places:
        return Patched(None, 0, previews=(_most_similar(text, old),))
    if len(places) > 1 and not replace_all:
        previews = tuple(_context(text, start, end) for start, end in places[:5])
        return Patched(None, len(places), loose, previews)
    pieces, reached = [], 0
    for start, end in places:
        pieces += [text[reached:start], new]
        reached = end
    return Patched("".join([*pieces, text[reached:]]), len(places), loose)


def _occurrences(text: str, old: str) -> list[int]:
    found: list[int] = []
    at = text.find(old)
    while at >= 0 and len(found) < _MOST_PLACES:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def _loose_places(text: str, old: str) -> list[tuple[int, int]]:
    """Return where the words of `old` are in `text`, with any blanks between them. Linear in the text."""
    kept = [(character, at) for at, character in enumerate(text) if not character.isspace()]
    bare = "".join(character for character, _ in kept)
    wanted = "".join(old.split())
    found = []
    for at in _occurrences(bare, wanted):
        start, end = kept[at][1], kept[at + len(wanted) - 1][1] + 1
        if text[start:end].split() == old.split():  # `a b` is not `ab`
            found.append((start, end))
    return found


def _most_similar(text: str, old: str) -> str:
    """Return the text around the longest line of `old` that is in it, else its beginning."""
    lines = sorted((line.strip() for line in old.split("\n")), key=len, reverse=True)
    for line in lines[:20]:
        at = text.find(line) if len(line) > 3 else -1
        if at >= 0:
            start = max(0, at - _PREVIEW // 3)
            return text[start : start + _PREVIEW]
    return text[:_PREVIEW]


def _context(text: str, start: int, end: int) -> str:
    line = text.count("\n", 0, start) + 1
    piece = text[max(0, start - _CONTEXT) : min(len(text), start + min(end - start, _CONTEXT) + _CONTEXT)]
    return f"line {line}: …{' '.join(piece.split())}…"


# ── filling a template ──

_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_]*)\}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_COMMANDS = ("shell", "sh", "bash", "zsh", "ksh", "console", "terminal")
_PYTHON = ("python", "python3", "py")


class Filled(NamedTuple):
    """A filled template: values that it has no place for, and placeholders that are still open."""

    text: str
    unknown: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()


def fill(skill: Skill, values: Mapping[str, object]) -> Filled:
    """Return the skill's template with its parameters put in. Evaluate, look up and run nothing.

    A placeholder is `{name}` for a declared parameter or a given value. `${name}`, `{{name}}` and other braces stay as
    they are. Raise `UsageError` if a required value is missing, or if a value could be read as more than a value.
    """
    given = {name: value for name, value in values.items() if value is not None}
    defaults = {p.name: p.default for p in skill.parameters if p.default is not None}
    if missing := [name for name in skill.required if name not in given and name not in defaults]:
        names = ", ".join(missing)
        raise UsageError(f"The template of {skill.name} needs a value for {names}.", hint=f"Give: {names}.")

    language = skill.language.strip().lower()
    calls = not language and any(mark in skill.template for mark in "([")  # perhaps Python or JSON

    def put(match: re.Match[str]) -> str:
        name = match[1]
        if name not in given:
            return defaults.get(name, match[0])  # a default is the author's own code
        text = str(given[name])
        if isinstance(given[name], bool) and not (language in _PYTHON or calls):
            text = text.lower()
        if problem := _unsafe(text, language, calls=calls):
            raise UsageError(
                f"The value for {name} cannot be put in safely: {problem}.",
                hint="Use letters, digits and _ @ % + : . / - there, or put it in yourself.",
            )
        return text

    text = _PLACEHOLDER.sub(put, skill.template)
    there = tuple(dict.fromkeys(_PLACEHOLDER.findall(skill.template)))
    declared = {p.name for p in skill.parameters}
    unknown = tuple(name for name in given if name not in declared and name not in there)
    left_open = tuple(name for name in there if name in declared and name not in given and name not in defaults)
    return Filled(text, unknown, left_open)


def _unsafe(text: str, language: str, *, calls: bool) -> str:
    """Return why a value cannot be put in; empty if it can. Prose takes every text without control characters."""
    if _CONTROL.search(text):
        return "it holds control characters"
    if language == "text":
        return ""
    if not text:
        return "it is empty"
    command = language in ("", *_COMMANDS)
    if command and text.startswith("-"):
        return "it begins with a dash, so a command may take it for an option"
    joins = (calls or not command) and ("," in text or "=" in text)  # it could add an argument
    return "it is more than plain characters" if joins or shlex.quote(text) != text else ""
