"""Making room: ask the engine what may stand for the conversation, and commit it. One program at a time.

The order, also towards external memories: what they want to be kept (`on_pre_compress`), the engine, the end of the old
session, the new one with its prompt built anew, the switch. When any of it fails, the conversation is as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from herma.ports import ContextEngine
from herma.types import Compression, Condensed, LeftAlone, Message, SessionView, Usage

Hold: TypeAlias = Callable[[str], AbstractContextManager[bool]]
"""Takes the lock of a conversation at once; yields whether it was free."""


class Conversation(Protocol):
    """What a session lets itself be asked for this."""

    @property
    def id(self) -> str: ...

    def view(self) -> SessionView: ...

    def before_compression(self) -> str: ...

    def continue_with(self, messages: Sequence[Message], *, in_place: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class Room:
    """How one session makes room."""

    engine: ContextEngine
    hold: Hold
    gone_on: Callable[[str], bool]
    """Whether another program has taken the conversation further than this session."""
    in_place: bool = False
    automatic: bool = True
    why_not: str = ""
    """Why it does not happen by itself, for people."""

    def wanted(self, tokens: int) -> bool:
        """Whether a request of this size should be shortened first, by itself."""
        return self.automatic and self.engine.should_compress(tokens)

    def answered(self, usage: Usage) -> None:
        self.engine.update_from_response(usage)

    def make(self, conversation: Conversation, tokens: int, *, topic: str = "", force: bool = False) -> Compression:
        """Shorten it now. Nothing leaves the transcript."""
        with self.hold(conversation.view().info.conversation) as free:
            if not free:
                return LeftAlone("Another program is shortening this conversation at this moment.")
            if self.gone_on(conversation.id):
                return LeftAlone("Another program has gone on with this conversation; resume it to see where it is.")
            outside = conversation.before_compression()
            old = conversation.view()
            done = self.engine.compress(
                old.messages, current_tokens=tokens, focus_topic=topic, force=force, memory_context=outside
            )
            if isinstance(done, Condensed):
                conversation.continue_with(done.messages, in_place=self.in_place)
                self.engine.on_session_end(old.id, old.messages)
                self.engine.on_session_start(conversation.id, boundary_reason="compression", old_session_id=old.id)
            return done
