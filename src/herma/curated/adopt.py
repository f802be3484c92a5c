"""Making entries out of a file somebody wrote otherwise:

ordinary Markdown, another encoding, one endless paragraph. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from herma.curated.entries import parse, unique

_DELIMITER_BYTES = re.compile(rb"\r?\n(?:\xc2\xa7|\xa7)[ \t]*\r?\n")
_HEADING = re.compile(r"#{1,6}[ \t]+(.*?)[ \t]*#*$")
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(.*)$")
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])")
_RECOGNISABLE = 85.0


def decode(raw: bytes) -> str:
    """Bytes that are not UTF-8, read as well as they can be:

    UTF-16 with its mark, else piece by piece UTF-8 or Windows-1252.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    return "\n§\n".join(map(_decode_piece, _DELIMITER_BYTES.split(raw)))


def split(text: str, limit: int) -> list[str]:
    """Entries out of any text:

    by `§` where it has any, else by bullet with its heading as prefix; nothing longer than `limit`.
    """
    pieces = parse(text)
    if len(pieces) == 1:
        pieces = list(_by_bullet(pieces[0]))
    return unique(part for piece in pieces for part in _shorten(piece, limit))


def merge(pieces: Sequence[str], known: Sequence[str]) -> list[str]:
    """Where a piece is a damaged copy of an entry that the history knows, take the known one."""
    from rapidfuzz import fuzz, process

    merged = []
    for piece in pieces:
        best = process.extractOne(piece, known, scorer=fuzz.ratio, score_cutoff=_RECOGNISABLE) if known else None
        merged.append(best[0] if best else piece)
    return unique(merged)


def _decode_piece(piece: bytes) -> str:
    for encoding in ("utf-8-sig", "cp1252"):
        try:
            return piece.decode(encoding)
        except UnicodeDecodeError:
            continue
    return piece.decode("latin-1")


def _by_bullet(text: str) -> Iterator[str]:
    """One entry per bullet or paragraph.

    Continuation lines and deeper bullets stay with theirs; headings become prefixes.
    """
    heading, current = "", ""
    in_bullet = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        titled = _HEADING.match(stripped)
        bullet = _BULLET.match(line)
        continues = bool(current) and stripped and not titled and not bullet
        if continues and (not in_bullet or line[:1].isspace()):
            current += "\n" + line.rstrip()
            continue
        if current:
            yield current
            current = ""
        if titled:
            heading, in_bullet = titled[1], False
        elif stripped:
            in_bullet = bullet is not None
            body = bullet[1] if bullet else stripped
            current = f"{heading}: {body}" if heading else body


def _shorten(piece: str, limit: int) -> Iterator[str]:
    """Cut at paragraphs, then lines, then sentences, then anywhere, until every part fits."""
    if len(piece) <= limit:
        yield piece
        return
    for separator in (re.compile(r"\n\s*\n"), re.compile(r"\n"), _SENTENCE_END):
        parts = [part.strip() for part in separator.split(piece) if part.strip()]
        if len(parts) > 1:
            for group in _pack(parts, limit):
                yield from _shorten(group, limit)
            return
    for start in range(0, len(piece), limit):
        if part := piece[start : start + limit].strip():
            yield part


def _pack(parts: Sequence[str], limit: int) -> Iterator[str]:
    """Join neighbours as long as they fit, so that a long text does not fall into crumbs."""
    current = ""
    for part in parts:
        if current and len(current) + 1 + len(part) > limit:
            yield current
            current = part
        else:
            current = f"{current}\n{part}" if current else part
    if current:
        yield current
