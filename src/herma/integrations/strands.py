"""Strands: a `MemoryStore` for its memory manager.

from strands.memory import MemoryManager
from herma.integrations.strands import HermaMemoryStore

agent = Agent(memory_manager=MemoryManager(stores=[HermaMemoryStore(h)]))
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strands.memory import ExtractionConfig, IntervalTrigger
from strands.memory.types import MemoryEntry

from herma.integrations.items import ItemLog, keep_entry, recall, scope_of

if TYPE_CHECKING:
    from strands.memory.types import AddMessagesContext, SearchOptions

    from herma.app import Herma

SOURCE = "strands"


class HermaMemoryStore:
    """Search past sessions and curated memory; `add` keeps an entry, `add_messages` keeps the conversation."""

    def __init__(
        self,
        app: Herma,
        *,
        name: str = "herma",
        session_id: str = "memory",
        user: str | None = None,
        project: str | None = None,
        max_search_results: int = 5,
        writable: bool = True,
    ) -> None:
        self.name = name
        self.description: str | None = "What was said in past sessions, and notes that were kept."
        self.max_search_results: int | None = max_search_results
        self.writable = writable
        # After each turn the manager hands its messages to `add_messages`.
        self.extraction = ExtractionConfig(trigger=IntervalTrigger(turns=1)) if writable else None
        self._app = app
        self._scope = scope_of(app, user, project)
        self._log = ItemLog(app, SOURCE, session_id, self._scope)

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemoryEntry]:
        """Return curated entries that share a word with the query, then messages of past sessions, the best first."""
        limit = (options or {}).get("max_search_results") or self.max_search_results or 5
        return await asyncio.to_thread(self._search, query, limit)

    async def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        """Add an entry to MEMORY.md. Raise if it is refused; one that needs a person's yes waits in the inbox."""
        await asyncio.to_thread(keep_entry, self._app, content, self._scope)

    async def add_messages(
        self, messages: Sequence[Mapping[str, Any]], context: AddMessagesContext | None = None
    ) -> None:
        """Keep messages of the conversation. A batch that is tried again adds nothing twice."""
        await asyncio.to_thread(self._add_messages, list(messages), context)

    def _search(self, query: str, limit: int) -> list[MemoryEntry]:
        words = {word for word in query.lower().split() if len(word) > 3}
        entries = [
            MemoryEntry(entry, metadata={"file": file})
            for target, file in (("memory", "MEMORY.md"), ("user", "USER.md"))
            for entry in self._app.memory.entries(target, scope=self._scope)  # type: ignore[arg-type]
            if words & set(entry.lower().replace(".", " ").replace(",", " ").split())
        ]
        said = [
            MemoryEntry(one.text, metadata={"session": one.session, "message": one.message, "score": one.score})
            for one in recall(self._app, query, scope=self._scope, limit=limit)
        ]
        return [*entries, *said][:limit]

    def _add_messages(self, messages: list[Mapping[str, Any]], context: AddMessagesContext | None) -> None:
        numbers = (context.sequence_numbers if context else None) or [None] * len(messages)
        keyed = [{"number": number, "message": dict(one)} for number, one in zip(numbers, messages, strict=True)]
        known = [stored.item for stored in self._log.read()][-len(keyed) - 200 :]
        new = [item for item in keyed if item["number"] is None or item not in known]
        self._log.append([(item, _message_of(item["message"])) for item in new])


def _message_of(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Bedrock-style message as one of Herma's."""
    blocks = [block for block in message.get("content", []) if isinstance(block, Mapping)]
    text = "\n".join(str(block["text"]) for block in blocks if "text" in block)
    for block in blocks:
        if result := block.get("toolResult"):
            said = [str(each.get("text", each.get("json", ""))) for each in result.get("content", [])]
            return {"role": "tool", "tool_call_id": str(result.get("toolUseId", "")), "content": "\n".join(said)}
    role = "user" if message.get("role") == "user" else "assistant"
    return {"role": role, "content": text}
