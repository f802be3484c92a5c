"""Read labelled data sets, and measure ranked answers against them.

FOLDER/corpus.jsonl    doc_id, group, text; optionally date, session, role
FOLDER/queries.jsonl   qid, group, type, query, gold_doc_ids; optionally question_date
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from herma.errors import UsageError

CORPUS, QUERIES = "corpus.jsonl", "queries.jsonl"
ADVERSARIAL = {"locomo": frozenset({"5"})}
"""Start of a set's name → question types that have gold documents but no answer."""
DEPTH = 10
"""Hits of a search that are measured."""
MEASURES = ("hit@1", "hit@5", "hit@10", "recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_NUMERIC_DATE = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})")
_NAMED_DATE = re.compile(
    r"([A-Za-z]{3,9})\W{1,2}(\d{1,2})(?:st|nd|rd|th)?\W{1,2}(\d{4})|(\d{1,2}) ([A-Za-z]{3,9}),? (\d{4})"
)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::\d{2})? ?([ap]m)?", re.IGNORECASE)


class EvalDocument(NamedTuple):
    """A message of the corpus. Documents with the same session form one conversation, in file order."""

    id: str
    group: str
    text: str
    session: str = ""
    role: str = "user"
    at: float | None = None


@dataclass(frozen=True, slots=True)
class EvalQuestion:
    """A question about one group. Any document in `gold` answers it."""

    id: str
    group: str
    type: str
    text: str
    gold: tuple[str, ...]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class DataSet:
    """Documents and questions by group. `left_out` counts the questions that are not asked, by reason."""

    name: str
    documents: Mapping[str, tuple[EvalDocument, ...]]
    questions: Mapping[str, tuple[EvalQuestion, ...]]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(map(len, self.questions.values()))


@dataclass(frozen=True, slots=True)
class Answered:
    """The result of one question: the ranks (from 1) of gold documents, and how many gold documents there are."""

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


def folders(paths: Sequence[Path]) -> list[Path]:
    """Return the data folders among these paths and directly inside them."""
    found: dict[Path, None] = {}
    for path in paths:
        here = [path] if (path / CORPUS).is_file() else sorted(one.parent for one in path.glob(f"*/{CORPUS}"))
        if not here:
            raise UsageError(
                f"{path} has no {CORPUS}, and no folder in it has one.",
                hint=f"Name a folder with {CORPUS} and {QUERIES}, or one that holds such folders.",
            )
        found.update(dict.fromkeys(here))
    return list(found)


def is_about_skills(folder: Path) -> bool:
    """Return whether the documents are skills: a description instead of a text."""
    _, first = next(rows(folder / CORPUS), (0, {}))
    return "text" not in first and "description" in first


def read_set(folder: Path) -> DataSet:
    """Read a data folder, and leave out the questions that search cannot answer."""
    documents: dict[str, dict[str, EvalDocument]] = defaultdict(dict)
    for line, row in rows(folder / CORPUS):
        one = EvalDocument(
            id=required(row, "doc_id", folder / CORPUS, line),
            group=str(row.get("group") or ""),
            text=required(row, "text", folder / CORPUS, line),
            session=str(row.get("session") or ""),
            role=str(row.get("role") or "user"),
            at=moment(row.get("date")),
        )
        if one.id in documents[one.group]:
            raise wrong_line(folder / CORPUS, line, f"doc_id {one.id!r} occurs twice in group {one.group!r}")
        documents[one.group][one.id] = one
    questions: dict[str, list[EvalQuestion]] = defaultdict(list)
    left_out: Counter[str] = Counter()
    for line, row in rows(folder / QUERIES):
        asked = question_of(row, folder / QUERIES, line)
        if reason := _why_left_out(folder.name, asked, documents.get(asked.group, {})):
            left_out[reason] += 1
        else:
            questions[asked.group].append(asked)
    if not questions:
        counts = ", ".join(f"{count} ({reason})" for reason, count in left_out.items())
        empty = f"{QUERIES} is empty: each line is one JSON object with qid, query and gold_doc_ids."
        raise UsageError(f"{folder} has no question to ask.", hint=f"Left out: {counts}." if counts else empty)
    return DataSet(
        name=folder.name,
        documents={group: tuple(documents[group].values()) for group in questions},
        questions={group: tuple(these) for group, these in questions.items()},
        left_out=dict(left_out),
    )


def _why_left_out(name: str, asked: EvalQuestion, documents: Mapping[str, EvalDocument]) -> str:
    if not asked.gold:
        return "nothing answers it"
    if any(name.startswith(start) and asked.type in types for start, types in ADVERSARIAL.items()):
        return "adversarial"
    return "" if any(id_ in documents for id_ in asked.gold) else "what answers it is not in the corpus"


def question_of(row: Mapping[str, Any], path: Path, line: int) -> EvalQuestion:
    """Read one line of queries.jsonl."""
    gold = row.get("gold_doc_ids")
    if not isinstance(gold, list):
        raise wrong_line(path, line, "gold_doc_ids must be a list; use [] if nothing answers the question")
    return EvalQuestion(
        id=required(row, "qid", path, line),
        group=str(row.get("group") or ""),
        type=str(row.get("type") if row.get("type") is not None else ""),
        text=required(row, "query", path, line),
        gold=tuple(dict.fromkeys(map(str, gold))),
        at=moment(row.get("question_date")),
    )


def moment(value: Any) -> float | None:
    """Read a date in the formats of public data sets, in local time; None if it is not a date."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str):
        return None
    if found := _NUMERIC_DATE.search(value):
        year, month, day = int(found[1]), int(found[2]), int(found[3])
    elif found := _NAMED_DATE.search(value):
        name, given, in_year = (found[1], found[2], found[3]) if found[1] else (found[5], found[4], found[6])
        month = next((at for at, start in enumerate(_MONTHS, 1) if name.lower().startswith(start)), 0)
        year, day = int(in_year), int(given)
    else:
        return None
    hour, minute = 12, 0
    if clock := _TIME.search(value[: found.start()] + " " + value[found.end() :]):
        hour, minute = int(clock[1]), int(clock[2])
        if clock[3]:
            hour = hour % 12 + (12 if clock[3].lower() == "pm" else 0)
    try:
        return datetime(year, month, day, hour, minute).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield every JSON object with its line number; skip empty lines."""
    try:
        with path.open("rb") as file:
            for line, raw in enumerate(file, 1):
                if raw.strip():
                    yield line, _json_object(raw, path, line)
    except OSError as exc:
        raise UsageError(f"Cannot read {path}: {exc.strerror}.", hint="Check the path.") from exc


def _json_object(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    try:
        row = json.loads(raw.decode("utf-8-sig" if line == 1 else "utf-8"))
    except UnicodeDecodeError as exc:
        raise wrong_line(path, line, "this is not UTF-8") from exc
    except (json.JSONDecodeError, RecursionError) as exc:
        raise wrong_line(path, line, "this is not JSON") from exc
    if not isinstance(row, dict):
        raise wrong_line(path, line, "this is not a JSON object")
    return row


def required(row: Mapping[str, Any], name: str, path: Path, line: int) -> str:
    """Return a field that must be text."""
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise wrong_line(path, line, f"{name} is missing or is not text")
    return value


def wrong_line(path: Path, line: int, what: str) -> UsageError:
    return UsageError(f"{path}, line {line}: {what}.", hint="Correct or remove that line.")


def answered(asked: EvalQuestion, found: Sequence[str], took_ms: float) -> Answered:
    """Compare what was found, best first, with the gold documents; a document that is found twice counts once."""
    right, places = set(asked.gold), []
    for place, name in enumerate(found[:DEPTH], 1):
        if name in right:
            right.discard(name)
            places.append(place)
    return Answered(asked.id, asked.group, asked.type, tuple(places), len(asked.gold), round(took_ms, 3))


def figures(answers: Sequence[Answered]) -> dict[str, float]:
    """Return the mean of every measure, and the median and 95th percentile of the times."""
    if not answers:
        return {"questions": 0}
    took = sorted(one.took_ms for one in answers)
    return {
        "questions": len(answers),
        **{name: round(fmean(one.measure(name) for one in answers), 4) for name in MEASURES},
        "p50_ms": round(percentile(took, 0.5), 2),
        "p95_ms": round(percentile(took, 0.95), 2),
    }


def by_type(answers: Sequence[Answered]) -> dict[str, dict[str, float]]:
    """Return the figures of each question type, if there are several."""
    kinds: dict[str, list[Answered]] = defaultdict(list)
    for one in answers:
        kinds[one.type].append(one)
    return {kind: figures(kinds[kind]) for kind in sorted(kinds)} if len(kinds) > 1 else {}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that is not exceeded by this share of the values."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]
