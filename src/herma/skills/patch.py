"""Replacing one passage of a text. Pure.

First as it stands; if it is nowhere, with any blanks for blanks, because models get indentation wrong more often than
words. Either way it must be one place, unless all are meant.
"""

from __future__ import annotations

from dataclasses import dataclass

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
        places = _loosely(text, old)
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


def _loosely(text: str, old: str) -> list[tuple[int, int]]:
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
