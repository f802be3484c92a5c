"""How much of a curated text a list of operations takes away, and how much of it may go in one pass. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herma.curated.apply import apply
from herma.types import Add, Applied, MemoryOp, Replace, Target

MOST = 0.25
"""The part of a text that may change in one pass."""


@dataclass(frozen=True, slots=True)
class Loss:
    """More would go than may."""

    lost: int
    of: int
    most: float = MOST

    @property
    def sentence(self) -> str:
        share = 100 * self.lost / self.of if self.of else 0.0
        return (
            f"{self.lost:,} of {self.of:,} characters ({share:.0f} %) would change; one pass may change"
            f" {100 * self.most:.0f} %."
        )


def lost(before: Sequence[str], after: Sequence[str], successors: dict[str, str] | None = None) -> int:
    """Characters of the entries before that are nowhere after. An entry that was reworded loses what its successor does
    not say in the same words and order."""
    kept, heirs = set(after), successors or {}
    return sum(_missing(entry, heirs.get(entry, "")) for entry in before if entry not in kept)


def check_loss(
    before: Sequence[str], after: Sequence[str], successors: dict[str, str] | None = None, most: float = MOST
) -> Loss | None:
    """What goes too far; None when it may be done. Adding is never a loss, and an empty text has nothing to lose."""
    total = sum(map(len, before))
    gone = lost(before, after, successors)
    return Loss(gone, total, most) if gone > most * total else None


@dataclass(frozen=True, slots=True)
class Allowed:
    """Operations that can be carried out together, and those that cannot, with the reason."""

    operations: tuple[MemoryOp, ...]
    refused: tuple[tuple[MemoryOp, str, str], ...]
    """The operation, which check (`loss`, `no match`, `no room`), and a sentence."""


def within(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target, most: float = MOST) -> Allowed:
    """As many of these operations, in their order, as fit together, find their entries, and lose little enough."""
    chosen: list[MemoryOp] = []
    refused: list[tuple[MemoryOp, str, str]] = []
    ordered = sorted(ops, key=lambda op: isinstance(op, Add))  # what makes room goes first
    for op in ordered:
        result = apply(entries, [*chosen, op], limit, target)
        if not isinstance(result.outcome, Applied):
            refused.append((op, _kind(type(result.outcome).__name__), result.outcome.message))
            continue
        too_much = check_loss(entries, result.entries, _heirs(entries, [*chosen, op], limit, target), most)
        if too_much is not None:
            refused.append((op, "loss", too_much.sentence))
        else:
            chosen.append(op)
    return Allowed(tuple(chosen), tuple(refused))


def _heirs(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target) -> dict[str, str]:
    """Entry → what stands in its place, followed through several replacements."""
    if not any(isinstance(op, Replace) for op in ops):
        return {}
    direct = apply(entries, ops, limit, target).successors
    heirs: dict[str, str] = {}
    for entry in entries:
        now, seen = entry, {entry}
        while now in direct and direct[now] not in seen:
            now = direct[now]
            seen.add(now)
        if now != entry:
            heirs[entry] = now
    return heirs


def _missing(entry: str, successor: str) -> int:
    if not successor:
        return len(entry)
    from rapidfuzz.distance import LCSseq

    words = entry.split()
    if not words:
        return len(entry)
    kept = LCSseq.similarity(words, successor.split())
    return round(len(entry) * (1 - kept / len(words)))


def _kind(outcome: str) -> str:
    kinds = {"Duplicate": "known", "OverBudget": "no room", "NoMatch": "no match", "Ambiguous": "no match"}
    return kinds.get(outcome, "blocked")
