"""Two programs that go on with the same session: each hears what the other said, and is told what the other did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from herma import Add, Herma, Message, Session
from herma.errors import StoreChanged

CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}
OTHER = """
import json, sys
from herma import Herma

home, session_id, orders = sys.argv[1:]
with Herma.open(home) as h:
    session = h.session(resume=session_id)
    for order in json.loads(orders):
        getattr(session, order[0])(*order[1:])
    session.close()
"""


def turn(session: Session, said: str, reply: str) -> list[dict[str, Any]]:
    request = session.before_model(said)
    session.after_model(reply)
    return request


def texts(request: list[dict[str, Any]]) -> list[str]:
    return [str(message["content"]) for message in request[1:]]


def in_another_process(home: Path, session: str, *orders: list[Any]) -> None:
    """Resume the session in a process of its own and do these things there."""
    done = subprocess.run(
        [sys.executable, "-c", OTHER, str(home), session, json.dumps(orders)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_another_process_said_comes_at_the_end_as_it_was_sent_there(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.session()
        first = turn(session, "one", "1")
        h.memory.apply("memory", Add("The port is 8080."))  # the next turn, whoever's it is, tells of it
        in_another_process(home, session.id, ["before_model", "two"], ["after_model", "2"])
        third = session.before_model("three")
        session.after_model("3")
        assert [text.partition("\n")[0] for text in texts(third)] == ["one", "1", "two", "2", "three"]
        assert third[: len(first)] == first
        assert "8080" in texts(third)[2], "as it was sent there, with what was told there"
        assert "8080" not in texts(third)[4], "and not told twice"
        assert texts(session.before_model("four"))[:-1] == [*texts(third), "3"]
        session.after_model("4")
        assert [message.content for message in session.messages] == ["one", "1", "two", "2", "three", "3", "four", "4"]
        again = h.session(resume=session.id)
        assert [message.id for message in again.messages] == [message.id for message in session.messages]
        session.close()


def test_they_may_take_turns_for_long(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "0", "a")
        b = two.session(resume=a.id)
        for number in range(1, 12):
            turn(b if number % 3 else a, str(number), "a" if number % 3 == 0 else "b")
        assert texts(a.before_model("who?"))[:-1] == texts(b.before_model("me"))[:-1]
        assert texts(a.before_model())[::2] == [*map(str, range(12)), "who?"]
        a.after_model("you")
        b.after_model("me")
        a.close()
        b.close()


def test_a_turn_that_the_other_has_not_finished_waits_and_tools_stay_with_their_results(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "one", "1")
        b = two.session(resume=a.id)
        b.before_model("run it")
        b.after_model({"role": "assistant", "content": None, "tool_calls": [CALL]})
        second = turn(a, "two", "2")
        assert texts(second) == ["one", "1", "two"]
        b.after_model(
            [{"role": "tool", "tool_call_id": "call_1", "content": "it ran"}, {"role": "assistant", "content": "Ran."}]
        )
        third = a.before_model("three")
        assert third[: len(second)] == second
        assert texts(third)[3:] == ["2", "run it", "None", "it ran", "Ran.", "three"]
        a.after_model("3")
        kept = one.session(resume=a.id)
        roles = [message["role"] for message in kept.before_model("four")[1:]]
        assert roles == [
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "user",
            "assistant",
            "assistant",
            *["user", "assistant", "user"],
        ]
        kept.close()
        a.close()
        b.close()


def test_both_at_once_each_in_its_own_order(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "zero", "0")
        b = two.session(resume=a.id)
        a.before_model("from a")
        b.before_model("from b")
        b.after_model("to b")
        a.after_model("to a")
        assert texts(a.before_model("on"))[2:] == ["from a", "to a", "from b", "to b", "on"]
        a.after_model("a on")
        assert texts(b.before_model("on too"))[2:] == ["from b", "to b", "from a", "to a", "on", "a on", "on too"]
        b.after_model("b on")
        a.close()
        b.close()


@pytest.mark.parametrize("in_place", [True, False])
def test_a_conversation_that_the_other_shortened_is_not_gone_on_with(home: Path, in_place: bool) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "one", "1")
        b = two.session(resume=a.id)
        b.continue_with([Message("user", "In short: one."), Message("assistant", "Yes.")], in_place=in_place)
        with pytest.raises(StoreChanged, match="shortened this conversation") as caught:
            a.before_model("two")
        assert b.id in caught.value.hint
        assert "\n" not in str(caught.value)
        assert [message.content for message in one.transcripts.messages(b.id)] == ["In short: one.", "Yes."]
        again = one.session(resume=a.id)
        assert again.id == b.id
        assert texts(turn(again, "two", "2")) == ["In short: one.", "Yes.", "two"]
        again.close()
        a.close()
        b.close()


def test_turns_that_the_other_took_back_are_not_gone_on_from(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        for number in range(3):
            turn(a, f"q{number}", f"a{number}")
        b = two.session(resume=a.id)
        assert b.rewind(2) == "q1"
        turn(b, "otherwise", "fine")
        with pytest.raises(StoreChanged, match="taken back the last 2 turns"):
            a.before_model("q3")
        with pytest.raises(StoreChanged, match="taken back"):
            a.rewind()
        again = one.session(resume=a.id)
        assert texts(turn(again, "q3", "a3")) == ["q0", "a0", "otherwise", "fine", "q3"]
        again.close()
        a.close()
        b.close()


def test_a_conversation_that_goes_on_under_another_id_says_where(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session(system_message="Be brief.")
        turn(a, "one", "1")
        b = two.session(resume=a.id, system_message="Be kind.")
        assert b.id != a.id
        turn(a, "two", "2")  # nothing of the other is stored yet
        assert texts(turn(b, "three", "3")) == ["one", "1", "two", "2", "three"]
        stored = [message.content for message in one.transcripts.messages(a.id)]
        with pytest.raises(StoreChanged, match=f"goes on as session {b.id}"):
            a.before_model("four")
        assert [message.content for message in one.transcripts.messages(a.id)] == stored
        a.close()
        b.close()


def test_a_turn_that_was_under_way_ends_before_what_the_other_said(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "one", "1")
        b = two.session(resume=a.id)
        a.before_model("two, never answered")
        turn(b, "three", "3")
        request = a.before_model("four")
        assert texts(request)[2:] == ["two, never answered", "[This reply was interrupted.]", "three", "3", "four"]
        a.after_model("4")
        b.rewind(2)
        kept = [message.content for message in one.transcripts.messages(a.id)]
        with pytest.raises(StoreChanged, match="taken back"):
            a.before_model("six")
        assert [message.content for message in one.transcripts.messages(a.id)] == kept, "nothing was written"
        a.close()
        b.close()


def test_taking_back_takes_back_the_last_turn_of_the_conversation_whoever_said_it(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        turn(a, "one", "1")
        b = two.session(resume=a.id)
        turn(b, "two", "2")
        assert a.rewind() == "two"
        assert texts(turn(a, "two, again", "2")) == ["one", "1", "two, again"]
        a.close()
        b.close()


AT_ONCE = """
import sys
from herma import Herma
from herma.testing.contracts import watch_prefixes

home, session_id, name = sys.argv[1:]
with watch_prefixes(), Herma.open(home) as h:
    session = h.session(resume=session_id)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(12):
        session.before_model(f"{name} asks {number}")
        if number % 4 == 3:
            call = {"id": f"{name}{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            session.after_model({"role": "assistant", "content": None, "tool_calls": [call]})
            session.after_model({"role": "tool", "tool_call_id": f"{name}{number}", "content": "it ran"})
            session.before_model()
        session.after_model(f"{name} hears {number}")
    session.close()
"""


def test_two_processes_at_the_same_time_lose_nothing_and_only_grow(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.session()
        turn(session, "begin", "begun")
        session.close()
        programs = [
            subprocess.Popen(
                [sys.executable, "-c", AT_ONCE, str(home), session.id, name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for name in ("a", "b")
        ]
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        ended = [program.communicate("go\n", timeout=120) for program in programs]
        assert [program.returncode for program in programs] == [0, 0], [err for _, err in ended]
        again = h.session(resume=session.id)
        request = again.before_model("all?")
        asked = [text for text in texts(request) if " asks " in text]
        assert sorted(asked) == sorted(f"{name} asks {number}" for name in "ab" for number in range(12))
        for at, message in enumerate(request):
            if message.get("tool_calls"):
                assert request[at + 1]["tool_call_id"] == message["tool_calls"][0]["id"]
        again.after_model("all.")
        again.close()
