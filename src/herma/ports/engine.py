"""What decides when a conversation no longer fits, and what stands for it then. `context.engine` chooses one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from herma.ports.chat import ChatModel
from herma.ports.tokens import TokenCounter
from herma.types import Compression, Message, Usage


class ContextEngine(Protocol):
    """One per session. It is asked from one thread at a time and keeps no message that is not in its answer.

    What it answers replaces nothing by itself: the session commits it, and every message stays in the transcript. It
    may have a `held_back`, a sentence for people: why `should_compress` says no although the window fills.
    """

    @property
    def name(self) -> str: ...

    def on_session_start(self, session_id: str, *, boundary_reason: str, old_session_id: str = "") -> None:
        """A session began: `new`, `resume`, or after a `compression` or `reload` of `old_session_id`."""
        ...

    def on_session_end(self, session_id: str, messages: Sequence[Message]) -> None:
        """A session ended; after a compression its conversation goes on in the next one."""
        ...

    def on_reset(self) -> None:
        """The conversation was given up: nothing that was counted for it matters any longer."""
        ...

    def update_from_response(self, usage: Usage) -> None:
        """What the last call really took."""
        ...

    def should_compress(self, prompt_tokens: int) -> bool:
        """Whether a request of this size calls for it."""
        ...

    def compress(
        self,
        messages: Sequence[Message],
        *,
        current_tokens: int,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Compression:
        """What may stand for these messages; the system prompt is not among them and is never touched.

        `focus_topic` gets more room; `force`: a person asked, whatever was tried before; `memory_context` is what
        external memories want to be kept, as material.
        """
        ...


@dataclass(frozen=True, slots=True)
class Tries:
    """What has been tried for one conversation."""

    failures: int = 0
    not_before: float = 0.0
    """When a model may be asked again."""
    ineffective: int = 0
    """Compressions in a row after which the context was as full as before."""


class CompressionRows(Protocol):
    """Keeps it across processes."""

    def tries(self, conversation: str) -> Tries: ...

    def remember(self, conversation: str, tries: Tries) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """`compression.*` of the configuration."""

    enabled: bool = True
    threshold: float = 0.75
    tail: float = 0.3
    """Of the threshold: what stays as it is at the end."""
    head: int = 2
    on_failure: Literal["extract", "abort"] = "extract"
    deadline: float = 90.0


@dataclass(frozen=True, slots=True)
class EngineNeeds:
    """What an engine is made of: a class that `context.engine` names is called with this one value, once a session."""

    conversation: str
    """The same for all sessions that go on with one conversation."""
    window: int
    """Tokens that fit into the model's window; a guess where `window_known` is false."""
    window_known: bool
    counter: TokenCounter
    rows: CompressionRows
    """Keeps what was tried for a conversation across processes."""
    clock: Callable[[], float]
    models: Callable[[], Sequence[ChatModel]] = tuple
    """Who may be asked for a summary, in this order; each call is metered as background work."""
    options: EngineOptions = field(default_factory=EngineOptions)
