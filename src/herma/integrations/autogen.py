"""AutoGen: `Memory` for an agent: curated memory and what past sessions say about the last message.

from herma.integrations.autogen import HermaMemory

agent = AssistantAgent("helper", model_client=…, memory=[HermaMemory(h)])
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from autogen_core.memory import Memory, MemoryContent, MemoryMimeType, MemoryQueryResult, UpdateContextResult
from autogen_core.models import SystemMessage

from herma.errors import UsageError
from herma.integrations.items import keep_entry, known_text, recall, scope_of

if TYPE_CHECKING:
    from autogen_core import CancellationToken
    from autogen_core.model_context import ChatCompletionContext

    from herma.app import Herma


class HermaMemory(Memory):
    """Read curated memory and past sessions; `add` keeps an entry in MEMORY.md."""

    def __init__(self, app: Herma, *, user: str | None = None, project: str | None = None, limit: int = 5) -> None:
        self._app = app
        self._scope = scope_of(app, user, project)
        self._limit = limit

    async def update_context(self, model_context: ChatCompletionContext) -> UpdateContextResult:
        """Add a system message with curated memory and what fits the last message."""
        messages = await model_context.get_messages()
        question = next((text for each in reversed(messages) if isinstance(text := each.content, str)), "")
        text = await asyncio.to_thread(known_text, self._app, question, scope=self._scope, limit=self._limit)
        if text:
            await model_context.add_message(SystemMessage(content=text))
        shown = [MemoryContent(content=text, mime_type=MemoryMimeType.TEXT)] if text else []
        return UpdateContextResult(memories=MemoryQueryResult(results=shown))

    async def query(
        self,
        query: str | MemoryContent,
        cancellation_token: CancellationToken | None = None,  # noqa: ARG002 (a search takes milliseconds)
        **kwargs: Any,  # noqa: ARG002 (the interface passes more)
    ) -> MemoryQueryResult:
        """Return what past sessions say, the best first, with the score, the session and the message."""
        question = _text_of(query) if isinstance(query, MemoryContent) else query
        found = await asyncio.to_thread(recall, self._app, question, scope=self._scope, limit=self._limit)
        return MemoryQueryResult(
            results=[
                MemoryContent(
                    content=one.text,
                    mime_type=MemoryMimeType.TEXT,
                    metadata={"score": one.score, "session": one.session, "message": one.message, "role": one.role},
                )
                for one in found
            ]
        )

    async def add(self, content: MemoryContent, cancellation_token: CancellationToken | None = None) -> None:  # noqa: ARG002
        """Add an entry to MEMORY.md. Raise if it is refused; one that needs a person's yes waits in the inbox."""
        await asyncio.to_thread(keep_entry, self._app, _text_of(content), self._scope)

    async def clear(self) -> None:
        """Empty MEMORY.md. A copy is kept and `herma undo` brings it back."""
        await asyncio.to_thread(self._app.memory.reset, "memory", scope=self._scope)

    async def close(self) -> None:
        """Do nothing: the caller that opened the Herma closes it."""


def _text_of(content: MemoryContent) -> str:
    if isinstance(content.content, str):
        return content.content
    if isinstance(content.content, dict):
        return json.dumps(content.content, ensure_ascii=False)
    raise UsageError(f"Herma remembers text, not {content.mime_type}. Nothing was written.")
