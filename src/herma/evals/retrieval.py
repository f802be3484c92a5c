"""Labelled questions through the real search: every group is a home of its own, filled as a program would fill it."""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from herma.app import Herma
from herma.errors import StoreError, UsageError
from herma.evals.data import DataSet, Document, Question
from herma.evals.measures import DEPTH, Answered, answered

Mode = Literal["words", "vectors", "hybrid"]
MODES: tuple[Mode, ...] = get_args(Mode)
Level = Literal["message", "session"]
DAY = 86_400.0
BATCH = 500
PATIENT = 60.0
"""Seconds that a question waits to be embedded: what is found must not depend on how busy the machine is."""


class Report(Protocol):
    """Told how many questions are answered."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


def silent(done: int, total: int | None = None) -> None:
    """No progress wanted."""


@dataclass(frozen=True, slots=True)
class Result:
    """One set in one mode. `notes` are what search said of itself: why vectors were not used, for example."""

    set: str
    mode: str
    answers: tuple[Answered, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Clock:
    """A clock that is set to when each question was asked: "last month" is to be read as of then."""

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
    progress: Report = silent,
) -> list[Result]:
    """Ask all questions in each mode. `homes` keeps what was filled, so that the next run need not index it again."""
    found: dict[Mode, list[Answered]] = {mode: [] for mode in modes}
    notes: dict[Mode, dict[str, None]] = {mode: {} for mode in modes}
    embedding = any(mode != "words" for mode in modes)
    total = data.size + (sum(map(len, data.documents.values())) if embedding else 0)
    done, patient = 0, {**(flags or {}), "search.model_wait": PATIENT}
    for group, questions in data.questions.items():
        clock = Clock()
        documents = data.documents[group]
        with _home(homes, data.name, group) as home, Herma.open(home=home, flags=patient, clock=clock) as h:
            names = _filled(h, documents, level)
            prepare(h, embedding=embedding, progress=_after(done, total, progress))
            done += len(documents) if embedding else 0
            latest = max((one.at for one in documents if one.at is not None), default=None)
            for question in _at_level(questions, level, names):
                clock.at = question.at or (latest + DAY if latest is not None else None)
                for mode in modes:
                    answer, said = ask(h, question, mode, level, names.__getitem__)
                    found[mode].append(answer)
                    notes[mode].update(dict.fromkeys(said))
                done += 1
                progress(done, total)
    return [Result(data.name, mode, tuple(found[mode]), data.left_out, tuple(notes[mode])) for mode in modes]


def _after(done: int, total: int, progress: Report) -> Callable[[int, int], None]:
    """Progress of one part of the work."""
    return lambda more, _: progress(done + more, total)


def prepare(h: Herma, *, embedding: bool, progress: Callable[[int, int], None] = lambda _done, _total: None) -> None:
    """Wait until everything can be found by words and, where that is wanted, by meaning."""
    if embedding:
        vectors = h.index.vectors
        state = vectors.state() if vectors is not None else None
        if state is None or not state.wanted:
            trouble = f" ({state.trouble})" if state is not None and state.trouble else ""
            raise UsageError(
                f"There is no embedding model{trouble}, so nothing can be found by meaning.",
                hint="Install one with `herma models install e5-small`, or measure with --mode words.",
            )
    if not h.index.wait(progress=progress, embedding=embedding):
        status = h.index.status()
        raise StoreError(
            f"Not everything could be indexed: {status.trouble or status.vectors.trouble or 'time was up'}.",
            hint="See `herma doctor`, or measure with --mode words.",
        )


def ask(
    h: Herma, question: Question, mode: Mode, level: Level, named: Callable[[Any], str]
) -> tuple[Answered, list[str]]:
    """One question: how it was answered, and what search said about vectors. `named` gives the data's own name of a
    message's number or, at the level of sessions, of a session's id.
    """
    began = time.perf_counter()
    report = h.search(question.text, limit=DEPTH, level=level, mode=mode)
    took = (time.perf_counter() - began) * 1000
    found = [named(hit.message_id if level == "message" else hit.session_id) for hit in report.hits]
    answer = answered(question.id, question.group, question.type, found, question.gold, took)
    return answer, [note for note in report.notes if note.startswith("vectors:")]


def _at_level(questions: Sequence[Question], level: Level, names: Mapping[object, str]) -> Iterator[Question]:
    """Questions as they are, or with the sessions of what answers them."""
    for question in questions:
        if level == "message":
            yield question
        else:
            yield replace(question, gold=tuple(dict.fromkeys(names[id_] for id_ in question.gold if id_ in names)))


# ── filling a home ──


@contextmanager
def _home(homes: Path | None, name: str, group: str) -> Iterator[Path]:
    if homes is None:
        with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder:
            yield Path(folder)
        return
    home = homes / name / ("".join(letter if letter.isalnum() else "_" for letter in group) or "all")
    home.mkdir(parents=True, exist_ok=True)
    yield home


def _filled(h: Herma, documents: Sequence[Document], level: Level) -> dict[object, str]:
    """What each message, or session, is in the data. A home that was kept must hold the same data."""
    sessions: dict[str, list[Document]] = defaultdict(list)
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
        if not stored:
            h.transcripts.start("import", session_id=session, started=turns[0].at)
            ids = _appended(h, session, _messages(turns))
        else:
            ids = [message.id for message in h.transcripts.messages(session)]
        if level == "session":
            names[session] = key
            names.update((turn.id, key) for turn in turns)
        else:
            names.update(zip(ids, (turn.id for turn in turns), strict=True))
    return names


def _appended(h: Herma, session: str, messages: Sequence[dict[str, object]]) -> list[int]:
    ids: list[int] = []
    for start in range(0, len(messages), BATCH):
        ids += h.transcripts.append(session, messages[start : start + BATCH])
    return ids


def _messages(turns: Sequence[Document]) -> list[dict[str, object]]:
    """Turns as a program stores them. A turn without a date, or with that of the one before, comes a second later."""
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
