"""What a durable memory write costs over the bare system calls, and how long a session waits for its memory.

`add`: `MemoryStore.apply(Add)` (scan, lock, settle, file replaced and synced, history row committed and synced) against
a bare write + fsync + rename + fsync of the folder with the same bytes, taken in turns in the same folder.
`load`: both files full, read, scanned and rendered.

    python benchmarks/curated.py [--folder DIR ...] [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

from herma import Add, Herma, Remove
from herma.types import TARGETS

ADD_GOAL = 2.5
LOAD_GOAL_MS = 1.0


def bare_write(path: Path, data: bytes) -> None:
    """The least that makes new bytes durable under a name."""
    temporary = f"{path}.tmp"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(handle, data)
    os.fsync(handle)
    os.close(handle)
    os.replace(temporary, path)  # noqa: PTH105  bare on purpose
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def timed(work: Callable[[], object]) -> float:
    """Milliseconds."""
    start = perf_counter()
    work()
    return (perf_counter() - start) * 1000


def fill(h: Herma) -> None:
    """Both files nearly full of entries as people write them."""
    for target in TARGETS:
        number = 0
        while True:
            text = f"Fact {number}: the build of service {number * 7} needs flag --level={number} on the staging host."
            if not h.memory.apply(target, Add(text)).ok:
                break
            number += 1


def measure(folder: Path, rounds: int) -> dict[str, object]:
    root = Path(tempfile.mkdtemp(dir=folder))
    try:
        with Herma.open(root / "home") as h:
            fill(h)
            memory = root / "home" / "memories" / "MEMORY.md"
            h.memory.apply("memory", Remove("Fact 0:"))
            ours, bare = [], []
            for number in range(rounds + 10):
                text = f"Round {number}: something new to keep."
                add = timed(lambda text=text: h.memory.apply("memory", Add(text)))  # type: ignore[misc]
                data = memory.read_bytes()
                least = timed(lambda data=data: bare_write(root / "bare", data))  # type: ignore[misc]
                h.memory.apply("memory", Remove(f"Round {number}:"))
                if number >= 10:
                    ours.append(add)
                    bare.append(least)
        with Herma.open(root / "home") as h:
            fill(h)
            h.memory.load()
            loads = [timed(h.memory.load) for _ in range(max(rounds, 200))]
            used = [status.used for status in h.memory.status()]
    finally:
        shutil.rmtree(root)
    ratios = [a / b for a, b in zip(ours, bare, strict=True)]
    return {
        "folder": str(folder),
        "file_system": file_system(folder),
        "bytes": len(data),
        "rounds": rounds,
        "add_ms": statistics.median(ours),
        "bare_ms": statistics.median(bare),
        "ratio_of_medians": statistics.median(ours) / statistics.median(bare),
        "median_of_ratios": statistics.median(ratios),
        "add_p95_ms": statistics.quantiles(ours, n=20)[-1],
        "bare_p95_ms": statistics.quantiles(bare, n=20)[-1],
        "load_ms": statistics.median(loads),
        "load_p95_ms": statistics.quantiles(loads, n=20)[-1],
        "loaded_characters": sum(used),
    }


def file_system(folder: Path) -> str:
    """Its type, where the system tells."""
    best, found = "", platform.system()
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    real = os.path.realpath(folder)
    for line in mounts:
        _, point, kind, *_ = line.split(" ")
        if len(point) >= len(best) and (real == point or real.startswith(point.rstrip("/") + "/")):
            best, found = point, kind
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", action="append", type=Path, help="where to write; may be given several times")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    memory = Path("/dev/shm")
    folders = options.folder or [Path(tempfile.gettempdir()), *([memory] if memory.is_dir() else [])]
    results = [measure(folder, options.rounds) for folder in folders]
    if options.json:
        print(json.dumps({"python": platform.python_version(), "results": results}, indent=2))
        return
    print(f"{'folder':<16}{'type':<10}{'add':>9}{'bare':>9}{'ratio':>8}{'goal':>7}{'load':>9}{'goal':>8}")
    for row in results:
        print(
            f"{row['folder']!s:<16}{row['file_system']!s:<10}{row['add_ms']:>7.3f}ms{row['bare_ms']:>7.3f}ms"
            f"{row['ratio_of_medians']:>7.2f}x{ADD_GOAL:>6.1f}x{row['load_ms']:>7.3f}ms{LOAD_GOAL_MS:>6.1f}ms"
        )


if __name__ == "__main__":
    main()
