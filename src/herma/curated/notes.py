"""What is known about entries besides their text, carried along when they change. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from herma.curated.apply import Result
from herma.curated.entries import clean
from herma.types import Author, Entry, MemoryOp, Remove, Replace

_SAME_ENTRY = 60.0
"""How alike (0 to 100) an entry before and one after a hand edit must be to count as the same one, reworded."""
_COMPARED = 500
"""A hand edit that takes out more entries than this is a new file, not a reworded one."""


def notes_after(
    ops: Sequence[MemoryOp],
    result: Result,
    known: Mapping[str, Entry],
    author: Author,
    now: float,
    *,
    vouched: bool,
) -> dict[str, Entry]:
    """Metadata of every entry that `ops` wrote or said again. `known`: what was known of `inherited` before.

    A replaced entry hands on when it was created, its category and its tags; an entry that was there is confirmed.
    """
    ancestors = {new: old for old, new in result.successors.items()}
    there = set(result.entries)
    notes: dict[str, Entry] = {}
    for op in ops:
        if isinstance(op, Remove) or (text := clean(op.content)) not in there:
            continue
        before = known.get(ancestors.get(text, text))
        category = op.category or (before.category if before else None)
        tags = op.tags or (before.tags if before else ())
        if before and before.text == text:
            notes[text] = replace(
                before, category=category, tags=tags, confirmed=now, vouched=vouched or before.vouched
            )
            continue
        if before and isinstance(op, Replace) and op.reworded:  # nobody said it anew
            notes[text] = replace(before, text=text, category=category, tags=tags, vouched=False, change=None)
            continue
        notes[text] = Entry(
            text=text,
            category=category,
            tags=tags,
            origin=author.origin,
            vouched=vouched,
            created=before.created if before and before.created is not None else now,
            changed=now,
            confirmed=now,
        )
    return notes


def inherited(before: Sequence[str], ops: Sequence[MemoryOp], result: Result) -> list[str]:
    """The entries whose metadata `notes_after` builds on: those that were replaced, and those said again."""
    again = {clean(op.content) for op in ops if not isinstance(op, Remove)}
    return [*result.successors, *(text for text in before if text in again and text not in result.successors)]


def carried_over(before: Sequence[str], after: Sequence[str], known: Mapping[str, Entry], now: float) -> list[Entry]:
    """Metadata for entries that a hand edit brought in: inherited from the entry they were reworded from, else new.

    A person's trust in a text does not extend to another text.
    """
    from rapidfuzz import fuzz, process

    old, new = set(before), set(after)
    removed = [entry for entry in before if entry not in new]
    notes = []
    for text in after:
        if text in old or text in known:
            continue
        near = removed if len(removed) <= _COMPARED else ()
        best = process.extractOne(text, near, scorer=fuzz.ratio, score_cutoff=_SAME_ENTRY) if near else None
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
