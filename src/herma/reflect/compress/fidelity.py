"""The gate before anything is replaced: does the summary still name what the work hangs on?

What is missing is added, the most used first, as far as the budget goes. A summary that then still lacks what it must
have is not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from herma.reflect.compress.extract import marks_of, plain_text
from herma.reflect.compress.landmarks import Landmark, finished_tasks, open_tasks, same_task, survives
from herma.reflect.compress.summary import Line, Summary, render, stands_in
from herma.types import Message

_A_LINE = 8
_KINDS = ("path", "identifier", "number")


@dataclass(frozen=True, slots=True)
class Weighty:
    """A landmark, how many messages name it, which, and whether the user did."""

    mark: Landmark
    sources: tuple[int, ...]
    by_user: bool

    @property
    def required(self) -> bool:
        """What the user named, and paths and identifiers that came up again."""
        return self.by_user or (self.mark.kind != "number" and len(self.sources) > 1)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What survived of what there was, by kind; what was required and is missing."""

    kept: dict[str, int]
    there: dict[str, int]
    missing: tuple[Weighty, ...] = ()
    lost_tasks: tuple[str, ...] = ()
    lost_request: bool = False

    @property
    def passed(self) -> bool:
        return not (self.lost_request or self.lost_tasks or any(each.required for each in self.missing))

    def share(self, kind: str) -> float:
        return self.kept.get(kind, 0) / self.there[kind] if self.there.get(kind) else 1.0


def weigh(messages: Iterable[Message]) -> list[Weighty]:
    """The landmarks of a conversation, those that matter most first."""
    where: dict[Landmark, list[int]] = {}
    users: set[Landmark] = set()
    for message in messages:
        for mark in marks_of(message):
            where.setdefault(mark, []).append(message.id)
            if message.role == "user":
                users.add(mark)
    found = [Weighty(mark, tuple(sorted(set(ids))), mark in users) for mark, ids in where.items()]
    return sorted(found, key=lambda each: (-each.by_user, -len(each.sources), -max(each.sources, default=0)))


def tasks_of(messages: Sequence[Message]) -> dict[str, int]:
    """Open tasks, and the message that named each last; ticked-off ones are gone."""
    found: dict[str, int] = {}
    for message in messages:
        if stands_in(message) or message.role == "tool":
            continue
        text = plain_text(message)
        finished = finished_tasks(text)
        found = {task: at for task, at in found.items() if not same_task(task, finished)}
        found |= dict.fromkeys(open_tasks(text), message.id)
    return found


@dataclass(frozen=True, slots=True)
class Survey:
    """What a part of a conversation names, looked up once."""

    weighty: tuple[Weighty, ...]
    tasks: dict[str, int]

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Survey:
        return cls(tuple(weigh(messages)), tasks_of(messages))

    def paths(self) -> dict[str, Sequence[int]]:
        return {each.mark.text: each.sources for each in self.weighty if each.mark.kind == "path"}


def check(survey: Survey, summary: Summary, request: str = "") -> Verdict:
    """How much of what was surveyed a summary still names."""
    text = render(summary)
    weighty = survey.weighty
    missing = tuple(each for each in weighty if not survives(each.mark, text))
    there = {kind: sum(each.mark.kind == kind for each in weighty) for kind in _KINDS}
    gone = {kind: sum(each.mark.kind == kind for each in missing) for kind in _KINDS}
    tasks = list(survey.tasks)
    lost = tuple(task for task in tasks if not _names(text, task))
    kept: dict[str, int] = {kind: there[kind] - gone[kind] for kind in _KINDS}
    return Verdict(
        kept={**kept, "task": len(tasks) - len(lost)},
        there={**there, "task": len(tasks)},
        missing=missing,
        lost_tasks=lost,
        lost_request=bool(request) and request not in summary.request,
    )


def mend(survey: Survey, summary: Summary, request: str, fits: Callable[[str], bool]) -> tuple[Summary, Verdict]:
    """Add what is missing: the request, the tasks and what is required in any case, the rest as long as it fits."""
    if request and request not in summary.request:
        summary = Summary(summary.lines, request)
    verdict = check(survey, summary, request)
    where = survey.tasks
    tasks = [Line(task, (where[task],) if where[task] else ()) for task in verdict.lost_tasks]
    summary = summary.with_lines("next", [*summary.of("next"), *tasks])
    required = [each for each in verdict.missing if each.required]
    summary = _also(summary, required)
    for each in _batches([each for each in verdict.missing if not each.required]):
        longer = _also(summary, each)
        if not fits(render(longer)):
            break
        summary = longer
    return summary, check(survey, summary, request)


def _also(summary: Summary, missing: Sequence[Weighty]) -> Summary:
    lines = [
        Line(
            ", ".join(each.mark.text for each in some),
            tuple(sorted({at for each in some for at in each.sources if at})),
        )
        for some in _batches(missing)
    ]
    return summary.with_lines("also", [*summary.of("also"), *lines])


def _batches(missing: Sequence[Weighty]) -> list[Sequence[Weighty]]:
    return [missing[at : at + _A_LINE] for at in range(0, len(missing), _A_LINE)]


def _names(text: str, task: str) -> bool:
    """Whether a task is there, in its own words or cut short."""
    return task in text or (len(task) > 200 and task[:200] in text)
