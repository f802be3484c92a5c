"""What starting costs over bare Python: `import herma`, using it, and `herma --help`, each in fresh processes in turns.

python benchmarks/startup.py [--rounds N] [--json] [--top N]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

HERE = Path(sys.executable).parent
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "bare python": ([sys.executable, "-c", "pass"], None),
    "import herma": ([sys.executable, "-c", "import herma"], 60.0),
    "from herma import Herma": ([sys.executable, "-c", "from herma import Herma"], None),
    "herma --help": ([shutil.which("herma", path=str(HERE)) or "herma", "--help"], 150.0),
}
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| (\s*)(\S+)")


def environment() -> dict[str, str]:
    """Byte code may be written and used, as for a user."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def run(command: list[str]) -> float:
    """Milliseconds from start to end."""
    start = perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    return (perf_counter() - start) * 1000


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
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.rounds):
        for name, (command, _) in COMMANDS.items():
            times[name].append(run(command))
    bare = statistics.median(times["bare python"])
    rows = [
        {
            "command": name,
            "ms": statistics.median(times[name]),
            "over_bare_ms": statistics.median(times[name]) - bare,
            "goal_ms": goal,
        }
        for name, (_, goal) in COMMANDS.items()
    ]
    imports = {code: slowest_imports(code, options.top) for code in ("import herma", "from herma import Herma")}
    if options.json:
        print(json.dumps({"python": platform.python_version(), "results": rows, "imports": imports}, indent=2))
        return
    print(f"{'command':<26}{'median':>10}{'over bare':>12}{'goal':>10}")
    for row in rows:
        goal = f"{row['goal_ms']:.0f} ms" if row["goal_ms"] else ""
        print(f"{row['command']:<26}{row['ms']:>7.1f} ms{row['over_bare_ms']:>9.1f} ms{goal:>10}")
    for code, modules in imports.items():
        print(f"\n{code}: " + ", ".join(f"{module} {ms:.1f}" for module, ms in modules))


if __name__ == "__main__":
    main()
