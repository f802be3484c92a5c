"""Questions to several processes in turns: whatever else the machine does, it does it to all of them.

Each process answers over a pipe, one JSON line for a line, and says how long it took: by the clock, and by the
processor (of all its threads), which a busy machine changes less.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

BY_WORDS = {**os.environ, "HERMA_EMBEDDING_MODEL": "none"}
"""Vectors have benchmarks of their own."""


class Took(NamedTuple):
    """One answer: milliseconds by clock and processor, how many results, and the most memory so far in MB."""

    clock: float
    processor: float
    results: int
    peak: float


class Side:
    """A process that answers. It has said what it knows of itself (`facts`) when this returns."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=BY_WORDS
        )
        self.facts: dict[str, Any] = self._read()

    def ask(self, question: str) -> Took:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        return Took(**self._read())

    def close(self) -> None:
        self._process.communicate()

    def _read(self) -> dict[str, Any]:
        """The next line with an answer; what else a process prints is passed over."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                read: dict[str, Any] = json.loads(line)
                return read
        raise SystemExit(f"{self._process.args!r} ended with {self._process.wait()}")


def serve(ask: Callable[[str], int], facts: Mapping[str, Any]) -> None:
    """Answer until nobody asks any more: the other end of `Side`. `ask` says how many results there are."""
    print(json.dumps(dict(facts)), flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        clock, processor = time.perf_counter(), time.process_time()
        results = ask(question)
        took = Took((time.perf_counter() - clock) * 1_000, (time.process_time() - processor) * 1_000, results, peak())
        print(json.dumps(took._asdict()), flush=True)


def in_turns(
    sides: Mapping[str, Side], questions: Mapping[str, Sequence[str]], rounds: int
) -> dict[str, dict[str, Any]]:
    """Ask each side its questions, so many times over; the first round only warms up. → p50 and p95 for each."""
    times: dict[str, list[Took]] = {name: [] for name in sides}
    most = max(map(len, questions.values()))
    for number in range(rounds + 1):
        for at in range(most):
            for name, side in sides.items():
                took = side.ask(questions[name][at % len(questions[name])])
                if number:
                    times[name].append(took)
    return {name: _summary(took) for name, took in times.items()}


def _summary(times: Sequence[Took]) -> dict[str, Any]:
    processor = sorted(took.processor for took in times)
    return {
        "processor_ms": round(statistics.median(processor), 3),
        "processor_p95_ms": round(processor[int(0.95 * (len(processor) - 1))], 3),
        "clock_ms": round(statistics.median(took.clock for took in times), 3),
        "results": round(statistics.mean(took.results for took in times), 2),
        "peak_mb": max(took.peak for took in times),
    }


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024, 1)
