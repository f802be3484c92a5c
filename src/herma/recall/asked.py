"""What a caller may ask of search, and how it is read: slips are said, instead of being taken for something else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, get_args

from herma.errors import UsageError
from herma.recall.dates import Span, read_value
from herma.recall.query import ROLES, brief
from herma.types import Scope

Level = Literal["session", "message"]
Sort = Literal["newest", "oldest"] | None
Mode = Literal["hybrid", "words", "vectors"]
MODES: tuple[Mode, ...] = get_args(Mode)
MOST_HITS = 200
"""More than anybody reads."""
_FAR = 200_000_000_000
"""Seconds from 1970 that still have a date (the year 8307); neither infinity nor what is no number is below it."""


class SearchOptions(TypedDict, total=False):
    """What may be said beside the text of a query."""

    limit: int
    level: Level
    scope: Scope | None
    current_session: str | None
    role: str | Sequence[str] | None
    source: str | Sequence[str] | None
    project: str | Sequence[str] | None
    since: str | float | None
    before: str | float | None
    sort: Sort
    include_archived: bool
    explain: bool
    mode: Mode | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """How the answer is to look."""

    limit: int
    level: Level
    sort: Sort
    explain: bool
    mode: Mode = "hybrid"


def several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value or ()
    return tuple(item.strip() for item in given if item.strip())


def known_roles(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """The roles that are named, by the names that a query may use too."""
    return tuple(ROLES[name.casefold()] for name in several(value) if name.casefold() in ROLES)


def no_roles(value: str | Sequence[str] | None) -> list[str]:
    return [
        f"{brief(name)!r} is no role (user, assistant, tool, system); it was not used."
        for name in several(value)
        if name.casefold() not in ROLES
    ]


def edges(since: str | float | None, before: str | float | None, now: float) -> list[Span]:
    """Keyword arguments: seconds, or a date as in a query. What cannot be read is no filter."""
    spans = []
    if (at := _moment(since, now)) is not None:
        spans.append(Span(at, None, f"since:{since}"))
    if (at := _moment(before, now)) is not None:
        spans.append(Span(None, at, f"before:{before}"))
    return spans


def unread(since: str | float | None, before: str | float | None, now: float) -> list[str]:
    return [
        f"{value!r} is no date I can read (2026-03-05, 7d, yesterday); it was not used."
        for value in (since, before)
        if value not in (None, "") and _moment(value, now) is None
    ]


def _moment(value: str | float | None, now: float) -> float | None:
    if isinstance(value, str):
        span = read_value(value, now)
        return span.since if span else None
    return value if value is None or abs(value) < _FAR else None


def check(text: object, limit: object, level: str, sort: str | None, mode: str) -> None:
    """A slip of the caller's is said, instead of being taken for something else."""
    if not isinstance(text, str):
        raise UsageError(f"A query is text, not {type(text).__name__}.", hint='For example: search("login bug").')
    if not isinstance(limit, int):
        raise UsageError(f"The limit is a whole number, not {limit!r}.", hint="For example: limit=3.")
    if level not in get_args(Level):
        raise UsageError(f"{level!r} is no level.", hint=f"There are {', '.join(get_args(Level))}.")
    if sort not in (None, "newest", "oldest"):
        raise UsageError(f"{sort!r} is no order.", hint="There are newest and oldest; by relevance without it.")
    if mode not in MODES:
        raise UsageError(f"{mode!r} is no way to search.", hint=f"There are {', '.join(MODES)}.")


def check_filters(
    named: Mapping[str, object], since: object, before: object, scope: object, current_session: object
) -> None:
    """What narrows a search is of its type."""
    for name, value in named.items():
        several_texts = isinstance(value, (list, tuple, set, frozenset)) and all(isinstance(one, str) for one in value)
        if not (value is None or isinstance(value, str) or several_texts):
            raise UsageError(f"The {name} is text, or several texts, not {value!r:.80}.", hint=f'As in {name}="user".')
    for name, value in (("since", since), ("before", before)):
        if isinstance(value, bool) or not isinstance(value, (str, int, float, type(None))):
            raise UsageError(f"{name} is a date or seconds since 1970, not {value!r:.80}.", hint='As in since="7d".')
    if not isinstance(scope, (Scope, type(None))):
        raise UsageError(f"The scope is a Scope, not {scope!r:.80}.", hint='As in scope=Scope(user="anna").')
    if not isinstance(current_session, (str, type(None))):
        raise UsageError(f"The current session is named by text, not {current_session!r:.80}.", hint="Give its id.")
