"""The YAML at the head of a SKILL.md. Pure.

Most heads are a few plain lines, and a home may have hundreds of them, so those are read here; whatever is not
certain to mean the same in YAML is left to ruamel.yaml, which takes a hundred times longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

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
        value, at = _mapping(lines, 0, 0, 0)
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
            block, at = _block(raw, at, indent, folded=match[1] == ">", chopped=match[2] == "-")
        yield _Line(indent, text.lstrip(), block)


def _block(raw: list[str], at: int, indent: int, *, folded: bool, chopped: bool) -> tuple[str, int]:
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


def _mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, Value], int]:
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
            found[key], at = _mapping(lines, at, lines[at].indent, depth + 1)
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
            found[key] = _loosely((match[2] or "").strip())
        elif not key:
            return None
        elif line.lstrip().startswith("- "):
            item = _loosely(line.lstrip()[2:].strip())
            held = found[key] if isinstance(found[key], list) else [found[key]] if found[key] else []
            found[key] = [*held, item]
        elif line[0] in " \t" and isinstance(found[key], str):
            found[key] = f"{found[key]} {line.strip()}".strip()
        else:
            return None
    return found if isinstance(found.get("name"), str) or isinstance(found.get("description"), str) else None


def _loosely(text: str) -> Value:
    if text in ("|", ">", "|-", ">-"):
        return ""
    try:
        return _scalar(text) if text else ""
    except _Doubt:
        return text.strip("\"'") if text[0] in "\"'" and text[-1] == text[0] else text
