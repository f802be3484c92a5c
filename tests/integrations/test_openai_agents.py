"""The session of the OpenAI Agents SDK: the same answers as the SDK's own, and a real run keeps and finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, SQLiteSession, set_tracing_disabled
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from herma import Herma
from herma.errors import HermaError
from herma.integrations.openai_agents import HermaSession, memory_instructions, memory_tools
from herma.testing import Answer, ScriptedModel

ITEMS: list[Any] = [
    {"role": "user", "content": "hi"},
    {"role": "user", "content": [{"type": "input_text", "text": "and this"}]},
    {"type": "reasoning", "id": "r1", "summary": [{"type": "summary_text", "text": "thinking"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"q": "x"}', "id": "f1"},
    {"type": "function_call_output", "call_id": "c1", "output": "found it"},
    {"type": "web_search_call", "id": "w1", "status": "completed"},
    {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
    },
]


async def _play(session: Any) -> list[Any]:
    """Call everything that the runner calls, and return all answers."""
    answers: list[Any] = [await session.get_items(), await session.pop_item()]
    await session.add_items(ITEMS[:1])
    await session.add_items(ITEMS[1:])
    answers += [await session.get_items(), await session.get_items(limit=2), await session.get_items(limit=0)]
    answers += [await session.pop_item(), await session.get_items(), await session.get_items(limit=100)]
    await session.add_items([])
    await session.add_items(ITEMS[-1:])
    answers.append(await session.get_items())
    await session.clear_session()
    answers.append(await session.get_items())
    await session.add_items(ITEMS[:2])
    answers.append(await session.get_items())
    return answers


def test_it_answers_as_the_sdks_own_session(h: Herma) -> None:
    assert asyncio.run(_play(HermaSession(h, "chat 1"))) == asyncio.run(_play(SQLiteSession("chat 1")))


def test_items_survive_and_are_found(h: Herma, tmp_path: Path) -> None:
    asyncio.run(HermaSession(h, "a").add_items([{"role": "user", "content": "The staging port is 5433."}]))
    h.close()
    with Herma.open(tmp_path / "home") as again:
        assert asyncio.run(HermaSession(again, "a").get_items()) == [
            {"role": "user", "content": "The staging port is 5433."}
        ]
        assert again.search("staging port").hits[0].session_id == "openai-agents-a"


def test_a_user_who_sent_no_words_said_none(h: Herma) -> None:
    picture = {"type": "input_image", "image_url": "data:,", "detail": "auto"}
    asyncio.run(HermaSession(h, "a").add_items([{"role": "user", "content": [picture]}]))  # type: ignore[list-item]
    (message,) = h.transcripts.messages("openai-agents-a")
    assert (message.role, message.content) == ("user", "")


def test_users_do_not_share_a_session(h: Herma) -> None:
    asyncio.run(HermaSession(h, "a", user="ann").add_items(ITEMS[:1]))
    assert asyncio.run(HermaSession(h, "a", user="ben").get_items()) == []
    assert asyncio.run(HermaSession(h, "a").get_items()) == []


def test_an_empty_id_is_refused(h: Herma) -> None:
    with pytest.raises(HermaError, match="not empty"):
        HermaSession(h, "")


def test_a_run_writes_memory_and_the_next_session_knows(h: Herma) -> None:
    set_tracing_disabled(True)
    call = Answer.calling("memory", {"action": "add", "target": "memory", "content": "CI runs on ARM."})
    with ScriptedModel([call, "Noted.", "On ARM."]) as model:
        client = AsyncOpenAI(base_url=model.url, api_key="none")
        served = OpenAIChatCompletionsModel(model="scripted", openai_client=client)

        async def run() -> tuple[str, str]:
            agent = Agent(
                name="a", instructions=memory_instructions(h, "Be brief."), tools=memory_tools(h), model=served
            )
            first = await Runner.run(agent, "CI runs on ARM, keep that.", session=HermaSession(h, "one"))
            later = Agent(name="a", instructions=memory_instructions(h, "Be brief."), model=served)
            second = await Runner.run(later, "Where does CI run?", session=HermaSession(h, "two"))
            await client.close()
            return first.final_output, second.final_output

        assert asyncio.run(run()) == ("Noted.", "On ARM.")
        assert "CI runs on ARM." in str(model.requests[-1].body)
    assert h.memory.entries("memory") == ["CI runs on ARM."]
    roles = [message.role for message in h.transcripts.messages("openai-agents-one")]
    assert roles == ["user", "assistant", "tool", "assistant"]
