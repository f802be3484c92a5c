"""Making entries out of a file somebody wrote otherwise:

ordinary Markdown, another encoding, one endless paragraph. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from herma.curated.entries import join, parse, unique

_DELIMITER_BYTES = re.compile(rb"\r?\n(?:\xc2\xa7|\xa7)[ \t]*\r?\n")
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(.*)$")
_FENCE = ("```", "~~~")
_SEPARATORS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])"),
    re.compile(r"\s+"),
)
_HOLE = 4
"""A damaged stretch stands for at most so many characters more than it has."""


def decode(raw: bytes, known: Sequence[str] = ()) -> str:
    """Bytes that are not UTF-8, read as well as they can be:

    UTF-16 with its mark; else entry by entry: an entry of `known` that it is a damaged copy of, else line by line
    UTF-8 or Windows-1252.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    pieces = _DELIMITER_BYTES.split(raw.removeprefix(b"\xef\xbb\xbf"))
    return join(_whole_of(piece, known) or "".join(map(_decode_line, piece.splitlines(True))) for piece in pieces)


def split(text: str, limit: int) -> list[str]:
    """Entries out of any text:

    by `§` where it has any, else by bullet with its heading as prefix; nothing longer than `limit`.
    """
    pieces = parse(text)
    if len(pieces) == 1:
        pieces = list(_by_bullet(pieces[0]))
    return unique(entry for piece in pieces for part in _shorten(piece, limit) for entry in parse(part))


def _whole_of(piece: bytes, known: Sequence[str]) -> str | None:
    """The known entry that this is a damaged copy of: the same in all that can be read, holes in between."""
    sound = piece.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    if "\ufffd" not in sound:
        return None
    return next((entry for entry in known if _fills(entry, re.split("\ufffd+", sound))), None)


def _fills(entry: str, parts: Sequence[str]) -> bool:
    """Whether `entry` is these parts in order, with short holes between them."""
    first, *middle, last = parts
    if not entry.startswith(first) or not entry.endswith(last) or not (first or last or any(middle)):
        return False
    position = len(first)
    for part in middle:
        position = entry.find(part, position, position + _HOLE + len(part))
        if position < 0:
            return False
        position += len(part)
    return 0 <= len(entry) - len(last) - position <= _HOLE


def _decode_line(line: bytes) -> str:
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def _heading(line: str) -> str | None:
    """The text of a Markdown heading, without the `#` that may close it."""
    opening = _HEADING.match(line)
    if opening is None:
        return None
    text = line[opening.end() :]
    bare = text.rstrip("#")
    return bare.rstrip() if bare[-1:].isspace() else text


def _by_bullet(text: str) -> Iterator[str]:
    """One entry per bullet or paragraph.

    Continuation lines, deeper bullets and code stay with theirs. Headings become prefixes; one with nothing of its
    own below it becomes an entry.
    """
    heading, current = "", ""
    in_bullet = fenced = spoken = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        fence = stripped.startswith(_FENCE)
        titled = None if fenced else _heading(stripped)
        bullet = None if fenced else _BULLET.match(line)
        continues = bool(current) and bool(stripped) and titled is None and not bullet
        if continues and (fenced or fence or not in_bullet or line[:1].isspace()):
            current += "\n" + line.rstrip()
            fenced ^= fence
            continue
        if current:
            yield current
            current = ""
        if titled is not None:
            if heading and not spoken:
                yield heading
            heading, in_bullet, spoken = titled, False, False
        elif stripped:
            in_bullet = bullet is not None
            body = bullet[1] if bullet else stripped
            current, spoken = f"{heading}: {body}" if heading else body, True
            fenced ^= fence
    if heading and not spoken:
        yield heading


def _shorten(piece: str, limit: int) -> Iterator[str]:
    """Cut at paragraphs, then lines, then sentences, then words, then anywhere, until every part fits."""
    if len(piece) <= limit:
        yield piece
        return
    for separator in _SEPARATORS:
        parts = [part for part in separator.split(piece.strip()) if part]
        if len(parts) > 1:
            glue = " " if separator is _SEPARATORS[-1] else "\n"
            for group in _pack(parts, limit, glue):
                yield from _shorten(group, limit)
            return
    for start in range(0, len(piece), limit):
        yield piece[start : start + limit]


def _pack(parts: Sequence[str], limit: int, glue: str) -> Iterator[str]:
    """Join neighbours as long as they fit, so that a long text does not fall into crumbs."""
    group: list[str] = []
    size = 0
    for part in parts:
        if group and size + len(glue) + len(part) > limit:
            yield glue.join(group)
            group, size = [], 0
        size += len(part) + (len(glue) if group else 0)
        group.append(part)
    if group:
        yield glue.join(group)
