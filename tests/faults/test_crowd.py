"""Many processes and threads on one home: nothing acknowledged is missing or there twice, nobody waits for ever."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from tests.homes import matrix

from herma import Add, Applied, Author, Herma, MemoryOp, Origin, Remove, Replace, Staged, Who
from herma.errors import UsageError
from herma.store.files import exclusive
from herma.store.sqlite import open_reader, open_writer
from herma.types import TARGETS, Target

from .crashing import together

BIG = {"memory.memory_char_limit": 1_000_000, "memory.user_char_limit": 1_000_000}
PROCESSES = 8


def own_entries(me: int, home: str, operations: int) -> tuple[dict[Target, set[str]], list[int]]:
    """Mixed operations, each on entries of this process only. → the entries that must be there, its changes."""
    chance = random.Random(100 + me)
    mine: dict[Target, set[str]] = {"memory": set(), "user": set()}
    changes: list[int] = []
    with Herma.open(home, flags=BIG) as h:
        for number in range(operations):
            target: Target = chance.choice(("memory", "user"))
            ops, wanted = draw(chance, me, number, mine[target])
            outcome = h.memory.apply(target, ops)
            assert isinstance(outcome, Applied), outcome
            mine[target] = wanted
            changes.append(outcome.change)
    return mine, changes


def draw(chance: random.Random, me: int, number: int, mine: set[str]) -> tuple[list[MemoryOp], set[str]]:
    new = f"<{me}.{number}>"
    old = chance.choice(sorted(mine)) if mine else None
    if old is None or len(mine) < 5:
        return [Add(new)], mine | {new}
    match chance.randrange(4):
        case 0:
            return [Add(new)], mine | {new}
        case 1:
            return [Remove(old)], mine - {old}
        case 2:
            return [Replace(old, new)], mine - {old} | {new}
        case _:
            also = f"<{me}.{number}b>"
            return [Remove(old), Add(new), Replace(new, also), Add(new)], mine - {old} | {new, also}


@pytest.mark.slow
@pytest.mark.parametrize("operations", matrix([100, 500], lambda operations: operations == 100))
def test_eight_processes_with_many_operations_each(home: Path, operations: int) -> None:
    given = [(me, str(home), operations) for me in range(PROCESSES)]
    with multiprocessing.get_context("forkserver").Pool(PROCESSES) as pool:
        results = pool.starmap_async(own_entries, given).get(timeout=250)
    acknowledged = Counter(change for _, changes in results for change in changes)
    assert acknowledged.total() == len(acknowledged) == PROCESSES * operations
    with Herma.open(home, flags=BIG) as h:
        for target in TARGETS:
            expected = Counter(entry for mine, _ in results for entry in mine[target])
            name = "MEMORY.md" if target == "memory" else "USER.md"
            assert Counter((home / "memories" / name).read_text().split("\n§\n")) == expected
            history = h.memory.history(target)
            before = ""
            for change in reversed(history):
                assert change.before == before
                before = change.after
        assert Counter(change.id for change in h.memory.history()) == acknowledged
    leftovers = {path.name for path in (home / "memories").iterdir()}
    assert leftovers == {"MEMORY.md", "MEMORY.md.lock", "USER.md", "USER.md.lock"}


def test_many_threads_share_one_herma(home: Path) -> None:
    def work(me: int) -> None:
        for number in range(20):
            assert h.memory.apply("memory", Add(f"<{me}.{number}>")).ok
            h.memory.entries("memory")
            h.session()
            if number % 5 == 0:
                h.memory.history(limit=3)

    with Herma.open(home, flags=BIG) as h:
        assert together(*(partial(work, me) for me in range(8))) == []
        assert sorted(h.memory.entries("memory")) == sorted(
            f"<{me}.{number}>" for me in range(8) for number in range(20)
        )
        assert len(h.memory.history()) == 160


def first_write(home: str, me: int, start: threading.Event) -> bool:
    start.wait(60)
    with Herma.open(home) as h:
        return h.memory.apply("memory", Add(f"<{me}>")).ok


def test_processes_that_create_the_home_at_the_same_moment(tmp_path: Path) -> None:
    context = multiprocessing.get_context("forkserver")
    with context.Manager() as manager, context.Pool(6) as pool:
        for number in range(5):
            home = tmp_path / f"home{number}"
            start = manager.Event()
            running = pool.starmap_async(first_write, [(str(home), me, start) for me in range(6)])
            start.set()
            assert running.get(timeout=60) == [True] * 6
            with Herma.open(home) as h:
                assert sorted(h.memory.entries("memory")) == [f"<{me}>" for me in range(6)]
                assert len(h.memory.history()) == 6


def approve(home: str, pending: int) -> bool:
    with Herma.open(home) as h:
        try:
            return isinstance(h.memory.approve(pending), Applied)
        except UsageError:
            return False


def test_two_people_who_approve_the_same_proposal_write_it_once(home: Path) -> None:
    with Herma.open(home) as h:
        staged = h.memory.apply("memory", Add("seen"), author=Author(Who.TOOL, Origin.WEB))
        assert isinstance(staged, Staged)
        with multiprocessing.get_context("forkserver").Pool(4) as pool:
            approved = pool.starmap(approve, [(str(home), staged.pending)] * 4)
        assert approved.count(True) == 1
        assert h.memory.entries("memory") == ["seen"]
        assert len(h.memory.history()) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_child_forked_while_the_lock_is_held_does_not_keep_it(home: Path) -> None:
    """The child has the lock file open too, for as long as it lives."""
    lock = home / "x.lock"
    reader, writer = os.pipe()
    with exclusive(lock, 1.0):
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent is done
            os._exit(0)
    try:
        with exclusive(lock, 0.0) as alone:
            assert alone
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(pid, 0)


def write_on(path: Path, stop: threading.Event) -> None:
    connection = open_writer(path, 10)
    connection.pragma("synchronous", "OFF")  # as many changes as possible, whatever the disk
    while not stop.is_set():
        connection.execute("BEGIN IMMEDIATE; INSERT INTO changes (gone, first_id, count) VALUES (0, 1, 1); COMMIT")
    connection.close()


def test_who_opens_a_log_that_others_write_to_is_not_refused(home: Path) -> None:
    """It looks unfinished at every moment; that is no damage."""
    path = home / "herma.db"
    open_writer(path, 10).close()
    context = multiprocessing.get_context("forkserver")
    with context.Manager() as manager, context.Pool(3) as pool:
        stop = manager.Event()
        writers = [pool.apply_async(write_on, (path, stop)) for _ in range(3)]
        try:
            for _ in range(1_000):
                open_reader(path, 10).close()
        finally:
            stop.set()
        for writer in writers:
            writer.get(timeout=60)
