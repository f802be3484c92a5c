"""Which earlier tasks are like this one: terms, how much of them an episode covers, and two rankings made one. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from herma.episodes.phrases import folded

MOST_TERMS = 24
_WORD = re.compile(r"[^\W_]+")
_RUN = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+")
_STEADY = 10
"""How much the first place of a ranking is worth more than the second."""


@dataclass(frozen=True, slots=True)
class Language:
    """How words are read: what says nothing, and what is the same word."""

    empty: Collection[str] = frozenset()
    stem: Callable[[str], str] = str


def terms_of(text: str, language: Language) -> tuple[str, ...]:
    """What to look for: the steady beginning of each word that says something, pairs of characters of others."""
    found: dict[str, None] = {}
    said = folded(text[:4_000])
    for run in _RUN.findall(said):
        found.update((run[at : at + 2], None) for at in range(max(1, len(run) - 1)))
    for word in _WORD.findall(_RUN.sub(" ", said)):
        if word in language.empty or len(word) < 2:
            continue
        beginning = _shared(word, language.stem(word))
        found[beginning if len(beginning) >= 3 else word] = None
    return tuple(found)[:MOST_TERMS]


def _shared(word: str, stem: str) -> str:
    """What a word and its stem begin with: the part that stays in all its forms."""
    same = next((at for at, (one, other) in enumerate(zip(word, stem, strict=False)) if one != other), len(stem))
    return word[:same]


def coverage(matches: Sequence[tuple[int, int]], terms: Sequence[str], total: int) -> dict[int, float]:
    """Which share of the terms each episode has, rare terms counting for more. Between 0 and 1."""
    if not terms:
        return {}
    counts = [sum(bits >> at & 1 for _, bits in matches) for at in range(len(terms))]
    weights = [math.log(1 + (max(total, 1) - count + 0.5) / (count + 0.5)) if count else 0.0 for count in counts]
    unknown = math.log(1 + (max(total, 1) + 0.5) / 0.5)  # a term that no episode has is as telling as one can be
    whole = sum(weight or unknown / 2 for weight in weights)
    return {
        number: sum(weight for at, weight in enumerate(weights) if bits >> at & 1) / whole for number, bits in matches
    }


def fused(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    """Both rankings as one: by places, so that the scores of the two need not be comparable."""
    places: dict[int, float] = {}
    for ranking in (by_words, by_meaning):
        for place, number in enumerate(ranking):
            places[number] = places.get(number, 0.0) + 1.0 / (_STEADY + place)
    return sorted(places, key=lambda number: -places[number])


def ranked(scores: Mapping[int, float], limit: int) -> list[int]:
    """The best by score; among equals the newest."""
    return sorted(scores, key=lambda number: (-scores[number], -number))[:limit]
