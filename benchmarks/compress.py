"""What compression without a model keeps of a conversation, how much shorter it gets, and how its time grows.

Conversations come from DATA: folders with `corpus.jsonl` (each group is one) and JSONL files of agents, read for
whatever has a role and a text. Without DATA, and for the growth of time, coding sessions are made up.

    python benchmarks/compress.py [DATA ...] [--window N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from herma.counting import counter_for
from herma.ports import Tries
from herma.prompt.results import compress_result
from herma.reflect.compress.engine import Compressor
from herma.reflect.compress.fidelity import tasks_of
from herma.types import Condensed, Message

KINDS = ("path", "identifier", "number", "task")


class Forgetful:
    """Nothing has been tried before."""

    def tries(self, conversation: str) -> Tries:  # noqa: ARG002
        return Tries()

    def remember(self, conversation: str, tries: Tries) -> None:
        """Not here."""


def made_up(turns: int, seed: int = 1) -> list[Message]:
    """A coding session: requests, calls with long results, errors, decisions, open tasks."""
    chance = random.Random(seed)
    messages: list[Message] = []

    def say(role: str, content: str | None, **more: Any) -> None:
        messages.append(Message(role, content, id=len(messages) + 1, **more))

    for turn in range(turns):
        part, other = chance.randrange(40), chance.randrange(40)
        path = f"src/part_{part}/module_{other}.py"
        say("user", f"Please change handle_{part}() in {path}; it must stay below {100 + other} ms. Ticket ABC-{part}.")
        for step in range(chance.randrange(1, 4)):
            name = f"call_{turn}_{step}"
            arguments = json.dumps({"command": f"pytest tests/test_{part}.py -k case_{other}"})
            call = {"id": name, "type": "function", "function": {"name": "shell", "arguments": arguments}}
            say("assistant", None, tool_calls=(call,))
            rows = "\n".join(
                f"{path}:{row}: value_{row * 7 % 97} = {row * turn}" for row in range(chance.randrange(5, 60))
            )
            result = f"{rows}\nValueError: bad row {turn}" if step == 0 else rows
            say("tool", result, tool_call_id=name, sent=compress_result(result, reference=name).text)
        said = f"Fixed handle_{part}() in {path}. I decided to cache the rows because reading took {turn + 20} ms."
        say("assistant", said + (f"\nTODO: measure part {part} again" if turn % 5 == 0 else ""))
    return messages


def conversations(place: Path) -> Iterator[tuple[str, list[Message]]]:
    """Every conversation in a folder."""
    for corpus in sorted(place.rglob("corpus.jsonl")):
        rows = [json.loads(line) for line in corpus.read_text("utf-8").splitlines() if line.strip()]
        if rows and any(row.get("role") for row in rows):
            for group, docs in groupby(rows, key=lambda row: row.get("group", "")):
                yield (
                    f"{corpus.parent.name}/{group}",
                    [
                        Message("assistant" if row.get("role") == "assistant" else "user", row["text"], id=at)
                        for at, row in enumerate(docs, 1)
                    ],
                )
    for file in sorted(place.rglob("*.jsonl")):
        if file.name not in ("corpus.jsonl", "queries.jsonl"):
            messages = list(_said(file))
            if len(messages) >= 10:
                yield str(file.relative_to(place)), messages


def _said(file: Path) -> Iterator[Message]:
    number = 0
    for line in file.read_text("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        for holder in (row, row.get("message"), row.get("payload")) if isinstance(row, dict) else ():
            role = holder.get("role") if isinstance(holder, dict) else None
            text = _text(holder.get("content")) if isinstance(holder, dict) else ""
            if role in ("user", "assistant") and text:
                number += 1
                yield Message(role, text, id=number)
                break


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def measure(messages: list[Message], window: int | None) -> dict[str, Any]:
    counter = counter_for(None)
    probe = Compressor("c", 1_000, counter, Forgetful(), clock=time.time)
    tokens = sum(map(probe._weight, messages))
    engine = Compressor("c", window or max(1_000, int(tokens / 1.2)), counter, Forgetful(), clock=time.time)
    begun = time.process_time()
    done = engine.compress(messages, current_tokens=tokens, force=True)
    seconds = time.process_time() - begun
    if not isinstance(done, Condensed):
        return {"before": tokens, "left_alone": done.reason, "seconds": round(seconds, 4)}
    return {
        "messages": len(messages),
        "before": tokens,
        "after": done.tokens_after,
        "kept": dict(done.kept),
        "tasks": len(tasks_of(messages)),
        "seconds": round(seconds, 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument(
        "--window", type=int, default=0, help="the model's window; 0: a little less than the conversation"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found: dict[str, list[dict[str, Any]]] = {}
    for place in given.data:
        for name, messages in conversations(place):
            group = name.split("/")[0]
            found.setdefault(group, []).append(measure(messages, given.window or None))
    found["made up"] = [measure(made_up(200, seed), given.window or None) for seed in (1, 2, 3)]
    growth = {turns: measure(made_up(turns), None)["seconds"] for turns in (250, 500, 1_000, 2_000)}
    if given.json:
        print(json.dumps({"conversations": found, "seconds_by_turns": growth}, indent=2))
        return
    print(f"{'conversations':28} {'n':>3} {'before':>8} {'after':>8} " + " ".join(f"{kind:>10}" for kind in KINDS))
    for group, runs in found.items():
        done = [run for run in runs if "after" in run]
        if done:
            shares = (statistics.mean(run["kept"].get(kind, 1.0) for run in done) for kind in KINDS)
            sizes = (statistics.mean(run[key] for run in done) for key in ("before", "after"))
            print(
                f"{group[:28]:28} {len(done):3} "
                + " ".join(f"{size:8,.0f}" for size in sizes)
                + " "
                + " ".join(f"{share:10.1%}" for share in shares)
            )
    print("\nseconds without a model, by turns: " + ", ".join(f"{turns}: {each:.3f}" for turns, each in growth.items()))


if __name__ == "__main__":
    main()
