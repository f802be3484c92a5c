"""`herma.wrap` gives the plain SDKs of OpenAI and Anthropic a memory: sync, async and streamed."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from pydantic import BaseModel
from tests.other_apis import other_apis

import herma
from herma import Herma
from herma.errors import UsageError
from herma.integrations.anthropic_memory import HermaMemoryTool
from herma.testing import Answer, Asked, ScriptedModel


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Herma]:
    with Herma.open(tmp_path / "home", flags={"search.prefetch_ms": 10_000}) as opened:
        opened.remember("I am allergic to peanuts.")
        session = opened.transcripts.start("cli")
        opened.transcripts.append(session, [{"role": "user", "content": "The staging database listens on port 5433."}])
        yield opened


Ask = Callable[[Any, Any], Any]


class Port(BaseModel):
    """The answer that `parse` reads."""

    port: int


GIVEN: dict[str, Any] = {"model": "m", "max_tokens": 50}


def openai_text(chunks: Any) -> str:
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def openai_stream(client: Any, messages: Any) -> Any:
    with client.chat.completions.stream(model="m", messages=messages) as stream:
        return stream.get_final_completion().choices[0].message.content


async def openai_async(client: Any, messages: Any) -> Any:
    return (await client.chat.completions.create(model="m", messages=messages)).choices[0].message.content


async def openai_async_events(client: Any, messages: Any) -> Any:
    stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
    return openai_text([chunk async for chunk in stream])


def anthropic_stream(client: Any, messages: Any) -> Any:
    with client.messages.stream(**GIVEN, messages=messages) as stream:
        return "".join(stream.text_stream)


async def anthropic_async_events(client: Any, messages: Any) -> Any:
    stream = await client.messages.create(**GIVEN, messages=messages, stream=True)
    return "".join([getattr(getattr(event, "delta", None), "text", "") or "" async for event in stream])


async def anthropic_async_stream(client: Any, messages: Any) -> Any:
    async with client.messages.stream(**GIVEN, messages=messages) as stream:
        return "".join([text async for text in stream.text_stream])


ALL: dict[str, Ask] = {
    "openai create": lambda c, m: c.chat.completions.create(model="m", messages=m).choices[0].message.content,
    "openai parse": lambda c, m: (
        c.chat.completions.parse(model="m", messages=m, response_format=Port).choices[0].message.content
    ),
    "openai events": lambda c, m: openai_text(c.chat.completions.create(model="m", messages=m, stream=True)),
    "openai stream": openai_stream,
    "openai async": openai_async,
    "openai async events": openai_async_events,
    "anthropic create": lambda c, m: c.messages.create(**GIVEN, messages=m).content[0].text,
    "anthropic beta": lambda c, m: c.beta.messages.create(**GIVEN, messages=m).content[0].text,
    "anthropic stream": anthropic_stream,
    "anthropic async events": anthropic_async_events,
    "anthropic async stream": anthropic_async_stream,
}


def asked(name: str, model: ScriptedModel, h: Herma, messages: list[dict[str, Any]]) -> str:
    """Ask with a client of its own, as a program that begins anew does."""
    ask, sdk = ALL[name], openai if "openai" in name else anthropic
    url = model.url if sdk is openai else model.root
    if not inspect.iscoroutinefunction(ask):
        with getattr(sdk, "OpenAI" if sdk is openai else "Anthropic")(base_url=url, api_key="none") as client:
            said = ask(herma.wrap(client, h), messages)
            client.herma.close()
            return str(said)

    async def run() -> str:
        kind = getattr(sdk, "AsyncOpenAI" if sdk is openai else "AsyncAnthropic")
        async with kind(base_url=url, api_key="none") as client:
            said = await ask(herma.wrap(client, h), messages)
            client.herma.close()
            return str(said)

    return asyncio.run(run())


@pytest.mark.parametrize("name", ALL)
def test_each_call_sends_memory_and_keeps_what_was_said(h: Herma, name: str) -> None:
    first, second = '{"port": 5433}', '{"port": 7}'
    with ScriptedModel([first, second]) as model:
        question = {"role": "user", "content": "Which port has the staging database?"}
        assert asked(name, model, h, [question]) == first
        sent = json.dumps(model.requests[0].body)
        assert "peanuts" in sent
        assert "5433" in sent
        later = [question, {"role": "assistant", "content": first}, {"role": "user", "content": "And where?"}]
        assert asked(name, model, h, later) == second
    (session,) = h.transcripts.list(source=name.partition(" ")[0])
    said = [message.content for message in h.transcripts.messages(session.id)]
    assert said == [question["content"], first, "And where?", second]


@pytest.mark.parametrize("name", ["openai create", "openai async events", "anthropic create", "anthropic stream"])
def test_each_request_begins_with_the_one_before(h: Herma, name: str) -> None:
    messages: list[dict[str, Any]] = []
    with ScriptedModel(lambda asked: f"Answer {len(asked.messages)} about port 5433.") as model:
        for number in range(4):
            messages.append({"role": "user", "content": f"Question {number} about the staging database and its port?"})
            messages.append({"role": "assistant", "content": asked(name, model, h, messages)})
            if number == 1:
                h.remember("I live in Ghent.")
        sent = [request.messages for request in model.requests]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before


def test_tools_of_the_caller_pass_through(h: Herma) -> None:
    def script(asked: Asked) -> Answer | str:
        done = asked.messages[-1]["role"] == "tool"
        return "It is 20 degrees." if done else Answer.calling("weather", {"city": "Ghent"})

    with ScriptedModel(script) as model, openai.OpenAI(base_url=model.url, api_key="none") as client:
        herma.wrap(client, h)
        messages: list[Any] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather?"}]
        first = client.chat.completions.create(model="m", messages=messages).choices[0].message
        assert first.tool_calls
        messages += [first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "20"}]
        assert (
            client.chat.completions.create(model="m", messages=messages).choices[0].message.content
            == "It is 20 degrees."
        )
        assert model.requests[0].messages[0]["content"].startswith("Be brief.")
        assert model.requests[1].messages[:2] == model.requests[0].messages
        client.herma.close()  # type: ignore[attr-defined]
    (session,) = h.transcripts.list(source="openai")
    roles = [message.role for message in h.transcripts.messages(session.id)]
    assert roles == ["user", "assistant", "tool", "assistant"]


def test_a_call_that_fails_is_asked_again(h: Herma) -> None:
    script = ScriptedModel([Answer.failing(400, "no"), "Yes."])
    with script as model, openai.OpenAI(base_url=model.url, api_key="none", max_retries=0) as client:
        herma.wrap(client, h)
        with pytest.raises(openai.BadRequestError):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Will it work?"}])
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Will it work?"}])
        client.herma.close()  # type: ignore[attr-defined]
    (session,) = h.transcripts.list(source="openai")
    assert [message.content for message in h.transcripts.messages(session.id)] == ["Will it work?", "Yes."]


def test_users_are_apart(h: Herma) -> None:
    with ScriptedModel(["Noted."]) as model, openai.OpenAI(base_url=model.url, api_key="none") as client:
        herma.wrap(client, h, user="ben")
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Which staging port?"}])
        assert "peanuts" not in json.dumps(model.requests[0].body)
        assert "5433" not in json.dumps(model.requests[0].body)
        client.herma.close()  # type: ignore[attr-defined]


def test_other_things_are_refused(h: Herma) -> None:
    with pytest.raises(UsageError, match="not a client"):
        herma.wrap(object(), h)
    with openai.OpenAI(base_url="http://127.0.0.1:9", api_key="none") as client:
        herma.wrap(client, h)
        with pytest.raises(UsageError, match="already"):
            herma.wrap(client, h)


def test_a_request_that_names_the_answer_before_goes_on_with_its_conversation(h: Herma) -> None:
    """The server keeps the history, and the request has only what is new."""
    question: Any = {"role": "user", "content": "Which port?"}
    with other_apis() as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        herma.wrap(client, h)
        first = client.responses.create(model="m", input=[question])
        client.responses.create(model="m", input="And now?", previous_response_id=first.id)
        for conversation in ("conv_1", {"id": "conv_1"}, "conv_2"):
            client.responses.create(model="m", input="Which port?", conversation=conversation)  # type: ignore[arg-type]
        client.herma.close()  # type: ignore[attr-defined]
    with other_apis() as (url, _), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:  # it starts again
        herma.wrap(client, h)
        client.responses.create(model="m", input="Which port?", conversation="conv_1")
        client.herma.close()  # type: ignore[attr-defined]
    call = Answer.calling("memory", {"command": "create", "path": "/memories/n.md", "file_text": "CI runs on ARM."})
    with ScriptedModel([call, "Kept."]) as model, anthropic.Anthropic(base_url=model.root, api_key="none") as claude:
        given: Any = {"model": "m", "max_tokens": 50, "messages": [question]}
        herma.wrap(claude, h).beta.messages.tool_runner(**given, tools=[HermaMemoryTool(h)]).until_done()
        claude.herma.close()  # type: ignore[attr-defined]
    roles: dict[str, list[list[str]]] = {}
    for session in h.transcripts.list():
        roles.setdefault(session.source, []).append([one.role for one in h.transcripts.messages(session.id)])
    del roles["cli"]
    assert roles == {
        "openai": [["user", "assistant"] * 3, ["user", "assistant"], ["user", "assistant"] * 2],
        "anthropic": [["user", "assistant", "tool", "assistant"]],
    }


@pytest.mark.parametrize("stream", [False, True])
def test_the_responses_api(h: Herma, stream: bool) -> None:
    with other_apis() as (url, asked), openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        herma.wrap(client, h)
        question = "Which port has the staging database?"
        items: list[Any] = [{"role": "user", "content": question}]
        for given in (items[0]["content"], None):
            if given is None:
                items += [{"role": "assistant", "content": "Answer 1."}, {"role": "user", "content": "And now?"}]
            answer: Any = client.responses.create(
                model="m", input=given or items, instructions="Be brief.", stream=stream
            )
            if stream:
                assert [event.type for event in answer][-1] == "response.completed"
        assert asked[0]["instructions"].startswith("Be brief.")
        assert "peanuts" in asked[0]["instructions"]
        assert "5433" in str(asked[0]["input"])
        assert asked[1]["input"][0] == asked[0]["input"][0]
        client.herma.close()  # type: ignore[attr-defined]
    (session,) = h.transcripts.list(source="openai")
    said = [message.content for message in h.transcripts.messages(session.id)]
    assert said == [question, "Answer 1.", "And now?", "Answer 2."]
