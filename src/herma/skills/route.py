"""Which skills fit a task, and whether any does. Pure, over skills as values.

Words: how much of the task's weight a skill's words cover (rare words weigh more; name, triggers and description more
than headings), and how much of one of its triggers the task says. Meaning: the cosine of an embedder, where
there is one. Both are numbers from 0 to 1; docs/explanation/skills.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from herma.skills.document import headings
from herma.skills.terms import Terms
from herma.types import Skill

_WEIGHTS = {"name": 3.0, "triggers": 3.0, "description": 2.0, "tags": 1.0, "headings": 0.6}
_LENGTH = {"name": 0.3, "triggers": 0.2, "description": 0.6, "tags": 0.3, "headings": 0.6}
"""How much a longer field dilutes its words."""
_SATURATION = 1.2
_COUNTED = 8
"""The weightiest words of a task that a skill has to cover; a long task need not be covered whole."""
_AT_LEAST = 1.5
"""Unknown words that a task counts as having at least: one word in common is little, however short the task is."""
_OTHERS = 25
"""Skills that are thought of as there besides: on a shelf of two, a word of both is still not a common word."""
_TRIGGER = 0.5
_MOST_TERMS = 200
_KNOWN_MODEL, _KNOWN_SCALE = "e5-small", (0.76, 0.90)
_ENOUGH = 20
_SPREADS = (2.0, 6.0)
"""How far above the middle of a shelf the nearest of it lies when it means nothing, and when it means the same."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for a skill: the words that it shares with the task, and the trigger that the task says."""

    words: float = 0.0
    trigger: float = 0.0
    said: str = ""
    shared: tuple[str, ...] = ()
    meaning: float | None = None
    cosine: float | None = None

    @property
    def wording(self) -> float:
        """What its words say: either the whole of it, or a trigger, is enough."""
        return 1 - (1 - self.words) * (1 - _TRIGGER * self.trigger**2)


class WordIndex:
    """Skills by their words. Built once for a set of skills; asking is a pass over the skills that share a word."""

    def __init__(self, skills: Sequence[Skill], terms: Terms) -> None:
        self._terms = terms
        self._skills = tuple(skills)
        fields = [self._fields(skill) for skill in self._skills]
        average = {name: max(1.0, sum(len(each[name]) for each in fields) / max(len(fields), 1)) for name in _WEIGHTS}
        self._known: Counter[str] = Counter()
        self._weights: dict[str, dict[int, float]] = {}
        for at, each in enumerate(fields):
            self._known.update({term for name in _WEIGHTS for term in each[name]})
            for term, weight in _weighted(each, average).items():
                self._weights.setdefault(term, {})[at] = weight
        self._triggers = [[(text, frozenset(terms.of(text))) for text in skill.triggers] for skill in self._skills]

    def evidence(self, task: str) -> dict[int, Evidence]:
        """For every skill that shares a word with the task: what speaks for it."""
        spelt = dict(reversed(self._terms.with_words(task)))
        said = list(dict.fromkeys(self._terms.of(task)))[:_MOST_TERMS]
        rarity = {term: self._rarity(term) for term in said}
        if not said:
            return {}
        whole = max(sum(sorted(rarity.values(), reverse=True)[:_COUNTED]), _AT_LEAST * self._rarity(""))
        parts: dict[int, list[tuple[float, str]]] = {}
        for term in said:
            for at, weight in self._weights.get(term, {}).items():
                parts.setdefault(at, []).append((rarity[term] * weight / (weight + _SATURATION), spelt[term]))
        return {at: self._evidence(at, sorted(each, reverse=True), whole, set(said)) for at, each in parts.items()}

    @cached_property
    def share_with_triggers(self) -> float:
        return sum(bool(skill.triggers) for skill in self._skills) / max(len(self._skills), 1)

    @property
    def skills(self) -> tuple[Skill, ...]:
        return self._skills

    def _evidence(self, at: int, parts: list[tuple[float, str]], whole: float, said: set[str]) -> Evidence:
        covered = sum(weight for weight, _ in parts[:_COUNTED]) / whole
        trigger, text = max(
            (self._said(terms, said), text) for text, terms in self._triggers[at] or [("", frozenset())]
        )
        return Evidence(covered, trigger, text if trigger >= 0.5 else "", tuple(term for _, term in parts[:4]))

    def _said(self, trigger: frozenset[str], said: set[str]) -> float:
        """How much of a trigger the task says; one word alone is half a trigger."""
        whole = sum(map(self._rarity, trigger))
        if whole <= 0:
            return 0.0
        return sum(map(self._rarity, trigger & said)) / whole * min(1.0, len(trigger) / 2)

    def _rarity(self, term: str) -> float:
        known = self._known[term]
        return math.log(1 + (_OTHERS + len(self._skills) - known + 0.5) / (known + 0.5))

    def _fields(self, skill: Skill) -> dict[str, list[str]]:
        of = self._terms.of
        return {
            "name": of(skill.name.replace("-", " ").replace("_", " ")),
            "triggers": of("\n".join(skill.triggers)),
            "description": of(skill.description),
            "tags": of("\n".join(skill.tags)),
            "headings": of("\n".join(headings(skill.body))),
        }


def _weighted(fields: Mapping[str, Sequence[str]], average: Mapping[str, float]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for name, terms in fields.items():
        diluted = 1 - _LENGTH[name] + _LENGTH[name] * len(terms) / average[name]
        for term, count in Counter(terms).items():
            weights[term] = weights.get(term, 0.0) + _WEIGHTS[name] * count / diluted
    return weights


# ── meaning ──


@dataclass(frozen=True)
class Meanings:
    """Cosines of one task with skills, by path: all that are known, or the nearest."""

    cosines: Mapping[str, float]
    notes: tuple[str, ...] = ()
    model: str = ""

    @cached_property
    def scale(self) -> tuple[float, float] | None:
        """Which cosine means nothing, and which means the same. Models differ: those of e5 are known; of another model
        it is seen from how this task's cosines spread over the shelf, if that is long enough to tell."""
        if self.model.startswith(_KNOWN_MODEL):
            return _KNOWN_SCALE
        values = list(self.cosines.values())
        if len(values) < _ENOUGH:
            return None
        middle = sum(values) / len(values)
        spread = math.sqrt(sum((value - middle) ** 2 for value in values) / len(values))
        return (middle + _SPREADS[0] * spread, middle + _SPREADS[1] * spread) if spread > 0 else None

    def nearest(self, count: int) -> list[str]:
        return sorted(self.cosines, key=lambda path: (-self.cosines[path], path))[:count]


def text_for_meaning(skill: Skill) -> str:
    """What of a skill is embedded: its name, what it is for, and when to use it."""
    triggers = "; ".join(skill.triggers[:20])
    name = skill.name.replace("-", " ").replace("_", " ")
    return f"{name}: {skill.description}" + (f"\nUse it for: {triggers}" if triggers else "")


def with_meaning(evidence: Evidence, meanings: Meanings, path: str) -> Evidence:
    """The evidence, with what the embedder says."""
    cosine = meanings.cosines.get(path)
    if (
        cosine is None or meanings.scale is None
    ):  # not embedded yet, or nobody knows what its cosine means: words decide
        return replace(evidence, cosine=cosine)
    unrelated, same = meanings.scale
    return replace(evidence, cosine=cosine, meaning=min(1.0, max(0.0, (cosine - unrelated) / (same - unrelated))))


@dataclass(frozen=True, slots=True)
class Bar:
    """How good the best has to be for anything to be offered. A skill that names its triggers is held to them; one
    that does not, to more on a shelf whose skills do (`without`) than on one whose skills do not (`bare`)."""

    with_triggers: float
    without: float
    bare: float

    def of(self, skill: Skill, share: float) -> float:
        """`share`: the part of the shelf's skills that name triggers."""
        if skill.triggers:
            return self.with_triggers
        return self.bare + (self.without - self.bare) * min(1.0, share / _MANY_TRIGGERS)


WORDS_ONLY = Bar(with_triggers=0.40, without=0.29, bare=0.18)
WITH_MEANING = Bar(with_triggers=0.37, without=0.28, bare=0.18)
_MANY_TRIGGERS = 0.15
_MEANING_SHARE = 0.25


def similarity(evidence: Evidence) -> float:
    """From 0 to 1: words and meaning together, or words alone."""
    if evidence.meaning is None:
        return evidence.wording
    return (1 - _MEANING_SHARE) * evidence.wording + _MEANING_SHARE * evidence.meaning


def reasons(evidence: Evidence) -> tuple[str, ...]:
    """Why a skill was found, in words."""
    said = []
    if evidence.said:
        said.append(f"the task says its trigger “{evidence.said}”")
    if evidence.shared:
        said.append(f"shares the words {', '.join(evidence.shared)}")
    if evidence.cosine is not None:
        said.append(f"near in meaning ({evidence.cosine:.2f})")
    return tuple(said)
