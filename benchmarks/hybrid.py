"""Searching by words and by meaning against searching by words alone, on the same home in the same run.

    python benchmarks/hybrid.py                    100,000 messages
    python benchmarks/hybrid.py --size 10000
    python benchmarks/hybrid.py --home FOLDER      keep the home there, and use it again
    python benchmarks/hybrid.py --json

Messages and vectors are made up (384 numbers, in clusters): this measures time, `herma eval retrieval` what is found.
Times are in milliseconds, p50 and p95 over different questions of five words, by the clock and by the processor (of all
threads), which a busy machine changes less. "hybrid" has vectors for its questions at no cost; in "hybrid+e5" the
question is really embedded by e5-small within each search, where that is installed, and the made-up vector is used all
the same. Modes take turns, question by question, so that they are measured on the same machine. "memory" is what the
vectors take of it, in MB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from herma import Herma
from herma.config import EmbeddingSettings
from herma.errors import ModelError
from herma.evals.data import percentile
from herma.models.embedder import make_embedder
from index import Corpus  # type: ignore[import-not-found,unused-ignore]

DIMENSION, CLUSTERS = 384, 2_000
SESSION, BATCH = 50, 2_000
QUESTIONS, WARM = 210, 10
Floats = NDArray[np.float32]


class Synthetic:
    """Texts that begin with the same word are near one another."""

    name, dimension, is_multilingual = "benchmark", DIMENSION, True

    def __init__(self) -> None:
        self._centres = np.random.default_rng(1).standard_normal((CLUSTERS, DIMENSION), dtype=np.float32)

    def passages(self, texts: Sequence[str]) -> Floats:
        rows = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            last = text.rpartition("\n")[2].split()
            noise = np.random.default_rng(zlib.crc32(text.encode())).standard_normal(DIMENSION, dtype=np.float32)
            row[:] = self._centres[zlib.crc32(last[0].encode() if last else b"") % CLUSTERS] + noise
        unit: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit

    queries = passages


class Embedding(Synthetic):
    """Embeds questions for real when it is told to, and then takes a made-up vector all the same."""

    def __init__(self) -> None:
        super().__init__()
        self._model = make_embedder(EmbeddingSettings()).embedder
        self.really = False

    def installed(self) -> bool:
        try:
            return self._model is not None and len(self._model.queries(["warm"])) == 1
        except ModelError:
            return False

    def queries(self, texts: Sequence[str]) -> Floats:
        if self.really and self._model is not None:
            self._model.queries(texts)
        return self.passages(texts)


def fill(h: Herma, corpus: Corpus, size: int) -> None:
    for start in range(0, size, SESSION):
        session = h.transcripts.start("cli")
        roles = ("user", "assistant")
        h.transcripts.append(
            session,
            [{"role": roles[n % 2], "content": corpus.text(n)} for n in range(start, min(size, start + SESSION))],
        )


def questions(corpus: Corpus) -> list[str]:
    """Words of which some are frequent and some are rare, as in what people ask."""
    chance = random.Random(11)
    return [
        " ".join(
            [corpus.words[chance.randrange(low, high)] for low, high in ((20, 200), (200, 2_000), (2_000, 20_000))] * 2
        ).rsplit(" ", 1)[0]
        for _ in range(QUESTIONS)
    ]


def measure(h: Herma, asked: Sequence[str], embedder: Embedding) -> dict[str, dict[str, float]]:
    """Every mode with every question; no question twice in a mode that embeds it, because its vector is remembered."""
    modes: dict[str, tuple[Any, str, bool]] = {
        "words": ("words", "", False),
        "vectors": ("vectors", "", False),
        "hybrid": ("hybrid", "", False),
    }
    if embedder.installed():
        modes["hybrid+e5"] = ("hybrid", ".", True)
    wall: dict[str, list[float]] = {name: [] for name in modes}
    processor: dict[str, list[float]] = {name: [] for name in modes}
    for text in asked:
        for name, (mode, end, really) in modes.items():
            embedder.really = really
            began, spent = time.perf_counter(), time.process_time()
            h.search(text + end, mode=mode)
            processor[name].append((time.process_time() - spent) * 1000)
            wall[name].append((time.perf_counter() - began) * 1000)
    embedder.really = False
    return {
        name: {
            "p50_ms": round(percentile(sorted(wall[name][WARM:]), 0.5), 2),
            "p95_ms": round(percentile(sorted(wall[name][WARM:]), 0.95), 2),
            "processor_p50_ms": round(percentile(sorted(processor[name][WARM:]), 0.5), 2),
            "processor_p95_ms": round(percentile(sorted(processor[name][WARM:]), 0.95), 2),
        }
        for name in modes
    }


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def warmed(h: Herma, asked: Sequence[str]) -> float:
    """Ask until everything is in memory, also what is built aside after some questions. → what vectors take of it."""
    for text in asked[:WARM]:
        h.search(text, mode="words")
    before = resident()
    for text in asked[:WARM]:
        h.search(text, mode="vectors")
    while any(thread.name == "herma-near" for thread in threading.enumerate()):
        time.sleep(0.1)
    return round((resident() - before) / 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    corpus = Corpus(options.size)
    with tempfile.TemporaryDirectory() as temporary:
        home = options.home or Path(temporary)
        embedder = Embedding()
        with Herma.open(home=home, embedder=embedder, flags={"search.model_wait": 30.0}) as h:
            if not h.transcripts.stats().messages:
                fill(h, corpus, options.size)
            began = time.perf_counter()
            h.index.wait()
            waited = round(time.perf_counter() - began, 1)
            asked = questions(corpus)
            result: dict[str, Any] = {
                "messages": h.transcripts.stats().messages,
                "stored_vectors": h.index.status().vectors.vectors,
                "indexing_and_storing_s": waited,
                "load": round(os.getloadavg()[0], 1),
                "memory_mb": warmed(h, asked),
                "modes": measure(h, asked, embedder),
            }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(
        f"{result['messages']:,} messages, {result['stored_vectors']:,} vectors in {result['memory_mb']} MB,"
        f" load {result['load']}"
    )
    for name, times in result["modes"].items():
        print(f"{name:9}", "  ".join(f"{key} {value}" for key, value in times.items()))
    if "hybrid+e5" not in result["modes"]:
        print("hybrid+e5 was not measured: herma models install e5-small")


if __name__ == "__main__":
    main()
