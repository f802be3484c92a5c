"""A part is made once, and when it is first used."""

from __future__ import annotations

import threading
import time

from herma.features import lazy_property


class Whole:
    def __init__(self) -> None:
        self.made: list[object] = []

    @lazy_property
    def first(self) -> object:
        """What it is."""
        time.sleep(0.01)
        self.made.append(object())
        return self.made[-1]

    @lazy_property
    def second(self) -> tuple[object, object]:
        return self.first, self.first


def test_threads_that_come_at_the_same_time_get_the_same_part() -> None:
    whole, got = Whole(), []
    threads = [threading.Thread(target=lambda: got.append(whole.first)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == whole.made * 8
    assert len(whole.made) == 1


def test_a_part_may_need_another_and_every_whole_has_its_own() -> None:
    one, other = Whole(), Whole()
    assert "first" not in vars(one)
    assert one.second == (one.first, one.first)
    assert vars(one)["first"] is one.first
    assert one.first is not other.first
    assert Whole.first.__doc__ == "What it is."
