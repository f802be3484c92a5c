"""Parts of the chat that decide: blocks of Markdown, commands, lines, what passes to and from MCP servers."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.agent.chat import is_command
from herma.agent.loop import Called
from herma.agent.mcp import LONGEST_NAME, UnsetError, complaints, filled, result_of, tool_name
from herma.agent.terminal import Blocks, as_text, compressed_line, status, tool_line
from herma.compression.summary import Compressed, NotCompressed
from herma.prompt.tokens import Plan, Use
from herma.types import ToolCall

# ── blocks ──

markdown = st.lists(
    st.sampled_from(["a\n", "\n", "```\n", "```python\n", "  b\n", "- c\n", "# d\n", "~~~\n", "x", " ", "````\n"])
).map("".join)


@given(markdown, st.integers(1, 7))
def test_nothing_is_lost_and_cuts_do_not_matter(text: str, size: int) -> None:
    whole, pieces = Blocks(), Blocks()
    settled = whole.feed(text)
    cut = [block for at in range(0, len(text), size) for block in pieces.feed(text[at : at + size])]
    assert cut == settled
    assert "".join(settled) + whole.rest == text
    assert pieces.flush() == whole.rest
    assert pieces.rest == ""
    for block in settled:  # no block ends inside of code
        fences = [line for line in block.splitlines() if line.lstrip().startswith(("```", "~~~"))]
        assert not fences or len(fences) >= 2


def test_a_block_is_settled_when_the_next_one_begins() -> None:
    blocks = Blocks()
    assert blocks.feed("One.\nStill one.\n\n") == []
    assert blocks.feed("T") == []
    assert blocks.feed("wo.\n") == ["One.\nStill one.\n\n"]
    assert blocks.feed("```\ncode\n\nmore\n") == []
    assert blocks.feed("```\n") == ["Two.\n```\ncode\n\nmore\n```\n"]
    assert blocks.feed("- a\n\n  goes on\n") == []


# ── keys that nobody reacted to ──


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("two\rthree\r", "two\nthree"),
        ("twi\x7fo\r", "two"),
        ("\x7f\x7fa", "a"),
        ("\x1b[200~four\n  indented\x1b[201~\r", "four\n  indented"),
        ("\x1b[A\x1bOBx\x04\x00", "x"),
        ("größe\t1", "größe\t1"),
        ("", ""),
    ],
)
def test_keys_are_read_as_text(keys: str, text: str) -> None:
    assert as_text(keys) == text


@given(st.text())
def test_nothing_in_it_steers_a_terminal(keys: str) -> None:
    assert all(one.isprintable() or one in "\n\t" for one in as_text(keys))


# ── commands ──


def test_commands_are_told_from_messages() -> None:
    for text in ("/help", "/memory add x", " /quit ", "/search a\nb", "/nonsense"):
        assert is_command(text), text
    for text in ("/etc/hosts is empty", "//help", "help", "/", "/ x", "/2", "a /help"):
        assert not is_command(text), text


# ── lines ──


def called(arguments: str, result: str = "{}", *, ok: bool = True) -> Called:
    return Called(ToolCall("1", "memory", arguments), result, ok, 0.0123)


def test_a_tool_call_is_one_line() -> None:
    said = tool_line(called('{"action": "add", "target": "user", "content": "likes\\ntea"}'))
    assert said == "→ memory add, target=user, likes tea  (12 ms)"
    assert tool_line(called("{broken")) == "→ memory {broken  (12 ms)"
    assert tool_line(called("[1]")) == "→ memory [1]  (12 ms)"
    assert tool_line(called("", '{"error": "no room"}', ok=False)).endswith("failed: no room")
    assert tool_line(called("", "no JSON", ok=False)).endswith("failed: no JSON")
    assert len(tool_line(called(json.dumps({"content": "x" * 9_999})))) < 200


def test_lines_below_the_prompt() -> None:
    plan = Plan(128_000, (Use("system", 1000, 12_800),))
    assert status("m", None, None, "") == "m"
    assert status("m", plan, 0.01234, "Login bug") == "m · 10% of 128k tokens · $0.0123 · Login bug"
    assert status("m", Plan(1_000_000, ()), 2.5, "") == "m · 0% of 1M tokens · $2.50"
    assert compressed_line(NotCompressed("It is short.")).endswith("Not compressed: It is short.")
    said = compressed_line(Compressed((), "model", 9_000, 1_000, replaced=12))
    assert "of 12 messages (9,000 → 1,000 tokens)" in said


# ── MCP ──


@given(st.text("ab-_", min_size=1, max_size=40), st.text(max_size=100), st.text(max_size=100))
def test_names_are_accepted_and_told_apart(server: str, one: str, other: str) -> None:
    name = tool_name(server, one)
    assert 1 <= len(name) <= LONGEST_NAME
    assert all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
    assert (name == tool_name(server, other)) == (one == other)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}, "s": {"type": "string", "pattern": "^(a+)+$"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"n": 1}, ""),
        ({"n": 1, "s": "a" * 40 + "!"}, ""),  # patterns are not tried: they may take for ever
        ({}, "'n' is a required property"),
        ({"n": 0}, "n: 0 is less than the minimum"),
        ({"n": "1"}, "n: '1' is not of type 'integer'"),
        ({"n": 1, "x": 2}, "Additional properties"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], said: str) -> None:
    found = complaints(arguments, SCHEMA)
    assert (said in found) if said else found == ""


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/x"},
        {"$ref": "#/nowhere"},
        {"$ref": "#"},
        {"type": "martian"},
        {"required": 3},
        {"minimum": "x"},
    ],
)
def test_schemas_that_make_no_sense_stop_nothing(schema: dict[str, Any]) -> None:
    assert isinstance(complaints({"a": 1}, schema), str)


@pytest.mark.timeout(60)
def test_a_schema_whose_references_multiply_is_left_to_the_server() -> None:
    layers = {f"l{n}": {"allOf": [{"$ref": f"#/$defs/l{n - 1}"}] * 2} for n in range(1, 40)}
    schema = {"$defs": {"l0": {"type": "object"}, **layers}, "$ref": "#/$defs/l39"}
    assert complaints({"a": 1}, schema) == ""


def test_results_are_words() -> None:
    text = SimpleNamespace(type="text", text="Hello")
    image = SimpleNamespace(type="image", data="QUJD", mime_type="image/png")
    link = SimpleNamespace(type="resource_link", name="log", uri="file:///x")
    inner = SimpleNamespace(type="resource", resource=SimpleNamespace(text="inside"))
    blob = SimpleNamespace(type="resource", resource=SimpleNamespace(blob="QUJD", mime_type="a/b"))
    found = result_of([text, image, link, inner, blob], None, False, 1_000)["result"]
    assert found.splitlines() == [
        "Hello",
        "[image/png, 3 bytes: not shown]",
        "[log: file:///x]",
        "inside",
        "[a/b, 3 bytes: not shown]",
    ]
    assert result_of([], {"a": 1}, False, 100) == {"result": '{"a": 1}'}
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    assert "nested too deeply" in result_of([], deep, False, 100)["error"]
    assert result_of([text], None, True, 100) == {"success": False, "error": "Hello"}
    assert "without a reason" in result_of([], None, True, 100)["error"]
    assert result_of([text], None, False, 2)["result"].startswith("He\n[… 3 more")


def test_variables_are_filled_in() -> None:
    assert filled("Bearer ${KEY}, $KEY, ${}", {"KEY": "k"}.__getitem__) == "Bearer k, $KEY, ${}"
    with pytest.raises(UnsetError, match="NOBODY"):
        filled("${NOBODY}", lambda _: "")
