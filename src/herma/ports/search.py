"""What search reads of transcripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from herma.types import Content, Hidden, Scope, SessionInfo


class Head(NamedTuple):
    """A message without its text: as much as it takes to decide whether it may be shown.

    A search looks at hundreds of messages and shows ten: what a dataclass takes to be made counts here.
    """

    id: int
    session_id: str
    role: str
    timestamp: float
    hidden: Hidden = ""


class Standing(NamedTuple):
    """As much of a session as it takes to decide whether its messages may be shown, and where they belong."""

    id: str
    source: str
    scope: Scope
    conversation: str
    archived: bool = False
    deleted: float | None = None


class Turns(NamedTuple):
    """Messages, the sessions they are in, and their texts where these were asked for."""

    heads: Sequence[Head] = ()
    sessions: Mapping[str, Standing] = {}
    texts: Mapping[int, str] = {}


@dataclass(frozen=True, slots=True)
class Spot:
    """A message, and the sessions in which its conversation begins and ends."""

    message_id: int
    first: str
    last: str


class Shown(NamedTuple):
    """As much of a message as a model is shown of what was found: neither reasoning nor what was sent instead."""

    id: int
    role: str
    timestamp: float
    content: Content
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A message with its neighbours, and what user and assistant said first and last outside of these."""

    messages: Sequence[Shown] = ()
    start: Sequence[Shown] = ()
    end: Sequence[Shown] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which messages may be meant: those of sessions that `wanted` admits by source, scope (not the chat) and whether
    they are archived, of these sessions or conversations, in this time, by these roles (none named: all).
    """

    wanted: Callable[[str, Scope, bool], bool]
    sessions: Sequence[str] = ()
    since: float = float("-inf")
    before: float = float("inf")
    roles: Sequence[str] = ()


class TranscriptReader(Protocol):
    """Messages and sessions for ranking, in batches: never one query per hit. What is gone is left out.

    Deleted sessions and their messages are still there, so that search can say what it leaves out.
    """

    def steady(self) -> AbstractContextManager[None]:
        """What is read in the block, by the thread that is in it, is of one moment."""
        ...

    def texts(self, message_ids: Sequence[int], at_most: int) -> Mapping[int, str]:
        """What is searchable of these messages, each cut to so many characters."""
        ...

    def turns(self, message_ids: Sequence[int], at_most: int = 0) -> Turns:
        """Everything about these messages at once. `at_most`: characters of each text; 0 for none."""
        ...

    def neighbours(self, message_ids: Sequence[int]) -> Mapping[int, tuple[int | None, int | None]]:
        """The messages before and after each in its session, rewound ones passed over."""
        ...

    def surroundings(self, spots: Sequence[Spot], window: int, ends: int) -> Sequence[Surroundings]:
        """For each message so many on either side of it, and so many at both ends of its conversation, in order.

        Rewound messages and deleted sessions are left out.
        """
        ...

    def members(self, conversations: Sequence[str]) -> Mapping[str, Sequence[SessionInfo]]:
        """The sessions of each conversation that are not deleted, oldest first."""
        ...

    def newest(self, limit: int, admitted: Admitted | None = None) -> Sequence[int]:
        """The messages that came last, newest first; with `admitted`, of those, in the sessions last active."""
        ...

    def sessions(self, session_ids: Sequence[str]) -> Mapping[str, SessionInfo]: ...

    def titled(
        self, words: Sequence[str], limit: int, *, exactly: bool = False
    ) -> Sequence[tuple[SessionInfo, int | None]]:
        """Sessions whose title contains all of these words (`exactly`: is one of them), last active first, each with
        its first message.
        """
        ...

    def size(self) -> int:
        """How many sessions there are."""
        ...
