"""Where curated memory is kept: documents, their history, and the inbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from herma.types import Author, Change, Entry, Kept, Pending, Scope, Target


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
