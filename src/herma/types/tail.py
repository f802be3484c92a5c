"""The long tail of curated memory: what was taken out of MEMORY.md and USER.md and is still kept."""

from __future__ import annotations

from dataclasses import dataclass

from herma.types.common import Scope
from herma.types.memory import Category, Kept, Target


@dataclass(frozen=True, slots=True)
class TailEntry:
    """One entry that was taken out. Times are seconds since 1970."""

    id: int
    text: str
    scope: Scope
    target: Target
    left: float
    """When it was taken out."""
    why: Kept
    reason: str
    change: int
    """The change that took it out: undoing it puts the entry back."""
    category: Category | None = None
    tags: tuple[str, ...] = ()
    uses: int = 0
    """In how many conversations it was recalled."""
    last_used: float | None = None
    proposed: float | None = None
    """When it was last proposed for the prompt."""
    forgotten: float | None = None

    @property
    def holds(self) -> bool:
        """Whether what it says is still taken to be true."""
        return self.why == "room" and self.forgotten is None


@dataclass(frozen=True, slots=True)
class TailHit:
    """An entry of the long tail that fits what was asked; `score` is between 0 and 1."""

    entry: TailEntry
    score: float
    why: tuple[str, ...] = ()
