"""The index over a real transcript: what is written is found, what is purged is not, what is deleted may come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from herma import Herma
from herma.index.types import Terms

DAY = 86_400.0


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def herma(home: Path, clock: Clock) -> Iterator[Herma]:
    with Herma.open(home, clock=clock) as opened:
        yield opened


def found(herma: Herma, word: str) -> list[int]:
    assert herma.index.catch_up() == 0
    return [c.message_id for c in herma.index.find(Terms(any_of=((word,),)), 50).candidates]


def test_text_tool_names_and_arguments_are_found(herma: Herma) -> None:
    session = herma.transcripts.start(source="test")
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "src/login.py"}'}}
    ids = herma.transcripts.append(
        session,
        [
            {"role": "user", "content": "fix the getCompressionTip bug"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "name": "read_file", "content": "东京 def login(): pass"},
        ],
    )
    assert found(herma, "compression") == [ids[0]]
    assert found(herma, "src/login.py") == [ids[1]]
    assert sorted(found(herma, "read_file")) == [ids[1], ids[2]]
    assert found(herma, "东京") == [ids[2]]
    assert herma.index.verify().trouble == ""


def test_purged_sessions_leave_the_index(herma: Herma, clock: Clock) -> None:
    keep, drop = herma.transcripts.start(source="test"), herma.transcripts.start(source="test")
    (kept,) = herma.transcripts.append(keep, [{"role": "user", "content": "hello there"}])
    herma.transcripts.append(drop, [{"role": "user", "content": "hello again"}])
    assert len(found(herma, "hello")) == 2
    herma.transcripts.delete(drop)
    clock.now += 365 * DAY
    herma.transcripts.purge_expired()
    assert found(herma, "hello") == [kept]
    assert herma.index.verify().trouble == ""
    assert herma.index.status().messages == 1


def test_large_payloads_are_indexed_in_full(herma: Herma) -> None:
    session = herma.transcripts.start(source="test")
    text = "beginning " + "filler words all along " * 20_000 + " needle at the end"
    (message,) = herma.transcripts.append(session, [{"role": "tool", "content": text}])
    assert found(herma, "needle") == [message]


def test_what_cannot_be_written_in_utf8_does_no_harm(herma: Herma) -> None:
    session = herma.transcripts.start(source="test")
    ids = herma.transcripts.append(session, [{"role": "user", "content": "odd \ud800 half and \x00 nothing"}])
    assert found(herma, "half") == ids
    assert herma.index.verify().trouble == ""
