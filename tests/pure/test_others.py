"""Two programs in one session: which messages of the other are taken in, and what a model accepts of what is stored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.session import missing_turns, settled
from herma.transcript.messages import is_complete, sendable
from herma.types import Message


def said(number: int, kind: str) -> Message:
    """`u`: the user, `r`: a reply, `c1`: a call, `t1`: what it returned."""
    match kind[0]:
        case "u":
            return Message("user", f"question {number}", id=number)
        case "r":
            return Message("assistant", f"answer {number}", id=number)
        case "c":
            return Message("assistant", None, tool_calls=({"id": kind[1:]},), id=number)
        case _:
            return Message("tool", "done", tool_call_id=kind[1:], id=number)


def talk(kinds: str) -> list[Message]:
    return [said(number, kind) for number, kind in enumerate(kinds.split(), 1)]


def ids(messages: list[Message]) -> list[int]:
    return [message.id for message in messages]


KINDS = st.lists(st.sampled_from(["u", "r", "c1", "c2", "t1", "t2"]), max_size=14).map(" ".join)


@pytest.mark.parametrize(
    ("stored", "mine", "fresh"),
    [
        *((more, (1, 2), []) for more in ("u r", "u r u", "u r u c1", "u r u c1 t1")),
        ("u r u c1 t1 r", (1, 2), [3, 4, 5, 6]),
        ("u r u r u", (1, 2), [3, 4]),
        ("u u r r", (1, 4), [2, 3]),  # what is only known to others may stand anywhere
    ],
)
def test_only_whole_turns_of_others_are_taken_in(stored: str, mine: tuple[int, ...], fresh: list[int]) -> None:
    assert ids(missing_turns(talk(stored), [one for one in talk(stored) if one.id in mine])) == fresh


def test_a_turn_of_one_that_was_killed_comes_with_the_next_that_is_whole() -> None:
    assert settled(talk("u u r")) == 3
    assert settled(talk("u c1 u r")) == 0, "a tool may still answer"
    assert settled(talk("u c1 u r t1 r")) == 6


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ("u c1 u r t1 r", [1, 2, 5, 3, 4, 6]),
        ("u c1 u c2 t1 t2 r r", [1, 2, 5, 3, 4, 6, 7, 8]),
        ("u c1 u r", [1, 3, 4]),
        ("u c1", [1, 2]),
        ("u r t1", [1, 2]),
    ],
)
def test_a_result_stands_behind_its_call_and_a_call_without_one_is_left_out(stored: str, sent: list[int]) -> None:
    assert ids(sendable(talk(stored))) == sent


@given(KINDS, st.sets(st.integers(1, 14)))
def test_nothing_is_taken_in_twice_and_all_of_it_once_everybody_has_finished(kinds: str, mine: set[int]) -> None:
    stored = talk(kinds)
    own = [message for message in stored if message.id in mine]
    fresh = missing_turns(stored, own)
    assert not {message.id for message in fresh} & mine
    assert not fresh or is_complete(fresh[-1:]) or fresh[-1].role == "tool"
    assert missing_turns(stored, [*own, *fresh]) == []
