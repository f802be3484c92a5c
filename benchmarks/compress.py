"""What compression keeps of a conversation, how much shorter it gets, and how its time grows.

Conversations come from DATA: folders with `corpus.jsonl` (each group is one) and JSONL files of agents, read for what
was said, called and answered. Those files are mostly short: all of a folder are also joined, one session after the
other, as somebody has them who never begins a new conversation. Without DATA, and for the growth of time, coding
sessions are made up.

Each conversation is shortened without a model, and with one that answers over HTTP with a summary as a hurried person
would write it: what it names by itself is shown beside what is left after the gate has added what was missing.

    python benchmarks/compress.py [DATA ...] [--window N] [--json]
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from herma import Herma
from herma.compression.engine import Compressor, EngineNeeds
from herma.compression.summary import Compressed, Survey, check, landmarks, parse, render, stands_in, survives
from herma.models.client import ChatModel
from herma.prompt.tokens import counter_for
from herma.prompt.tool_results import compress_result
from herma.testing import Asked, ScriptedModel
from herma.testing.contracts import RememberedTries
from herma.transcript.messages import text_of
from herma.types import Message

KINDS = ("path", "identifier", "number", "task")
HOWS = ("own words", "model alone", "model + gate")
_MATERIAL = re.compile(r"^#(\d+) (user|assistant): ([^\n]+)", re.MULTILINE)


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
            say("tool", result, tool_call_id=name, sent=compress_result(result, reference=name))
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
    joined: list[Message] = []
    for file in sorted(place.rglob("*.jsonl")):
        if file.name not in ("corpus.jsonl", "queries.jsonl"):
            messages = list(_said(file))
            if len(messages) >= 10:
                yield str(file.relative_to(place)), numbered(messages)
            joined += messages
    if joined:
        yield "joined sessions/all", numbered(joined)


def numbered(messages: Sequence[Message]) -> list[Message]:
    """As one conversation: each message has a number of its own, and a result without its call is left out."""
    kept: list[Message] = []
    calls: set[str] = set()
    for message in messages:
        if message.role == "tool" and message.tool_call_id not in calls:
            continue
        calls |= {str(call["id"]) for call in message.tool_calls}
        if message.role == "tool":
            calls.discard(message.tool_call_id or "")
        kept.append(replace(message, id=len(kept) + 1))
    return kept


def _said(file: Path) -> Iterator[Message]:
    for line in file.read_text("utf-8", "replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        for holder in (row, row.get("message"), row.get("payload")) if isinstance(row, dict) else ():
            if isinstance(holder, dict) and (messages := list(_read(holder))):
                yield from messages
                break


def _read(holder: dict[str, Any]) -> Iterator[Message]:
    """What one record says: a text, calls of tools with what was given to them, results."""
    role, content = holder.get("role"), holder.get("content")
    if holder.get("type") in ("function_call", "custom_tool_call"):
        given = str(holder.get("arguments") or holder.get("input") or "{}")
        yield Message("assistant", None, tool_calls=(_call(holder.get("call_id"), holder.get("name"), given),))
    elif holder.get("type") in ("function_call_output", "custom_tool_call_output"):
        output = holder.get("output")
        yield _result(holder.get("call_id"), output if isinstance(output, str) else json.dumps(output))
    if role not in ("user", "assistant"):
        return
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    called = [part for part in parts if part.get("type") == "tool_use"]
    calls = tuple(_call(part.get("id"), part.get("name"), json.dumps(part.get("input"))) for part in called)
    if _text(content) or calls:
        yield Message(role, _text(content) or None, tool_calls=calls)
    for part in parts:
        if part.get("type") == "tool_result":
            yield _result(part.get("tool_use_id"), _text(part.get("content")))


def _call(number: Any, name: Any, arguments: str) -> dict[str, Any]:
    return {"id": str(number), "type": "function", "function": {"name": str(name), "arguments": arguments}}


def _result(number: Any, text: str) -> Message:
    return Message("tool", text, tool_call_id=str(number), sent=compress_result(text, reference=str(number)))


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def hurried(asked: Asked) -> str:
    """A plausible summary: the first request, the newest steps, the files that come up most, one task."""
    said = [(int(number), role, text) for number, role, text in _MATERIAL.findall(asked.last)]
    users = [(number, text) for number, role, text in said if role == "user"]
    replies = [(number, text) for number, role, text in said if role == "assistant"]
    paths = Counter(mark.text for _, _, text in said for mark in landmarks(text) if mark.kind == "path")
    sections: list[tuple[str, list[tuple[int, str]]]] = [
        ("Goal", users[:1]),
        ("Constraints and preferences", [one for one in users if "must" in one[1]][-4:]),
        ("Done", replies[-12:]),
        ("Files", [(said[-1][0], ", ".join(path for path, _ in paths.most_common(8)))] if paths else []),
        ("Next steps", [(said[-1][0], "Go on with the last request")] if said else []),
    ]
    return "\n\n".join(
        "\n".join([f"## {heading}", *(f"- {text[:160]} [#{number}]" for number, text in lines)])
        for heading, lines in sections
        if lines
    )


def measure(
    messages: list[Message], window: int | None, models: Sequence[ChatModel] = (), script: ScriptedModel | None = None
) -> dict[str, Any]:
    counter = counter_for(None)

    def needs(window: int) -> EngineNeeds:
        return EngineNeeds(
            conversation="c",
            window=window,
            window_known=True,
            counter=counter,
            rows=RememberedTries(),
            clock=time.time,
            models=lambda: models,
        )

    probe = Compressor(needs(1_000))
    tokens = sum(map(probe._weight, messages))
    size = window or max(1_000, int(tokens / 1.2))
    engine = Compressor(needs(size))
    begun = time.process_time()
    done = engine.compress(messages, current_tokens=tokens, force=True)
    seconds = time.process_time() - begun
    if not isinstance(done, Compressed):
        return {"before": tokens, "left_alone": done.reason, "seconds": round(seconds, 4)}
    survey = Survey.of([message for message in messages if message not in done.messages])
    alone = {}
    if script is not None:
        written = parse(hurried(script.requests[-1]))
        verdict = check(survey, written)
        shares = {kind: round(verdict.share(kind), 4) for kind in KINDS}
        alone = {"alone": {**shares, "required": required(survey, render(written))}}
    summary = next((text_of(message.content) for message in done.messages if stands_in(message)), "")
    return {
        "how": done.how,
        **alone,
        "messages": len(messages),
        "before": tokens,
        "after": done.tokens_after,
        "kept": {**done.kept, "required": required(survey, summary)},
        "tasks": len(Survey.of(messages).tasks),
        "seconds": round(seconds, 4),
    }


def required(survey: Survey, text: str) -> float:
    """The share of what the user named, and of what came up again, that a text has."""
    must = [each.mark for each in survey.weighty if each.required]
    return round(sum(survives(mark, text) for mark in must) / len(must), 4) if must else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", type=Path)
    parser.add_argument(
        "--window", type=int, default=0, help="the model's window; 0: a little less than the conversation"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    everything: dict[str, list[list[Message]]] = {}
    for place in given.data:
        for name, messages in conversations(place):
            everything.setdefault(name.split("/")[0], []).append(messages)
    everything["made up"] = [made_up(200, seed) for seed in (1, 2, 3)]
    found = compare(everything, given.window or None)
    growth = {turns: measure(made_up(turns), None)["seconds"] for turns in (250, 500, 1_000, 2_000)}
    if given.json:
        print(json.dumps({"conversations": found, "seconds_by_turns": growth}, indent=2))
        return
    show(found)
    print("\nseconds without a model, by turns: " + ", ".join(f"{turns}: {each:.3f}" for turns, each in growth.items()))


def compare(everything: dict[str, list[list[Message]]], window: int | None) -> dict[str, dict[str, list[Any]]]:
    """Each conversation without a model and with the scripted one."""
    found: dict[str, dict[str, list[Any]]] = {}
    with tempfile.TemporaryDirectory() as home, ScriptedModel(hurried) as script:
        flags = {"model.url": script.url, "model.name": "scripted", "model.kind": "openai"}
        with Herma.open(home, flags=flags) as h:
            model = h.model()
            assert model is not None
            for group, every in everything.items():
                own = [measure(messages, window) for messages in every]
                written = [measure(messages, window, [model], script) for messages in every]
                found[group] = {"own words": own, "model": written}
    return found


def show(found: dict[str, dict[str, list[Any]]]) -> None:
    heads = " ".join(f"{kind:>10}" for kind in (*KINDS, "required"))
    print(f"{'conversations':24} {'summary':13} {'n':>3} {'before':>8} {'after':>8} {heads}")
    for group, runs in found.items():
        for how in HOWS:
            done = [run for run in runs["own words" if how == HOWS[0] else "model"] if "after" in run]
            if not done:
                continue
            key = "alone" if how == "model alone" else "kept"
            shares = " ".join(
                f"{statistics.mean(run[key].get(kind, 1.0) for run in done):10.1%}" for kind in (*KINDS, "required")
            )
            sizes = " ".join(f"{statistics.mean(run[size] for run in done):8,.0f}" for size in ("before", "after"))
            print(f"{group[:24]:24} {how:13} {len(done):3} {sizes} {shares}")


if __name__ == "__main__":
    main()
