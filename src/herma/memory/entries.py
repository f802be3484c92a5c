"""Text ↔ entries; apply(entries, operations) → outcome (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, TypedDict

from herma.types import (
    DELIMITER,
    Add,
    Ambiguous,
    Applied,
    Author,
    Blocked,
    Change,
    Duplicate,
    Entry,
    Kept,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Pending,
    Remove,
    Replace,
    Scope,
    Suggestion,
    Target,
)

# ---------- ports.curated
#
# Where curated memory is kept: documents, their history, and the inbox.


@dataclass(frozen=True, slots=True)
class Place:
    """One curated document: whose (profile, project or user) and which of the two."""

    target: Target
    profile: str = ""
    project: str = ""
    user: str = ""

    @staticmethod
    def of(target: Target, scope: Scope) -> Place:
        """MEMORY.md belongs to the home or to a project, USER.md to the home or to a user."""
        if target == "memory":
            return Place(target, scope.profile, project=scope.project)
        return Place(target, scope.profile, user=scope.user)

    @property
    def scope(self) -> Scope:
        return Scope(self.profile, self.project, self.user)


@dataclass(frozen=True, slots=True)
class Document:
    """A curated document as it was found:

    its text, or why it cannot be read. `version` changes whenever its bytes do.
    """

    text: str
    version: str
    trouble: str = ""
    raw: bytes | None = None
    """The bytes, when they are there but are not text."""
    edited_from: str | None = None
    """The text before, when taking hold of the document just recorded an edit by hand."""


@dataclass(frozen=True, slots=True)
class Moved:
    """An entry that a change moves to the long tail: its text, why, and the terms by which it is found there."""

    text: str
    why: Kept
    terms: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NewChange:
    """A change about to be made, as the history will keep it."""

    author: Author
    action: str
    reason: str = ""
    undoes: int | None = None
    notes: Mapping[str, Entry] | None = None
    """What is known about entries that the change writes: text → metadata."""
    moved: Sequence[Moved] = ()
    """Entries that go to the long tail, in the same step: they are never in neither place."""


class CuratedDocuments(Protocol):
    """Where curated text lives. Text and history change in one step, or not at all."""

    def where(self, place: Place) -> str:
        """A name for people: the path of the file."""
        ...

    def read(self, place: Place) -> Document:
        """The document as it is now. Never raises for a missing or unreadable file; takes no lock."""
        ...

    def stamp(self, place: Place) -> object:
        """Something that differs whenever the document may have changed; None when that cannot be told. One stat."""
        ...

    def hold(self, place: Place) -> AbstractContextManager[Document]:
        """Exclusive use until the block ends:

        earlier writes settled, hand edits recorded, text re-read. `StoreBusy` after the deadline.
        """
        ...

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        """Replace the text if it is still at `version` (else `StoreChanged`); on return both text and history
        row are durable. → change id.
        """
        ...

    def back_up(self, place: Place, document: Document) -> str:
        """Keep a copy of the document under a name of its own. → that name."""
        ...


class CuratedHistory(Protocol):
    """Rows about curated memory: its changes, and what is known about each entry."""

    def changes(self, place: Place | None = None, *, limit: int | None = None) -> Sequence[Change]:
        """What happened, newest first: to this document, or to all."""
        ...

    def change(self, change_id: int) -> Change | None: ...

    def text_at(self, place: Place, version: str) -> str | None:
        """The text whose version begins like this, if the document ever had it."""
        ...

    def notes(self, place: Place, texts: Sequence[str]) -> dict[str, Entry]:
        """What is known about these entries. Entries that nobody recorded are left out."""
        ...

    def annotate(self, place: Place, entries: Sequence[Entry]) -> None:
        """Record what is known about entries, replacing what was known."""
        ...


class Inbox(Protocol):
    """Staged writes that wait for a person."""

    def put(self, pending: Pending) -> Pending:
        """Keep it; an identical one that is already waiting, or that a person rejected, is returned instead."""
        ...

    def list(self, now: float) -> Sequence[Pending]:
        """What is waiting and not expired, oldest first."""
        ...

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        """Take one out, remembering the decision. False when it is not waiting (any more)."""
        ...


# ---------- curated.entries
#
# The format: entries separated by a line that holds nothing but `§`.
#
# Whatever a person's editor did to the file (byte-order mark, CRLF, blank lines round the delimiter, a trailing
# newline) is read as the same entries; `join(parse(text))` is the form we write. A `§` inside a line is data.

_BLANK = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""What `str.strip` takes off, and the byte-order mark, which the first entry of a file would lose when read."""


def parse(text: str) -> list[str]:
    """Split a file's text into its entries."""
    pieces = (_trim(piece) for piece in clean(text).split(DELIMITER))
    return [piece for piece in pieces if piece]


def join(entries: Iterable[str]) -> str:
    """The text we write for these entries: no trailing newline, as the original writes it."""
    return DELIMITER.join(entries)


def used(entries: Sequence[str]) -> int:
    """Characters of the joined text, delimiters included."""
    return sum(map(len, entries)) + len(DELIMITER) * max(0, len(entries) - 1)


def unique(entries: Iterable[str]) -> list[str]:
    """Drop word-for-word repetitions, keeping the first."""
    return list(dict.fromkeys(entries))


def unfit(content: str) -> str | None:
    """Why this text cannot be one entry, or None when it can. `content` is already stripped."""
    if not content:
        return "The entry is empty."
    if "§" in content and any(line.strip() == "§" for line in content.splitlines()):
        return "A line of its own with only `§` separates entries; add the parts as entries of their own."
    if "\x00" in content:
        return "The entry contains a NUL character."
    if not content.isprintable() and _has_lone_surrogate(content):
        return "The entry contains half of a surrogate pair, which is not text."
    return None


def clean(content: str) -> str:
    """A text as it will be stored: newlines unified, outer blanks gone."""
    return content.replace("\r\n", "\n").replace("\r", "\n").strip(_BLANK)


def _trim(piece: str) -> str:
    """Strip blanks, and delimiter lines left dangling at the end, which would swallow the next entry when joined."""
    piece = piece.strip(_BLANK)
    if not piece.endswith("\n§"):
        return piece
    end = len(piece)
    while piece.endswith("\n§", 0, end):
        end -= 2
        while end and piece[end - 1] in _BLANK:
            end -= 1
    return piece[:end]


def _has_lone_surrogate(content: str) -> bool:
    try:
        content.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


# ---------- curated.apply
#
# What a list of operations does to a list of entries. Pure: no clock, no disk, no log.
#
# A batch is atomic: either every operation holds and the budget is kept at the end, or nothing changed and the
# outcome names the first operation that failed.

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


# ---------- curated.room
#
# An agent that drops an entry only because another would not fit: what it drops is still true. Pure.

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


# ---------- curated.advice
#
# How to make room in a full file: near-duplicates to merge first, then the stalest entries. Pure.

SIMILAR = 72.0
"""Token-set similarity, 0 to 100, from which two entries are taken to say the same thing."""

MOST = 3
_ADVICE_COMPARED = 200
"""So many of the stalest entries are compared with each other: the work grows with the square."""


def suggest(entries: Sequence[str], last_touched: Mapping[str, float], excess: int) -> tuple[Suggestion, ...]:
    """At most three suggestions, the most useful first; together they free `excess` characters where they can.

    `last_touched` is when an entry was last written or confirmed; one that nobody recorded counts as the oldest.
    """
    stale = sorted(entries, key=lambda entry: last_touched.get(entry, 0.0))
    merges = _merges(stale[:_ADVICE_COMPARED])
    spoken_for = {entry for merge in merges for entry in merge.entries}
    delimiter = len(DELIMITER) if len(entries) > 1 else 0
    drops = [
        Suggestion("drop", (entry,), len(entry) + delimiter, "written longest ago and not confirmed since")
        for entry in stale
        if entry not in spoken_for
    ]
    chosen: list[Suggestion] = []
    for suggestion in [*merges, *drops]:
        if len(chosen) == MOST or (chosen and sum(s.frees for s in chosen) >= excess):
            break
        chosen.append(suggestion)
    return tuple(chosen)


def _merges(entries: Sequence[str]) -> list[Suggestion]:
    """Pairs that say nearly the same, most alike first, no entry in two pairs. Merging keeps the longer one."""
    from rapidfuzz import fuzz

    pairs = [
        (fuzz.token_set_ratio(a, b), a, b)
        for i, a in enumerate(entries)
        for b in entries[i + 1 :]
        if min(len(a), len(b)) > 15
    ]
    merges: list[Suggestion] = []
    taken: set[str] = set()
    for score, a, b in sorted(pairs, reverse=True):
        if score < SIMILAR or len(merges) == MOST:
            break
        if a not in taken and b not in taken:
            taken |= {a, b}
            frees = min(len(a), len(b)) + len(DELIMITER)
            merges.append(Suggestion("merge", (a, b), frees, f"{score:.0f} % alike"))
    return merges


# ---------- curated.notes
#
# What is known about entries besides their text, carried along when they change. Pure.

_SAME_ENTRY = 60.0
"""How alike (0 to 100) an entry before and one after a hand edit must be to count as the same one, reworded."""
_NOTES_COMPARED = 500
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
        near = removed if len(removed) <= _NOTES_COMPARED else ()
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
