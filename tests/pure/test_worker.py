"""Background work: order, bounds, deadlines, cancelling, failures, the end; questions; parts that are made once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from herma.errors import StoreError
from herma.features import lazy_property
from herma.worker import BackgroundCall, Job, Lane, Worker, WorkerHealth

LONG = 10.0


def held(lane: Lane) -> threading.Event:
    """Keep the lane busy until the event is set."""
    begun, gate = threading.Event(), threading.Event()

    def hold(_: threading.Event) -> None:
        begun.set()
        gate.wait(LONG)

    lane.submit("hold", hold)
    assert begun.wait(LONG)
    return gate


def submitted(job: Job | None) -> Job:
    assert job is not None
    return job


class Whole:
    """An object with parts."""

    @lazy_property
    def first(self) -> object:
        """What it is."""
        self.waiting.wait(LONG)  # until all want it
        return object()

    @lazy_property
    def second(self) -> tuple[object, object]:
        return self.first, self.first

    def __init__(self) -> None:
        self.waiting = threading.Event()


def test_threads_that_come_at_the_same_time_get_the_same_part() -> None:
    whole = Whole()
    with ThreadPoolExecutor(8) as pool:
        wanted = [pool.submit(lambda: whole.first) for _ in range(8)]
        assert "first" not in vars(whole)
        whole.waiting.set()
        assert len({id(one.result()) for one in wanted}) == 1
    assert whole.second == (whole.first, whole.first)
    assert Whole.first.__doc__ == "What it is."


def test_jobs_run_by_priority_then_in_order_and_the_thread_ends() -> None:
    lane, done = Lane("the order"), list[str]()
    names: set[str] = set()
    gate = held(lane)
    for name, priority in (("b", 1), ("c", 1), ("a", 0), ("d", 2)):
        lane.submit(name, lambda _, name=name: done.append(name), priority=priority)  # type: ignore[misc]
    lane.submit("names", lambda _: names.update(one.name for one in threading.enumerate()), priority=3)
    assert lane.waiting == 5
    assert not lane.wait(0.01), "waiting has an end"
    gate.set()
    assert lane.wait(LONG)
    assert done == ["a", "b", "c", "d"]
    for number in range(50):
        lane.submit("more", lambda _, number=number: done.append(str(number)))  # type: ignore[misc]
    assert lane.wait(LONG)
    assert done[4:] == [str(number) for number in range(50)]
    assert lane.close(LONG) == []
    assert "herma: the order" in names
    assert "herma: the order" not in {one.name for one in threading.enumerate()}
    assert lane.submit("after the end", lambda _: None) is None


def test_a_failure_is_counted_and_shown_and_stops_nothing() -> None:
    shown: list[tuple[str, str, str]] = []
    worker, done = Worker(lambda *failure: shown.append(failure)), list[int]()
    lane = worker.lane("review")

    def broken(_: threading.Event) -> None:
        raise StoreError("no such\nthing")

    job = submitted(lane.submit("broken", broken))
    lane.submit("next", lambda _: done.append(1))
    assert lane.wait(LONG)
    assert (shown, done) == ([("review", "broken", "StoreError: no such thing")], [1])
    assert job.state == "failed"
    assert worker.health() == {"review": WorkerHealth(1, 1, last_failure="broken: StoreError: no such thing")}
    assert worker.close() == []


def test_a_deadline_and_a_cancellation_ask_a_job_to_stop() -> None:
    lane, stopped = Lane("x"), list[bool]()
    lane.submit("late", lambda stop: stopped.append(stop.wait(LONG)), deadline=0.01)
    assert lane.wait(LONG)
    begun = threading.Event()

    def work(stop: threading.Event) -> None:
        begun.set()
        stopped.append(stop.wait(LONG))

    lane.submit("mine", work, owner="me")
    begun.wait(LONG)
    waiting = submitted(lane.submit("mine too", lambda _: stopped.append(False), owner="me"))
    other = submitted(lane.submit("theirs", lambda _: None, owner="you"))
    assert lane.cancel("me") == 2
    assert lane.wait(LONG)
    assert stopped == [True, True]
    assert (waiting.state, other.state) == ("dropped", "done")
    lane.close(LONG)


def test_a_job_for_later_is_not_waited_for_may_be_replaced_and_is_dropped_at_the_end() -> None:
    lane, done = Lane("x"), list[int]()
    first = submitted(lane.submit("later", lambda _: done.append(1), after=LONG * 10))
    later = submitted(lane.submit("later", lambda _: done.append(1), after=LONG * 10, replacing=True))
    assert (first.state, first.over.is_set(), lane.waiting) == ("dropped", True, 1)
    at_once = submitted(lane.submit("soon", lambda _: done.append(2), after=0.01))
    assert at_once.over.wait(LONG)
    assert lane.wait(LONG)
    assert lane.close(LONG) == ["later"]
    assert (later.state, later.over.is_set(), done) == ("dropped", True, [2])


def test_the_end_drains_then_stops() -> None:
    worker, done = Worker(), list[str]()
    lane, begun = worker.lane("x"), threading.Event()

    def long(stop: threading.Event) -> None:
        begun.set()
        done.append("stopped" if stop.wait(LONG) else "in time")

    lane.submit("long", long)
    lane.submit("behind it", lambda _: done.append("never"))
    begun.wait(LONG)
    assert sorted(worker.close(0.01)) == ["behind it", "long"]
    assert done == ["stopped"]
    assert worker.close(0.01) == []


def test_a_full_lane_drops_the_oldest_and_says_so() -> None:
    lost: list[str] = []
    lane = Worker().lane("stuck", most=3, lost=lost.append)
    gate = held(lane)
    for name in "abcde":
        lane.submit(name, lambda _: None)
    assert lost == ["a", "b"]
    assert sorted(lane.close(0.01, 0.0)) == ["c", "d", "e", "hold"]
    gate.set()


def test_lanes_do_not_wait_for_each_other() -> None:
    worker = Worker()
    gate = held(worker.lane("slow"))
    quick = worker.lane("quick")
    assert submitted(quick.submit("x", lambda _: None)).over.wait(LONG)
    gate.set()
    worker.close(LONG)


def test_a_call_answers_raises_or_is_left_behind() -> None:
    assert BackgroundCall("x", lambda: 7).start().answer(LONG) == 7
    with pytest.raises(ZeroDivisionError):
        BackgroundCall("x", lambda: 1 // 0).start().answer(LONG)
    gate = threading.Event()
    slow = BackgroundCall("slow", lambda: gate.wait(LONG)).start()
    with pytest.raises(TimeoutError, match=r"^slow did not answer within 0.01 s\.$"):
        slow.answer(0.01)
    gate.set()
    assert slow.answer(LONG)
