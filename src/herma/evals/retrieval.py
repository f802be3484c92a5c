"""Measure search: labelled questions of a data set, and an exam over the user's own history."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from herma.app import Herma
from herma.errors import StoreError, UsageError
from herma.evals.data import DEPTH, Answered, DataSet, EvalDocument, EvalQuestion, answered
from herma.search.match import fold
from herma.search.query import Mode
from herma.store.backup import copy_database, copy_derived
from herma.text import STOP_WORDS, stem
from herma.types import SessionFilter

# ── labelled questions: every group of a data set becomes a home ──

Level = Literal["message", "session"]
Progress = Callable[[int, int], None]
"""Called with how much is done, and of how much."""
DAY = 86_400.0
BATCH = 500
PATIENT = 60.0
"""Seconds to wait for the embedding of a question, so that results do not depend on the load of the machine."""


@dataclass(frozen=True, slots=True)
class EvalResult:
    """The answers of one data set in one mode. `notes` are what search reported about vectors."""

    set: str
    mode: str
    answers: tuple[Answered, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class QuestionClock:
    """The clock of a home: the time of the question, so that "last month" is relative to it."""

    at: float | None = None

    def __call__(self) -> float:
        return time.time() if self.at is None else self.at


def run(
    data: DataSet,
    modes: Sequence[Mode],
    *,
    level: Level = "message",
    flags: Mapping[str, object] | None = None,
    homes: Path | None = None,
    progress: Progress = lambda _done, _total: None,
) -> list[EvalResult]:
    """Ask all questions in each mode. `homes` keeps the filled homes for the next run."""
    found: dict[Mode, list[Answered]] = {mode: [] for mode in modes}
    notes: dict[Mode, dict[str, None]] = {mode: {} for mode in modes}
    embedding = any(mode != "words" for mode in modes)
    documents_to_embed = sum(map(len, data.documents.values())) if embedding else 0
    done, total = 0, data.size + documents_to_embed
    for group, questions in data.questions.items():
        clock, documents = QuestionClock(), data.documents[group]
        with home_for(homes, data.name, group) as home, opened(home, flags or {}, clock, keep=homes is not None) as h:
            names = fill(h, documents, level)
            prepare(h, embedding=embedding, progress=_later(progress, done, total))
            done += len(documents) if embedding else 0
            latest = max((one.at for one in documents if one.at is not None), default=None)
            for question in questions:
                asked = question
                if level == "session":
                    gold = tuple(dict.fromkeys(names[id_] for id_ in question.gold if id_ in names))
                    asked = replace(question, gold=gold)
                clock.at = question.at or (latest + DAY if latest is not None else None)
                for mode in modes:
                    answer, said = ask(h, asked, mode, level, names.__getitem__)
                    found[mode].append(answer)
                    notes[mode].update(dict.fromkeys(said))
                done += 1
                progress(done, total)
    return [EvalResult(data.name, mode, tuple(found[mode]), data.left_out, tuple(notes[mode])) for mode in modes]


def _later(progress: Progress, done: int, total: int) -> Progress:
    """Report the progress of a part as that of the whole."""
    return lambda more, _: progress(done + more, total)


def prepare(h: Herma, *, embedding: bool, progress: Progress = lambda _done, _total: None) -> None:
    """Wait until every message is indexed, by words and, if `embedding`, by vectors."""
    if embedding:
        vectors = h.index.vectors
        state = vectors.state() if vectors is not None else None
        if state is None or not state.wanted:
            trouble = f" ({state.trouble})" if state is not None and state.trouble else ""
            raise UsageError(
                f"There is no embedding model{trouble}, so nothing can be found by vectors.",
                hint="Install one with `herma models install e5-small`, or measure with --mode words.",
            )
    if not h.index.wait(progress=progress, embedding=embedding):
        status = h.index.status()
        raise StoreError(
            f"Not everything could be indexed: {status.trouble or status.vectors.trouble or 'time was up'}.",
            hint="See `herma doctor`, or measure with --mode words.",
        )


def ask(
    h: Herma, question: EvalQuestion, mode: Mode, level: Level, document_id: Callable[[Any], str]
) -> tuple[Answered, list[str]]:
    """Ask one question; return the result and search's notes about vectors.

    `document_id` maps a message id or, at session level, a session id to the id in the data.
    """
    began = time.perf_counter()
    report = h.search(question.text, limit=DEPTH, level=level, mode=mode)
    took = (time.perf_counter() - began) * 1000
    found = [document_id(hit.message_id if level == "message" else hit.session_id) for hit in report.hits]
    return answered(question, found, took), [note for note in report.notes if note.startswith("vectors:")]


@contextmanager
def opened(home: Path, flags: Mapping[str, object], clock: QuestionClock, *, keep: bool) -> Iterator[Herma]:
    """Open a home. On a server it is a tenant of its own, whose rows are deleted afterwards unless `keep`."""
    given = {**flags, "search.model_wait": PATIENT, "store.tenant": f"eval {home}"}
    with Herma.open(home=home, flags=given, clock=clock) as h:
        try:
            yield h
        finally:
            if h.settings.store.url and not keep:
                h.index.close()
                h.db.delete_everything()


@contextmanager
def home_for(homes: Path | None, name: str, group: str) -> Iterator[Path]:
    if homes is None:
        with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder:
            yield Path(folder)
        return
    home = homes / name / ("".join(letter if letter.isalnum() else "_" for letter in group) or "all")
    home.mkdir(parents=True, exist_ok=True)
    yield home


def fill(h: Herma, documents: Sequence[EvalDocument], level: Level) -> dict[object, str]:
    """Store the documents, unless the home has them already; return the data's id of every message or session."""
    sessions: dict[str, list[EvalDocument]] = defaultdict(list)
    for number, document in enumerate(documents):
        sessions[document.session or f"#{number}"].append(document)
    stored = h.transcripts.stats().messages
    if stored and stored != len(documents):
        raise UsageError(
            f"{h.home} holds {stored:,} messages where the data has {len(documents):,}.",
            hint="Give another folder to --homes, or delete this one.",
        )
    names: dict[object, str] = {}
    for number, (key, turns) in enumerate(sessions.items()):
        session = f"eval_{number:06}"
        if stored:
            ids = [message.id for message in h.transcripts.messages(session)]
        else:
            h.transcripts.start("import", session_id=session, started=turns[0].at)
            messages = _messages(turns)
            ids = [
                id_
                for start in range(0, len(messages), BATCH)
                for id_ in h.transcripts.append(session, messages[start : start + BATCH])
            ]
        if level == "session":
            names[session] = key
            names.update((turn.id, key) for turn in turns)
        else:
            names.update(zip(ids, (turn.id for turn in turns), strict=True))
    return names


def _messages(turns: Sequence[EvalDocument]) -> list[dict[str, object]]:
    """Turns as messages with rising times: without a later date, a turn comes one second after the one before."""
    made: list[dict[str, object]] = []
    last: float | None = None
    for turn in turns:
        at = turn.at
        if last is not None and (at is None or at <= last):
            at = last + 1
        message: dict[str, object] = {"role": turn.role, "content": turn.text}
        if at is not None:
            message["timestamp"] = last = at
        made.append(message)
    return made


# ── an exam over the user's own history ──
#
# Make questions from the user's own history, and count how often search finds the messages they were made from.
#
# The questions are made without a model, and are the same for the same seed:
#
#     content      a few words of the message that are neither common nor unique
#     paraphrase   fewer of them, in another order and another form ("migrations", "migrate")
#     dated        the rarest of them, and the day of the message
#
# The exam runs on a copy of the home, so that other models and settings can be tried.

KINDS = ("content", "paraphrase", "dated")
WORDS = 5
"""Words of a question."""
LEAST_WORDS = 4
"""A message with fewer usable words is not asked about."""
LONGEST, LEAST = 4_000, 40
"""Characters of a message that are read, and that it must have."""
COMMON = 0.02
"""A word in a larger share of the messages is too common to be used."""
MOST_SESSIONS, MOST_MESSAGES = 500, 20_000
"""Amount of history that questions are made from; all of it is searched."""
DATABASE, DERIVED = "herma.db", ("index.db", "index.db.vectors")
_WORD = re.compile(r"[^\W\d_]{4,24}")
_CJK_RUN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_CJK_PIECE = 3
_ENDINGS = ("ing", "ed", "s", "")


class ExamMessage(NamedTuple):
    """A message that questions may be made from."""

    id: int
    session: str
    text: str
    at: float = 0.0


def take(
    home: Path,
    modes: Sequence[Mode],
    variants: Mapping[str, Mapping[str, object]],
    *,
    count: int,
    seed: int,
    progress: Progress = lambda _done, _total: None,
) -> list[EvalResult]:
    """Take the same exam with the settings of each variant, in each mode. `variants`: name → settings."""
    results: list[EvalResult] = []
    asked: list[EvalQuestion] = []
    for number, (name, flags) in enumerate(variants.items()):
        with copied(home) as copy, Herma.open(home=copy, flags={**flags, "search.model_wait": PATIENT}) as h:
            asked = asked or questions(history(h, seed), count, seed)
            if not asked:
                raise UsageError(
                    "There is not enough in this home to ask about.",
                    hint="It takes messages of some length; `herma eval retrieval` measures labelled data.",
                )
            prepare(h, embedding=any(mode != "words" for mode in modes))
            found: dict[Mode, list[Answered]] = {mode: [] for mode in modes}
            notes: dict[Mode, dict[str, None]] = {mode: {} for mode in modes}
            for done, question in enumerate(asked, 1):
                for mode in modes:
                    answer, said = ask(h, question, mode, "message", str)
                    found[mode].append(answer)
                    notes[mode].update(dict.fromkeys(said))
                progress(number * len(asked) + done, len(variants) * len(asked))
        for mode in modes:
            shown = f"{name}: {mode}" if name else mode
            results.append(EvalResult("own history", shown, tuple(found[mode]), {}, tuple(notes[mode])))
    return results


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """Copy a home's transcripts and derived indexes to a temporary home."""
    if not (home / DATABASE).is_file():
        raise UsageError(f"There is no {DATABASE} in {home}.", hint="Name another home with --home.")
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder:
        copy = Path(folder)
        with copy_database(home / DATABASE, copy / DATABASE) as one:
            one.begin()
            one.copy()
        for name in DERIVED:
            copy_derived(home / name, copy / name)
        yield copy


def history(h: Herma, seed: int) -> list[ExamMessage]:
    """Read messages of users and assistants from randomly chosen sessions."""
    sessions = list(h.transcripts.list(SessionFilter(archived=False), limit=1_000_000))
    draw = random.Random(seed)  # noqa: S311  not a secret: the same seed makes the same exam
    found: list[ExamMessage] = []
    for session in draw.sample(sessions, min(len(sessions), MOST_SESSIONS)):
        for message in h.transcripts.messages(session.id):
            text = message.content
            if message.role in ("user", "assistant") and isinstance(text, str) and len(text) >= LEAST:
                found.append(ExamMessage(message.id, session.id, text, message.timestamp))
        if len(found) > MOST_MESSAGES:
            break
    return sorted(found, key=lambda one: one.id)


def questions(history: Sequence[ExamMessage], count: int, seed: int = 0) -> list[EvalQuestion]:
    """Make at most `count` questions of each kind, spread over the sessions. Messages with equal text all count."""
    words = {one.id: _content_words(one.text) for one in history}
    spread = Counter(word for these in words.values() for word in these)
    most = max(3, int(COMMON * len(history)))
    same: dict[str, list[str]] = defaultdict(list)
    for one in history:
        same[_normalized(one.text)].append(str(one.id))
    asked: list[EvalQuestion] = []
    draw = random.Random(seed)  # noqa: S311  not a secret: the same seed makes the same exam
    taken = 0
    for one in _round_robin(history, draw):
        usable = [word for word in words[one.id] if spread[word] <= most]
        if len(usable) < LEAST_WORDS:
            continue
        for kind in KINDS:
            if text := _question(kind, usable, spread, one.at, draw):
                gold = tuple(same[_normalized(one.text)])
                asked.append(EvalQuestion(f"{kind}-{one.id}", one.session, kind, text, gold))
        taken += 1
        if taken == count:
            break
    return asked


def _round_robin(history: Sequence[ExamMessage], draw: random.Random) -> Iterator[ExamMessage]:
    """Yield one random message of each session, then another of each, so that no long session dominates."""
    sessions: dict[str, list[ExamMessage]] = defaultdict(list)
    for one in history:
        sessions[one.session].append(one)
    piles = [draw.sample(pile, len(pile)) for pile in sessions.values()]
    draw.shuffle(piles)
    while piles:
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def _question(kind: str, words: Sequence[str], spread: Counter[str], at: float, draw: random.Random) -> str:
    """Write a question. Words that occur elsewhere too come before unique ones, which people seldom remember."""
    by_spread = sorted(words, key=lambda word: (spread[word] == 1, spread[word]))[: 2 * WORDS]
    chosen = set(draw.sample(by_spread, min(WORDS, len(by_spread))))
    words = [word for word in words if word in chosen]
    if kind == "content":
        return " ".join(words)
    if kind == "paraphrase":
        fewer = draw.sample(words, max(3, len(words) - 2))
        return " ".join(_inflected(word, draw) for word in fewer)
    return " ".join(words[:2]) + time.strftime(" on %Y-%m-%d", time.localtime(at)) if at else ""


def _inflected(word: str, draw: random.Random) -> str:
    """Return the word in another form with the same stem, if there is one."""
    if not word.isascii():
        return word
    root = stem(word)
    forms = [root + ending for ending in _ENDINGS if root + ending != word and stem(root + ending) == root]
    return draw.choice(forms) if forms else word


def _content_words(text: str) -> list[str]:
    """Return the content words in order, each once; Chinese, Japanese and Korean in pieces of three characters."""
    folded = fold(text[:LONGEST])
    words = [word for word in _WORD.findall(folded) if _CJK_RUN.search(word) is None and word not in STOP_WORDS]
    for run in _CJK_RUN.findall(folded):
        words += [run[start : start + _CJK_PIECE] for start in range(0, len(run) - _CJK_PIECE + 1, _CJK_PIECE)]
    return list(dict.fromkeys(words))


def _normalized(text: str) -> str:
    return " ".join(fold(text).split())
