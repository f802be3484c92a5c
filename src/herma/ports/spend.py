"""Where spending on background work is written down, for every process of a home."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from herma.types import Usage


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money, added up. `usd` counts what has a known price; `unpriced` calls have none."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    open: int = 0
    """Calls that were begun and not ended: they count with the most that they may take."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a call may take, before it is made. `usd` is `None` where the price is not known."""

    day: str
    at: float
    purpose: str
    model: str
    tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class SpentCall:
    """One call that nobody asked for: when, for what, and what it took; while it runs, the most that it may take."""

    at: float
    purpose: str
    model: str
    settled: bool
    tokens: int
    usd: float | None
    usage: Usage


class SpendRows(Protocol):
    """One row per call."""

    def reserve(self, wish: Reservation, allows: Callable[[Mapping[str, Spent]], bool]) -> int | None:
        """Write a reservation down if `allows` says so, which is given what that day took so far, by purpose.

        Nobody else can reserve in between. → its number; `None` if it is not allowed.
        """
        ...

    def settle(self, number: int, tokens: int, usd: float | None, usage: Usage) -> None:
        """Put what a call really took in the place of its reservation."""
        ...

    def by_purpose(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """What these days took, both included."""
        ...

    def by_day(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """What each of these days took, all purposes together; a day without calls is not among them."""
        ...

    def newest(self, limit: int) -> Sequence[SpentCall]:
        """The calls made last, the newest first."""
        ...

    def days(self) -> Sequence[str]:
        """The days on which anything was spent, oldest first."""
        ...
