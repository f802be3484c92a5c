"""What the core needs from the outside, as small protocols. Adapters in `store/` implement them; `app` injects them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from herma.types import (
    Author,
    Change,
    Entry,
    Hidden,
    Message,
    Pending,
    Scope,
    SessionFilter,
    SessionInfo,
    Target,
    TranscriptStats,
    Usage,
)


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
class NewChange:
    """A change about to be made, as the history will keep it."""

    author: Author
    action: str
    reason: str = ""
    undoes: int | None = None
    notes: Mapping[str, Entry] | None = None
    """What is known about entries that the change writes: text → metadata."""


class CuratedDocuments(Protocol):
    """Where curated text lives. Text and history change in one step, or not at all."""

    def where(self, place: Place) -> str:
        """A name for people: the path of the file."""
        ...

    def read(self, place: Place) -> Document:
        """The document as it is now. Never raises for a missing or unreadable file; takes no lock."""
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

    def close(self) -> None:
        """Let go of everything. Later calls are an error."""
        ...


class CuratedHistory(Protocol):
    """Rows about curated memory: its changes, and what is known about each entry."""

    def changes(self, place: Place | None = None, *, limit: int | None = None) -> Sequence[Change]:
        """What happened, newest first: to this document, or to all."""
        ...

    def change(self, change_id: int) -> Change | None: ...

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


# ── transcripts and their index ──


@dataclass(frozen=True, slots=True)
class Position:
    """How far a change feed was read. Another store, or another epoch of it, makes the number meaningless."""

    store_id: str
    epoch: str
    seq: int


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One row of the change feed: these messages were appended to a session, or are gone from it."""

    seq: int
    kind: Literal["append", "purge"]
    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Searchable:
    """What the index needs of one message: prose, and the names and arguments of the tools it calls."""

    id: int
    session_id: str
    role: str
    timestamp: float
    text: str


class ChangeFeed(Protocol):
    """What a derived index follows. Consumers never guess from ids: a larger id need not become visible later."""

    def position(self) -> Position:
        """Where the feed ends now."""
        ...

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        """The next changes after `seq`, at most `limit` of them."""
        ...

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        """These messages as far as they still exist, large payloads included."""
        ...

    def message_count(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Scored:
    """A message the index found, best first; higher scores are better."""

    message_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Terms:
    """A query as the index understands it: what is selected contains at least one of `any_of`, or, where groups are
    given in `all_of`, one of each group (then `any_of` only ranks), and nothing of `none_of`.

    Each innermost tuple is one alternative: a word, or the words of a phrase. Of words in `prefix` only the beginning
    is given. A long word of a script without spaces selects by its pairs of characters in `any_of`, as a whole elsewhere.
    """

    any_of: tuple[tuple[str, ...], ...] = ()
    all_of: tuple[tuple[tuple[str, ...], ...], ...] = ()
    none_of: tuple[tuple[str, ...], ...] = ()
    prefix: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What the index answers: candidates best first, and what it did with common words (`notes` is for people)."""

    candidates: tuple[Scored, ...]
    matches: int
    exhausted: bool
    notes: tuple[str, ...] = ()


class TextIndex(Protocol):
    """Words and characters of every message; derived, so it may be deleted at any time."""

    def find(self, terms: Terms, limit: int) -> Found:
        """The best `limit` messages for these terms among what is indexed."""
        ...

    def catch_up(self, at_most: int) -> int:
        """Index what is new if that is at most so many messages. → how many messages are still missing."""
        ...

    def missing(self, limit: int) -> Sequence[int]:
        """The newest messages that are not indexed yet, newest first."""
        ...

    def vocabulary(self, part: str, limit: int) -> Sequence[str]:
        """Words (stems) that contain `part`, commonest first; only the newest part of the index is looked at."""
        ...

    def suspect(self) -> None:
        """Something found does not look right: have the index checked in the background, at most once a minute."""
        ...

    def close(self) -> None: ...


# ── where the text index is kept ──


class IndexUnusable(Exception):
    """The stored index is damaged or missing. Its keeper builds a new one; nobody else sees this."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One message, prepared: text with its words apart, names of what was taken apart, a digest of what it was."""

    id: int
    text: str
    names: str
    digest: int


@dataclass(frozen=True, slots=True)
class Sought:
    """One alternative, prepared: the words of `text` side by side (the last perhaps only begun), or the name."""

    text: str
    name: str = ""
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Sieve:
    """`Terms`, prepared."""

    any_of: tuple[Sought, ...] = ()
    all_of: tuple[tuple[Sought, ...], ...] = ()
    none_of: tuple[Sought, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far an index is, and how large. No position: nothing was ever indexed."""

    position: Position | None = None
    messages: int = 0
    size: int = 0


class IndexTables(Protocol):
    """One stored index. Every call may raise `IndexUnusable`."""

    def state(self) -> IndexState: ...

    def put(self, rows: Sequence[IndexRow], gone: Sequence[int], position: Position) -> None:
        """Add or replace rows, forget others, and move on to `position`: all or nothing."""
        ...

    def tidy(self) -> bool:
        """A few milliseconds of upkeep. → whether there is more to do."""
        ...

    def find(self, sieve: Sieve, limit: int) -> Found: ...

    def vocabulary(self, part: str, limit: int) -> Sequence[str]: ...

    def digests(self, message_ids: Sequence[int]) -> Mapping[int, int]: ...

    def check(self, rows: Callable[[Sequence[int]], Sequence[IndexRow]]) -> str:
        """Compare what is stored with what these rows give. → what is wrong, in a few words; empty when nothing is."""
        ...


class IndexFiles(Protocol):
    """The stored index in use, and the one that is being built to take its place."""

    def current(self) -> IndexTables:
        """The index in use; `IndexUnusable` when there is none."""
        ...

    def hold(self, timeout: float) -> AbstractContextManager[object]:
        """Be the only one who writes an index of this home. `StoreBusy` after the deadline."""
        ...

    def building(self, *, anew: bool) -> IndexTables:
        """The index that is being built: a new one, or (not `anew`) what an interrupted attempt left."""
        ...

    def publish(self) -> None:
        """Put what was built in the place of the index in use."""
        ...

    def drop(self) -> None:
        """Delete both."""
        ...

    def close(self) -> None: ...


# ── what search reads of transcripts ──


@dataclass(frozen=True, slots=True)
class Head:
    """A message without its text: as much as it takes to decide whether it may be shown."""

    id: int
    session_id: str
    role: str
    timestamp: float
    hidden: Hidden = ""


class TranscriptReader(Protocol):
    """Messages and sessions for ranking, in batches: never one query per hit. What is gone is left out."""

    def heads(self, message_ids: Sequence[int]) -> Sequence[Head]: ...

    def texts(self, message_ids: Sequence[int], at_most: int) -> Mapping[int, str]:
        """What is searchable of these messages, each cut to so many characters."""
        ...

    def neighbours(self, message_ids: Sequence[int]) -> Mapping[int, tuple[int | None, int | None]]:
        """The messages before and after each in its session, rewound ones passed over."""
        ...

    def newest(self, limit: int) -> Sequence[int]:
        """The messages that came last, newest first."""
        ...

    def sessions(self, session_ids: Sequence[str]) -> Mapping[str, SessionInfo]: ...

    def titled(self, words: Sequence[str], limit: int) -> Sequence[SessionInfo]:
        """Sessions whose title contains all of these words, newest first."""
        ...

    def size(self) -> tuple[int, int]:
        """How many messages and sessions there are."""
        ...


class ConversationReader(Protocol):
    """Whole messages, in order, rewound ones never among them."""

    def members(self, session_id: str) -> Sequence[SessionInfo]:
        """All sessions of the conversation this one belongs to, oldest first; nothing when it is unknown."""
        ...

    def recent(self, limit: int, *, without_sources: Sequence[str]) -> Sequence[SessionInfo]:
        """The newest session of each conversation that is not archived, last active first."""
        ...

    def around(self, message_id: int, before: int, after: int) -> tuple[Sequence[Message], int, int]:
        """The message with its neighbours in its session. → messages, and how many more there are on each side."""
        ...

    def ends(
        self, session_ids: Sequence[str], first: int, last: int, *, spoken_only: bool = False
    ) -> tuple[Sequence[Message], Sequence[Message], int]:
        """The first and last messages of these sessions taken as one (never both), and how many there are in all.

        `spoken_only`: what user and assistant said; without it, tool messages and empty ones too.
        """
        ...


class SessionChange(TypedDict, total=False):
    """Columns of a session that may change by themselves."""

    title: str | None
    ended: float | None
    end_reason: str | None
    archived: bool
    deleted: float | None
    preview: str
    model: str | None


class SessionRows(Protocol):
    """Sessions, one by one. Those that wait to be purged are not there, unless they are asked for."""

    def add(self, session: SessionInfo, system_prompt: str | None = None) -> SessionInfo:
        """Keep a new session. → it with its conversation filled in. `StoreChanged` when its id or title is taken."""
        ...

    def get(self, session_ids: Sequence[str], *, deleted: bool = False) -> dict[str, SessionInfo]:
        """These sessions, as far as they are there; with `deleted`, those that wait to be purged too."""
        ...

    def update(self, session_ids: Sequence[str], change: SessionChange) -> int:
        """Change all of them or none, deleted ones too. → how many. `StoreChanged` when a title is taken.

        A title that another session of the same conversation has is taken from that one.
        """
        ...

    def end(self, session_id: str, at: float, reason: str) -> bool:
        """End it, unless it has ended: the first reason stands. → whether this call ended it."""
        ...

    def spend(self, session_id: str, usage: Usage) -> bool:
        """Add to what a session cost. → whether it is there."""
        ...

    def system_prompt(self, session_id: str) -> str | None: ...

    def purge(self, session_id: str) -> int:
        """Remove a deleted session and its messages for good, and say so in the feed. → how many messages."""
        ...


class SessionQueries(Protocol):
    """Finding sessions. Those that wait to be purged are found by `deleted` only."""

    def with_prefix(self, prefix: str, limit: int) -> Sequence[str]:
        """Ids that begin with `prefix`, newest first."""
        ...

    def titles(self, base: str, scope: Scope) -> Sequence[tuple[str, str]]:
        """(title, id) of sessions of this profile and user that are called `base`, or begin with `base #`."""
        ...

    def of_conversations(self, conversations: Sequence[str]) -> Sequence[SessionInfo]:
        """All sessions of these conversations."""
        ...

    def children(self, parents: Sequence[str]) -> Sequence[SessionInfo]: ...

    def recent(self, which: SessionFilter, limit: int, offset: int) -> Sequence[str]:
        """Conversations of which at least one session matches, the most recently active first."""
        ...

    def matching(self, which: SessionFilter) -> Sequence[SessionInfo]:
        """Every single session that matches, oldest first."""
        ...

    def deleted(self, before: float) -> Sequence[SessionInfo]:
        """Sessions that were deleted before this time, oldest first."""
        ...


class MessageRows(Protocol):
    """Messages: added whole, never changed, sometimes hidden. Those of deleted sessions are not there."""

    def append(self, session_id: str, messages: Sequence[Message], *, preview: str = "") -> Sequence[int]:
        """Add all or none, in one durable step. → their ids, increasing. `KeyError` when there is no such session.

        `preview` is kept when the session has none yet.
        """
        ...

    def of_session(
        self, session_id: str, *, hidden: bool, after: int | None = None, limit: int | None = None
    ) -> Sequence[Message]:
        """In order; with `hidden`, hidden ones too; those after a message, at most so many."""
        ...

    def by_ids(self, message_ids: Sequence[int]) -> dict[int, Message]:
        """These messages as far as they are there, hidden or not."""
        ...

    def around(self, message_id: int, window: int) -> Sequence[Message]:
        """A message and up to `window` before and after it in its session; rewound ones are not there."""
        ...

    def edges(
        self, session_id: str, count: int, outside: tuple[int, int] | None, roles: Sequence[str]
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        """The first and the last messages with text in these roles, before and after the ids `outside`; not rewound."""
        ...

    def hide(self, session_id: str, first: int, last: int, old: Hidden, new: Hidden) -> int:
        """Give messages first … last of a session another flag, where they have the old one. → how many."""
        ...

    def stats(self) -> TranscriptStats: ...
