"""What starting costs over bare Python: `import herma`, `herma --help`, and a first session with its first turn.

python benchmarks/startup.py [--rounds N] [--json] [--top N]

Each in fresh processes, in turns, by the clock and by the processor's time. The least that a first turn could cost is
what a program takes that writes the same two messages to SQLite, as durably, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

HERE = Path(sys.executable).parent
HOME = "HOME"
"""Stands for a fresh home among the arguments of a command."""
SAID, ANSWERED = "Where did we leave the deployment of the billing service?", "At its third step: the queue was paused."
BARE = f"""
import sys, apsw
bare = apsw.Connection(sys.argv[1] + "/bare.db")
for statement in ("PRAGMA journal_mode = wal", "PRAGMA synchronous = full", "CREATE TABLE IF NOT EXISTS m (t TEXT)"):
    bare.execute(statement).fetchall()
for text in ({SAID!r}, {ANSWERED!r}):
    bare.execute("INSERT INTO m VALUES (?)", (text,))
bare.close()
"""
SESSION = """
import sys
from herma import Herma
with Herma.open(sys.argv[1]) as h:
    session = h.session()
"""
TURN = f"""{SESSION}    session.before_model({SAID!r})
    session.after_model({ANSWERED!r})
    session.close()
"""
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "bare python": ([sys.executable, "-c", "pass"], None),
    "import herma": ([sys.executable, "-c", "import herma"], 60.0),
    "from herma import Herma": ([sys.executable, "-c", "from herma import Herma"], None),
    "herma --help": ([shutil.which("herma", path=str(HERE)) or "herma", "--help"], 150.0),
    "two bare commits": ([sys.executable, "-c", BARE, HOME], None),
    "a first session": ([sys.executable, "-c", SESSION, HOME], None),
    "a first session and turn": ([sys.executable, "-c", TURN, HOME], None),
}
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def environment() -> dict[str, str]:
    """Byte code may be written and used, as for a user."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str]) -> tuple[float, float]:
    """Milliseconds from start to end: by the clock, and of the processor."""
    with tempfile.TemporaryDirectory(prefix="herma-start-") as home:
        given = [home if part == HOME else part for part in command]
        worked, start = processor(), perf_counter()
        subprocess.run(given, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
        return (perf_counter() - start) * 1000, processor() - worked


def processor() -> float:
    """Milliseconds that the processes which this one started have worked."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1000


def slowest_imports(statement: str, top: int) -> list[tuple[str, float]]:
    """The modules with the largest share of their own, in milliseconds."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=environment()).stderr
    own = [(match[4], int(match[1]) / 1000) for match in map(_IMPORT.match, told.splitlines()) if match]
    return sorted(own, key=lambda item: -item[1])[:top]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--top", type=int, default=8, help="how many modules to name")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for command, _ in COMMANDS.values():
        run(command)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(options.rounds):
        for name, (command, _) in COMMANDS.items():
            times[name].append(run(command))
    middle = {
        name: (statistics.median(clock for clock, _ in taken), statistics.median(worked for _, worked in taken))
        for name, taken in times.items()
    }
    bare, bare_processor = middle["bare python"]
    rows = [
        {
            "command": name,
            "ms": middle[name][0],
            "over_bare_ms": middle[name][0] - bare,
            "processor_ms": middle[name][1],
            "processor_over_bare_ms": middle[name][1] - bare_processor,
            "goal_ms": goal,
        }
        for name, (_, goal) in COMMANDS.items()
    ]
    imports = {code: slowest_imports(code, options.top) for code in ("import herma", "from herma import Herma")}
    if options.json:
        print(json.dumps({"python": platform.python_version(), "results": rows, "imports": imports}, indent=2))
        return
    print(f"{'command':<26}{'median':>10}{'over bare':>12}{'processor':>12}{'over bare':>12}{'goal':>10}")
    for row in rows:
        goal = f"{row['goal_ms']:.0f} ms" if row["goal_ms"] else ""
        print(
            f"{row['command']:<26}{row['ms']:>7.1f} ms{row['over_bare_ms']:>9.1f} ms"
            f"{row['processor_ms']:>9.1f} ms{row['processor_over_bare_ms']:>9.1f} ms{goal:>10}"
        )
    for code, modules in imports.items():
        print(f"\n{code}: " + ", ".join(f"{module} {ms:.1f}" for module, ms in modules))


if __name__ == "__main__":
    main()
