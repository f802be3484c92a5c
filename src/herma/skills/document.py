"""SKILL.md: front matter (one YAML loader), body, compose, patch."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from herma.skills.types import SUPPORT_FOLDERS, Parameter, Skill, UnreadableSkill

# ---------- skills.frontmatter
#
# The YAML at the head of a SKILL.md. Pure.
#
# Most heads are a few plain lines, and a home may have hundreds of them, so those are read here; whatever is not
# certain to mean the same in YAML is left to ruamel.yaml, which takes a hundred times longer.

Value: TypeAlias = Any
"""What YAML can say: text, numbers, truth values, lists and mappings."""

_FENCE = re.compile(r"---[ \t]*")
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?: +(.*))?")
_PLAIN = re.compile(r"[A-Za-z(/.$][^\n]*")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,14})")
_RELEASE = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+.][A-Za-z0-9.]+)?")
_DIGITS_FIRST = re.compile(r"[0-9]+-?[A-Za-z][A-Za-z0-9 -]*")
_LETTERS_OF_NUMBERS = frozenset("0123456789 -eEoOxXbBtTzZaAcCdDfF")
_BLOCK = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*: ([|>])(-?)")
_SPECIAL = {"true": True, "false": False, "null": None, "~": None}
_DOUBTFUL = {*_SPECIAL, "yes", "no", "on", "off", "y", "n"}
_DEEPEST = 6
MOST_HEAD = 64_000
"""Characters of front matter that are read; more is no head."""


class BadFrontMatter(Exception):
    """The head cannot be understood; the text says why, for people."""


class _Line(NamedTuple):
    """A line that counts: how far it is indented, what it says, and the block of text that belongs to it."""

    indent: int
    text: str
    block: str | None


@dataclass(frozen=True, slots=True)
class Parts:
    """A document in its two parts. `closed` is False when the head has no end of its own."""

    head: str | None
    body: str
    closed: bool = True


def split(text: str) -> Parts:
    """Head and body. A byte order mark and any line ends are understood; nothing before the head but blank lines."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    start = next((at for at, line in enumerate(lines) if line.strip()), 0)
    if not _FENCE.fullmatch(lines[start]):
        return Parts(None, text)
    for at in range(start + 1, len(lines)):
        if _FENCE.fullmatch(lines[at]) or lines[at].rstrip() == "...":
            return Parts("\n".join(lines[start + 1 : at]), "\n".join(lines[at + 1 :]))
    return _unclosed(lines[start + 1 :])


def _unclosed(lines: list[str]) -> Parts:
    """The closing fence is missing: the head ends at the first blank line, or where the headings begin."""
    for at, line in enumerate(lines):
        if not line.strip() or line.startswith("# "):
            return Parts("\n".join(lines[:at]), "\n".join(lines[at:]), closed=False)
    return Parts("\n".join(lines), "", closed=False)


def read(head: str) -> tuple[dict[str, Value], str]:
    """The head as a mapping, and a warning when it had to be mended. Raises `BadFrontMatter`."""
    if len(head) > MOST_HEAD:
        raise BadFrontMatter(f"its front matter has {len(head):,} characters; {MOST_HEAD:,} are read")
    quick = _quick(head)
    if quick is not None:
        return quick, ""
    try:
        value = _thorough(head)
    except BadFrontMatter as exc:
        mended = _mended(head)
        if mended is None:
            raise
        return mended, f"its front matter is not YAML ({exc}); it was read line by line"
    if not isinstance(value, dict):
        raise BadFrontMatter("its front matter is not a list of keys and values")
    return {str(key): item for key, item in value.items()}, ""


def _thorough(head: str) -> Value:
    """What YAML says. Aliases share what they name, and nobody here walks through all of it, so that a small head that
    stands for a huge one costs nothing."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        loader: Any = YAML(typ="safe", pure=True)
        return loader.load(head)
    except (YAMLError, ValueError, TypeError, AttributeError, RecursionError) as exc:
        mark = getattr(exc, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark else ""
        raise BadFrontMatter(f"{where}{getattr(exc, 'problem', None) or str(exc).partition(chr(10))[0]}") from None


# ── plain heads ──


def _quick(head: str) -> dict[str, Value] | None:
    """The mapping, if every line is of a kind whose meaning is beyond doubt."""
    try:
        lines = list(_lines(head.split("\n")))
        value, at = _frontmatter_mapping(lines, 0, 0, 0)
    except _Doubt:
        return None
    return value if at == len(lines) else None


class _Doubt(Exception):
    """Not plain enough to be read here."""


def _lines(raw: list[str]) -> Iterator[_Line]:
    """The lines that count; a block of text is one with its key."""
    at = 0
    while at < len(raw):
        text = raw[at].rstrip()
        at += 1
        if not text or text.lstrip().startswith("#"):
            continue
        if "\t" in text or not text.isprintable():
            raise _Doubt
        indent = len(text) - len(text.lstrip())
        match = _BLOCK.fullmatch(text.lstrip())
        block = None
        if match:
            block, at = _frontmatter_block(raw, at, indent, folded=match[1] == ">", chopped=match[2] == "-")
        yield _Line(indent, text.lstrip(), block)


def _frontmatter_block(raw: list[str], at: int, indent: int, *, folded: bool, chopped: bool) -> tuple[str, int]:
    """A text of several lines below its key, and where it ends."""
    rows: list[str] = []
    while at < len(raw) and (not raw[at].strip() or _indent(raw[at]) > indent):
        rows.append(raw[at])
        at += 1
    ended = at < len(raw) or (bool(rows) and not rows[-1].strip())
    while rows and not rows[-1].strip():
        rows.pop()
    if not rows or not rows[0].strip():
        raise _Doubt
    base = _indent(rows[0])
    for row in rows:
        if "\t" in row or not row.isprintable() or row != row.rstrip() or (row and _indent(row) < base):
            raise _Doubt
        if folded and row and _indent(row) != base:
            raise _Doubt
    texts = [row[base:] for row in rows]
    value = _folded(texts) if folded else "\n".join(texts)
    return value + ("\n" if ended and not chopped else ""), at


def _folded(rows: list[str]) -> str:
    """Lines become one; an empty line is a line end."""
    value = rows[0]
    empty = 0
    for row in rows[1:]:
        if not row:
            empty += 1
            continue
        value += ("\n" * empty if empty else " ") + row
        empty = 0
    return value


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _frontmatter_mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, Value], int]:
    found: dict[str, Value] = {}
    if depth > _DEEPEST:
        raise _Doubt
    while at < len(lines) and lines[at].indent == indent:
        match = _KEY.fullmatch(lines[at].text)
        if not match or match[1] in found or match[1].lower() in _DOUBTFUL:
            raise _Doubt
        key, text, block = match[1], (match[2] or "").strip(), lines[at].block
        at += 1
        deeper = at < len(lines) and (
            lines[at].indent > indent or (lines[at].indent == indent and lines[at].text[:2] == "- ")
        )
        if text:
            if deeper:
                raise _Doubt  # a scalar that goes on
            found[key] = _scalar(text) if block is None else block
        elif not deeper:
            found[key] = None
        elif lines[at].text.startswith("- "):
            found[key], at = _sequence(lines, at, lines[at].indent)
        else:
            found[key], at = _frontmatter_mapping(lines, at, lines[at].indent, depth + 1)
    if at < len(lines) and lines[at].indent > indent:
        raise _Doubt
    return found, at


def _sequence(lines: list[_Line], at: int, indent: int) -> tuple[list[Value], int]:
    items = []
    while at < len(lines) and lines[at].indent == indent and lines[at].text.startswith("- "):
        text = lines[at].text[2:].strip()
        if _KEY.fullmatch(text) or text.startswith("- "):
            raise _Doubt
        items.append(_scalar(text))
        at += 1
    if at < len(lines) and lines[at].indent > indent:
        raise _Doubt
    return items, at


def _scalar(text: str) -> Value:
    if text[0] in "\"'":
        return _quoted(text)
    if text[0] == "[":
        return _flow(text)
    if text.lower() in _DOUBTFUL:
        if text in ("true", "false"):
            return _SPECIAL[text]
        raise _Doubt
    if _NUMBER.fullmatch(text):
        return int(text)
    if _RELEASE.fullmatch(text):
        return text
    plain = _PLAIN.fullmatch(text) or (_DIGITS_FIRST.fullmatch(text) and not _LETTERS_OF_NUMBERS.issuperset(text))
    if not plain or ": " in text or " #" in text or text.endswith(":"):
        raise _Doubt
    if re.fullmatch(r"\.(?:inf|nan|\d.*)", text.lower()):
        raise _Doubt
    return text


def _quoted(text: str) -> str:
    inner = text[1:-1]
    if len(text) < 2 or text[-1] != text[0] or text[0] in inner or "\\" in inner:
        raise _Doubt
    return inner


def _flow(text: str) -> list[Value]:
    inner = text[1:-1]
    if text[-1] != "]" or any(character in inner for character in "[]{}:#?\"'"):
        raise _Doubt
    return [_scalar(item.strip()) for item in inner.split(",")] if inner.strip() else []


# ── heads that are not YAML ──


def _mended(head: str) -> dict[str, Value] | None:
    """A head whose values hold what YAML would have quoted, a colon most often: one key a line, lists below it."""
    found: dict[str, Value] = {}
    key = ""
    for line in head.split("\n"):
        if not line.strip():
            continue
        match = _KEY.fullmatch(line.rstrip())
        if match:
            key = match[1]
            found[key] = _frontmatter_loosely((match[2] or "").strip())
        elif not key:
            return None
        elif line.lstrip().startswith("- "):
            item = _frontmatter_loosely(line.lstrip()[2:].strip())
            held = found[key] if isinstance(found[key], list) else [found[key]] if found[key] else []
            found[key] = [*held, item]
        elif line[0] in " \t" and isinstance(found[key], str):
            found[key] = f"{found[key]} {line.strip()}".strip()
        else:
            return None
    return found if isinstance(found.get("name"), str) or isinstance(found.get("description"), str) else None


def _frontmatter_loosely(text: str) -> Value:
    if text in ("|", ">", "|-", ">-"):
        return ""
    try:
        return _scalar(text) if text else ""
    except _Doubt:
        return text.strip("\"'") if text[0] in "\"'" and text[-1] == text[0] else text


# ---------- skills.document
#
# What a SKILL.md says. Tolerant: whatever a person or another program wrote is understood, or refused with the reason.
#
# Pure. The strict half, what may be written, is in `compose`.

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
    metadata = _document_mapping(head.get("metadata"))
    ours, theirs = _document_mapping(metadata.get("herma")), _document_mapping(metadata.get("hermes"))
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
        template=_document_block(ours.get("template")),
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


def _document_mapping(value: Any) -> Mapping[str, Any]:
    return {str(key): item for key, item in value.items()} if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    if value is None or isinstance(value, dict | list | bool):
        return ""
    return str(value).strip()


def _document_block(value: Any) -> str:
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
    prerequisites = _document_mapping(head.get("prerequisites"))
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
        fields = _document_mapping(about)
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


# ---------- skills.compose
#
# What may be written as a SKILL.md. Strict: other programs have to read it too. Pure.

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


# ---------- skills.patch
#
# Replacing one passage of a text. Pure.
#
# First as it stands; if it is nowhere, with any blanks for blanks, because models get indentation wrong more often than
# words. Either way it must be one place, unless all are meant.

PREVIEW = 1_200
_CONTEXT = 60
_MOST_PLACES = 1_000


@dataclass(frozen=True, slots=True)
class Patched:
    """The text after; `loose` when the passage was found only by its words."""

    text: str
    places: int
    loose: bool = False


@dataclass(frozen=True, slots=True)
class NoPlace:
    """The passage is nowhere; `preview` is the part of the text that comes nearest."""

    preview: str


@dataclass(frozen=True, slots=True)
class SeveralPlaces:
    """The passage is there more than once; `previews` shows each with what is round it."""

    count: int
    previews: tuple[str, ...]


def patch(text: str, old: str, new: str, *, replace_all: bool = False) -> Patched | NoPlace | SeveralPlaces:
    """`text` with `new` in the place of `old`. Lines end as they end in the text."""
    if not old.strip():
        return NoPlace(text[:PREVIEW])
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = (side.replace("\r\n", "\n").replace("\n", "\r\n") for side in (old, new))
    places = [(at, at + len(old)) for at in _occurrences(text, old)]
    loose = not places
    if loose:
        places = _patch_loosely(text, old)
        new = _without_edges(old, new)
    if not places:
        return NoPlace(_nearest(text, old))
    if len(places) > 1 and not replace_all:
        return SeveralPlaces(len(places), tuple(_round(text, start, end) for start, end in places[:5]))
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


def _patch_loosely(text: str, old: str) -> list[tuple[int, int]]:
    """Where the words of `old` stand in `text`, whatever is between them but blanks. Linear: blanks are taken out of
    both, and the way back to the places in `text` is kept."""
    kept = [(character, at) for at, character in enumerate(text) if not character.isspace()]
    bare = "".join(character for character, _ in kept)
    wanted = "".join(old.split())
    found = []
    for at in _occurrences(bare, wanted):
        start, end = kept[at][1], kept[at + len(wanted) - 1][1] + 1
        if _same_words(text[start:end], old):
            found.append((start, end))
    return found


def _without_edges(old: str, new: str) -> str:
    """Blanks round `old` are not part of what was found by its words, so those round `new` would be there twice."""
    new = new.lstrip() if old[:1].isspace() else new
    return new.rstrip() if old[-1:].isspace() else new


def _same_words(found: str, old: str) -> bool:
    """Blanks may differ, but not join or part words: `a b` is not `ab`."""
    return found.split() == old.split()


def _nearest(text: str, old: str) -> str:
    """The stretch of `text` round the longest line of `old` that is in it, else its beginning."""
    lines = sorted((line.strip() for line in old.split("\n")), key=len, reverse=True)
    for line in lines[:20]:
        at = text.find(line) if len(line) > 3 else -1
        if at >= 0:
            start = max(0, at - PREVIEW // 3)
            return text[start : start + PREVIEW]
    return text[:PREVIEW]


def _round(text: str, start: int, end: int) -> str:
    line = text.count("\n", 0, start) + 1
    piece = text[max(0, start - _CONTEXT) : min(len(text), start + min(end - start, _CONTEXT) + _CONTEXT)]
    return f"line {line}: …{' '.join(piece.split())}…"
