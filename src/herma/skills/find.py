"""Which skills fit a task."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, get_args

from herma.errors import UsageError
from herma.skills.document import headings
from herma.skills.types import FindMode, Skill, SkillMatch, SkillMatches, SkillOffer, SkillState, SkillUsage
from herma.text import Terms

if TYPE_CHECKING:
    from herma.skills.library import Catalogue


# ---------- skills.similar
#
# Whether a new skill says again what another says already. Pure.

_WORD = re.compile(r"[^\W_]{3,}")
_NAME_ALIKE = 88.0
_DESCRIPTION_ALIKE = 90.0
_WORDS_SHARED = 0.6
_BODY_SHARED = 0.8
_MOST_BODY = 40_000


@dataclass(frozen=True, slots=True)
class Alike:
    """A skill that is nearly the same, and in what."""

    skill: Skill
    why: str
    degree: float


def alike(new: Skill, known: Iterable[Skill]) -> list[Alike]:
    """The skills that `new` nearly repeats, the nearest first."""
    from rapidfuzz import fuzz

    said, body = _words(new.description), _words(new.body[:_MOST_BODY])
    found = []
    for other in known:
        name = fuzz.ratio(_plain(new.name), _plain(other.name))
        shared = _overlap(said, _words(other.description))
        described = fuzz.token_sort_ratio(new.description, other.description) if shared >= 0.3 else 0.0
        if described >= _DESCRIPTION_ALIKE:
            found.append(Alike(other, "its description says nearly the same", described / 100))
        elif name >= _NAME_ALIKE and shared >= _WORDS_SHARED / 2:
            found.append(Alike(other, "its name and description are nearly the same", name / 100))
        elif len(body) >= 20 and _overlap(body, _words(other.body[:_MOST_BODY])) >= _BODY_SHARED:
            found.append(Alike(other, "its body says nearly the same", _BODY_SHARED))
        elif len(said) >= 6 and shared >= _WORDS_SHARED and name >= 60:
            found.append(Alike(other, "its name and description share most words", shared))
    return sorted(found, key=lambda each: (-each.degree, each.skill.path))


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", " ", name)


# ---------- skills.meaning
#
# What an embedder says of a task and of skills, on a scale from 0 to 1. Pure, over cosines as values.
#
# A skill is embedded as a whole and sentence by sentence: a task is often about one of the things that a description
# lists. docs/explanation/skills.md has the measurements behind the constants.

_KNOWN_MODEL, _KNOWN_SCALE = "e5-small", (0.77, 0.92)
_ENOUGH = 20
_SPREADS = (0.0, 10.0)
"""How far above the middle of a shelf the nearest of it lies when it means nothing, and when it means the same."""
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")
_LEAST, _MOST_SENTENCES = 16, 12
_PART = "\n"
"""Between the path of a skill and the number of a sentence: no path has a line end."""


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

    def of(self, path: str) -> float | None:
        """How near a skill is, from 0 to 1; None where nobody can say, and words decide."""
        cosine = self.cosines.get(path)
        if cosine is None or self.scale is None:
            return None
        unrelated, same = self.scale
        return min(1.0, max(0.0, (cosine - unrelated) / (same - unrelated)))


def opening(description: str) -> str:
    """The first sentence: it says what the skill is."""
    return _SENTENCE.split(description, maxsplit=1)[0]


def texts_for_meaning(skill: Skill) -> dict[str, str]:
    """What of a skill is embedded, by key: its name, what it is for and when to use it; and each sentence of that."""
    triggers = "; ".join(skill.triggers[:20])
    name = skill.name.replace("-", " ").replace("_", " ")
    whole = f"{name}: {skill.description}" + (f"\nUse it for: {triggers}" if triggers else "")
    sentences = [part for part in _SENTENCE.split(skill.description) if len(part) >= _LEAST]
    if len(sentences) < 2 and not triggers:
        return {skill.path: whole}
    parts = {f"{skill.path}{_PART}{n}": f"{name}: {part}" for n, part in enumerate(sentences[:_MOST_SENTENCES])}
    return {skill.path: whole, **parts}


def by_path(cosines: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Cosines of texts → of skills: half the whole, half the sentence that comes nearest."""
    whole: dict[str, float] = {}
    best: dict[str, float] = {}
    for key, cosine in cosines:
        path, _, sentence = key.partition(_PART)
        if sentence:
            best[path] = max(cosine, best.get(path, -1.0))
        else:
            whole[path] = cosine
    return {path: (cosine + best.get(path, cosine)) / 2 for path, cosine in whole.items()}


# ---------- skills.synonyms
#
# Words that people use for each other when they say what is to be done. General English; a weaker sign than the word
# itself, because none of them means quite the same. Pure.

WEIGHT = 0.45
"""What a word of the same meaning counts, where the word itself counts 1."""
_GROUPS = """
delete remove erase purge wipe drop discard destroy
cleanup clean tidy prune declutter
fix repair mend correct
mistake error wrong incorrect inaccurate false
bug defect fault crash
failure broken
check verify validate confirm test
audit review inspect examine assess
find search locate discover lookup
create make build generate produce
write draft compose author ghostwrite
edit modify change update revise rewrite
improve enhance optimize refine polish tighten
compress shrink reduce trim shorten minimize
large big huge bloated oversized
slow latency performance
fast quick speed
stuck wedged frozen stalled
timeout deadline
import ingest load
export dump extract
migrate move transfer port
convert transform
copy duplicate clone replicate
deduplicate dedupe duplicate redundant
save store keep preserve persist
archive backup preserve
restore recover rollback undo revert
organize arrange sort classify categorize file
folder directory path
file document doc
page note article
memo note message
audio voice sound speech recording
transcribe transcript transcription dictation
video film clip movie recording
picture image photo screenshot illustration
draw sketch diagram drawing
chart graph plot visualization
slide deck presentation powerpoint
spreadsheet excel sheet workbook
pdf printable print
publish release ship deploy launch
share distribute send deliver
email mail inbox
chat conversation dialogue discussion
meeting call standup interview
calendar schedule appointment
task todo chore errand
remind reminder alarm
daily today
weekly week
employee staff worker colleague
customer client user
company business organization firm
money cost price expense budget
cheap inexpensive affordable
expensive costly
invoice bill payment
salary compensation pay wage
secret credential password token key
private sensitive confidential personal privacy
scrub redact sanitize anonymize strip
security vulnerability exploit threat
book novel epub ebook
paper study research publication
academic scholarly scientific
claim assertion statement
cite citation reference bibliography
source origin provenance
hallucinate fabricate invent
summary summarize digest recap overview brief
report summary
newsletter blog feed rss
post tweet
news headline latest current
web internet online website site
url link hyperlink
scrape crawl fetch download
browser chrome firefox
code program script software
function method routine
debug troubleshoot diagnose investigate
cause reason
refactor restructure simplify
pattern theme trend
cluster group bucket
merge combine unify consolidate
split divide separate
concept idea thought notion
evolution history lineage
timeline chronology history
compare contrast difference
model llm
train training finetune
evaluate eval benchmark measure score
instruction prompt guideline
skill capability ability
install setup configure
setting configuration config preference
start begin run
stop kill cancel abort halt terminate
pause suspend
resume continue
job task process
parallel concurrent simultaneous
background async
pipeline workflow process
recurring cron periodic
bulk batch mass
translate translation language
grammar spelling typo proofread
style tone voice
learn study teach lesson
plan strategy roadmap
goal objective target
decide decision choose pick
design layout mockup
database sql db
api endpoint rest
server host backend
cloud aws gcp azure
git commit branch
issue ticket bug
remember memorize memory recall
label tag annotate
relationship relation connection
recipe cook meal food
fitness exercise workout
music song track
buy purchase order shop
travel trip flight hotel
phone mobile sms
complete finish done
missing absent gap
old stale outdated obsolete
new fresh recent
important significant valuable
"""


def related(terms: Terms) -> Mapping[str, Mapping[str, str]]:
    """Term → the terms that stand for nearly the same, each with a word that it stands for."""
    found: dict[str, dict[str, str]] = {}
    for line in _GROUPS.split("\n"):
        group = [pair for word in line.split() for pair in terms.with_words(word)]
        for term, _ in group:
            found.setdefault(term, {}).update({other: word for other, word in group if other != term})
    return found


# ---------- skills.route
#
# Which skills fit a task, and whether any does. Pure, over skills as values.
#
# Words: how much of the task's weight a skill's words cover (rare words weigh more; name, triggers and the opening of
# the description more than headings; a word of the same meaning counts less than the word), and how much of one of its
# triggers the task says. Meaning: the cosine of an embedder, where there is one. Both are numbers from 0 to 1;
# docs/explanation/skills.md has the measurements behind the constants.

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


# ---------- skills.score
#
# How much a skill is worth for a task: similarity × success rate + bounded frequency bonus − health penalty. Pure.


@dataclass(frozen=True, slots=True)
class Weights:
    """The defaults; docs/explanation/skills.md says why."""

    uses_for_one: float = 100.0
    """Uses that would make a bonus of 1, if it were not bounded."""
    most_bonus: float = 0.2
    penalties: tuple[tuple[SkillState, float], ...] = (("deprecated", 0.3),)
    virtual_successes: float = 1.0
    """Successes that a skill is thought to have had before its first use: it starts at 1.0, and its first failure makes
    it worth half, not nothing. benchmarks/skill_scores.py has the table."""


DEFAULT = Weights()
SCORE_NEW = SkillUsage("")


def score(similarity: float, usage: SkillUsage = SCORE_NEW, weights: Weights = DEFAULT) -> float:
    """Similarity is from 0 to 1. A skill of which nothing is known succeeds."""
    return similarity * success_rate(usage, weights) + bonus(usage, weights) - penalty(usage, weights)


def success_rate(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """How often it can be expected to work: 1.0 for a new one, and nearer to what was counted with every use."""
    before = max(weights.virtual_successes, 0.0)
    known = max(usage.successes, 0) + max(usage.failures, 0) + before
    return (max(usage.successes, 0) + before) / known if known else 1.0


def bonus(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For being used often."""
    return min(max(usage.uses, 0) / weights.uses_for_one, weights.most_bonus)


def penalty(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For a state that is not healthy."""
    return MappingProxyType(dict(weights.penalties)).get(usage.state, 0.0)


# ---------- skills.find
#
# Skills for a task: candidates from words and from meaning, fused, scored by how they did, or none at all.

NEW = SkillUsage("")
_LIMIT = 5
_WORTH = 0.35
"""What is not even this near, compared with the best, is no alternative to it."""
Nearest = Callable[[str, int], Meanings | None]
"""What an embedder says: task, number wanted → cosines by path; None where there is none."""


class SkillFinder:
    """Keeps the words of the skills it looked at last."""

    def __init__(self, catalogue: Catalogue, terms: Terms, nearest: Nearest | None = None) -> None:
        self._catalogue = catalogue
        self._terms = terms
        self._nearest = nearest
        self._index: tuple[str, WordIndex] | None = None

    def find(
        self, task: str, *, limit: int = _LIMIT, tools: Sequence[str] | None = None, mode: FindMode = "hybrid"
    ) -> SkillMatches:
        if not isinstance(task, str):
            raise UsageError(f"A task is text, not {type(task).__name__}.", hint='For example: find("fix the build").')
        if mode not in get_args(FindMode):
            raise UsageError(f"Nothing can be found by {mode!r}.", hint=f"One of: {', '.join(get_args(FindMode))}.")
        if limit < 1:
            raise UsageError("At least one skill must be wanted.", hint="Leave limit out for five.")
        shelf = self._catalogue.shelf()
        usage = self._catalogue.usage()
        offered = [skill for skill in shelf.skills if self._usable(skill, usage, tools)]
        if not offered:
            why = "there are no skills yet" if not shelf.skills else "no skill can be used here"
            return SkillMatches(task, abstained=why)
        index = self._words(shelf.stamp, offered)
        by_words = index.evidence(task) if mode != "vectors" else {}
        meanings = self._meanings(task, 2 * limit) if mode != "words" else None
        notes = meanings.notes if meanings is not None else ()
        found = self._candidates(index, by_words, meanings, 2 * limit)
        if not found:
            why = "no skill shares a word with the task" if mode != "vectors" else "nothing is embedded yet"
            return SkillMatches(task, abstained=why, notes=notes)
        if mode == "vectors":
            found = {at: as_meant(evidence) for at, evidence in found.items()}
        ranked = _ranked(index, found, usage)
        bar = MEANING_ONLY if mode == "vectors" else WITH_MEANING if meanings and meanings.scale else WORDS_ONLY
        if unsure := _too_far(ranked, limit, index, task, bar):
            return SkillMatches(task, abstained=unsure, nearest=tuple(ranked[:limit]), notes=notes)
        near = [match for match in ranked[:limit] if match.similarity >= _WORTH * ranked[0].similarity]
        return SkillMatches(task, matches=tuple(near), notes=notes)

    # ── steps ──

    def _usable(self, skill: Skill, usage: Mapping[str, SkillUsage], tools: Sequence[str] | None) -> bool:
        known = usage.get(skill.name)
        return (known is None or known.state != "archived") and self._catalogue.offer(skill, tools).offered

    def _meanings(self, task: str, count: int) -> Meanings | None:
        return self._nearest(task, count) if self._nearest is not None and task.strip() else None

    def _words(self, stamp: str, offered: Sequence[Skill]) -> WordIndex:
        key = f"{stamp} {len(offered)} {hash(tuple(skill.path for skill in offered))}"
        if self._index is None or self._index[0] != key:
            self._index = (key, WordIndex(offered, self._terms))
        return self._index[1]

    def _candidates(
        self, index: WordIndex, by_words: Mapping[int, Evidence], meanings: Meanings | None, count: int
    ) -> dict[int, Evidence]:
        """As many as wanted from each path; what one path has not seen is judged by it all the same."""
        best = sorted(by_words, key=lambda at: (-by_words[at].wording, at))[:count]
        if meanings is None:
            return {at: by_words[at] for at in best}
        places = {skill.path: at for at, skill in enumerate(index.skills)}
        nearest = [places[path] for path in meanings.nearest(count) if path in places]
        chosen = dict.fromkeys([*best, *nearest])
        return {at: with_meaning(by_words.get(at, Evidence()), meanings, index.skills[at].path) for at in chosen}


def _ranked(index: WordIndex, found: Mapping[int, Evidence], usage: Mapping[str, SkillUsage]) -> list[SkillMatch]:
    matches = []
    for at, evidence in found.items():
        skill = index.skills[at]
        near = similarity(evidence)
        worth = score(near, usage.get(skill.name, NEW))
        matches.append(SkillMatch(skill, round(worth, 4), round(near, 4), reasons(evidence)))
    return sorted(matches, key=lambda match: (-match.score, -match.similarity, match.skill.path))


def _too_far(ranked: Sequence[SkillMatch], limit: int, index: WordIndex, task: str, bar: Bar) -> str:
    """Why nothing is offered; empty when something is near enough."""
    said = len(index.said(task))
    by_nearness = sorted(ranked, key=lambda match: -match.similarity)
    nearest = by_nearness[0]
    next_best = next((match.similarity for match in by_nearness if match.name != nearest.name), 0.0)

    def short_of(match: SkillMatch) -> tuple[float, float]:
        lead = match.similarity - next_best if match is nearest else 0.0
        return sureness(match.skill, match.similarity, lead, said), bar.of(match.skill, index.share_with_triggers)

    if any(sure >= needed for sure, needed in map(short_of, ranked[:limit])):
        return ""
    sure, needed = short_of(ranked[0])
    return f"no skill is near enough: {ranked[0].name} comes nearest, sure to {sure:.2f}, and {needed:.2f} is needed"


# ---------- skills.offer
#
# Whether a skill can be used here: on this system, with these tools, with these variables set. Pure.

_NAMES = {"linux": "linux", "darwin": "macos", "win32": "windows", "cygwin": "windows"}


def this_platform(system: str = sys.platform) -> str:
    """This system as skills name it."""
    return _NAMES.get(system, system)


def offer(
    skill: Skill,
    platform: str,
    tools: Collection[str] | None,
    has_variable: Callable[[str], bool] = lambda _: True,
) -> SkillOffer:
    """Offered or not, with the reason. `tools` None means that nobody said which there are: none is missed then."""
    if skill.platforms and platform not in skill.platforms:
        return SkillOffer(False, f"it is for {_listed(skill.platforms)}, and this is {platform}")
    if tools is not None:
        missing = [tool for tool in skill.requires_tools if tool not in tools]
        if missing:
            return SkillOffer(False, f"it needs the tool {_listed(missing)}, which is not here")
        better = [tool for tool in skill.fallback_for_tools if tool in tools]
        if better:
            return SkillOffer(False, f"it stands in for {_listed(better)}, which is here")
    unset = tuple(name for name in skill.environment if not has_variable(name))
    reason = f"it needs {_listed(unset)}, which {'is' if len(unset) == 1 else 'are'} not set" if unset else ""
    return SkillOffer(True, reason, unset)


def _listed(names: Collection[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
