"""Many writers on one transcript: threads that share commits, processes that share the file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeAlias

import apsw
import pytest
from tests.homes import matrix

from herma import Herma
from herma.errors import StoreBusy, StoreError, UsageError
from herma.store.database import DatabaseConnection
from herma.store.sqlite import SqliteDatabase

from .crashing import together

Work: TypeAlias = Callable[[DatabaseConnection], object]
THREADS = 8
WRITES = 60


@pytest.fixture
def database(home: Path) -> Iterator[SqliteDatabase]:
    with closing(SqliteDatabase(home / "herma.db", busy_timeout=5)) as opened:
        yield opened


def put(key: str) -> Callable[[DatabaseConnection], str]:
    def work(connection: DatabaseConnection) -> str:
        connection.run("INSERT INTO meta (key, value) VALUES (?, '')", (key,))
        return key

    return work


def keys(database: SqliteDatabase) -> set[str]:
    return {key for (key,) in database.rows("SELECT key FROM meta")}


def test_every_thread_gets_its_own_result_and_everything_is_there(database: SqliteDatabase) -> None:
    def writer(me: int) -> Callable[[], None]:
        def run() -> None:
            for number in range(WRITES):
                assert database.write(put(f"{me}.{number}")) == f"{me}.{number}"
                assert f"{me}.{number}" in keys(database)

        return run

    assert together(*[writer(me) for me in range(THREADS)]) == []
    assert {f"{me}.{number}" for me in range(THREADS) for number in range(WRITES)} <= keys(database)


def behind(
    database: SqliteDatabase, lead: Work, *followers: Work, then: Callable[[], object] = lambda: None
) -> list[BaseException]:
    """Hold a leader inside its work until the followers have queued up behind it, in order. → what went wrong."""
    entered, go = threading.Event(), threading.Event()

    def leader(connection: DatabaseConnection) -> object:
        entered.set()
        assert go.wait(20)
        return lead(connection)

    def queued(count: int) -> None:
        while len(database._commits._queue) < count:
            time.sleep(0.001)

    def follow(place: int, work: Work) -> Callable[[], None]:
        def run() -> None:
            assert entered.wait(20)
            queued(place)
            database.write(work)

        return run

    def release() -> None:
        queued(len(followers))
        then()
        go.set()

    waiting = [follow(place, work) for place, work in enumerate(followers)]
    return together(lambda: database.write(leader), release, *waiting)


def failing(name: str, error: BaseException, runs: list[str], times: int = 1) -> Work:
    """A work that fails so often, and then does what it should."""

    def work(connection: DatabaseConnection) -> None:
        runs.append(name)
        put(name)(connection)
        if runs.count(name) <= times:
            raise error

    return work


def test_works_that_wait_share_a_transaction_and_one_bad_work_harms_nobody(database: SqliteDatabase) -> None:
    database.write(put("begun"))
    begun: list[int] = []
    good = [f"good {n}" for n in range(6)]
    bad = [failing(f"bad {n}", ValueError(f"bad {n}"), [], times=9) for n in range(3)]
    wrong = behind(database, put("leader"), *map(put, good), *bad, then=lambda: begun.append(commits(database)))
    assert sorted(map(str, wrong)) == ["bad 0", "bad 1", "bad 2"]
    assert {"leader", *good} <= keys(database)
    assert not [key for key in keys(database) if key.startswith("bad")]
    assert commits(database) == begun[0] + 1


def commits(database: SqliteDatabase) -> int:
    """How often the file was committed to, as readers can tell."""
    return int(database.rows("PRAGMA data_version")[0][0])


def test_an_interrupted_leader_leaves_the_others_work_to_be_done_once(database: SqliteDatabase) -> None:
    names = [f"f{n}" for n in range(4)]
    wrong = behind(database, failing("interrupted", KeyboardInterrupt(), []), *map(put, names))
    assert [type(error) for error in wrong] == [KeyboardInterrupt]
    assert set(names) <= keys(database)
    assert "interrupted" not in keys(database)


@pytest.mark.parametrize("moment", ["_await", "_lead"])
def test_an_interrupt_before_waiting_or_leading_leaves_nobody_waiting(
    database: SqliteDatabase, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    entered, go, ended = threading.Event(), threading.Event(), threading.Event()
    real = getattr(database._commits, moment)

    def interrupt(ticket: object) -> None:
        if threading.current_thread().name == "unlucky":
            raise KeyboardInterrupt
        real(ticket)

    def long(connection: DatabaseConnection) -> None:
        put("long")(connection)
        entered.set()
        assert go.wait(20)

    def unlucky() -> None:
        threading.current_thread().name = "unlucky"
        assert entered.wait(20) if moment == "_await" else ended.wait(20)
        with pytest.raises(KeyboardInterrupt):
            database.write(put("unlucky"))
        go.set()

    def lead() -> None:
        if moment == "_lead":
            go.set()
        database.write(long)
        ended.set()

    monkeypatch.setattr(database._commits, moment, interrupt)
    assert together(lead, unlucky) == []
    assert together(lambda: database.write(put("afterwards"))) == []
    assert keys(database) >= {"long", "afterwards"}
    assert "unlucky" not in keys(database)
    assert database._commits.drain(1)


def test_what_failed_before_an_interrupt_and_succeeds_after_it_has_succeeded(database: SqliteDatabase) -> None:
    runs: list[str] = []
    followers = [
        failing("fails once", StoreError("first run"), runs),
        failing("interrupts once", KeyboardInterrupt(), runs),
    ]
    wrong = behind(database, put("leader"), *followers)
    assert [type(error) for error in wrong] == [KeyboardInterrupt], "it goes to the one who leads"
    assert sorted(runs) == sorted(["fails once", "interrupts once"] * 2)
    assert {"fails once", "interrupts once"} <= keys(database)


def test_a_write_inside_a_write_is_refused_at_once(database: SqliteDatabase) -> None:
    with pytest.raises(StoreError, match="inside another write"):
        database.write(lambda _: database.write(put("x")))
    database.write(put("y"))
    assert "y" in keys(database)
    assert "x" not in keys(database)


def test_closing_waits_for_what_was_begun(home: Path) -> None:
    database = SqliteDatabase(home / "herma.db")
    entered = threading.Event()

    def slow(connection: DatabaseConnection) -> None:
        entered.set()
        time.sleep(0.1)
        put("slow")(connection)

    thread = threading.Thread(target=database.write, args=(slow,))
    thread.start()
    assert entered.wait(20)
    database.close()
    thread.join(20)
    with pytest.raises(UsageError, match="closed"):
        database.write(put("late"))
    with closing(SqliteDatabase(home / "herma.db")) as again:
        assert "slow" in keys(again)


def test_readers_do_not_wait_for_a_writer(database: SqliteDatabase) -> None:
    database.write(put("before"))

    def work(connection: DatabaseConnection) -> set[str]:
        put("during")(connection)
        return keys(database)

    seen = database.write(work)
    assert "before" in seen
    assert "during" not in seen


def test_a_busy_database_is_waited_for_until_the_deadline(home: Path) -> None:
    with closing(SqliteDatabase(home / "herma.db", busy_timeout=0.2)) as database:
        database.write(put("a"))
        with closing(apsw.Connection(str(home / "herma.db"))) as other:  # the same library: locks are per process
            other.execute("BEGIN IMMEDIATE")
            wrong = together(*[lambda n=n: database.write(put(f"w{n}")) for n in range(3)])
            assert [type(exc) for exc in wrong] == [StoreBusy] * 3
            assert "a" in keys(database)
            other.execute("ROLLBACK")
        database.write(put("b"))
        assert {"a", "b"} == keys(database) & {"a", "b", "w0", "w1", "w2"}


def appender(home: str, me: int, count: int) -> list[tuple[str, int, str]]:
    """Append turns; → what was acknowledged."""
    told = []
    with Herma.open(home) as h:
        session = h.transcripts.start("crowd", title="Same name")
        for number in range(count):
            texts = [f"{me}.{number}.{part}" for part in range(3)]
            ids = h.transcripts.append(session, [{"role": "user", "content": text} for text in texts])
            told += [(session, id_, text) for id_, text in zip(ids, texts, strict=True)]
    return told


@pytest.mark.slow
@pytest.mark.parametrize("how", matrix(["spawn", "forkserver"], ordinary=lambda how: how == "spawn"))
def test_four_processes_append_to_one_home(home: Path, how: str) -> None:
    with multiprocessing.get_context(how).Pool(4) as pool:
        results = pool.starmap(appender, [(str(home), me, 40) for me in range(4)])
    told = [one for result in results for one in result]
    with Herma.open(home) as h:
        there = [
            (message.session_id, message.id, message.content)
            for line in h.transcripts.list(limit=9)
            for message in h.transcripts.messages(line.id)
        ]
        assert sorted(there) == sorted(told)
        assert len({line.title for line in h.transcripts.list()}) == 4
        assert h.transcripts.stats().messages == len(told)
    with closing(sqlite3.connect(home / "herma.db")) as database:
        assert database.execute("SELECT sum(count) FROM changes").fetchone() == (len(told),)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_is_refused_and_harms_nothing(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": "before"}])
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            refused = 0
            for call in (lambda: h.transcripts.append(session, [{"role": "user", "content": "x"}]), h.transcripts.list):
                try:
                    call()
                except UsageError:
                    refused += 1
            h.close()
            os.write(writer, str(refused).encode())
            os.close(writer)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as pipe:
            assert pipe.read() == "2"
        os.waitpid(child, 0)
        h.transcripts.append(session, [{"role": "user", "content": "after"}])
        assert [one.content for one in h.transcripts.messages(session)] == ["before", "after"]


FORK_AND_LEAVE = """
import os, sys
from herma import Herma
h = Herma.open(sys.argv[1])
session = h.transcripts.start("cli", session_id="s")
h.transcripts.append(session, [{"role": "user", "content": "before"}])
if os.fork() == 0:
    del h
    sys.exit(0)  # an orderly end, with everything that is torn down then
os.wait()
h.transcripts.append(session, [{"role": "user", "content": "after"}])
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_that_ends_orderly_takes_nothing_with_it(home: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK_AND_LEAVE, str(home)], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    with Herma.open(home) as h:
        assert [one.content for one in h.transcripts.messages("s")] == ["before", "after"]
