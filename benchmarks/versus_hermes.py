"""Transcripts and search next to Hermes Agent 0.19, on the same messages, in the same run, on the same file system.

    python -m venv /tmp/hermes && /tmp/hermes/bin/pip install hermes-agent==0.19.0      # an environment of its own
    python benchmarks/versus_hermes.py --hermes /tmp/hermes/bin/python                  # 100,000 messages: four minutes
    … --messages 20000          fewer; the goals are for 100,000 and not shown then
    … --folder /dev/shm         on tmpfs; the temporary folder if left out
    … --keep DIR                keep both stores there, and use them again: then a run takes seconds
    … --rounds 30 --json

Each side has a process of its own. First one appends all messages, then the other; then both are asked in turns,
question by question. Both commit durably (`synchronous=FULL`, WAL). Messages are synthetic: words by Zipf's law, some
Chinese, some code, 40 to a session. Questions: a word that is in every second message, a word that is in one, two
Chinese characters, two words side by side, and five words as a person would ask. Searches are p50, by the processor and
by the clock; "times better" is by the processor, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from asking import Side, in_turns, serve  # type: ignore[import-not-found,unused-ignore]

PER_SESSION = 40
TURN = 4
HAN = "天地人你我他大小中国学生先电话书本车水火木金土日月年时分上下左右前后东西南北家门口手心目耳"
BUILT = "built.json"
"""What was measured while a store was made is kept beside it."""


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
    "phrase": ['"kavern lodix"', '"misels ternax"', '"radin kapux"', '"mivern lotos"'],
    "five words": ["kavern lodix misels ternabl sontos", "deploy radin kapux mivern lotos"],
}
GOALS_FOR = 100_000
TIMES = {
    "append per s first tenth": 2.0,
    "append per s last tenth": 2.0,
    "append per s": 2.0,
    "turn messages per s": 5.0,
    "common word": 10.0,
    "rare word": 1.0,
    "two Chinese characters": 20.0,
}
"""How many times as good as Hermes we want to be."""
AT_MOST = {"longest stall ms": 50.0, "size over raw text": 2.5}
"""What we want whatever Hermes does."""

Append = Callable[[int, list[tuple[str, str]]], None]


def timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1000


def fill(count: int, folder: Path, append: Append, finish: Callable[[], None]) -> dict[str, Any]:
    """Append everything message by message, then some of it turn by turn, each into sessions of its own. The very first
    append, into a session of its own, also makes the database and loads what that needs, and is shown by itself.
    """
    first = timed(lambda: append(-1, [("user", "hello")]))
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
    finish()
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and "lock" not in file.name)
    return {
        "messages": count,
        "append_per_s_first_tenth": 1000 / statistics.mean(single[:tenth]),
        "append_per_s_last_tenth": 1000 / statistics.mean(single[-tenth:]),
        "append_per_s": 1000 / statistics.mean(single),
        "first_append_ms": first,
        "longest_stall_ms": max(single),
        "turn_messages_per_s": TURN * 1000 / statistics.mean(turns),
        "size_bytes": size,
        "raw_bytes": sum(len(text.encode()) for _, _, text in corpus(count)),
    }


# ── the two sides, each in its own process ──


def hermes(count: int, folder: Path) -> None:
    from hermes_state import SessionDB  # type: ignore[import-not-found]
    from tools.session_search_tool import session_search  # type: ignore[import-not-found]

    def build() -> dict[str, Any]:
        opened: list[Any] = []
        known: set[int] = set()

        def append(session: int, messages: list[tuple[str, str]]) -> None:
            if not opened:
                opened.append(SessionDB(folder / "state.db"))
            (db,) = opened
            if session not in known:
                known.add(session)
                db.create_session(f"s{session}", "cli")
            for role, text in messages:
                db.append_message(f"s{session}", role, content=text)

        def finish() -> None:
            opened[0].close()

        return fill(count, folder, append, finish)

    facts = _built(folder, count, build)
    db = SessionDB(folder / "state.db")
    serve(lambda question: len(json.loads(session_search(query=question, db=db, limit=3)).get("results", [])), facts)
    db.close()


def herma(count: int, folder: Path) -> None:
    from herma import Herma

    def build() -> dict[str, Any]:
        h = Herma.open(folder)
        known: dict[int, str] = {}

        def append(session: int, messages: list[tuple[str, str]]) -> None:
            if session not in known:
                known[session] = h.transcripts.start("cli")
            h.transcripts.append(known[session], [{"role": role, "content": text} for role, text in messages])

        def finish() -> None:
            h.index.wait()
            h.close()

        return fill(count, folder, append, finish)

    facts = _built(folder, count, build)
    with Herma.open(folder) as h:
        ask = h.tools.call
        serve(
            lambda question: len(json.loads(ask("session_search", {"query": question, "limit": 3}))["results"]), facts
        )


def _built(folder: Path, count: int, build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Make the store, unless it is there already. → what was measured when it was made."""
    kept = folder / BUILT
    if kept.exists():
        facts: dict[str, Any] = json.loads(kept.read_text())
        if facts["messages"] != count:
            raise SystemExit(f"{folder} has {facts['messages']:,} messages: give --messages, or another folder")
        return facts
    facts = build()
    kept.write_text(json.dumps(facts))
    return facts


# ── the comparison ──


def compare(options: argparse.Namespace, place: Path) -> dict[str, Any]:
    pythons = {"herma": sys.executable, "hermes": options.hermes}
    sides: dict[str, Side] = {}
    for name, python in pythons.items():
        folder = place / name
        folder.mkdir(parents=True, exist_ok=True)
        side = ["--side", name, "--messages", str(options.messages), "--folder", str(folder)]
        sides[name] = Side([python, __file__, *side])
    questions = {
        kind: in_turns(sides, dict.fromkeys(sides, asked), options.rounds) for kind, asked in QUESTIONS.items()
    }
    for side_ in sides.values():
        side_.close()
    appended = {name: side_.facts for name, side_ in sides.items()}
    return {"messages": options.messages, "appended": appended, "questions": questions}


def rows(result: dict[str, Any]) -> Iterator[tuple[str, float, float, float]]:
    """What is compared: ours, theirs, and how many times better ours is."""
    ours, theirs = (result["appended"][name] for name in ("herma", "hermes"))
    for name in ("append_per_s_first_tenth", "append_per_s_last_tenth", "append_per_s", "turn_messages_per_s"):
        yield name.replace("_", " "), ours[name], theirs[name], ours[name] / theirs[name]
    for name in ("first_append_ms", "longest_stall_ms"):
        yield name.replace("_", " "), ours[name], theirs[name], theirs[name] / ours[name]
    mine, other = (side["size_bytes"] / side["raw_bytes"] for side in (ours, theirs))
    yield "size over raw text", mine, other, other / mine
    for kind, sides in result["questions"].items():
        for measured in ("processor_ms", "clock_ms"):
            mine, other = sides["herma"][measured], sides["hermes"][measured]
            yield f"{kind}, p50 by {measured.removesuffix('_ms')}, ms", mine, other, other / mine


def show(result: dict[str, Any]) -> None:
    print(f"{result['messages']:,} messages")
    print(f"{'':48}{'Herma':>12}{'Hermes 0.19':>14}{'times better':>14}")
    for name, mine, other, better in rows(result):
        goal = _goal(name) if result["messages"] >= GOALS_FOR else ""
        print(f"{name:48}{mine:12,.2f}{other:14,.2f}{better:14.2f}{goal}")


def _goal(name: str) -> str:
    kind = name.partition(",")[0]
    if kind in AT_MOST:
        return f"   goal: at most {AT_MOST[kind]:g}"
    return f"   goal {TIMES[kind]:g}" if kind in TIMES and "clock" not in name else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hermes", help="the Python of an environment with hermes-agent==0.19.0")
    parser.add_argument("--messages", type=int, default=GOALS_FOR)
    parser.add_argument("--rounds", type=int, default=15, help="how often each question is asked")
    parser.add_argument("--folder", help="where to put the databases for this run (default: the temporary folder)")
    parser.add_argument("--keep", type=Path, help="where to keep the databases, or to find those that were kept")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--side", choices=["hermes", "herma"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        (hermes if options.side == "hermes" else herma)(options.messages, Path(options.folder))
        return
    if not options.hermes:
        parser.error("--hermes is needed: nothing is compared without it")
    with ExitStack() as stack:
        place = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.folder)))
        result = compare(options, place)
    print(json.dumps(result, indent=2)) if options.json else show(result)


if __name__ == "__main__":
    main()
