"""The format: entries separated by a line that holds nothing but `§`.

Whatever a person's editor did to the file (byte-order mark, CRLF, blank lines round the delimiter, a trailing
newline) is read as the same entries; `join(parse(text))` is the form we write. A `§` inside a line is data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from herma.types import DELIMITER

_BLANK = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What `str.strip` takes off, and the byte-order mark, which the first entry of a file would lose when read."""


def parse(text: str) -> list[str]:
    """Split a file's text into its entries."""
    pieces = (_trim(piece) for piece in clean(text).split(DELIMITER))
    return [piece for piece in pieces if piece]


def join(entries: Iterable[str]) -> str:
    """The text we write for these entries: no trailing newline, as the original writes it."""
    return DELIMITER.join(entries)


def used(entries: Sequence[str]) -> int:
    """Characters of the joined text, delimiters included."""
    return sum(map(len, entries)) + len(DELIMITER) * max(0, len(entries) - 1)


def unique(entries: Iterable[str]) -> list[str]:
    """Drop word-for-word repetitions, keeping the first."""
    return list(dict.fromkeys(entries))


def unfit(content: str) -> str | None:
    """Why this text cannot be one entry, or None when it can. `content` is already stripped."""
    if not content:
        return "The entry is empty."
    if "§" in content and any(line.strip() == "§" for line in content.splitlines()):
        return "A line of its own with only `§` separates entries; add the parts as entries of their own."
    if "\x00" in content:
        return "The entry contains a NUL character."
    if not content.isprintable() and _has_lone_surrogate(content):
        return "The entry contains half of a surrogate pair, which is not text."
    return None


def clean(content: str) -> str:
    """A text as it will be stored: newlines unified, outer blanks gone."""
    return content.replace("\r\n", "\n").replace("\r", "\n").strip(_BLANK)


def _trim(piece: str) -> str:
    """Strip blanks, and delimiter lines left dangling at the end, which would swallow the next entry when joined."""
    piece = piece.strip(_BLANK)
    if not piece.endswith("\n§"):
        return piece
    end = len(piece)
    while piece.endswith("\n§", 0, end):
        end -= 2
        while end and piece[end - 1] in _BLANK:
            end -= 1
    return piece[:end]


def _has_lone_surrogate(content: str) -> bool:
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
