"""The window of a session: what each part of it holds adds up to what is sent."""

from __future__ import annotations

from pathlib import Path

import pytest

from herma import Add, Herma
from herma.errors import UsageError
from herma.prompt.budget import injected_in, memory_of
from herma.prompt.tokens import count_messages, count_tools, counter_for

CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}


def test_a_live_session(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("The garden is behind the house."))
        session = h.session(model="gpt-4o")
        empty = session.working_memory()
        assert empty.window == 128_000
        assert empty["conversation"].used == empty["tools"].used == 0
        assert empty["memory"].used > 0
        session.before_model("hello", recall="Something from before.")
        told = session.working_memory()
        assert told["memory"].used > empty["memory"].used
        session.after_model(
            [
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a line of output\n" * 3000},
            ]
        )
        request = session.before_model()
        plan = session.working_memory()
        counter = counter_for("gpt-4o")
        sent = count_messages(request, counter.count) + count_tools(session.tools, counter.count)
        assert abs(plan.used - sent) <= 0.02 * sent
        assert 400 < plan["tools"].used < 700
        (shortened,) = plan.overflows
        assert shortened.slot == "tools"
        assert shortened.tokens > 5_000
        assert h.working_memory(session.id).uses == plan.uses, "a stored session looks the same"


def test_memory_in_a_prompt_is_found_whatever_changed_since(home: Path) -> None:
    with Herma.open(home) as h:
        assert memory_of(h.session().system_prompt) == ""
        h.memory.apply("memory", Add("One fact.\n\nWith a blank line."))
        h.memory.apply("user", Add("Likes tea."))
        session = h.session()
        found = memory_of(session.system_prompt)
        assert all(block.text in found for block in session.snapshot.blocks)
        assert "This conversation began" not in found
        assert session.system_prompt.replace(found, "", 1).count("\n\n\n") == 0


def test_what_was_added_to_a_message() -> None:
    assert injected_in("hello", "hello\n\nmore") == "\n\nmore"
    assert injected_in("hello", None) == ""
    assert injected_in(None, "all of it") == "all of it"
    part = {"type": "text", "text": "x"}
    assert injected_in([part], [part, {"type": "text", "text": "y"}]) == "y"


def test_compacted_messages_have_left(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session() as session:
            for text in ("one", "two"):
                session.before_model(text)
                session.after_model("ok " * 100)
            ids = [message.id for message in session.messages]
        before = h.working_memory(session.id)
        h.transcripts.compact(session.id, ids[0], ids[1])
        after = h.working_memory(session.id)
        assert after["conversation"].used < before["conversation"].used
        (gone,) = (over for over in after.overflows if over.slot == "conversation")
        assert gone.tokens == before["conversation"].used - after["conversation"].used


def test_looking_changes_nothing(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session() as session:
            session.before_model("one")
            session.after_model("ok")
        ended = h.transcripts.get(session.id)
        h.working_memory(session.id)
        assert h.transcripts.get(session.id) == ended
        with pytest.raises(UsageError):
            h.working_memory("nosuch")


def test_a_slot_over_its_share_has_borrowed_and_lost_nothing(home: Path) -> None:
    with Herma.open(home, flags={"context.window": 4_096}) as h:
        (over,) = h.session().working_memory().overflows
    assert over.slot == "system"
    assert "nothing was cut" in over.where
