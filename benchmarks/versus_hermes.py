"""Transcripts and search next to Hermes Agent 0.19, on the same messages, in the same run, on the same file system.

    python -m venv /tmp/hermes && /tmp/hermes/bin/pip install hermes-agent==0.19.0      # an environment of its own
    python benchmarks/versus_hermes.py --hermes /tmp/hermes/bin/python [--messages 100000] [--folder DIR] [--json]

Each side runs in a process of its own, one after the other. Both commit durably (`synchronous=FULL`, WAL). Messages are
synthetic: words by Zipf's law, some Chinese, some code, 40 to a session. Questions: a word that is in every second
message, a word that is in a handful, two Chinese characters, and five words as a person would ask.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

PER_SESSION = 40
TURN = 4
HAN = "天地人你我他大小中国学生先电话书本车水火木金土日月年时分上下左右前后东西南北家门口手心目耳"


def corpus(count: int) -> Iterator[tuple[int, str, str]]:
    """Session number, role and text of every message."""
    chance = random.Random(7)
    words = [
        f"{a}{b}{c}"
        for a in ("ka", "lo", "mi", "ter", "son", "ra")
        for b in ("ver", "di", "pu", "na", "sel", "gor", "to")
        for c in ("n", "x", "da", "ble", "ing", "rt", "s", "lik", "mo")
    ]
    weights = [1 / (rank + 3) for rank in range(len(words))]
    for number in range(count):
        text = " ".join(chance.choices(words, weights, k=70))
        if number % 2:
            text = f"{text} deploy"
        if number % 997 == 0:
            text = f"{text} quokka{number}"
        if number % 10 == 3:
            text = f"{text} {''.join(chance.choices(HAN, k=60))}"
        if number % 7 == 2:
            text = f"{text}\ndef get_{chance.choice(words)}(value: int) -> int:\n    return value + {number}"
        yield number // PER_SESSION, ("user", "assistant")[number % 2], text


QUESTIONS = {
    "common word": ["deploy"],
    "rare word": [f"quokka{number * 997}" for number in range(10)],
    "two Chinese characters": ["学生", "电话", "东西", "天地"],
    "five words": ["kavern lodix misels ternabl sontos", "deploy radin kapux mivern lotos"],
}


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def measure(
    count: int,
    folder: Path,
    append: Callable[[int, list[tuple[str, str]]], None],
    reopen: Callable[[], None],
    ask: Callable[[str], int],
) -> dict[str, Any]:
    """Append everything message by message, then turn by turn; then ask, with everything indexed and opened anew."""
    single: list[float] = []
    for session, role, text in corpus(count):
        single.append(timed(lambda s=session, r=role, t=text: append(s, [(r, t)])))  # type: ignore[misc]
    tenth = max(1, count // 10)
    turns: list[float] = []
    batch: list[tuple[str, str]] = []
    for number, (_, role, text) in enumerate(corpus(2000)):
        batch.append((role, text))
        if len(batch) == TURN:
            turns.append(timed(lambda n=number, b=tuple(batch): append(10**6 + n // PER_SESSION, list(b))))  # type: ignore[misc]
            batch = []
    reopen()
    ask("warm")
    answers: dict[str, Any] = {}
    for kind, questions in QUESTIONS.items():
        times, found = [], 0
        for _ in range(5):
            for question in questions:
                begun = time.perf_counter()
                found += ask(question)
                times.append((time.perf_counter() - begun) * 1000)
        answers[kind] = {"p50_ms": statistics.median(times), "found": found}
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "lock" not in file.name)
    return {
        "append_per_s_first_tenth": 1000 / statistics.mean(single[:tenth]),
        "append_per_s_last_tenth": 1000 / statistics.mean(single[-tenth:]),
        "append_per_s": 1000 / statistics.mean(single),
        "longest_stall_ms": max(single),
        "turn_messages_per_s": TURN * 1000 / statistics.mean(turns),
        "questions": answers,
        "size_bytes": size,
        "raw_bytes": sum(len(text.encode()) for _, _, text in corpus(count)),
    }


def hermes(count: int, folder: Path) -> dict[str, Any]:
    from hermes_state import SessionDB  # type: ignore[import-not-found]
    from tools.session_search_tool import session_search  # type: ignore[import-not-found]

    db = SessionDB(folder / "state.db")
    known: set[int] = set()

    def append(session: int, messages: list[tuple[str, str]]) -> None:
        if session not in known:
            known.add(session)
            db.create_session(f"s{session}", "cli")
        for role, text in messages:
            db.append_message(f"s{session}", role, content=text)

    def reopen() -> None:
        nonlocal db
        db.close()
        db = SessionDB(folder / "state.db")

    def ask(question: str) -> int:
        return len(json.loads(session_search(query=question, db=db, limit=3)).get("results", []))

    result = measure(count, folder, append, reopen, ask)
    db.close()
    return result


def herma(count: int, folder: Path) -> dict[str, Any]:
    from herma import Herma

    h = Herma.open(folder)
    known: dict[int, str] = {}

    def append(session: int, messages: list[tuple[str, str]]) -> None:
        if session not in known:
            known[session] = h.transcripts.start("cli")
        h.transcripts.append(known[session], [{"role": role, "content": text} for role, text in messages])

    def reopen() -> None:
        nonlocal h
        h.index.wait()
        h.close()
        h = Herma.open(folder)

    def ask(question: str) -> int:
        return len(json.loads(h.tools.call("session_search", {"query": question, "limit": 3}))["results"])

    result = measure(count, folder, append, reopen, ask)
    h.close()
    return result


def run_side(side: str, python: str, count: int, folder: str | None) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        command = [python, __file__, "--side", side, "--messages", str(count), "--folder", place]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{side} failed:\n{done.stderr}")
        result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return result


def rows(ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[tuple[str, float, float, float]]:
    """What is compared: ours, theirs, and how many times better ours is."""
    for name in ("append_per_s_first_tenth", "append_per_s_last_tenth", "append_per_s", "turn_messages_per_s"):
        yield name, ours[name], theirs[name], ours[name] / theirs[name]
    yield (
        "longest_stall_ms",
        ours["longest_stall_ms"],
        theirs["longest_stall_ms"],
        theirs["longest_stall_ms"] / ours["longest_stall_ms"],
    )
    for kind in QUESTIONS:
        mine, other = ours["questions"][kind]["p50_ms"], theirs["questions"][kind]["p50_ms"]
        yield f"search, {kind}, p50 ms", mine, other, other / mine
    mine, other = (side["size_bytes"] / side["raw_bytes"] for side in (ours, theirs))
    yield "size over raw text", mine, other, other / mine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hermes", help="the Python of an environment with hermes-agent==0.19.0")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--folder", help="where to put the databases (default: the temporary folder)")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["hermes", "herma"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side = hermes if options.side == "hermes" else herma
        print(json.dumps(side(options.messages, Path(options.folder))))
        return
    if not options.hermes:
        parser.error("--hermes is needed: nothing is compared without it")
    ours = run_side("herma", sys.executable, options.messages, options.folder)
    theirs = run_side("hermes", options.hermes, options.messages, options.folder)
    if options.json:
        print(json.dumps({"messages": options.messages, "herma": ours, "hermes": theirs}, indent=2))
        return
    print(f"{options.messages:,} messages")
    print(f"{'':34}{'Herma':>12}{'Hermes 0.19':>14}{'times better':>14}")
    for name, mine, other, better in rows(ours, theirs):
        print(f"{name:34}{mine:12,.2f}{other:14,.2f}{better:14.1f}")


if __name__ == "__main__":
    main()
