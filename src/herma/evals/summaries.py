"""Summaries of search results against gold facts: how much of what matters is in them, how long they are, how slow.

Each line of the data is one case, as JSON: `question`, `facts` (texts, or lists of texts of which one is enough),
`messages` (role, content) of the conversation that answers it, and perhaps `id`, `title`. All conversations go into one
temporary home, and each question is searched as an agent would search it: once for the raw result, which is the
baseline, and once with summaries.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from herma.app import Herma
from herma.errors import UsageError
from herma.evals.measures import percentile
from herma.evals.retrieval import Report, silent
from herma.ports import ChatModel
from herma.recall.assisted import AssistedSearch
from herma.recall.expand import Expander
from herma.recall.stem import stem
from herma.recall.summaries import USUAL, Summariser
from herma.tools.registry import Tools
from herma.tools.session_search import session_search_tool

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


def measure(
    cases: Sequence[Case], model: Callable[[], ChatModel | None], *, deadline: float = 90.0, progress: Report = silent
) -> tuple[list[SummaryResult], list[Scored]]:
    """Every case raw and, where there is a model, summed up."""
    scored: list[Scored] = []
    asked = model()
    with _filled(cases) as (h, sessions):
        summariser = Summariser(h.transcripts, lambda: asked, deadline=deadline)
        assisted = AssistedSearch(h._searcher, Expander(lambda: None), summariser)
        tools = Tools([session_search_tool(h._searcher, h.transcripts, assisted)])
        ways = {"raw": False, **({"summaries": True} if asked is not None else {})}
        for done, case in enumerate(cases, 1):
            for way, summarize in ways.items():
                scored.append(_scored(tools, case, sessions[case.id], way, summarize=summarize))
            progress(done, len(cases))
    return [_summed(way, [one for one in scored if one.way == way]) for way in ways], scored


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
def _filled(cases: Sequence[Case]) -> Iterator[tuple[Herma, dict[str, str]]]:
    with tempfile.TemporaryDirectory(prefix="herma-eval-") as folder, Herma.open(home=folder) as h:
        sessions: dict[str, str] = {}
        for case in cases:
            sessions[case.id] = h.transcripts.start("import", title=case.title)
            h.transcripts.append(sessions[case.id], list(case.messages))
        yield h, sessions


def _summed(way: str, these: Sequence[Scored]) -> SummaryResult:
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
