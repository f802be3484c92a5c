"""MemoryStore: the one writer of MEMORY.md and USER.md; history, undo, inbox."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from herma.errors import StoreChanged, StoreError, UsageError
from herma.memory.archive import Tail, TailParts
from herma.memory.entries import (
    CuratedDocuments,
    CuratedHistory,
    Document,
    Inbox,
    Moved,
    NewChange,
    Place,
    Result,
    Sizes,
    apply,
    carried_over,
    clean,
    inherited,
    join,
    making_room,
    notes_after,
    parse,
    sizes,
    suggest,
    unique,
    used,
)
from herma.memory.live import LiveMemory
from herma.prompt.assemble import placeholder, render_block, within
from herma.safety.scan import scan
from herma.types import (
    TARGETS,
    Add,
    Applied,
    Author,
    Block,
    Blocked,
    Change,
    Drifted,
    Duplicate,
    Entry,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    Origin,
    OverBudget,
    Pending,
    Remove,
    Replace,
    Scope,
    Snapshot,
    Staged,
    StoreStatus,
    Target,
    Who,
)

# ---------- curated.adopt
#
# Making entries out of a file somebody wrote otherwise:
#
# ordinary Markdown, another encoding, one endless paragraph. Pure.

_DELIMITER_BYTES = re.compile(rb"\r?\n(?:\xc2\xa7|\xa7)[ \t]*\r?\n")
_HEADING = re.compile(r"#{1,6}[ \t]+(?=\S)")
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(.*)$")
_FENCE = ("```", "~~~")
_SEPARATORS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?。！？])\s+|(?<=[。！？])"),
    re.compile(r"\s+"),
)
_HOLE = 4
"""A damaged stretch stands for at most so many characters more than it has."""


def decode(raw: bytes, known: Sequence[str] = ()) -> str:
    """Bytes that are not UTF-8, read as well as they can be:

    UTF-16 with its mark; else entry by entry: an entry of `known` that it is a damaged copy of, else line by line
    UTF-8 or Windows-1252.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    pieces = _DELIMITER_BYTES.split(raw.removeprefix(b"\xef\xbb\xbf"))
    return join(_whole_of(piece, known) or "".join(map(_decode_line, piece.splitlines(True))) for piece in pieces)


def split(text: str, limit: int) -> list[str]:
    """Entries out of any text:

    by `§` where it has any, else by bullet with its heading as prefix; nothing longer than `limit`.
    """
    pieces = parse(text)
    if len(pieces) == 1:
        pieces = list(_by_bullet(pieces[0]))
    return unique(entry for piece in pieces for part in _shorten(piece, limit) for entry in parse(part))


def _whole_of(piece: bytes, known: Sequence[str]) -> str | None:
    """The known entry that this is a damaged copy of: the same in all that can be read, holes in between."""
    sound = piece.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    if "\ufffd" not in sound:
        return None
    return next((entry for entry in known if _fills(entry, re.split("\ufffd+", sound))), None)


def _fills(entry: str, parts: Sequence[str]) -> bool:
    """Whether `entry` is these parts in order, with short holes between them."""
    first, *middle, last = parts
    if not entry.startswith(first) or not entry.endswith(last) or not (first or last or any(middle)):
        return False
    position = len(first)
    for part in middle:
        position = entry.find(part, position, position + _HOLE + len(part))
        if position < 0:
            return False
        position += len(part)
    return 0 <= len(entry) - len(last) - position <= _HOLE


def _decode_line(line: bytes) -> str:
    for encoding in ("utf-8", "cp1252"):
        try:
            return line.decode(encoding)
        except UnicodeDecodeError:
            continue
    return line.decode("latin-1")


def _heading(line: str) -> str | None:
    """The text of a Markdown heading, without the `#` that may close it."""
    opening = _HEADING.match(line)
    if opening is None:
        return None
    text = line[opening.end() :]
    bare = text.rstrip("#")
    return bare.rstrip() if bare[-1:].isspace() else text


def _by_bullet(text: str) -> Iterator[str]:
    """One entry per bullet or paragraph.

    Continuation lines, deeper bullets and code stay with theirs. Headings become prefixes; one with nothing of its
    own below it becomes an entry.
    """
    heading, current = "", ""
    in_bullet = fenced = spoken = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        fence = stripped.startswith(_FENCE)
        titled = None if fenced else _heading(stripped)
        bullet = None if fenced else _BULLET.match(line)
        continues = bool(current) and bool(stripped) and titled is None and not bullet
        if continues and (fenced or fence or not in_bullet or line[:1].isspace()):
            current += "\n" + line.rstrip()
            fenced ^= fence
            continue
        if current:
            yield current
            current = ""
        if titled is not None:
            if heading and not spoken:
                yield heading
            heading, in_bullet, spoken = titled, False, False
        elif stripped:
            in_bullet = bullet is not None
            body = bullet[1] if bullet else stripped
            current, spoken = f"{heading}: {body}" if heading else body, True
            fenced ^= fence
    if heading and not spoken:
        yield heading


def _shorten(piece: str, limit: int) -> Iterator[str]:
    """Cut at paragraphs, then lines, then sentences, then words, then anywhere, until every part fits."""
    if len(piece) <= limit:
        yield piece
        return
    for separator in _SEPARATORS:
        parts = [part for part in separator.split(piece.strip()) if part]
        if len(parts) > 1:
            glue = " " if separator is _SEPARATORS[-1] else "\n"
            for group in _pack(parts, limit, glue):
                yield from _shorten(group, limit)
            return
    for start in range(0, len(piece), limit):
        yield piece[start : start + limit]


def _pack(parts: Sequence[str], limit: int, glue: str) -> Iterator[str]:
    """Join neighbours as long as they fit, so that a long text does not fall into crumbs."""
    group: list[str] = []
    size = 0
    for part in parts:
        if group and size + len(glue) + len(part) > limit:
            yield glue.join(group)
            group, size = [], 0
        size += len(part) + (len(glue) if group else 0)
        group.append(part)
    if group:
        yield glue.join(group)


# ---------- curated.revert
#
# Taking one change back, on top of whatever happened since. Pure.


@dataclass(frozen=True, slots=True)
class Reverted:
    """The text without the change. `exact` when nothing happened since, so that it is the old text to the byte."""

    text: str
    exact: bool


@dataclass(frozen=True, slots=True)
class Overtaken:
    """It cannot be taken back alone: these entries of it were changed again since."""

    entries: tuple[str, ...]


def revert(current: str, change: Change) -> Reverted | Overtaken:
    """Take out what the change put in, and put back what it took out, where it stood."""
    if current == change.after:
        return Reverted(change.before, exact=True)
    before, after, now = (unique(parse(text)) for text in (change.before, change.after, current))
    added = set(after) - set(before)
    missing = added - set(now)
    gone = tuple(entry for entry in after if entry in missing)
    if gone:
        return Overtaken(gone)
    kept = [entry for entry in now if entry not in added]
    lost = set(before) - set(after) - set(kept)
    return Reverted(join(_put_back(before, kept, lost)), exact=False)


def _put_back(before: list[str], kept: list[str], lost: set[str]) -> list[str]:
    """Each lost entry behind its nearest predecessor that is still there; at the front when none is."""
    there = set(kept)
    behind: dict[str, list[str]] = {}
    anchor = ""
    for entry in before:
        if entry in lost:
            behind.setdefault(anchor, []).append(entry)
        elif entry in there:
            anchor = entry
    return [*behind.get("", ()), *(text for entry in kept for text in (entry, *behind.get(entry, ())))]


# ---------- curated.writer
#
# How a curated document changes: hold it, look for drift, decide purely, swap. Nobody else calls `swap`.

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
            return split(document.text, self._limits[place.target])
        last = self._history.changes(place, limit=1)
        known = parse(last[0].after) if last else []
        return split(decode(document.raw, known), self._limits[place.target])

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


# ---------- curated.inbox
#
# Writes that wait for a person: proposals under write approval, and text that came from outside.

_DAY = 86_400.0


class ApprovalQueue:
    """What is waiting, and the decisions on it. Only a person decides: no tool reaches `approve`."""

    def __init__(self, inbox: Inbox, writer: Writer, *, days: float, clock: Callable[[], float] = time.time) -> None:
        self._inbox = inbox
        self._writer = writer
        self._days = days
        self._clock = clock

    def stage(
        self,
        place: Place,
        ops: Sequence[MemoryOp],
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome:
        """Keep a write for later if it could be made now; the same proposal is kept once, and not again after
        it was rejected. `although_full` keeps it where only room is missing, which a person can make.
        """
        rehearsed = self._writer.rehearse(place, ops)
        if not isinstance(rehearsed, Applied) and not (although_full and isinstance(rehearsed, OverBudget)):
            return rehearsed
        now = self._clock()
        kept = self._inbox.put(
            Pending(0, now, now + self._days * _DAY, place.scope, place.target, author, tuple(ops), reason)
        )
        sizes = self._writer.sizes(place)
        if kept.decision == "rejected":
            day = time.strftime("%Y-%m-%d", time.localtime(kept.at))
            return Blocked(message=f"A person rejected this proposal of {day}; it is not proposed again.", **sizes)
        why = "it needs a person's approval" if author.origin.trusted else f"it comes from outside ({author.origin})"
        if isinstance(rehearsed, OverBudget):
            why = f"there is no room for it ({rehearsed.needed:,} of {rehearsed.limit:,} characters)"
        return Staged(message=f"Kept in the inbox as {kept.id}: {why}.", pending=kept.id, **sizes)

    def list(self) -> Sequence[Pending]:
        """What is waiting, oldest first. What expired is no longer shown."""
        return self._inbox.list(self._clock())

    def approve(self, pending_id: int, *, by: Author) -> MemoryOutcome:
        """Write what was proposed; it leaves the inbox when it is on disk, and stays there when it no longer fits."""
        pending = self._waiting(pending_id, by)
        origin = pending.author
        author = Author(by.who, origin.origin, origin.session, origin.message)
        outcome = self._writer.write(
            Place.of(pending.target, pending.scope),
            pending.operations,
            author,
            f"approved proposal {pending_id}{_by(origin.who)}" + (f": {pending.reason}" if pending.reason else ""),
        )
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author) -> Pending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._clock())
        return pending

    def _waiting(self, pending_id: int, by: Author) -> Pending:
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self.list():
            if pending.id == pending_id:
                return pending
        raise UsageError(
            f"Nothing with the number {pending_id} is waiting.",
            hint="`herma memory pending` lists what is waiting.",
        )


def _by(who: Who) -> str:
    """Whose proposal it was, in words for the history; a person's own needs no name."""
    return {Who.TOOL: " of the agent", Who.USER: ""}.get(who, f" by {who.value}")


# ---------- curated.shown
#
# Curated documents as a model may see them: within their limit, nothing in them that the scanner objects to.


class Presenter:
    """Turns documents into what the prompt shows. What cannot be shown becomes a warning for people."""

    def __init__(self, documents: CuratedDocuments, history: CuratedHistory, limits: Mapping[Target, int]) -> None:
        self._documents = documents
        self._history = history
        self._limits = limits

    def snapshot(self, shown: Sequence[tuple[Place, Document]]) -> Snapshot:
        """The blocks of these documents, in their order."""
        blocks: list[Block] = []
        warnings: list[str] = []
        for place, document in shown:
            where = self._documents.where(place)
            if document.trouble:
                warnings.append(f"{document.trouble}; the session starts without it.")
            entries = unique(parse(document.text))
            limit = self._limits[place.target]
            if used(entries) > limit:
                warnings.append(f"{where} is over its limit of {limit:,} characters; only its beginning is shown.")
            entries = self._presentable(place, entries, warnings)
            if text := render_block(place.target, place.scope, entries, limit):
                blocks.append(Block(place.target, where, text))
        return Snapshot(tuple(blocks), tuple(warnings))

    def entries(self, place: Place, text: str) -> list[str]:
        """The entries of a text, as a block would show them."""
        entries = self._presentable(place, unique(parse(text)), [])
        return within(entries, self._limits[place.target])[0] if entries else []

    def _presentable(self, place: Place, entries: list[str], warnings: list[str]) -> list[str]:
        """The entries, those that the scanner objects to replaced by a placeholder unless a person vouched for them.

        What is beyond the limit will not be shown, so it is not scanned: a file may be of any length.
        """
        limit, where = self._limits[place.target], self._documents.where(place)
        name = where.replace("\\", "/").rsplit("/", 1)[-1]
        shown: list[str] = []
        withheld = size = 0
        for text in entries:
            if size > limit:
                break
            findings = scan(text[:limit])
            if findings and not self._vouched(place, text, warnings):
                withheld += 1
                shown.append(placeholder(name, findings))
            else:
                shown.append(text)
            size += len(shown[-1])
        if withheld:
            warnings.append(f"{withheld} of {len(entries)} entries in {where} are withheld by the scanner.")
        return [*shown, *entries[len(shown) :]]

    def _vouched(self, place: Place, text: str, warnings: list[str]) -> bool:
        """Whether a person trusts this text; when nobody can tell, no."""
        try:
            known = self._history.notes(place, [text])
        except StoreError as exc:
            warning = f"{exc} Entries that the scanner objects to are withheld."
            if warning not in warnings:
                warnings.append(warning)
            return False
        return text in known and known[text].vouched


# ---------- curated.store
#
# Curated memory as everybody uses it: tool, review, command line, importer and dashboard all come through here.
#
# A write: scan → keep it for a person, if one has to decide → `writer`: hold, settle, re-read, drift check, apply,
# swap.

BY_USER = Author()


class MemoryStore:
    """Curated memory of one home: the home's own files, and those of its projects and users by scope."""

    def __init__(
        self,
        documents: CuratedDocuments,
        history: CuratedHistory,
        inbox: Inbox,
        *,
        limits: Mapping[Target, int],
        enabled: Sequence[Target] = TARGETS,
        write_approval: bool = False,
        inbox_days: float = 30,
        profile: str = "",
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
        tail: TailParts | None = None,
    ) -> None:
        self._documents = documents
        self._history = history
        self._limits = dict(limits)
        self._enabled = tuple(enabled)
        self._write_approval = write_approval
        self._profile = profile
        self._alive = alive
        self._presenter = Presenter(documents, history, self._limits)
        self._writer = Writer(documents, history, self._limits, clock, tail.terms if tail else lambda _: ())
        self._inbox = ApprovalQueue(inbox, self._writer, days=inbox_days, clock=clock)
        self._tail_rows = tail.rows if tail else None
        self._tail = (
            None
            if tail is None
            else Tail(
                tail,
                own=self._places,
                shown=lambda scope: self._shown(self._scoped(scope)),
                apply=self.apply,
                annotate=history.annotate,
                notes=history.notes,
                clock=clock,
                alive=alive,
            )
        )

    @property
    def tail(self) -> Tail:
        """What was taken out of the files and is still kept."""
        if self._tail is None:
            raise UsageError("This store has no long tail.", hint="Open it with Herma.open().")
        return self._tail

    # ── writing ──

    def apply(
        self,
        target: Target,
        ops: MemoryOp | Sequence[MemoryOp],
        *,
        scope: Scope | None = None,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> MemoryOutcome:
        """Apply one operation, or all of a list or none of it. When it returns `Applied`, the change is on disk.

        `trust` stores a text although the scanner objects; only a person may say so, and the history keeps it.
        """
        place, reason = self._place(target, scope), _text(reason)
        operations = tuple(ops) if isinstance(ops, Sequence) else (ops,)
        if not all(isinstance(op, Add | Replace | Remove) for op in operations):
            raise UsageError("Memory is changed by Add, Replace and Remove.", hint='For example: Add("…").')
        for text in (text for op in operations for text in _texts(op)):
            if not isinstance(text, str):
                raise UsageError(f"An entry is text, not {type(text).__name__}.", hint='For example: Add("…").')
        if not operations:
            raise UsageError(
                "An empty list of operations changes nothing.",
                hint="Give at least one Add, Replace or Remove.",
            )
        if trust and author.who is not Who.USER:
            raise UsageError("Only a person can vouch for a text that the scanner objects to.")
        blocked = self._scan(place, operations)
        if blocked and not trust:
            return blocked
        if blocked:
            reason = f"{reason} (trusted in spite of: {_rules(blocked)})".lstrip()
        if not author.origin.trusted or (self._write_approval and author.who is not Who.USER):
            return self._inbox.stage(place, operations, author, reason)
        return self._writer.write(place, operations, author, reason, vouched=blocked is not None)

    def propose(
        self,
        target: Target,
        ops: Sequence[MemoryOp],
        *,
        scope: Scope | None = None,
        author: Author = BY_USER,
        reason: str = "",
    ) -> MemoryOutcome:
        """Keep a write for a person's decision, if it could be made now."""
        place = self._place(target, scope)
        blocked = self._scan(place, ops)
        return blocked or self._inbox.stage(place, tuple(ops), author, _text(reason))

    def undo(
        self, change_id: int | None = None, *, scope: Scope | None = None, author: Author = BY_USER
    ) -> MemoryOutcome:
        """Take back the newest change that still stands, or the one given.

        Repeated, it walks back; an undo can be undone too.
        """
        self._alive()
        self._settle(scope)
        change = self._history.change(change_id) if change_id is not None else self._newest_standing(scope)
        if change is None:
            what = "There is nothing to undo." if change_id is None else f"There is no change {change_id}."
            raise UsageError(what, hint="`herma memory log` lists the changes.")
        if change.undone_by is not None:
            redo = f"To bring it back, undo the undo: herma memory undo {change.undone_by}"
            raise UsageError(f"Change {change.id} is undone already.", hint=redo)
        return self._writer.undo(change, author)

    def reset(self, target: Target, *, scope: Scope | None = None) -> MemoryOutcome:
        """Empty one file. `Applied.backup` is the copy that was kept; `undo` brings the entries back as well."""
        return self._writer.reset(self._place(target, scope), BY_USER)

    def adoption(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        """The entries that `adopt` would make of the file as it is now."""
        return self._writer.adoption(self._place(target, scope))

    def adopt(self, target: Target, *, scope: Scope | None = None) -> MemoryOutcome:
        """Make entries out of a file that somebody wrote otherwise. `Applied.backup` is the copy that was kept."""
        return self._writer.adopt(self._place(target, scope), BY_USER)

    def annotate(self, target: Target, entries: Sequence[Entry], *, scope: Scope | None = None) -> None:
        """Record what is known about entries (category, tags, last confirmed); each is found again by its text."""
        self._history.annotate(self._place(target, scope), entries)

    # ── deciding ──

    def pending(self) -> list[Pending]:
        """Writes that wait for a person, oldest first."""
        self._alive()
        return list(self._inbox.list())

    def approve(self, pending_id: int, *, by: Author = BY_USER) -> MemoryOutcome:
        self._alive()
        return self._inbox.approve(pending_id, by=by)

    def reject(self, pending_id: int, *, by: Author = BY_USER) -> Pending:
        self._alive()
        return self._inbox.reject(pending_id, by=by)

    # ── reading ──

    def is_enabled(self, target: Target) -> bool:
        return target in self._enabled

    def room(self, target: Target, *, scope: Scope | None = None) -> tuple[Scope, int, str]:
        """Whose file it is, the characters that it may hold, and what is wrong with it; `status` says more."""
        place = self._place(target, scope)
        return place.scope, self._limits[target], self._documents.read(place).trouble

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        """The entries as they are on disk now. Empty when the file is missing or cannot be read (see `status`)."""
        return unique(parse(self._documents.read(self._place(target, scope)).text))

    def describe(self, target: Target, *, scope: Scope | None = None) -> list[Entry]:
        """The entries with what is known about each, and what the scanner says of it."""
        place = self._place(target, scope)
        texts = self.entries(target, scope=scope)
        known = self._history.notes(place, texts) if texts else {}
        return [replace(known.get(text, Entry(text)), findings=tuple(scan(text))) for text in texts]

    def load(self, scope: Scope | None = None) -> Snapshot:
        """Freeze what a session of this scope is shown.

        Never fails because of a file: what cannot be read is a warning.
        """
        self._alive()
        places = self._shown(self._scoped(scope))
        return self._presenter.snapshot([(place, self._documents.read(place)) for place in places])

    def follow(self, scope: Scope | None = None) -> LiveMemory:
        """What a session of this scope is shown, and from then on what it has not been told yet."""
        self._alive()
        places = self._shown(self._scoped(scope))
        live = LiveMemory(places, self._documents, self._history, self._presenter, settle=self._writer.settle)
        if self._tail_rows is not None:
            live.still_kept = self._tail_rows.kept
        return live

    def history(
        self, target: Target | None = None, *, scope: Scope | None = None, limit: int | None = None
    ) -> list[Change]:
        """What happened to the files of this scope, newest first. Edits made by hand are recorded on the way."""
        self._alive()
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise UsageError(f"The limit is a whole number, not {limit!r}.", hint="For example: limit=10.")
        self._settle(scope)
        places = [place for place in self._places(scope) if target in (None, place.target)]
        changes = [change for place in places for change in self._history.changes(place, limit=limit)]
        return sorted(changes, key=lambda change: change.id, reverse=True)[:limit]

    def change(self, change_id: int) -> Change | None:
        """One change by its number, whatever its scope."""
        self._alive()
        return self._history.change(change_id)

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]:
        """Both files of a scope at a glance."""
        self._alive()
        pending = self._inbox.list()
        return [self._status(place, pending) for place in self._places(scope)]

    # ── steps ──

    def _place(self, target: Target, scope: Scope | None) -> Place:
        self._alive()
        if target not in TARGETS:
            raise UsageError(f"Unknown target {target!r}.", hint="Use one of: memory, user.")
        if target not in self._enabled:
            key = "memory_enabled" if target == "memory" else "user_profile_enabled"
            raise UsageError(f"The target {target!r} is switched off.", hint=f"herma config set memory.{key} true")
        return Place.of(target, self._scoped(scope))

    def _scoped(self, scope: Scope | None) -> Scope:
        """The scope within this profile, its keys as text that every store can keep."""
        scope = scope or Scope()
        if not isinstance(scope, Scope):
            raise UsageError(f"{scope!r} is no scope.", hint='For example: Scope(project="shop").')
        if scope.profile not in ("", self._profile):
            raise UsageError(
                f"This home keeps the profile {self._profile!r}, not {scope.profile!r}.",
                hint="Open the other one: Herma.open(profile=…).",
            )
        return Scope(self._profile, _text(scope.project).strip(), _text(scope.user).strip(), scope.chat)

    def _places(self, scope: Scope | None) -> list[Place]:
        return [Place.of(target, self._scoped(scope)) for target in TARGETS]

    def _shown(self, scope: Scope) -> list[Place]:
        """The documents a session sees: the home's notes, the project's notes, and one profile of the user."""
        memory = [Place("memory", scope.profile)]
        if scope.project:
            memory.append(Place.of("memory", scope))
        return [place for place in [*memory, Place.of("user", scope)] if place.target in self._enabled]

    def _scan(self, place: Place, ops: Sequence[MemoryOp]) -> Blocked | None:
        for number, op in enumerate(ops, 1):
            if isinstance(op, Remove) or not (findings := tuple(scan(op.content))):
                continue
            first = findings[0]
            which = f"Operation {number}: " if len(ops) > 1 else ""
            message = f"{which}Blocked by the scanner, rule {first.rule}: {first.why}."
            return Blocked(message=message, findings=findings, **self._writer.sizes(place))
        return None

    def _newest_standing(self, scope: Scope | None) -> Change | None:
        newest = [self._newest_standing_in(place) for place in self._places(scope)]
        return max((change for change in newest if change), key=lambda change: change.id, default=None)

    def _newest_standing_in(self, place: Place) -> Change | None:
        """Found among the latest few as a rule; a long history is read only after many undos in a row."""
        for limit in (10, None):
            for change in self._history.changes(place, limit=limit):
                if change.undoes is None and change.undone_by is None:
                    return change
        return None

    def _settle(self, scope: Scope | None) -> None:
        """Record edits by hand where the home can be written; a read-only home has a history all the same."""
        for place in self._places(scope):
            document = self._documents.read(place)
            if document.text or self._history.changes(place, limit=1):
                try:
                    self._writer.settle(place)
                except StoreError:
                    continue

    def _status(self, place: Place, pending: Sequence[Pending]) -> StoreStatus:
        document = self._documents.read(place)
        entries = unique(parse(document.text))
        size = sizes(entries, self._limits[place.target], place.target)
        return StoreStatus(
            scope=place.scope,
            path=self._documents.where(place),
            pending=sum(p.target == place.target and p.scope == place.scope for p in pending),
            changes=len(self._history.changes(place)),
            trouble=document.trouble,
            findings=sum(bool(scan(text)) for text in entries),
            **size,
        )


def _text(text: str) -> str:
    """Halves of surrogate pairs, as undecodable file names have them, written out: no store can keep them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _texts(op: MemoryOp) -> tuple[object, ...]:
    """What a caller gave as text, whatever it is."""
    match op:
        case Add(content):
            return (content,)
        case Replace(old_text, content):
            return (old_text, content)
        case Remove(old_text):
            return (old_text,)


def _rules(blocked: Blocked) -> str:
    return ", ".join(dict.fromkeys(finding.rule for finding in blocked.findings))


# ---------- curated.trust
#
# Whether a text repeats what came from outside. Linear.

_RUN = 24
_STEP = 12
_NO_LETTERS = re.compile(r"[\W_]+")


_MOST = 400_000
"""Letters of a conversation that are remembered; the oldest go first."""


class Heard:
    """What one conversation was told, and by whom: the user, or somebody outside."""

    def __init__(self) -> None:
        self._sources: deque[tuple[str, Origin]] = deque()
        self._size = 0

    def add(self, text: str, origin: Origin) -> None:
        letters = _letters(text)[-_MOST:]
        self._sources.append((letters, origin))
        self._size += len(letters)
        while self._size > _MOST:
            self._size -= len(self._sources.popleft()[0])

    def outsider(self, contents: Iterable[str]) -> Origin | None:
        """Whose words these texts say again, if that is somebody outside; what the user said too counts as theirs."""
        for said in map(_letters, contents):
            if any(origin.trusted and _repeats(said, heard) for heard, origin in self._sources):
                continue
            for heard, origin in self._sources:
                if not origin.trusted and _repeats(said, heard):
                    return origin
        return None


def _repeats(said: str, heard: str) -> bool:
    """Whether letters say again a run of some seven words that were heard: spacing, case and punctuation are gone.

    Every 12th window of 24 letters of what was heard is looked for: a repeated run of 36 letters cannot slip between
    them. What is shorter than that must be in there whole.
    """
    if not said:
        return False
    windows = {said[start : start + _RUN] for start in range(max(1, len(said) - _RUN + 1))}
    starts = [*range(0, len(heard) - _RUN, _STEP), max(0, len(heard) - _RUN)]
    if any(heard[start : start + _RUN] in windows for start in starts):
        return True
    return len(said) < _RUN + _STEP and said in heard


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold())
