"""The window of a session: what each part of it holds adds up to what is sent."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.homes import talk, tool_messages

from herma import Add, Herma
from herma.errors import UsageError
from herma.prompt.assemble import memory_of
from herma.prompt.tokens import count_messages, count_tools, counter_for, injected_in


def test_memory_in_a_prompt_is_found_whatever_changed_since(h: Herma) -> None:
    assert memory_of(h.session().system_prompt) == ""
    h.memory.apply("memory", Add("One fact.\n\nWith a blank line."))
    h.memory.apply("user", Add("Likes tea."))
    session = h.session()
    found = memory_of(session.system_prompt)
    assert all(block.text in found for block in session.snapshot.blocks)
    assert "This conversation began" not in found
    assert session.system_prompt.replace(found, "", 1).count("\n\n\n") == 0


def test_a_live_session(h: Herma) -> None:
    h.memory.apply("memory", Add("The garden is behind the house."))
    session = h.session(model="gpt-4o")
    empty = session.working_memory()
    assert empty.window == 128_000
    assert empty["conversation"].used == empty["tools"].used == 0
    assert empty["memory"].used > 0
    session.before_model("hello", recall="Something from before.")
    told = session.working_memory()
    assert told["memory"].used > empty["memory"].used
    session.after_model(tool_messages("run", {}, "a line of output\n" * 3000))
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


def test_what_was_added_to_a_message() -> None:
    assert injected_in("hello", "hello\n\nmore") == "\n\nmore"
    assert injected_in("hello", None) == ""
    assert injected_in(None, "all of it") == "all of it"
    part = {"type": "text", "text": "x"}
    assert injected_in([part], [part, {"type": "text", "text": "y"}]) == "y"


def test_compacted_messages_have_left(h: Herma) -> None:
    with h.session() as session:
        for text in ("one", "two"):
            talk(session, text, reply="ok " * 100)
        ids = [message.id for message in session.messages]
    before = h.working_memory(session.id)
    h.transcripts.compact(session.id, ids[0], ids[1])
    after = h.working_memory(session.id)
    assert after["conversation"].used < before["conversation"].used
    (gone,) = (over for over in after.overflows if over.slot == "conversation")
    assert gone.tokens == before["conversation"].used - after["conversation"].used


def test_looking_changes_nothing(h: Herma) -> None:
    with h.session() as session:
        talk(session, "one", reply="ok")
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


def test_the_default_prompt_fits_its_own_budget(home: Path) -> None:
    """An unknown model, every tool, nothing configured; then with more skills than can be listed."""
    with Herma.open(home) as h:
        with h.session() as session:
            bare = session.working_memory()
        for number in range(150):
            written = f"Do the thing number {number} that has to be done now and then, with care and a long name."
            h.skills.create(f"skill-{number}", f"---\nname: skill-{number}\ndescription: {written}\n---\n\n1. Do it.\n")
        with h.session() as session:
            full = session.working_memory()
        assert bare.window == full.window == 32_768
        assert bare["system"].used < full["system"].used
        for plan in (bare, full, h.working_memory()):
            assert plan["system"].over == 0
            assert plan.overflows == ()
            assert sum(use.room for use in plan.uses) <= plan.window
    with Herma.open(home, flags={"context.shares": "system=8"}) as h, h.session() as session:
        assert session.working_memory()["system"].room == int(0.08 * 32_768), "who sets a share means it"
