"""Many sessions on one PostgreSQL server: turns per second, their times, and a server that is killed meanwhile.

python -m benchmarks.scale [--processes 1 2 8] [--sessions 200] [--seconds 20] [--tenants 1] [--messages 0]
                           [--pause 0] [--kill] [--json]
python -m benchmarks.scale --processes 1 --sessions 0 --messages 100000    (searches only)

Each process opens the memory and takes turns in its share of the sessions, one thread for each, as fast as it can or
with `--pause` seconds between turns, in which a model would answer: `before_model`, then `after_model`, with recall of
past conversations and embedding switched off. The server is the one of the tests, with every commit flushed to disk.
`--messages` fills the memory first: 39 words a message, half of them from 20 words that most messages have, the rest
from 50,000 that are the rarer the higher their number. Meanwhile a search is timed once a second; without sessions,
each of `QUESTIONS` is, again and again. `--kill` ends the server with SIGKILL in the middle, starts it again, and
counts acknowledged turns that are missing.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import random
import statistics
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.postgres import Server

from herma import Herma
from herma.errors import StoreError
from herma.store.postgres import initialise

FLAGS = {"embedding.model": "none", "search.prefetch": False, "memory.lock_timeout": 60}
COMMON = "garden rose water bed plan tulip spring soil seed path gate wall frost shade light bee bird tool rake hose"
WORDS, SYLLABLES = COMMON.split(), "ba ce di fo gu ha ke li mo nu".split()  # noqa: SIM905
RARER = 50_000


def rarer(number: int) -> str:
    """Return the name of one of the rarer words."""
    return "".join(SYLLABLES[int(digit)] for digit in str(number))


QUESTIONS = {
    "rare": rarer(30_000),
    "common": "rose frost",
    "three common": "rose frost garden",
    "phrase": '"garden rose"',
    "both": f"rose AND {rarer(300)}",
    "beginning": f"{rarer(400)}*",
}


@dataclass
class Measured:
    """What one process measured, in seconds."""

    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)
    search: list[float] = field(default_factory=list)
    acknowledged: dict[str, int] = field(default_factory=dict)
    failed: int = 0
    longest: float = 0.0


def text(number: int) -> str:
    chosen = random.Random(number)
    some = [chosen.choice(WORDS) for _ in range(20)] + [rarer(int(RARER ** chosen.random())) for _ in range(19)]
    chosen.shuffle(some)
    return " ".join(some)


def take_turns(h: Herma, found: Measured, until: float, number: int, pause: float) -> None:
    time.sleep(pause * (number % 25_000) / 25_000)  # not all at once
    session = h.session()
    found.acknowledged[session.id] = 0
    while time.time() < until:
        try:
            began = time.perf_counter()
            session.before_model(text(number))
            middle = time.perf_counter()
            session.after_model(text(number + 1))
            ended = time.perf_counter()
        except StoreError:
            found.failed += 1
            return
        found.before.append(middle - began)
        found.after.append(ended - middle)
        found.longest = max(found.longest, ended - began)
        found.acknowledged[session.id] += 2
        number += 2
        time.sleep(min(pause, max(0, until - time.time())))


def process(
    url: str, tenant: str, home: str, sessions: int, options: argparse.Namespace, ready: Any, results: Any
) -> None:
    found = Measured()
    with Herma.open(home, url, flags={**FLAGS, "store.tenant": tenant}) as h:
        h.transcripts.stats()
        ready.wait()
        until = time.time() + options.seconds
        threads = [
            threading.Thread(target=take_turns, args=(h, found, until, at * 1000, options.pause))
            for at in range(sessions)
        ]
        for thread in threads:
            thread.start()
        while time.time() < until:
            began = time.perf_counter()
            with suppress(StoreError):
                h.search("rose frost", limit=10)
                found.search.append(time.perf_counter() - began)
            time.sleep(1)
        for thread in threads:
            thread.join()
    results.put((tenant, found))


def searches(server: Server, options: argparse.Namespace) -> dict[str, Any]:
    """Time each question, and the work of the processors for it: of this process and of the server."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = str(Path(folder) / "tenant-0")
        fill(server.url(), home, options.messages)
        with Herma.open(home, server.url(), flags={**FLAGS, "store.tenant": "tenant-0"}) as h:
            until = time.time() + options.seconds
            while time.time() < until or len(found[next(iter(found))]) < 3:
                for name, query in QUESTIONS.items():
                    before = (time.perf_counter(), time.process_time(), server.worked())
                    h.search(query, limit=10)
                    after = (time.perf_counter(), time.process_time(), server.worked())
                    found.setdefault(name, []).append(tuple(b - a for a, b in zip(before, after, strict=True)))  # type: ignore[arg-type]
    row: dict[str, Any] = {"messages": options.messages}
    for name, values in found.items():
        waited, here, there = zip(*values[1:], strict=True)
        row |= {f"{name} {label} ms": round(1000 * value, 1) for label, value in spread([*waited])}
        row |= {f"{name} work ms": round(1000 * (sum(here) + sum(there)) / len(here), 1)}
    return row


def fill(url: str, home: str, messages: int) -> None:
    with Herma.open(home, url, flags={**FLAGS, "store.tenant": "tenant-0"}) as h:
        for start in range(0, messages, 500):
            session = h.transcripts.start("cli")
            rows = [{"role": ("user", "assistant")[at % 2], "content": text(start + at)} for at in range(500)]
            h.transcripts.append(session, rows)
        h.index.rebuild(embedding=None)


def measure(server: Server, options: argparse.Namespace, processes: int) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(processes + 1)
    with tempfile.TemporaryDirectory() as folder:
        homes = [str(Path(folder) / f"tenant-{at % options.tenants}") for at in range(processes)]
        if options.messages:
            fill(server.url(), homes[0], options.messages)
        share, rest = divmod(options.sessions, processes)
        workers = [
            context.Process(
                target=process,
                args=(server.url(), Path(home).name, home, share + (at < rest), options, ready, results),
            )
            for at, home in enumerate(homes)
        ]
        for worker in workers:
            worker.start()
        ready.wait()
        if options.kill:
            time.sleep(options.seconds / 2)
            server.kill()
            server.resume()
        found = [taken(results, workers) for _ in workers]
        for worker in workers:
            worker.join()
    stored = dict(server.sql("SELECT id, message_count FROM herma.sessions"))
    all_of = {
        name: [value for _, one in found for value in getattr(one, name)] for name in ("before", "after", "search")
    }
    lost = sum(max(0, count - stored.get(id_, 0)) for _, one in found for id_, count in one.acknowledged.items())
    return {
        "processes": processes,
        "turns per second": round(len(all_of["before"]) / options.seconds, 1),
        **{
            f"{name} {label} ms": round(1000 * value, 1)
            for name, values in all_of.items()
            for label, value in spread(values)
        },
        "longest turn s": round(max(one.longest for _, one in found), 1),
        "failed sessions": sum(one.failed for _, one in found),
        "acknowledged messages lost": lost,
    }


def taken(results: Any, workers: list[Any]) -> tuple[str, Measured]:
    while True:
        try:
            found: tuple[str, Measured] = results.get(timeout=1)
        except queue.Empty:
            if any(worker.exitcode for worker in workers):
                raise SystemExit("A process failed; its error is above.") from None
        else:
            return found


def spread(values: list[float]) -> list[tuple[str, float]]:
    if len(values) < 2:
        return []
    return [("p50", statistics.median(values)), ("p95", statistics.quantiles(values, n=20)[-1])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 8])
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--messages", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for processes in options.processes:
        server = Server.start("")
        try:
            initialise(server.url())
            row = measure(server, options, processes) if options.sessions else searches(server, options)
        finally:
            server.stop()
        print(
            json.dumps(row) if options.json else "  ".join(f"{name}: {value}" for name, value in row.items()),
            flush=True,
        )


if __name__ == "__main__":
    main()
