"""Rank candidates: by words, meaning, date, speaker and phrasing; then choose what is shown.

The index scores a message as a whole, by its words. A turn rarely says everything: the question names the thing, the
answer next to it has the fact. So a message also gets part of what its neighbours are worth, and a little for every
term that occurs anywhere in its conversation. Cosines are added, made relative to their best, so that neither
side has to be good for the other to count. The weights were chosen across sets of conversations, each time without the
set or conversation that was then asked (docs/explanation/search-quality.md); results change little between half and
twice of each.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple, Protocol

from herma.search.contradictions import Spoken, asks_for_the_past, latest_first, outdated
from herma.search.match import Unit, fold, of_word
from herma.search.query import AnswerOptions, Query
from herma.text import LazyPattern, stem
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.search.candidates import Candidates

# ── by words ──

BESIDE = 0.5
"""Weight of a neighbouring turn. 0.4 to 0.5 is best on LoCoMo and BEAM, and neutral without neighbours."""
NEAR = 0.2
"""Weight of the turn after the next: one more point on LoCoMo."""
CONVERSATION = 0.3
"""Weight of terms that occur elsewhere in the conversation; from 0.5 on, long conversations fill the list."""
NAMED_DATE, NAMED_PERIOD = 0.8, 0.4
"""Gain for the day or month that the query names; and for "last month", which is more often when something happened
than to its message. 2.5 points on LoCoMo, 20 on questions by date."""
SPEAKER = {"user": 0.15, "tool": -0.1}
"""Users tell facts, and assistants repeat them at length: 4 to 6 points on BEAM."""
_SATURATION, _LENGTH = 1.2, 0.75
_MOST_TIMES = 12
"""More occurrences of a word add next to nothing."""


@dataclass(slots=True)
class Candidate:
    """A message that may be shown, with what ranking needs of it. `found` is the index's score, 0 for a neighbour."""

    id: int
    group: str
    folded: str
    found: float = 0.0
    timestamp: float = 0.0
    bonus: float = 0.0
    before: int | None = None
    after: int | None = None
    shown: bool = True
    text: str = ""
    cut: bool = False
    """True if there is more text than ranking reads."""
    times: dict[str, int] | None = None
    """Occurrences of each unit in it, once they are counted."""
    weights: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    by_units: float = 0.0
    """The sum of `values`."""
    own: float = 0.0
    beside: float = 0.0
    around: float = 0.0
    meaning: float = 0.0
    score: float = 0.0


def rank(candidates: Sequence[Candidate], units: Sequence[Unit]) -> list[Candidate]:
    """Score every candidate by words; best first, newest first among equals. The best match alone has a score of 1."""
    if not candidates:
        return []
    weigh(candidates, units)
    worth = rarities(candidates)
    for one in candidates:
        if one.weights:
            one.values = {name: weight * worth[name] for name, weight in one.weights.items()}
            one.by_units = sum(one.values.values())
        one.own = one.found or one.by_units
    by_id = {one.id: one for one in candidates}
    around = _conversations(candidates)
    best = max(one.own for one in candidates) or 1.0
    for one in candidates:
        before, after = by_id.get(one.before or 0), by_id.get(one.after or 0)
        if before or after:
            further = by_id.get(before.before or 0) if before else None, by_id.get(after.after or 0) if after else None
            one.beside = (BESIDE * _both(before, after) + NEAR * _both(*further)) / best
        one.around = CONVERSATION * around[one.group] / best
        one.score = one.own / best + one.beside + one.around + one.bonus
    return _sorted(candidates)


def _sorted(candidates: Iterable[Candidate]) -> list[Candidate]:
    return sorted(candidates, key=lambda one: (-one.score, -one.timestamp, -one.id))


def look_for(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """Count how often each unit occurs in each candidate, if that is not known yet."""
    for one in candidates:
        if one.times is None:
            folded = one.folded
            one.times = {
                unit.name: times
                for unit in units
                if unit.part in folded and (times := len(unit.find(folded, _MOST_TIMES)))
            }


def weigh(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """Set BM25's weight of each unit in each candidate, without its rarity."""
    look_for(candidates, units)
    average = _average(candidates)
    for one in candidates:
        if one.times:
            norm = _norm(one, average)
            for name, times in one.times.items():
                one.weights[name] = times * (_SATURATION + 1) / (times + norm)


def _average(candidates: Sequence[Candidate]) -> float:
    return max(1.0, sum(len(one.folded) for one in candidates) / len(candidates))


def _norm(one: Candidate, average: float) -> float:
    return _SATURATION * (1 - _LENGTH + _LENGTH * len(one.folded) / average)


def rarities(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return what each unit is worth by its rarity among the candidates, in the scale of the index's scores."""
    having = Counter(name for one in candidates for name in one.weights)
    worth = {
        name: math.log(1 + (len(candidates) - count + 0.5) / (count + 0.5)) for name, count in sorted(having.items())
    }
    scored = [one for one in candidates if one.found > 0]
    total = sum(weight * worth[name] for one in scored for name, weight in one.weights.items())
    scale = sum(one.found for one in scored) / total if total else 1.0
    return {name: value * scale for name, value in worth.items()}


def _conversations(candidates: Sequence[Candidate]) -> dict[str, float]:
    """Return, for each conversation, its best match, plus what its other messages have beyond that, unit by unit."""
    members: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        members[one.group].append(one)
    around = {}
    for group, ones in members.items():
        best = ones[0] if len(ones) == 1 else max(ones, key=lambda one: one.own)
        around[group] = best.own + _together(ones) - best.by_units
    return around


def _both(one: Candidate | None, other: Candidate | None) -> float:
    """Return `_together` of two that may be missing: mostly at most one of them has any of the units."""
    if one is None or not one.values:
        return other.by_units if other is not None else 0.0
    if other is None or not other.values:
        return one.by_units
    return _together((one, other))


def _together(ones: Sequence[Candidate]) -> float:
    """Return the sum over units of the most that each is worth in any of these."""
    if len(ones) < 2:
        return ones[0].by_units if ones else 0.0
    most = dict(ones[0].values)
    for one in ones[1:]:
        for name, value in one.values.items():
            if value > most.get(name, 0.0):
                most[name] = value
    return sum(most.values())


# ── by meaning ──

NEAREST = 60
"""So many messages count as near; all others are equally far."""
MEANING = 0.8
"""Weight of being the nearest, where having the best words is worth 1."""
LEAST_SPREAD = 0.06
"""Cosines closer together than this do not tell which is nearer: few messages, or many alike."""
APART = 0.7
"""Share of a message's nearness to all others that is subtracted: short and general ones are near everything. One to
two points on LongMemEval, BEAM and LoCoMo each, between 0.5 and 0.85 alike."""
NEARER, MORE_OF_MANY = 1.0, 0.3
"""Standard deviations by which a message without any of the words must be nearer to the question than to all others: at
most, if others have the words; and for each doubling of what was compared, if none has, or for one single thing."""
FOREIGN = 0.5
"""Trust in meaning in Chinese, Japanese and Korean, or with an English model in another European language."""
KEYWORDS = 0.4
"""Trust in meaning for words without grammar between them: such a query means the words."""
ONE_THING = 0.5
"""Trust in meaning for one single thing."""
ROLE_WEIGHTS = {"assistant": 0.7}
"""An answer repeats the question, at length and in several parts, each of which may be near."""


def shares(near: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Turn cosines, best first, into shares: 1 for the nearest, 0 for the last of `NEAREST`."""
    kept = near[:NEAREST]
    if not kept:
        return {}
    best = kept[0][1]
    floor = min(kept[-1][1], best - LEAST_SPREAD)
    return {id_: (cosine - floor) / (best - floor) for id_, cosine in kept}


def near_enough(among: int, *, alone: bool) -> float:
    """Return by how many standard deviations a message without the words must be nearer than usual to be shown.

    `alone`: only nearness speaks for anything, and of many messages one is always near by chance.
    """
    least = MORE_OF_MANY * math.log2(max(1, among))
    return least if alone else min(NEARER, least)


def fuse(ranked: Sequence[Candidate], near: Mapping[int, float], trust: float = 1.0) -> list[Candidate]:
    """Add what meaning is worth to candidates that are scored by words."""
    if not near:
        return list(ranked)
    for one in ranked:
        one.meaning = trust * MEANING * near.get(one.id, 0.0)
        one.score += one.meaning
    return _sorted(ranked)


def by_cosine(candidates: Sequence[Candidate], cosines: Mapping[int, float]) -> list[Candidate]:
    """Return those that are near, nearest first, whatever their words."""
    near = [one for one in candidates if one.id in cosines and one.shown]
    for one in near:
        one.score = one.meaning = cosines[one.id]
    return _sorted(near)


# ── boosts ──

ALONE = 0.5
"""Weight of a single Chinese character, where a pair counts 1. 0.3 to 0.8 answer four to seven more of a thousand
questions first, in Chinese and in Japanese, in both halves of each."""
_CHARACTERS_SATURATION = 0.6
_CHARACTERS_READ = 2_000
_MOST_CHARACTERS = 32
_CHARACTER = LazyPattern("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def characters_of(query: Query) -> list[str]:
    """Return the Chinese characters of a question, each once; none if there is only one pair.

    The index has pairs of characters, and misses the same with other endings: 流れる物 and 流体, 继承 and 继任.
    """
    text = unicodedata.normalize("NFKC", "".join(term.text for term in query.any_of))
    found = list(dict.fromkeys(_CHARACTER.findall(text)))[:_MOST_CHARACTERS]
    return found if len(found) > 2 else []


def character_boost(characters: Sequence[str], candidates: Sequence[Candidate]) -> dict[int, float]:
    """Return what each candidate gains by single characters, or loses to those that have more.

    The best by pairs alone was 1, and the best by both is 1 again, so that everything else counts as before.
    """
    best = max((one.own for one in candidates), default=0.0)
    if not characters or best <= 0:
        return {}
    texts = [one.folded[:_CHARACTERS_READ] for one in candidates]
    average = max(1.0, sum(map(len, texts)) / len(texts))
    norms = [_CHARACTERS_SATURATION * (1 - _LENGTH + _LENGTH * len(text) / average) for text in texts]
    found = dict.fromkeys((one.id for one in candidates), 0.0)
    for character in characters:
        times = [text.count(character) for text in texts]
        having = len(times) - times.count(0)
        rarity = math.log(1 + (len(times) - having + 0.5) / (having + 0.5))
        for one, count, norm in zip(candidates, times, norms, strict=True):
            if count:
                found[one.id] += ALONE * rarity * count * (_CHARACTERS_SATURATION + 1) / (count + norm)
    most = max(one.own + found[one.id] for one in candidates)
    return {one.id: (one.own + found[one.id]) / most - one.own / best for one in candidates}


BY_THEMSELVES = 0.6
"""Gain of a message by a speaker that a question names: "What did Ann paint?" is mostly answered by Ann. Six points of
hit@1 on LoCoMo, on conversations that were not learned from."""
OF_ONESELF = 0.3
"""Gain of a user's message in the first person, if the question is about a person: four points there, one on BEAM."""
_LONGEST_NAME = 32
_BEGINNING = 500
"""Characters that are read for the first person: a longer message is about much else."""
_SELVES = (
    *(" i ", " i'", " i’", " my ", " we ", " we'", " we’", " our ", " ich ", " mein", " wir ", " unser"),
    *(" je ", " j'", " j’", " mon ", " ma ", " mes ", " nous ", " yo ", " mi ", " mis "),
)
_SELVES_EAST = ("我", "私", "僕", "俺", "저는", "나는", "우리")
_PERSON = re.compile(
    r"\b(?:[Ii]|[Mm]e|[Mm]y|[Mm]ine|[Ww]e|us|[Oo]ur|[Hh]e|him|[Hh]is|[Ss]he|[Hh]er|[Ii]ch|[Mm]eine?|[Ww]ir|[Jj]e|[Mm]on)\b"
    r"|\w\W{1,4}[A-Z]|我|私の|私は"
)
"""A pronoun, or a name: a capital that does not begin a sentence."""
_WORD = re.compile(r"[^\W_]+")


def speaker_boost(question: str, candidates: Sequence[Candidate], roles: Mapping[int, str]) -> dict[int, float]:
    """Return what candidates gain because of who speaks, and of whom."""
    about_person = _PERSON.search(question) is not None
    speakers = _speakers(candidates, fold(question))
    if not (about_person or speakers):
        return {}
    found = {}
    for one in candidates:
        gain = BY_THEMSELVES if one.id in speakers else 0.0
        if about_person and roles.get(one.id) == "user" and _is_of_oneself(" " + one.folded[:_BEGINNING]):
            gain += OF_ONESELF
        if gain:
            found[one.id] = gain
    return found


def _is_of_oneself(text: str) -> bool:
    for word in _SELVES:  # a loop: `any` takes twice as long, and this is asked of hundreds of messages
        if word in text:
            return True
    return not text.isascii() and any(word in text for word in _SELVES_EAST)


def _speakers(candidates: Sequence[Candidate], question: str) -> Collection[int]:
    """Return messages that begin with a name and a colon, if the question has that name and the conversation has others
    that begin so; a single "note:" is not a speaker.
    """
    said = [(one.id, one.group, name) for one in candidates if (name := _speaker(one.folded))]
    if not said:
        return ()
    words = set(_WORD.findall(question))
    asked = {
        name: bool(words & set(_WORD.findall(name)) if name.isascii() else name in question)
        for name in {name for _, _, name in said}
    }
    times = Counter((group, name) for _, group, name in said if asked[name])
    return {id_ for id_, group, name in said if times[group, name] > 1}


def _speaker(folded: str) -> str:
    """Return `ann` of "ann: i was there", or ""."""
    end = folded.find(":", 0, _LONGEST_NAME)
    if end < 0 and not folded[:_LONGEST_NAME].isascii():
        end = folded.find("：", 0, _LONGEST_NAME)
    name = folded[:end] if end > 1 else ""
    return name if name and name.replace(" ", "").isalpha() and name.count(" ") < 3 else ""


SIMILAR = 1.0
"""Weight of a similar word, times its similarity (0.55 to 1), where the word itself would count 1. From 0.6 to 1.3
much the same."""


def similar_word_boost(query: Query, candidates: Sequence[Candidate]) -> dict[int, float]:
    """Return what candidates gain by similar words ("kids" and "children", "spend" and "spent") for those they lack."""
    others: dict[str, list[tuple[Unit, float]]] = {}
    for term in query.any_of:
        # a name, capitalised inside the text, has no similar words
        if term.kind == "word" and (term.text[0].islower() or query.plain.startswith(term.text)):
            name = stem(fold(term.text))
            if words := _similar_words().get(name):
                others[name] = [(of_word(word), likeness) for word, likeness in words]
    best = max((one.own for one in candidates), default=0.0)
    if not others or best <= 0:
        return {}
    worth = {name: value / one.weights[name] for one in candidates for name, value in one.values.items()}
    usual = sum(worth.values()) / len(worth) if worth else 0.0
    average = _average(candidates)
    found = {}
    for one in candidates:
        total = 0.0
        for name, units in others.items():
            if name not in one.weights:
                total += worth.get(name, usual) * _similarity(units, one.folded)
        if total:
            found[one.id] = SIMILAR * total * (_SATURATION + 1) / (1 + _norm(one, average)) / best
    return found


def _similarity(words: Sequence[tuple[Unit, float]], folded: str) -> float:
    """Return how similar the most similar of these is that occurs; `words` come in that order."""
    for unit, likeness in words:
        if unit.part in folded and unit.find(folded, 1):
            return likeness
    return 0.0


@cache
def _similar_words() -> Mapping[str, Sequence[tuple[str, float]]]:
    """Return stem → words and how similar they are, most similar first. Read at the first search."""
    found = {}
    for line in resources.files(__package__).joinpath("alike.tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, _, words = line.partition("\t")
            pairs = [word.split() for word in words.split(",")]
            found[name] = [(word, int(hundredths) / 100) for word, hundredths in pairs]
    return found


STANDING = 0.3
"""Gain of a standing instruction ("always answer with metric units"): it is short and names little of its subject.
Ten points on BEAM's questions about such."""
_SHORT = 400
"""Characters of an instruction; a longer message is about something else too."""
_STANDING = re.compile(
    r"\W*(?:always|never|from now on|whenever|please (?:always|never|remember)|remember (?:to|that)|when i ask"
    r"|immer wenn|ab jetzt|ab sofort|toujours|dorénavant|siempre|a partir de ahora)\b"
    r"|\W*(?:从现在|從現在|今后|今後|以后|以後|每次|永远|永遠|务必|務必|请记住|請記住|必ず|これから|今後は|앞으로|항상)",
)


def lasting(folded: str) -> float:
    """Return what a user's message gains by its phrasing. `folded` is lower case."""
    return STANDING if len(folded) < _SHORT and _STANDING.match(folded) else 0.0


# ── a reranker, if the program has one ──

RERANKED = 20
"""Hits that are shown to it."""
READS = 2_000
"""Characters of each that it gets."""


class Reranker(Protocol):
    """Say how well each text answers the question. Only the order of its numbers matters.

    Herma has none; a program sets `h.reranker`. It has a deadline, and a failure leaves the order as it was.
    """

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]: ...


def opinion(reranker: Reranker, question: str, texts: Sequence[str], deadline: float) -> tuple[list[int], str]:
    """Ask for at most `deadline` seconds. → the places of the texts in its order, or a note that says why there is
    none.

    Texts that it finds equally good stay in their order.
    """
    given = [text[:READS] for text in texts]
    call = BackgroundCall("rerank", lambda: [float(score) for score in reranker.scores(question, given)]).start()
    try:
        scores = call.answer(deadline)
    except TimeoutError:
        return [], f"rerank: no answer within {deadline:g} s; the order is that of the search."
    except Exception as error:  # noqa: BLE001  a plugin may raise anything
        message = " ".join(str(error).split())[:200] or type(error).__name__
        return [], f"rerank: it failed ({message}); the order is that of the search."
    if len(scores) != len(texts) or not all(map(math.isfinite, scores)):
        return [], "rerank: it did not return one number for each text; the order is that of the search."
    return sorted(range(len(texts)), key=lambda at: -scores[at]), ""


# ── from a ranking to what is shown ──

LEAST_POOL = 20
"""Contradictions are looked for among so many, and among twice as many as are wanted."""
LOOKED_AT, READ_CLOSELY = 150, 100
"""Messages whose speakers are examined, and whose characters are: lower ones hardly reach the first ten."""
DEMOTED_SOURCES = frozenset(("cron",))
"""Shown after all others: an hourly job says the same things every hour."""


class Arranged(NamedTuple):
    """The hits to show, best first. `outdated`: message → the later one that contradicts it."""

    chosen: list[Candidate]
    outdated: dict[int, int]
    notes: list[str]


def postprocess(
    ranked: Sequence[Candidate],
    query: Query,
    wanted: AnswerOptions,
    found: Candidates,
    reranker: Reranker | None,
    deadline: float,
) -> Arranged:
    """Apply boosts and reranker, put the later of two claims first, and keep one hit of each session if asked."""
    chosen, contradicted, notes = list(ranked), dict[int, int](), list[str]()
    if wanted.sort:
        chosen.sort(key=lambda one: (one.timestamp, one.id), reverse=wanted.sort == "newest")
    elif query.any_of:
        if wanted.mode != "vectors":
            chosen = _boosted(chosen, query, found)
        if reranker is not None:
            first = chosen[:RERANKED]
            order, note = opinion(reranker, query.plain or query.text, [one.text for one in first], deadline)
            chosen[:RERANKED] = [first[at] for at in order] or first
            notes += [note] if note else []
        pool = chosen[: max(LEAST_POOL, 2 * wanted.limit)]
        contradicted = _outdated(pool, found)
        if contradicted and not asks_for_the_past(query.text):
            by_id = {one.id: one for one in pool}
            chosen[: len(pool)] = [by_id[id_] for id_ in latest_first(list(by_id), contradicted)]
    if wanted.level == "session":
        best: dict[str, Candidate] = {}
        for one in chosen:
            best.setdefault(one.group, one)
        chosen = list(best.values())
    chosen.sort(key=lambda one: found.sessions[found.heads[one.id].session_id].source in DEMOTED_SOURCES)
    return Arranged(chosen[: wanted.limit], contradicted, notes)


def _boosted(ranked: Sequence[Candidate], query: Query, found: Candidates) -> list[Candidate]:
    first = ranked[:LOOKED_AT]
    boosts = [character_boost(characters_of(query), first[:READ_CLOSELY])]
    if query.ignored:  # a sentence, not only words
        boosts.append(speaker_boost(query.plain, first, {one.id: found.heads[one.id].role for one in first}))
        boosts.append(similar_word_boost(query, first))
    for one in first:
        gain = sum(boost.get(one.id, 0.0) for boost in boosts)
        one.bonus += gain
        one.score += gain
    return _sorted(ranked)


def _outdated(pool: Sequence[Candidate], found: Candidates) -> dict[int, int]:
    spoken = []
    for one in pool:
        head = found.heads[one.id]
        if head.role in ("user", "assistant"):
            who = found.sessions[head.session_id].scope.user
            spoken.append(Spoken(one.id, one.folded, one.timestamp, who, head.role))
    return outdated(spoken)
