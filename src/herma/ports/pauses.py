"""Where it is written down which background work rests, for every program of a home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

REST = 86_400.0
"""Seconds for which work is left alone whose answers could not be used."""
PauseKey: TypeAlias = tuple[str, str]
"""A purpose of background work, and a model's name."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Passes in a row whose answers could not be used, and until when nothing is asked because of it."""

    passes: int
    at: float
    why: str
    until: float = 0.0

    def rests(self, now: float) -> bool:
        """Whether it is left alone. An end further away than a rest is long comes of a clock that was set."""
        return now < self.until <= now + REST


class PauseRows(Protocol):
    """A few rows. What cannot be read or written is forgotten: then it is asked once more."""

    def read(self) -> Mapping[PauseKey, Missed]: ...

    def write(self, known: Mapping[PauseKey, Missed]) -> None: ...
