"""What is known about entries besides their text, carried along when they change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from herma.curated.apply import Result
from herma.curated.entries import clean
from herma.types import Author, Entry, MemoryOp, Remove

_SAME_ENTRY = 60.0
"""How alike (0 to 100) an entry before and one after a hand edit must be to count as the same one, reworded."""


def notes_after(
    ops: Sequence[MemoryOp],
    result: Result,
    known: Mapping[str, Entry],
    author: Author,
    now: float,
    *,
    vouched: bool,
) -> dict[str, Entry]:
    """Metadata of every entry that `ops` wrote.

    A replaced entry hands on when it was created, its category and its tags.
    """
    predecessors = {new: old for old, new in result.successors.items()}
    notes: dict[str, Entry] = {}
    for op in ops:
        if isinstance(op, Remove):
            continue
        text = clean(op.content)
        before = known.get(predecessors.get(text, text))
        notes[text] = Entry(
            text=text,
            category=op.category or (before.category if before else None),
            tags=op.tags or (before.tags if before else ()),
            origin=author.origin,
            vouched=vouched,
            created=before.created if before and before.created is not None else now,
            changed=now,
            confirmed=now,
        )
    return notes


def carried_over(before: Sequence[str], after: Sequence[str], known: Mapping[str, Entry], now: float) -> list[Entry]:
    """Metadata for entries that a hand edit brought in: inherited from the entry they were reworded from, else new.

    A person's trust in a text does not extend to another text.
    """
    from rapidfuzz import fuzz, process

    removed = [entry for entry in before if entry not in after]
    notes = []
    for text in after:
        if text in before or text in known:
            continue
        best = process.extractOne(text, removed, scorer=fuzz.ratio, score_cutoff=_SAME_ENTRY) if removed else None
        if best:
            removed.remove(best[0])
        source = known.get(best[0]) if best else None
        notes.append(
            replace(
                source or Entry(text, created=now),
                text=text,
                vouched=False,
                changed=now,
                confirmed=now,
                change=None,
            )
        )
    return notes
