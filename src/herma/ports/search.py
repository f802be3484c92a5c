"""What search reads of transcripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from herma.types import Hidden, Message, SessionInfo


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
