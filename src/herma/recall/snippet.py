"""A line around the match, with the words that matched between `>>>` and `<<<`."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from herma.recall.match import MANY, Place, Unit, inside_names

LONGEST = 240
_BODY = 176
"""Characters of text; the rest of the line is for marks."""
_MARKS = (">>>", "<<<")


def snippet(text: str, places: Sequence[tuple[Place, str]], longest: int = LONGEST) -> str:
    """The part of the text with the most of what was looked for, on one line, of at most so many characters."""
    start, end = _window(text, [place for place, _ in places], [name for _, name in places], min(_BODY, longest))
    marked = _merged([place for place, _ in places if place[0] >= start and place[1] <= end])
    dots = ("…" if start else "", "…" if end < len(text) else "")
    body = _line(text[start:end])
    room = (longest - len(body) - 2) // len("".join(_MARKS))
    return dots[0] + _marked(text, start, end, marked[:room]).strip() + dots[1]


def matches(text: str, folded: str, units: Sequence[Unit]) -> list[tuple[Place, str]]:
    """Where units occur, in order, with their names; inside of identifiers where they do not stand on their own."""
    found, elsewhere = list[tuple[Place, str]](), list[Unit]()
    for unit in units:
        places = unit.find(folded, MANY) if unit.part in folded else []
        found += [(_with_marks(folded, place), unit.name) for place in places]
        if not places:
            elsewhere.append(unit)
    return sorted(found + inside_names(text, folded, elsewhere) if elsewhere else found)


def _with_marks(folded: str, place: Place) -> Place:
    """A letter is not cut off from the signs that belong to it, as vowels do in Hindi."""
    start, end = place
    while end < len(folded) and folded[end] > "\u02ff" and unicodedata.category(folded[end])[0] == "M":
        end += 1
    return start, end


def _window(text: str, places: Sequence[Place], names: Sequence[str], size: int) -> Place:
    """The stretch with the most different names in it (the first of equals), widened to whole words."""
    if not places:
        return 0, _back_to_space(text, size) if len(text) > size else len(text)
    best, best_worth = 0, (-1, -1)
    first = 0
    inside: dict[str, int] = {}
    for last, (_, end) in enumerate(places):
        inside[names[last]] = inside.get(names[last], 0) + 1
        while first < last and end - places[first][0] > size * 3 // 4:
            inside[names[first]] -= 1
            if not inside[names[first]]:
                del inside[names[first]]
            first += 1
        worth = (len(inside), last - first)
        if worth > best_worth:
            best, best_worth = first, worth
    start = max(0, min(places[best][0] - size // 6, len(text) - size))
    if start:
        start = _on_to_space(text, start, places[best][0])
    end = min(len(text), max(start + size, min(places[best][1], start + LONGEST)))
    return start, end if end == len(text) else max(_back_to_space(text, end), min(places[best][1], end))


def _back_to_space(text: str, end: int) -> int:
    """Before the word that `end` would cut in two, if it is not too long; scripts without spaces are cut anywhere."""
    if text[end].isspace() or text[end - 1].isspace():
        return end
    space = max(text.rfind(" ", end - 24, end), text.rfind("\n", end - 24, end))
    return space if space > 0 else end


def _on_to_space(text: str, start: int, latest: int) -> int:
    for at in range(start, min(start + 24, latest)):
        if text[at].isspace():
            return at + 1
    return start


def _merged(places: Sequence[Place]) -> list[Place]:
    """Overlapping and touching places as one."""
    merged: list[Place] = []
    for start, end in places:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _marked(text: str, start: int, end: int, places: Sequence[Place]) -> str:
    pieces = []
    at = start
    for first, last in places:
        pieces += [text[at:first], _MARKS[0], text[first:last], _MARKS[1]]
        at = last
    return _line("".join([*pieces, text[at:end]]))


def _line(text: str) -> str:
    return " ".join(text.split())
