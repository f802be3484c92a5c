"""OpenAI Agents SDK: a `Session` in Herma's transcripts, and memory for an agent.

from herma.integrations.openai_agents import HermaSession, memory_instructions, memory_tools

agent = Agent(name="Helper", instructions=memory_instructions(h, "Be brief."), tools=memory_tools(h))
await Runner.run(agent, "Hello", session=HermaSession(h, "chat-1"))
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from agents import FunctionTool, SessionSettings

from herma.integrations.items import ItemLog, scope_of
from herma.transcript.messages import item_message, joined_text

if TYPE_CHECKING:
    from agents import TResponseInputItem

    from herma.app import Herma

SOURCE = "openai-agents"


class HermaSession:
    """Implement the `Session` protocol: items come back exactly as they were added."""

    def __init__(
        self,
        app: Herma,
        session_id: str,
        *,
        user: str | None = None,
        project: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings
        self._log = ItemLog(app, SOURCE, session_id, scope_of(app, user, project))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest `limit` items, in order; without a limit those that the settings allow."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        stored = await asyncio.to_thread(self._log.read)
        if limit is not None:
            stored = stored[-limit:] if limit > 0 else []
        return [one.item for one in stored]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append items; they are on disk when this returns."""
        await asyncio.to_thread(self._log.append, [(dict(item), message_of(item)) for item in items])

    async def pop_item(self) -> TResponseInputItem | None:
        """Take back the newest item and return it."""
        return await asyncio.to_thread(self._pop)

    async def clear_session(self) -> None:
        """Take back all items. They stay in the transcript, hidden."""
        await asyncio.to_thread(self._clear)

    def _pop(self) -> TResponseInputItem | None:
        stored = self._log.read()
        if not stored:
            return None
        self._log.cut(stored[-1].message)
        item: TResponseInputItem = stored[-1].item
        return item

    def _clear(self) -> None:
        if stored := self._log.read():
            self._log.cut(stored[0].message)


def message_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message that says in words what an item holds."""
    if item.get("type") == "reasoning":
        return {"role": "assistant", "content": "", "reasoning": joined_text(item.get("summary")) or None}
    kind, message = item.get("type", "message"), item_message(item)
    is_said = kind == "message" or message["content"] or "tool_calls" in message or "tool_call_id" in message
    return message if is_said else {**message, "content": f"[{kind}]"}


def memory_instructions(
    app: Herma, text: str = "", *, user: str | None = None, project: str | None = None
) -> Callable[[Any, Any], str]:
    """Return `instructions` for an `Agent`: `text`, then curated memory as it was when this was called.

    It never changes afterwards, so that the model's prompt cache stays warm; call it once a conversation.
    """
    memory = app.memory.load(scope_of(app, user, project)).text
    fixed = "\n\n".join(filter(None, (text, memory)))
    return lambda context, agent: fixed  # noqa: ARG005 (the SDK passes both)


def memory_tools(app: Herma) -> list[FunctionTool]:
    """Return the tools of Herma for an `Agent`: memory, session_search and those for skills."""
    return [_tool(app, schema["function"]) for schema in app.tools.schemas()]


def _tool(app: Herma, function: Mapping[str, Any]) -> FunctionTool:
    name = function["name"]

    async def invoke(context: Any, arguments: str) -> str:  # noqa: ARG001 (the SDK passes it)
        return await asyncio.to_thread(app.tools.call, name, arguments)

    return FunctionTool(
        name=name,
        description=function["description"],
        params_json_schema=function["parameters"],
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
