"""Which skills fit a task, and whether any does. Pure, over skills as values.

Words: how much of the task's weight a skill's words cover (rare words weigh more; name, triggers and the opening of the
description more than headings; a word of the same meaning counts less than the word), and how much of one of its
triggers the task says. Meaning: the cosine of an embedder, where there is one. Both are numbers from 0 to 1;
docs/explanation/skills.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from herma.skills.document import headings
from herma.skills.meaning import Meanings, opening
from herma.skills.synonyms import WEIGHT, related
from herma.skills.terms import Terms
from herma.types import Skill

_WEIGHTS = {"name": 5.0, "triggers": 3.0, "opening": 1.0, "description": 2.0, "tags": 1.0, "headings": 0.6}
_LENGTH = {"name": 0.3, "triggers": 0.2, "opening": 0.5, "description": 0.3, "tags": 0.3, "headings": 0.6}
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
        self._related = related(terms)
        self._triggers = [
            [(text, frozenset(terms.of(text)), frozenset(terms.phrase(text))) for text in skill.triggers]
            for skill in self._skills
        ]
        self._names = [terms.phrase(skill.name) for skill in self._skills]

    def evidence(self, task: str) -> dict[int, Evidence]:
        """For every skill that shares a word with the task: what speaks for it."""
        spelt = dict(reversed(self._terms.with_words(task)))
        said = self.said(task)
        rarity = {term: self._rarity(term) for term in said}
        if not said:
            return {}
        whole = max(sum(sorted(rarity.values(), reverse=True)[:_COUNTED]), _AT_LEAST * self._rarity(""))
        parts: dict[int, list[tuple[float, str]]] = {}
        for term in said:
            for at, (weight, instead) in self._having(term, rarity[term]).items():
                word = f"{spelt[term]} ({instead})" if instead else spelt[term]
                parts.setdefault(at, []).append((weight, word))
        phrase = self._terms.phrase(task)
        return {
            at: self._evidence(at, sorted(each, reverse=True), whole, set(said), phrase) for at, each in parts.items()
        }

    def said(self, task: str) -> list[str]:
        """The terms of a task, each once."""
        return list(dict.fromkeys(self._terms.of(task)))[:_MOST_TERMS]

    @cached_property
    def share_with_triggers(self) -> float:
        return sum(bool(skill.triggers) for skill in self._skills) / max(len(self._skills), 1)

    @property
    def skills(self) -> tuple[Skill, ...]:
        return self._skills

    def _having(self, term: str, rarity: float) -> dict[int, tuple[float, str]]:
        """The skills that have a term, or else one of the same meaning: what it is worth there, and which it is."""
        found: dict[int, tuple[float, str]] = {}
        for other, word in ((term, ""), *self._related.get(term, {}).items()):
            worth = rarity if not word else WEIGHT * min(rarity, self._rarity(other))
            for at, weight in self._weights.get(other, {}).items():
                here = worth * weight / (weight + _SATURATION)
                if at not in found or here > found[at][0]:
                    found[at] = (here, word)
        return found

    def _evidence(
        self, at: int, parts: list[tuple[float, str]], whole: float, said: set[str], phrase: tuple[str, ...]
    ) -> Evidence:
        covered = sum(weight for weight, _ in parts[:_COUNTED]) / whole
        trigger, text = max(self._triggered(at, said, phrase), default=(0.0, ""))
        return Evidence(covered, trigger, text if trigger >= 0.5 else "", tuple(term for _, term in parts[:4]))

    def _triggered(self, at: int, said: set[str], phrase: tuple[str, ...]) -> Iterator[tuple[float, str]]:
        """How far the task says each trigger: of one with a single telling word, the little words count too ("put it on
        the server" is not said by whoever says "server"). Where a skill names none, its name is one, if said word for
        word."""
        for text, terms, words in self._triggers[at]:
            alone = len(words.intersection(phrase)) / len(words) if len(terms) == 1 else 1.0
            yield self._said(terms, said) * alone, text
        name = self._names[at]
        if not self._triggers[at] and len(name) > 1 and _within(name, phrase):
            yield 1.0, self._skills[at].name

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
            "opening": of(opening(skill.description)),
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


def _within(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    return any(whole[at : at + len(part)] == part for at in range(len(whole) - len(part) + 1))


# ── words and meaning together ──

_MEANING_SHARE = 0.32


def with_meaning(evidence: Evidence, meanings: Meanings, path: str) -> Evidence:
    """The evidence, with what the embedder says."""
    return replace(evidence, cosine=meanings.cosines.get(path), meaning=meanings.of(path))


def similarity(evidence: Evidence) -> float:
    """From 0 to 1: words and meaning together, or words alone."""
    if evidence.meaning is None:
        return evidence.wording
    return (1 - _MEANING_SHARE) * evidence.wording + _MEANING_SHARE * evidence.meaning


def as_meant(evidence: Evidence) -> Evidence:
    """What the embedder says, as if words had said as much: for asking it alone."""
    return replace(evidence, words=evidence.meaning or 0.0)


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


# ── whether any fits ──


@dataclass(frozen=True, slots=True)
class Bar:
    """How sure the best has to be for anything to be offered. A skill that names its triggers is held to them; one
    that does not, to more on a shelf whose skills do (`without`) than on one whose skills do not (`bare`)."""

    with_triggers: float
    without: float
    bare: float

    def of(self, skill: Skill, share: float) -> float:
        """`share`: the part of the shelf's skills that name triggers."""
        if skill.triggers:
            return self.with_triggers
        return self.bare + (self.without - self.bare) * min(1.0, share / _MANY_TRIGGERS)


WORDS_ONLY = Bar(with_triggers=0.47, without=0.50, bare=0.38)
WITH_MEANING = Bar(with_triggers=0.40, without=0.50, bare=0.38)
MEANING_ONLY = Bar(with_triggers=0.42, without=0.60, bare=0.50)
_MANY_TRIGGERS = 0.15
_MUCH_SAID = 0.2
_MOST_LEAD = 0.07
"""On a shelf of three the best leads by far, whatever is asked."""


def sureness(skill: Skill, similarity: float, lead: float, said: int) -> float:
    """How sure it is that a skill is meant: by how near it is, how far it leads over the next (one that stands out
    needs less than one of many), and how much the task says (a remark of two words is rarely a task). What a skill
    with triggers is for, they say themselves, and tasks that say them are short."""
    much = 0.0 if skill.triggers else _MUCH_SAID * min(said, _COUNTED) / _COUNTED
    return similarity + min(max(lead, 0.0), _MOST_LEAD) + much
