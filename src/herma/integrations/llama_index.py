"""LlamaIndex: a memory block with curated memory and recall, which keeps what leaves the short-term memory.

from herma.integrations.llama_index import HermaMemoryBlock

memory = Memory.from_defaults(session_id="chat-1", memory_blocks=[HermaMemoryBlock(h, session_id="chat-1")])
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from pydantic import PrivateAttr

from herma.integrations.items import ItemLog, known_text, scope_of

if TYPE_CHECKING:
    from herma.app import Herma

SOURCE = "llama-index"
_ROLES = {"user": "user", "assistant": "assistant", "tool": "tool", "system": "system", "chatbot": "assistant"}


class HermaMemoryBlock(BaseMemoryBlock[str]):
    """A block of text for the prompt; messages that the short-term memory lets go of are kept in the transcript."""

    name: str = "herma"
    _app: Herma = PrivateAttr()
    _log: ItemLog = PrivateAttr()
    _limit: int = PrivateAttr()
    _scope: Any = PrivateAttr()

    def __init__(
        self,
        app: Herma,
        *,
        session_id: str = "memory",
        user: str | None = None,
        project: str | None = None,
        limit: int = 5,
        **block: Any,
    ) -> None:
        super().__init__(**block)
        self._app = app
        self._scope = scope_of(app, user, project)
        self._log = ItemLog(app, SOURCE, session_id, self._scope)
        self._limit = limit

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:  # noqa: ARG002
        asked = [message.content or "" for message in messages or [] if message.role == "user"]
        question = asked[-1] if asked else ""
        return await asyncio.to_thread(known_text, self._app, question, scope=self._scope, limit=self._limit)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        await asyncio.to_thread(self._log.append, [(one.model_dump(mode="json"), _message_of(one)) for one in messages])

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Shorten recalled text first, at about four characters a token; curated memory goes as a whole."""
        curated, _, _ = content.partition("\n\n<")
        kept = len(content) - 4 * tokens_to_truncate
        return curated if 0 < len(curated) <= kept else None


def _message_of(message: ChatMessage) -> dict[str, Any]:
    role = _ROLES.get(str(getattr(message.role, "value", message.role)), "assistant")
    wire: dict[str, Any] = {"role": role, "content": message.content or ""}
    if role == "tool":
        wire["tool_call_id"] = str(message.additional_kwargs.get("tool_call_id", ""))
    return wire
