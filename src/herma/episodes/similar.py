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


def terms_of(text: str, language: Language, most: int = MOST_TERMS) -> tuple[str, ...]:
    """What a text is found by: the stem of each word that says something, pairs of characters of other scripts."""
    found: dict[str, None] = {}
    said = folded(text[:4_000])
    for run in _RUN.findall(said):
        found.update((run[at : at + 2], None) for at in range(max(1, len(run) - 1)))
    for word in _WORD.findall(_RUN.sub(" ", said)):
        if word in language.empty or len(word) < 2:
            continue
        found[language.stem(word[:40])] = None
    return tuple(found)[:most]


def coverage(matches: Sequence[Sequence[int]], total: int) -> dict[int, float]:
    """Which share of the terms each episode has, rare terms counting for more. Between 0 and 1.

    `matches` has, for each term, the episodes that have it. A term that none has is as telling as one can be, and
    counts for half: the episode may say it in another word.
    """
    everything = max(total, 1)
    weights = [math.log(1 + (max(everything - len(have), 0) + 0.5) / (len(have) + 0.5)) for have in matches]
    whole = sum(weight if have else weight / 2 for weight, have in zip(weights, matches, strict=True))
    found: dict[int, float] = {}
    for weight, have in zip(weights, matches, strict=True):
        for number in have:
            found[number] = found.get(number, 0.0) + weight / whole
    return found


def fused(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    """Both rankings as one: by places, so that the scores of the two need not be comparable."""
    places: dict[int, float] = {}
    for ranking in (by_words, by_meaning):
        for place, number in enumerate(ranking):
            places[number] = places.get(number, 0.0) + 1.0 / (_STEADY + place)
    return sorted(places, key=lambda number: -places[number])


def ranked(scores: Mapping[int, float]) -> list[int]:
    """The best by score first; among equals the newest."""
    return sorted(scores, key=lambda number: (-scores[number], -number))
