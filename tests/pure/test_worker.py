"""Background work in process: order, deadlines, cancelling, failures, the end."""

from __future__ import annotations

import threading

from herma.worker import Worker

LONG = 10.0


def test_what_matters_more_goes_first_else_what_came_first() -> None:
    worker, done, gate = Worker(), list[str](), threading.Event()
    worker.submit("hold", lambda _: done.clear() if gate.wait(LONG) else None)
    for name, priority in (("b", 1), ("c", 1), ("a", 0), ("d", 2)):
        worker.submit(name, lambda _, name=name: done.append(name), priority=priority)  # type: ignore[misc]
    gate.set()
    assert worker.wait(LONG)
    assert done == ["a", "b", "c", "d"]
    assert worker.close(LONG) == []


def test_a_failure_is_counted_and_shown_and_ends_nothing() -> None:
    shown: list[tuple[str, str]] = []
    worker, done = Worker(failed=lambda what, why: shown.append((what, why))), list[int]()

    def broken(_: threading.Event) -> None:
        raise ValueError("no such\nthing")

    job = worker.submit("broken", broken)
    worker.submit("next", lambda _: done.append(1))
    assert worker.wait(LONG)
    assert (shown, done) == ([("broken", "ValueError: no such thing")], [1])
    assert job is not None
    assert job.state == "failed"
    health = worker.health
    assert (health.done, health.failed, health.last_failure) == (1, 1, "broken: ValueError: no such thing")
    worker.close(LONG)


def test_a_deadline_and_a_cancellation_ask_a_job_to_stop() -> None:
    worker, stopped = Worker(), list[bool]()
    worker.submit("late", lambda stop: stopped.append(stop.wait(LONG)), deadline=0.01)
    assert worker.wait(LONG)
    begun = threading.Event()

    def work(stop: threading.Event) -> None:
        begun.set()
        stopped.append(stop.wait(LONG))

    worker.submit("mine", work, owner="me")
    begun.wait(LONG)
    waiting = worker.submit("mine too", lambda _: stopped.append(False), owner="me")
    other = worker.submit("theirs", lambda _: None, owner="you")
    assert worker.cancel("me") == 2
    assert worker.wait(LONG)
    assert stopped == [True, True]
    assert waiting is not None
    assert other is not None
    assert (waiting.state, other.state) == ("dropped", "done")
    worker.close(LONG)


def test_what_is_for_later_is_not_waited_for_and_dropped_at_the_end() -> None:
    worker, done = Worker(), list[int]()
    later = worker.submit("later", lambda _: done.append(1), after=LONG * 10)
    assert worker.wait(LONG)
    assert worker.close(LONG) == ["later"]
    assert later is not None
    assert (later.state, later.over.is_set(), done) == ("dropped", True, [])
    assert worker.submit("after the end", lambda _: None) is None
    soon = Worker()
    at_once = soon.submit("soon", lambda _: done.append(2), after=0.01)
    assert at_once is not None
    assert at_once.over.wait(LONG)
    assert done == [2]
    soon.close(LONG)


def test_the_end_drains_then_stops() -> None:
    worker, done = Worker(), list[str]()
    begun = threading.Event()

    def long(stop: threading.Event) -> None:
        begun.set()
        done.append("stopped" if stop.wait(LONG) else "in time")

    worker.submit("long", long)
    worker.submit("behind it", lambda _: done.append("never"))
    begun.wait(LONG)
    assert sorted(worker.close(0.01)) == ["behind it", "long"]
    assert done == ["stopped"]
    assert worker.close(0.01) == []


def test_a_thread_only_while_there_is_work() -> None:
    worker = Worker("herma: only while there is work")

    def names() -> set[str]:
        return {thread.name for thread in threading.enumerate()}

    assert "herma: only while there is work" not in names()
    seen: list[bool] = []
    worker.submit("look", lambda _: seen.append("herma: only while there is work" in names()))
    assert worker.wait(LONG)
    assert seen == [True]
    worker.close(LONG)
    assert "herma: only while there is work" not in names()
