"""Values that everything shares: all frozen, none of them does anything.

`Scope` says whose memory is meant. `Add`, `Replace` and `Remove` ask for a change; a `MemoryOutcome` says what came
of it. `Change` is one row of history, `Entry` one entry with what is known about it, `Snapshot` what a session was
shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias

Target: TypeAlias = Literal["memory", "user"]
TARGETS: tuple[Target, ...] = ("memory", "user")
DELIMITER = "\n§\n"
"""What separates the entries of a curated file."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory is meant. The empty scope is the home's own."""

    profile: str = ""
    project: str = ""
    user: str = ""
    chat: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the scanner objects to: which rule, where (character offsets), how bad, and why in a few words."""

    rule: str
    span: tuple[int, int]
    severity: Literal["high", "medium"]
    why: str


# ── where a text comes from ──


class Who(StrEnum):
    """Whose hand made a change."""

    USER = "user"
    TOOL = "tool"
    REVIEW = "review"
    IMPORT = "import"
    HAND_EDIT = "hand edit"


class Origin(StrEnum):
    """Where the knowledge came from. Only the first two are trusted as they are."""

    USER_SAID = "user said"
    AGENT_CONCLUDED = "agent concluded"
    TOOL_OUTPUT = "tool output"
    WEB = "web"
    IMPORT = "import"

    @property
    def trusted(self) -> bool:
        return self in (Origin.USER_SAID, Origin.AGENT_CONCLUDED)


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a change, on what knowledge, and in which session and message."""

    who: Who = Who.USER
    origin: Origin = Origin.USER_SAID
    session: str | None = None
    message: int | None = None


# ── operations on curated memory ──

Category: TypeAlias = Literal["identity", "preference", "environment", "convention", "lesson"]
CATEGORIES: tuple[Category, ...] = ("identity", "preference", "environment", "convention", "lesson")


@dataclass(frozen=True, slots=True)
class Add:
    """Append one entry."""

    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `content` in the place of the one entry that contains `old_text`."""

    old_text: str
    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remove:
    """Drop the one entry that contains `old_text`."""

    old_text: str


MemoryOp: TypeAlias = Add | Replace | Remove


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A concrete way to make room: entries to merge into one, or an entry to drop, and the characters it would free."""

    action: Literal["merge", "drop"]
    entries: tuple[str, ...]
    frees: int
    why: str


# ── outcomes ──


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    target: Target
    message: str
    entry_count: int
    used: int
    limit: int

    ok: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(_Outcome):
    """The change is on disk.

    `change` is its id in the history; `backup` a copy of the file as it was, where one was made.
    """

    ok: ClassVar[bool] = True
    change: int = 0
    backup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(_Outcome):
    """Already there, word for word; nothing was added."""

    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBudget(_Outcome):
    """It would not fit. Nothing was written; `suggestions` says what could make room."""

    entries: tuple[str, ...]
    needed: int
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMatch(_Outcome):
    """No entry contains the text that should locate it."""

    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous(_Outcome):
    """Several different entries contain the text that should locate one."""

    matches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(_Outcome):
    """The text may not be stored: the scanner objects, or it cannot be an entry at all (then `findings` is empty)."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted(_Outcome):
    """The file is not safe to rewrite. It is untouched, and backed up when there was something to back up."""

    reason: str
    remedy: str
    backup: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(_Outcome):
    """Waiting in the inbox for a person's decision."""

    ok: ClassVar[bool] = True
    pending: int


MemoryOutcome: TypeAlias = Applied | Duplicate | OverBudget | NoMatch | Ambiguous | Blocked | Drifted | Staged


# ── what is kept about curated memory ──


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry with what is known about it. Times are seconds since 1970; `None` means nobody recorded it."""

    text: str
    category: Category | None = None
    tags: tuple[str, ...] = ()
    origin: Origin | None = None
    vouched: bool = False
    created: float | None = None
    changed: float | None = None
    confirmed: float | None = None
    change: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether its text reaches the prompt: the scanner found nothing, or a person vouched for it."""
        return self.vouched or not self.findings


@dataclass(frozen=True, slots=True)
class Change:
    """One row of history: who changed which file when, in which session, why, and the text before and after."""

    id: int
    at: float
    scope: Scope
    target: Target
    author: Author
    action: str
    before: str
    after: str
    reason: str = ""
    undoes: int | None = None
    undone_by: int | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """One staged write, waiting for a person's decision."""

    id: int
    at: float
    expires: float
    scope: Scope
    target: Target
    author: Author
    operations: tuple[MemoryOp, ...]
    reason: str = ""
    decision: Literal["", "approved", "rejected"] = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered piece of the prompt and the file it shows."""

    target: Target
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Curated memory as a session was shown it:

    captured once, never changed. `warnings` are for people, not the model.
    """

    blocks: tuple[Block, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """One curated file at a glance."""

    target: Target
    scope: Scope
    path: str
    entry_count: int
    used: int
    limit: int
    pending: int
    changes: int
    trouble: str = ""
    findings: int = 0


# ── transcripts ──

Content: TypeAlias = str | list[dict[str, Any]] | None
"""Text, or OpenAI-style parts."""
Hidden: TypeAlias = Literal["", "rewound", "compacted"]
Reason: TypeAlias = Literal["new", "resume", "branch", "compression", "delegation"]
"""Why a session followed its parent. resume and compression go on with the conversation; the others begin their own."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it is kept. `sent` is what the model was really sent, where that differs from `content`."""

    role: str
    content: Content = None
    id: int = 0
    session_id: str = ""
    timestamp: float = 0.0
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None
    reasoning: str | None = None
    sent: Content = None
    told: str | None = None
    tokens: int | None = None
    finish_reason: str | None = None
    hidden: Hidden = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the original message that have no place of their own, kept for an exact round trip."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and money that a session cost."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One session. `conversation` is the id of the first session of the same conversation."""

    id: str
    source: str
    scope: Scope
    started: float
    conversation: str
    title: str | None = None
    model: str | None = None
    parent: str | None = None
    reason: Reason = "new"
    ended: float | None = None
    end_reason: str | None = None
    archived: bool = False
    message_count: int = 0
    tool_call_count: int = 0
    usage: Usage = Usage()
    last_active: float = 0.0
    preview: str = ""


# ── search ──


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


@dataclass(frozen=True, slots=True)
class Dropped:
    """How many matches a rule left out, and how to get them."""

    rule: str
    count: int
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class SearchReport:
    """What was found, how the query was read, what was searched and what was left out."""

    query: str
    hits: tuple[Hit, ...] = ()
    understood: str = ""
    searched: str = ""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    lag: int = 0
    took_ms: float = 0.0
