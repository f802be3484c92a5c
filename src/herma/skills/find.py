"""Find the skills that fit a task, by words and by meaning; score them by how they did; find near-duplicates.

docs/explanation/skills.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from herma.errors import UsageError
from herma.skills import KIND
from herma.skills.document import headings
from herma.skills.rows import (
    MergeCandidate,
    Skill,
    SkillMatch,
    SkillMatches,
    SkillOffer,
    SkillState,
    SkillUsage,
)
from herma.text import stemmed_terms, stemmed_words, terms_with_words

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.skills.library import SkillLibrary

_ALL = 20_000
_WORTH = 0.35
"""A skill whose similarity is below this part of the best one's is not offered."""


class SkillFinder:
    """Find skills for a task: candidates by words and by meaning, scored by how they did, or none at all."""

    def __init__(self, app: Herma, library: SkillLibrary) -> None:
        self._app = app
        self._library = library
        self._index: tuple[str, WordIndex] | None = None

    def find(self, task: str, *, limit: int, tools: Sequence[str] | None = None) -> SkillMatches:
        if limit < 1:
            raise UsageError(f"limit must be 1 or more, got {limit}.", hint="Leave it out for five.")
        listing, usage = self._library.listing(), self._library.usage()
        offered = self._library.usable(listing, usage, tools)
        if not offered:
            why = "there are no skills yet" if not listing.skills else "no skill can be used here"
            return SkillMatches(task, abstained=why)
        index = self._words(listing.stamp, offered)
        meanings = self._meanings(task)
        notes = meanings.notes if meanings is not None else ()
        found = _candidates(index, index.evidence(task), meanings, 2 * limit)
        if not found:
            return SkillMatches(task, abstained="no skill shares a word with the task", notes=notes)
        ranked = _ranked(index, found, usage)
        bar = WITH_MEANING if meanings and meanings.scale else WORDS_ONLY
        if unsure := _unsure(ranked, limit, index, task, bar):
            return SkillMatches(task, abstained=unsure, nearest=tuple(ranked[:limit]), notes=notes)
        near = [match for match in ranked[:limit] if match.similarity >= _WORTH * ranked[0].similarity]
        return SkillMatches(task, matches=tuple(near), notes=notes)

    def _meanings(self, task: str) -> Meanings | None:
        """Return the cosines of the task with skills; None without an embedder, or until all is embedded."""
        index = self._app.index.vectors if task.strip() else None
        state = index.state() if index is not None else None
        if index is None or state is None or not state.ready:
            return None
        found = index.near(task, _ALL, kinds=(KIND,))
        cosines = by_path((hit.key, hit.score) for hit in found.hits)
        return Meanings(cosines, cosine_scale(state.model, cosines.values()), found.notes) if cosines else None

    def _words(self, stamp: str, offered: Sequence[Skill]) -> WordIndex:
        key = f"{stamp} {len(offered)} {hash(tuple(skill.path for skill in offered))}"
        if self._index is None or self._index[0] != key:
            self._index = (key, WordIndex(offered))
        return self._index[1]


def _candidates(
    index: WordIndex, by_words: Mapping[int, SkillEvidence], meanings: Meanings | None, count: int
) -> dict[int, SkillEvidence]:
    """Return the best `count` by words and by meaning; each is judged by both."""
    best = sorted(by_words, key=lambda at: (-by_words[at].wording, at))[:count]
    if meanings is None:
        return {at: by_words[at] for at in best}
    places = {skill.path: at for at, skill in enumerate(index.skills)}
    by_cosine = sorted(meanings.cosines, key=lambda path: (-meanings.cosines[path], path))
    nearest = [places[path] for path in by_cosine[:count] if path in places]
    chosen = dict.fromkeys([*best, *nearest])
    return {at: with_meaning(by_words.get(at, SkillEvidence()), meanings, index.skills[at].path) for at in chosen}


def _ranked(index: WordIndex, found: Mapping[int, SkillEvidence], usage: Mapping[str, SkillUsage]) -> list[SkillMatch]:
    matches = []
    for at, evidence in found.items():
        skill = index.skills[at]
        near = similarity(evidence)
        worth = score(near, usage.get(skill.name, SkillUsage("")))
        matches.append(SkillMatch(skill, round(worth, 4), round(near, 4), reasons(evidence)))
    return sorted(matches, key=lambda match: (-match.score, -match.similarity, match.skill.path))


# ── words: how much of a task the words of a skill cover ──

_WEIGHTS = {"name": 5.0, "triggers": 3.0, "opening": 1.0, "description": 2.0, "tags": 1.0, "headings": 0.6}
_LENGTH = 0.3
"""Dilution of the words of a longer field."""
_SATURATION = 1.2
_COUNTED = 8
"""The rarest words of a task that a skill has to cover; a long task need not be covered whole."""
_AT_LEAST = 1.5
"""Unknown words that a task counts as having at least: one shared word is little, however short the task is."""
_OTHERS = 25
"""Skills that are assumed to be there besides: with two skills, a word of both is still not a common word."""
_TRIGGER = 0.5
_MOST_TERMS = 200
_SYNONYM = 0.45
"""Weight of a synonym, where the word itself counts 1."""


@dataclass(frozen=True, slots=True)
class SkillEvidence:
    """Why a skill may fit: the words that it shares with the task, the trigger that the task says, its cosine."""

    words: float = 0.0
    trigger: float = 0.0
    said: str = ""
    shared: tuple[str, ...] = ()
    meaning: float | None = None
    cosine: float | None = None

    @property
    def wording(self) -> float:
        """Words and trigger together: either of them, whole, is enough."""
        return 1 - (1 - self.words) * (1 - _TRIGGER * self.trigger**2)


class WordIndex:
    """Skills by their words. Build once for a set of skills; a query visits the skills that share a word."""

    def __init__(self, skills: Sequence[Skill]) -> None:
        self.skills = tuple(skills)
        fields = [self._fields(skill) for skill in self.skills]
        average = {name: max(1.0, sum(len(each[name]) for each in fields) / max(len(fields), 1)) for name in _WEIGHTS}
        self._known: Counter[str] = Counter()
        self._weights: dict[str, dict[int, float]] = {}
        for at, each in enumerate(fields):
            self._known.update({term for name in _WEIGHTS for term in each[name]})
            for term, weight in _weighted(each, average).items():
                self._weights.setdefault(term, {})[at] = weight
        self._synonyms = synonyms()
        self._triggers = [
            [(text, frozenset(stemmed_terms(text)), frozenset(stemmed_words(text))) for text in skill.triggers]
            for skill in self.skills
        ]

    @cached_property
    def share_with_triggers(self) -> float:
        return sum(bool(skill.triggers) for skill in self.skills) / max(len(self.skills), 1)

    def said(self, task: str) -> list[str]:
        """Return the terms of a task, each once."""
        return list(dict.fromkeys(stemmed_terms(task)))[:_MOST_TERMS]

    def evidence(self, task: str) -> dict[int, SkillEvidence]:
        """Return the evidence for every skill that shares a word with the task."""
        spelt = dict(reversed(terms_with_words(task)))
        said = self.said(task)
        rarity = {term: self._rarity(term) for term in said}
        if not said:
            return {}
        whole = max(sum(sorted(rarity.values(), reverse=True)[:_COUNTED]), _AT_LEAST * self._rarity(""))
        parts: dict[int, list[tuple[float, str]]] = {}
        for term in said:
            for at, (weight, instead) in self._with_term(term, rarity[term]).items():
                word = f"{spelt[term]} ({instead})" if instead else spelt[term]
                parts.setdefault(at, []).append((weight, word))
        phrase = stemmed_words(task)
        return {
            at: self._evidence(at, sorted(each, reverse=True), whole, set(said), phrase) for at, each in parts.items()
        }

    def _with_term(self, term: str, rarity: float) -> dict[int, tuple[float, str]]:
        """Return the skills that have a term, or else a synonym: its weight there, and which synonym."""
        found: dict[int, tuple[float, str]] = {}
        for other, word in ((term, ""), *self._synonyms.get(term, {}).items()):
            worth = rarity if not word else _SYNONYM * min(rarity, self._rarity(other))
            for at, weight in self._weights.get(other, {}).items():
                here = worth * weight / (weight + _SATURATION)
                if at not in found or here > found[at][0]:
                    found[at] = (here, word)
        return found

    def _evidence(
        self, at: int, parts: list[tuple[float, str]], whole: float, said: set[str], phrase: tuple[str, ...]
    ) -> SkillEvidence:
        covered = sum(weight for weight, _ in parts[:_COUNTED]) / whole
        trigger, text = max(self._triggered(at, said, phrase), default=(0.0, ""))
        return SkillEvidence(covered, trigger, text if trigger >= 0.5 else "", tuple(term for _, term in parts[:4]))

    def _triggered(self, at: int, said: set[str], phrase: tuple[str, ...]) -> Iterator[tuple[float, str]]:
        """Yield how much of each trigger the task says. If a trigger has one telling word, its stop words count too:
        "the server is down" does not say "put it on the server"."""
        for text, terms, words in self._triggers[at]:
            alone = len(words.intersection(phrase)) / len(words) if len(terms) == 1 else 1.0
            yield self._share_said(terms, said) * alone, text

    def _share_said(self, trigger: frozenset[str], said: set[str]) -> float:
        """Return how much of a trigger the task says; one word alone is half a trigger."""
        whole = sum(map(self._rarity, trigger))
        if whole <= 0:
            return 0.0
        return sum(map(self._rarity, trigger & said)) / whole * min(1.0, len(trigger) / 2)

    def _rarity(self, term: str) -> float:
        known = self._known[term]
        return math.log(1 + (_OTHERS + len(self.skills) - known + 0.5) / (known + 0.5))

    def _fields(self, skill: Skill) -> dict[str, list[str]]:
        of = stemmed_terms
        return {
            "name": of(skill.name.replace("-", " ").replace("_", " ")),
            "triggers": of("\n".join(skill.triggers)),
            "opening": of(opening(skill.description)),
            "description": of(skill.description),
            "tags": of("\n".join(skill.tags)),
            "headings": of("\n".join(headings(skill.body))),
        }


def synonyms() -> Mapping[str, Mapping[str, str]]:
    """Read synonyms.txt: term → the terms of its synonyms, each with the word that it stands for."""
    found: dict[str, dict[str, str]] = {}
    for line in resources.files(__package__).joinpath("synonyms.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        group = [pair for word in line.split() for pair in terms_with_words(word)]
        for term, _ in group:
            found.setdefault(term, {}).update({other: word for other, word in group if other != term})
    return found


def _weighted(fields: Mapping[str, Sequence[str]], average: Mapping[str, float]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for name, terms in fields.items():
        diluted = 1 - _LENGTH + _LENGTH * len(terms) / average[name]
        for term, count in Counter(terms).items():
            weights[term] = weights.get(term, 0.0) + _WEIGHTS[name] * count / diluted
    return weights


# ── meaning: cosines of an embedder, on a scale from 0 to 1 ──

_KNOWN_MODEL, _KNOWN_SCALE = "e5-small", (0.77, 0.92)
_ENOUGH = 20
_SPREAD = 10.0
"""Standard deviations above the mean at which a cosine counts as the same meaning."""
_MEANING_SHARE = 0.32
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")
_SHORTEST, _MOST_SENTENCES = 16, 12
_PART = "\n"
"""Stands between the path of a skill and the number of a sentence; no path has a line end."""


class Meanings(NamedTuple):
    """Cosines of one task with skills, by path: all that are known, or the nearest.

    `scale` is the cosine that means nothing, and the one that means the same; None if too few are known to say.
    """

    cosines: Mapping[str, float]
    scale: tuple[float, float] | None
    notes: tuple[str, ...] = ()


def cosine_scale(model: str, cosines: Collection[float]) -> tuple[float, float] | None:
    """Return the scale of a model's cosines: known for e5, else from how this task's cosines spread over all skills."""
    if model.startswith(_KNOWN_MODEL):
        return _KNOWN_SCALE
    if len(cosines) < _ENOUGH:
        return None
    mean = sum(cosines) / len(cosines)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in cosines) / len(cosines))
    return (mean, mean + _SPREAD * deviation) if deviation > 0 else None


def with_meaning(evidence: SkillEvidence, meanings: Meanings, path: str) -> SkillEvidence:
    """Return the evidence with what the embedder says of this skill, if it says anything."""
    cosine = meanings.cosines.get(path)
    if cosine is None or meanings.scale is None:
        return replace(evidence, cosine=cosine)
    unrelated, same = meanings.scale
    return replace(evidence, cosine=cosine, meaning=min(1.0, max(0.0, (cosine - unrelated) / (same - unrelated))))


def opening(description: str) -> str:
    """Return the first sentence: it says what the skill is."""
    return _SENTENCE.split(description, maxsplit=1)[0]


def texts_for_meaning(skill: Skill) -> dict[str, str]:
    """Return the texts of a skill that are embedded, by key: the whole, and each sentence of its description.

    A task is often about one of the things that a description lists.
    """
    triggers = "; ".join(skill.triggers[:20])
    name = skill.name.replace("-", " ").replace("_", " ")
    whole = f"{name}: {skill.description}" + (f"\nUse it for: {triggers}" if triggers else "")
    sentences = [part for part in _SENTENCE.split(skill.description) if len(part) >= _SHORTEST]
    if len(sentences) < 2 and not triggers:
        return {skill.path: whole}
    parts = {f"{skill.path}{_PART}{n}": f"{name}: {part}" for n, part in enumerate(sentences[:_MOST_SENTENCES])}
    return {skill.path: whole, **parts}


def by_path(cosines: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Turn cosines of texts into cosines of skills: half the whole, half the nearest sentence."""
    whole: dict[str, float] = {}
    best: dict[str, float] = {}
    for key, cosine in cosines:
        path, _, sentence = key.partition(_PART)
        if sentence:
            best[path] = max(cosine, best.get(path, -1.0))
        else:
            whole[path] = cosine
    return {path: (cosine + best.get(path, cosine)) / 2 for path, cosine in whole.items()}


def similarity(evidence: SkillEvidence) -> float:
    """Return words and meaning as one number from 0 to 1; words alone, if nothing is known of the meaning."""
    if evidence.meaning is None:
        return evidence.wording
    return (1 - _MEANING_SHARE) * evidence.wording + _MEANING_SHARE * evidence.meaning


def reasons(evidence: SkillEvidence) -> tuple[str, ...]:
    """Return why a skill was found, in words."""
    said = []
    if evidence.said:
        said.append(f"the task says its trigger “{evidence.said}”")
    if evidence.shared:
        said.append(f"shares the words {', '.join(evidence.shared)}")
    if evidence.cosine is not None:
        said.append(f"similar meaning ({evidence.cosine:.2f})")
    return tuple(said)


# ── whether any of them fits: no skill is better than a wrong one ──


class OfferThreshold(NamedTuple):
    """The score that the best must reach: of a skill with triggers, and of one without (`without` if other skills have
    triggers, `bare` if none has)."""

    with_triggers: float
    without: float
    bare: float

    def of(self, skill: Skill, share: float) -> float:
        """Return the threshold of a skill. `share`: the part of all skills that have triggers."""
        if skill.triggers:
            return self.with_triggers
        return self.bare + (self.without - self.bare) * min(1.0, share / _MANY_TRIGGERS)


WORDS_ONLY = OfferThreshold(with_triggers=0.47, without=0.50, bare=0.38)
WITH_MEANING = OfferThreshold(with_triggers=0.40, without=0.50, bare=0.38)
_MANY_TRIGGERS = 0.15
_MUCH_SAID = 0.2
_MOST_LEAD = 0.07
"""With three skills the best leads by far, whatever the task is."""


def sureness(skill: Skill, similarity: float, lead: float, said: int) -> float:
    """Return how sure it is that a skill is meant: its similarity, its lead over the next, and how much the task says
    (a remark of two words is rarely a task). The length does not count for a skill with triggers."""
    much = 0.0 if skill.triggers else _MUCH_SAID * min(said, _COUNTED) / _COUNTED
    return similarity + min(max(lead, 0.0), _MOST_LEAD) + much


def _unsure(ranked: Sequence[SkillMatch], limit: int, index: WordIndex, task: str, bar: OfferThreshold) -> str:
    """Return why nothing is offered; empty if something is."""
    said = len(index.said(task))
    by_similarity = sorted(ranked, key=lambda match: -match.similarity)
    nearest = by_similarity[0]
    next_best = next((match.similarity for match in by_similarity if match.name != nearest.name), 0.0)

    def sure_and_needed(match: SkillMatch) -> tuple[float, float]:
        lead = match.similarity - next_best if match is nearest else 0.0
        return sureness(match.skill, match.similarity, lead, said), bar.of(match.skill, index.share_with_triggers)

    if any(sure >= needed for sure, needed in map(sure_and_needed, ranked[:limit])):
        return ""
    sure, needed = sure_and_needed(ranked[0])
    return f"no skill is similar enough: the best is {ranked[0].name} with a score of {sure:.2f} of {needed:.2f}"


# ── scores: similarity × success rate + bonus for use − penalty for a bad state ──

_PENALTIES: dict[SkillState, float] = {"deprecated": 0.3}
_USES_FOR_ONE, _MOST_BONUS = 100.0, 0.2
"""Uses that would make a bonus of 1, and the highest bonus."""


def score(similarity: float, usage: SkillUsage, *, virtual_successes: float = 1.0) -> float:
    """Return how much a skill is worth for a task."""
    bonus = min(max(usage.uses, 0) / _USES_FOR_ONE, _MOST_BONUS)
    return similarity * success_rate(usage, virtual_successes) + bonus - _PENALTIES.get(usage.state, 0.0)


def success_rate(usage: SkillUsage, virtual_successes: float = 1.0) -> float:
    """Return how often a skill can be expected to work.

    A new skill starts with one virtual success, so that a single failure does not remove it from the ranking
    (benchmarks/skill_scores.py has the table).
    """
    known = max(usage.successes, 0) + max(usage.failures, 0) + virtual_successes
    return (max(usage.successes, 0) + virtual_successes) / known if known else 1.0


# ── offers: whether a skill can be used on this system, with these tools and variables ──


def this_platform(system: str = sys.platform) -> str:
    """Return this system as skills name it."""
    return {"darwin": "macos", "win32": "windows", "cygwin": "windows"}.get(system, system)


def offer(
    skill: Skill,
    platform: str,
    tools: Collection[str] | None,
    has_variable: Callable[[str], bool] = lambda _: True,
) -> SkillOffer:
    """Return whether a skill is offered, and why not. `tools` None: it is not known which there are; none is missed."""
    if skill.platforms and platform not in skill.platforms:
        return SkillOffer(False, f"it is for {_listed(skill.platforms)}, and this is {platform}")
    if tools is not None:
        missing = [tool for tool in skill.requires_tools if tool not in tools]
        if missing:
            return SkillOffer(False, f"it needs the tool {_listed(missing)}, which is not available")
        better = [tool for tool in skill.fallback_for_tools if tool in tools]
        if better:
            return SkillOffer(False, f"it replaces {_listed(better)}, which is available")
    unset = tuple(name for name in skill.environment if not has_variable(name))
    reason = f"it needs {_listed(unset)}, which {'is' if len(unset) == 1 else 'are'} not set" if unset else ""
    return SkillOffer(True, reason, unset)


def _listed(names: Collection[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


# ── near-duplicates ──

_WORD = re.compile(r"[^\W_]{3,}")
_NAME_ALIKE = 88.0
_DESCRIPTION_ALIKE = 90.0
_WORDS_SHARED = 0.6
_BODY_SHARED = 0.8
_MOST_BODY = 40_000
MOST_PAIRS = 50
"""Pairs that a report names."""
COMPARED = 1_500
"""Skills that are compared with each other: the work grows with the square."""


def alike(new: Skill, known: Iterable[Skill]) -> list[tuple[Skill, str, float]]:
    """Return the skills that `new` nearly repeats, with the reason and the degree, the most similar first."""
    words = _words_of(new)
    found = [(other, *same) for other in known if (same := _same(new, other, words, _words_of(other)))]
    return sorted(found, key=lambda each: (-each[2], each[0].path))


def merge_candidates(skills: Sequence[Skill], most: int = MOST_PAIRS) -> tuple[MergeCandidate, ...]:
    """Return pairs of skills that nearly repeat each other, the most similar first."""
    ordered = sorted(skills, key=lambda skill: (skill.name, skill.path))[:COMPARED]
    words = [_words_of(skill) for skill in ordered]
    found: dict[tuple[str, str], MergeCandidate] = {}
    for at, one in enumerate(ordered):
        for other in range(at + 1, len(ordered)):
            pair = (one.name, ordered[other].name)
            if pair[0] != pair[1] and (same := _same(one, ordered[other], words[at], words[other])):
                found.setdefault(pair, MergeCandidate(pair, same[0], round(same[1], 3)))
    return tuple(sorted(found.values(), key=lambda one: (-one.degree, one.skills)))[:most]


_SkillWords = tuple[frozenset[str], frozenset[str]]


def _words_of(skill: Skill) -> _SkillWords:
    """Return the words of the description, and of the body."""
    texts = (skill.description, skill.body[:_MOST_BODY])
    description, body = (frozenset(_WORD.findall(text.casefold())) for text in texts)
    return description, body


def _same(one: Skill, other: Skill, words: _SkillWords, others: _SkillWords) -> tuple[str, float] | None:
    """Return in what and how much two skills are the same, if they are."""
    shared = _overlap(words[0], others[0], 0.3)
    bodies = _overlap(words[1], others[1], _BODY_SHARED) if len(words[1]) >= 20 else 0.0
    if not shared and not bodies:
        return None
    from rapidfuzz import fuzz

    name = fuzz.ratio(_plain(one.name), _plain(other.name))
    described = fuzz.token_sort_ratio(one.description, other.description) if shared else 0.0
    if described >= _DESCRIPTION_ALIKE:
        return "its description says nearly the same", described / 100
    if name >= _NAME_ALIKE and shared:
        return "its name and description are nearly the same", name / 100
    if bodies:
        return "its body says nearly the same", _BODY_SHARED
    if len(words[0]) >= 6 and shared >= _WORDS_SHARED and name >= 60:
        return "its name and description share most words", shared
    return None


def _overlap(one: frozenset[str], other: frozenset[str], least: float) -> float:
    """Return the share of common words, 0 below `least`. The sizes alone often decide."""
    small, large = sorted((len(one), len(other)))
    if not small or small < least * large:
        return 0.0
    share = len(one & other) / len(one | other)
    return share if share >= least else 0.0


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", " ", name)
