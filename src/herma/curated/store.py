"""Curated memory as everybody uses it: tool, review, command line, importer and dashboard all come through here.

A write: scan → keep it for a person, if one has to decide → `writer`: hold, settle, re-read, drift check, apply, swap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from herma.curated.apply import sizes
from herma.curated.entries import parse, unique
from herma.curated.inbox import ApprovalQueue
from herma.curated.live import LiveMemory
from herma.curated.shown import Presenter
from herma.curated.tail import Tail, TailParts
from herma.curated.writer import Writer
from herma.errors import StoreError, UsageError
from herma.ports import CuratedDocuments, CuratedHistory, Inbox, Place
from herma.safety.scan import scan
from herma.types import (
    TARGETS,
    Add,
    Author,
    Blocked,
    Change,
    Entry,
    MemoryOp,
    MemoryOutcome,
    Pending,
    Remove,
    Replace,
    Scope,
    Snapshot,
    StoreStatus,
    Target,
    Who,
)

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
