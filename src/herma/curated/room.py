"""An agent that drops an entry only because another would not fit: what it drops is still true. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from herma.curated.apply import apply, locate
from herma.curated.entries import clean
from herma.types import Add, MemoryOp, OverBudget, Remove, Replace, Target

_ABOUT = 1 / 3
"""Part of the telling words of an old text from which a new one that has them is taken to be about the same."""


def making_room(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target) -> tuple[MemoryOp, ...]:
    """The same operations, in which entries that go to make room move to the long tail.

    That is so when the rest would not fit without dropping them, and when nothing that is written is about the same:
    then the new text stands for the old, which may be wrong by now.
    """
    written = [op for op in ops if not isinstance(op, Remove)]
    if not any(isinstance(op, Remove) and not op.kept for op in ops) or not written:
        return tuple(ops)
    without = [op for op in ops if not isinstance(op, Remove) or op.kept]
    if not isinstance(apply(entries, without, limit, target).outcome, OverBudget):
        return tuple(ops)
    return tuple(_kept(op, entries, written) for op in ops)


def _kept(op: MemoryOp, entries: Sequence[str], written: Sequence[Add | Replace]) -> MemoryOp:
    if not isinstance(op, Remove) or op.kept or not (old := clean(op.old_text)):
        return op
    hits = locate(entries, old)
    if len(hits) != 1 or any(_is_about(entries[hits[0]], one.content) for one in written):
        return op
    return replace(op, old_text=entries[hits[0]], kept="room")


def _is_about(old: str, new: str) -> bool:
    """Whether they share the words that tell: long ones, and pairs of characters where words have no spaces."""
    said, now = _telling(old), _telling(new)
    return not said or len(said & now) >= _ABOUT * len(said)


def _telling(text: str) -> set[str]:
    folded = text.casefold()
    runs = [run for run in re.findall(r"[^\W\d_a-z]{2,}", folded) if not run.isascii()]
    pairs = {run[at : at + 2] for run in runs for at in range(len(run) - 1)}
    return set(re.findall(r"[a-z]{4,}|\d{2,}", folded)) | pairs
