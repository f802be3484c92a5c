"""Work that nobody waits for: in order, counted where it fails, and never left hanging."""

from __future__ import annotations

import threading

import pytest

from herma.errors import StoreError
from herma.worker import Aside


def test_pieces_are_done_in_order() -> None:
    done: list[int] = []
    aside: Aside[int] = Aside(done.append, "test-aside")
    for number in range(50):
        aside.put(number)
    assert aside.wait(10)
    assert done == list(range(50))
    aside.put(99)
    assert aside.wait(10)
    assert done[-1] == 99


def test_a_failure_is_counted_and_ends_nothing() -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 1:
            raise StoreError("The disk is full.")
        done.append(number)

    aside: Aside[int] = Aside(work, "test-aside")
    for number in range(3):
        aside.put(number)
    assert aside.wait(10)
    assert (done, aside.failures, aside.trouble) == ([0, 2], 1, "The disk is full.")


def test_waiting_has_an_end() -> None:
    go_on = threading.Event()
    aside: Aside[int] = Aside(lambda _: go_on.wait(30), "test-aside")
    aside.put(1)
    assert not aside.wait(0.01)
    go_on.set()
    assert aside.wait(10)


def test_a_mistake_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: seen.append(told.exc_type))

    def work(number: int) -> None:
        raise ZeroDivisionError(number)

    aside: Aside[int] = Aside(work, "test-aside")
    for number in range(2):
        aside.put(number)
        assert aside.wait(10)
    for thread in [one for one in threading.enumerate() if one.name == "test-aside"]:
        thread.join(10)
    assert seen == [ZeroDivisionError] * 2
