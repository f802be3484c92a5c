"""Frozen values that several rooms share (plain module, no lazy loading)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict

# ---------- types.common
#
# Whose memory is meant, who changes it, and what the scanner objects to.


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


class Who(StrEnum):
    """Whose hand made a change."""

    USER = "user"
    TOOL = "tool"
    REVIEW = "review"
    IMPORT = "import"
    HAND_EDIT = "hand edit"
    TIDY = "tidy"
    CURATOR = "curator"


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


# ---------- types.transcript
#
# Sessions and their messages.

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

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.cost_usd + other.cost_usd,
        )


class Whereabouts(TypedDict, total=False):
    """Where a session takes place: who runs the model, what kind of chat, in which folder, on which git branch."""

    provider: str
    chat_type: str
    folder: str
    branch: str


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
    deleted: float | None = None
    """Since when it waits to be purged; it can be brought back until then."""
    provider: str = ""
    """Who runs the model."""
    chat_type: str = ""
    folder: str = ""
    """Where the work takes place, and the git branch there when it began."""
    branch: str = ""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Which sessions are meant. What is None or empty does not matter; bounds on time and counts are inclusive.

    `search` is looked for in titles and ids, `model` and `branch` in their names; `delegated` conversations are a
    subagent's; `project` and `folder` are the place itself or a folder above it, `project` also its last name.
    """

    source: str | None = None
    exclude_sources: tuple[str, ...] = ()
    profile: str | None = None
    project: str | None = None
    user: str | None = None
    chat: str | None = None
    archived: bool | None = None
    delegated: bool | None = None
    search: str | None = None
    model: str | None = None
    end_reason: str | None = None
    started_after: float | None = None
    started_before: float | None = None
    active_before: float | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    min_tool_calls: int | None = None
    max_tool_calls: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    provider: str | None = None
    chat_type: str | None = None
    folder: str | None = None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Deletion:
    """Sessions that were deleted, or would be. They can be brought back until `until`."""

    sessions: tuple[SessionInfo, ...]
    messages: int
    until: float
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptStats:
    """How much there is. `sources` maps each source to its sessions and messages; payloads count stored bytes."""

    sessions: int = 0
    conversations: int = 0
    messages: int = 0
    hidden_messages: int = 0
    archived_sessions: int = 0
    deleted_sessions: int = 0
    sources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    usage: Usage = Usage()
    first: float | None = None
    last: float | None = None
    payloads: int = 0
    payload_bytes: int = 0
    payload_text_bytes: int = 0
    file_bytes: int = 0


# ---------- types.chat
#
# What a chat model answers.

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]
"""Why a model stopped: it was done, it had no more room, it wants tools to be called, or it may not say more."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool that the model wants to be called. `arguments` is its JSON exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model.

    `message` is the answer as an OpenAI-style dictionary, ready for the history and for the next request: content,
    tool calls with their arguments verbatim, and whatever else the model wants to be given back (its reasoning).
    """

    message: Mapping[str, Any]
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Finish
    usage: Usage
    """Tokens; `input` is without what the cache served or kept, `output` with what was spent on reasoning."""
    model: str
    """The model that answered, as its server calls it."""
    seconds: float
    measured: bool = True
    """Whether the server said what it used; if not, `usage` is empty."""
    attempts: int = 1
    first_text: float | None = None
    """Seconds until the first piece of text; `None` where none came, or not in pieces."""


# ---------- types.memory
#
# Curated memory: operations, what came of them, and what is kept about entries.

Target: TypeAlias = Literal["memory", "user"]
TARGETS: tuple[Target, ...] = ("memory", "user")
DELIMITER = "\n§\n"
"""What separates the entries of a curated file."""

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
    """Put `content` in the place of the one entry that contains `old_text`.

    With `reworded`, `old_text` is the whole entry, and `content` says the same: what is known of it stays as it was.
    """

    old_text: str
    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()
    reworded: bool = False


Kept: TypeAlias = Literal["", "merged", "room", "expired", "superseded"]
"""What becomes of an entry that is taken out: nothing; another entry says it too; or it goes to the long tail, because
room was needed, because its date has passed, or because a newer entry says otherwise.
"""


@dataclass(frozen=True, slots=True)
class Remove:
    """Drop the one entry that contains `old_text`.

    With `kept`, `old_text` is the whole entry, and what it says is kept elsewhere.
    """

    old_text: str
    kept: Kept = ""


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


# ---------- types.session
#
# What a running session shows to those who follow it. Frozen: nobody changes a conversation by looking at it.

Context: TypeAlias = Literal["primary", "subagent", "cron", "review"]
"""Who works: the user's own agent, or one that was started for a part, by the clock, or to look back."""
Move: TypeAlias = Literal["reload", "compression", "rewind"]
"""How a session goes on otherwise than by growing."""
MOVES: tuple[Move, ...] = ("reload", "compression", "rewind")


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where and for whom a session takes place, besides its scope. It reaches external memories too."""

    platform: str = ""
    context: Context = "primary"
    user_name: str = ""
    chat_type: str = ""
    thread: str = ""
    system_message: str = ""
    """What the caller adds to the prompt."""


NOWHERE = Circumstances()


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session as it stands now."""

    info: SessionInfo
    circumstances: Circumstances = NOWHERE
    messages: tuple[Message, ...] = ()
    """What the model has been sent and has said so far; hidden messages are not there."""
    model: str = ""
    folder: str = ""
    """Where the work takes place, or nothing."""
    system_prompt: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def scope(self) -> Scope:
        return self.info.scope

    @property
    def turns(self) -> int:
        """How often the user has spoken."""
        return sum(message.role == "user" for message in self.messages)


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """One turn that ended with a reply. Those that were cut off are never announced."""

    number: int
    """Which turn of the conversation it was, from 1."""
    user: str
    reply: str
    messages: tuple[Message, ...]
    """From the user's message to the reply, tools included."""

    @property
    def tool_calls(self) -> int:
        return sum(len(message.tool_calls) for message in self.messages)


@dataclass(frozen=True, slots=True)
class MemoryWrite:
    """A change of curated memory that a session's tool made. It is on disk."""

    target: Target
    scope: Scope
    operations: tuple[MemoryOp, ...]
    outcome: MemoryOutcome
    author: Author


def _letters(text: str) -> int:
    return len(text)


@dataclass(frozen=True, slots=True)
class Occasion:
    """A prompt that is about to be made, and how many tokens those who add to it may take together."""

    view: SessionView
    system_tokens: int = 0
    """Left for skills and hints."""
    memory_tokens: int = 0
    """Left for episodes and external memories, after curated memory, which is never cut for them."""
    count: Callable[[str], int] = _letters
    """Tokens of a text, as this session counts them."""
    rehearsal: bool = False
    """Somebody only looks at what the prompt would be: nothing may begin because of it."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one part adds to the prompt. What is empty leaves no trace; what does not fit, it leaves out itself."""

    skills: str = ""
    episodes: tuple[str, ...] = ()
    providers: tuple[tuple[str, str], ...] = ()
    """Name and block of an external memory."""
    hints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """For people, not for the model."""
