"""Some processes append while others search the same home: no error, nothing lost, and what one was told is stored
another one finds at once.

`python tests/faults/test_search_crowd.py 60` does it for a minute, and says how long searches took.
"""

from __future__ import annotations

import json
import multiprocessing
import random
import sqlite3
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from herma import Herma

SECONDS = 4.0
WRITERS = SEARCHERS = 4
WORDS = ["alpha", "beta", "gamma", "login", "docker", "登录", "数据库", "kubernetes", "rollout", "window", "ladder"]


@dataclass(slots=True)
class Told:
    """What one process did. `wrong` is what it should have found and did not, or what was raised."""

    stored: list[tuple[str, int, str]] = field(default_factory=list)
    searches: list[tuple[float, float]] = field(default_factory=list)
    """Seconds by the clock, and of those, by the processor: the rest was waiting for others."""
    wrong: list[str] = field(default_factory=list)


def append(home: str, log: str, me: int, seconds: float) -> Told:
    """Whole turns; each is acknowledged to `log` with a word that occurs nowhere else."""
    told, dice, until = Told(), random.Random(me), time.monotonic() + seconds
    try:
        with Herma.open(home) as h, Path(log).open("a", encoding="utf-8") as acknowledged:
            session, number = h.transcripts.start("crowd"), 0
            while time.monotonic() < until:
                word = f"token{me}x{number}"
                texts = [f"{word} {' '.join(dice.choices(WORDS, k=8))}", " ".join(dice.choices(WORDS, k=20))]
                ids = h.transcripts.append(session, [{"role": "user", "content": text} for text in texts])
                told.stored += [(session, id_, text) for id_, text in zip(ids, texts, strict=True)]
                acknowledged.write(json.dumps([word, ids[0]]) + "\n")
                acknowledged.flush()
                number += 1
                if number % 50 == 0:
                    session = h.transcripts.start("crowd")
                time.sleep(dice.uniform(0, 0.01))
    except Exception as exc:  # noqa: BLE001  reported to the test
        told.wrong.append(repr(exc))
    return told


def look(home: str, log: str, me: int, seconds: float) -> Told:
    """The newest word that any writer acknowledged is found; other words too, however much is written meanwhile."""
    told, dice, until = Told(), random.Random(me), time.monotonic() + seconds
    try:
        with Herma.open(home) as h:
            while time.monotonic() < until:
                lines = Path(log).read_text(encoding="utf-8").splitlines()
                if not lines:
                    continue
                word, id_ = json.loads(dice.choice((lines[-1], lines[-1], dice.choice(lines))))
                began = time.perf_counter(), time.thread_time()
                report = h.search(word, level="message", mode="words")
                told.searches.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
                if not report.hits or report.hits[0].message_id != id_:
                    told.wrong.append(f"{word} (message {id_}, {report.lag} behind): {report.notes}")
                began = time.perf_counter(), time.thread_time()
                h.search(" ".join(dice.choices(WORDS, k=2)), mode="words")
                told.searches.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
    except Exception as exc:  # noqa: BLE001  reported to the test
        told.wrong.append(repr(exc))
    return told


def crowd(home: Path, log: Path, seconds: float) -> tuple[list[Told], list[Told]]:
    """Both kinds of processes at once. → what writers, and what searchers did."""
    log.touch()
    with multiprocessing.get_context("spawn").Pool(WRITERS + SEARCHERS) as pool:
        given = (str(home), str(log))
        writing = [pool.apply_async(append, (*given, me, seconds)) for me in range(WRITERS)]
        looking = [pool.apply_async(look, (*given, me, seconds)) for me in range(SEARCHERS)]
        return [one.get() for one in writing], [one.get() for one in looking]


@pytest.mark.slow
def test_four_write_and_four_search(home: Path, tmp_path: Path) -> None:
    writers, searchers = crowd(home, tmp_path / "acknowledged", SECONDS)
    assert [wrong for one in (*writers, *searchers) for wrong in one.wrong] == []
    assert all(one.stored for one in writers)
    assert all(one.searches for one in searchers)
    stored = [message for one in writers for message in one.stored]
    with Herma.open(home) as h:
        there = [
            (message.session_id, message.id, message.content)
            for line in h.transcripts.list(limit=10_000)
            for message in h.transcripts.messages(line.id)
        ]
        assert sorted(there) == sorted(stored)
        assert h.index.wait(embedding=False)
        assert h.index.verify().trouble == ""
    with closing(sqlite3.connect(home / "herma.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        began = crowd(Path(place), Path(place) / "acknowledged", float(sys.argv[1]))
        times = sorted(took for one in began[1] for took, _ in one.searches)
        busy = sorted(took for one in began[1] for _, took in one.searches)
        figures = {
            "messages": sum(len(one.stored) for one in began[0]),
            "searches": len(times),
            "p50_ms": round(times[len(times) // 2] * 1000, 1),
            "p99_ms": round(times[int(len(times) * 0.99)] * 1000, 1),
            "longest_ms": round(times[-1] * 1000, 1),
            "longest_of_the_processor_ms": round(busy[-1] * 1000, 1),
            "wrong": [wrong for side in began for one in side for wrong in one.wrong],
        }
        sys.stdout.write(json.dumps(figures, indent=2) + "\n")
