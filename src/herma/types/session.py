"""What a running session shows to those who follow it. Frozen: nobody changes a conversation by looking at it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from herma.types.common import Author, Scope
from herma.types.memory import MemoryOp, MemoryOutcome, Target
from herma.types.transcript import Message, SessionInfo

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
