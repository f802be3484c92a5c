"""Microsoft agent framework: memory before each run, and history in Herma's transcripts.

from herma.integrations.agent_framework import HermaContextProvider, HermaHistoryProvider

agent = Agent(client=…, context_providers=[HermaHistoryProvider(h), HermaContextProvider(h)])
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agent_framework import ContextProvider, HistoryProvider, Message

from herma.integrations.items import ItemLog, calling, recalled_text, scope_of

if TYPE_CHECKING:
    from agent_framework import AgentSession, SessionContext, SupportsAgentRun

    from herma.app import Herma

SOURCE = "agent-framework"
_ROLES = ("user", "assistant", "tool", "system")


class HermaContextProvider(ContextProvider):
    """Add curated memory as instructions, and what past sessions say about the input as a message before it."""

    def __init__(
        self,
        app: Herma,
        source_id: str = "herma",
        *,
        user: str | None = None,
        project: str | None = None,
        limit: int = 5,
    ) -> None:
        super().__init__(source_id)
        self._app = app
        self._scope = scope_of(app, user, project)
        self._limit = limit

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Put memory before the model. Curated memory is read once a session, so that the prefix stays the same."""
        del agent, session
        if "memory" not in state:
            state["memory"] = (await asyncio.to_thread(self._app.memory.load, self._scope)).text
        if state["memory"]:
            context.extend_instructions(self.source_id, state["memory"])
        question = "\n".join(message.text for message in context.input_messages if message.role == "user")
        past = await asyncio.to_thread(recalled_text, self._app, question, scope=self._scope, limit=self._limit)
        if past:
            context.extend_messages(self, [Message(role="user", contents=[past])])


class HermaHistoryProvider(HistoryProvider):
    """Keep the messages of each session in a transcript and return them as they were."""

    def __init__(
        self,
        app: Herma,
        source_id: str = "herma-history",
        *,
        user: str | None = None,
        project: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self._app = app
        self._scope = scope_of(app, user, project)

    async def get_messages(
        self,
        session_id: str | None,
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> list[Message]:
        """Return the messages of a session, in order."""
        stored = await asyncio.to_thread(self._log(session_id).read)
        return [Message.from_dict(one.item) for one in stored]

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Append messages; they are on disk when this returns."""
        await asyncio.to_thread(self._log(session_id).append, [(one.to_dict(), _message_of(one)) for one in messages])

    def _log(self, session_id: str | None) -> ItemLog:
        return ItemLog(self._app, SOURCE, session_id or "default", self._scope)


def _message_of(message: Message) -> dict[str, Any]:
    role = str(message.role) if str(message.role) in _ROLES else "assistant"
    for part in message.contents:
        if part.type == "function_result":
            return {"role": "tool", "tool_call_id": str(part.call_id), "content": str(part.result)}
    calls = [
        (str(part.call_id), str(part.name), str(part.arguments or ""))
        for part in message.contents
        if part.type == "function_call"
    ]
    return calling(message.text, calls) if calls and role == "assistant" else {"role": role, "content": message.text}
