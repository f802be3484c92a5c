"""What this turn needs, within a deadline."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from herma.errors import HermaError
from herma.facts.facts import Fact
from herma.features import Watcher
from herma.index.types import TextIndex, VectorIndex
from herma.safety.scan import scan
from herma.search.candidates import terms_of
from herma.search.contradictions import latest_first
from herma.search.match import LONGEST as MATCH_LONGEST
from herma.search.match import Unit, excerpt, fold, units
from herma.search.query import Hit, Mode, Query, parse
from herma.search.search import Context, Line, Searcher
from herma.text import HAS_CJK, STOP_WORDS
from herma.transcript.messages import text_of
from herma.transcript.rows import TranscriptReader
from herma.types import Scope, SessionView

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from herma.facts.facts import Facts


# ---------- recall.plainly
#
# Whether a text plainly asks for something that was told before: "which port does staging use?". Pure and linear.

Asked = Literal["", "plain", "own", "run on"]
"""Not so; plainly; for the asker's own ("which tiles did we choose?"); in a script without spaces, where the pairs of
characters that are looked for are no words, and many of them never said.
"""
_LONGEST, _WORDS = 120, 18
_OPENERS = re.compile(
    r"(?:(?:hi|hey|so|ok|okay|and|please|sorry|tell me|do you (?:know|remember)|und|also|sag mal)[\s,:!]+){0,4}",
    re.IGNORECASE,
)
_ENGLISH = (
    r"(?:what|which|who|whose|when|where|how (?:many|much|long|old|often|far|big|do (?:i|we)|did (?:i|we))"
    r"|(?:in|on|at|from|until|by|for|to) (?:which|what|when|whom)|remind me)\b"
)
_GERMAN = (
    r"(?:was|wer|wann|wo|wohin|woher|wie (?:heißt|heisst|hieß|viele?|lange|oft)"
    r"|(?:(?:in|auf|über|bis|von|mit|an) )?(?:welche[rsmn]?|wann|wem|wen))\b"
)
_ASKS = re.compile(f"{_ENGLISH}|{_GERMAN}", re.IGNORECASE)
_ASKS_RUN_ON = re.compile("什么|什麼|哪|多少|几|幾|谁|誰|いつ|どこ|何|誰|언제|어디|무엇|뭐|누구")
_RUN_ON = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_GENERAL = re.compile(
    r"\b(?:an?|eine?[nmrs]?|good|best|better|should|could|would|mean|means|meant|meaning|examples?|difference"
    r"|general(?:ly)?|exactly|usually|you|your|people|default|invented|first|[a-z]{3,12}est)\b"
    r"|什么是|什麼是|为什么|為什麼|意思|怎么样|怎麼樣|最|你|您",
    re.IGNORECASE,
)
"""Of anything of its kind, or of nobody's in particular: what the world knows, and not what was told here."""
_OWN = re.compile(r"\b(?:i|my|we|our|us|mein\w{0,3}|unser\w{0,3}|ich|wir|uns)\b", re.IGNORECASE)
_HOW_TO = re.compile(r"how do (?:i|we)\b", re.IGNORECASE)


def plainly(text: str) -> Asked:
    """How a text asks."""
    said = text.strip()
    if len(said) > _LONGEST or len(said.split()) > _WORDS:
        return ""
    said = _OPENERS.sub("", said, count=1)
    if _GENERAL.search(said):
        return ""
    if _RUN_ON.search(said):
        return "run on" if _ASKS_RUN_ON.search(said) else ""
    if not _ASKS.match(said):
        return ""
    return "own" if _OWN.search(said) and not _HOW_TO.match(said) else "plain"


# ---------- recall.worth
#
# Whether something that was found is worth telling the model unasked. Pure.
#
# What speaks for a message is measured so that it means the same in a small and in a large home: shares of what was
# asked, weighed by how rare each word is there, and how far its cosine stands out of what any message has. How these
# count was learnt from questions with known answers, small talk, and questions to the wrong history
# (benchmarks/prefetch.py, docs/explanation/prefetch.md).

LONGEST, ENDING = 1_500, 1_000
"""Characters of a message that are looked at, and how many of them from its end: what is wanted stands there."""
_BLOCK = re.compile(r"```.{0,20000}?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"https?://\S{1,2000}")
_SIGNS = str.maketrans(dict.fromkeys('"“”„‟«»＂:*()[]{}<>|', " "))
_CHATTER = """
absolut agre alright amaz anyth anywai apolog appreci awesom bore btw bye care cheer congrat congratul cool cours danke
definit enjoi even everyth exactli excel fantast fine fun funni glad gladli good great guess haha happi hello hmm hope
idea interest kind lol love luck mate merci mind moment morn nice night noth oop perfect pleas pleasur problem question
quick realli right sens soon sorri sound sweet talk thank thing think true understand weekend welcom wish wonder wonder
wow yai yeah yep yup gracias bitte
"""
CHATTER = frozenset((*_CHATTER.split(), "谢谢", "謝謝", "感谢", "感謝", "非常", "帮助", "再见", "晚安", "早安", "辛苦"))
"""What people say whatever they are about, as stems: it is searched for, and speaks for nothing."""
_OPERATORS = frozenset(("AND", "OR", "NOT"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one message: `covered` and `beside`, the share of what was asked that it has, alone and with the
    turns next to it; `rare`, how much that is, where a word that nobody else said is 1; `unknown`, the share of what
    was asked that was never said at all; `words`, how many things were asked for; `near`, by how many deviations its
    cosine is above that of any message, None where nothing was compared by meaning. `asked`: how plainly; `few`: how
    small the home is yet, from 0 to 1.
    """

    covered: float = 0.0
    beside: float = 0.0
    rare: float = 0.0
    unknown: float = 0.0
    words: int = 0
    near: float | None = None
    asked: Asked = ""
    few: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """A logistic model: the weight of each kind of evidence, and the chance from which on it is told."""

    constant: float
    beside: float
    rare: float
    unknown: float
    words: float
    near: float
    least: float


BY_WORDS = Model(constant=-6.32, beside=4.02, rare=0.66, unknown=-3.49, words=2.75, near=0.0, least=0.77)
BY_BOTH = Model(constant=-7.21, beside=3.5, rare=0.92, unknown=-4.09, words=2.89, near=0.57, least=0.8)


FEW, MANY = 40, 150
"""Up to so many messages a home is small, and from so many on it is not."""
_EASIER: Mapping[Asked, tuple[float, float]] = {"plain": (-1.5, 0.4), "own": (-0.5, 0.1), "run on": (-3.49, 0.4)}
"""The weight of what was never said, and the limit, for plain questions to a small home. There little is like anything
else by chance, and that a word was never said tells little: hardly any was.
"""


def chance(evidence: Evidence) -> float:
    """How likely it is that this helps, from 0 to 1. Nothing that has none of the words, and no meaning, does."""
    if not evidence.words or (not evidence.rare and evidence.near is None):
        return 0.0
    model = model_for(evidence)
    weights = (model.beside, model.rare, model.unknown, model.words, model.near)
    total = model.constant + sum(weight * value for weight, value in zip(weights, features(evidence), strict=True))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


def model_for(evidence: Evidence) -> Model:
    return eased(BY_WORDS if evidence.near is None else BY_BOTH, evidence)


def eased(model: Model, evidence: Evidence) -> Model:
    """The model for a question that is plainly put, the more so the fewer messages there are."""
    if not evidence.few or not evidence.asked:
        return model
    unknown, least = _EASIER[evidence.asked]
    return replace(
        model,
        unknown=model.unknown + (unknown - model.unknown) * evidence.few,
        least=model.least + (least - model.least) * evidence.few,
    )


def few(messages: int) -> float:
    """How much a home of so many messages is a small one, from 0 to 1."""
    return max(0.0, min(1.0, math.log(MANY / max(1, messages)) / math.log(MANY / FEW)))


def features(evidence: Evidence) -> tuple[float, ...]:
    """The evidence as numbers that a linear model can weigh: none can outweigh all others."""
    return (
        evidence.beside,
        min(evidence.rare, 4.0),
        evidence.unknown,
        min(math.log1p(evidence.words), 3.0),
        max(-2.0, min(evidence.near or 0.0, 6.0)),
    )


def rarity(said: int, messages: int) -> float:
    """How much a word tells that so many of all messages have: 1 for one that none has, 0 for one that all have."""
    most = math.log1p(2.0 * messages + 1.0)
    return math.log1p(max(0.0, messages - said + 0.5) / (said + 0.5)) / most if messages > 0 else 0.0


def weigh(
    own: AbstractSet[str],
    with_next: AbstractSet[str],
    said: Mapping[str, int],
    messages: int,
    near: float | None = None,
    asked: Asked = "",
) -> Evidence:
    """The evidence for a message that has `own` of the words asked for, and `with_next` together with the turns beside
    it. `said`: in how many messages each word occurs.
    """
    worth = {word: rarity(count, messages) for word, count in said.items()}
    whole = sum(worth.values())
    if not whole:
        return Evidence(words=len(said), near=near, asked=asked)
    got = sum(value for word, value in worth.items() if word in own)
    around = sum(value for word, value in worth.items() if word in own or word in with_next)
    never = sum(value for word, value in worth.items() if not said[word])
    return Evidence(got / whole, around / whole, got, never / whole, len(said), near, asked, few(messages))


def stands_out(cosine: float, others: Sequence[float]) -> float | None:
    """By how many deviations a cosine is above those of messages taken at random; None where these are too few."""
    if len(others) < FEWEST:
        return None
    middle = sum(others) / len(others)
    spread = math.sqrt(sum((other - middle) ** 2 for other in others) / len(others))
    return (cosine - middle) / spread if spread > 1e-6 else None


FEWEST = 16
"""Cosines that it takes to know what is usual."""


def question_of(text: str) -> str:
    """What a user says, as a question to search: no code blocks and links, nothing of it read as an operator."""
    said = _LINK.sub(" ", _BLOCK.sub(" ", text[: 10 * LONGEST] if len(text) <= 10 * LONGEST else text[-10 * LONGEST :]))
    if len(said) > LONGEST:
        said = f"{said[: LONGEST - ENDING]} {said[-ENDING:]}"
    words = said.translate(_SIGNS).split()
    return " ".join(word.lower() if word in _OPERATORS else word.lstrip("-") for word in words)


# ---------- recall.prefetch
#
# What past conversations hold that helps with what the user says now, found before the model is asked.
#
# Within a deadline, and only what is worth its tokens: small talk recalls nothing. Never of the conversation at hand.
# Every look is told in a `Prefetched`, also the one that found nothing, and why.

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
    asked = excerpt(text, looked_for, MATCH_LONGEST // 3)
    return f"{asked}{_ANSWERED}{excerpt(after.text, looked_for, MATCH_LONGEST * 2 // 3)}", after.message.id


def _core(body: str) -> str:
    """What was said itself, without what shows that there was more."""
    return body.partition(_ANSWERED)[0].strip("… ")


def _late(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


# ---------- recall.prefetching
#
# Looking back before a turn, within its deadline: exact facts first, then past conversations. `h.prefetch`.
#
# Who is late is not waited for: the turn goes on without, and that is counted. Nothing is embedded but the question,
# and not even that before the embedder is loaded, aside and after the second look, nor where it has shown to be too
# slow.

SLOW, PATIENCE = 3, 20
"""After so many questions that were not embedded in time, so many are asked without."""


@dataclass(frozen=True, slots=True)
class PrefetchParts:
    """What looking back is made of. `prefetcher` is given how to know whether the question may be embedded."""

    prefetcher: Callable[[Callable[[], bool]], Prefetcher]
    fact: Callable[[str, Scope | None], Fact | None]
    room: Callable[[str], int] = lambda _: CHARACTERS
    """Characters that the window of a model has for this."""
    warm: Callable[[], None] = lambda: None
    """Load what compares meanings, if there is anything."""


class Prefetch:
    """One for all sessions of a home. `counts` says how often each outcome came about, `last` how the last did."""

    def __init__(self, parts: PrefetchParts, *, enabled: bool = True, deadline: float = 0.15) -> None:
        self._parts = parts
        self._prefetcher: Prefetcher | None = None
        self.enabled = enabled
        self.deadline = deadline
        self.counts: Counter[str] = Counter()
        self.last: Prefetched | None = None
        self._mutex = threading.Lock()
        self._looks = self._slow = self._rest = 0
        self._warming: threading.Thread | None = None
        self._warmed = False

    def look(
        self,
        text: str,
        *,
        scope: Scope | None = None,
        conversation: str | None = None,
        within: float | None = None,
        model: str = "",
        known: Callable[[], str] = lambda: "",
    ) -> Prefetched:
        """What past conversations tell about a text, and why or why not. `within` is a deadline in seconds, `known` is
        what the model has before it anyway.
        """
        if self._prefetcher is None:
            self._prefetcher = self._parts.prefetcher(self._is_warm)
        until = None if within is None else time.monotonic() + within
        found = self._prefetcher.look(
            text, scope=scope, conversation=conversation, until=until, room=self._parts.room(model), known=known
        )
        fact = self.fact(text, scope)
        if fact is not None:
            found = replace(found, fact=fact)
        self._learn(found)
        if self._looks >= 2 and self._warming is None and not self._warmed:
            self._warming = threading.Thread(target=self.warm, name="herma-warm", daemon=True)
            self._warming.start()
        return found

    def warm(self) -> None:
        """Load what compares meanings, so that the next look has it."""
        try:
            self._parts.warm()
        except HermaError:  # the home was closed meanwhile, or the embedder is not there: words go on without it
            return
        self._warmed = True

    def fact(self, text: str, scope: Scope | None = None) -> Fact | None:
        """The fact that a text plainly asks for."""
        return self._parts.fact(text, scope)

    def note(self, found: Prefetched) -> None:
        """Count what came of a look for a turn."""
        with self._mutex:
            self.counts[found.outcome] += 1
            self.last = found

    def late(self, found: Prefetched | None) -> None:
        """Count a look for a turn that was not done in time, as far as it got."""
        self.note(Prefetched(outcome="late") if found is None else replace(found, outcome="late"))

    def _is_warm(self) -> bool:
        """Loading a model takes longer than a turn waits, and who asks once needs none."""
        with self._mutex:
            self._looks += 1
            if self._rest:
                self._rest -= 1
                return False
            return self._warmed

    def _learn(self, found: Prefetched) -> None:
        with self._mutex:
            late = any("did not answer within" in note for note in found.notes)
            self._slow = self._slow + 1 if late else 0
            if self._slow >= SLOW:
                self._slow, self._rest = 0, PATIENCE


# ---------- recall.prefetch_watch
#
# How looking back follows a session: what memory says to what the user says, and what past conversations do, apart.
#
# What looks is made when a turn first has a text to look for, so that opening a session loads nothing of it.

T = TypeVar("T")
GRACE = 5.0
"""Seconds that a session waits, at the very most, for a look that keeps its own deadline."""
_CLOSE = 2.0
FACTS = "From memory:"


class FactWatcher(Watcher):
    """Tells the fact that the user asks for, unless the prompt has it. It is the user's own memory."""

    name = "facts"
    outside = False

    def __init__(self, facts: Callable[[], Facts], deadline: float) -> None:
        self._facts = facts
        self._desk = _Desk("facts")
        self._seconds = deadline
        self.deadline = deadline + GRACE

    def may_recall(self, view: SessionView, text: str) -> bool:
        return view.circumstances.context == "primary" and self._facts().asks(text)

    def turn_began(self, view: SessionView, text: str) -> str:
        fact = self._desk.ask(lambda: self._facts().answer(text, view.scope), self._seconds)
        return "" if fact is None or fact.source == "review" else fact_line(fact, view)

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        self._desk.close()


class PastWatcher(Watcher):
    """Tells what past conversations say, where that is worth it; and facts that a look back concluded from them."""

    name = "prefetch"
    outside = True
    at_once = True  # its desk keeps the deadline, with one thread for all turns

    def __init__(self, made: Callable[[], Prefetch], past: Callable[[str], bool], deadline: float) -> None:
        """`past`: whether there is anything besides a conversation."""
        self._made = made
        self._past = past
        self._has_past = False
        self._desk = _Desk("past")
        self._seconds = deadline
        self.deadline = deadline + GRACE

    def may_recall(self, view: SessionView, text: str) -> bool:
        if view.circumstances.context != "primary" or not text.strip():
            return False
        self._has_past = self._has_past or self._past(view.info.conversation)
        return self._has_past

    def turn_began(self, view: SessionView, text: str) -> str:
        prefetch, seconds = self._made(), self._seconds
        found = self._desk.ask(
            lambda: prefetch.look(
                text,
                scope=view.scope,
                conversation=view.info.conversation,
                within=seconds,
                model=view.model,
                known=lambda: _before(view),
            ),
            seconds,
        )
        if found is None or found.outcome == "late":
            prefetch.late(found)
            return ""
        prefetch.note(found)
        concluded = found.fact if found.fact is not None and found.fact.source == "review" else None
        return "\n\n".join(filter(None, (fact_line(concluded, view) if concluded else "", found.text)))

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        self._desk.close()


def fact_line(fact: Fact, view: SessionView) -> str:
    """A fact for the model; nothing where the prompt says it already."""
    if fact.text and fact.text in view.system_prompt:
        return ""
    day = time.strftime("%Y-%m-%d", time.localtime(fact.valid_from))
    return f"{FACTS}\n- {fact.subject}: {fact.attribute} = {' '.join(fact.value.split())} (since {day})"


def _before(view: SessionView) -> str:
    """What the model has before it: a branch begins with what another conversation said."""
    return "\n".join(text_of(message.content) for message in view.messages)


class _Desk:
    """One question at a time, in a thread of its own, for as long as the deadline lasts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[object] | None = None

    def ask(self, question: Callable[[], T], seconds: float) -> T | None:
        """The answer; nothing when it is late, or the last one is not there yet. An error is the guard's to count."""
        if self._running is not None and not self._running.done():
            return None
        if self._pool is None:
            from concurrent.futures import ThreadPoolExecutor

            self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"herma-{self._name}")
        future = self._pool.submit(question)
        self._running = future  # type: ignore[assignment]
        try:
            return future.result(timeout=seconds)
        except TimeoutError:
            return None

    def close(self) -> None:
        """Let what still runs come to its end: it reads databases that may be closed next."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if self._running is not None:
            from concurrent.futures import wait

            wait([self._running], timeout=_CLOSE)
            self._running = None
