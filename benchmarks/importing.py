"""Measure how fast transcripts are imported and indexed: `python benchmarks/importing.py [--messages 100000]`.

Writes files shaped like those of Claude Code (prompts, answers with thinking, tool calls, results of a few kilobytes),
imports them into a new home, and prints messages a second for reading and writing, for indexing, and the memory used.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from herma import Herma
from herma.importers.pipeline import Imports

SYLLABLES = (
    "ba",
    "con",
    "der",
    "est",
    "fal",
    "hin",
    "kel",
    "lo",
    "mer",
    "nov",
    "per",
    "qua",
    "ren",
    "tor",
    "un",
    "wel",
)
VOCABULARY = 20_000
NAMES = 12
"""One word in so many is an identifier, as in transcripts of coding agents."""


def vocabulary(chance: random.Random) -> list[str]:
    return ["".join(chance.choice(SYLLABLES) for _ in range(chance.randint(1, 4))) for _ in range(VOCABULARY)]


SPOKEN = vocabulary(random.Random(3))


def word(chance: random.Random) -> str:
    """Return a word, frequent ones often; or an identifier made of two."""
    one = SPOKEN[int(VOCABULARY ** chance.random()) - 1]
    if chance.randrange(NAMES):
        return one
    other = SPOKEN[int(VOCABULARY ** chance.random()) - 1]
    return chance.choice((f"{one}_{other}", one + other.title(), f"{one}{chance.randrange(100)}"))


def text(chance: random.Random, words: int) -> str:
    return " ".join([word(chance) for _ in range(words)])


def records(chance: random.Random, session: str, turns: int) -> Iterator[dict[str, Any]]:
    parent, number = None, 0
    for turn in range(turns):
        uses = {"type": "tool_use", "id": f"toolu_{turn}", "name": "Bash", "input": {"command": text(chance, 8)}}
        result = {
            "type": "tool_result",
            "tool_use_id": f"toolu_{turn}",
            "content": text(chance, chance.choice((40, 400))),
        }
        thinking = {"type": "thinking", "thinking": text(chance, 40), "signature": "x" * 300}
        for kind, content in (
            ("user", text(chance, 20)),
            ("assistant", [thinking]),
            ("assistant", [uses]),
            ("user", [result]),
            ("assistant", [{"type": "text", "text": text(chance, 80)}]),
        ):
            number += 1
            uuid = f"{session}-{number}"
            message: dict[str, Any] = {"role": kind, "content": content}
            if kind == "assistant":
                message |= {
                    "id": f"msg_{session}_{turn}",
                    "model": "claude-sonnet-5",
                    "usage": {"input_tokens": 10, "output_tokens": 20, "cache_read_input_tokens": 5000},
                }
            yield {
                "parentUuid": parent, "isSidechain": False, "userType": "external", "cwd": "/work/project",
                "sessionId": session, "version": "2.1.220", "gitBranch": "main", "type": kind, "message": message,
                "uuid": uuid, "timestamp": f"2026-05-{1 + turn % 28:02}T10:{turn % 60:02}:{number % 60:02}.000Z",
            }  # fmt: skip
            parent = uuid


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="a folder for the files and the home, kept afterwards")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp())
    projects = folder / "projects"
    projects.mkdir(parents=True, exist_ok=True)
    chance, turns = random.Random(7), 100
    for session in range(options.messages // (5 * turns)):
        with (projects / f"s{session}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records(chance, f"s{session}", turns))
    size = sum(file.stat().st_size for file in projects.iterdir())
    with Herma.open(folder / "home") as h:
        began, used = time.perf_counter(), time.process_time()
        report = Imports(h).run("claude-code", projects)
        took, used = time.perf_counter() - began, time.process_time() - used
        print(f"{report.messages:,} messages, {size / 1e6:.0f} MB in {report.files} files")
        rate, alone = report.messages / took, report.messages / used
        print(f"imported: {rate:,.0f} messages/s ({alone:,.0f} per second of processor)")
        began, used = time.perf_counter(), time.process_time()
        h.search("baba")  # while it is indexed
        print(f"a search meanwhile: {1000 * (time.perf_counter() - began):.0f} ms")
        h.index.wait(embedding=False)
        took, used = time.perf_counter() - began, time.process_time() - used
        rate, alone = report.messages / took, report.messages / used
        print(f"indexed by words: {rate:,.0f} messages/s ({alone:,.0f} per second of processor)")
        began = time.perf_counter()
        again = Imports(h).run("claude-code", projects)
        print(f"again: {again.messages} added in {time.perf_counter() - began:.2f} s")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
