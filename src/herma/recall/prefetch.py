"""What past conversations hold that helps with what the user says now, found before the model is asked.

Within a deadline, and only what is worth its tokens: small talk recalls nothing. Never of the conversation at hand.
Every look is told in a `Prefetched`, also the one that found nothing, and why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from herma.ports import TextIndex, TranscriptReader
from herma.ports.vectors import VectorIndex
from herma.recall.asked import Mode
from herma.recall.excerpt import LONGEST, excerpt
from herma.recall.gather import terms_of
from herma.recall.match import Unit, fold, units
from herma.recall.outdated import latest_first
from herma.recall.plainly import Asked, plainly
from herma.recall.query import Query, parse
from herma.recall.search import Searcher
from herma.recall.stopwords import STOP_WORDS
from herma.recall.stripped import HAS_CJK
from herma.recall.window import Context, Line
from herma.recall.worth import CHATTER, Evidence, chance, model_for, question_of, rarity, stands_out, weigh
from herma.safety.scan import scan
from herma.types import Fact, Hit, Scope

Outcome: TypeAlias = Literal["recalled", "nothing", "no words", "late"]
LINES, CHARACTERS = 3, 1_200
"""What is told of past conversations in one turn, at most."""
LOOKED_AT = 6
"""Hits that are weighed."""
MOST_WORDS = 24
"""Words of a question whose rarity is looked up."""
SAMPLE = 96
"""Messages whose cosines say what is usual."""
READ = 8_000
PASSAGE, OFTEN = 600, 40
"""Characters within which words count together, and how many places of one word are looked at."""
_ANSWERED = " Answered: "
HEADING = "From earlier conversations, as it was said then; it may be out of date. session_search reads more."


@dataclass(frozen=True, slots=True)
class Weighed:
    """A hit, what speaks for it, how likely it helps, and the line that tells it; `told`: whether that was put in."""

    hit: Hit
    evidence: Evidence
    chance: float
    line: str = ""
    body: str = ""
    answer: int = 0
    """The message that answers this one, where the line has it too."""
    told: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Prefetched:
    """What was recalled for a turn, and how that came about."""

    text: str = ""
    outcome: Outcome = "nothing"
    weighed: tuple[Weighed, ...] = ()
    mode: str = "words"
    took_ms: float = 0.0
    notes: tuple[str, ...] = ()
    fact: Fact | None = None
    """The fact that the text plainly asks for."""


class Prefetcher:
    """Looks into the past conversations of one home. `warm` tells whether a question can be embedded at once."""

    def __init__(
        self,
        searcher: Searcher,
        reader: TranscriptReader,
        index: TextIndex,
        *,
        vectors: VectorIndex | None = None,
        warm: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._searcher = searcher
        self._reader = reader
        self._index = index
        self._vectors = vectors
        self._warm = warm
        self._clock = clock

    def look(
        self,
        text: str,
        *,
        scope: Scope | None = None,
        conversation: str | None = None,
        until: float | None = None,
        room: int = CHARACTERS,
        known: Callable[[], str] = lambda: "",
    ) -> Prefetched:
        """What to tell for this text. `until`, by `time.monotonic()`, is when it is of no use any more; `room` is how
        many characters it may take. `conversation` is the one at hand, `known` what the model has before it.
        """
        began = time.perf_counter()
        found = self._look(text, scope, conversation, until)
        if found.weighed and not _late(until):
            found = told(found, room, known)
        elif _late(until):
            found = replace(found, outcome="late")
        return replace(found, took_ms=round((time.perf_counter() - began) * 1000, 2))

    def _look(self, text: str, scope: Scope | None, conversation: str | None, until: float | None) -> Prefetched:
        asked = question_of(text)
        query = parse(asked, self._clock())
        telling = [term for term in query.any_of if term.text.casefold() not in STOP_WORDS]
        looked_for = [unit for unit in units(query) if unit.name not in CHATTER][:MOST_WORDS] if telling else []
        newest = self._reader.newest(1) if looked_for else ()
        if not looked_for or not newest:
            return Prefetched(outcome="no words" if not looked_for else "nothing")
        mode: Mode = "hybrid" if self._vectors is not None and self._warm() else "words"
        report = self._searcher.search(
            asked,
            limit=LOOKED_AT,
            level="message",
            scope=scope,
            current_session=conversation,
            role=("user", "assistant"),
            mode=mode,
        )
        past = [] if report.widened else [hit for hit in report.hits if hit.conversation != conversation]
        result = Prefetched(mode=report.mode, notes=report.notes)
        if not past or _late(until):
            return result
        said = self._said(query, looked_for)
        near = self._near(query, past, newest[0]) if report.mode == "hybrid" else {}
        contexts = self._searcher.in_context(past)
        home = _Home(looked_for, said, newest[0], plainly(text))
        weighed = [
            _weighed(hit, context, home, near.get(hit.message_id)) for hit, context in zip(past, contexts, strict=True)
        ]
        return replace(result, weighed=tuple(weighed))

    def _said(self, query: Query, looked_for: Sequence[Unit]) -> dict[str, int]:
        """In how many messages each word occurs."""
        wanted = {unit.name for unit in looked_for}
        said: dict[str, int] = {}
        for term in query.any_of:
            alone = replace(query, any_of=(term,), all_of=(), none_of=())
            for unit in units(alone):
                if unit.name in wanted and unit.name not in said:
                    pair = replace(term, text=unit.name) if HAS_CJK.search(unit.name) else term
                    said[unit.name] = self._index.find(terms_of(replace(alone, any_of=(pair,))), 1).matches
        return said

    def _near(self, query: Query, hits: Sequence[Hit], newest: int) -> Mapping[int, float]:
        """By how much the meaning of each hit stands out."""
        if self._vectors is None:
            return {}
        asked = " ".join(query.plain.split())
        sample = range(1, newest + 1, max(1, newest // SAMPLE))
        usual = list(self._vectors.scores(asked, list(sample)).values())
        cosines = self._vectors.scores(asked, [hit.message_id for hit in hits])
        above = {id_: stands_out(cosine, usual) for id_, cosine in cosines.items()}
        return {id_: value for id_, value in above.items() if value is not None}


def told(found: Prefetched, room: int = CHARACTERS, known: Callable[[], str] = lambda: "") -> Prefetched:
    """The same, with the lines that are worth it put together."""
    before: str | None = None
    lines: dict[str, str] = {}
    answers: set[int] = set()
    left = room - len(HEADING)
    judged = []
    overtakes = {one.hit.outdated_by for one in found.weighed if _is_worth_it(one)}
    for one in _in_order(found.weighed):
        why_not = ""
        if not _is_worth_it(one) and one.hit.message_id not in overtakes:
            why_not = "not relevant enough"
        elif len(lines) == LINES or len(one.line) + 1 > left:
            why_not = "no room"
        elif one.body in lines or one.hit.message_id in answers:
            why_not = "said already"
        elif _core(one.body) in (before := " ".join(known().split()) if before is None else before):
            why_not = "the model has it before it"
        elif scan(one.line):
            why_not = "the scanner objects to it"
        else:
            lines[one.body] = one.line
            answers.add(one.answer)
            left -= len(one.line) + 1
        judged.append(replace(one, told=not why_not, why_not=why_not))
    text = "\n".join([HEADING, *lines.values()]) if lines else ""
    return replace(found, text=text, outcome="recalled" if lines else "nothing", weighed=tuple(judged))


def _is_worth_it(one: Weighed) -> bool:
    return one.chance >= model_for(one.evidence).least


def _in_order(weighed: Sequence[Weighed]) -> list[Weighed]:
    """The likeliest to help first, and what says otherwise, later, before what it makes outdated."""
    by_id = {one.hit.message_id: one for one in sorted(weighed, key=lambda one: -one.chance)}
    outdated = {id_: one.hit.outdated_by for id_, one in by_id.items() if one.hit.outdated_by is not None}
    return [by_id[id_] for id_ in latest_first(list(by_id), outdated)]


@dataclass(frozen=True, slots=True)
class _Home:
    """What is asked, how, and in how many of how many messages each word of it was said."""

    looked_for: Sequence[Unit]
    said: Mapping[str, int]
    messages: int
    asked: Asked


def _weighed(hit: Hit, context: Context, home: _Home, near: float | None) -> Weighed:
    looked_for = home.looked_for
    lines = context.view.messages
    at = next((place for place, line in enumerate(lines) if line.anchor), None)
    if at is None:
        return Weighed(hit, Evidence(), 0.0)
    worth = {name: rarity(count, home.messages) for name, count in home.said.items()}
    own = _words_in(lines[at].text, looked_for, worth)
    beside = [line.text for line in (*lines[max(0, at - 1) : at], *lines[at + 1 : at + 2])]
    with_next = own.union(*(_words_in(text, looked_for, worth) for text in beside))
    evidence = weigh(own, with_next, home.said, home.messages, near, home.asked)
    body, answer = _body(lines, at, looked_for)
    return Weighed(hit, evidence, chance(evidence), _line(hit, context, body), body, answer)


def _words_in(text: str, looked_for: Sequence[Unit], worth: Mapping[str, float]) -> set[str]:
    """The words that a passage of the text has: where they tell the most. All of a long text has most words anyway."""
    folded = fold(text[:READ])
    places = sorted(
        (place[0], unit.name) for unit in looked_for if unit.part in folded for place in unit.find(folded, OFTEN)
    )
    inside: Counter[str] = Counter()
    best: set[str] = set()
    first, most = 0, 0.0
    for place, name in places:
        inside[name] += 1
        while place - places[first][0] > PASSAGE:
            inside[places[first][1]] -= 1
            first += 1
        here = {word for word, times in inside.items() if times}
        if (value := sum(worth.get(word, 0.0) for word in here)) > most:
            best, most = here, value
    return best


def _line(hit: Hit, context: Context, body: str) -> str:
    """When, in which conversation, who, what, and where more of it is. One item of a list, so that it is said once."""
    day = time.strftime("%Y-%m-%d", time.localtime(hit.timestamp))
    session = hit.session
    title = (session.title if session else None) or next((one.title for one in context.members if one.title), None)
    named = f" “{' '.join(title.split())[:60]}”" if title else ""
    outdated = "; said otherwise later" if hit.outdated_by is not None else ""
    where = f'session_id="{hit.session_id}", around_message_id={hit.message_id}'
    return f"- {day}{named}, {hit.role}{outdated}: {body} [{where}]"


def _body(lines: Sequence[Line], at: int, looked_for: Sequence[Unit]) -> tuple[str, int]:
    """What was said; of a question, what was answered too: asking it again, nobody needs to be told the question."""
    text = lines[at].text
    after = next(
        (line for line in lines[at + 1 : at + 2] if line.message.role == "assistant" and line.text.strip()), None
    )
    if after is None or lines[at].message.role != "user" or not text.rstrip().endswith(("?", "？")):
        return excerpt(text, looked_for), 0
    asked = excerpt(text, looked_for, LONGEST // 3)
    return f"{asked}{_ANSWERED}{excerpt(after.text, looked_for, LONGEST * 2 // 3)}", after.message.id


def _core(body: str) -> str:
    """What was said itself, without what shows that there was more."""
    return body.partition(_ANSWERED)[0].strip("… ")


def _late(until: float | None) -> bool:
    return until is not None and time.monotonic() > until
