"""Frozen values that several features share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from operator import add
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, runtime_checkable

from herma.errors import FormerName

# ── scope, author, findings ──


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a memory or session. The empty scope is the home itself."""

    profile: str = ""
    project: str = ""
    user: str = ""
    chat: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of the scanner: its rule, place (character offsets), severity, and reason in a few words."""

    rule: str
    span: tuple[int, int]
    severity: Literal["high", "medium"]
    why: str


class Who(StrEnum):
    """The kind of author of a change."""

    USER = "user"
    TOOL = "tool"
    REVIEW = "review"
    IMPORT = "import"
    HAND_EDIT = "hand edit"
    TIDY = "tidy"
    CURATOR = "curator"


class Origin(StrEnum):
    """The source of knowledge. Only the first two are trusted."""

    USER_SAID = "user said"
    AGENT_CONCLUDED = "agent concluded"
    TOOL_OUTPUT = "tool output"
    WEB = "web"
    IMPORT = "import"
    PIPE = "pipe"
    FILE = "file"
    PROJECT_FILE = "project file"
    EPISODE = "episode"
    PROVIDER = "provider"
    RECALL = "recall"

    @property
    def trusted(self) -> bool:
        return self in (Origin.USER_SAID, Origin.AGENT_CONCLUDED)


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change, its source, and its session and message."""

    who: Who = Who.USER
    origin: Origin = Origin.USER_SAID
    session: str | None = None
    message: int | None = None


# ── sessions and messages ──

Content: TypeAlias = str | list[dict[str, Any]] | None
"""Text, or OpenAI-style parts."""
Hidden: TypeAlias = Literal["", "rewound", "compacted"]
Reason: TypeAlias = Literal["new", "resume", "branch", "compression", "delegation"]
"""Why a session follows its parent. `resume` and `compression` continue the conversation; the others start one."""


@dataclass(frozen=True, slots=True)
class OutsideSpan:
    """A part of a text that came from outside: from character `start` up to `end`, and where it came from."""

    start: int
    end: int
    origin: Origin


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text from outside that is added to the user's message: a page, a file, standard input."""

    text: str
    origin: Origin | str = Origin.FILE
    """An `Origin` that is not trusted, or its value, such as "web"."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One stored message. `sent` is the content that the model was sent, if it differs from `content`."""

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
    memory_version: str | None = None
    """The version of curated memory that the model knows after it; `told` in the database and in exports."""
    tokens: int | None = None
    finish_reason: str | None = None
    hidden: Hidden = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the original message, kept for an exact round trip."""
    outside: tuple[OutsideSpan, ...] | None = None
    """The parts of the text (of `sent` where there is one, else of `content`, which `sent` begins with) came from
    outside. None: not recorded. Messages of tools and of imported sessions are outside as a whole, spans or not."""

    told = FormerName("memory_version")


@runtime_checkable
class SdkMessage(Protocol):
    """A message object of the OpenAI or Anthropic SDK."""

    def model_dump(self, *, exclude_none: bool = ...) -> dict[str, Any]: ...


AnyMessage: TypeAlias = Message | Mapping[str, Any] | SdkMessage
"""A message as callers give it: OpenAI-style, or an object of an SDK."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of a session or a call."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(add, astuple(self), astuple(other)))


class SessionMetadata(TypedDict, total=False):
    """The place of a session: provider of the model, kind of chat, folder, git branch."""

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
    """When it was deleted; it can be restored until it is purged."""
    provider: str = ""
    """The provider of the model."""
    chat_type: str = ""
    folder: str = ""
    """The folder of the work; `branch` is its git branch when the session began."""
    branch: str = ""
    imported: float | None = None
    """When it was imported; an imported session is read-only."""


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """A selection of sessions. None and empty values do not restrict it; bounds on times and counts are inclusive.

    `search` matches titles and ids; `model` and `branch` match parts of the names; `delegated` conversations are a
    subagent's; `project` and `folder` match the place itself or a folder above it, `project` also its last name.
    """

    source: str | None = None
    exclude_sources: tuple[str, ...] = ()
    profile: str | None = None
    project: str | None = None
    user: str | None = None
    chat: str | None = None
    archived: bool | None = None
    imported: bool | None = None
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
    """Sessions that were deleted, or would be. They can be restored until `until`."""

    sessions: tuple[SessionInfo, ...]
    messages: int
    until: float
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TranscriptStats:
    """Counts and sizes. `sources` maps each source to its sessions and messages; payloads count stored bytes."""

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


# ── answers of chat models ──

Finish: TypeAlias = Literal["stop", "length", "tool_calls", "content_filter", "other"]
"""Why a model stopped: finished, maximum length, tool calls, or withheld by its provider."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call of the model. `arguments` is its JSON exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model.

    `message` is the answer as an OpenAI-style dictionary, ready for the history and for the next request: content,
    tool calls with their arguments verbatim, and reasoning that the model wants to be sent back.
    """

    message: Mapping[str, Any]
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish_reason: Finish
    usage: Usage
    """Tokens; `input` excludes what was read from or written to the cache, `output` includes reasoning."""
    model: str
    """The model that answered, as its server calls it."""
    seconds: float = 0.0
    measured: bool = True
    """True if the server reported usage; if not, `usage` is empty."""
    attempts: int = 1
    first_text: float | None = None
    """Seconds until the first piece of text; `None` without text."""


# ── curated memory: operations and outcomes ──

Target: TypeAlias = Literal["memory", "user"]
TARGETS: tuple[Target, ...] = ("memory", "user")
DELIMITER = "\n§\n"
"""The separator of the entries of a curated file."""

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
    """Replace the one entry that contains `old_text` with `content`.

    With `reworded`, `old_text` is the whole entry and `content` means the same, so the metadata of the entry stays.
    """

    old_text: str
    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()
    reworded: bool = False


Kept: TypeAlias = Literal["", "merged", "room", "expired", "superseded"]
"""Place of a removed entry's text: nowhere; in another entry; or in the archive, because room was needed, its
date has passed, or a newer entry contradicts it."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove the one entry that contains `old_text`. With `kept`, `old_text` is the whole entry, and its text is kept
    elsewhere.
    """

    old_text: str
    kept: Kept = ""


MemoryOp: TypeAlias = Add | Replace | Remove


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A way to make room: entries to merge, or an entry to drop, and the characters that this frees."""

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
    freed: tuple[str, ...] = ()
    """Entries to report to a person: exact duplicates that were removed for room, and entries of a person
    that an agent removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(_Outcome):
    """The same entry exists already; nothing was added."""

    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBudget(_Outcome):
    """The entry does not fit. Nothing was written; `suggestions` are ways to make room."""

    entries: tuple[str, ...]
    needed: int
    suggestions: tuple[Suggestion, ...] = ()
    proposed: tuple[int, ...] = ()
    """Numbers of proposals in the inbox that would make room if a person approves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMatch(_Outcome):
    """No entry contains the text."""

    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous(_Outcome):
    """Several different entries contain the text."""

    matches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(_Outcome):
    """The text was not stored: the scanner found something, or it cannot be an entry (then `findings` is empty)."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted(_Outcome):
    """The file cannot be rewritten safely. It was not changed; `backup` is a copy, if there was anything to copy."""

    reason: str
    remedy: str
    backup: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(_Outcome):
    """The write waits in the inbox for a person's decision."""

    ok: ClassVar[bool] = True
    pending: int


MemoryOutcome: TypeAlias = Applied | Duplicate | OverBudget | NoMatch | Ambiguous | Blocked | Drifted | Staged


# ── what is kept about curated memory ──


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry with its metadata. Times are seconds since 1970; `None`: not recorded."""

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
    by: Who | None = field(default=None, compare=False)
    """The author of the change that wrote it."""

    @property
    def of_a_person(self) -> bool:
        """Test if a person wrote or approved it: only a person may move, reword or drop it. An entry without a record
        was written by hand."""
        return self.origin is not Origin.AGENT_CONCLUDED or self.by in (None, Who.USER, Who.HAND_EDIT)

    @property
    def trusted(self) -> bool:
        """Return whether its text reaches the prompt: the scanner found nothing, or a person vouched for it."""
        return self.vouched or not self.findings


@dataclass(frozen=True, slots=True)
class Change:
    """One row of the history, with the text before and after the change."""

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


class Block(NamedTuple):
    """One rendered piece of the prompt and the file it shows."""

    target: Target
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Curated memory as a session was shown it. `warnings` are for people, not the model."""

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


# ── a running session, as features see it ──

Context: TypeAlias = Literal["primary", "subagent", "cron", "review"]
"""The user's own agent, or one that was started for a subtask, by a timer, or for a review."""
Move: TypeAlias = Literal["reload", "compression", "rewind"]
"""Changes of a session other than growing."""
MOVES: tuple[Move, ...] = ("reload", "compression", "rewind")


@dataclass(frozen=True, slots=True)
class SessionEnvironment:
    """The environment of a session, besides its scope. Providers receive it too."""

    platform: str = ""
    context: Context = "primary"
    user_name: str = ""
    chat_type: str = ""
    thread: str = ""
    system_message: str = ""
    """Text that the caller adds to the prompt."""


DEFAULT_ENVIRONMENT = SessionEnvironment()


@dataclass(frozen=True, slots=True)
class SessionView:
    """The present state of a session."""

    info: SessionInfo
    environment: SessionEnvironment = DEFAULT_ENVIRONMENT
    messages: tuple[Message, ...] = ()
    """The conversation so far, without hidden messages."""
    model: str = ""
    folder: str = ""
    """The folder of the work, or ""."""
    system_prompt: str = ""
    tools: tuple[Mapping[str, Any], ...] = ()
    prompt_outside: tuple[OutsideSpan, ...] = ()
    """The parts of the system prompt that came from outside."""
    marked: tuple[tuple[str, Origin], ...] = ()
    """Texts that the caller marked as untrusted."""

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def scope(self) -> Scope:
        return self.info.scope

    @property
    def turns(self) -> int:
        """The number of user messages."""
        return sum(message.role == "user" for message in self.messages)


@dataclass(frozen=True, slots=True)
class CompletedTurn:
    """One turn that ended with a reply."""

    number: int
    """Its number in the conversation, from 1."""
    user: str
    reply: str
    messages: tuple[Message, ...]
    """The messages from the user's to the reply, with tools."""

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


@dataclass(frozen=True, slots=True)
class PromptRequest:
    """A prompt that is being assembled, and the tokens left for the contributions of all features."""

    view: SessionView
    system_tokens: int = 0
    """For skills and hints."""
    memory_tokens: int = 0
    """For episodes and providers, after curated memory, which is never cut for them."""
    count: Callable[[str], int] = len
    """Tokens of a text, as this session counts them."""
    rehearsal: bool = False
    """Preview only: do not start background work."""


@dataclass(frozen=True, slots=True)
class PromptContribution:
    """The contribution of one feature to the prompt. The feature itself leaves out what does not fit."""

    skills: str = ""
    episodes: tuple[str, ...] = ()
    providers: tuple[tuple[str, str], ...] = ()
    """Name and block of a provider."""
    hints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """For people, not for the model."""
