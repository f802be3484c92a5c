"""The scripted model speaks the protocols that real clients read, and goes wrong in exactly the ways it is told to."""

from __future__ import annotations

import http.client
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from herma.testing import Answer, Asked, ScriptedModel, tool_call
from herma.testing.contracts import MakeModel, scripted_model
from herma.types import Usage

__all__ = ["scripted_model"]  # the fixture is used from here as a user's conftest would
HI = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def ask(url: str, body: object, headers: dict[str, str] | None = None) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), headers or {})
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def stream(url: str, body: dict[str, Any]) -> list[str]:
    request = urllib.request.Request(url, json.dumps({**body, "stream": True}).encode())
    with urllib.request.urlopen(request) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        return [line for line in response.read().decode().split("\n") if line]


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as made:
        yield made


def test_a_script_is_used_up_step_by_step(model: ScriptedModel) -> None:
    model.then("one", Answer("two"), lambda asked: f"you said {asked.last}")
    said = [ask(f"{model.url}/chat/completions", HI)["choices"][0]["message"]["content"] for _ in range(3)]
    assert said == ["one", "two", "you said hi"]
    assert (model.left, len(model.requests)) == (0, 3)
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{model.url}/chat/completions", HI)
    with refused.value as answer:
        assert answer.status == 400
        assert json.load(answer)["error"]["code"] == "script_over"


def test_a_script_may_be_a_function(scripted_model: MakeModel) -> None:
    def script(asked: Asked) -> str:
        return f"{asked.dialect} {asked.body['model']} {len(asked.messages)} {asked.stream}"

    model = scripted_model(script)
    assert ask(f"{model.url}/chat/completions", HI)["choices"][0]["message"]["content"] == "openai m 1 False"
    assert ask(f"{model.url}/messages", HI)["content"][0]["text"] == "anthropic m 1 False"
    with pytest.raises(TypeError, match="function"):
        model.then("more")


def test_a_stream_comes_in_pieces_and_ends_with_usage(model: ScriptedModel) -> None:
    model.then(Answer("abcdef", calls=(tool_call("f", {"x": 1}),), piece=4, usage=Usage(5, 6, 7, 8, 2)))
    lines = stream(f"{model.url}/chat/completions", {**HI, "stream_options": {"include_usage": True}})
    assert lines[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert [delta.get("content") for delta in deltas[:3]] == ["", "abcd", "ef"]
    written = [call["function"]["arguments"] for delta in deltas for call in delta.get("tool_calls", ())]
    assert written == ["", '{"x"', ": 1}"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "tool_calls"
    usage = chunks[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (20, 6)
    assert usage["prompt_tokens_details"] == {"cached_tokens": 7, "cache_write_tokens": 8}


def test_the_other_protocol_names_its_events(model: ScriptedModel) -> None:
    model.then(Answer("abc", reasoning="why", calls=(tool_call("f", {}),)))
    lines = stream(f"{model.url}/messages", HI)
    names = [line.removeprefix("event: ") for line in lines if line.startswith("event")]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    signed = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *signed, *block, *block, "message_delta", "message_stop"]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_failures(model: ScriptedModel, status: int) -> None:
    model.then(Answer.failing(status, "no", code="why", retry_after=1.5))
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{model.url}/chat/completions", HI)
    with refused.value as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (status, "1.5")
        assert json.load(answer)["error"] == {"message": "no", "type": "error", "param": None, "code": "why"}


def test_broken_malformed_and_mistaken(model: ScriptedModel) -> None:
    model.then(Answer("abc" * 9, broken_after=2), Answer("abc", malformed=True), Answer("x", content_type="text/html"))
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        stream(f"{model.url}/chat/completions", HI)
    with pytest.raises(json.JSONDecodeError):
        ask(f"{model.url}/chat/completions", HI)
    with pytest.raises(AssertionError):
        stream(f"{model.url}/chat/completions", HI)


@pytest.mark.parametrize("answer", [Answer(endless=True), Answer("abcdefghijkl", silent_after=2), Answer(wait=99)])
def test_whoever_hangs_up_is_noticed(model: ScriptedModel, answer: Answer) -> None:
    model.then(answer)
    connection = http.client.HTTPConnection(model.root.removeprefix("http://"))
    connection.request("POST", "/v1/chat/completions", json.dumps({**HI, "stream": True}))
    if not answer.wait:
        with connection.getresponse() as response:
            assert response.read(20).startswith(b"data: {")
    while not model.requests:
        threading.Event().wait(0.01)
    connection.close()
    assert model.requests[0].hung_up.wait(10)


def test_closing_does_not_wait_for_slow_answers() -> None:
    with ScriptedModel([Answer(wait=999)]) as model:
        connection = http.client.HTTPConnection(model.root.removeprefix("http://"))
        connection.request("POST", "/v1/messages", json.dumps(HI))
        while not model.requests:
            threading.Event().wait(0.01)
    model.close()
    connection.close()
    assert model.requests[0].hung_up.is_set()


def test_keys_embeddings_models_and_wrong_addresses(scripted_model: MakeModel) -> None:
    model = scripted_model("hi", api_key="k", name="me", embedding_script=[Answer.failing(503)])
    for headers in ({"Authorization": "Bearer k"}, {"X-Api-Key": "k"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(f"{model.url}/{'embeddings' if 'X-Api-Key' not in headers else 'nowhere'}", {"input": "x"}, headers)
        refused.value.close()
        assert refused.value.code in (503, 404)
    found = ask(f"{model.url}/embeddings", {"input": ["a b", "b a", ""]}, {"Authorization": "Bearer k"})["data"]
    assert found[0]["embedding"] == found[1]["embedding"]
    assert [round(sum(x * x for x in one["embedding"]), 6) for one in found] == [1.0, 1.0, 1.0]
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(f"{model.url}/chat/completions", HI, {"Authorization": "Bearer other"})
    refused.value.close()
    assert (refused.value.code, model.left) == (401, 1)
    with urllib.request.urlopen(f"{model.url}/models") as response:
        assert json.load(response)["data"][0]["id"] == "me"
