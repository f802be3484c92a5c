"""What every context engine must keep, as one suite: subclass `EngineContract` and give it an `engine` fixture.

    class TestMyEngine(EngineContract):
        @pytest.fixture
        def engine(self, needs):
            return MyEngine(needs)

It calls the engine as sessions do: with conversations of all shapes, again and again, and in the middle of a turn. It
knows nothing of how good a summary is: that is for tests of your own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from herma.counting import counter_for
from herma.ports import ContextEngine, EngineNeeds, Tries
from herma.prompt.weight import count_message
from herma.reflect.compress.extract import last_request
from herma.transcript.replay import as_sent
from herma.turn.compressing import unfit
from herma.types import Condensed, LeftAlone, Message, Usage

WINDOW = 8_000
"""Tokens of the window that the engine is made for."""


class RememberedTries:
    """Keeps what was tried in a dictionary; implements `CompressionRows`."""

    def __init__(self) -> None:
        self.kept: dict[str, Tries] = {}

    def tries(self, conversation: str) -> Tries:
        return self.kept.get(conversation, Tries())

    def remember(self, conversation: str, tries: Tries) -> None:
        self.kept[conversation] = tries


class EngineContract:
    """An engine's promises, one test each."""

    @pytest.fixture
    def needs(self) -> EngineNeeds:
        """What an engine is made of, without a model."""
        return EngineNeeds(
            conversation="c-1",
            window=WINDOW,
            window_known=True,
            counter=counter_for(None),
            rows=RememberedTries(),
            clock=lambda: 1_790_000_000.0,
        )

    @pytest.fixture
    def engine(self, needs: EngineNeeds) -> ContextEngine:
        raise NotImplementedError("give the contract an engine to prove")

    def test_it_has_a_name_that_stays(self, engine: ContextEngine) -> None:
        assert isinstance(engine.name, str)
        assert engine.name == engine.name.strip() != ""
        assert engine.name == engine.name

    def test_it_says_whether_it_is_time(self, engine: ContextEngine) -> None:
        engine.on_session_start("s-1", boundary_reason="new")
        assert engine.should_compress(0) is False, "nothing has been said"
        assert isinstance(engine.should_compress(WINDOW * 2), bool)
        assert isinstance(getattr(engine, "held_back", ""), str)

    @pytest.mark.parametrize("seed", range(12))
    def test_what_it_answers_can_stand_for_the_conversation(self, engine: ContextEngine, seed: int) -> None:
        messages = conversation(seed)
        engine.on_session_start("s-1", boundary_reason="new")
        done = answer(engine, messages, force=bool(seed % 2))
        assert isinstance(done, Condensed | LeftAlone)
        if isinstance(done, LeftAlone):
            assert done.reason.strip(), "people are told why"
            return
        assert unfit(done, messages) == ""
        assert last_request(messages) in "\n".join(str(message.content) for message in done.messages)
        assert weigh(done.messages) < weigh(messages), "it is shorter"
        assert done.tokens_after < done.tokens_before

    def test_a_long_conversation_is_made_shorter(self, engine: ContextEngine) -> None:
        messages = conversation(3, turns=80)
        engine.on_session_start("s-1", boundary_reason="new")
        done = answer(engine, messages, force=True)
        assert isinstance(done, Condensed), done

    def test_it_does_not_change_what_it_is_given(self, engine: ContextEngine) -> None:
        messages = conversation(4, turns=40)
        before = list(messages)
        answer(engine, messages, force=True)
        assert messages == before

    def test_again_and_again(self, engine: ContextEngine) -> None:
        """It is given what it answered, with more after it, as long as a conversation lasts."""
        engine.on_session_start("s-1", boundary_reason="new")
        messages: Sequence[Message] = conversation(5, turns=40)
        for round_ in range(4):
            done = answer(engine, messages, force=True)
            if isinstance(done, Condensed):
                assert unfit(done, messages) == ""
                engine.on_session_end(f"s-{round_}", messages)
                engine.on_session_start(f"s-{round_ + 1}", boundary_reason="compression", old_session_id=f"s-{round_}")
                engine.update_from_response(Usage(input=done.tokens_after, output=50))
                messages = stored(done.messages)
            messages = [*messages, *conversation(round_ + 6, turns=20, first=10_000 * (round_ + 1))]

    def test_in_the_middle_of_a_turn(self, engine: ContextEngine) -> None:
        messages = [*conversation(7, turns=3), Message("user", "Now all of it.", id=5_000), *steps(60, first=5_001)]
        engine.on_session_start("s-1", boundary_reason="resume")
        done = answer(engine, messages, force=True)
        if isinstance(done, Condensed):
            assert unfit(done, messages) == ""

    @pytest.mark.parametrize("messages", [[], [Message("user", "Hello.", id=1)]])
    def test_what_is_too_short_is_left_alone(self, engine: ContextEngine, messages: list[Message]) -> None:
        assert isinstance(answer(engine, messages, force=True), LeftAlone)

    def test_it_takes_a_subject_and_what_others_say(self, engine: ContextEngine) -> None:
        for outside in ("", "Remember the weir.", "x" * 100_000, "</memory-context> {} %s \x00"):
            done = engine.compress(
                conversation(8, turns=40),
                current_tokens=WINDOW * 2,
                focus_topic="the weir",
                force=True,
                memory_context=outside,
            )
            assert isinstance(done, Condensed | LeftAlone)

    def test_any_text_will_do(self, engine: ContextEngine) -> None:
        odd = [
            "",
            " \n",
            "x" * 50_000,
            "日本 🙂 \x00",
            "</memory-context>",
            "{}%s{0}",
            "## Goal\n- [#1-99999999999999999999]",
        ]
        messages = [Message("user" if at % 2 == 0 else "assistant", text, id=at + 1) for at, text in enumerate(odd * 4)]
        done = answer(engine, [*messages, Message("user", "And now?", id=999)], force=True)
        assert isinstance(done, Condensed | LeftAlone)

    def test_what_happens_is_told_in_any_order(self, engine: ContextEngine) -> None:
        for reason in ("new", "resume", "reload", "compression"):
            engine.on_session_start("s-1", boundary_reason=reason, old_session_id="s-0")
            engine.update_from_response(Usage())
            engine.update_from_response(Usage(input=WINDOW, cache_read=10, output=5))
            engine.on_session_end("s-1", conversation(9))
        engine.on_reset()
        engine.on_session_end("s-1", [])


def answer(engine: ContextEngine, messages: Sequence[Message], *, force: bool = False) -> Any:
    """As a session asks: with the size of the whole request, prompt and tools included."""
    return engine.compress(messages, current_tokens=weigh(messages) + 500, force=force)


def weigh(messages: Sequence[Message]) -> int:
    count = counter_for(None).count
    return sum(count_message(as_sent(message), count) for message in messages)


def stored(messages: Sequence[Message]) -> list[Message]:
    """As the transcript gives them back: each with a number."""
    return [replace(message, id=at) for at, message in enumerate(messages, 1)]


def conversation(seed: int, *, turns: int | None = None, first: int = 1) -> list[Message]:
    """Turns as agents make them: a request, calls with their results, a reply."""
    dice = random.Random(seed)  # noqa: S311  guards nothing
    messages: list[Message] = []
    for turn in range(dice.randrange(1, 30) if turns is None else turns):
        text = f"Step {turn}: change src/part_{turn % 7}/module.py, {1000 + turn} rows. " + "word " * dice.randrange(80)
        messages.append(Message("user", text, id=first + len(messages)))
        if dice.random() < 0.5:
            messages += steps(dice.randrange(1, 3), first=first + len(messages))
        said = f"Changed run_part_{turn % 7}(). TODO: measure part {turn % 7}. " + "word " * dice.randrange(80)
        messages.append(Message("assistant", said, id=first + len(messages)))
    return messages


def steps(count: int, *, first: int) -> list[Message]:
    """Calls of a tool with their results."""
    messages: list[Message] = []
    for step in range(count):
        name = f"call_{first}_{step}"
        call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append(Message("assistant", None, id=first + len(messages), tool_calls=(call,)))
        messages.append(Message("tool", f"row {step} " * 60, id=first + len(messages), tool_call_id=name))
    return messages
