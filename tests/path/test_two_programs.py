"""Two programs that go on with the same session: each hears what the other said, and is told what the other did."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files, talk, tool_messages

from herma import Add, Herma, Message, Session
from herma.errors import StoreChanged

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


@pytest.fixture
def pair(home: Path) -> Iterator[tuple[Herma, Session, Session]]:
    """A home, a session of it after one turn, and the same session in another program."""
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session()
        talk(a, "one", reply="1")
        b = two.session(resume=a.id)
        yield one, a, b
        a.close()
        b.close()


def contents(h: Herma, session: Session) -> list[object]:
    return [message.content for message in h.transcripts.messages(session.id)]


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


def test_what_another_process_said_comes_at_the_end_as_it_was_sent_there(h: Herma, home: Path) -> None:
    session = h.session()
    first = talk(session, "one", reply="1")
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


def test_a_turn_that_the_other_has_not_finished_waits_and_tools_stay_with_their_results(
    pair: tuple[Herma, Session, Session],
) -> None:
    one, a, b = pair
    asked, ran = tool_messages("run", {}, "it ran")
    talk(b, "run it", reply=asked)
    second = talk(a, "two", reply="2")
    assert texts(second) == ["one", "1", "two"]
    b.after_model([ran, {"role": "assistant", "content": "Ran."}])
    third = talk(a, "three", reply="3")
    assert third[: len(second)] == second
    assert texts(third)[3:] == ["2", "run it", "None", "it ran", "Ran.", "three"]
    with one.session(resume=a.id) as kept:
        roles = [message["role"][0] for message in kept.before_model("four")[1:]]
    assert "".join(roles) == "uauatuaauau", "the call before its result, whoever spoke between"


@pytest.mark.parametrize("in_place", [True, False])
def test_a_conversation_that_the_other_shortened_is_not_gone_on_with(
    pair: tuple[Herma, Session, Session], in_place: bool
) -> None:
    one, a, b = pair
    b.continue_with([Message("user", "In short: one."), Message("assistant", "Yes.")], in_place=in_place)
    with pytest.raises(StoreChanged, match="compressed this conversation") as caught:
        a.before_model("two")
    assert b.id in caught.value.hint
    assert "\n" not in str(caught.value)
    assert contents(one, b) == ["In short: one.", "Yes."]
    with one.session(resume=a.id) as again:
        assert again.id == b.id
        assert texts(talk(again, "two")) == ["In short: one.", "Yes.", "two"]


def test_turns_taken_back_are_those_of_the_conversation_whoever_said_them(
    pair: tuple[Herma, Session, Session],
) -> None:
    one, a, b = pair
    talk(b, "two", reply="2")
    assert a.rewind() == "two"
    assert texts(talk(a, "two, again", "three")) == ["one", "1", "two, again", "Fine.", "three"]
    with one.session(resume=a.id) as other:
        assert other.rewind(2) == "two, again"
        talk(other, "otherwise")
    for move, count in ((lambda: a.before_model("four"), "2 turns"), (a.rewind, "2 turns"), (b.rewind, "turn")):
        with pytest.raises(StoreChanged, match=f"removed the last {count}"):
            move()
    with one.session(resume=a.id) as again:
        assert texts(talk(again, "four")) == ["one", "1", "otherwise", "Fine.", "four"]


def test_a_conversation_that_goes_on_under_another_id_says_where(home: Path) -> None:
    with Herma.open(home) as one, Herma.open(home) as two:
        a = one.session(system_message="Be brief.")
        talk(a, "one", reply="1")
        b = two.session(resume=a.id, system_message="Be kind.")
        assert b.id != a.id
        talk(a, "two", reply="2")  # nothing of the other is stored yet
        assert texts(talk(b, "three")) == ["one", "1", "two", "2", "three"]
        stored = contents(one, a)
        with pytest.raises(StoreChanged, match=f"continues as session {b.id}"):
            a.before_model("four")
        assert contents(one, a) == stored
        a.close()
        b.close()


def test_a_turn_that_was_under_way_ends_before_what_the_other_said(pair: tuple[Herma, Session, Session]) -> None:
    one, a, b = pair
    a.before_model("two, never answered")
    talk(b, "three", reply="3")
    request = talk(a, "four")
    assert texts(request)[2:] == ["two, never answered", "[This reply was interrupted.]", "three", "3", "four"]
    b.rewind(2)
    kept = contents(one, a)
    with pytest.raises(StoreChanged, match="removed the last"):
        a.before_model("six")
    assert contents(one, a) == kept, "nothing was written"


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


@of_files
def test_two_processes_at_the_same_time_lose_nothing_and_only_grow(h: Herma, home: Path) -> None:
    session = h.session()
    talk(session, "begin")
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
