"""kill -9 while entries move to the long tail: each is in the file or in the tail, never in neither."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.faults.crashing import NEEDS_FORK, after, die, forked

from herma import Add, Herma, Remove
from herma.memory import files
from herma.memory.files import MemoryRows
from herma.store.salvage import salvage

pytestmark = NEEDS_FORK
BIG = {"memory.memory_char_limit": 100_000, "memory.tidy": "off"}
ENTRIES = [f"Entry number {n} about the harbour." for n in range(400)]


POINTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], bool]] = {
    "before the temporary file": (lambda m: m.setattr(files, "prepare", die), False),
    "after the temporary file": (lambda m: after(files, "prepare", m), False),
    "before the intent": (lambda m: m.setattr(MemoryRows, "intend", die), False),
    "after the intent": (lambda m: after(MemoryRows, "intend", m), False),
    "before the swap": (lambda m: m.setattr(files, "install", die), False),
    "after the swap": (lambda m: after(files, "install", m), True),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_move_happens_whole_or_not_at_all(home: Path, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at, happened = POINTS[point]
    with Herma.open(home, flags=BIG) as h:
        h.memory.apply("memory", [Add("Stays."), Add("Moves away.")])

    def work() -> None:
        with Herma.open(home, flags=BIG) as h:
            break_at(monkeypatch)
            h.memory.apply("memory", Remove("Moves away.", kept="room"))

    pid = forked(work)
    assert os.waitpid(pid, 0)[1] == 7 << 8
    with Herma.open(home, flags=BIG) as h:
        in_file = h.memory.entries("memory")
        in_tail = [one.text for one in h.memory.archive.list()]
        assert "Moves away." in [*in_file, *in_tail], "also before anybody settles it"
        h.memory.history()
        assert h.memory.entries("memory") == (["Stays."] if happened else ["Stays.", "Moves away."])
        assert [one.text for one in h.memory.archive.list()] == (["Moves away."] if happened else [])
        terms = h.db.rows("SELECT count(*) FROM curated_tail_terms")
        assert bool(terms[0][0]) == happened


def test_kill_at_random_points_loses_nothing(home: Path) -> None:
    chance = random.Random(5)
    with Herma.open(home, flags=BIG) as h:
        assert h.memory.apply("memory", [Add(text) for text in ENTRIES]).ok

    def work(acknowledge: int) -> None:
        with Herma.open(home, flags=BIG) as h:
            for text in h.memory.entries("memory"):
                h.memory.apply("memory", Remove(text, kept="room"))
                os.write(acknowledge, b".")

    moved = 0
    for _ in range(12):
        reader, writer = os.pipe()
        pid = forked(lambda writer=writer: work(writer))  # type: ignore[misc]
        os.close(writer)
        os.read(reader, 1)
        time.sleep(chance.random() * 0.01)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reader)
        with Herma.open(home, flags=BIG) as h:
            assert {*h.memory.entries("memory"), *(one.text for one in h.memory.archive.list())} == set(ENTRIES)
            h.memory.history(limit=1)
            there, tail = h.memory.entries("memory"), [one.text for one in h.memory.archive.list()]
            assert sorted([*there, *tail]) == sorted(ENTRIES), "settled: in one place only"
            moved = len(tail)
    assert moved, "children were killed before they could write; the test proves nothing"


def test_a_repair_keeps_the_long_tail(home: Path, tmp_path: Path) -> None:
    with Herma.open(home, flags=BIG) as h:
        h.memory.apply("memory", [Add("Stays."), Add("Moves away."), Add("Goes as well.")])
        h.memory.apply("memory", Remove("Moves away.", kept="room"))
        h.memory.apply("memory", Remove("Goes as well.", kept="expired"))
        h.memory.archive.used([1], "c-1")
        h.memory.archive.forget([2])
    salvage(home / "herma.db", None, tmp_path / "herma.db")
    for table in ("curated_tail", "curated_tail_terms", "curated_tail_uses"):
        with closing(sqlite3.connect(home / "herma.db")) as old, closing(sqlite3.connect(tmp_path / "herma.db")) as new:
            rows = f"SELECT * FROM {table} ORDER BY 1, 2"
            assert new.execute(rows).fetchall() == old.execute(rows).fetchall() != []
            number = "SELECT seq FROM sqlite_sequence WHERE name = 'curated_tail'"
            assert new.execute(number).fetchone() == (2,), "a number is not given out again"
