"""What a turn costs as a home fills up, and how much of each request a provider's cache can reuse.

python benchmarks/turn.py [--messages 10 1000 100000] [--turns 200] [--recall] [--place DIR] [--json]

The first table: the time that `before_model` and `after_model` take with so many messages in the home, next to two
bare commits of the same text to SQLite in the same run, as durable; and the processor's time that a turn takes with
all that goes on beside it, its threads included. The second: one scripted session of 200 turns with
memory writes, next to the same session without memory, and next to memory written into the system prompt afresh every
turn, all three judged by comparing the bytes of the requests. The search of past conversations before each turn is
switched off, as it costs what a search costs (benchmarks/hybrid.py); with `--recall` it is part of `before_model`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import apsw

from herma import Add, Herma, Replace
from herma.prompt.fence import sanitize
from herma.prompt.tokens import count_message, count_tools, plain_json
from herma.testing import FixedClock

SIZES = (10, 1_000, 100_000)
TURNS = 200
SESSIONS, TURNS_EACH = 20, 10
BATCH = 500
Row = dict[str, Any]
_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def corpus(seed: int = 1) -> Iterator[list[dict[str, Any]]]:
    """User, assistant with a tool call, tool output, assistant, in made-up words."""
    dice = random.Random(seed)
    vocabulary = ["".join(dice.choices(_LETTERS, k=dice.randint(2, 11))) for _ in range(20_000)]

    def prose(low: int, high: int) -> str:
        return " ".join(dice.choices(vocabulary, k=dice.randint(low, high)))

    while True:
        call = {"id": f"call_{dice.getrandbits(60):x}", "type": "function"}
        function = {"name": "edit", "arguments": json.dumps({"text": prose(5, 60)})}
        yield [
            {"role": "user", "content": prose(5, 60)},
            {"role": "assistant", "content": None, "tool_calls": [{**call, "function": function}]},
            {"role": "tool", "content": prose(50, 250), "tool_call_id": call["id"]},
            {"role": "assistant", "content": prose(30, 130)},
        ]


def milliseconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def summary(name: str, taken: list[float]) -> Row:
    ordered = sorted(taken)
    return {f"{name}_ms": statistics.median(ordered), f"{name}_p95_ms": ordered[int(0.95 * len(ordered))]}


# ── time ──


def fill(h: Herma, total: int) -> None:
    source = corpus()
    while total > 0:
        session = h.transcripts.start("bench")
        messages = [message for turn in islice(source, BATCH // 4) for message in turn][:total]
        h.transcripts.append(session, messages)
        total -= len(messages)


def at_size(place: Path, stored: int, *, recall: bool) -> Row:
    """Turns of short sessions in a home that holds so many messages, alternating with bare commits."""
    home = Path(tempfile.mkdtemp(prefix="herma-turn-", dir=place))
    bare = apsw.Connection(str(home / "bare.db"))
    for statement in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = full", "CREATE TABLE m (id INTEGER, t TEXT)"):
        bare.execute(statement).fetchall()
    keep_bare = partial(bare.execute, "INSERT INTO m (t) VALUES (?)")
    said = [(str(turn[0]["content"]), str(turn[3]["content"])) for turn in islice(corpus(3), TURNS_EACH)]
    opened: list[float] = []
    before: list[float] = []
    after: list[float] = []
    lower: list[float] = []
    worked: list[float] = []
    with Herma.open(home, flags={"search.prefetch": recall, "embedding.model": "none"}) as h:
        h.memory.apply("memory", Add("The benchmark runs on one home."))
        fill(h, stored)
        for _ in range(SESSIONS):
            start = time.perf_counter()
            session = h.session(source="bench")
            opened.append((time.perf_counter() - start) * 1000)
            for question, answer in said:
                began = time.process_time()
                before.append(milliseconds(partial(session.before_model, question)))
                after.append(milliseconds(partial(session.after_model, answer)))
                worked.append((time.process_time() - began) * 1000)
                lower.append(sum(milliseconds(partial(keep_bare, (text,))) for text in (question, answer)))
            session.close()
    bare.close()
    return {
        "stored_messages": stored,
        **summary("open", opened),
        **summary("before_model", before),
        **summary("after_model", after),
        **summary("two_bare_commits", lower),
        **summary("processor", worked),
    }


# ── cache ──


@dataclass
class Sent:
    """One request: its messages and the tool definitions before them."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


@dataclass
class Reuse:
    """What a cache could reuse of requests in a row, found by comparing them."""

    calls: int = 0
    reusable: int = 0
    new: int = 0
    breaks: int = 0

    @property
    def hit_share(self) -> float:
        return self.reusable / (self.reusable + self.new)


def compared(requests: list[Sent]) -> Reuse:
    found, before = Reuse(), [""]
    known: dict[str, int] = {}
    for request in requests:
        parts = [plain_json(request.tools), *map(plain_json, request.messages)]
        known.setdefault(parts[0], count_tools(request.tools))
        for part, message in zip(parts[1:], request.messages, strict=True):
            if part not in known:
                known[part] = count_message(message)
        shared = next((at for at, pair in enumerate(zip(before, parts, strict=False)) if pair[0] != pair[1]), None)
        shared = min(len(before), len(parts)) if shared is None else shared
        found.calls += 1
        found.reusable += sum(known[part] for part in parts[:shared])
        found.new += sum(known[part] for part in parts[shared:])
        found.breaks += found.calls > 1 and shared < len(before)
        before = parts
    return found


def naive(request: Sent, memory: str) -> Sent:
    """The same request with memory in the system prompt, and without what was recalled."""
    system, *rest = request.messages
    plain = [{**one, "content": sanitize(one["content"])} if isinstance(one["content"], str) else one for one in rest]
    return Sent([{**system, "content": f"{system['content']}\n\n{memory}"}, *plain], request.tools)


def scripted(place: Path, turns: int, *, memory: bool) -> tuple[list[Sent], list[str]]:
    """A session: every third turn a memory write, every fifth a tool. → its requests, and memory at each of them."""
    clock = FixedClock()
    home = Path(tempfile.mkdtemp(prefix="herma-cache-", dir=place))
    requests: list[Sent] = []
    shown: list[str] = []
    with Herma.open(home, flags={"memory.memory_char_limit": 4_000}, clock=clock) as h:
        h.memory.apply("memory", Add("fact 0: the project uses tabs"))
        session = h.session(source="bench")

        def ask(text: str | None = None) -> None:
            requests.append(Sent(session.before_model(text), list(session.tools)))
            shown.append(h.memory.load().text)
            clock.advance(20)

        for number, turn in enumerate(islice(corpus(4), turns)):
            ask(str(turn[0]["content"]))
            if number % 5 == 4:
                session.after_model(turn[1:3])
                ask()
            session.after_model(str(turn[3]["content"]))
            if memory and number % 3 == 2:
                write(h, number)
        session.close()
        said = h.cost().total
        assert said.calls == len(requests), "the ledger missed a call"
        assert abs(said.share - compared(requests).hit_share) < 0.01, "the ledger disagrees with the bytes"
    return requests, shown


def write(h: Herma, number: int) -> None:
    slot = number // 3 % 20
    text = f"fact {slot}: it was decided in turn {number} that the deployment waits for step {number * 7 % 31}"
    if not h.memory.apply("memory", Replace(f"fact {slot}:", text)).ok:
        h.memory.apply("memory", Add(text))


def cache_table(place: Path, turns: int) -> list[Row]:
    requests, shown = scripted(place, turns, memory=True)
    without = compared(scripted(place, turns, memory=False)[0])

    def row(name: str, reuse: Reuse) -> Row:
        return {
            "scheme": name,
            "calls": reuse.calls,
            "sent_tokens": reuse.reusable + reuse.new,
            "new_tokens": reuse.new,
            "hit_share": reuse.hit_share,
            "of_without_memory": reuse.hit_share / without.hit_share,
            "breaks": reuse.breaks,
        }

    return [
        row("session without memory", without),
        row("Herma, told at the end", compared(requests)),
        row("memory in the system prompt", compared(list(map(naive, requests, shown)))),
    ]


# ── output ──


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--messages", type=int, nargs="*", default=list(SIZES))
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--recall", action="store_true", help="with the search before each turn")
    parser.add_argument("--place", type=Path, help="where the temporary homes are made")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="herma-bench-", dir=options.place) as folder:
        times = [at_size(Path(folder), size, recall=options.recall) for size in options.messages]
        schemes = cache_table(Path(folder), options.turns)
    if options.json:
        print(json.dumps({"turn": times, "cache": schemes}, indent=2))
        return
    for row in times:
        print(
            f"{row['stored_messages']:>9,} messages  open {row['open_ms']:6.2f} ms"
            f"  before_model {row['before_model_ms']:6.2f} (p95 {row['before_model_p95_ms']:6.2f})"
            f"  after_model {row['after_model_ms']:6.2f} (p95 {row['after_model_p95_ms']:6.2f})"
            f"  two bare commits {row['two_bare_commits_ms']:6.2f}"
            f"  processor {row['processor_ms']:6.2f} (p95 {row['processor_p95_ms']:6.2f})"
        )
    for row in schemes:
        print(
            f"{row['scheme']:28} {row['calls']:4} calls  {row['sent_tokens']:>10,} sent  {row['new_tokens']:>10,} new"
            f"  {row['hit_share']:7.2%} reusable  {row['of_without_memory']:7.2%} of without  {row['breaks']:3} breaks"
        )


if __name__ == "__main__":
    main()
