"""What a list of operations does to a list of entries. Pure: no clock, no disk, no log.

A batch is atomic: either every operation holds and the budget is kept at the end, or nothing changed and the
outcome names the first operation that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypedDict

from herma.curated.entries import clean, unfit, used
from herma.types import (
    Add,
    Ambiguous,
    Applied,
    Blocked,
    Duplicate,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Remove,
    Replace,
    Target,
)

PREVIEW = 80


class Sizes(TypedDict):
    """What every outcome says about the file."""

    target: Target
    entry_count: int
    used: int
    limit: int


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome and the entries after it: the same list as before unless the outcome is `Applied`."""

    outcome: MemoryOutcome
    entries: tuple[str, ...]
    successors: dict[str, str] = field(default_factory=dict)
    """Replaced entry → the entry that took its place: what was known about the first is inherited by the second."""


def apply(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target = "memory") -> Result:
    """Apply all of `ops` or none of them."""
    before = tuple(entries)
    now = list(entries)
    heirs: dict[str, str] = {}
    for number, op in enumerate(ops, 1):
        failure = _step(now, op, limit, target, heirs)
        if failure is not None:
            return Result(_in_batch(failure, number, len(ops), before), before)
    if now == list(before):
        return Result(Duplicate(message=_unchanged(ops), **sizes(before, limit, target)), before)
    size = used(now)
    known = set(before)
    longest = max((len(entry) for entry in now if entry not in known), default=0)
    if (size > limit and size >= used(before)) or longest > limit:
        return Result(_over_budget(before, size, longest, limit, target, ops), before)
    message = _done(ops) if len(ops) == 1 else f"Applied {len(ops)} operation(s)."
    successors = {old: new for new, old in heirs.items() if old in known}
    return Result(Applied(message=message, **sizes(now, limit, target)), tuple(now), successors)


def locate(entries: Sequence[str], old_text: str) -> list[int]:
    """Where the entries are that contain `old_text`: one index when it is unique or all matches are identical."""
    hits = [i for i, entry in enumerate(entries) if old_text in entry]
    return hits[:1] if len({entries[i] for i in hits}) == 1 else hits


def _step(now: list[str], op: MemoryOp, limit: int, target: Target, heirs: dict[str, str]) -> MemoryOutcome | None:
    """Apply one operation to `now`, or say why it cannot be applied. `heirs`: replacing entry → the first replaced."""
    size = sizes(now, limit, target)
    content = "" if isinstance(op, Remove) else clean(op.content)
    if not isinstance(op, Remove) and (problem := unfit(content)):
        if isinstance(op, Replace) and not content:
            problem = "The new text is empty; use remove to delete an entry."
        return Blocked(message=problem, **size)
    if isinstance(op, Add):
        if content not in now:
            now.append(content)
        return None
    old_text = clean(op.old_text)
    hits = _whole(now, old_text) if _is_whole(op) else locate(now, old_text) if old_text else []
    if not hits:
        what = f"No entry contains {_quote(old_text)}." if old_text else "old_text is empty, so it locates no entry."
        return NoMatch(message=what, entries=tuple(now), **size)
    if len(hits) > 1:
        matches = tuple(_preview(now[i]) for i in hits)
        text = f"{len(hits)} different entries contain {_quote(old_text)}; quote more of the one you mean."
        return Ambiguous(message=text, matches=matches, **size)
    replaced = now.pop(hits[0])
    ancestor = heirs.pop(replaced, replaced)
    if isinstance(op, Replace) and content not in now:  # else it became word for word another entry: one is enough
        now.insert(hits[0], content)
        heirs[content] = ancestor
    return None


def _is_whole(op: Replace | Remove) -> bool:
    """Whether `old_text` is the entry and not a part of it."""
    return op.reworded if isinstance(op, Replace) else bool(op.kept)


def _whole(entries: Sequence[str], old_text: str) -> list[int]:
    return [i for i, entry in enumerate(entries) if entry == old_text][:1]


def _over_budget(
    before: tuple[str, ...], size: int, longest: int, limit: int, target: Target, ops: Sequence[MemoryOp]
) -> OverBudget:
    what = "This" if len(ops) == 1 else "Together these operations"
    message = (
        f"{what} would bring {target} to {size:,} of {limit:,} characters ({size - limit:,} too many). "
        "Merge or drop entries first."
        if longest <= limit
        else f"One entry of {longest:,} characters cannot fit into {target}, which has {limit:,}. Shorten it."
    )
    return OverBudget(message=message, entries=before, needed=size, **sizes(before, limit, target))


def _in_batch(failure: MemoryOutcome, number: int, count: int, before: tuple[str, ...]) -> MemoryOutcome:
    """Outside a single call, say which operation failed and that none was applied; sizes are those of the
    untouched file.
    """
    if count == 1:
        return failure
    message = f"Operation {number}: {failure.message} No operation was applied."
    failure = replace(failure, message=message, entry_count=len(before), used=used(before))
    return replace(failure, entries=before) if isinstance(failure, NoMatch) else failure


def _unchanged(ops: Sequence[MemoryOp]) -> str:
    if all(isinstance(op, Add) for op in ops):
        return "Entry already exists (no duplicate added)."
    return "Nothing to change: the entries are like that already."


def _done(ops: Sequence[MemoryOp]) -> str:
    match ops[0]:
        case Add():
            return "Entry added."
        case Replace():
            return "Entry replaced."
        case Remove():
            return "Entry removed."


def sizes(entries: Sequence[str], limit: int, target: Target) -> Sizes:
    return {"target": target, "entry_count": len(entries), "used": used(entries), "limit": limit}


def _quote(text: str) -> str:
    return f"“{_preview(text)}”"


def _preview(entry: str) -> str:
    return entry if len(entry) <= PREVIEW else entry[:PREVIEW] + "..."
