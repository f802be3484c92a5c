"""Requests and the skill that each needs: how often routing names it, and how often it keeps silent where none fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from herma.errors import UsageError
from herma.evals.data import Question
from herma.evals.measures import Answered, answered, percentile
from herma.evals.retrieval import Report, silent


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
