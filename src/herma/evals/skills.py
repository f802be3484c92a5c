"""Requests and the skill that each needs: how often routing names it, and how often it keeps silent where none fits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from herma.errors import UsageError
from herma.evals.data import Question
from herma.evals.measures import Answered, answered, percentile
from herma.evals.retrieval import Report, silent

Route = Callable[[str], Sequence[str]]
"""A request → names of skills, best first; none where it is better to use none."""


@dataclass(frozen=True, slots=True)
class SkillsResult:
    """Requests that need a skill, and what became of those that need none."""

    answers: tuple[Answered, ...]
    none_needed: int
    kept_silent: int
    wrongly_silent: int
    p50_ms: float
    p95_ms: float

    @property
    def abstains(self) -> float | None:
        """The share of requests that need no skill and were given none."""
        return round(self.kept_silent / self.none_needed, 4) if self.none_needed else None


def measure(
    known: Sequence[tuple[str, str]], questions: Sequence[Question], route: Route, progress: Report = silent
) -> SkillsResult:
    """`known` are the skills of the data as (id, name). Two skills of one name are the same skill to routing."""
    names = _names(known)
    found, took = [], []
    none_needed = kept_silent = wrongly_silent = 0
    for number, question in enumerate(questions, 1):
        began = time.perf_counter()
        routed = list(route(question.text))
        took.append((time.perf_counter() - began) * 1000)
        if question.gold:
            right = {names[id_] for id_ in (*question.gold, *question.also) if id_ in names}
            if not right:
                raise UsageError(f"Request {question.id} needs {question.gold[0]!r}, which is no skill of the corpus.")
            # any of them is right, so finding one is finding all
            places = [place for place, name in enumerate(routed, 1) if name in right][:1]
            one = answered(question.id, question.group, question.type, [], ["one"], took[-1])
            found.append(Answered(one.id, one.group, one.type, tuple(places), 1, one.took_ms))
            wrongly_silent += not routed
        else:
            none_needed += 1
            kept_silent += not routed
        progress(number, len(questions))
    ordered = sorted(took) or [0.0]
    return SkillsResult(
        answers=tuple(found),
        none_needed=none_needed,
        kept_silent=kept_silent,
        wrongly_silent=wrongly_silent,
        p50_ms=round(percentile(ordered, 0.5), 2),
        p95_ms=round(percentile(ordered, 0.95), 2),
    )


def _names(known: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    return {id_: name or id_.rpartition("/")[2] for id_, name in known}
