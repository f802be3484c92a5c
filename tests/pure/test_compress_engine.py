"""The compressor's decisions, over any conversation."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from herma.compression.engine import Compressor, EngineNeeds
from herma.compression.summary import Compressed, NotCompressed, last_request
from herma.config import CompressionSettings
from herma.prompt.tokens import counter_for
from herma.testing.contracts import RememberedTries
from herma.transcript.messages import is_summary, text_of
from herma.types import Message, Usage

WORDS = [
    "alpha",
    "src/app/main.py",
    "get_value()",
    "4,200 rows",
    "error: failed",
    "fixed",
    "decided because",
    "TODO: check it",
]


def compressor(window: int = 2_000, **options: Any) -> tuple[Compressor, RememberedTries]:
    rows = RememberedTries()
    needs = EngineNeeds(
        conversation="c",
        window=window,
        window_known=True,
        counter=counter_for(None),
        rows=rows,
        clock=lambda: 0.0,
        options=CompressionSettings(**options),
    )
    return Compressor(needs), rows


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Turns as agents make them: a request, calls with their results, a reply."""
    messages: list[Message] = []

    def text() -> str:
        return " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=60)))

    for turn in range(draw(st.integers(0, 12))):
        messages.append(Message("user", text(), id=len(messages) + 1))
        for step in range(draw(st.integers(0, 2))):
            name = f"c{turn}.{step}"
            call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
            messages.append(Message("assistant", None, id=len(messages) + 1, tool_calls=(call,)))
            messages.append(Message("tool", text() * 4, id=len(messages) + 1, tool_call_id=name))
        messages.append(Message("assistant", text(), id=len(messages) + 1))
    return messages


@given(conversations(), st.booleans(), st.integers(200, 4_000))
def test_whatever_comes_out_can_be_sent_and_holds_the_last_request(
    messages: list[Message], force: bool, window: int
) -> None:
    engine, _ = compressor(window)
    before = list(messages)
    done = engine.compress(messages, current_tokens=sum(map(engine._weight, messages)) + 100, force=force)
    assert messages == before, "the conversation itself is not touched"
    if isinstance(done, NotCompressed):
        assert done.reason
        return
    kept = done.messages
    assert last_request(kept) == last_request(messages)
    waiting: set[str] = set()
    for message in kept:
        if message.role == "tool":
            assert message.tool_call_id in waiting, "a result follows its call"
            waiting.discard(message.tool_call_id)
        else:
            assert not waiting, "every call has its result"
            waiting = {call["id"] for call in message.tool_calls}
    assert kept[0].role == "user"
    summaries = [message for message in kept if is_summary(text_of(message.content))]
    assert len(summaries) == (done.how != "pruned")
    if summaries:
        spoken = [message.role for message in kept if message.role != "tool"]
        at = kept.index(summaries[0])
        neighbours = {kept[at - 1].role if at else "", kept[at + 1].role if at + 1 < len(kept) else ""}
        assert summaries[0].role not in neighbours, spoken
        assert done.tokens_after < done.tokens_before


def test_again_and_again_there_is_one_summary_and_nothing_named_is_lost() -> None:
    engine, _ = compressor(3_000)
    messages: list[Message] = []
    for turn in range(120):
        text = f"Step {turn}: change src/part_{turn % 7}/module.py, {1000 + turn % 5} rows, call run_part_{turn % 7}()."
        messages.append(Message("user", text, id=len(messages) + 1))
        messages.append(
            Message("assistant", f"Changed run_part_{turn % 7}. " + "More words. " * 20, id=len(messages) + 1)
        )
        tokens = sum(map(engine._weight, messages)) + 200
        if engine.should_compress(tokens):
            done = engine.compress(messages, current_tokens=tokens)
            assert isinstance(done, Compressed), done
            messages = list(done.messages)
            assert sum(is_summary(text_of(message.content)) for message in messages) == 1
    text = "\n".join(text_of(message.content) for message in messages)
    for part in range(7):
        assert f"src/part_{part}/module.py" in text
        assert f"run_part_{part}" in text


def test_a_conversation_that_does_not_get_shorter_is_left_alone() -> None:
    engine, rows = compressor(2_000)
    assert engine.should_compress(1_600)
    for _ in range(2):
        messages = [
            Message("user" if at % 2 == 0 else "assistant", f"{at} " + "word " * 60, id=at + 1) for at in range(60)
        ]
        assert isinstance(engine.compress(messages, current_tokens=6_000), Compressed)
        engine.update_from_response(Usage(input=1_700))
    assert rows.tries("c").ineffective == 2
    assert not engine.should_compress(1_600)
    assert isinstance(engine.compress(messages, current_tokens=6_000, force=True), Compressed), "a person may"
    engine.update_from_response(Usage(input=100, cache_read=300))
    assert engine.should_compress(1_600)
