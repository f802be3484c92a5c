"""What episodes cost: the end of a session with and without them in the same run, making one, and finding among many.

python benchmarks/episodes.py [--episodes N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from herma import Herma, Scope

WORDS = (
    *("login", "deploy", "proxy", "nginx", "parser", "rust", "python", "module", "test", "database", "index", "search"),
    *(
        "memory",
        "session",
        "prompt",
        "cache",
        "token",
        "server",
        "client",
        "image",
        "photo",
        "letter",
        "trip",
        "garden",
    ),
    *("plan", "house", "report", "chart", "table", "query", "schema", "migration"),
)


def median_ms(call: Callable[[], object], times: int) -> float:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began)
    return round(1000 * statistics.median(taken), 2)


def used(number: int, output: str) -> list[dict[str, Any]]:
    function = {"name": "terminal", "arguments": json.dumps({"command": f"pytest tests/test_{number}.py"})}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": output},
    ]


def closing(turns: int) -> dict[str, float]:
    """The end of a session of so many turns: with its episode, without one, and making it."""
    found: dict[str, float] = {}
    for name, context in (("with", "primary"), ("without", "subagent")):
        taken = []
        for _ in range(5):
            with tempfile.TemporaryDirectory() as home, Herma.open(home) as h:
                session = h.session(source="cli", context=context)  # type: ignore[arg-type]
                for number in range(turns):
                    session.before_model(f"please fix problem number {number} in module_{number}.py, it fails")
                    session.after_model(used(number, f"line of output {number}\n" * 100 + "3 passed"))
                    session.after_model(f"Fixed problem {number}. Next steps:\n- look at {number + 1}")
                began = time.perf_counter()
                session.close()
                taken.append(1000 * (time.perf_counter() - began))
                if name == "with":
                    found["made_ms"] = median_ms(lambda h=h, s=session: h.episodes.record(s.id), 5)  # type: ignore[misc]
        found[f"close_{name}_ms"] = round(statistics.median(taken), 2)
    return {"turns": turns, **found}


def finding(episodes: int) -> dict[str, float]:
    """Searching, opening and listing with so many episodes. The vocabulary is small: every word is common."""
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as home, Herma.open(home) as h:
        for number in range(episodes):
            session = h.transcripts.start("cli", scope=Scope(project=f"p{number % 20}"))
            task, answer = (" ".join(chance.choices(WORDS, k=k)) for k in (8, 15))
            said = [
                {"role": "user", "content": f"{task} {number}"},
                {"role": "assistant", "content": f"Done: {answer}."},
            ]
            h.transcripts.append(session, said)
        began = time.perf_counter()
        h.episodes.rebuild()
        per_episode = 1000 * (time.perf_counter() - began) / episodes
        task = "configure the nginx proxy for the login deployment on the server"
        return {
            "episodes": episodes,
            "rebuild_ms_each": round(per_episode, 2),
            "search_ms": median_ms(lambda: h.episodes.search_similar(task), 20),
            "open_session_ms": median_ms(lambda: h.session(project="p3").close(), 10),
            "list_ms": median_ms(h.episodes.list, 10),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--episodes", type=int, default=2_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {"closing": [closing(turns) for turns in (1, 20, 100)], "finding": finding(options.episodes)}
    print(json.dumps(results) if options.json else json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
