"""Looking back is killed, or two processes would do it at once: nothing half-written, nothing done twice or always."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import homes
from tests.faults.crashing import NEEDS_FORK, forked
from tests.homes import talk

from herma import Herma, Who
from herma.review.rows import Review, ReviewAction, ReviewRows
from herma.store.sqlite import SqliteDatabase
from herma.testing import Answer, Asked, ScriptedModel
from herma.transcript.log import Transcripts

LONG = 60.0
HOUR = 3600.0
TEA = "The user drinks green tea."


def killed(home: Path, server: ScriptedModel, *said: str, asked: int, at_end: bool = False) -> None:
    """A process of its own talks, and is killed while the model thinks about the nth question; 0: when it ends."""
    every = 0 if at_end else 2
    flags: dict[str, Any] = {"memory__nudge_interval": every, "review__at_end": at_end, "review__min_turns": 2}

    def work() -> None:
        real = Transcripts.end

        def end(*args: Any) -> None:
            real(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        if not asked:
            Transcripts.end = end  # type: ignore[assignment, method-assign]
        with homes.opened(home, server, clock=time.time, review__drain=LONG, **flags) as h, h.session() as s:
            talk(s, *said)
            if not at_end:
                time.sleep(LONG)

    child = forked(work)
    until = time.monotonic() + LONG
    while asked and len(server.requests) < asked and time.monotonic() < until:
        time.sleep(0.01)
    if asked:
        os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert len(server.requests) == asked


@contextmanager
def later(home: Path, server: ScriptedModel | None, by: float = HOUR, **flags: Any) -> Iterator[Herma]:
    flags = {"memory__nudge_interval": 0, "review__drain": 20} | flags
    with homes.opened(home, server, clock=lambda: time.time() + by, **flags) as h:
        yield h


def hi(h: Herma) -> None:
    with h.session() as s:
        talk(s, "hi")
        assert h.reviews.wait(LONG)


def adding(content: str) -> Answer:
    return Answer.calling("memory", {"action": "add", "target": "user", "content": content})


class TestKilled:
    """What the next program makes of it."""

    pytestmark = NEEDS_FORK

    def test_between_two_writes_the_first_is_whole_and_it_is_not_repeated(self, home: Path) -> None:
        with ScriptedModel([adding(TEA), Answer("late", wait=LONG)]) as server:
            killed(home, server, "I drink green tea", "and I like it", asked=2)
            with later(home, server) as h:
                (change,) = h.memory.history("user")
                assert (change.author.who, h.memory.entries("user")) == (Who.REVIEW, [TEA])
                hi(h)
                (review,) = h.reviews.log()
                assert (review.state, review.tries, review.notice) == ("failed", 1, "The program ended while it ran.")
                assert len(server.requests) == 2
                h.memory.undo(change.id)
                assert h.memory.entries("user") == []
                assert h.doctor().healthy

    def test_at_the_end_of_a_session_it_is_made_up_for(self, home: Path) -> None:
        with ScriptedModel([Answer("late", wait=LONG)]) as server:
            killed(home, server, "I drink green tea", "and I like it", asked=1, at_end=True)
            with later(home, server, by=0) as h:  # for all we know, that process is still at it
                hi(h)
                assert len(server.requests) == 1
            server.then(json.dumps({"memory": [{"action": "add", "target": "user", "content": TEA}]}))
            with later(home, server) as h:
                hi(h)
                (review,) = h.reviews.log()
                assert (review.kind, review.state, review.tries) == ("end", "done", 2)
                assert h.memory.entries("user") == [TEA]
                hi(h)
                assert len(server.requests) == 2

    def test_just_after_the_end_was_stored_a_review_is_due(self, home: Path, server: ScriptedModel) -> None:
        killed(home, server, "I drink green tea", "and I like it", asked=0, at_end=True)
        with later(home, server) as h:
            (session,) = h.transcripts.list()
            assert (bool(session.ended), h.reviews.status().owed) == (True, 1)

    def test_what_the_user_asked_to_remember_is_kept_by_the_next(self, home: Path) -> None:
        with ScriptedModel([Answer("late", wait=LONG)]) as server:
            killed(home, server, "remember that my shoe size is 43", asked=1)
        with later(home, None) as h:  # without a model
            hi(h)
            assert h.memory.entries("user") == ["My shoe size is 43"]
            assert [(one.kind, one.state, one.tries) for one in h.reviews.log()] == [("remember", "done", 2)]


def test_two_processes_look_back_at_one_conversation_once(home: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(_: Asked) -> Answer:
        begun.set()
        assert go_on.wait(LONG)
        return Answer("nothing")

    with (
        ScriptedModel([slow]) as server,
        later(home, server, memory__nudge_interval=2, review__at_end=False) as one,
        later(home, server, memory__nudge_interval=1, review__at_end=False) as other,
    ):
        s = one.session()
        talk(s, "I drink green tea", "yes")
        assert begun.wait(LONG)
        with other.session(resume=s.id) as again:
            talk(again, "hello from elsewhere")
            assert other.reviews.wait(LONG)
        go_on.set()
        assert one.reviews.wait(LONG)
        assert len(server.requests) == 1
        s.close()


@pytest.fixture
def rows(home: Path) -> Iterator[tuple[ReviewRows, ReviewRows]]:
    """The same rows, as two processes have them."""
    databases = [SqliteDatabase(home / "herma.db"), SqliteDatabase(home / "herma.db")]
    try:
        yield ReviewRows(databases[0]), ReviewRows(databases[1])
    finally:
        for database in databases:
            database.close()


def review(last: int = 10, **fields: Any) -> Review:
    return replace(Review("c", "s", "end", "closed", 1, last, 1.0), **fields)


def test_a_claim_is_a_lease(rows: tuple[ReviewRows, ReviewRows]) -> None:
    one, other = rows
    owed = one.owe(review())
    assert one.owe(review(12)).id == owed.id
    (due,) = other.owed(2.0, 3, 10)
    assert (due.last_message, due.state) == (12, "due")
    claimed = one.claim(due, 2.0, 100.0)
    assert claimed is not None
    assert (claimed.state, claimed.tries) == ("running", 1)
    assert other.claim(due, 3.0, 100.0) is None
    assert other.claim(review(20, kind="turn"), 3.0, 100.0) is None
    assert other.owed(3.0, 3, 10) == []
    (left,) = other.owed(103.0, 3, 10)  # its process was killed
    taken = other.claim(left, 103.0, 100.0)
    assert taken is not None
    assert taken.tries == 2
    other.end(replace(taken, state="done", ended=104.0))
    assert one.covered("c") == 12
    assert one.claim(review(11), 105.0, 100.0) is None
    assert one.claim(review(13), 105.0, 100.0) is not None
    assert [each.last_message for each in one.log(10)] == [13, 12]
    assert one.log(10, "other") == []
    assert one.covered("other") == 0


def test_what_a_later_one_covered_is_not_owed_for_ever(rows: tuple[ReviewRows, ReviewRows]) -> None:
    one, _ = rows
    owed = one.owe(review(10))
    later_one = one.claim(review(20), 2.0, 1.0)
    assert later_one is not None
    one.end(replace(later_one, state="done"))
    assert one.claim(owed, 9.0, 1.0) is None
    assert one.owed(9.0, 3, 10) == []


def test_after_enough_tries_it_is_over(rows: tuple[ReviewRows, ReviewRows]) -> None:
    one, _ = rows
    owed = one.owe(review())
    for number in range(3):
        claimed = one.claim(owed, number * 10.0, 5.0)
        assert claimed is not None
    assert one.owed(100.0, 3, 10) == []
    (failed,) = one.log(10)
    assert (failed.state, failed.tries, failed.notice) == ("failed", 3, "The program ended while it ran.")


def test_each_request_to_remember_is_its_own(rows: tuple[ReviewRows, ReviewRows]) -> None:
    one, _ = rows
    first, second = one.owe(review(3, kind="remember")), one.owe(review(5, kind="remember"))
    assert first.id != second.id
    for each in (second, first):
        claimed = one.claim(each, 2.0, 5.0)
        assert claimed is not None
        one.end(replace(claimed, state="done"))


def test_old_ones_go_unless_they_can_be_undone_or_say_how_far_it_got(
    rows: tuple[ReviewRows, ReviewRows],
) -> None:
    one, other = rows

    def ended(last: int, at: float, **fields: Any) -> int:
        claimed = one.claim(review(last, **fields), at, 1.0)
        assert claimed is not None
        result = fields.get("actions", ())
        one.end(replace(claimed, state="done", ended=at, actions=result))
        return claimed.id

    idle = ReviewAction("memory add", "refused", "x", "user", "known", "It is there.")
    wrote = ended(5, 10.0, actions=(ReviewAction("memory add", "applied", "x", "user", change=1), idle))
    staged = ended(6, 10.0, kind="turn", actions=(ReviewAction("skill create", "staged", pending=1),))
    ended(10, 11.0, actions=(idle,))
    furthest = ended(20, 12.0)
    young = ended(30, 99.0, kind="turn")
    waits = one.owe(review(40, at=1.0)).id
    assert other.prune(50.0) == 1
    assert other.prune(50.0) == 0
    assert [each.id for each in one.log(10)] == [young, furthest, staged, wrote]
    assert [each.id for each in one.owed(100.0, 3, 10)] == [waits]
    assert one.covered("c") == 40
    assert other.prune(1e9) == 0  # each is the last of its kind, wrote something, or waits
