"""What a search found, and how it went about it."""

from __future__ import annotations

from dataclasses import dataclass

from herma.types.transcript import SessionInfo


@dataclass(frozen=True, slots=True)
class Hit:
    """One thing found: the message that matched, and why it is here."""

    session_id: str
    message_id: int
    role: str
    snippet: str
    score: float
    timestamp: float
    conversation: str
    session: SessionInfo | None = None
    why: tuple[str, ...] = ()
    outdated_by: int | None = None
    """The message that says otherwise, later: this one is possibly outdated."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many matches a rule left out, and how to get them."""

    rule: str
    count: int
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """What a model says that a found conversation says about the question; without a text, `note` is why there is none.

    It was given `characters` of the conversation's `of`.
    """

    conversation: str
    session_id: str
    text: str = ""
    note: str = ""
    model: str = ""
    seconds: float = 0.0
    characters: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What was found, how the query was read, what was searched and what was left out."""

    query: str
    hits: tuple[Hit, ...] = ()
    understood: str = ""
    searched: str = ""
    sessions: int = 0
    """How many sessions there are to search."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    lag: int = 0
    took_ms: float = 0.0
    mode: str = "words"
    """How it was searched: hybrid, words or vectors; words too where there was nothing to compare by meaning."""
    embedding_ms: float = 0.0
    """As much of the time as the question took to be embedded."""
    widened: bool = False
    """Whether nothing was found as asked, and the hits are those of a wider search."""
    also: tuple[str, ...] = ()
    """Other words, proposed by a model, that were searched for too."""
    summaries: tuple[ConversationSummary, ...] = ()
    """By a model, where that was asked for: of the first conversations, in the order of the hits."""
