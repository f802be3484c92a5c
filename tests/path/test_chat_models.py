"""Both families of servers, asked over the wire: what comes back, what goes wrong, and what is said about it."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from herma.errors import (
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from herma.models import client as patience
from herma.models.apis import OpenAIAdapter, remote_model
from herma.models.client import ChatModel, RemoteModel, Retry
from herma.models.endpoints import Endpoint
from herma.testing import Answer, Asked, ScriptedModel, tool_call
from herma.testing.contracts import MakeModel, scripted_model
from herma.testing.doubles import anthropic_whole, openai_whole
from herma.types import ToolCall, Usage

__all__ = ["scripted_model"]
HI = [{"role": "user", "content": "hi"}]
KEY = "sk-" + "x" * 40
Ask: TypeAlias = Callable[..., RemoteModel]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST", 0.001)


@pytest.fixture(params=["openai", "anthropic"])
def connect(request: pytest.FixtureRequest) -> Ask:
    """How to speak with a scripted server in either protocol."""

    def made(server: ScriptedModel, *, on_retry: Callable[[Retry], None] | None = None, **options: Any) -> RemoteModel:
        if request.param == "openai":
            return remote_model(Endpoint(server.url, "m", **options), on_retry=on_retry)
        return remote_model(Endpoint(server.root, "m", kind="anthropic", **options), on_retry=on_retry)

    return made


# ── what comes back ──


def test_text_reasoning_calls_and_usage(scripted_model: MakeModel, connect: Ask) -> None:
    usage = Usage(input=11, output=22, cache_read=33, cache_write=44, reasoning=5)
    calls = (tool_call("f", {"x": "ü日本"}, call_id="a"), tool_call("g", '{"y":  [1.0, 2]}', call_id="b"))
    server = scripted_model(Answer("Hello there.", calls, reasoning="Well, well.", usage=usage, model="m-2", piece=3))
    pieces: list[str] = []
    model: ChatModel = connect(server)
    reply = model.reply(HI, on_text=pieces.append)
    assert reply.text == "".join(pieces) == "Hello there."
    assert len(pieces) == 4
    assert [(call.id, call.name, json.loads(call.arguments)) for call in reply.tool_calls] == [
        ("a", "f", {"x": "ü日本"}),
        ("b", "g", {"y": [1.0, 2]}),
    ]
    assert (reply.finish_reason, reply.usage, reply.model, reply.measured, reply.attempts) == (
        *("tool_calls", usage, "m-2"),
        *(True, 1),
    )
    assert reply.message["content"] == "Hello there."
    assert reply.message["reasoning"] == "Well, well."
    assert 0 <= (reply.first_text or 0) <= reply.seconds
    assert reply.tool_calls[1] == ToolCall("b", "g", '{"y":  [1.0, 2]}')  # to the last space
    assert reply.message["tool_calls"][1]["function"]["arguments"] == '{"y":  [1.0, 2]}'


@pytest.mark.parametrize("finish", ["stop", "length", "content_filter"])
def test_why_it_stopped(scripted_model: MakeModel, connect: Ask, finish: Any) -> None:
    model = connect(scripted_model(Answer("x", finish=finish), Answer("x", finish=finish, says_usage=False)))
    assert model.reply(HI).finish_reason == finish
    if isinstance(model.adapter, OpenAIAdapter):
        reply = model.reply(HI)
        assert (reply.measured, reply.usage) == (False, Usage())


def test_what_was_answered_can_be_sent_back(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer("Let me see.", (tool_call("f", {"x": 1}, call_id="a"),), reasoning="Hm."), "Done.")
    model = connect(server)
    first = model.reply(HI, tools=[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])
    result = {"role": "tool", "tool_call_id": "a", "content": "one"}
    assert model.reply([*HI, first.message, result]).text == "Done."
    told = server.requests[1].messages
    if server.requests[1].dialect == "openai":
        assert told == [*HI, {k: v for k, v in first.message.items() if k != "reasoning"}, result]
    else:
        thought = {"type": "thinking", "thinking": "Hm.", "signature": "signed"}
        asked = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}}
        assert told[1]["content"] == [thought, {"type": "text", "text": "Let me see."}, asked]
        assert told[2]["content"][0] | {"cache_control": None} == {
            "type": "tool_result",
            "tool_use_id": "a",
            "content": "one",
            "cache_control": None,
        }


def test_everything_that_is_asked_for_is_sent(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model("{}", api_key=KEY)
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    connect(server, key=KEY).reply(HI, temperature=0.25, max_tokens=7, json_schema=schema)
    body = server.requests[0].body
    assert (body["temperature"], body["max_tokens"], body["model"], body["stream"]) == (0.25, 7, "m", True)
    if server.requests[0].dialect == "openai":
        assert body["response_format"]["json_schema"]["schema"] == schema
        assert body["response_format"]["json_schema"]["strict"] is False
    else:
        assert body["output_config"]["format"]["schema"] == {**schema, "additionalProperties": False}
        assert body["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}


def test_an_answer_in_one_piece_where_a_stream_was_wanted(scripted_model: MakeModel, connect: Ask) -> None:
    whole = (openai_whole if isinstance(connect(scripted_model()).adapter, OpenAIAdapter) else anthropic_whole)(
        Asked("openai", "", {}, {}), Answer("whole")
    )
    server = scripted_model(Answer(raw=json.dumps(whole)))
    assert connect(server).reply(HI).text == "whole"


# ── what goes wrong ──


def test_failures_that_pass_are_tried_again_and_told(scripted_model: MakeModel, connect: Ask) -> None:
    told: list[Retry] = []
    failures = [Answer.failing(503), Answer.failing(500), Answer.failing(429, retry_after=0.01)]
    model = connect(scripted_model(*failures, "At last."), on_retry=told.append)
    reply = model.reply(HI)
    assert (reply.text, reply.attempts) == ("At last.", 4)
    assert [(retry.attempt, type(retry.error)) for retry in told] == [
        *((2, ModelUnreachable), (3, ModelUnreachable)),
        (4, ModelRefused),
    ]
    assert told[2].seconds >= 0.01
    assert "Retrying" in str(told[0])


def test_retries_have_an_end_and_are_logged(
    scripted_model: MakeModel, connect: Ask, caplog: pytest.LogCaptureFixture
) -> None:
    server = scripted_model(*[Answer.failing(500, f"out of order {KEY}")] * 9)
    with caplog.at_level(logging.WARNING, "herma.models"), pytest.raises(ModelUnreachable) as caught:
        connect(server, retries=2, key=KEY).reply(HI)
    assert (len(server.requests), caught.value.attempts) == (3, 3)
    assert len(caplog.records) == 2
    assert KEY not in caplog.text + str(caught.value)
    assert "out of order" in str(caught.value)


def test_a_server_that_wants_more_patience_than_there_is(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer.failing(429, retry_after=3600), "late")
    with pytest.raises(ModelRefused, match="retry after 3600 s") as caught:
        connect(server).reply(HI, deadline=5)
    assert (len(server.requests), caught.value.status) == (1, 429)


@pytest.mark.parametrize(
    ("status", "code", "said", "kind", "sentence"),
    [
        (401, "", "wrong key", ModelRefused, "rejected the key"),
        (403, "", "not yours", ModelRefused, "rejected the key"),
        (404, "", "no such model", ModelRefused, "no model 'm'"),
        (402, "", "pay", ModelRefused, "requires payment"),
        (429, "insufficient_quota", "You exceeded your current quota", ModelRefused, "requires payment"),
        (400, "context_length_exceeded", "too long", ModelOverflow, "too long"),
        (400, "", "prompt is too long: 210000 tokens > 200000 maximum", ModelOverflow, "too long"),
        (413, "", "too large", ModelOverflow, "too long"),
        (400, "", "tools are not supported", ModelRefused, "tools are not supported"),
        (307, "", "moved", ModelRefused, "redirects"),
        (500, "", "image input is not supported", ModelRefused, "not supported"),
        (501, "", "no", ModelRefused, "rejected the request"),
    ],
)
def test_a_no_is_final(
    scripted_model: MakeModel, connect: Ask, status: int, code: str, said: str, kind: type[ModelError], sentence: str
) -> None:
    server = scripted_model(Answer.failing(status, said, code=code), "never asked for")
    with pytest.raises(kind, match=sentence) as caught:
        connect(server, key=KEY, key_variable="MY_KEY").reply(HI)
    assert type(caught.value) is kind
    assert (len(server.requests), caught.value.hint != "", caught.value.exit_code) == (1, True, 3)
    assert KEY not in f"{caught.value} {caught.value.hint} {caught.value.__cause__!r}"


def test_a_key_that_a_server_repeats_is_not(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer.failing(400, f"bad {KEY} here"))
    with pytest.raises(ModelRefused, match="bad … here") as caught:
        connect(server, key=KEY).reply(HI)
    assert caught.value.__cause__ is None
    assert KEY not in repr(connect(server, key=KEY)) + repr(connect(server, key=KEY).where)


def test_nobody_there(connect: Ask) -> None:
    server = ScriptedModel()
    server.close()
    told: list[Retry] = []
    with pytest.raises(ModelUnreachable, match=r"Cannot reach the model at 127\.0\.0\.1") as caught:
        connect(server, retries=1, on_retry=told.append).reply(HI)
    assert len(told) == 1
    assert "Start the server" in caught.value.hint


@pytest.mark.parametrize(
    "answer",
    [Answer("abc", malformed=True), Answer(raw="<html>", content_type="text/html"), Answer(raw="7"), Answer(raw="")],
)
def test_nonsense(scripted_model: MakeModel, connect: Ask, answer: Answer) -> None:
    server = scripted_model(*[answer] * 9)
    with pytest.raises(ModelBroken) as caught:
        connect(server, retries=1, on_retry=lambda _: None).reply(HI)
    assert caught.value.partial == ""
    assert len(server.requests) == 2


def test_a_stream_that_breaks_after_text_is_final_and_keeps_it(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer("abcdefghijklmnop", piece=4, broken_after=4), "again")
    pieces: list[str] = []
    with pytest.raises(ModelBroken, match="cut off") as caught:
        connect(server).reply(HI, on_text=pieces.append)
    assert caught.value.partial == "".join(pieces)
    assert pieces[0] == "abcd"
    assert len(server.requests) == 1


def test_a_stream_that_breaks_before_text_is_tried_again(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer("abc", broken_after=1), Answer("abc", broken_after=0), "again")
    assert connect(server, on_retry=lambda _: None).reply(HI).text == "again"


# ── time ──


def test_the_deadline_holds_for_everything(scripted_model: MakeModel, connect: Ask) -> None:
    for answer in (Answer(wait=99), Answer(endless=True, pause=0.01), Answer("x" * 99, pause=99)):
        server = scripted_model(answer, "never")
        with pytest.raises(ModelTimeout, match="did not answer in time") as caught:
            connect(server).reply(HI, deadline=1.0)
        assert server.requests[0].hung_up.wait(10)
        assert bool(caught.value.partial) == answer.endless
        assert len(server.requests) == 1


def test_silence_in_the_middle(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer("abcdefghijkl", piece=4, silent_after=4))
    with pytest.raises(ModelTimeout, match="stopped in the middle") as caught:
        connect(server, idle_timeout=1.0).reply(HI)
    assert caught.value.partial.startswith("abcd")
    assert server.requests[0].hung_up.wait(10)


def test_slow_is_not_silent(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer("abcdef", piece=1, wait=1.7, pause=0.02))
    assert connect(server, idle_timeout=1.5).reply(HI).text == "abcdef"


@pytest.mark.parametrize("answer", [Answer(wait=99), Answer("x" * 99, piece=1, pause=0.02), Answer.failing(503)])
def test_cancelling_from_another_thread(
    scripted_model: MakeModel, connect: Ask, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "FIRST", 60.0)
    server = scripted_model(answer)
    cancel = threading.Event()

    def change_of_mind() -> None:
        while not server.requests:
            time.sleep(0.005)
        time.sleep(0.1)
        cancel.set()

    thread = threading.Thread(target=change_of_mind)
    thread.start()
    with pytest.raises(ModelCancelled) as caught:
        connect(server, on_retry=lambda _: None).reply(HI, cancel=cancel)
    thread.join()
    assert caught.value.exit_code == 130
    if answer.status == 200:
        assert server.requests[0].hung_up.wait(10)


def test_what_the_callers_function_raises_comes_out_and_ends_the_call(scripted_model: MakeModel, connect: Ask) -> None:
    server = scripted_model(Answer(endless=True), "never")

    def fails(_: str) -> None:
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        connect(server).reply(HI, on_text=fails)
    assert server.requests[0].hung_up.wait(10)
    assert len(server.requests) == 1


def test_several_threads_at_once(scripted_model: MakeModel, connect: Ask) -> None:
    model = connect(scripted_model(lambda asked: Answer(asked.last * 3, piece=2, pause=0.01)))
    found: dict[int, str] = {}

    def ask(number: int) -> None:
        found[number] = model.reply([{"role": "user", "content": f"<{number}>"}]).text

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: f"<{number}>" * 3 for number in range(6)}


# ── servers with wishes of their own ──


def test_parameters_that_a_server_refuses_are_left_out_from_then_on(scripted_model: MakeModel, connect: Ask) -> None:
    def picky(asked: Any) -> str | Answer:
        if "temperature" in asked.body:
            return Answer.failing(400, "Unsupported value: 'temperature' does not support 0.1.")
        return "fine"

    server = scripted_model(picky)
    model = connect(server)
    assert [model.reply(HI, temperature=0.1).text for _ in range(2)] == ["fine", "fine"]
    assert ["temperature" in asked.body for asked in server.requests] == [True, False, False]


def test_what_is_kept_for_the_maker_goes_to_nobody_else(
    scripted_model: MakeModel, connect: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.setenv(name, "secret")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "X-Mine: secret\nAuthorization: Bearer secret\nX-Api-Key: secret")
    server = scripted_model("x")
    connect(server).reply(HI)
    headers = server.requests[0].headers
    assert "secret" not in str(headers)
    assert not any(name.startswith("x-stainless") for name in headers)


def test_a_missing_library_is_named(connect: Ask, scripted_model: MakeModel, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    server = scripted_model("x")
    model = connect(server)
    for name in ("openai", "anthropic"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModelError, match="needs the package") as caught:
        model.reply(HI)
    assert "pip install " in caught.value.hint
