"""Keyed facts: one value of one attribute of one subject, from when to when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from herma.types.common import Scope
from herma.types.memory import Target

FactSource: TypeAlias = Literal["curated", "review", "user"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A statement that answers an exact question: whose, what, the value, since when, and where it was said.

    `until` is when a newer value took its place, or its entry was taken out; None while it holds.
    """

    subject: str
    attribute: str
    value: str
    valid_from: float
    scope: Scope
    id: int = 0
    until: float | None = None
    source: FactSource = "curated"
    text: str = ""
    """The entry, or the sentence, that says so."""
    target: Target | None = None
    """Which curated file has the entry."""
    change: int | None = None
    session: str | None = None
    message: int | None = None
    forgotten: float | None = None

    @property
    def holds(self) -> bool:
        return self.until is None and self.forgotten is None
