"""What tidying curated memory proposes, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from herma.types.common import Scope
from herma.types.memory import MemoryOp, MemoryOutcome, Target

ProposalKind: TypeAlias = Literal["merge", "superseded", "expired", "mark", "unmark", "move"]
"""Say it once; a newer entry says otherwise; its date has passed; a check failed, or does no longer; make room."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """One thing to put in order: the entries it is about, what stands in their place, and why."""

    kind: ProposalKind
    entries: tuple[str, ...]
    result: str
    """The entry that stands in their place; nothing where they leave the file."""
    reason: str
    frees: int
    """Characters that it saves; less than nothing where it adds some."""
    confidence: float
    operations: tuple[MemoryOp, ...]
    by_model: bool = False


@dataclass(frozen=True, slots=True)
class Tidied:
    """One file: as it is, as it would be, and by which steps. `held`: left for another pass, each with the reason."""

    target: Target
    scope: Scope
    before: tuple[str, ...]
    after: tuple[str, ...]
    used: int
    """Characters before."""
    used_after: int
    limit: int
    proposals: tuple[Proposal, ...] = ()
    held: tuple[tuple[Proposal, str], ...] = ()
    outcome: MemoryOutcome | None = None
    """What came of it; None where nothing was done."""
    staged: tuple[int, ...] = ()
    """Numbers in the inbox of what waits for a person."""
    notes: tuple[str, ...] = ()

    @property
    def frees(self) -> int:
        return self.used - self.used_after


@dataclass(frozen=True, slots=True)
class TidyReport:
    """What tidying came to, file by file."""

    files: tuple[Tidied, ...] = ()
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        return any(one.outcome is not None and one.outcome.ok for one in self.files)
