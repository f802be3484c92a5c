"""The server's time for each page of the dashboard, in a large home.

    python benchmarks/dashboard.py                         100,000 messages, in a temporary folder
    python benchmarks/dashboard.py --home DIR              keep the home, and use it again
    python benchmarks/dashboard.py --messages 1000000

Text is made up as in `index.py`: 100 messages a session, one model call for five messages, an episode for every tenth
session, 300 changes of memory, 40 proposals, 20 skills. A page is the operation and its template, in this process,
without HTTP; the first call of each is warm-up and is shown too. `cpu` is processor time, which a busy machine does not
change. Goal: every page below 300 ms.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.index import Corpus

from herma import Add, Author, Herma, Origin, Who
from herma.prompt.ledger import Call
from herma.web.api import OPERATIONS, Operation, render
from herma.web.app import HomeHandle

GOAL_MS = 300.0
SESSION = 100
ROUNDS = 7


def build(home: Path, messages: int) -> None:
    corpus, now = Corpus(messages), time.time()
    with Herma.open(home, flags={"embedding.model": "none"}) as h:
        for first in range(0, messages, SESSION):
            project = f"project{first // SESSION % 9}"
            session = h.transcripts.start("cli", title=f"Session {first // SESSION}", folder=f"/src/{project}")
            texts = [corpus.text(number) for number in range(first, first + SESSION)]
            said = [{"role": ("user", "assistant")[at % 2], "content": text} for at, text in enumerate(texts)]
            h.transcripts.append(session, said)
            h.transcripts.end(session)
            for at in range(SESSION // 5):
                h.calls.add(Call(session, now - at * 60, 4_000, 200, "grew only", 3_000, 1_200, 80, model="m"))
            if first % (10 * SESSION) == 0:
                h.episodes.record(session)
        for number in range(300):
            h.memory.apply("memory" if number % 2 else "user", Add(f"Fact {number}"))
            if number % 30 != 29:
                h.memory.remove("memory" if number % 2 else "user", f"Fact {number}")
        for number in range(40):
            h.memory.apply("memory", Add(f"Read on a page: {number}"), author=Author(Who.TOOL, Origin.WEB))
        for number in range(20):
            text = (
                f"---\nname: skill-{number}\ndescription: {corpus.text(number)[:80]}\n---\n\n1. {corpus.text(number)}\n"
            )
            h.skills.create(f"skill-{number}", text, despite_similar=True)
        h.index.wait()


def page(house: HomeHandle, one: Operation, given: dict[str, str]) -> Callable[[], int]:
    """Return a function that makes the page and returns its size."""

    def make() -> int:
        arguments = one.arguments(given)
        asked = {each.name: arguments.get(each.name, each.default) for each in one.parameters}
        found = one.run(house, arguments)
        where = {"here": one.page, "path": one.page, "back": one.page, "inbox": house.waiting()}
        return len(render(f"{one.name}.html", title=one.title, found=found, asked=asked, **where))

    return make


def timed(work: Callable[[], int]) -> tuple[float, float, int]:
    """Return the milliseconds on the clock and of this process's processor time, and the size."""
    started, used = time.perf_counter(), time.process_time()
    size = work()
    return (time.perf_counter() - started) * 1_000, (time.process_time() - used) * 1_000, size


def measure(home: Path) -> list[dict[str, object]]:
    house = HomeHandle(home, lambda: Herma.open(home, flags={"embedding.model": "none"}))
    house.doctor()  # the server's first diagnosis is made beside the pages
    with house.opened() as h:
        listed = h.transcripts.list(limit=1)[0]
        word = Corpus(1).words[900]
    rows: list[dict[str, object]] = []
    for one in OPERATIONS:
        if not one.page:
            continue
        given = {"session": listed.id} if "{session}" in one.path else {}
        named = {
            "search": {"q": word},
            "change": {"id": "m1"},
            "episode": {"number": "1"},
            "skill": {"name": "skill-1"},
        }
        given |= named.get(one.name, {})
        make = page(house, one, given)
        first, _, size = timed(make)
        times, used, _ = zip(*(timed(make) for _ in range(ROUNDS)), strict=True)
        rows.append(
            {
                "page": one.page,
                "first_ms": first,
                "p50_ms": statistics.median(times),
                "max_ms": max(times),
                "cpu_ms": statistics.median(used),
                "bytes": size,
            }
        )
    house.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = options.home or Path(folder)
        if not (home / "herma.db").exists():
            home.mkdir(parents=True, exist_ok=True)
            build(home, options.messages)
        rows = measure(home)
    if options.json:
        print(json.dumps({"messages": options.messages, "pages": rows}, indent=2))
        return
    print(f"{'page':28} {'first':>8} {'p50':>8} {'max':>8} {'cpu':>8}   ms; goal {GOAL_MS:.0f}")
    for row in rows:
        numbers = " ".join(f"{row[name]:8.1f}" for name in ("first_ms", "p50_ms", "max_ms", "cpu_ms"))
        print(f"{row['page']:28} {numbers}   {int(str(row['bytes'])):,} bytes")


if __name__ == "__main__":
    main()
