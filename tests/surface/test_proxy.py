"""`/v1/chat/completions` in `herma serve`: the OpenAI SDK on one side, a scripted model on the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.homes import eventually, herma
from tests.surface.web import Served, serving

from herma import Herma
from herma.proxy.conversations import Conversations
from herma.testing import Answer, Asked, ScriptedModel

QUESTION = {"role": "user", "content": "Which port has the staging database?"}


@contextmanager
def proxied(home: Path, model: ScriptedModel) -> Iterator[tuple[Served, openai.OpenAI]]:
    for name, value in (("model.url", model.url), ("model.name", "upstream"), ("search.prefetch_ms", "10000")):
        assert herma(home, "config", "set", name, value).code == 0
    with Herma.open(home) as h:
        h.remember("I am allergic to peanuts.")
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": "The staging database listens on port 5433."}])
    with serving(home) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        with openai.OpenAI(base_url=url, api_key=server.token, max_retries=0) as client:
            yield server, client


def ask(client: openai.OpenAI, messages: list[Any], *, stream: bool, **more: Any) -> str:
    if not stream:
        whole = client.chat.completions.create(model="any", messages=messages, **more)
        return whole.choices[0].message.content or ""
    chunks = client.chat.completions.create(model="any", messages=messages, stream=True, **more)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)  # no chunk without a choice


def kept(home: Path) -> list[list[Any]]:
    with Herma.open(home) as h:
        sessions = sorted(h.transcripts.list(source="proxy"), key=lambda one: one.started)
        return [[message.content for message in h.transcripts.messages(one.id)] for one in sessions]


@pytest.mark.parametrize("stream", [False, True])
def test_memory_goes_in_and_the_conversation_is_kept(home: Path, stream: bool) -> None:
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, QUESTION]
    with (
        ScriptedModel(lambda asked: f"Answer {len(asked.messages)}.") as model,
        proxied(home, model) as (server, client),
    ):
        assert [one.id for one in client.models.list()] == ["upstream"]
        for number in range(3):
            messages.append({"role": "assistant", "content": ask(client, messages, stream=stream, temperature=0.3)})
            messages.append({"role": "user", "content": f"And what about question {number}?"})
            if number == 1:
                assert herma(home, "remember", "I live in Ghent.").code == 0
        asked = model.requests
        for before, after in pairwise(one.messages for one in asked):
            assert after[: len(before)] == before
        assert server.end() == 0, server.errors
    first = asked[0].body
    assert (first["model"], first["temperature"]) == ("upstream", 0.3)
    assert first["messages"][0]["content"].startswith("Be brief.")
    assert "peanuts" in first["messages"][0]["content"]
    assert "5433" in first["messages"][1]["content"]
    assert "Ghent" in json.dumps(asked[2].messages[-1])
    assert kept(home) == [[one["content"] for one in messages[1:-1]]]
    with Herma.open(home) as h:
        [session] = h.transcripts.list(source="proxy")
        assert session.ended is not None
        assert h.cost(session=session.id).total.measured > 0


def test_a_conversation_is_known_by_a_header_or_by_its_beginning(home: Path) -> None:
    with ScriptedModel(lambda asked: "Yes.") as model, proxied(home, model) as (_, client):
        same = [QUESTION]
        for header in ("a", "b"):  # the same words, and two conversations
            ask(client, same, stream=False, extra_headers={"X-Herma-Session": header})
        longer = [*same, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Sure?"}]
        ask(client, longer, stream=False, extra_headers={"X-Herma-Session": "b"})
        ask(client, [QUESTION], stream=False, extra_headers={"X-Herma-User": "ben"})
        assert "peanuts" not in json.dumps(model.requests[-1].body)
    once = [QUESTION["content"], "Yes."]
    assert kept(home) == [once, [one["content"] for one in longer] + ["Yes."], once]


def test_tools_of_the_caller_pass_through(home: Path) -> None:
    def script(asked: Asked) -> Answer | str:
        return "20 degrees." if asked.messages[-1]["role"] == "tool" else Answer.calling("weather", {"city": "Ghent"})

    with ScriptedModel(script) as model, proxied(home, model) as (_, client):
        tools: Any = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
        first = client.chat.completions.create(model="m", messages=[QUESTION], tools=tools).choices[0].message  # type: ignore[list-item]
        assert first.tool_calls
        given = [QUESTION, first, {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "20"}]
        assert ask(client, given, stream=True, tools=tools) == "20 degrees."
        assert [one["function"]["name"] for one in model.requests[1].tools] == ["weather"]
    assert kept(home) == [[QUESTION["content"], None, "20", "20 degrees."]]


def test_what_goes_wrong_is_told_and_loses_nothing(home: Path) -> None:
    script = ScriptedModel([Answer.failing(429, "slow down"), Answer("One two three four", broken_after=2), "Yes."])
    with script as model, proxied(home, model) as (server, client):
        with pytest.raises(openai.RateLimitError, match="too many requests"):
            ask(client, [QUESTION], stream=False)
        with pytest.raises(openai.APIError, match="closed the connection"):
            ask(client, [QUESTION], stream=True)
        assert ask(client, [QUESTION], stream=True) == "Yes."
        for body in ("{", "[]", "{}", '{"messages": []}', '{"messages": [3]}'):
            refused = server.ask("/v1/chat/completions", method="POST", body=body)
            assert refused.status == 400
            assert "Nothing was sent." in refused.json["error"]["message"]
        refused = server.ask("/v1/models", key=False)
        assert refused.status == 401
        assert {"message", "type", "code", "param"} == set(refused.json["error"]), "OpenAI's form"
        assert len(model.requests) == 3
    [first, *_] = kept(home)
    assert first[0] == QUESTION["content"]


def test_a_caller_that_leaves_early_loses_nothing(home: Path) -> None:
    with ScriptedModel([Answer("word ", endless=True, pause=0.01)]) as model, proxied(home, model) as (_, client):
        given: Any = [QUESTION]
        stream = client.chat.completions.create(model="m", messages=given, stream=True)
        while not next(stream).choices[0].delta.content:
            pass
        stream.close()
        eventually(lambda: len(kept(home)[0]) == 2)
    [[_, said]] = kept(home)
    assert said.startswith("word")


def test_a_home_without_a_model_says_so(home: Path) -> None:
    with serving(home) as server:
        answer = server.ask("/v1/chat/completions", method="POST", body=json.dumps({"messages": [QUESTION]}))
        assert answer.status == 400
        assert answer.json["error"]["message"].startswith("No model is configured. herma config set model.url")


def test_a_client_may_ask_again_before_its_answer_is_stored(home: Path) -> None:
    answer = {"role": "assistant", "content": "Ghent."}
    with Herma.open(home) as h:
        talks = Conversations(h, "proxy")
        first = talks.begin([QUESTION])
        with ThreadPoolExecutor(1) as pool:
            second = pool.submit(talks.begin, [QUESTION, answer, {"role": "user", "content": "Why?"}])
            with pytest.raises(TimeoutError):
                second.result(0.05)
            first.answered(answer)
            assert second.result().session is first.session
        talks.close()
    assert kept(home) == [[QUESTION["content"], "Ghent.", "Why?"]]
