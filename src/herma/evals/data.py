"""Data sets, measures, runs."""

from __future__ import annotations

import json
import math
import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from herma.errors import UsageError

# ---------- evals.data
#
# Labelled data as files: JSON lines → documents and questions. What is wrong with a file is one sentence with a line.
#
# FOLDER/corpus.jsonl    doc_id, group, text; perhaps date, session, role
# FOLDER/queries.jsonl   qid, group, type, query, gold_doc_ids; perhaps question_date, also_ok

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
ADVERSARIAL: Mapping[str, frozenset[str]] = {"locomo": frozenset({"5"})}
"""Beginning of a set's name → types of its questions that nothing answers, though documents are named for them."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMBERED = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})")
_NAMED = re.compile(
    r"([A-Za-z]{3,9})\W{1,2}(\d{1,2})(?:st|nd|rd|th)?\W{1,2}(\d{4})|(\d{1,2}) ([A-Za-z]{3,9}),? (\d{4})"
)
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::\d{2})? ?([ap]m)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Document:
    """Something that can be found. Documents of one session are one conversation, in their order."""

    id: str
    group: str
    text: str
    session: str = ""
    role: str = "user"
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A question of one group, and what answers it: any of `gold`; `also` counts as right where one is asked for."""

    id: str
    group: str
    type: str
    text: str
    gold: tuple[str, ...]
    also: tuple[str, ...] = ()
    at: float | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """Documents and questions by group. `left_out` counts questions that are not asked, by the reason."""

    name: str
    documents: Mapping[str, tuple[Document, ...]]
    questions: Mapping[str, tuple[Question, ...]]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.questions.values()))


@dataclass(frozen=True, slots=True)
class Labelled:
    """A text and whether it is an attack."""

    text: str
    attack: bool
    source: str


# ── where the files are ──


def folders(paths: Sequence[Path]) -> list[Path]:
    """The folders with a corpus and questions among these, or directly inside them."""
    found: dict[Path, None] = {}
    for path in paths:
        here = [path] if (path / CORPUS).is_file() else []
        inside = sorted(one.parent for one in path.glob(f"*/{CORPUS}")) if path.is_dir() and not here else []
        if not here and not inside:
            raise UsageError(
                f"{path} has no {CORPUS}, and no folder in it has one.",
                hint=f"Name a folder with {CORPUS} and {QUERIES}, or one that holds such folders.",
            )
        found.update(dict.fromkeys([*here, *inside]))
    return list(found)


def files(paths: Sequence[Path]) -> list[Path]:
    """The files of JSON lines among these, or directly inside them."""
    found: dict[Path, None] = {}
    for path in paths:
        these = [path] if path.is_file() else sorted(path.glob("*.jsonl")) if path.is_dir() else []
        if not these:
            raise UsageError(f"{path} is no file of JSON lines, and holds none.", hint="Name a .jsonl file.")
        found.update(dict.fromkeys(these))
    return list(found)


# ── what is in them ──


def is_about_skills(folder: Path) -> bool:
    """Whether the documents are skills: a name and a description instead of a text."""
    first = next(_rows(folder / CORPUS), (0, {}))[1]
    return "text" not in first and "description" in first


def read_set(folder: Path) -> DataSet:
    """All documents and questions of a folder, as search is asked them."""
    documents: dict[str, dict[str, Document]] = defaultdict(dict)
    for line, row in _rows(folder / CORPUS):
        one = _document(row, folder / CORPUS, line)
        if one.id in documents[one.group]:
            raise _wrong(folder / CORPUS, line, f"doc_id {one.id!r} stands there twice in group {one.group!r}")
        documents[one.group][one.id] = one
    questions: dict[str, list[Question]] = defaultdict(list)
    left_out: dict[str, int] = defaultdict(int)
    for line, row in _rows(folder / QUERIES):
        asked = _question(row, folder / QUERIES, line)
        known = tuple(id_ for id_ in asked.gold if id_ in documents.get(asked.group, ()))
        reason = _not_asked(folder.name, asked, known)
        if reason:
            left_out[reason] += 1
        else:
            questions[asked.group].append(asked)
    if not questions:
        raise UsageError(f"{folder} has no question that can be asked.", hint=_counted(left_out))
    return DataSet(
        name=folder.name,
        documents={group: tuple(documents[group].values()) for group in questions},
        questions={group: tuple(these) for group, these in questions.items()},
        left_out=dict(left_out),
    )


def read_labelled(path: Path) -> list[Labelled]:
    rows = []
    for line, row in _rows(path):
        text, label = _text(row, "text", path, line), row.get("label")
        if label not in (0, 1):
            raise _wrong(path, line, f"label is {label!r}, and is to be 1 (attack) or 0 (benign)")
        rows.append(Labelled(text, label == 1, str(row.get("source") or path.stem)))
    if not rows:
        raise UsageError(f"{path} is empty.", hint="Each line is one JSON object with text and label.")
    return rows


def read_skills(folder: Path) -> tuple[list[tuple[str, str]], list[Question]]:
    """Skills as (id, name), and requests with the skill that each needs; none for a request that needs none."""
    path = folder / CORPUS
    known = [(_text(row, "doc_id", path, line), str(row.get("name") or "")) for line, row in _rows(path)]
    return known, [_question(row, folder / QUERIES, line) for line, row in _rows(folder / QUERIES)]


def moment(value: Any) -> float | None:
    """A date as data sets write them, in the local time of this machine; None for what is no date."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    if found := _NUMBERED.search(value):
        year, month, day = int(found[1]), int(found[2]), int(found[3])
    elif found := _NAMED.search(value):
        name, given, in_year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        month = next((at for at, start in enumerate(_MONTHS, 1) if name.lower().startswith(start)), 0)
        year, day = int(in_year), int(given)
    else:
        return None
    hour, minute = 12, 0
    rest = value[: found.start()] + " " + value[found.end() :]
    if clock := _CLOCK.search(rest):
        hour, minute = int(clock[1]), int(clock[2])
        if clock[3]:
            hour = hour % 12 + (12 if clock[3].lower() == "pm" else 0)
    try:
        return datetime(year, month, day, hour, minute).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None


# ── one line ──


def _document(row: Mapping[str, Any], path: Path, line: int) -> Document:
    return Document(
        id=_text(row, "doc_id", path, line),
        group=str(row.get("group") or ""),
        text=_text(row, "text", path, line),
        session=str(row.get("session") or ""),
        role=str(row.get("role") or "user"),
        at=moment(row.get("date")),
    )


def _question(row: Mapping[str, Any], path: Path, line: int) -> Question:
    gold = row.get("gold_doc_ids")
    if not isinstance(gold, list):
        raise _wrong(path, line, "gold_doc_ids is to be a list; it is empty where nothing answers the question")
    return Question(
        id=_text(row, "qid", path, line),
        group=str(row.get("group") or ""),
        type=str(row.get("type") if row.get("type") is not None else ""),
        text=_text(row, "query", path, line),
        gold=tuple(dict.fromkeys(map(str, gold))),
        also=tuple(map(str, row.get("also_ok") or ())),
        at=moment(row.get("question_date")),
    )


def _not_asked(name: str, asked: Question, known: Sequence[str]) -> str:
    """Why a question cannot be asked of search; empty when it can."""
    if not asked.gold:
        return "nothing answers it"
    if any(name.startswith(start) and asked.type in types for start, types in ADVERSARIAL.items()):
        return "adversarial"
    return "" if known else "what answers it is not in the corpus"


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Every object with the number of its line; empty lines are passed over."""
    try:
        with path.open("rb") as file:
            for line, raw in enumerate(file, 1):
                if not raw.strip():
                    continue
                yield line, _object(raw, path, line)
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}.", hint="Check the path.") from exc


def _object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        row = json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8"))
    except UnicodeDecodeError as exc:
        raise _wrong(path, line, "this is not UTF-8") from exc
    except (json.JSONDecodeError, RecursionError) as exc:
        raise _wrong(path, line, "this is not JSON") from exc
    if not isinstance(row, dict):
        raise _wrong(path, line, "this is no JSON object")
    return row


def _text(row: Mapping[str, Any], name: str, path: Path, line: int) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise _wrong(path, line, f"{name} is missing, or is no text")
    return value


def _wrong(path: Path, line: int, what: str) -> UsageError:
    return UsageError(f"{path}, line {line}: {what}.", hint="Mend that line, or take it out.")


def _counted(left_out: Mapping[str, int]) -> str:
    if not left_out:
        return "queries.jsonl is empty: each line is one JSON object with qid, query and gold_doc_ids."
    return "Left out: " + ", ".join(f"{count} ({reason})" for reason, count in left_out.items()) + "."


# ---------- evals.measures
#
# Measures of ranked answers. Pure.

DEPTH = 10
"""How far down an answer is looked at."""
RESAMPLES = 2_000
FEW_GROUPS = 5
"""With fewer groups than this, single questions are drawn instead."""
NAMES = ("hit@1", "hit@5", "hit@10", "recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")


@dataclass(frozen=True, slots=True)
class Answered:
    """One question: the places (from 1) at which right documents came, how many are right, and how long it took."""

    id: str
    group: str
    type: str
    places: tuple[int, ...]
    gold: int
    took_ms: float = 0.0

    def measure(self, name: str) -> float:
        kind, _, cut = name.partition("@")
        k = int(cut or DEPTH)
        within = [place for place in self.places if place <= k]
        if kind == "hit":
            return float(bool(within))
        if kind == "recall":
            return len(within) / self.gold
        if kind == "mrr":
            return 1 / within[0] if within else 0.0
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(self.gold, k) + 1))
        return sum(1 / math.log2(place + 1) for place in within) / ideal


def answered(id_: str, group: str, type_: str, found: Sequence[str], gold: Sequence[str], took_ms: float) -> Answered:
    right, places = set(gold), []
    for place, name in enumerate(found[:DEPTH], 1):
        if name in right:
            right.discard(name)  # found twice counts once
            places.append(place)
    return Answered(id_, group, type_, tuple(places), len(set(gold)), round(took_ms, 3))


def figures(answers: Sequence[Answered]) -> dict[str, float]:
    """Means of every measure, and the middle and the slow end of the times."""
    if not answers:
        return {"questions": 0}
    took = sorted(one.took_ms for one in answers)
    return {
        "questions": len(answers),
        **{name: round(fmean(one.measure(name) for one in answers), 4) for name in NAMES},
        "p50_ms": round(percentile(took, 0.5), 2),
        "p95_ms": round(percentile(took, 0.95), 2),
    }


def by_type(answers: Sequence[Answered]) -> dict[str, dict[str, float]]:
    kinds: dict[str, list[Answered]] = defaultdict(list)
    for one in answers:
        kinds[one.type].append(one)
    return {kind: figures(kinds[kind]) for kind in sorted(kinds)} if len(kinds) > 1 else {}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better the second is, with the interval that 95 % of resamples fall into."""

    measure: str
    first: float
    second: float
    low: float
    high: float
    pairs: int
    drawn: str

    @property
    def change(self) -> float:
        return self.second - self.first

    @property
    def sure(self) -> bool:
        """Whether the interval leaves no doubt that there is a difference."""
        return self.low > 0 or self.high < 0


def difference(first: Sequence[Answered], second: Sequence[Answered], measure: str, seed: int = 0) -> Difference | None:
    """The same questions in two runs; None when there are none. Whole groups are drawn where there are enough: the
    questions of one conversation are no independent witnesses.
    """
    known = {(one.group, one.id): one for one in first}
    pairs = [(known[one.group, one.id], one) for one in second if (one.group, one.id) in known]
    if not pairs:
        return None
    groups: Mapping[object, list[float]] = defaultdict(list)
    changes = [after.measure(measure) - before.measure(measure) for before, after in pairs]
    grouped = len({one.group for _, one in pairs}) >= FEW_GROUPS
    for at, ((_, one), change) in enumerate(zip(pairs, changes, strict=True)):
        groups[one.group if grouped else at].append(change)
    low, high = _interval(list(groups.values()), seed)
    return Difference(
        measure=measure,
        first=fmean(one.measure(measure) for one, _ in pairs),
        second=fmean(one.measure(measure) for _, one in pairs),
        low=low,
        high=high,
        pairs=len(pairs),
        drawn="groups" if grouped else "questions",
    )


def _interval(groups: Sequence[Sequence[float]], seed: int) -> tuple[float, float]:
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same interval every time
    sums = [(sum(one), len(one)) for one in groups]
    means = []
    for _ in range(RESAMPLES):
        picked = draw.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in picked) / sum(count for _, count in picked))
    means.sort()
    return percentile(means, 0.025), percentile(means, 0.975)
