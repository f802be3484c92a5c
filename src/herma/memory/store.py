"""Store curated memory: `MemoryStore` is the one writer of MEMORY.md and USER.md, with history, undo and inbox.

A write goes through these steps: scan; propose it in the inbox if a person has to decide; hold the file, record edits
by hand, read it again; `entries.apply`; replace the file and commit the history row in one step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from herma.errors import FormerName, StoreChanged, StoreError, UsageError, checked
from herma.index import Embeddable, Embeddables
from herma.index.vectors import PassageRows
from herma.memory.archive import Archive, archive_terms
from herma.memory.entries import (
    ApplyResult,
    MemoryDocument,
    Moved,
    NewChange,
    Place,
    Sizes,
    apply,
    carried_over,
    clean,
    decode,
    done_message,
    duplicates,
    inherited,
    is_about,
    join,
    making_room,
    notes_after,
    operations_of,
    parse,
    sizes,
    split,
    suggest,
    unique,
    used,
)
from herma.memory.files import InboxRows, LiveMemory, MemoryRows, Presenter, documents_of
from herma.models.telemetry import COUNT, OPERATION, OUTCOME, STORE, Attributes, traced
from herma.safety.scan import scan
from herma.transcript.provenance import says_the_same
from herma.types import (
    TARGETS,
    Add,
    Applied,
    Author,
    Blocked,
    Category,
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

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.config import MemorySettings

BY_USER = Author()
_DAY = 86_400.0
_TRIES = 5
"""Attempts of a change when an editor without a lock was quicker."""
_NOTED = 2000
"""Entries of a file whose metadata is read; the rest of a longer file is treated as unknown, to bound the work."""
_DRIFT_REMEDY = "Check the file, then run `herma memory adopt` to turn it into entries, or correct it by hand."


def enabled_targets(options: MemorySettings) -> list[Target]:
    """Return the curated files that are switched on; others are neither shown nor written nor asked."""
    on: dict[Target, bool] = {"memory": options.memory_enabled, "user": options.user_profile_enabled}
    return [target for target, is_on in on.items() if is_on]


def entry_texts(app: Herma) -> Embeddables:
    """Embed the entries of the home's own files, and of every file that was ever written to.

    The keys are target, project, user and text; the scopes are those of episodes.
    """
    files, passages = documents_of(app), PassageRows(app.db)

    def places() -> list[Place]:
        own = [Place(target, app.settings.profile) for target in TARGETS]
        return list(dict.fromkeys((*own, *(Place(*row) for row in passages.places()))))

    def texts() -> Iterator[Embeddable]:
        for place in places():
            for entry in dict.fromkeys(parse(files.read(place).text)):
                key = f"{place.target}\x1f{place.project}\x1f{place.user}\x1f{entry}"
                yield Embeddable(key, entry, f"{place.profile}\0{place.user}")

    return Embeddables("entry", lambda: repr([(place, files.stamp(place)) for place in places()]), texts)


def _reported(_: MemoryStore, target: Target, ops: MemoryOp | Sequence[MemoryOp], **__: object) -> Attributes:
    """Return the attributes of a write for `telemetry`."""
    given = ops if isinstance(ops, list | tuple) else [ops]
    names = {Add: "create_memory", Replace: "update_memory", Remove: "delete_memory"}
    kinds = {names.get(type(one), "upsert_memory") for one in given}
    return {OPERATION: kinds.pop() if len(kinds) == 1 else "upsert_memory", STORE: target, COUNT: len(given)}


@checked("reason", "text", "old", "new")
class MemoryStore:
    """Curated memory of one home: the home's own files, and those of its projects and users by scope."""

    def __init__(self, app: Herma) -> None:
        options = app.settings.memory
        self._app = app
        self._options = options
        self._history = MemoryRows(app.db)
        self._inbox = InboxRows(app.db)
        self._documents = documents_of(app)
        self._limits: dict[Target, int] = {"memory": options.memory_char_limit, "user": options.user_char_limit}
        self._enabled = enabled_targets(options)
        self._presenter = Presenter(self._documents, self._history, self._limits)

    @cached_property
    def archive(self) -> Archive:
        """The entries that left the files and are still kept."""
        return Archive(self._app)

    tail = FormerName("archive")

    # ── writing ──

    def add(
        self,
        target: Target,
        text: str,
        *,
        category: Category | None = None,
        tags: Sequence[str] = (),
        scope: Scope | None = None,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> MemoryOutcome:
        """Append one entry to a file: `h.memory.add("user", "Prefers short answers.")`. See `apply`."""
        op = Add(text, category, tuple(tags))
        return self.apply(target, op, scope=scope, author=author, reason=reason, trust=trust)

    def replace(
        self,
        target: Target,
        old: str,
        new: str,
        *,
        category: Category | None = None,
        tags: Sequence[str] = (),
        scope: Scope | None = None,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> MemoryOutcome:
        """Put `new` in the place of the one entry that contains `old`. See `apply`."""
        op = Replace(old, new, category, tuple(tags))
        return self.apply(target, op, scope=scope, author=author, reason=reason, trust=trust)

    def remove(
        self, target: Target, old: str, *, scope: Scope | None = None, author: Author = BY_USER, reason: str = ""
    ) -> MemoryOutcome:
        """Remove the one entry that contains `old`. See `apply`."""
        return self.apply(target, Remove(old), scope=scope, author=author, reason=reason)

    @traced("upsert_memory", _reported, lambda outcome: {OUTCOME: type(outcome).__name__})
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

        `trust` stores a text that the scanner blocks; only a person may set it, and the history records it.
        """
        place, reason = self._place(target, scope), _printable(reason)
        operations = operations_of(ops)
        if trust and author.who is not Who.USER:
            raise UsageError("Only a person can trust a text that the scanner blocks; nothing was written.")
        blocked = self._scan(place, operations)
        if blocked and not trust:
            return blocked
        if blocked:
            rules = ", ".join(dict.fromkeys(finding.rule for finding in blocked.findings))
            reason = f"{reason} (trusted in spite of: {rules})".lstrip()
        if (rejected := self._rejected(place, operations, author)) is not None:
            return rejected
        if not author.origin.trusted or (self._options.write_approval and author.who is not Who.USER):
            return self._stage(place, operations, author, reason)
        if touching := self._touching_a_persons(place, operations, author):
            return self._stage(place, touching, author, reason or "an agent needs room for something else")
        theirs = self._removed_of_a_person(place, operations) if author.who is Who.TOOL else ()
        outcome = self._write(place, operations, author, reason, vouched=blocked is not None)
        if theirs and isinstance(outcome, Applied):
            quoted = "; ".join(f"“{text}”" for text in theirs)
            said = (
                f"{outcome.message} A person wrote what was removed: {quoted} To undo it: herma undo m{outcome.change}"
            )
            return replace(outcome, message=said, freed=(*outcome.freed, *theirs))
        if not isinstance(outcome, OverBudget) or author.who is Who.USER:
            return outcome
        proposed = self._app.tidy.propose_room(place.scope, outcome)
        if not proposed:
            return outcome
        numbers = ", ".join(f"m{number}" for number in proposed)
        waits = f"{outcome.message} Proposals to make room wait for a person (herma inbox): {numbers}."
        return replace(outcome, proposed=proposed, message=waits)

    def document(self, target: Target, *, scope: Scope | None = None) -> MemoryDocument:
        """Return a document as a whole, with the version that `edit` asks for."""
        with self._hold(self._place(target, scope)) as document:  # an edit by hand is recorded first
            return document

    def edit(
        self,
        target: Target,
        text: str,
        version: str,
        *,
        scope: Scope | None = None,
        author: Author = BY_USER,
        trust: bool = False,
    ) -> MemoryOutcome:
        """Replace a document by the text that a person made of it, if it is still at `version`.

        Raise `StoreChanged` if it is not. `trust` stores entries that the scanner blocks.
        """
        if author.who is not Who.USER:
            raise UsageError("Only a person edits a whole document.", hint="Use add, replace or remove.")
        place, limit = self._place(target, scope), self._limits[target]

        def put(document: MemoryDocument) -> MemoryOutcome:
            if document.trouble:
                return self._unreadable(place, document)
            if document.version != version:
                raise StoreChanged(
                    f"{self._documents.where(place)} was changed since it was opened; nothing was written.",
                    hint="Open it again, and make your changes in the text as it is now.",
                )
            before, after = unique(parse(document.text)), unique(parse(text))
            size = sizes(before, limit, target)
            if before == after:
                return Duplicate(message="Nothing was changed.", **size)
            new = [entry for entry in after if entry not in before]
            findings = [finding for entry in new for finding in scan(entry)]
            if findings and not trust:
                message = f"Blocked by the scanner, rule {findings[0].rule}: {findings[0].why}."
                return Blocked(message=message, findings=tuple(findings), **size)
            if used(after) > max(limit, used(before)):
                message = f"The text has {used(after):,} of {limit:,} characters; nothing was written."
                return OverBudget(message=message, entries=tuple(before), needed=used(after), **size)
            known = self._history.notes(place, after)
            notes = {note.text: note for note in carried_over(before, after, known, self._app.clock())}
            for entry in new if trust else ():
                notes[entry] = replace(notes.get(entry) or known.get(entry) or Entry(entry), vouched=bool(scan(entry)))
            why = "trusted in spite of the scanner" if findings else ""
            done = self._documents.swap(place, version, join(after), NewChange(author, "edit", why, notes=notes))
            gone = len([entry for entry in before if entry not in after])
            message = f"{len(new)} written, {gone} taken out."
            return Applied(message=message, change=done, **sizes(after, limit, target))

        return self._changing(place, put)

    def propose(
        self,
        target: Target,
        ops: MemoryOp | Sequence[MemoryOp],
        *,
        scope: Scope | None = None,
        author: Author = BY_USER,
        reason: str = "",
        although_full: bool = False,
    ) -> MemoryOutcome:
        """Put a write into the inbox if it could be made now; with `although_full`, also if only room is missing."""
        place, operations = self._place(target, scope), operations_of(ops)
        blocked = self._scan(place, operations)
        return blocked or self._stage(place, operations, author, _printable(reason), although_full=although_full)

    def rehearse(
        self,
        target: Target,
        ops: MemoryOp | Sequence[MemoryOp],
        *,
        scope: Scope | None = None,
        trust: bool = False,
    ) -> ApplyResult:
        """Return what `apply` would do for a person: the outcome, and the entries after it. Nothing is written."""
        place, operations = self._place(target, scope), operations_of(ops)
        result = self._rehearsed(place, operations)
        blocked = self._scan(place, operations) if result.outcome.ok and not trust else None
        return result._replace(outcome=blocked) if blocked else result

    def undo(
        self,
        change_id: int | None = None,
        *,
        scope: Scope | None = None,
        author: Author = BY_USER,
        dry_run: bool = False,
    ) -> MemoryOutcome:
        """Undo the newest change that still stands, or the one given. Repeated calls walk back.

        An undo can be undone too. With `dry_run`, nothing is written, and `Applied.change` is 0.
        """
        change = self._to_undo(change_id, scope)
        place = Place.of(change.target, change.scope)
        limit = self._limits[place.target]

        def take_back(document: MemoryDocument) -> MemoryOutcome:
            if document.trouble:
                return self._unreadable(place, document)
            current = unique(parse(document.text))
            size = sizes(current, limit, place.target)
            reverted = revert(document.text, change)
            if reverted is None:
                message = f"Change {change.id} cannot be undone alone: what it wrote was changed again since."
                return NoMatch(message=message, entries=tuple(current), **size)
            entries = unique(parse(reverted))
            if document.text != change.after and used(entries) > max(limit, used(current)):
                message = (
                    f"Undoing change {change.id} needs {used(entries):,} of {limit:,} characters. Make room first."
                )
                over = OverBudget(message=message, entries=tuple(current), needed=used(entries), **size)
                return self._with_suggestions(place, over)
            if dry_run:
                return Applied(message="It would be undone.", **sizes(entries, limit, place.target))
            known = self._history.notes(place, parse(change.after))
            trusted = (note for note in known.values() if note.vouched and note.change == change.id)
            notes = {note.text: replace(note, vouched=False) for note in trusted}
            new = NewChange(author, "undo", f"takes back change {change.id}", undoes=change.id, notes=notes)
            done = self._documents.swap(place, document.version, reverted, new)
            return Applied(message=f"Change {change.id} undone.", change=done, **sizes(entries, limit, place.target))

        return self._changing(place, take_back)

    def reset(self, target: Target, *, scope: Scope | None = None) -> MemoryOutcome:
        """Empty one file. `Applied.backup` is the copy that was kept; `undo` brings the entries back as well."""
        place, size = self._place(target, scope), sizes([], self._limits[target], target)

        def clear(document: MemoryDocument) -> MemoryOutcome:
            if not document.text and document.raw is None and not document.trouble:
                return Duplicate(message="It is empty already.", **size)
            if document.trouble and document.raw is None:
                return self._unreadable(place, document)
            backup = self._documents.back_up(place, document)
            done = self._documents.swap(place, document.version, "", NewChange(BY_USER, "reset"))
            return Applied(message="All entries removed.", change=done, backup=backup, **size)

        return self._changing(place, clear)

    def adoption(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        """Return the entries that `adopt` would make of the file as it is now."""
        return self._adopted(self._documents.read(self._place(target, scope)), target)

    def adopt(self, target: Target, *, scope: Scope | None = None) -> MemoryOutcome:
        """Split a file that was written otherwise into entries. `Applied.backup` is the copy that was kept."""
        place = self._place(target, scope)

        def take_in(document: MemoryDocument) -> MemoryOutcome:
            if document.trouble and document.raw is None:
                return self._unreadable(place, document)
            entries = self._adopted(document, target)
            size = sizes(entries, self._limits[target], target)
            if document.raw is None and entries == parse(document.text):
                return Duplicate(message="The file is in order already.", **size)
            backup = self._documents.back_up(place, document)
            known = self._history.notes(place, entries)
            notes = {note.text: note for note in carried_over((), entries, known, self._app.clock())}
            new = NewChange(BY_USER, "adopt", notes=notes)
            done = self._documents.swap(place, document.version, join(entries), new)
            message = f"Adopted as {len(entries)} {'entry' if len(entries) == 1 else 'entries'}."
            return Applied(message=message, change=done, backup=backup, **size)

        return self._changing(place, take_in)

    def annotate(self, target: Target, entries: Sequence[Entry], *, scope: Scope | None = None) -> None:
        """Record what is known about entries (category, tags, last confirmed); each is found again by its text."""
        place = self._place(target, scope)
        for entry in entries:
            operations_of(Add(entry.text, entry.category, entry.tags))
        self._history.annotate(place, entries)

    # ── the inbox: no tool reaches `approve` ──

    def pending(self) -> list[Pending]:
        """Return the writes that wait for a person, oldest first."""
        self._app.ensure_open()
        return list(self._inbox.list(self._app.clock()))

    def approve(self, pending_id: int, *, by: Author = BY_USER) -> MemoryOutcome:
        """Write a proposal. It stays in the inbox if it no longer fits."""
        pending = self._waiting(pending_id, by)
        origin = pending.author
        author = Author(by.who, origin.origin, origin.session, origin.message)
        by_whom = {Who.TOOL: " of the agent", Who.USER: ""}.get(origin.who, f" by {origin.who.value}")
        reason = f"approved proposal {pending_id}{by_whom}" + (f": {pending.reason}" if pending.reason else "")
        outcome = self._write(Place.of(pending.target, pending.scope), pending.operations, author, reason)
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._app.clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author = BY_USER) -> Pending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._app.clock())
        return pending

    # ── reading ──

    def is_enabled(self, target: Target) -> bool:
        return target in self._enabled

    def room(self, target: Target, *, scope: Scope | None = None) -> tuple[Scope, int, str]:
        """Return whose file it is, the characters that it may hold, and why it cannot be read, if so."""
        place = self._place(target, scope)
        return place.scope, self._limits[target], self._documents.read(place).trouble

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        """Return the entries as they are on disk now: none if the file is missing or unreadable (see `status`)."""
        return unique(parse(self._documents.read(self._place(target, scope)).text))

    def describe(self, target: Target, *, scope: Scope | None = None) -> list[Entry]:
        """Return the entries with what is known about each, and what the scanner finds in it."""
        place = self._place(target, scope)
        texts = self.entries(target, scope=scope)
        known = self._history.notes(place, texts) if texts else {}
        return [replace(known.get(text, Entry(text)), findings=tuple(scan(text))) for text in texts]

    def load(self, scope: Scope | None = None) -> Snapshot:
        """Freeze what a session of this scope is shown. A file that cannot be read becomes a warning."""
        self._app.ensure_open()
        return self._presenter.snapshot([(place, self._documents.read(place)) for place in self.shown_places(scope)])

    def follow(self, scope: Scope | None = None) -> LiveMemory:
        """Return what a session of this scope is shown, and later the changes that its model does not know yet."""
        self._app.ensure_open()
        return LiveMemory(
            self.shown_places(scope),
            self._documents,
            self._history,
            self._presenter,
            settle=self._settle,
            archived=self.archive.kept,
        )

    def history(
        self, target: Target | None = None, *, scope: Scope | None = None, limit: int | None = None
    ) -> list[Change]:
        """Return the changes of this scope's files, newest first. Edits by hand are recorded on the way."""
        self._app.ensure_open()
        self._settle_all(scope)
        places = [place for place in self.places(scope) if target in (None, place.target)]
        changes = [change for place in places for change in self._history.changes(place, limit=limit)]
        return sorted(changes, key=lambda change: change.id, reverse=True)[:limit]

    def changes(self, *, limit: int | None = None) -> list[Change]:
        """Return the changes of every scope, newest first. Edits of the home's own files are recorded on the way."""
        self._app.ensure_open()
        self._settle_all(None)
        return self._history.changes(limit=limit)

    def change(self, change_id: int) -> Change | None:
        """Return one change by its number, whatever its scope."""
        self._app.ensure_open()
        return self._history.change(change_id)

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]:
        """Return path, size, changes, proposals and problems of both files of a scope."""
        self._app.ensure_open()
        pending = self.pending()
        return [self._status(place, pending) for place in self.places(scope)]

    # ── for other features ──

    def places(self, scope: Scope | None) -> list[Place]:
        """Return both documents of a scope."""
        return [Place.of(target, self._scoped(scope)) for target in TARGETS]

    def shown_places(self, scope: Scope | None) -> list[Place]:
        """Return the documents a session sees: the home's notes, the project's notes, and one profile of the user."""
        where = self._scoped(scope)
        memory = [Place("memory", where.profile)]
        if where.project:
            memory.append(Place.of("memory", where))
        return [place for place in [*memory, Place.of("user", where)] if place.target in self._enabled]

    def known_entry(self, place: Place, text: str) -> Entry | None:
        """Return what is known about an entry, whether it is in the file now or was there once."""
        return self._history.notes(place, [text]).get(text)

    # ── steps ──

    def _touching_a_persons(self, place: Place, ops: Sequence[MemoryOp], author: Author) -> tuple[MemoryOp, ...]:
        """Return the operations if they drop or reword a person's entry without being asked to; else nothing.

        Background work asks for every such change. An agent in a conversation asks for moves, for rewordings, and if it
        replaces an entry with other text, which says what is corrected or removed.
        """
        if all(isinstance(op, Add) for op in ops) or author.who in (Who.USER, Who.HAND_EDIT):
            return ()
        if author.origin is Origin.USER_SAID:
            return ()
        entries = unique(parse(self._documents.read(place).text))
        in_conversation = author.who is Who.TOOL
        said = making_room(entries, ops, self._limits[place.target], place.target) if in_conversation else tuple(ops)
        touched = [text for op in said for text in _touched(entries, op, whole_only=in_conversation)]
        known = self._history.notes(place, touched) if touched else {}
        return said if any(known.get(text, Entry(text)).of_a_person for text in touched) else ()

    def _removed_of_a_person(self, place: Place, ops: Sequence[MemoryOp]) -> tuple[str, ...]:
        """Return the entries of a person that operations remove, and that no other operation rewords."""
        removed = [clean(op.old_text) for op in ops if isinstance(op, Remove) and not op.kept]
        if not removed:
            return ()
        new = [op.content for op in ops if not isinstance(op, Remove)]
        entries = [
            text for text in unique(parse(self._documents.read(place).text)) if any(old in text for old in removed)
        ]
        known = self._history.notes(place, entries) if entries else {}
        return tuple(
            text
            for text in entries
            if known.get(text, Entry(text)).of_a_person and not any(is_about(text, content) for content in new)
        )

    def _place(self, target: Target, scope: Scope | None) -> Place:
        self._app.ensure_open()
        if target not in TARGETS:
            raise UsageError(f"Unknown target {target!r}.", hint="Use one of: memory, user.")
        if target not in self._enabled:
            key = "memory_enabled" if target == "memory" else "user_profile_enabled"
            raise UsageError(f"The target {target!r} is switched off.", hint=f"herma config set memory.{key} true")
        return Place.of(target, self._scoped(scope))

    def _scoped(self, scope: Scope | None) -> Scope:
        """Return the scope within this profile, its keys as text that every store can keep."""
        own = self._app.settings.profile
        scope = scope or Scope()
        if not isinstance(scope, Scope):
            raise UsageError(f"scope must be a Scope, not {scope!r}.", hint='For example: Scope(project="shop").')
        if scope.profile not in ("", own):
            raise UsageError(
                f"This home keeps the profile {own!r}, not {scope.profile!r}.",
                hint="Open the other one: Herma.open(profile=…).",
            )
        return Scope(own, _printable(scope.project).strip(), user_id(scope.user), scope.chat)

    def _scan(self, place: Place, ops: Sequence[MemoryOp]) -> Blocked | None:
        for number, op in enumerate(ops, 1):
            if isinstance(op, Remove) or not (findings := tuple(scan(op.content))):
                continue
            first = findings[0]
            which = f"Operation {number}: " if len(ops) > 1 else ""
            message = f"{which}Blocked by the scanner, rule {first.rule}: {first.why}."
            return Blocked(message=message, findings=findings, **self._sizes(place))
        return None

    def _newest_standing(self, scope: Scope | None) -> Change | None:
        """Return the newest change that stands. A long history is read only after many undos in a row."""
        standing = []
        for place in self.places(scope):
            for limit in (10, None):
                changes = self._history.changes(place, limit=limit)
                if found := next((one for one in changes if one.undoes is None and one.undone_by is None), None):
                    standing.append(found)
                    break
        return max(standing, key=lambda change: change.id, default=None)

    def _settle_all(self, scope: Scope | None) -> None:
        """Record edits by hand where the home can be written; a read-only home has a history all the same."""
        for place in self.places(scope):
            document = self._documents.read(place)
            if document.text or self._history.changes(place, limit=1):
                try:
                    self._settle(place)
                except StoreError:
                    continue

    def _status(self, place: Place, pending: Sequence[Pending]) -> StoreStatus:
        document = self._documents.read(place)
        entries = unique(parse(document.text))
        return StoreStatus(
            scope=place.scope,
            path=self._documents.where(place),
            pending=sum(p.target == place.target and p.scope == place.scope for p in pending),
            changes=len(self._history.changes(place)),
            trouble=document.trouble,
            findings=sum(bool(scan(text)) for text in entries),
            **sizes(entries, self._limits[place.target], place.target),
        )

    # ── the inbox and one write, step by step ──

    def _rehearsed(self, place: Place, ops: Sequence[MemoryOp]) -> ApplyResult:
        """Return what `_write` would do now, without writing anything."""
        document = self._documents.read(place)
        entries = unique(parse(document.text))
        if drifted := self._drift(place, document, entries, keep_copy=False):
            return ApplyResult(drifted, tuple(entries))
        result = apply(entries, ops, self._limits[place.target], place.target)
        if isinstance(result.outcome, OverBudget):
            return result._replace(outcome=self._with_suggestions(place, result.outcome))
        return result

    def _to_undo(self, change_id: int | None, scope: Scope | None) -> Change:
        """Return the change that `undo` means, which stands and is not another user's."""
        self._app.ensure_open()
        self._settle_all(scope)
        change = self._history.change(change_id) if change_id is not None else self._newest_standing(scope)
        user = self._scoped(scope).user
        if change is None or (user and change.scope.user not in ("", user)):
            what = "There is nothing to undo." if change_id is None else f"There is no change {change_id}."
            raise UsageError(what, hint="`herma log` lists the changes.")
        if change.undone_by is not None:
            redo = f"To redo it, undo the undo: herma undo m{change.undone_by}"
            raise UsageError(f"Change {change.id} is undone already.", hint=redo)
        return change

    def _adopted(self, document: MemoryDocument, target: Target) -> list[str]:
        return split(document.text if document.raw is None else decode(document.raw), self._limits[target])

    def _settle(self, place: Place) -> None:
        """Bring the history up to date with the file: finish what a killed process began, record edits by hand."""
        with self._hold(place):
            pass

    def _sizes(self, place: Place) -> Sizes:
        """Return the sizes of a document as it is now."""
        entries = unique(parse(self._documents.read(place).text))
        return sizes(entries, self._limits[place.target], place.target)

    def _stage(
        self, place: Place, ops: Sequence[MemoryOp], author: Author, reason: str = "", *, although_full: bool = False
    ) -> MemoryOutcome:
        """Store a write as a proposal if it could be made now; with `although_full`, also if only room is missing.

        The same proposal is stored once, and not again after it was rejected.
        """
        if (rejected := self._rejected(place, ops, author)) is not None:
            return rejected
        rehearsed = self._rehearsed(place, ops).outcome
        if not isinstance(rehearsed, Applied) and not (although_full and isinstance(rehearsed, OverBudget)):
            return rehearsed
        now = self._app.clock()
        expires = now + self._options.inbox_days * _DAY
        kept = self._inbox.put(Pending(0, now, expires, place.scope, place.target, author, tuple(ops), reason))
        if kept.decision == "rejected":
            return self._turned_down(place, kept)
        why = "it needs your approval" if author.origin.trusted else f"it comes from outside ({author.origin})"
        if isinstance(rehearsed, OverBudget):
            why = f"there is no room for it ({rehearsed.needed:,} of {rehearsed.limit:,} characters)"
        return Staged(message=f"Saved to the inbox as m{kept.id}: {why}.", pending=kept.id, **self._sizes(place))

    def _rejected(self, place: Place, ops: Sequence[MemoryOp], author: Author) -> MemoryOutcome | None:
        """Refuse an entry that a person rejected in the same words, in any session; None if there is no such rejection.

        A person may write it all the same, and what the user asks to remember is theirs.
        """
        texts = [op.content for op in ops if not isinstance(op, Remove)]
        if author.who is Who.USER or author.origin is Origin.USER_SAID or not texts:
            return None
        for pending in self._inbox.rejected(place.scope, place.target):
            theirs = [op.content for op in pending.operations if not isinstance(op, Remove)]
            if any(says_the_same(text, other) for text in texts for other in theirs):
                return self._turned_down(place, pending)
        return None

    def _turned_down(self, place: Place, pending: Pending) -> Blocked:
        day = time.strftime("%Y-%m-%d", time.localtime(pending.at))
        message = f"A person rejected this proposal of {day}; it is not proposed again."
        return Blocked(message=message, **self._sizes(place))

    def _waiting(self, pending_id: int, by: Author) -> Pending:
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self.pending():
            if pending.id == pending_id:
                return pending
        raise UsageError(f"There is no proposal {pending_id} in the inbox.", hint="`herma inbox` lists the proposals.")

    def _write(
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

        def change(document: MemoryDocument) -> MemoryOutcome:
            entries = unique(parse(document.text))
            if drifted := self._drift(place, document, entries):
                return drifted
            result = apply(entries, ops, limit, place.target)
            said = making_room(entries, ops, limit, place.target) if author.who is Who.TOOL else ops
            why = reason
            asked = author.who in (Who.TOOL, Who.USER)  # a user would not notice at once what background work removes
            if asked and isinstance(result.outcome, OverBudget):
                said, result = self._without_duplicates(place, entries, ops) or (said, result)
                if isinstance(result.outcome, Applied):
                    why = "; ".join(filter(None, [reason, "exact duplicates taken out to make room"]))
            match result.outcome:
                case Applied() as applied:
                    notes = self._notes(place, entries, ops, result, author, vouched=vouched)
                    moved = self._moved(said, result)
                    new = NewChange(author, _action(ops), why, notes=notes, moved=moved)
                    done = self._documents.swap(place, document.version, join(result.entries), new)
                    return replace(applied, change=done)
                case Duplicate() as duplicate:
                    notes = self._notes(place, entries, ops, result, author, vouched=vouched)
                    if vouched:  # the text stays, but the history must say who trusts it
                        new = NewChange(author, "trust", reason, notes=notes)
                        done = self._documents.swap(place, document.version, document.text, new)
                        return Applied(message="Entry trusted.", change=done, **sizes(entries, limit, place.target))
                    self._history.annotate(place, list(notes.values()))
                    return duplicate
                case OverBudget() as over:
                    return self._with_suggestions(place, over)
                case other:
                    return other

        return self._changing(place, change)

    def _without_duplicates(
        self, place: Place, entries: Sequence[str], ops: Sequence[MemoryOp]
    ) -> tuple[Sequence[MemoryOp], ApplyResult] | None:
        """Return the operations with as many exact duplicates of an agent's entries removed first as they need; None if
        that does not make room."""
        if self._options.tidy != "apply" or len(entries) > _NOTED:
            return None
        known = self._history.notes(place, entries)
        removals: list[MemoryOp] = []
        for gone, _ in duplicates([known.get(text, Entry(text)) for text in entries]):
            removals.append(Remove(gone.text, kept="merged"))
            result = apply(entries, [*removals, *ops], self._limits[place.target], place.target)
            if isinstance(result.outcome, Applied):
                freed = tuple(op.old_text for op in removals if isinstance(op, Remove))
                what = "an exact duplicate was" if len(freed) == 1 else f"{len(freed)} exact duplicates were"
                quoted = "; ".join(f"“{text}”" for text in freed)
                message = f"{done_message(ops)} To make room, {what} taken out: {quoted}"
                outcome = replace(result.outcome, message=message, freed=freed)
                return [*removals, *ops], result._replace(outcome=outcome)
        return None

    def _changing(self, place: Place, change: Callable[[MemoryDocument], MemoryOutcome]) -> MemoryOutcome:
        """Run one change, again if an editor without a lock was quicker."""
        for _ in range(_TRIES - 1):
            try:
                with self._hold(place) as document:
                    return change(document)
            except StoreChanged:
                continue
        with self._hold(place) as document:
            return change(document)

    @contextmanager
    def _hold(self, place: Place) -> Iterator[MemoryDocument]:
        with self._documents.hold(place) as document:
            if document.edited_from is not None:
                before, after = unique(parse(document.edited_from)), unique(parse(document.text))
                known = self._history.notes(place, list(set(before).symmetric_difference(after))[:_NOTED])
                self._history.annotate(place, carried_over(before, after, known, self._app.clock())[:_NOTED])
            yield document

    def _drift(
        self, place: Place, document: MemoryDocument, entries: Sequence[str], *, keep_copy: bool = True
    ) -> Drifted | None:
        """Refuse a document that must not be rewritten: not text, or with an entry longer than the whole limit."""
        if document.trouble:
            return self._unreadable(place, document, keep_copy=keep_copy)
        limit = self._limits[place.target]
        longest = max(map(len, entries), default=0)
        if longest <= limit:
            return None
        return Drifted(
            message=f"{self._documents.where(place)} holds one entry of {longest:,} characters; "
            f"the whole file may have {limit:,}.",
            reason="an entry is longer than the limit of the whole file",
            remedy=_DRIFT_REMEDY,
            backup=self._documents.back_up(place, document) if keep_copy else None,
            **sizes(entries, limit, place.target),
        )

    def _unreadable(self, place: Place, document: MemoryDocument, *, keep_copy: bool = True) -> Drifted:
        has_bytes = document.raw is not None
        backup = self._documents.back_up(place, document) if has_bytes and keep_copy else None
        remedy = _DRIFT_REMEDY if has_bytes else "Make it readable again; until then nothing is written to it."
        size = sizes([], self._limits[place.target], place.target)
        return Drifted(message=f"{document.trouble}.", reason=document.trouble, remedy=remedy, backup=backup, **size)

    def _with_suggestions(self, place: Place, over: OverBudget) -> OverBudget:
        entries = over.entries[:_NOTED]
        known = self._history.notes(place, entries)
        described = [known.get(text, Entry(text)) for text in entries]
        return replace(over, suggestions=suggest(described, over.needed - over.limit))

    def _notes(
        self,
        place: Place,
        entries: Sequence[str],
        ops: Sequence[MemoryOp],
        result: ApplyResult,
        author: Author,
        *,
        vouched: bool,
    ) -> dict[str, Entry]:
        texts = inherited(entries, ops, result)
        known = {text: Entry(text) for text in texts} | (self._history.notes(place, texts) if texts else {})
        return notes_after(ops, result, known, author, self._app.clock(), vouched=vouched)

    def _moved(self, ops: Sequence[MemoryOp], result: ApplyResult) -> list[Moved]:
        """Return the entries for the archive: removed ones to keep, unless another operation wrote them again."""
        there = set(result.entries)
        gone = {
            clean(op.old_text): op.kept
            for op in ops
            if isinstance(op, Remove) and op.kept not in ("", "merged") and clean(op.old_text) not in there
        }
        return [Moved(text, why, tuple(archive_terms(text))) for text, why in gone.items()]


def user_id(user: str) -> str:
    """Return a user's id. White space around it is refused: without it the id is another user's, or the owner's."""
    if user != user.strip():
        raise UsageError(
            f"The user id {user!r} begins or ends with white space; nothing was read or written.",
            hint="Give the id exactly as the platform has it, or none for the owner of the home.",
        )
    return _printable(user)


def _printable(text: str) -> str:
    """Write out halves of surrogate pairs, as undecodable file names have them: no store can keep them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _touched(entries: Sequence[str], op: MemoryOp, *, whole_only: bool) -> list[str]:
    """Return the entries that an operation may change; with `whole_only`, of operations that name a whole entry, or
    that put a text about something else in its place."""
    if isinstance(op, Add):
        return []
    old = clean(op.old_text)
    if op.reworded if isinstance(op, Replace) else op.kept:
        return [old]
    found = [text for text in entries if old and old in text]
    if whole_only:  # a text about something else drops the entry; one about the same corrects it
        return [text for text in found if isinstance(op, Replace) and not is_about(text, op.content)]
    return found


def _action(ops: Sequence[MemoryOp]) -> str:
    return type(ops[0]).__name__.lower() if len(ops) == 1 else f"batch of {len(ops)}"


def revert(current: str, change: Change) -> str | None:
    """Return the text without a change: remove what it added, and restore what it removed in its place. Pure.

    If nothing happened since, this is the old text to the byte. None if an entry of the change was changed since.
    """
    if current == change.after:
        return change.before
    before, after, now = (unique(parse(text)) for text in (change.before, change.after, current))
    added = set(after) - set(before)
    if added - set(now):
        return None
    kept = [entry for entry in now if entry not in added]
    lost = set(before) - set(after) - set(kept)
    return join(_put_back(before, kept, lost))


def _put_back(before: list[str], kept: list[str], lost: set[str]) -> list[str]:
    """Put each lost entry behind its nearest predecessor that is still there, or at the front."""
    there = set(kept)
    behind: dict[str, list[str]] = {}
    anchor = ""
    for entry in before:
        if entry in lost:
            behind.setdefault(anchor, []).append(entry)
        elif entry in there:
            anchor = entry
    return [*behind.get("", ()), *(text for entry in kept for text in (entry, *behind.get(entry, ())))]
