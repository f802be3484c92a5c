"""Recall what this turn needs from past conversations and facts, before the model is asked, within a deadline.

Small talk recalls nothing, and the current conversation is not searched. Every look returns a `Prefetched`, which says
what was found and why the rest was not included. `h.prefetch` serves all sessions; `FactRecall` and `TranscriptRecall`
attach it to one. Only the question is embedded: not before the embedder is loaded in the background, after the second
look, and not while it is too slow.
"""

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
from herma.features import Feature
from herma.safety.scan import scan
from herma.search.candidates import terms_of
from herma.search.contradictions import latest_first
from herma.search.match import LONGEST as EXCERPT
from herma.search.match import Unit, excerpt, fold, units
from herma.search.query import Hit, Mode, Query, parse
from herma.search.search import Searcher
from herma.text import HAS_CJK, STOP_WORDS
from herma.transcript.messages import text_of
from herma.transcript.rows import SessionRows
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.facts.facts import Fact
    from herma.search.search import HitContext, ShownLine
    from herma.types import Scope, SessionView

# ── what the user says, as a question ──

LONGEST, ENDING = 1_500, 1_000
"""Characters of a message that are searched for, and how many of them from its end, where a request mostly is."""
_BLOCK = re.compile(r"```.{0,20000}?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"https?://\S{1,2000}")
_SIGNS = str.maketrans(dict.fromkeys('"“”„‟«»＂:*()[]{}<>|', " "))
_OPERATORS = frozenset(("AND", "OR", "NOT"))


def question_of(text: str) -> str:
    """Return what a user says as a query: without code blocks, links and operators."""
    said = _LINK.sub(" ", _BLOCK.sub(" ", text[: 10 * LONGEST] if len(text) <= 10 * LONGEST else text[-10 * LONGEST :]))
    if len(said) > LONGEST:
        said = f"{said[: LONGEST - ENDING]} {said[-ENDING:]}"
    words = said.translate(_SIGNS).split()
    return " ".join(word.lower() if word in _OPERATORS else word.lstrip("-") for word in words)


QuestionType: TypeAlias = Literal["", "plain", "own", "run on"]
"""Ways to ask for something that was said before: not plainly; plainly ("which port does staging use?"); for the
asker's own things ("which tiles did we choose?"); in a script without spaces, where pairs of characters are searched.
"""
_QUESTION_CHARACTERS, _QUESTION_WORDS = 120, 18
_OPENERS = re.compile(
    r"(?:(?:hi|hey|so|ok|okay|and|please|sorry|tell me|do you (?:know|remember)|und|also|sag mal)[\s,:!]+){0,4}",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"(?:what|which|who|whose|when|where|how (?:many|much|long|old|often|far|big|do (?:i|we)|did (?:i|we))"
    r"|(?:in|on|at|from|until|by|for|to) (?:which|what|when|whom)|remind me)\b"
    r"|(?:was|wer|wann|wo|wohin|woher|wie (?:heißt|heisst|hieß|viele?|lange|oft)"
    r"|(?:(?:in|auf|über|bis|von|mit|an) )?(?:welche[rsmn]?|wann|wem|wen))\b",
    re.IGNORECASE,
)
_ASKS_RUN_ON = re.compile("什么|什麼|哪|多少|几|幾|谁|誰|いつ|どこ|何|誰|언제|어디|무엇|뭐|누구")
_RUN_ON = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_GENERAL = re.compile(
    r"\b(?:an?|eine?[nmrs]?|good|best|better|should|could|would|mean|means|meant|meaning|examples?|difference"
    r"|general(?:ly)?|exactly|usually|you|your|people|default|invented|first|[a-z]{3,12}est)\b"
    r"|什么是|什麼是|为什么|為什麼|意思|怎么样|怎麼樣|最|你|您",
    re.IGNORECASE,
)
"""Asks for general knowledge, not for earlier messages."""
_OWN = re.compile(r"\b(?:i|my|we|our|us|mein\w{0,3}|unser\w{0,3}|ich|wir|uns)\b", re.IGNORECASE)
_HOW_TO = re.compile(r"how do (?:i|we)\b", re.IGNORECASE)


def question_type(text: str) -> QuestionType:
    """Return how a text asks for something that was said before. Pure and linear."""
    said = text.strip()
    if len(said) > _QUESTION_CHARACTERS or len(said.split()) > _QUESTION_WORDS:
        return ""
    said = _OPENERS.sub("", said, count=1)
    if _GENERAL.search(said):
        return ""
    if _RUN_ON.search(said):
        return "run on" if _ASKS_RUN_ON.search(said) else ""
    if not _ASKS.match(said):
        return ""
    return "own" if _OWN.search(said) and not _HOW_TO.match(said) else "plain"


# ── whether a hit helps: a logistic model (pure) ──
#
# Evidence means the same in a small and in a large home: shares of what was asked, weighed by how rare each word is
# there, and how far a cosine stands out. The weights were learned from questions with known answers, small talk, and
# questions to the wrong history (benchmarks/prefetch.py, docs/explanation/prefetch.md).

_CHATTER = """
absolut agre alright amaz anyth anywai apolog appreci awesom bore btw bye care cheer congrat congratul cool cours danke
definit enjoi even everyth exactli excel fantast fine fun funni glad gladli good great guess haha happi hello hmm hope
idea interest kind lol love luck mate merci mind moment morn nice night noth oop perfect pleas pleasur problem question
quick realli right sens soon sorri sound sweet talk thank thing think true understand weekend welcom wish wonder wow yai
yeah yep yup gracias bitte 谢谢 謝謝 感谢 感謝 非常 帮助 再见 晚安 早安 辛苦
"""
CHATTER = frozenset(_CHATTER.split())
"""Stems of what people say about anything: they are searched for, and are not evidence."""


@dataclass(frozen=True, slots=True)
class RecallEvidence:
    """The evidence for one message.

    `covered` and `beside`: the share of what was asked that it has, alone and with the turns next to it; `rare`: how
    much that is, where a word that is nowhere else is 1; `unknown`: the share of what was asked that was never said;
    `words`: how many things were asked for; `near`: by how many deviations its cosine is above that of any message,
    None if no vectors were compared; `asked`: the type of question; `few`: how small the home is, from 0 to 1.
    """

    covered: float = 0.0
    beside: float = 0.0
    rare: float = 0.0
    unknown: float = 0.0
    words: int = 0
    near: float | None = None
    asked: QuestionType = ""
    few: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """The weight of each kind of evidence, and the chance that a message needs to be included."""

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
"""A home with up to so many messages is small, and from so many on it is not."""
_EASIER: Mapping[QuestionType, tuple[float, float]] = {"plain": (-1.5, 0.4), "own": (-0.5, 0.1), "run on": (-3.49, 0.4)}
"""The weight of `unknown`, and the limit, for plain questions to a small home. There little is similar by chance, and a
word that was never said tells little, because hardly any was.
"""
FEWEST = 16
"""Cosines that it takes to know what is usual."""


def chance(evidence: RecallEvidence) -> float:
    """Return how likely it is that a message helps, from 0 to 1."""
    if not evidence.words or (not evidence.rare and evidence.near is None):
        return 0.0
    model = model_for(evidence)
    weights = (model.beside, model.rare, model.unknown, model.words, model.near)
    total = model.constant + sum(weight * value for weight, value in zip(weights, features(evidence), strict=True))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


def model_for(evidence: RecallEvidence) -> Model:
    return eased(BY_WORDS if evidence.near is None else BY_BOTH, evidence)


def eased(model: Model, evidence: RecallEvidence) -> Model:
    """Return the model for a plain question, the easier the fewer messages there are."""
    if not evidence.few or not evidence.asked:
        return model
    unknown, least = _EASIER[evidence.asked]
    return replace(
        model,
        unknown=model.unknown + (unknown - model.unknown) * evidence.few,
        least=model.least + (least - model.least) * evidence.few,
    )


def few(messages: int) -> float:
    """Return how small a home of so many messages is, from 0 to 1."""
    return max(0.0, min(1.0, math.log(MANY / max(1, messages)) / math.log(MANY / FEW)))


def features(evidence: RecallEvidence) -> tuple[float, ...]:
    """Return the evidence as bounded numbers, so that none outweighs all others."""
    return (
        evidence.beside,
        min(evidence.rare, 4.0),
        evidence.unknown,
        min(math.log1p(evidence.words), 3.0),
        max(-2.0, min(evidence.near or 0.0, 6.0)),
    )


def rarity(said: int, messages: int) -> float:
    """Return how rare a word is that `said` of all messages have: 1 if none has it, 0 if all have."""
    most = math.log1p(2.0 * messages + 1.0)
    return math.log1p(max(0.0, messages - said + 0.5) / (said + 0.5)) / most if messages > 0 else 0.0


def weigh(
    own: AbstractSet[str],
    with_next: AbstractSet[str],
    said: Mapping[str, int],
    messages: int,
    near: float | None = None,
    asked: QuestionType = "",
) -> RecallEvidence:
    """Return the evidence for a message that has the words `own`, and `with_next` together with the turns beside it.

    `said`: in how many messages each word of the question occurs.
    """
    worth = {word: rarity(count, messages) for word, count in said.items()}
    whole = sum(worth.values())
    if not whole:
        return RecallEvidence(words=len(said), near=near, asked=asked)
    got = sum(value for word, value in worth.items() if word in own)
    around = sum(value for word, value in worth.items() if word in own or word in with_next)
    never = sum(value for word, value in worth.items() if not said[word])
    return RecallEvidence(got / whole, around / whole, got, never / whole, len(said), near, asked, few(messages))


def stands_out(cosine: float, others: Sequence[float]) -> float | None:
    """Return by how many deviations a cosine is above those of a sample of messages; None if these are too few."""
    if len(others) < FEWEST:
        return None
    middle = sum(others) / len(others)
    spread = math.sqrt(sum((other - middle) ** 2 for other in others) / len(others))
    return (cosine - middle) / spread if spread > 1e-6 else None


# ── looking ──

Outcome: TypeAlias = Literal["recalled", "nothing", "no words", "late"]
LINES, CHARACTERS = 3, 1_200
"""Maximum text of past conversations in one turn."""
LOOKED_AT = 6
"""Hits that are weighed."""
MOST_WORDS = 24
"""Words of a question whose rarity is looked up."""
SAMPLE = 96
"""Messages whose cosines tell what is usual."""
READ = 8_000
PASSAGE, OFTEN = 600, 40
"""Characters within which words count together, and how many places of one word are read."""
_ANSWERED = " Answered: "
HEADING = "From earlier conversations, as it was said then; it may be out of date. session_search reads more."
SLOW, SKIPPED_TURNS = 3, 20
"""After `SLOW` questions that were not embedded in time, the next `PATIENCE` go by words."""
_EMBEDDING = 0.4
"""Part of the deadline that embedding the question may take; the rest is for searching."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """A hit with its evidence, chance and line; `included`: whether the line is recalled, otherwise `why_not`."""

    hit: Hit
    evidence: RecallEvidence
    chance: float
    line: str = ""
    body: str = ""
    answer: int = 0
    """The message that answers this one, if the line has it too."""
    included: bool = False
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Prefetched:
    """The messages recalled for a turn, and how they were found."""

    text: str = ""
    outcome: Outcome = "nothing"
    weighed: tuple[Weighed, ...] = ()
    mode: str = "words"
    took_ms: float = 0.0
    notes: tuple[str, ...] = ()
    fact: Fact | None = None
    """The fact that the text asks for."""


class Prefetch:
    """Look into past conversations. `counts` says how often each outcome occurred, `last` is the latest."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._searcher: Searcher | None = None
        self.enabled = app.settings.search.prefetch
        self.deadline = app.settings.search.prefetch_ms / 1000
        self.counts: Counter[str] = Counter()
        self.last: Prefetched | None = None
        self._mutex = threading.Lock()
        self._looks = self._slow = self._rest = 0
        self._warming: BackgroundCall[None] | None = None
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
        """Return what past conversations say about a text, and why or why not.

        `within`: a deadline in seconds; `conversation`: the current one; `known` returns what the model sees anyway.
        """
        began = time.perf_counter()
        until = None if within is None else time.monotonic() + within
        found = self._look(text, scope, conversation, until)
        if _late(until):
            found = replace(found, outcome="late")
        elif found.weighed:
            budget = self._app.budget.of(model or self._app.settings.model.name or None)
            # a quarter of the share for memory, at about four characters a token
            found = select_lines(found, min(CHARACTERS, budget.room("memory")), known)
        found = replace(found, took_ms=round((time.perf_counter() - began) * 1000, 2))
        fact = self._app.facts.answer(text, scope)
        if fact is not None:
            found = replace(found, fact=fact)
        with self._mutex:
            late = any("did not answer within" in note for note in found.notes)
            self._slow = self._slow + 1 if late else 0
            if self._slow >= SLOW:
                self._slow, self._rest = 0, SKIPPED_TURNS
        if self._looks >= 2 and self._warming is None and not self._warmed:
            self._warming = BackgroundCall("warming up", self.warm).start()
        return found

    def warm(self) -> None:
        """Load embedder and vectors, so that the next look has them."""
        try:
            vectors = self._app.index.vectors
            if self._app.settings.search.mode != "words" and vectors.state().ready:
                vectors.warm()
        except HermaError:  # the home was closed meanwhile, or the embedder is not there: words go on without it
            return
        self._warmed = True

    def note(self, found: Prefetched | None) -> None:
        """Count the outcome of a look for a turn; None: it was not done in time."""
        found = Prefetched(outcome="late") if found is None else found
        with self._mutex:
            self.counts[found.outcome] += 1
            self.last = found

    def _look(self, text: str, scope: Scope | None, conversation: str | None, until: float | None) -> Prefetched:
        app = self._app
        if self._searcher is None:
            self._searcher = Searcher(app, wait=_EMBEDDING * self.deadline, rerank=False)
        asked = question_of(text)
        query = parse(asked, app.clock())
        telling = [term for term in query.any_of if term.text.casefold() not in STOP_WORDS]
        looked_for = [unit for unit in units(query) if unit.name not in CHATTER][:MOST_WORDS] if telling else []
        newest = self._searcher.reader.newest(1) if looked_for else ()
        if not looked_for or not newest:
            return Prefetched(outcome="no words" if not looked_for else "nothing")
        mode: Mode = "hybrid" if app.settings.search.mode != "words" and self._is_warm() else "words"
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
        kind = question_type(text)
        weighed = tuple(
            _weighed(hit, context, looked_for, said, newest[0], near.get(hit.message_id), kind)
            for hit, context in zip(past, self._searcher.in_context(past), strict=True)
        )
        return replace(result, weighed=weighed)

    def _is_warm(self) -> bool:
        """Return whether a question may be embedded now: loading a model takes longer than a turn waits."""
        with self._mutex:
            self._looks += 1
            if self._rest:
                self._rest -= 1
                return False
            return self._warmed

    def _said(self, query: Query, looked_for: Sequence[Unit]) -> dict[str, int]:
        """Return in how many messages each word occurs."""
        wanted = {unit.name for unit in looked_for}
        said: dict[str, int] = {}
        for term in query.any_of:
            alone = replace(query, any_of=(term,), all_of=(), none_of=())
            for unit in units(alone):
                if unit.name in wanted and unit.name not in said:
                    pair = replace(term, text=unit.name) if HAS_CJK.search(unit.name) else term
                    said[unit.name] = self._app.index.find(terms_of(replace(alone, any_of=(pair,))), 1).matches
        return said

    def _near(self, query: Query, hits: Sequence[Hit], newest: int) -> Mapping[int, float]:
        """Return by how much the meaning of each hit stands out."""
        vectors, asked = self._app.index.vectors, " ".join(query.plain.split())
        sample = range(1, newest + 1, max(1, newest // SAMPLE))
        usual = list(vectors.scores(asked, list(sample)).values())
        cosines = vectors.scores(asked, [hit.message_id for hit in hits])
        above = {id_: stands_out(cosine, usual) for id_, cosine in cosines.items()}
        return {id_: value for id_, value in above.items() if value is not None}


def select_lines(found: Prefetched, room: int = CHARACTERS, known: Callable[[], str] = lambda: "") -> Prefetched:
    """Return the look with the lines that are worth it, in at most `room` characters."""
    before: str | None = None
    lines: dict[str, str] = {}
    answers: set[int] = set()
    left = room - len(HEADING)
    judged = []
    by_id = {one.hit.message_id: one for one in sorted(found.weighed, key=lambda one: -one.chance)}
    outdated = {id_: one.hit.outdated_by for id_, one in by_id.items() if one.hit.outdated_by is not None}
    overtakes = {one.hit.outdated_by for one in found.weighed if _is_relevant(one)}
    for one in [by_id[id_] for id_ in latest_first(list(by_id), outdated)]:
        why_not = ""
        if not _is_relevant(one) and one.hit.message_id not in overtakes:
            why_not = "not relevant enough"
        elif len(lines) == LINES or len(one.line) + 1 > left:
            why_not = "no room"
        elif one.body in lines or one.hit.message_id in answers:
            why_not = "a duplicate"
        elif _core(one.body) in (before := " ".join(known().split()) if before is None else before):
            why_not = "the model sees it already"
        elif scan(one.line):
            why_not = "blocked by the scanner"
        else:
            lines[one.body] = one.line
            answers.add(one.answer)
            left -= len(one.line) + 1
        judged.append(replace(one, included=not why_not, why_not=why_not))
    text = "\n".join([HEADING, *lines.values()]) if lines else ""
    return replace(found, text=text, outcome="recalled" if lines else "nothing", weighed=tuple(judged))


def _is_relevant(one: Weighed) -> bool:
    return one.chance >= model_for(one.evidence).least


def _weighed(
    hit: Hit,
    context: HitContext,
    looked_for: Sequence[Unit],
    said: Mapping[str, int],
    messages: int,
    near: float | None,
    asked: QuestionType,
) -> Weighed:
    lines = context.view.messages
    at = next((place for place, line in enumerate(lines) if line.anchor), None)
    if at is None:
        return Weighed(hit, RecallEvidence(), 0.0)
    worth = {name: rarity(count, messages) for name, count in said.items()}
    own = _words_in(lines[at].text, looked_for, worth)
    beside = [line.text for line in (*lines[max(0, at - 1) : at], *lines[at + 1 : at + 2])]
    with_next = own.union(*(_words_in(text, looked_for, worth) for text in beside))
    evidence = weigh(own, with_next, said, messages, near, asked)
    body, answer = _body(lines, at, looked_for)
    return Weighed(hit, evidence, chance(evidence), _line(hit, context, body), body, answer)


def _words_in(text: str, looked_for: Sequence[Unit], worth: Mapping[str, float]) -> set[str]:
    """Return the words in the passage of a text where they are worth most: all of a long text has most words anyway."""
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


def _line(hit: Hit, context: HitContext, body: str) -> str:
    """Return one item of a list: when, in which conversation, who, what, and where to read more."""
    day = time.strftime("%Y-%m-%d", time.localtime(hit.timestamp))
    session = hit.session
    title = (session.title if session else None) or next((one.title for one in context.members if one.title), None)
    named = f" “{' '.join(title.split())[:60]}”" if title else ""
    outdated = "; said otherwise later" if hit.outdated_by is not None else ""
    where = f'session_id="{hit.session_id}", around_message_id={hit.message_id}'
    return f"- {day}{named}, {hit.role}{outdated}: {body} [{where}]"


def _body(lines: Sequence[ShownLine], at: int, looked_for: Sequence[Unit]) -> tuple[str, int]:
    """Return an excerpt of what was said; of a question, with its answer, and the id of the answer."""
    text = lines[at].text
    after = next(
        (line for line in lines[at + 1 : at + 2] if line.message.role == "assistant" and line.text.strip()), None
    )
    if after is None or lines[at].message.role != "user" or not text.rstrip().endswith(("?", "？")):
        return excerpt(text, looked_for), 0
    asked = excerpt(text, looked_for, EXCERPT // 3)
    return f"{asked}{_ANSWERED}{excerpt(after.text, looked_for, EXCERPT * 2 // 3)}", after.message.id


def _core(body: str) -> str:
    """Return an excerpt without its answer and its dots."""
    return body.partition(_ANSWERED)[0].strip("… ")


def _late(until: float | None) -> bool:
    return until is not None and time.monotonic() > until


# ── in a session ──

T = TypeVar("T")
GRACE = 5.0
"""Seconds that a session waits at most for a look that keeps its own deadline."""
_CLOSE = 2.0
FACTS = "From memory:"


class _Recall(Feature):
    """Ask one question at a time, in a thread of its own, for as long as the deadline lasts."""

    outside = False

    def __init__(self, app: Herma, seconds: float | None = None) -> None:
        """`seconds` is the deadline; None: as configured."""
        self._app = app
        self._seconds = app.settings.search.prefetch_ms / 1000 if seconds is None else seconds
        self.deadline = self._seconds + GRACE
        self._running: BackgroundCall[object] | None = None

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:  # noqa: ARG003
        return () if preview or not app.settings.search.prefetch else [cls(app)]

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        """Wait for a question that still runs: it reads databases that may be closed next."""
        if self._running is not None:
            self._running.done.wait(_CLOSE)
            self._running = None

    def _ask(self, question: Callable[[], T]) -> T | None:
        """Return the answer, or None if it is late or the last question still runs."""
        if self._running is not None and not self._running.done.is_set():
            return None
        call = BackgroundCall(self.name, question).start()
        self._running = call  # type: ignore[assignment]
        try:
            return call.answer(self._seconds)
        except TimeoutError:
            return None


class FactRecall(_Recall):
    """Recall the fact that the user asks for, unless the prompt has it. It is the user's own memory."""

    name = "facts"

    def may_recall(self, view: SessionView, text: str) -> bool:
        return view.environment.context == "primary" and self._app.facts.asks(text)

    def turn_began(self, view: SessionView, text: str) -> str:
        fact = self._ask(lambda: self._app.facts.answer(text, view.scope))
        return "" if fact is None or fact.source == "review" else fact_line(fact, view)


class TranscriptRecall(_Recall):
    """Recall what past conversations say, and facts that a review concluded from them."""

    name = "prefetch"
    outside = True
    at_once = True  # it keeps the deadline itself, with one thread for all turns

    def __init__(self, app: Herma, seconds: float | None = None) -> None:
        super().__init__(app, seconds)
        self._sessions = SessionRows(app.db)
        self._has_past = False

    def may_recall(self, view: SessionView, text: str) -> bool:
        if view.environment.context != "primary" or not text.strip():
            return False
        self._has_past = self._has_past or self._sessions.others_spoken(view.info.conversation)
        return self._has_past

    def turn_began(self, view: SessionView, text: str) -> str:
        prefetch = self._app.prefetch

        def known() -> str:
            return "\n".join(text_of(message.content) for message in view.messages)

        found = self._ask(
            lambda: prefetch.look(
                text,
                scope=view.scope,
                conversation=view.info.conversation,
                within=self._seconds,
                model=view.model,
                known=known,
            )
        )
        prefetch.note(found)
        if found is None or found.outcome == "late":
            return ""
        concluded = found.fact if found.fact is not None and found.fact.source == "review" else None
        return "\n\n".join(filter(None, (fact_line(concluded, view) if concluded else "", found.text)))


def fact_line(fact: Fact, view: SessionView) -> str:
    """Return a fact for the model, or "" if the prompt has it already."""
    if fact.text and fact.text in view.system_prompt:
        return ""
    day = time.strftime("%Y-%m-%d", time.localtime(fact.valid_from))
    return f"{FACTS}\n- {fact.subject}: {fact.attribute} = {' '.join(fact.value.split())} (since {day})"
