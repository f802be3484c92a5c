"""The vector index against a bare numpy matmul over the same vectors as floats, in the same run.

    python benchmarks/vectors.py                      10,000 and 100,000 vectors
    python benchmarks/vectors.py --sizes 1000000      takes a few minutes and 3 GB
    python benchmarks/vectors.py --embed              also how fast the configured model embeds
    python benchmarks/vectors.py --json

Vectors are made up: 384 numbers, in clusters, as models give them. Times are in milliseconds over different questions:
p50 and p95 of wall time, and p50 of processor time, which a busy machine changes less. "ratio" is ours over the bare
matmul with argpartition, which neither filters nor follows changes, by wall time.
"first" is what a process pays for its first question: reading everything. "same top 10" and "60" compare with floats;
"memory" is what vectors take in memory, per vector.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from herma import Herma
from herma.index import MESSAGE
from herma.index.vector_store import EmbeddingStep, Reach, VectorRow, VectorStore, VectorTarget
from herma.index.vectors import Vectors, packed
from herma.transcript.rows import ChangeFeed, FeedChange, Position, Searchable

DIMENSION = 384
CLUSTERS = 2_000
ROUNDS = 60
BATCH = 5_000
Floats = NDArray[np.float32]


class Named:
    """An embedder that is never asked: questions are vectors already."""

    name, dimension, is_multilingual = "benchmark", DIMENSION, True

    def queries(self, texts: Sequence[str]) -> Floats:
        raise NotImplementedError

    passages = queries


class Nothing(ChangeFeed):
    """A transcript that has as many messages as are embedded, and nothing to read."""

    def __init__(self, size: int) -> None:
        self.size = size

    def position(self) -> Position:
        return Position("benchmark", "1", 1)

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        return [FeedChange(1, "append", tuple(range(1, self.size + 1)))][seq : seq + limit]

    def searchable(self, _: Sequence[int]) -> Sequence[Searchable]:
        return ()

    def message_count(self) -> int:
        return self.size


def made_up(size: int) -> Floats:
    chance = np.random.default_rng(7)
    centres = chance.standard_normal((CLUSTERS, DIMENSION), dtype=np.float32)
    vectors = centres[chance.integers(0, CLUSTERS, size)]
    for start in range(0, size, 50_000):
        part = vectors[start : start + 50_000]
        part += 0.6 * chance.standard_normal(part.shape, dtype=np.float32)
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return vectors


def filled(home: Path, vectors: Floats) -> float:
    """Store them. → vectors per second."""
    store, size = VectorStore(home), len(vectors)
    started = time.perf_counter()
    store.notice(0, Position("benchmark", "1", 1), size, ())
    model = store.model(Named.name, DIMENSION, time.time())
    for start in range(0, size, BATCH):
        rows = [
            VectorRow(VectorTarget(MESSAGE, start + n + 1, 0, f"session-{(start + n) // 40}"), start + n, vector)
            for n, vector in enumerate(packed(vectors[start : start + BATCH]))
        ]
        store.put(model, EmbeddingStep(rows, reach=Reach(0, 1, walked=min(size, start + BATCH))))
    store.close()
    return size / (time.perf_counter() - started)


def timed(work: Callable[[Floats], object], questions: Floats) -> tuple[float, float, float]:
    """→ p50 and p95 of wall time, p50 of processor time."""
    times, worked = [], []
    for question in questions:
        started, before = time.perf_counter(), time.process_time()
        work(question)
        worked.append((time.process_time() - before) * 1_000)
        times.append((time.perf_counter() - started) * 1_000)
    times.sort()
    worked.sort()
    middle = len(times) // 2
    return round(times[middle], 2), round(times[int(len(times) * 0.95)], 2), round(worked[middle], 2)


def bare(vectors: Floats, question: Floats, k: int = 60) -> NDArray[np.int64]:
    scores = vectors @ question
    top = np.argpartition(scores, len(scores) - k)[-k:]
    return top[np.argsort(-scores[top])]


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(size: int) -> dict[str, Any]:
    vectors = made_up(size)
    chance = np.random.default_rng(3)
    questions = vectors[chance.integers(0, size, ROUNDS)]
    questions = questions + 0.02 * chance.standard_normal(questions.shape).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        rate = filled(home, vectors)
        index = Vectors(Herma.open(home, embedder=Named()), feed=Nothing(size))
        before, started = resident(), time.perf_counter()
        index.near(questions[0], 60)
        first = (time.perf_counter() - started) * 1_000
        memory = resident() - before
        same = {
            k: [
                len({hit.message_id - 1 for hit in index.near(one, k).hits} & set(bare(vectors, one, k).tolist())) / k
                for one in questions[:20]
            ]
            for k in (10, 60)
        }
        few = (chance.choice(size, 2_000, replace=False) + 1).tolist()
        floor, ours = (
            timed(lambda one: bare(vectors, one), questions),
            timed(lambda one: index.near(one, 60), questions),
        )
        allowed = timed(lambda one: index.near(one, 60, allowed=few), questions)
        scores = timed(lambda one: index.scores(one, few[:200]), questions)
        on_disk = (home / "index.db.vectors").stat().st_size
        index.close()
    return {
        "vectors": size,
        "bare matmul": floor,
        "near 60": ours,
        "ratio": round(ours[0] / floor[0], 2),
        "near 60 among 2,000": allowed,
        "scores of 200": scores,
        "first": round(first, 1),
        "same top 10": round(sum(same[10]) / len(same[10]), 3),
        "same top 60": round(sum(same[60]) / len(same[60]), 3),
        "bytes per vector on disk": round(on_disk / size),
        "bytes per vector in memory": round(memory / size),
        "stored per second": round(rate),
    }


def embedding() -> dict[str, Any]:
    """How fast what is configured embeds messages of about 300 characters."""
    with tempfile.TemporaryDirectory() as folder, Herma.open(folder) as h:
        if not h.index.status().vectors.wanted:
            return {"model": None}
        session = h.transcripts.start("benchmark")
        words = ["the", "review", "of", "our", "plan", "found", "two", "open", "questions", "about", "backups"]
        texts = [" ".join(words[(n + m) % len(words)] for m in range(50)) + f" {n}" for n in range(200)]
        h.transcripts.append(session, [{"role": "user", "content": text} for text in texts])
        started = time.perf_counter()
        done = h.index.wait()
        took = time.perf_counter() - started
        return {"model": h.index.status().vectors.model, "whole": done, "messages per second": round(200 / took, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--embed", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measure(given.one)))
        return
    report: dict[str, Any] = {"dimension": DIMENSION, "sizes": []}
    for size in given.sizes:  # each in a process of its own, so that memory is its own
        command = [sys.executable, __file__, "--one", str(size)]
        report["sizes"].append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
    if given.embed:
        report["embedding"] = embedding()
    report["peak_mb"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    if given.json:
        print(json.dumps(report, indent=2))
        return
    for row in report["sizes"]:
        print("\n".join(f"{name:28} {value}" for name, value in row.items()), end="\n\n")
    if given.embed:
        print(report["embedding"])


if __name__ == "__main__":
    main()
