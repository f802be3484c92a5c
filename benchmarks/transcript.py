"""How fast transcripts are written, listed and opened, and how large they get; beside it, bare SQLite in the same run.

python benchmarks/transcript.py [--messages 100000] [--places DIR …] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from herma import Herma

TURN = 4
CONVERSATIONS = 2_000
SAMPLES = 1_000
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def words(count: int, seed: int = 7) -> list[str]:
    """Made-up words, short ones more often, as in prose."""
    dice = random.Random(seed)
    return ["".join(dice.choices(_LETTERS, k=dice.randint(2, 11))) for _ in range(count)]


def turns(seed: int = 1) -> Iterator[list[dict[str, Any]]]:
    """User, assistant with a tool call, tool output, assistant: about 530 characters a message on average."""
    dice = random.Random(seed)
    vocabulary = words(20_000)

    def prose(low: int, high: int) -> str:
        return " ".join(dice.choices(vocabulary, k=dice.randint(low, high)))

    while True:
        arguments = json.dumps({"path": prose(1, 3).replace(" ", "/"), "text": prose(5, 60)})
        call = {"id": f"call_{dice.getrandbits(60):x}", "type": "function"}
        yield [
            {"role": "user", "content": prose(5, 60)},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{**call, "function": {"name": "edit", "arguments": arguments}}],
            },
            {"role": "tool", "content": prose(50, 250), "tool_call_id": call["id"], "name": "edit"},
            {"role": "assistant", "content": prose(30, 130)},
        ]


def size_of(messages: list[dict[str, Any]]) -> int:
    """Bytes of text: content, and names and arguments of tool calls."""
    return sum(
        len((message["content"] or "").encode())
        + sum(len((c["function"]["name"] + c["function"]["arguments"]).encode()) for c in message.get("tool_calls", ()))
        for message in messages
    )


def timed(action: Callable[[], object], times: int) -> list[float]:
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def rate(seconds: list[float]) -> float:
    return len(seconds) / sum(seconds)


def fill(h: Herma, total: int, *, one_by_one: bool) -> dict[str, float]:
    """Write the corpus, turn by turn, or many turns in a commit where commits are slow. → rates, stalls, bytes."""
    source = turns()
    sessions = [
        h.transcripts.start("bench", title=f"Conversation {n}") for n in range(min(CONVERSATIONS, total // TURN))
    ]
    raw, seconds = 0, []
    batch = 1 if one_by_one else 125
    for n in range(0, total // TURN, batch):
        messages = [message for _ in range(batch) for message in next(source)]
        raw += size_of(messages)
        session = sessions[n // batch % len(sessions)]
        seconds += timed(lambda session=session, messages=messages: h.transcripts.append(session, messages), 1)  # type: ignore[misc]
    tenth = max(1, len(seconds) // 10)
    found = {"raw_bytes": float(raw)}
    if one_by_one:
        found["turns_per_s_first_tenth"] = rate(seconds[:tenth])
        found["turns_per_s_last_tenth"] = rate(seconds[-tenth:])
        found["longest_turn_ms"] = max(seconds) * 1000
    return found


def measure(place: Path, total: int, *, one_by_one: bool) -> dict[str, float]:
    home = Path(tempfile.mkdtemp(prefix="herma-bench-", dir=place))
    with Herma.open(home) as h:
        found = fill(h, total, one_by_one=one_by_one)
        session = h.transcripts.start("bench")
        ready = list(islice(turns(2), 2 * SAMPLES))
        found["raw_bytes"] += sum(map(size_of, ready[:SAMPLES])) + sum(size_of(turn[3:]) for turn in ready[SAMPLES:])
        single = timed(lambda: h.transcripts.append(session, ready.pop()[3:]), SAMPLES)
        whole = timed(lambda: h.transcripts.append(session, ready.pop()), SAMPLES)
        listing = timed(lambda: h.transcripts.list(limit=20), 50)
        found |= {
            "single_appends_per_s": rate(single),
            "turn_appends_per_s": rate(whole),
            "turn_messages_per_s": TURN * rate(whole),
            "longest_single_ms": max(single) * 1000,
            "longest_of_turns_ms": max(whole) * 1000,
            "list_20_ms": statistics.median(listing) * 1000,
        }
    found["open_ms"] = statistics.median(timed(lambda: reopen(home, session), 5)) * 1000
    file = home / "herma.db"
    found["file_bytes"] = float(file.stat().st_size)
    found["file_to_text"] = found["file_bytes"] / found["raw_bytes"]
    return found


def reopen(home: Path, session: str) -> None:
    with Herma.open(home) as h:
        h.transcripts.messages(session, limit=50)


def bare(place: Path) -> dict[str, float]:
    """One table, one index, the same durability: what no store on SQLite can be faster than."""
    folder = Path(tempfile.mkdtemp(prefix="herma-bench-bare-", dir=place))
    connection = apsw.Connection(str(folder / "bare.db"))
    connection.pragma("journal_mode", "WAL")
    connection.pragma("synchronous", "FULL")
    connection.execute(
        "CREATE TABLE m (id INTEGER PRIMARY KEY, session INTEGER, role TEXT, at REAL, content TEXT, x TEXT)"
    )
    connection.execute("CREATE INDEX m_by_session ON m (session)")
    ready = list(islice(turns(3), 2 * SAMPLES))

    def write(messages: list[dict[str, Any]]) -> None:
        with connection:
            for message in messages:
                row = (1, message["role"], time.time(), message["content"], json.dumps(message.get("tool_calls")))
                connection.execute("INSERT INTO m (session, role, at, content, x) VALUES (?, ?, ?, ?, ?)", row)

    single = timed(lambda: write(ready.pop()[3:]), SAMPLES)
    whole = timed(lambda: write(ready.pop()), SAMPLES)
    connection.close()
    return {
        "single_appends_per_s": rate(single),
        "turn_appends_per_s": rate(whole),
        "longest_single_ms": max(single) * 1000,
        "longest_of_turns_ms": max(whole) * 1000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--places", nargs="*", default=[tempfile.gettempdir(), "/dev/shm"])
    parser.add_argument("--one-by-one", action="store_true", help="fill a disk turn by turn too")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results: dict[str, dict[str, float]] = {}
    for name in options.places:
        place = Path(name)
        if place.is_dir():
            fast = options.one_by_one or os.path.realpath(place).startswith("/dev/shm")
            results[f"{name} herma"] = measure(place, options.messages, one_by_one=fast)
            results[f"{name} bare SQLite"] = bare(place)
    if options.json:
        print(json.dumps({"messages": options.messages, "results": results}, indent=2))
        return
    for name, found in results.items():
        print(f"\n{name} ({options.messages:,} messages)")
        for key, value in found.items():
            print(f"  {key:26} {value:>16,.2f}")


if __name__ == "__main__":
    main()
