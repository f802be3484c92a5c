"""Sessions and their messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypedDict

from herma.types.common import Scope

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
