"""Whether searching takes longer in a larger store, and how much memory that takes: `session_search` on whole homes.

    python benchmarks/growth.py                             10,000 and 1,000,000 messages: a quarter of an hour
    python benchmarks/growth.py --sizes 10000,100000        half a minute
    python benchmarks/growth.py --keep DIR                  keep the homes there, and use them again: a minute
    python benchmarks/growth.py --folder /dev/shm --json

Messages are those of `index.py`, 40 to a session. Every home is filled and indexed by a process of its own and searched
by another; all homes are asked in turns, question by question. Times are p50 in milliseconds, by the processor (of all
threads) and by the clock; "times" is by the processor, the largest home over the smallest; the goal is 2. Questions are
made of messages of each home. Only those are asked that have three results, as many as are asked for: a longer answer
takes longer to write, however it was found. Memory is the most that a process had, in MB; the goal is below 150.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asking import BY_WORDS, Side, in_turns, peak, serve  # type: ignore[import-not-found,unused-ignore]
from herma import Herma
from index import Corpus  # type: ignore[import-not-found,unused-ignore]

PER_SESSION = 40
RESULTS = 3
QUESTIONS = 12
TRIES = 600
BUILT = "built.json"
COMMON, MIDDLE, RARE = 40, (100, 3_000), 10_000
"""Ranks of words: the most common ones, those that are in some of a hundred messages, and rare ones."""


def build(size: int, folder: Path) -> dict[str, Any]:
    """A home with so many messages, all of them indexed."""
    corpus, raw = Corpus(size), 0
    with Herma.open(folder) as h:
        for first in range(1, size + 1, PER_SESSION):
            texts = [corpus.text(number) for number in range(first, min(first + PER_SESSION, size + 1))]
            raw += sum(len(text.encode()) for text in texts)
            said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
            h.transcripts.append(h.transcripts.start("cli"), said)
        written = time.perf_counter()
        h.index.wait()
        waited = time.perf_counter() - written
    stored = sum((folder / name).stat().st_size for name in ("herma.db", "index.db"))
    return {
        "messages": size,
        "indexed_after_s": round(waited, 1),
        "size_over_raw_text": round(stored / raw, 2),
        "peak_mb_indexing": peak(),
    }


def questions(size: int) -> Iterator[tuple[str, str]]:
    """Kinds and questions, made of messages that are there, without end."""
    corpus, chance = Corpus(size), random.Random(11)
    rank = {word: number for number, word in reversed(list(enumerate(corpus.words)))}
    while True:
        number = chance.randint(1, size)
        words = corpus.text(max(1, number - number % 10 + 1)).split()
        ranks = [rank[word] for word in words]
        chinese = corpus.text(max(3, number - number % 10 + 3))
        at = chance.randrange(10) * 13 + chance.randrange(11)
        yield "two Chinese characters", chinese[at : at + 2]
        for place, (word, here) in enumerate(zip(words[:-1], ranks[:-1], strict=True)):
            pair = f'"{word} {words[place + 1]}"'
            if here < COMMON:
                yield "common word", word
                if ranks[place + 1] < COMMON:
                    yield "phrase of common words", pair
            elif here > RARE:
                yield "rare word", word
            elif MIDDLE[0] < here < MIDDLE[1]:
                yield "phrase", pair
                if ranks[place + 1] < COMMON:
                    yield "phrase with a common word", pair
        yield "five words", " ".join(chance.sample(words, 5))


KINDS = (
    "common word",
    "rare word",
    "two Chinese characters",
    "five words",
    "phrase",
    "phrase with a common word",
    "phrase of common words",
)


def chosen(side: Side, size: int) -> dict[str, list[str]]:
    """For each kind the first questions that have as many results as are asked for."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    tried = dict.fromkeys(KINDS, 0)
    for kind, question in questions(size):
        if len(found[kind]) < QUESTIONS and tried[kind] < TRIES and question not in found[kind]:
            tried[kind] += 1
            if side.ask(question).results == RESULTS:
                found[kind].append(question)
        if all(len(found[kind]) == QUESTIONS or tried[kind] == TRIES for kind in KINDS):
            return {kind: asked or ["nothing"] for kind, asked in found.items()}
    raise AssertionError


def compare(sizes: Sequence[int], place: Path, rounds: int) -> dict[str, Any]:
    homes = {f"{size:,}": place / str(size) for size in sizes}
    command = [sys.executable, __file__]
    for size, folder in zip(sizes, homes.values(), strict=True):
        if not (folder / BUILT).exists():
            subprocess.run([*command, "--build", str(size), "--folder", str(folder)], check=True, env=BY_WORDS)
    sides = {name: Side([*command, "--search", str(folder)]) for name, folder in homes.items()}
    asked = {name: chosen(side, size) for size, (name, side) in zip(sizes, sides.items(), strict=True)}
    times = {kind: in_turns(sides, {name: asked[name][kind] for name in sides}, rounds) for kind in KINDS}
    for side in sides.values():
        side.close()
    peaks = {name: max(times[kind][name]["peak_mb"] for kind in KINDS) for name in sides}
    facts = {name: {**side.facts, "peak_mb_searching": peaks[name]} for name, side in sides.items()}
    return {"homes": facts, "questions": times}


def show(result: dict[str, Any]) -> None:
    homes = list(result["homes"])
    print(f"{'p50 by processor / by clock, ms':34}{''.join(f'{name:>20}' for name in homes)}{'times':>8}")
    for kind, sides in result["questions"].items():
        both = (f"{sides[name]['processor_ms']:.2f} / {sides[name]['clock_ms']:.2f}" for name in homes)
        times = sides[homes[-1]]["processor_ms"] / sides[homes[0]]["processor_ms"]
        print(f"{kind:34}{''.join(f'{one:>20}' for one in both)}{times:8.2f}")
    for fact in ("size_over_raw_text", "indexed_after_s", "peak_mb_indexing", "peak_mb_searching"):
        print(f"{fact.replace('_', ' '):34}{''.join(f'{home[fact]:>20,}' for home in result['homes'].values())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,1000000", help="messages, the smallest home first")
    parser.add_argument("--rounds", type=int, default=5, help="how often each question is asked")
    parser.add_argument("--folder", help="where to put the homes for this run (default: the temporary folder)")
    parser.add_argument("--keep", type=Path, help="where to keep the homes, or to find those that were kept")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--build", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--search", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.build:
        folder = Path(options.folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / BUILT).write_text(json.dumps(build(options.build, folder)))
        return
    if options.search:
        with Herma.open(options.search) as h:
            facts, ask = json.loads((options.search / BUILT).read_text()), h.tools.call
            asked = {"limit": RESULTS}
            serve(lambda text: len(json.loads(ask("session_search", {"query": text, **asked}))["results"]), facts)
        return
    with ExitStack() as stack:
        place = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        result = compare([int(size) for size in options.sizes.split(",")], place, options.rounds)
    print(json.dumps(result, indent=2)) if options.json else show(result)


if __name__ == "__main__":
    main()
