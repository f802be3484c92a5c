"""Guests that fail, hang or talk nonsense: what the guard counts, when it leaves them out, and when they come back."""

from __future__ import annotations

import threading

import pytest

from herma.testing import FixedClock
from herma.worker import PAUSE, Guard, Trouble


def fail() -> str:
    raise LookupError("no\n  idea")


def test_an_answer_is_an_answer() -> None:
    guard = Guard("guest")
    assert guard.ask("it", lambda: 7, 0, within=30) == 7
    assert guard.ask("it", lambda: 8, 0) == 8
    assert (guard.health.state, guard.health.asked, guard.health.failures) == ("well", 2, 0)


@pytest.mark.parametrize("within", [None, 30.0])
def test_a_failure_is_caught_counted_and_shown(within: float | None) -> None:
    shown: list[Trouble] = []
    guard = Guard("guest", shown=shown.append)
    assert guard.ask("it", fail, "instead", within=within) == "instead"
    assert shown == [Trouble("guest", "it", "LookupError: no idea")]
    assert guard.health.last == shown[0]


def test_what_a_person_does_is_no_failure_of_a_guest() -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    guard = Guard("guest")
    with pytest.raises(KeyboardInterrupt):
        guard.ask("it", interrupted, "")
    assert guard.ask("it", interrupted, "instead", within=30) == "instead", "in its own thread nobody typed it"


def test_one_that_hangs_is_asked_again_when_it_is_back() -> None:
    let_go = threading.Event()
    guard = Guard("guest")

    def slow() -> str:
        let_go.wait(30)
        return "late"

    assert guard.ask("it", slow, "", within=0.01) == ""
    assert guard.ask("it", lambda: "now", "", within=30) == ""
    assert guard.ask("news", lambda: "heard", "") == "heard", "news are not lost"
    assert (guard.health.state, guard.health.timeouts, guard.health.skipped) == ("busy", 1, 1)
    call = guard._running
    let_go.set()
    assert call is not None
    assert call.done.wait(30)
    assert guard.ask("it", lambda: "now", "", within=30) == "now"


def test_the_circuit_opens_and_tries_once_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FixedClock()
    monkeypatch.setattr("herma.worker.FAILURES", 3)
    guard = Guard("guest", clock=clock)
    asked = []

    def failing() -> None:
        asked.append(clock())
        raise OSError

    for _ in range(5):
        guard.ask("it", failing, None, within=30)
    assert len(asked) == 3
    assert [guard.health.state] == ["paused"]
    assert guard.left_out("it")
    assert not guard.left_out("something else")
    assert guard.ask("something else", lambda: 1, 0, within=30) == 1
    clock.advance(PAUSE + 1)
    for _ in range(3):
        guard.ask("it", failing, None, within=30)
    assert len(asked) == 4, "one try, then the pause begins again"
    clock.advance(PAUSE + 1)
    assert guard.ask("it", lambda: 1, 0, within=30) == 1
    guard.ask("it", failing, None, within=30)
    assert guard.health.state == "well"
