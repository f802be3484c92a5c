"""What a chat model answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from herma.types.transcript import Usage

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
