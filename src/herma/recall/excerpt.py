"""The sentences of a message that matter for a question, on one line. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Sequence

from herma.recall.match import Unit, fold, legible
from herma.recall.snippet import matches

LONGEST = 280
READ = 20_000
"""Characters of a message that are looked at."""
_END = re.compile(r"[.!?…](?=\s)|[。！？]|\n")


def excerpt(text: str, units: Sequence[Unit], longest: int = LONGEST) -> str:
    """The sentence with the most of what is asked for, and as many of those after and before it as there is room."""
    text = legible(text[:READ])
    spans = _sentences(text)
    if not spans:
        return ""
    places = matches(text, fold(text), units)
    found: list[set[str]] = [set() for _ in spans]
    at = 0
    for (start, _), name in places:
        while at + 1 < len(spans) and spans[at][1] <= start:
            at += 1
        found[at].add(name)
    best = max(range(len(spans)), key=lambda number: (len(found[number]), -number))
    start, end = spans[best]
    if end - start > longest:
        return _cut(text, spans[best], [place for place, _ in places if start <= place[0] < end], longest)
    first = last = best
    while last + 1 < len(spans) and spans[last + 1][1] - spans[first][0] <= longest:
        last += 1
    while first and spans[last][1] - spans[first - 1][0] <= longest:
        first -= 1
    dots = ("… " if first else "", " …" if last + 1 < len(spans) else "")
    return dots[0] + " ".join(text[spans[first][0] : spans[last][1]].split()) + dots[1]


def _sentences(text: str) -> list[tuple[int, int]]:
    """Where each sentence begins and ends, blank ones left out."""
    ends = [found.end() for found in _END.finditer(text)]
    if not ends or ends[-1] < len(text):
        ends.append(len(text))
    spans, start = [], 0
    for end in ends:
        if text[start:end].strip():
            spans.append((start, end))
        start = end
    return spans


def _cut(text: str, span: tuple[int, int], places: Sequence[tuple[int, int]], longest: int) -> str:
    """A part of a long sentence, round its first match."""
    start = max(span[0], min((places[0][0] if places else span[0]) - longest // 4, span[1] - longest))
    end = min(span[1], start + longest)
    dots = ("… " if start else "", " …" if end < len(text) else "")
    return dots[0] + " ".join(text[start:end].split()) + dots[1]
