"""pydantic-ai: memory as one capability, and a durable conversation store.

from herma.integrations.pydantic_ai import HermaConversationStore, HermaCapability

agent = Agent("openai:…", capabilities=[HermaCapability(h)])
conversation = …  # HermaConversationStore(h) wherever a ConversationStore goes
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter
from pydantic_ai import FunctionToolset, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, UserPromptPart

from herma.integrations.items import ItemLog, calling, recalled_text, scope_of
from herma.store.files import exclusive, make_folder

if TYPE_CHECKING:
    from pydantic_ai import RunContext

    from herma.app import Herma

SOURCE = "pydantic-ai"
_LOCK_WAIT = 30.0
_ENTRY, _RECORD = TypeAdapter(ConversationEntry), TypeAdapter(ConversationRecord)


class HermaCapability(AbstractCapability[Any]):
    """Give an agent curated memory, the tools of Herma, recall for each prompt, and a transcript of each run."""

    def __init__(
        self,
        app: Herma,
        *,
        session_id: str = "agent",
        user: str | None = None,
        project: str | None = None,
        recall: bool = True,
        capture: bool = True,
    ) -> None:
        self._app = app
        self._scope = scope_of(app, user, project)
        self._log = ItemLog(app, SOURCE, session_id, self._scope)
        self._recall = recall
        self._capture = capture
        self._memory: str | None = None

    def get_instructions(self) -> Any:
        """Return curated memory as it was first asked for, so that the prompt cache stays warm."""
        return self._instructions

    def _instructions(self) -> str:
        if self._memory is None:
            self._memory = self._app.memory.load(self._scope).text
        return self._memory

    def get_toolset(self) -> FunctionToolset[Any]:
        """Return the tools of Herma: memory, session_search and those for skills."""
        return FunctionToolset([_tool(self._app, schema["function"]) for schema in self._app.tools.schemas()])

    async def before_model_request(self, ctx: RunContext[Any], request_context: Any) -> Any:
        """Put what past sessions say about the prompt behind it, once a run."""
        del ctx
        last = request_context.messages[-1] if request_context.messages else None
        if self._recall and isinstance(last, ModelRequest):
            prompts = [part for part in last.parts if isinstance(part, UserPromptPart)]
            question = "\n".join(part.content for part in prompts if isinstance(part.content, str))
            if question and not any("<memory-context>" in str(part.content) for part in prompts):
                past = await asyncio.to_thread(recalled_text, self._app, question, scope=self._scope)
                if past:
                    last.parts = [*last.parts, UserPromptPart(past)]
        return request_context

    async def after_run(self, ctx: RunContext[Any], *, result: Any) -> Any:
        """Keep the messages of the run."""
        del ctx
        if self._capture:
            messages = ModelMessagesTypeAdapter.dump_python(result.new_messages(), mode="json")
            pairs = [pair for message in messages for pair in _messages_of(message)]
            await asyncio.to_thread(self._log.append, pairs)
        return result


def _tool(app: Herma, function: dict[str, Any]) -> Tool[Any]:
    name = function["name"]

    async def call(**arguments: Any) -> str:
        return await asyncio.to_thread(app.tools.call, name, arguments)

    return Tool.from_schema(call, name, function["description"], function["parameters"])


def _messages_of(message: dict[str, Any]) -> list[tuple[Any, dict[str, Any]]]:
    """Return the messages that say in words what a run's message holds; the first of them holds the whole."""
    said: list[dict[str, Any]] = []
    calls = []
    for part in message["parts"]:
        kind, content = part["part_kind"], part.get("content")
        text = content if isinstance(content, str) else "" if content is None else str(content)
        if kind in ("user-prompt", "system-prompt"):
            said.append({"role": "system" if kind == "system-prompt" else "user", "content": text})
        elif kind == "text":
            said.append({"role": "assistant", "content": text})
        elif kind in ("tool-return", "retry-prompt") and part.get("tool_call_id"):
            said.append({"role": "tool", "tool_call_id": part["tool_call_id"], "content": text})
        elif kind == "tool-call":
            arguments = part["args"] if isinstance(part["args"], str) else TypeAdapter(Any).dump_json(part["args"])
            written = arguments if isinstance(arguments, str) else arguments.decode()
            calls.append((part["tool_call_id"], part["tool_name"], written))
    if calls:
        said.append(calling(None, calls))
    return [(message if number == 0 else {"part_of": "previous"}, one) for number, one in enumerate(said)]


class HermaConversationStore(ConversationStore):
    """Keep conversations in one transcript, appended to and never rewritten; two writers cannot overwrite each other.

    Entries of deleted conversations stay on disk, hidden from readers.
    """

    def __init__(
        self, app: Herma, name: str = "conversations", *, user: str | None = None, project: str | None = None
    ) -> None:
        self._app = app
        self._log = ItemLog(app, "pydantic-ai-store", name, scope_of(app, user, project))
        self._lock = app.home / "locks" / f"{self._log.session_id}.lock"
        self._mutex = threading.RLock()  # guards what follows
        self._seen = -1
        self._records: dict[str, str] = {}
        self._entries: dict[str, str] = {}

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Return the record of a conversation."""
        return await asyncio.to_thread(self._record, conversation_id)

    async def read_records(self, *, scope: str | None = None, limit: int | None = None) -> Sequence[ConversationRecord]:
        """Return the records, the most recently saved first."""
        records = [record for record in await asyncio.to_thread(self._all) if scope is None or record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record with its new entries in one transaction; raise `ConversationConflict` if it changed."""
        await asyncio.to_thread(self._write, record, list(new_entries), expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a record."""
        await asyncio.to_thread(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return one entry."""
        return await asyncio.to_thread(self._entry, entry_id)

    def _catch_up(self) -> None:
        for one in self._log.read(self._seen):
            self._seen = one.message
            if "entry" in one.item:
                self._entries[one.item["id"]] = one.item["entry"]
            elif one.item["record"] is None:
                self._records.pop(one.item["id"], None)
            else:
                self._records[one.item["id"]] = one.item["record"]

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        with self._mutex:
            self._catch_up()
            text = self._records.get(conversation_id)
        return None if text is None else _RECORD.validate_json(text)

    def _all(self) -> list[ConversationRecord]:
        with self._mutex:
            self._catch_up()
            return [_RECORD.validate_json(text) for text in self._records.values()]

    def _entry(self, entry_id: str) -> ConversationEntry:
        with self._mutex:
            self._catch_up()
            return _ENTRY.validate_json(self._entries[entry_id])

    def _write(self, record: ConversationRecord, new: list[ConversationEntry], expected: str | None) -> None:
        make_folder(self._lock.parent)
        with self._mutex, exclusive(self._lock, _LOCK_WAIT):
            self._check(record.conversation_id, expected)
            if record.head_id is not None and record.head_id not in self._entries.keys() | {one.id for one in new}:
                raise ConversationConflict(record.conversation_id)
            items: list[tuple[Any, dict[str, Any]]] = [
                ({"id": one.id, "entry": _ENTRY.dump_json(one).decode()}, _shown(one.message)) for one in new
            ]
            kept = {"id": record.conversation_id, "record": _RECORD.dump_json(record).decode()}
            self._log.append([*items, (kept, {"role": "system", "content": ""})])

    def _delete(self, conversation_id: str, expected: str) -> None:
        make_folder(self._lock.parent)
        with self._mutex, exclusive(self._lock, _LOCK_WAIT):
            if self._check(conversation_id, expected) is None:
                raise ConversationConflict(conversation_id)
            self._log.append([({"id": conversation_id, "record": None}, {"role": "system", "content": ""})])

    def _check(self, conversation_id: str, expected: str | None) -> ConversationRecord | None:
        """Return the record as it is stored; raise if its revision is not the expected one."""
        stored = self._record(conversation_id)
        if (stored.revision if stored else None) != expected:
            raise ConversationConflict(conversation_id)
        return stored


def _shown(message: ModelMessage) -> dict[str, Any]:
    """Return the first words of a message, for search."""
    said = _messages_of(ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])
    return said[0][1] if said else {"role": "system", "content": ""}
