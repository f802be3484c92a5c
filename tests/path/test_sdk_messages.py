"""Message objects of the OpenAI and Anthropic SDKs are accepted wherever messages are."""

from __future__ import annotations

from typing import Any

import anthropic.types as a
import pytest
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from herma import Herma

USAGE = a.Usage(input_tokens=9, output_tokens=3)
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": "ü"}'}}
TEXT = [{"role": "assistant", "content": "Done."}]
CALLING = [{"role": "assistant", "content": "Hm.", "tool_calls": [CALL]}]


def anthropic_message(*content: Any) -> a.Message:
    return a.Message(id="m", content=list(content), model="x", role="assistant", type="message", usage=USAGE)


SAID = a.TextBlock(type="text", text="Done.")
USE = a.ToolUseBlock(type="tool_use", id="c1", name="look", input={"at": "ü"})
THOUGHT = a.ThinkingBlock(type="thinking", thinking="Let me see.", signature="s")
RESULTS = [
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "Seen."}]},
    {"type": "text", "text": "And now?"},
]
ITEM = ResponseOutputText(type="output_text", text="Done.", annotations=[])


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (ChatCompletionMessage(role="assistant", content="Done."), TEXT),
        (ChatCompletionMessage.model_validate(CALLING[0]), CALLING),
        (anthropic_message(SAID), TEXT),
        (anthropic_message(a.TextBlock(type="text", text="Hm."), USE), CALLING),
        ({"role": "user", "content": [SAID]}, [{"role": "user", "content": [{"type": "text", "text": "Done."}]}]),
        ({"role": "assistant", "content": [{"type": "text", "text": "Hm."}, USE.model_dump()]}, CALLING),
        (
            {"role": "user", "content": RESULTS},
            [{"role": "tool", "tool_call_id": "c1", "content": "Seen."}, {"role": "user", "content": "And now?"}],
        ),
        (
            anthropic_message(THOUGHT, SAID),
            [TEXT[0] | {"thinking_blocks": [THOUGHT.model_dump()], "reasoning": "Let me see."}],
        ),
        (ResponseOutputMessage(id="m", role="assistant", status="completed", type="message", content=[ITEM]), TEXT),
        (
            ResponseFunctionToolCall(type="function_call", call_id="c1", name="look", arguments='{"at": "ü"}'),
            [CALLING[0] | {"content": None}],
        ),
    ],
)  # fmt: skip
def test_an_object_is_stored_as_an_openai_style_message(h: Herma, given: Any, stored: list[dict[str, Any]]) -> None:
    session = h.transcripts.start("test")
    h.transcripts.append(session, [given])
    found: list[dict[str, Any]] = [
        {"role": one.role, "content": one.content}
        | ({"tool_calls": list(one.tool_calls)} if one.tool_calls else {})
        | ({"tool_call_id": one.tool_call_id} if one.tool_call_id else {})
        | ({"reasoning": one.reasoning} if one.reasoning else {})
        | dict(one.extra)
        for one in h.transcripts.messages(session)
    ]
    assert found == stored


def test_a_turn_with_objects_of_the_sdk(h: Herma) -> None:
    with h.session(source="test") as s:
        s.before_model({"role": "user", "content": [a.TextBlock(type="text", text="Look.")]})
        s.after_model([anthropic_message(USE), {"role": "user", "content": RESULTS[:1]}])
        s.before_model()
        s.after_model(ChatCompletionMessage(role="assistant", content="Done."))
        assert [one.role for one in s.messages] == ["user", "assistant", "tool", "assistant"]
        s.continue_with([{"role": "user", "content": "Look."}, anthropic_message(SAID)])
        assert [one.content for one in s.messages] == ["Look.", "Done."]
