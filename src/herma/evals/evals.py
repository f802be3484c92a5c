"""Retrieval, self-exam, skills, summaries, scanner."""

from __future__ import annotations

import json
import random
import re
import tempfile
import time
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, get_args

from herma import __version__
from herma.app import Herma
from herma.errors import StoreError, UsageError
from herma.evals.data import (
    CORPUS,
    DEPTH,
    NAMES,
    Answered,
    DataSet,
    Difference,
    Document,
    Labelled,
    Question,
    answered,
    by_type,
    difference,
    figures,
    percentile,
)
from herma.models.client import ChatModel
from herma.safety.scan import scan
from herma.search.expand import USUAL, Expander, Summariser
from herma.search.match import fold
from herma.search.search import AssistedSearch
from herma.skills.document import compose, slug
from herma.skills.types import FindMode, Skill
from herma.store.backup import copy_database, copy_derived
from herma.text import STOP_WORDS, stem
from herma.tools.registry import Tools
from herma.tools.session_search import session_search_tool
from herma.types import SessionFilter

# ---------- evals.retrieval
#
# Labelled questions through the real search: every group is a home of its own, filled as a program would fill it.

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
            names = _retrieval_filled(h, documents, level)
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


def _retrieval_filled(h: Herma, documents: Sequence[Document], level: Level) -> dict[object, str]:
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


# ---------- evals.runs
#
# Runs as files, so that two of them can be compared.

FORMAT = "herma-eval/1"


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured, with every single answer."""

    kind: str
    results: tuple[Result, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Under what circumstances: model, level, settings."""


def as_json(run: Run, *, answers: bool = True) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": __version__,
        "kind": run.kind,
        "facts": dict(run.facts),
        "results": [_result_json(one, answers=answers) for one in run.results],
    }


def save(run: Run, path: Path) -> None:
    try:
        path.write_text(json.dumps(as_json(run), ensure_ascii=False) + "\n", "utf-8")
    except OSError as exc:
        raise StoreError(f"{path} cannot be written: {exc.strerror}.", hint="Choose another place.") from exc


def load(path: Path) -> Run:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}.", hint="Check the path.") from exc
    except ValueError as exc:
        raise UsageError(f"{path} is no saved run.", hint="Save one with `herma eval … --save FILE`.") from exc
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UsageError(f"{path} is no saved run.", hint="Save one with `herma eval … --save FILE`.")
    try:
        return Run(str(value["kind"]), tuple(map(_result, value["results"])), value["facts"])
    except (KeyError, TypeError, ValueError) as exc:
        raise UsageError(f"{path} is damaged: {exc}.", hint="Measure and save it again.") from exc


@dataclass(frozen=True, slots=True)
class Compared:
    """One set in two runs."""

    set: str
    first: str
    second: str
    differences: tuple[Difference, ...]


def compare(first: Run, second: Run, measures: Sequence[str] = NAMES) -> list[Compared]:
    """Every set that both have, mode by mode; a run of one mode only is compared with every mode of the other."""
    found = []
    for before, after in _pairs(first.results, second.results):
        made = [difference(before.answers, after.answers, name) for name in measures]
        differences = tuple(one for one in made if one is not None)
        if differences:
            found.append(Compared(before.set, before.mode, after.mode, differences))
    if not found:
        raise UsageError(
            "The two runs have no question in common.", hint="Compare runs over the same data, and of the same kind."
        )
    return found


def _pairs(first: Sequence[Result], second: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    for after in second:
        same = [before for before in first if before.set == after.set]
        alike = [before for before in same if before.mode == after.mode]
        for before in alike or (same if len(same) == 1 else []):
            yield before, after


def _result_json(one: Result, *, answers: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "set": one.set,
        "mode": one.mode,
        **figures(one.answers),
        "types": by_type(one.answers),
        "left_out": dict(one.left_out),
        "notes": list(one.notes),
    }
    if answers:
        value["answers"] = [[a.id, a.group, a.type, list(a.places), a.gold, a.took_ms] for a in one.answers]
    return value


def _result(value: Mapping[str, Any]) -> Result:
    answers = tuple(
        Answered(str(id_), str(group), str(type_), tuple(map(int, places)), int(gold), float(took))
        for id_, group, type_, places, gold, took in value["answers"]
    )
    return Result(str(value["set"]), str(value["mode"]), answers, dict(value["left_out"]), tuple(value["notes"]))


# ---------- evals.exam
#
# Questions out of the user's own history, each with the message that it was made from: no model, the same every time.
#
#     content      a few words of the message that are neither everywhere nor a hash
#     paraphrase   fewer of them, in another order and another form ("migrations", "migrate")
#     dated        the rarest of them, and the day on which it was said
#
# What is asked for is known, so finding it can be counted; how people really ask is another matter, and harder.

KINDS = ("content", "paraphrase", "dated")
WORDS = 5
"""Words of a question."""
LEAST_WORDS = 4
"""A message with fewer such words says too little to be asked for."""
LONGEST = 4_000
"""Characters of a message that are looked at."""
COMMON = 0.02
"""A word in a larger share of messages tells none of them apart."""
_WORD = re.compile(r"[^\W\d_]{4,24}")
_RUN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_PIECE = 3
_ENDINGS = ("ing", "ed", "s", "")


@dataclass(frozen=True, slots=True)
class Said:
    """A message that a question may be made of."""

    id: int
    session: str
    text: str
    at: float = 0.0


def questions(history: Sequence[Said], count: int, seed: int = 0) -> list[Question]:
    """At most `count` of each kind, spread over the sessions. Messages that say the same all count as right."""
    known = {one.id: _words(one.text) for one in history}
    spread: Counter[str] = Counter(word for words in known.values() for word in words)
    most = max(3, int(COMMON * len(history)))
    same: dict[str, list[int]] = defaultdict(list)
    for one in history:
        same[_plain(one.text)].append(one.id)
    asked: list[Question] = []
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same exam every time
    taken = 0
    for one in _in_turns(history, draw):
        telling = [word for word in known[one.id] if spread[word] <= most]
        if len(telling) < LEAST_WORDS:
            continue
        gold = tuple(map(str, same[_plain(one.text)]))
        for kind in KINDS:
            text = _asked(kind, telling, spread, one.at, draw)
            if text:
                asked.append(Question(f"{kind}-{one.id}", one.session, kind, text, gold))
        taken += 1
        if taken == count:
            break
    return asked


def _in_turns(history: Sequence[Said], draw: random.Random) -> Iterator[Said]:
    """One message of each session, then another of each: a long session is not the whole exam."""
    sessions: dict[str, list[Said]] = defaultdict(list)
    for one in history:
        sessions[one.session].append(one)
    piles = [draw.sample(pile, len(pile)) for pile in sessions.values()]
    draw.shuffle(piles)
    while piles:
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def _asked(kind: str, telling: Sequence[str], spread: Counter[str], at: float, draw: random.Random) -> str:
    """Words that occur elsewhere too come before those that occur here only: people seldom remember the latter."""
    by_spread = sorted(telling, key=lambda word: (spread[word] == 1, spread[word]))[: 2 * WORDS]
    chosen = set(draw.sample(by_spread, min(WORDS, len(by_spread))))
    words = [word for word in telling if word in chosen]
    if kind == "content":
        return " ".join(words)
    if kind == "paraphrase":
        fewer = draw.sample(words, max(3, len(words) - 2))
        return " ".join(_inflected(word, draw) for word in fewer)
    if not at:
        return ""
    return " ".join(words[:2]) + time.strftime(" on %Y-%m-%d", time.localtime(at))


def _inflected(word: str, draw: random.Random) -> str:
    """The word in another form that is still known as the same one; itself where there is none."""
    if not word.isascii():
        return word
    root = stem(word)
    forms = [root + ending for ending in _ENDINGS if root + ending != word and stem(root + ending) == root]
    return draw.choice(forms) if forms else word


def _words(text: str) -> list[str]:
    """Content words in order, each once; scripts without spaces in pieces."""
    folded = fold(text[:LONGEST])
    found: dict[str, None] = {}
    for match in _WORD.finditer(folded):
        word = match[0]
        if _RUN.search(word) is None and word not in STOP_WORDS:
            found[word] = None
    for run in _RUN.finditer(folded):
        for start in range(0, len(run[0]) - _PIECE + 1, _PIECE):
            found[run[0][start : start + _PIECE]] = None
    return list(found)


def _plain(text: str) -> str:
    return " ".join(fold(text).split())


# ---------- evals.selfexam
#
# The exam over the user's own history, on a copy of it: how much can be found again, in which mode, by which model.

DATABASE = "herma.db"
DERIVED = ("index.db", "index.db.vectors")
MOST_SESSIONS = 500
MOST_MESSAGES = 20_000
"""As much history as questions are made of; all of it is searched."""
LEAST = 40
"""Characters that a message must have to be asked for."""


@dataclass(frozen=True, slots=True)
class Variant:
    """Settings that the exam is taken with."""

    name: str
    flags: Mapping[str, object]
    of_vectors: bool = False
    """Whether words are found in the same way by all such variants."""


def take(
    home: Path,
    modes: Sequence[Mode],
    variants: Sequence[Variant],
    *,
    count: int,
    seed: int,
    progress: Report = silent,
) -> list[Result]:
    """Take the same exam with each variant, in each mode; a mode without vectors only once."""
    results: list[Result] = []
    asked: list[Question] = []
    for number, variant in enumerate(variants):
        flags = {**variant.flags, "search.model_wait": PATIENT}
        with copied(home) as copy, Herma.open(home=copy, flags=flags) as h:
            asked = asked or questions(_history(h, seed), count, seed)
            if not asked:
                raise UsageError(
                    "There is not enough in this home to ask about.",
                    hint="It takes messages of some length; `herma eval retrieval` measures labelled data.",
                )
            wanted = [mode for mode in modes if mode != "words" or number == 0 or not variant.of_vectors]
            prepare(h, embedding=any(mode != "words" for mode in wanted))
            found: dict[Mode, list[Answered]] = {mode: [] for mode in wanted}
            notes: dict[Mode, dict[str, None]] = {mode: {} for mode in wanted}
            for done, question in enumerate(asked, 1):
                for mode in wanted:
                    answer, said = ask(h, question, mode, "message", str)
                    found[mode].append(answer)
                    notes[mode].update(dict.fromkeys(said))
                progress(number * len(asked) + done, len(variants) * len(asked))
        results += [
            Result("own history", _name(variant, mode), tuple(found[mode]), {}, tuple(notes[mode])) for mode in wanted
        ]
    return results


def _name(variant: Variant, mode: Mode) -> str:
    return mode if not variant.name or (mode == "words" and variant.of_vectors) else f"{variant.name}: {mode}"


@contextmanager
def copied(home: Path) -> Iterator[Path]:
    """A home with the same transcripts and the same derived indexes; nothing that happens there reaches the first."""
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


def _history(h: Herma, seed: int) -> list[Said]:
    """Messages of people and assistants, of as many sessions as are needed."""
    sessions = list(h.transcripts.list(SessionFilter(archived=False), limit=1_000_000))
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same exam every time
    found: list[Said] = []
    for session in draw.sample(sessions, min(len(sessions), MOST_SESSIONS)):
        for message in h.transcripts.messages(session.id):
            text = message.content
            if message.role in ("user", "assistant") and isinstance(text, str) and len(text) >= LEAST:
                found.append(Said(message.id, session.id, text, message.timestamp))
        if len(found) > MOST_MESSAGES:
            break
    return sorted(found, key=lambda one: one.id)


# ---------- evals.skills
#
# Requests and the skill that each needs: how often routing names it, and how often it keeps silent where none fits.


@dataclass(frozen=True, slots=True)
class Routed:
    """What routing says: names of skills, best first; none where it is better to use none, and what came nearest."""

    names: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()


Route = Callable[[str], Routed]


@dataclass(frozen=True, slots=True)
class SkillsResult:
    """Requests that need a skill, and what became of those that need none.

    `ranked` are the same requests as if it had never kept silent: how much of what is missed is missed by that.
    """

    answers: tuple[Answered, ...]
    ranked: tuple[Answered, ...] = field(default=(), repr=False)
    none_needed: int = 0
    kept_silent: int = 0
    wrongly_silent: int = 0
    others: int = 0
    others_silent: int = 0
    p50_ms: float = 0.0
    p95_ms: float = 0.0

    @property
    def abstains(self) -> float | None:
        """The share of requests that need no skill and were given none."""
        return round(self.kept_silent / self.none_needed, 4) if self.none_needed else None

    @property
    def abstains_on_others(self) -> float | None:
        return round(self.others_silent / self.others, 4) if self.others else None


def measure(
    known: Sequence[tuple[str, str]],
    questions: Sequence[Question],
    route: Route,
    progress: Report = silent,
    others: Sequence[str] = (),
) -> SkillsResult:
    """`known` are the skills of the data as (id, name). Two skills of one name are the same skill to routing.

    `others` are requests that have nothing to do with skills; those of the data that need none sound as if they had.
    """
    names = _names(known)
    found, ranked, took = [], [], []
    none_needed = kept_silent = wrongly_silent = others_silent = 0
    for number, question in enumerate(questions, 1):
        began = time.perf_counter()
        routed = route(question.text)
        took.append((time.perf_counter() - began) * 1000)
        if question.gold:
            right = _right(question, names)
            found.append(_placed(question, routed.names, right, took[-1]))
            ranked.append(_placed(question, routed.names or routed.nearest, right, took[-1]))
            wrongly_silent += not routed.names
        else:
            none_needed += 1
            kept_silent += not routed.names
        progress(number, len(questions) + len(others))
    for number, text in enumerate(others, len(questions) + 1):
        others_silent += not route(text).names
        progress(number, len(questions) + len(others))
    ordered = sorted(took) or [0.0]
    return SkillsResult(
        answers=tuple(found),
        ranked=tuple(ranked),
        none_needed=none_needed,
        kept_silent=kept_silent,
        wrongly_silent=wrongly_silent,
        others=len(others),
        others_silent=others_silent,
        p50_ms=round(percentile(ordered, 0.5), 2),
        p95_ms=round(percentile(ordered, 0.95), 2),
    )


def _right(question: Question, names: Mapping[str, str]) -> set[str]:
    right = {names[id_] for id_ in (*question.gold, *question.also) if id_ in names}
    if not right:
        raise UsageError(f"Request {question.id} needs {question.gold[0]!r}, which is no skill of the corpus.")
    return right


def _placed(question: Question, names: Sequence[str], right: set[str], took_ms: float) -> Answered:
    """Any of them is right, so finding one is finding all."""
    one = answered(question.id, question.group, question.type, [], ["one"], took_ms)
    places = [place for place, name in enumerate(names, 1) if name in right][:1]
    return Answered(one.id, one.group, one.type, tuple(places), 1, one.took_ms)


def _names(known: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    return {id_: name or id_.rpartition("/")[2] for id_, name in known}


# ---------- evals.skill_homes
#
# A temporary home with the skills of a data set, asked the way a program would ask.

Routes = Callable[[FindMode], Route]
"""Routing by words, by vectors, or by both, over the same skills."""


@contextmanager
def routing(data: Path, folder: Path | None, flags: Mapping[str, Any], *, embedded: bool) -> Iterator[Routes]:
    """Routing over the SKILL.md files in `folder`, or over the names and descriptions of the data."""
    settings = {**flags, **({} if embedded else {"embedding.model": "none"})}
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as home:
        if folder is None:
            _write(data / CORPUS, Path(home) / "skills")
        else:
            settings["skills.external_dirs"] = str(folder.resolve())
        with Herma.open(home, flags=settings) as h:
            if not h.skills.list(everything=True):
                raise UsageError(f"There are no skills in {folder or data}.", hint="Give the folder of the skills.")
            vectors = h.index.vectors if embedded else None
            if embedded and (vectors is None or not vectors.wait() or not vectors.state().ready):
                raise UsageError("There is no embedder.", hint="herma models install e5-small")

            def routes(mode: FindMode) -> Route:
                def route(task: str) -> Routed:
                    found = h.skills.find(task, mode=mode)
                    return Routed(
                        tuple(match.name for match in found.matches), tuple(match.name for match in found.nearest)
                    )

                return route

            yield routes


def _write(corpus: Path, target: Path) -> None:
    for line in corpus.read_text("utf-8").splitlines():
        row = json.loads(line) if line.strip() else {}
        name = slug(str(row.get("name") or ""))
        if name:
            place = target / slug(str(row["doc_id"]).replace("/", "--"))
            place.mkdir(parents=True, exist_ok=True)
            text = compose(Skill(name, " ".join(str(row.get("description") or name).split()), "See the description."))
            (place / "SKILL.md").write_text(text, encoding="utf-8")


# ---------- evals.summaries
#
# Summaries of search results against gold facts: how much of what matters is in them, how long they are, how slow.
#
# Each line of the data is one case, as JSON: `question`, `facts` (texts, or lists of texts of which one is enough),
# `messages` (role, content) of the conversation that answers it, and perhaps `id`, `title`. All conversations go into
# one temporary home, and each question is searched as an agent would search it: once for the raw result, which is the
# baseline, and once with summaries.

Fact: TypeAlias = tuple[str, ...]
"""A fact in all wordings that count."""
_TOKEN = re.compile(r"\w+(?:[./:_@#+\\-]+\w+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_EXACT = re.compile(r"[\d_./:@#+\\]")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


@dataclass(frozen=True, slots=True)
class Case:
    """One question, the conversation that answers it, and the facts that a good answer has."""

    id: str
    question: str
    facts: tuple[Fact, ...]
    messages: tuple[Mapping[str, Any], ...]
    title: str | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """One case in one way of answering. `found`: whether the right conversation was among the results."""

    id: str
    way: str
    present: int
    facts: int
    found: bool
    characters: int
    ms: float
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryResult:
    """All cases in one way of answering."""

    way: str
    cases: int
    found: float
    facts: float
    """Share of all facts that are present."""
    characters: float
    p50_ms: float
    p95_ms: float
    notes: tuple[str, ...] = ()


# ── the data ──


def read_cases(path: Path) -> list[Case]:
    """Every line of a file. What is wrong with one is a sentence with its number."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be read: {exc}.", hint="It is a file of JSON lines.") from exc
    cases = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            cases.append(_case(line, path, number))
    if not cases:
        raise UsageError(f"{path} is empty.", hint="Each line has question, facts and messages.")
    return cases


def _case(line: str, path: Path, number: int) -> Case:
    def wrong(what: str) -> UsageError:
        return UsageError(f"{path}, line {number}: {what}.", hint="Each line has question, facts and messages.")

    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as exc:
        raise wrong("this is no JSON") from exc
    if not isinstance(row, dict) or not isinstance(row.get("question"), str) or not row["question"].strip():
        raise wrong("question is missing")
    facts = row.get("facts")
    if not isinstance(facts, list) or not facts:
        raise wrong("facts is to be a list of texts")
    wordings = [tuple(one) if isinstance(one, list) else (one,) for one in facts]
    if not all(texts and all(isinstance(text, str) and text.strip() for text in texts) for texts in wordings):
        raise wrong("a fact is a text, or a list of texts")
    messages = row.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(one, dict) for one in messages):
        raise wrong("messages is to be a list of messages with role and content")
    title = row.get("title")
    return Case(
        str(row.get("id") or number),
        row["question"],
        tuple(wordings),
        tuple(messages),
        title if isinstance(title, str) else None,
    )


# ── what is in a text ──


def holds(text: str, fact: Fact) -> bool:
    """Whether a text says a fact, in any of its wordings: its words side by side, whatever their form; numbers and
    identifiers exactly.
    """
    said = _tokens(text)
    return any(_holds(text, said, wording) for wording in fact)


def _holds(text: str, said: Sequence[str], wording: str) -> bool:
    if _UNSPACED.search(wording):
        return _squeezed(wording) in _squeezed(text)
    wanted = _tokens(wording)
    size = len(wanted)
    return bool(wanted) and any(said[at : at + size] == wanted for at in range(len(said) - size + 1))


def _tokens(text: str) -> list[str]:
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    return [token if _EXACT.search(token) else stem(token) for token in _TOKEN.findall(plain)]


def _squeezed(text: str) -> str:
    return "".join(_TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


# ── measuring ──


def summaries_measure(
    cases: Sequence[Case], model: Callable[[], ChatModel | None], *, deadline: float = 90.0, progress: Report = silent
) -> tuple[list[SummaryResult], list[Scored]]:
    """Every case raw and, where there is a model, summed up."""
    scored: list[Scored] = []
    asked = model()
    with _summaries_filled(cases) as (h, sessions):
        summariser = Summariser(h.transcripts, lambda: asked, deadline=deadline)
        assisted = AssistedSearch(h._searcher, Expander(lambda: None), summariser)
        tools = Tools([session_search_tool(h._searcher, h.transcripts, assisted)])
        ways = {"raw": False, **({"summaries": True} if asked is not None else {})}
        for done, case in enumerate(cases, 1):
            for way, summarize in ways.items():
                scored.append(_scored(tools, case, sessions[case.id], way, summarize=summarize))
            progress(done, len(cases))
    return [_summaries_summed(way, [one for one in scored if one.way == way]) for way in ways], scored


def _scored(tools: Tools, case: Case, session: str, way: str, *, summarize: bool) -> Scored:
    began = time.perf_counter()
    arguments = {"query": case.question, "limit": USUAL, "summarize": summarize}
    answer = json.loads(tools.call("session_search", arguments))
    ms = (time.perf_counter() - began) * 1000
    results = answer.get("results", [])
    text = "\n".join(_told(result) for result in results)
    missing = tuple(fact[0] for fact in case.facts if not holds(text, fact))
    notes = tuple(note for note in answer.get("notes", []) if "summed up" in note)
    return Scored(
        case.id,
        way,
        len(case.facts) - len(missing),
        len(case.facts),
        any(result["session_id"] == session for result in results),
        len(text),
        round(ms, 1),
        missing,
        notes,
    )


def _told(result: Mapping[str, Any]) -> str:
    """What a model reads of a result: its summary, or the messages that are quoted."""
    if result.get("summary"):
        return str(result["summary"])
    quoted = [*result.get("bookend_start", ()), *result.get("messages", ()), *result.get("bookend_end", ())]
    return "\n".join(str(line.get("content") or "") for line in quoted)


@contextmanager
def _summaries_filled(cases: Sequence[Case]) -> Iterator[tuple[Herma, dict[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder, Herma.open(home=folder) as h:
        sessions: dict[str, str] = {}
        for case in cases:
            sessions[case.id] = h.transcripts.start("import", title=case.title)
            h.transcripts.append(sessions[case.id], list(case.messages))
        yield h, sessions


def _summaries_summed(way: str, these: Sequence[Scored]) -> SummaryResult:
    took = sorted(one.ms for one in these)
    count = max(1, len(these))
    return SummaryResult(
        way=way,
        cases=len(these),
        found=round(sum(one.found for one in these) / count, 4),
        facts=round(sum(one.present for one in these) / max(1, sum(one.facts for one in these)), 4),
        characters=round(sum(one.characters for one in these) / count, 1),
        p50_ms=round(percentile(took, 0.5), 1),
        p95_ms=round(percentile(took, 0.95), 1),
        notes=tuple(dict.fromkeys(note for one in these for note in one.notes)),
    )


# ---------- evals.safety
#
# Labelled texts through the scan that runs on every write: how many attacks it finds, and what it blocks wrongly.

EVERY = 200
EXAMPLES = 5
"""Texts that are shown of what went wrong."""


@dataclass(frozen=True, slots=True)
class SafetyResult:
    """Texts of one source. Rates are None where there is nothing to take a share of."""

    source: str
    attacks: int
    found: int
    benign: int
    blocked: int
    rules: tuple[tuple[str, int], ...] = ()
    """Rules that blocked benign texts, most often first."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0

    @property
    def recall(self) -> float | None:
        return round(self.found / self.attacks, 4) if self.attacks else None

    @property
    def false_positives(self) -> float | None:
        return round(self.blocked / self.benign, 4) if self.benign else None


def safety_measure(rows: Sequence[Labelled], progress: Report = silent) -> list[SafetyResult]:
    """Every source, and all of them together at the end."""
    by_source: dict[str, list[tuple[Labelled, tuple[str, ...], float]]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        began = time.perf_counter()
        rules = tuple(dict.fromkeys(finding.rule for finding in scan(row.text)))
        by_source[row.source].append((row, rules, (time.perf_counter() - began) * 1000))
        if number % EVERY == 0 or number == len(rows):
            progress(number, len(rows))
    results = [_safety_summed(source, by_source[source]) for source in sorted(by_source)]
    if len(results) > 1:
        results.append(_safety_summed("all", [one for these in by_source.values() for one in these]))
    return results


def _safety_summed(source: str, scanned: Sequence[tuple[Labelled, tuple[str, ...], float]]) -> SafetyResult:
    attacks = [rules for row, rules, _ in scanned if row.attack]
    benign = [rules for row, rules, _ in scanned if not row.attack]
    took = sorted(ms for _, _, ms in scanned)
    wrong = Counter(rule for rules in benign for rule in rules)
    return SafetyResult(
        source=source,
        attacks=len(attacks),
        found=sum(map(bool, attacks)),
        benign=len(benign),
        blocked=sum(map(bool, benign)),
        rules=tuple(wrong.most_common(EXAMPLES)),
        p50_ms=round(percentile(took, 0.5), 3),
        p95_ms=round(percentile(took, 0.95), 3),
    )
