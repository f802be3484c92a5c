"""What a hook costs a client: the wall time of whole processes in a home with many messages, with and without a helper.

python benchmarks/hook.py [--messages N] [--rounds N] [--json]

The prompts are questions about what was said, each new. The least that a hook could cost is a bare Python that reads
its input. Without the helper, the same answer is made in the hook's own process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

from herma import Herma
from herma.mcp.hook import SOCKET

PROGRAM = [shutil.which("herma", path=str(Path(sys.executable).parent)) or "herma"]
BARE = [sys.executable, "-c", "import sys; sys.stdin.buffer.read()"]
_NOUNS = "gateway scheduler invoice printer cluster pipeline compiler sensor bucket ledger"
_MORE = "north amber quick silent copper winter linear hollow bright narrow seven delta omega crane"
THINGS, WORDS = _NOUNS.split(), _MORE.split()
WITHOUT_HELPER = """
import sys
from herma.mcp.events import respond
from herma.app import Herma
home, event, request = sys.argv[1], sys.argv[2], sys.stdin.buffer.read()
with Herma.open(home) as h:
    fields = [event.encode(), b"claude-code", b"/", b"1", *[b""] * 4, request]
    sys.stdout.buffer.write(respond(h, b"\\0".join(fields)))
"""


def filled(home: Path, messages: int) -> None:
    chance = random.Random(7)
    with Herma.open(home, flags={"embedding.model": "none"}) as h:
        for number in range(100):
            h.memory.add("memory", f"Fact {number}: the {chance.choice(THINGS)} is {chance.choice(WORDS)}.")
        for start in range(0, messages, 100):
            session = h.transcripts.start("claude-code", imported=True)
            said = []
            for at in range(start, start + 100, 2):
                thing, word = f"{chance.choice(THINGS)} {at % 9_973}", " ".join(chance.sample(WORDS, 5))
                said.append({"role": "user", "content": f"What is the state of the {thing}? I think it is {word}."})
                said.append({"role": "assistant", "content": f"The {thing} runs on host {word.replace(' ', '-')}."})
            h.transcripts.append(session, said)
        h.index.wait()


def timed(command: list[str], payload: Mapping[str, object]) -> tuple[float, bytes]:
    text = json.dumps(payload).encode()
    began = perf_counter()
    done = subprocess.run(command, input=text, capture_output=True, check=True)
    return (perf_counter() - began) * 1000, done.stdout


def wait_for(path: Path) -> None:
    for _ in range(300):
        if path.exists():
            return
        time.sleep(0.1)
    raise SystemExit("The helper did not start.")


def measure(home: Path, rounds: int, messages: int) -> dict[str, dict[str, float]]:
    def hook(event: str) -> list[str]:
        return [*PROGRAM, "hook", event, "--client", "claude-code", "--home", str(home)]

    took: dict[str, list[float]] = {}
    recalled = 0
    timed(hook("session-start"), {"session_id": "warm", "hook_event_name": "SessionStart"})
    wait_for(home / SOCKET)
    for number in range(rounds):
        prompt = f"What is the state of the {THINGS[number % 10]} {number * 37 % min(9_973, messages)}?"
        asked = {"session_id": f"s{number}", "hook_event_name": "UserPromptSubmit", "prompt": prompt, "prompt_id": "1"}
        began = {"session_id": f"s{number}", "hook_event_name": "SessionStart", "source": "startup"}
        alone = [sys.executable, "-c", WITHOUT_HELPER, str(home)]
        for name, command, payload in (
            ("bare python", BARE, began),
            ("session start", hook("session-start"), began),
            ("prompt", hook("prompt"), asked),
            ("stop", hook("stop"), {**began, "hook_event_name": "Stop"}),
            ("prompt without the helper", [*alone, "prompt"], {**asked, "session_id": f"a{number}"}),
        ):
            if name.endswith("helper") and number % 5:
                continue
            milliseconds, out = timed(command, payload)
            took.setdefault(name, []).append(milliseconds)
            recalled += name == "prompt" and b"host " in out
    found = {name: _figures(values) for name, values in took.items()}
    found["prompt"]["recalled"] = recalled / rounds
    return found


def _figures(values: list[float]) -> dict[str, float]:
    ordered = sorted(values)
    return {
        "best": round(ordered[0], 1),
        "median": round(statistics.median(ordered), 1),
        "p95": round(ordered[int(len(ordered) * 0.95) - (len(ordered) > 20)], 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="herma-hook-") as folder:
        home = Path(folder)
        filled(home, wanted.messages)
        try:
            found = measure(home, wanted.rounds, wanted.messages)
        finally:
            helper = subprocess.run(["pgrep", "-f", f"herma.mcp.events {home}$"], capture_output=True, check=False)
            for process in helper.stdout.split():
                os.kill(int(process), signal.SIGTERM)
    if wanted.json:
        print(json.dumps({"messages": wanted.messages, "load": os.getloadavg()[0], "milliseconds": found}))
        return
    for name, figures in found.items():
        print(f"{name:28}" + "  ".join(f"{key} {value:g}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
