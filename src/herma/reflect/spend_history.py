"""What background work took, day by day and call by call, and what the daily cap stopped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from herma.ports import SpendRows, Spent, SpentCall
from herma.reflect.spend import local_day

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """The cap left no room for something: when, for what, and the notice that was given."""

    at: float
    purpose: str
    notice: str
    times: int = 1
    """How often that was said that day: once by each program."""


@dataclass(frozen=True, slots=True)
class SpendHistory:
    """Every day in order, also those on which nothing was spent; calls and notices, the newest first."""

    days: tuple[tuple[str, Spent], ...]
    calls: tuple[SpentCall, ...]
    stopped: tuple[Stopped, ...]


def history(rows: SpendRows, noted: Sequence[Stopped], now: float, *, days: int, calls: int) -> SpendHistory:
    wanted = last_days(local_day(now), days)
    found = rows.by_day(wanted[0], wanted[-1]) if wanted else {}
    each = tuple((day, found.get(day, Spent())) for day in wanted)
    return SpendHistory(each, tuple(rows.newest(calls)), together(noted))


def last_days(today: str, count: int) -> list[str]:
    """So many days of the calendar, today the last of them. Pure."""
    last = date.fromisoformat(today)
    return [(last - timedelta(days=back)).isoformat() for back in range(count - 1, -1, -1)]


def together(noted: Sequence[Stopped]) -> tuple[Stopped, ...]:
    """One notice for each day and purpose, as it was given last; the newest first. Pure."""
    found: dict[tuple[str, str], Stopped] = {}
    for one in sorted(noted, key=lambda one: one.at):
        key = (local_day(one.at), one.purpose)
        before = found.pop(key, None)
        found[key] = Stopped(one.at, one.purpose, one.notice, one.times + (before.times if before else 0))
    return tuple(reversed(found.values()))
