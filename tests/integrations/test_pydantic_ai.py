"""pydantic-ai: the conversation store answers as the one in memory; an agent with the capability remembers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from herma import Herma
from herma.integrations.pydantic_ai import HermaCapability, HermaConversationStore


def _entry(name: str, parent: str | None) -> ConversationEntry:
    return ConversationEntry(id=name, parent_id=parent, message=ModelRequest([UserPromptPart(f"say {name}")]))


async def play(store: ConversationStore) -> list[Any]:
    answers: list[Any] = [await store.read_record("c")]

    async def write(record: ConversationRecord, new: list[ConversationEntry], expected: str | None) -> None:
        try:
            await store.write_record(record, new_entries=new, expected_revision=expected)
            answers.append("written")
        except ConversationConflict as exc:
            answers.append(str(exc))

    first = ConversationRecord(conversation_id="c", head_id="e2", scope="ann", revision="r1")
    await write(first, [_entry("e1", None), _entry("e2", "e1")], None)
    await write(first, [], None)
    second = ConversationRecord(conversation_id="c", head_id="e3", scope="ann", revision="r2")
    await write(second, [_entry("e3", "e2")], "wrong")
    await write(second, [_entry("e3", "e2")], "r1")
    await write(ConversationRecord(conversation_id="d", head_id="nothing"), [], None)
    await write(ConversationRecord(conversation_id="d", head_id=None, scope="ben", revision="q"), [], None)
    record = await store.read_record("c")
    answers += [record and (record.head_id, record.revision, record.scope)]
    answers += [[one.conversation_id for one in await store.read_records(scope=scope)] for scope in ("ann", "ben", "x")]
    answers += [len(await store.read_records()), len(await store.read_records(limit=1))]
    answers += [(await store.read_entry("e2")).parent_id, (await store.read_entry("e3")).message.parts[0].content]
    for revision in ("r1", "r2", "r2"):
        try:
            await store.delete_record("c", expected_revision=revision)
            answers.append("deleted")
        except ConversationConflict as exc:
            answers.append(str(exc))
    answers.append(await store.read_record("c"))
    await write(ConversationRecord(conversation_id="c", head_id=None, revision="r3"), [], None)
    return answers


def test_the_store_answers_as_the_one_in_memory(h: Herma) -> None:
    assert asyncio.run(play(HermaConversationStore(h))) == asyncio.run(play(InMemoryConversationStore()))


def test_two_programs_cannot_overwrite_each_other(h: Herma, tmp_path: Path) -> None:
    async def run(other: Herma) -> None:
        ours, theirs = HermaConversationStore(h), HermaConversationStore(other)
        await ours.write_record(
            ConversationRecord(conversation_id="c", head_id=None, revision="a"), expected_revision=None
        )
        assert (await theirs.read_record("c")) is not None
        await theirs.write_record(
            ConversationRecord(conversation_id="c", head_id=None, revision="b"), expected_revision="a"
        )
        with pytest.raises(ConversationConflict):
            await ours.write_record(
                ConversationRecord(conversation_id="c", head_id=None, revision="c"), expected_revision="a"
            )

    with Herma.open(tmp_path / "home") as other:
        asyncio.run(run(other))


Say = Callable[[list[ModelMessage], AgentInfo], ModelResponse]


def _agent(h: Herma, say: Say, session: str) -> Agent[None, str]:
    return Agent(FunctionModel(say), capabilities=[HermaCapability(h, session_id=session)])


def test_an_agent_writes_memory_and_the_next_one_knows(h: Herma) -> None:
    seen: list[tuple[str, list[str]]] = []

    def first(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((str(messages), [tool.name for tool in info.function_tools]))
        if len(messages) == 1:
            arguments = {"action": "add", "target": "memory", "content": "CI runs on ARM."}
            return ModelResponse([ToolCallPart("memory", arguments, "c1")])
        return ModelResponse([TextPart("Noted.")])

    assert asyncio.run(_agent(h, first, "one").run("CI runs on ARM; the runner is in rack seven.")).output == "Noted."
    assert "session_search" in seen[0][1]
    assert h.memory.entries("memory") == ["CI runs on ARM."]
    roles = [message.role for message in h.transcripts.messages("pydantic-ai-one")]
    assert roles == ["user", "assistant", "tool", "assistant"]

    def second(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append((str(messages), []))
        return ModelResponse([TextPart("In rack seven.")])

    asyncio.run(_agent(h, second, "two").run("Where is the runner?"))
    assert "CI runs on ARM." in seen[-1][0]
    assert "rack seven" in seen[-1][0]
    assert "<memory-context>" in seen[-1][0]
