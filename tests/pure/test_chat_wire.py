"""Requests and answers of both families, addresses, keys and patience: the parts that only compute."""

from __future__ import annotations

import json
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.errors import ConfigError, HermaWarning, ModelRefused
from herma.models.apis import (
    AnthropicCollector,
    OpenAICollector,
    anthropic_request,
    joined,
    openai_request,
    openai_usage,
    translate,
)
from herma.models.client import LONGEST, Fault, ModelRequest, Unfinished, pause, retry_after, unreachable
from herma.models.endpoints import Endpoint, locate, parse, read_key
from herma.prompt.assemble import cache_breakpoints
from herma.testing import Answer, Asked, tool_call
from herma.testing.doubles import anthropic_events, anthropic_whole, openai_chunks, openai_whole
from herma.types import Usage

HERE = Endpoint("http://127.0.0.1:1/v1", "m")
TEXT = st.text(max_size=60)
NUMBER = st.integers(0, 10**6)
CALLS = st.lists(
    st.builds(
        lambda number, name, arguments: tool_call(name, arguments, call_id=f"c{number}"),
        st.integers(0, 10**9),
        st.sampled_from(["memory", "session_search"]),
        st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.booleans(), st.none()), max_size=3),
    ),
    max_size=3,
    unique_by=lambda call: call.id,
).map(tuple)
ANSWERS = st.builds(
    Answer,
    text=TEXT,
    calls=CALLS,
    reasoning=TEXT,
    usage=st.builds(Usage, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER),
    piece=st.integers(1, 20),
)


# ── answers ──


@given(ANSWERS)
def test_a_stream_and_a_whole_say_the_same(answer: Answer) -> None:
    asked = Asked("openai", "", {}, {"messages": [], "stream_options": {"include_usage": True}})
    for chunks, whole, kind in (
        (openai_chunks, openai_whole, OpenAICollector),
        (anthropic_events, anthropic_whole, AnthropicCollector),
    ):
        streamed, at_once = kind(), kind()
        said = "".join(streamed.add(json.loads(json.dumps(chunk))) for chunk in chunks(asked, answer))
        assert said == at_once.add(json.loads(json.dumps(whole(asked, answer)))) == answer.text
        first, second = streamed.whole(), at_once.whole()
        assert first.usage == second.usage == answer.usage
        assert first.tool_calls == answer.calls  # to the last byte
        assert [json.loads(call.arguments) for call in first.tool_calls] == [
            json.loads(call.arguments) for call in second.tool_calls
        ]
        assert (first.text, first.finish_reason, first.message.get("reasoning", "")) == (
            *(second.text, second.finish_reason),
            second.message.get("reasoning", ""),
        )
        assert first.message.get("reasoning", "") == answer.reasoning


@given(ANSWERS, st.integers(0, 30))
def test_a_beginning_is_no_answer(answer: Answer, cut: int) -> None:
    asked = Asked("openai", "", {}, {})
    for chunks, kind, end in (
        (openai_chunks, OpenAICollector, 1),
        (anthropic_events, AnthropicCollector, 1),
    ):
        events = list(chunks(asked, answer))
        pieces = kind()
        for event in events[: min(cut, len(events) - end)]:
            pieces.add(event)
        with pytest.raises(Unfinished):
            pieces.whole()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=8,
)
NAMES = st.sampled_from(
    [
        *("choices", "delta", "message", "content", "tool_calls", "function", "usage", "index", "type"),
        "content_block",
        "reasoning_details",
        "text",
    ]
)


DELTA = st.one_of(JSON, st.dictionaries(NAMES, st.one_of(JSON, st.lists(st.dictionaries(NAMES, JSON, max_size=4)))))
EVENTS = st.dictionaries(
    NAMES, st.one_of(JSON, DELTA, st.lists(st.one_of(JSON, st.dictionaries(NAMES, DELTA, max_size=4)), max_size=3))
)


@given(st.lists(EVENTS, max_size=3))
@settings(max_examples=30, deadline=None)
def test_no_event_makes_it_stumble(events: list[dict[str, Any]]) -> None:
    for kind in (OpenAICollector, AnthropicCollector):
        for name in ("message", "content_block_start", "content_block_delta", "message_start", "message_delta"):
            pieces = kind()
            try:
                for event in events:
                    pieces.add({**event, "type": name})
                assert pieces.whole() is not None
            except Unfinished:
                continue


@pytest.mark.parametrize("strange", [5, "x", [5], {"x": 5}, [{"function": 5}], None])
def test_strange_shapes_are_no_answer_or_are_passed_over(strange: Any) -> None:
    block = {"type": "text", "text": strange}
    for event in (
        {"choices": [{"delta": {"content": strange, "tool_calls": strange}, "finish_reason": "stop"}]},
        {"choices": strange, "usage": strange},
        {"choices": [{"delta": strange, "index": strange}]},
        {"type": "message", "stop_reason": "end_turn", "content": strange, "usage": strange},
        {"type": "content_block_start", "index": 0, "content_block": strange},
        {"type": "content_block_delta", "index": strange, "delta": block},
        {"type": "content_block_delta", "index": 7, "delta": block},
        {"type": strange},
    ):
        for kind in (OpenAICollector, AnthropicCollector):
            pieces = kind()
            try:
                assert isinstance(pieces.add(event), str)
                pieces.add({"type": "message_delta", "delta": {"stop_reason": "end_turn"}})
                assert isinstance(pieces.whole().text, str)
            except Unfinished:
                continue


def test_calls_that_a_server_does_not_count() -> None:
    pieces = OpenAICollector()
    for call in (
        {"id": "a", "function": {"name": "f", "arguments": "{"}},
        {"function": {"arguments": "}"}},
        {"id": "b", "index": 0, "function": {"name": "g", "arguments": {"x": 1}}},
        {"id": "c", "index": 0, "function": {"name": "h", "arguments": ""}, "extra_content": {"sign": "s"}},
    ):
        pieces.add({"choices": [{"delta": {"tool_calls": [call]}}]})
    pieces.add({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    made = pieces.whole()
    assert [(call.id, call.name, call.arguments) for call in made.tool_calls] == [
        *(("a", "f", "{}"), ("b", "g", '{"x": 1}')),
        ("c", "h", ""),
    ]
    assert made.finish_reason == "tool_calls"
    assert made.message["tool_calls"][2]["extra_content"] == {"sign": "s"}


def test_reasoning_details_are_put_together() -> None:
    parts = [
        {"type": "t", "index": 0, "text": "a"},
        {"type": "t", "index": 0, "text": "b", "signature": "s"},
        {"type": "u"},
    ]
    assert joined(parts) == [{"type": "t", "index": 0, "text": "ab", "signature": "s"}, {"type": "u"}]


def test_usage_of_other_shapes() -> None:
    read = openai_usage
    assert read({"prompt_tokens": 5, "completion_tokens": 2}) == Usage(5, 2)
    assert read({"prompt_tokens": 5, "prompt_cache_hit_tokens": 3, "cost": 0.5}) == Usage(2, 0, 3, cost_usd=0.5)
    assert read({"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 9}}) == Usage(0, 0, 5)
    assert read({"prompt_tokens": "x", "prompt_tokens_details": None, "cost": True}) == Usage()


# ── requests ──


def sent(messages: list[dict[str, Any]], **options: Any) -> tuple[list[Any], list[Any]]:
    return translate(messages, **options)


def test_a_conversation_in_the_other_protocol() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}
    written = {"a": {"name": "f", "arguments": '{"x": 1}'}, "b": {"name": "g", "arguments": "{oops"}}
    calls = [{"id": name, "function": function} for name, function in written.items()]
    system, turns = sent(
        [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "See"}, picture]},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "one"},
            {"role": "tool", "tool_call_id": "b", "content": ""},
            {"role": "user", "content": "and?"},
            {"role": "assistant", "content": ""},
            {"role": "system", "content": "Still be brief."},
        ],
        marks=(),
    )
    assert system == [{"type": "text", "text": "Be brief."}]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[0]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "QQ=="}
    assert turns[1]["content"] == [
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {"not_json": "{oops"}},
    ]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "a", "content": "one"},
        {"type": "tool_result", "tool_use_id": "b"},
        {"type": "text", "text": "and?"},
        {"type": "text", "text": "Still be brief."},
    ]


def test_what_cannot_be_translated_is_refused() -> None:
    for part in ({"type": "input_audio"}, {"type": "image_url", "image_url": {}}):
        with pytest.raises(ModelRefused):
            sent([{"role": "user", "content": [part]}])
    kept = {"type": "document", "source": {}}
    assert sent([{"role": "user", "content": [kept]}], marks=())[1][0]["content"] == [kept]
    assert sent([{"role": "assistant", "content": "x"}], marks=())[1][0]["role"] == "user"


def test_marks_for_the_cache() -> None:
    messages = [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "user", "assistant", "user")]

    def marked(**options: Any) -> list[int]:
        system, turns = sent(messages, **options)
        blocks = [*system, *(turn["content"][-1] for turn in turns)]
        return [at for at, block in enumerate(blocks) if "cache_control" in block]

    assert marked() == [0, 5]
    assert marked(marks=()) == []
    assert marked(marks=[1, 3, 99, -1]) == [1, 3]
    assert marked(marks=range(6)) == [2, 3, 4, 5]
    assert sent(messages, long_cache=True)[0][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    assert "cache_control" not in str(messages)


def test_marks_that_a_session_set_are_passed_on() -> None:
    mark = {"type": "ephemeral", "ttl": "1h"}
    messages = cache_breakpoints([{"role": role, "content": "x"} for role in ("system", "user")], lifetime="1h")
    system, turns = sent(messages)
    assert (system[0]["cache_control"], turns[0]["content"][0]["cache_control"]) == (mark, mark)
    part = {"type": "text", "text": "r", "cache_control": mark}
    result = sent([*messages, {"role": "tool", "tool_call_id": "a", "content": [part]}])[1][0]["content"][1]
    assert result == {"type": "tool_result", "tool_use_id": "a", "cache_control": mark, "content": "r"}
    own = openai_request(Endpoint("https://api.openai.com/v1", "m"), ModelRequest(messages), frozenset())
    assert own["messages"][0]["content"] == [{"type": "text", "text": "x"}]
    routed = openai_request(Endpoint("https://openrouter.ai/api/v1", "m"), ModelRequest(messages), frozenset())
    assert routed["messages"] == messages


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), TEXT), max_size=8), st.integers(0, 8))
def test_a_longer_conversation_begins_like_the_shorter(said: list[tuple[str, str]], cut: int) -> None:
    messages = [{"role": "system", "content": "s"}, *({"role": role, "content": text} for role, text in said)]
    short, long = (sent(part, marks=())[1] for part in (messages[: cut + 1], messages))
    roles = [turn["role"] for turn in long]
    assert all(one != other for one, other in pairwise(roles))
    assert roles[:1] in ([], ["user"])
    flat = [[block for turn in turns for block in turn["content"]] for turns in (short, long)]
    assert flat[1][: len(flat[0])] == flat[0]


def test_requests_to_makers_and_others() -> None:
    wanted = ModelRequest([{"role": "user", "content": "x", "reasoning_content": "r", "tokens": 1}], max_tokens=5)
    own = openai_request(Endpoint("https://api.openai.com/v1", "m"), wanted, frozenset())
    assert (own["max_completion_tokens"], own["messages"]) == (5, [{"role": "user", "content": "x"}])
    other = openai_request(HERE, wanted, frozenset())
    assert (other["max_tokens"], other["messages"][0]["reasoning_content"]) == (5, "r")
    assert openai_request(HERE, wanted, frozenset({"max_tokens"}))["max_completion_tokens"] == 5
    assert "stream_options" not in openai_request(HERE, wanted, frozenset({"stream_options"}))
    routed = openai_request(Endpoint("https://openrouter.ai/api/v1", "m"), wanted, frozenset())
    assert routed["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}
    claude = Endpoint("https://api.anthropic.com", "m", kind="anthropic")
    assert "temperature" not in anthropic_request(claude, ModelRequest([], temperature=0.1), frozenset())


def test_strict_is_for_schemas_that_name_everything() -> None:
    closed = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    for schema, strict in ((closed, True), ({**closed, "required": []}, False), ({"type": "object"}, False)):
        body = openai_request(HERE, ModelRequest([], json_schema=schema), frozenset())
        assert body["response_format"]["json_schema"]["strict"] is strict


# ── places and keys ──


@pytest.mark.parametrize(
    ("url", "name", "found"),
    [
        ("openai", "m", ("https://api.openai.com/v1", "openai", "OPENAI_API_KEY")),
        ("https://api.openai.com/v1/chat/completions", "m", ("https://api.openai.com/v1", "openai", "OPENAI_API_KEY")),
        ("Anthropic", "m", ("https://api.anthropic.com", "anthropic", "ANTHROPIC_API_KEY")),
        ("https://api.anthropic.com/v1/", "m", ("https://api.anthropic.com", "anthropic", "ANTHROPIC_API_KEY")),
        ("openrouter", "claude-x", ("https://openrouter.ai/api/v1", "openai", "OPENROUTER_API_KEY")),
        ("ollama", "m", ("http://127.0.0.1:11434/v1", "openai", "")),
        (
            "http://api.openai.com/v1",
            "m",
            ("http://api.openai.com/v1", "openai", ""),
        ),  # not encrypted: no key by itself
        ("https://example.org/anthropic", "m", ("https://example.org/anthropic", "anthropic", "")),
        ("http://localhost:4000", "claude-x", ("http://localhost:4000", "anthropic", "")),
        ("http://localhost:4000/v1", "claude-x", ("http://localhost:4000/v1", "openai", "")),
        ("https://evil.example/api.openai.com", "m", ("https://evil.example/api.openai.com", "openai", "")),
    ],
)
def test_addresses(url: str, name: str, found: tuple[str, str, str]) -> None:
    assert locate(url, name) == found


@pytest.mark.parametrize("url", ["", "localhost:8080", "ftp://x", "http://", "http://[", "http://x:99999/", "oops"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="neither an address"):
        locate(url, "m")


def test_secrets_in_addresses_are_not_printed() -> None:
    with pytest.raises(ConfigError) as caught:
        locate("https://me:secret@example.org", "m")
    assert "secret@" not in str(caught.value)
    assert Endpoint("https://example.org/v1?k=secret", "m").host == "example.org"
    assert (HERE.host, HERE.loopback, HERE.official) == ("127.0.0.1:1", True, False)
    with pytest.raises(ConfigError, match="kind"):
        locate("openai", "m", "other")


def test_files_of_variables() -> None:
    text = "\ufeff# keys\nA=1\nexport B = two # not this\nC='x # y'\nD=\"a\nE\n=f\n #G=1\nA=2\n"
    assert parse(text.removeprefix("\ufeff")) == {"A": "2", "B": "two", "C": "x # y", "D": '"a'}


def test_the_environment_wins_and_a_loose_file_is_warned_about(home: Path) -> None:
    file = home / ".env"
    assert read_key("K", home, {}) == read_key("", home, {}) == ""
    file.write_text("K=secret\n", "utf-8")
    file.chmod(0o600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_key("K", home, {}) == "secret"
        assert read_key("K", home, {"K": " other "}) == "other"
    file.chmod(0o644)
    with pytest.warns(HermaWarning, match="chmod 600") as caught:
        assert read_key("K", home, {}) == "secret"
    assert "secret" not in str(caught[0].message)
    file.unlink()
    file.mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key("K", home, {})


# ── patience ──


@given(
    st.integers(1, 50), st.integers(0, 50), st.floats(0, 1e4), st.floats(0, 1), st.one_of(st.none(), st.floats(0, 1e5))
)
def test_patience_is_bounded(attempt: int, retries: int, left: float, chance: float, after: float | None) -> None:
    error = unreachable(HERE, "").error
    assert pause(Fault(error), attempt, retries, left, chance) is None
    seconds = pause(Fault(error, again=True, after=after), attempt, retries, left, chance)
    if attempt > retries:
        assert seconds is None
    if seconds is not None:
        assert 0 <= seconds < left
        assert seconds >= after if after is not None else seconds <= LONGEST
    elif attempt <= retries:
        assert left <= max(LONGEST, after or 0)


def test_what_servers_ask_for() -> None:
    now = 1_700_000_000.0
    assert retry_after({"retry-after": "7"}, now) == 7
    assert retry_after({"retry-after-ms": "1500", "retry-after": "9"}, now) == 1.5
    assert retry_after({"retry-after": "Tue, 14 Nov 2023 22:13:50 GMT"}, now) == 30
    for nonsense in ("", "soon", "-1", "nan", "inf", "1e99"):
        assert retry_after({"retry-after": nonsense}, now) is None
