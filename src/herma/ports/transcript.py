"""Where transcripts are kept: sessions, messages, and the feed that derived indexes follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict

from herma.types import Hidden, Message, Scope, SessionFilter, SessionInfo, TranscriptStats, Usage


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

    def add(self, sessions: Sequence[SessionInfo], prompts: Mapping[str, str]) -> Sequence[SessionInfo]:
        """Keep new sessions, all or none; `prompts` has the system prompts by id. → them with their conversations.

        `StoreChanged` when an id or a title is taken.
        """
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

    def with_prefix(self, prefix: str, limit: int, user: str | None = None) -> Sequence[str]:
        """Ids that begin with `prefix`, newest first: of all sessions, or of one user's."""
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


@dataclass(frozen=True, slots=True)
class SessionNews:
    """How a session stands in the store, in one row: for a program that has it open, and may not be the only one."""

    visible: int
    """Its messages that are not hidden."""
    newest: int
    """The last of them; 0 where there is none."""
    follower: str = ""
    """A session that goes on with the conversation from here, if there is one that says something."""
    reason: str = ""
    """Why it follows: `resume` or `compression`."""


class MessageRows(Protocol):
    """Messages: added whole, never changed, sometimes hidden. Those of deleted sessions are not there."""

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        preview: str = "",
        staged: bool = False,
        compacts: int | None = None,
    ) -> Sequence[int]:
        """Add all or none, in one durable step. → their ids, increasing. `KeyError` when there is no such session.

        `preview` is kept when the session has none yet. `staged`: also to a session that is hidden as deleted, so that
        an import becomes visible as a whole. `compacts`: in the same step, what is visible up to this message is hidden
        as compacted.
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
