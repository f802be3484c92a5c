"""The format: entries separated by a line that holds nothing but `§`.

Whatever a person's editor did to the file (byte-order mark, CRLF, blank lines round the delimiter, a trailing
newline) is read as the same entries; `join(parse(text))` is the form we write. A `§` inside a line is data.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from herma.types import DELIMITER


def parse(text: str) -> list[str]:
    """Split a file's text into its entries."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    pieces = (_trim(piece) for piece in text.strip().split(DELIMITER))
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
    return content.replace("\r\n", "\n").replace("\r", "\n").strip()


def _trim(piece: str) -> str:
    """Strip blanks, and a delimiter line left dangling at the end, which would swallow the next entry when joined."""
    piece = piece.strip()
    while piece.endswith("\n§"):
        piece = piece[:-2].rstrip()
    return piece


def _has_lone_surrogate(content: str) -> bool:
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
