"""How a curated document changes: hold it, look for drift, decide purely, swap. Nobody else calls `swap`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from herma.curated import adopt
from herma.curated.advice import suggest
from herma.curated.apply import Result, Sizes, apply, sizes
from herma.curated.entries import clean, join, parse, unique, used
from herma.curated.notes import carried_over, inherited, notes_after
from herma.curated.revert import Overtaken, revert
from herma.curated.room import making_room
from herma.errors import StoreChanged
from herma.ports import CuratedDocuments, CuratedHistory, Document, Moved, NewChange, Place
from herma.types import (
    Applied,
    Author,
    Change,
    Drifted,
    Duplicate,
    Entry,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Remove,
    Target,
    Who,
)

_TRIES = 5
_NOTED = 2000
"""Of a file with more entries than this, the rest is treated without what is known of it: the work stays bounded."""
_DRIFT_REMEDY = "Look at it, then run `herma memory adopt` to turn it into entries, or put it right by hand."


class Writer:
    """Every change of a curated document, one method each."""

    def __init__(
        self,
        documents: CuratedDocuments,
        history: CuratedHistory,
        limits: Mapping[Target, int],
        clock: Callable[[], float],
        terms: Callable[[str], Sequence[str]] = lambda _: (),
    ) -> None:
        self._documents = documents
        self._history = history
        self._limits = limits
        self._clock = clock
        self._terms = terms

    def write(
        self,
        place: Place,
        ops: Sequence[MemoryOp],
        author: Author,
        reason: str = "",
        *,
        vouched: bool = False,
    ) -> MemoryOutcome:
        """Apply operations that have been scanned and decided."""
        limit = self._limits[place.target]

        def change(document: Document) -> MemoryOutcome:
            entries = unique(parse(document.text))
            if drifted := self._drift(place, document, entries):
                return drifted
            result = apply(entries, ops, limit, place.target)
            match result.outcome:
                case Applied() as applied:
                    notes = self._notes(place, entries, ops, result, author, vouched=vouched)
                    said = making_room(entries, ops, limit, place.target) if author.who is Who.TOOL else ops
                    moved = self._moved(said, result)
                    new = NewChange(author, _action(ops), reason, notes=notes, moved=moved)
                    done = self._documents.swap(place, document.version, join(result.entries), new)
                    return replace(applied, change=done)
                case Duplicate() as duplicate:
                    notes = self._notes(place, entries, ops, result, author, vouched=vouched)
                    if vouched:  # the text is as it was, but that a person trusts it now belongs into the history
                        new = NewChange(author, "trust", reason, notes=notes)
                        done = self._documents.swap(place, document.version, document.text, new)
                        return Applied(message="Entry trusted.", change=done, **sizes(entries, limit, place.target))
                    self._history.annotate(place, list(notes.values()))
                    return duplicate
                case OverBudget() as over:
                    return self._with_advice(place, over)
                case other:
                    return other

        return self._changing(place, change)

    def rehearse(self, place: Place, ops: Sequence[MemoryOp]) -> MemoryOutcome:
        """What `write` would say now, without writing."""
        document = self._documents.read(place)
        entries = unique(parse(document.text))
        if drifted := self._drift(place, document, entries):
            return drifted
        outcome = apply(entries, ops, self._limits[place.target], place.target).outcome
        return self._with_advice(place, outcome) if isinstance(outcome, OverBudget) else outcome

    def undo(self, change: Change, author: Author) -> MemoryOutcome:
        """Take one change back, on top of whatever happened since."""
        place = Place.of(change.target, change.scope)
        limit = self._limits[place.target]

        def take_back(document: Document) -> MemoryOutcome:
            if document.trouble:
                return self._unreadable(place, document)
            current = unique(parse(document.text))
            size = sizes(current, limit, place.target)
            reverted = revert(document.text, change)
            if isinstance(reverted, Overtaken):
                message = f"Change {change.id} cannot be undone alone: what it wrote was changed again since."
                return NoMatch(message=message, entries=tuple(current), **size)
            entries = unique(parse(reverted.text))
            if not reverted.exact and used(entries) > max(limit, used(current)):
                message = (
                    f"Undoing change {change.id} needs {used(entries):,} of {limit:,} characters. Make room first."
                )
                over = OverBudget(message=message, entries=tuple(current), needed=used(entries), **size)
                return self._with_advice(place, over)
            notes = self._trust_revoked(place, change)
            new = NewChange(author, "undo", f"takes back change {change.id}", undoes=change.id, notes=notes)
            done = self._documents.swap(place, document.version, reverted.text, new)
            return Applied(message=f"Change {change.id} undone.", change=done, **sizes(entries, limit, place.target))

        return self._changing(place, take_back)

    def reset(self, place: Place, author: Author) -> MemoryOutcome:
        """Empty a document, keeping a backup."""

        def clear(document: Document) -> MemoryOutcome:
            size = sizes([], self._limits[place.target], place.target)
            if not document.text and document.raw is None and not document.trouble:
                return Duplicate(message="It is empty already.", **size)
            if document.trouble and document.raw is None:
                return self._unreadable(place, document)
            backup = self._documents.back_up(place, document)
            done = self._documents.swap(place, document.version, "", NewChange(author, "reset"))
            return Applied(message="All entries removed.", change=done, backup=backup, **size)

        return self._changing(place, clear)

    def adopt(self, place: Place, author: Author) -> MemoryOutcome:
        """Make entries out of a document that somebody wrote otherwise, keeping a backup."""

        def take_in(document: Document) -> MemoryOutcome:
            if document.trouble and document.raw is None:
                return self._unreadable(place, document)
            entries = self.adoption(place, document)
            size = sizes(entries, self._limits[place.target], place.target)
            if document.raw is None and entries == parse(document.text):
                return Duplicate(message="The file is in order already.", **size)
            backup = self._documents.back_up(place, document)
            known = self._history.notes(place, entries)
            notes = {note.text: note for note in carried_over((), entries, known, self._clock())}
            new = NewChange(author, "adopt", notes=notes)
            done = self._documents.swap(place, document.version, join(entries), new)
            return Applied(
                message=f"Adopted as {len(entries)} {'entry' if len(entries) == 1 else 'entries'}.",
                change=done,
                backup=backup,
                **size,
            )

        return self._changing(place, take_in)

    def adoption(self, place: Place, document: Document | None = None) -> list[str]:
        """The entries that `adopt` makes of a document."""
        document = document or self._documents.read(place)
        if document.raw is None:
            return adopt.split(document.text, self._limits[place.target])
        last = self._history.changes(place, limit=1)
        known = parse(last[0].after) if last else []
        return adopt.split(adopt.decode(document.raw, known), self._limits[place.target])

    def settle(self, place: Place) -> None:
        """Bring the history up to date with the file: finish what a killed process began, record edits by hand."""
        with self._hold(place):
            pass

    def sizes(self, place: Place) -> Sizes:
        """What every outcome says about a document, as it is now."""
        entries = unique(parse(self._documents.read(place).text))
        return sizes(entries, self._limits[place.target], place.target)

    # ── steps ──

    def _changing(self, place: Place, change: Callable[[Document], MemoryOutcome]) -> MemoryOutcome:
        """Run one change, again when an editor without a lock was quicker."""
        for _ in range(_TRIES - 1):
            try:
                with self._hold(place) as document:
                    return change(document)
            except StoreChanged:
                continue
        with self._hold(place) as document:
            return change(document)

    @contextmanager
    def _hold(self, place: Place) -> Iterator[Document]:
        with self._documents.hold(place) as document:
            if document.edited_from is not None:
                before, after = unique(parse(document.edited_from)), unique(parse(document.text))
                known = self._history.notes(place, list(set(before).symmetric_difference(after))[:_NOTED])
                self._history.annotate(place, carried_over(before, after, known, self._clock())[:_NOTED])
            yield document

    def _drift(self, place: Place, document: Document, entries: Sequence[str]) -> Drifted | None:
        """A document that must not be rewritten: not text, or one entry longer than everything may be."""
        if document.trouble:
            return self._unreadable(place, document)
        limit = self._limits[place.target]
        longest = max(map(len, entries), default=0)
        if longest <= limit:
            return None
        return Drifted(
            message=f"{self._documents.where(place)} holds one entry of {longest:,} characters; "
            f"the whole file may have {limit:,}.",
            reason="an entry is longer than the limit of the whole file",
            remedy=_DRIFT_REMEDY,
            backup=self._documents.back_up(place, document),
            **sizes(entries, limit, place.target),
        )

    def _unreadable(self, place: Place, document: Document) -> Drifted:
        backup = self._documents.back_up(place, document) if document.raw is not None else None
        remedy = (
            _DRIFT_REMEDY if backup else "Make it readable again; until then nothing is written, so nothing is lost."
        )
        size = sizes([], self._limits[place.target], place.target)
        return Drifted(message=f"{document.trouble}.", reason=document.trouble, remedy=remedy, backup=backup, **size)

    def _with_advice(self, place: Place, over: OverBudget) -> OverBudget:
        entries = over.entries[:_NOTED]
        known = self._history.notes(place, entries)
        touched = {text: max(note.changed or 0.0, note.confirmed or 0.0) for text, note in known.items()}
        return replace(over, suggestions=suggest(entries, touched, over.needed - over.limit))

    def _trust_revoked(self, place: Place, change: Change) -> dict[str, Entry]:
        """Whoever takes a change back no longer vouches for what it wrote in spite of the scanner."""
        known = self._history.notes(place, parse(change.after))
        return {
            text: replace(note, vouched=False)
            for text, note in known.items()
            if note.vouched and note.change == change.id
        }

    def _notes(
        self,
        place: Place,
        entries: Sequence[str],
        ops: Sequence[MemoryOp],
        result: Result,
        author: Author,
        *,
        vouched: bool,
    ) -> dict[str, Entry]:
        texts = inherited(entries, ops, result)
        known = {text: Entry(text) for text in texts} | (self._history.notes(place, texts) if texts else {})
        return notes_after(ops, result, known, author, self._clock(), vouched=vouched)

    def _moved(self, ops: Sequence[MemoryOp], result: Result) -> list[Moved]:
        """What goes to the long tail: what was taken out and is kept, unless another operation wrote it again."""
        there = set(result.entries)
        gone = {
            clean(op.old_text): op.kept
            for op in ops
            if isinstance(op, Remove) and op.kept not in ("", "merged") and clean(op.old_text) not in there
        }
        return [Moved(text, why, tuple(self._terms(text))) for text, why in gone.items()]


def _action(ops: Sequence[MemoryOp]) -> str:
    return type(ops[0]).__name__.lower() if len(ops) == 1 else f"batch of {len(ops)}"
