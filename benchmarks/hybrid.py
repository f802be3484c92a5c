"""Searching by words and by meaning against searching by words alone, on the same home in the same run.

    python benchmarks/hybrid.py                    100,000 messages
    python benchmarks/hybrid.py --size 10000
    python benchmarks/hybrid.py --home FOLDER      keep the home there, and use it again
    python benchmarks/hybrid.py --json

Messages and vectors are made up (384 numbers, in clusters): this measures time, `herma eval retrieval` what is found.
Times are in milliseconds, p50 and p95 over different questions of five words, by the clock and by the processor, which
a busy machine changes less. What it takes to embed a question is left out and told separately, for e5-small where it is
installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from herma import Herma
from herma.errors import ModelError
from herma.evals.measures import percentile
from herma.models.embedding.choose import make_embedder
from herma.settings import EmbeddingSettings
from index import Corpus  # type: ignore[import-not-found,unused-ignore]

DIMENSION, CLUSTERS = 384, 2_000
SESSION, BATCH = 50, 2_000
QUESTIONS = 200
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


def measure(h: Herma, asked: Sequence[str], mode: Any) -> dict[str, float]:
    for text in asked[:10]:
        h.search(text, mode=mode)
    wall, processor = [], []
    for text in asked[10:]:
        began, spent = time.perf_counter(), time.process_time()
        h.search(text, mode=mode)
        processor.append((time.process_time() - spent) * 1000)
        wall.append((time.perf_counter() - began) * 1000)
    return {
        "p50_ms": round(percentile(sorted(wall), 0.5), 2),
        "p95_ms": round(percentile(sorted(wall), 0.95), 2),
        "processor_p50_ms": round(percentile(sorted(processor), 0.5), 2),
        "processor_p95_ms": round(percentile(sorted(processor), 0.95), 2),
    }


def embedding(asked: Sequence[str]) -> dict[str, float] | None:
    """What a question takes to be embedded by the local model; None where there is none."""
    found = make_embedder(EmbeddingSettings()).embedder
    if found is None:
        return None
    took = []
    try:
        for text in ("warm", *asked[:60]):
            began = time.perf_counter()
            found.queries([f"what did I say about {text}"])
            took.append((time.perf_counter() - began) * 1000)
    except ModelError:
        return None
    return {
        "p50_ms": round(percentile(sorted(took[1:]), 0.5), 2),
        "p95_ms": round(percentile(sorted(took[1:]), 0.95), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    corpus = Corpus(options.size)
    with tempfile.TemporaryDirectory() as temporary:
        home = options.home or Path(temporary)
        with Herma.open(home=home, embedder=Synthetic(), flags={"search.model_wait": 30.0}) as h:
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
                **{mode: measure(h, asked, mode) for mode in ("words", "vectors", "hybrid")},
                "embedding_a_question": embedding(asked),
            }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"{result['messages']:,} messages, {result['stored_vectors']:,} vectors, load {result['load']}")
    for mode in ("words", "vectors", "hybrid"):
        print(f"{mode:8}", "  ".join(f"{key} {value}" for key, value in result[mode].items()))
    print("embedding a question with e5-small:", result["embedding_a_question"] or "not installed")


if __name__ == "__main__":
    main()
