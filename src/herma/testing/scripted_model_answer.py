"""What a scripted model is asked, and what it is to answer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

from herma.types import Finish, ToolCall, Usage

Dialect: TypeAlias = Literal["openai", "anthropic", "embeddings", "models"]
_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One request as it came in. `body` is its JSON; `headers` have names in small letters."""

    dialect: Dialect
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when the client closed the connection before the answer was complete."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", ()))

    @property
    def tools(self) -> list[dict[str, Any]]:
        return list(self.body.get("tools", ()))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def last(self) -> str:
        """The text of the last message: what most scripts decide by."""
        return text_of(self.messages[-1].get("content")) if self.messages else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, and how it comes: in pieces, slowly, cut off, or not at all. Whole and at once if nothing is said."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    """What the answer says that it took; `None`: a count by characters."""
    says_usage: bool = True
    finish: Finish | None = None
    model: str | None = None
    """The model that claims to have answered; `None`: the one that was asked for."""
    piece: int = 8
    """Characters in one piece of a stream: of text, of reasoning and of a tool call's arguments."""
    wait: float = 0.0
    """Seconds before the first byte."""
    pause: float = 0.0
    """Seconds before each piece."""
    broken_after: int | None = None
    """The connection is cut after so many pieces."""
    silent_after: int | None = None
    """Nothing more comes after so many pieces, and the connection stays open."""
    endless: bool = False
    """The text is said again and again, until the client hangs up."""
    malformed: bool = False
    """What should be JSON is none: the second piece of a stream, or the whole answer."""
    status: int = 200
    error: str = ""
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    content_type: str | None = None
    """A wrong one, in place of the right one."""
    raw: str | None = None
    """The whole body, in place of an answer: a page of some proxy, for example."""

    @classmethod
    def calling(cls, name: str, arguments: Mapping[str, Any] | str | None = None, **how: Any) -> Self:
        """Wants one tool to be called. Arguments that are text are sent as they are, valid or not."""
        return cls(calls=(tool_call(name, arguments),), **how)

    @classmethod
    def failing(
        cls, status: int, error: str = "", *, code: str = "", retry_after: float | str | None = None, **how: Any
    ) -> Self:
        """Refuses, with a status: 401, 429, 500, 503, …"""
        headers = dict(how.pop("headers", {}))
        if retry_after is not None:
            headers["Retry-After"] = f"{retry_after:g}" if isinstance(retry_after, float | int) else retry_after
        return cls(status=status, error=error or f"scripted failure {status}", code=code, headers=headers, **how)


Step: TypeAlias = "str | Answer | Callable[[Asked], str | Answer]"
Script: TypeAlias = "Sequence[Step] | Callable[[Asked], str | Answer]"


def tool_call(name: str, arguments: Mapping[str, Any] | str | None = None, *, call_id: str = "") -> ToolCall:
    """A call for an `Answer`; its id is made from the name if none is given."""
    written = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}), ensure_ascii=False)
    return ToolCall(call_id or f"call_{name}", name, written)


def text_of(content: object) -> str:
    """The words of a message's content, in either dialect."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
