"""Trace one turn with one tool call, background work included: which files a reader has to open to follow it.

    .venv/bin/python benchmarks/one_turn.py            # the figures as JSON, then the files as they are called first
    .venv/bin/python benchmarks/one_turn.py --hops     # also the calls between files that no import announces

A hop is a call from one file of the package into another; a decorator of the package stands for its caller. A hop goes
through an interface where the called file implements a class of the calling one (a feature, a database engine). Another
hop has no import behind it where the calling file does not import the called one: a closure or a callback.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import herma
from herma import Herma
from herma.models.telemetry import traced

ROOT = Path(herma.__file__).parent
INTERFACES = {"store/database.py": "store/sqlite.py"}
"""An interface that features import, and the file whose class is behind it here."""
TOOL_CALL = {
    "id": "call_1",
    "type": "function",
    "function": {
        "name": "memory",
        "arguments": '{"action": "add", "target": "memory", "content": "Login uses OAuth."}',
    },
}


class Trace:
    """Count calls between files of the package, in every thread."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.hops: collections.Counter[tuple[str, str]] = collections.Counter()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        here = _file(frame)
        if here is None:
            return
        self.files.setdefault(here)
        caller = frame.f_back
        while caller is not None and ((there := _file(caller)) is None or caller.f_code in WRAPPERS):
            caller = caller.f_back  # through the standard library, a dependency or a decorator
        if caller is not None and there is not None and there != here:
            self.hops[there, here] += 1


WRAPPERS = {Herma.session.__code__, traced("benchmark")(len).__code__}


def _file(frame: FrameType) -> str | None:
    name = frame.f_code.co_filename
    return str(Path(name).relative_to(ROOT)) if name.startswith(str(ROOT)) else None


def one_turn(home: str) -> Trace:
    """Run a first session to load everything, then trace a turn of a second one until the background is quiet."""
    trace = Trace()
    with Herma.open(home=home) as h:
        with h.session(source="warm") as session:
            session.before_model("hello")
            session.call_tool("memory", TOOL_CALL["function"]["arguments"])  # type: ignore[index]
            session.after_model("hi")
        h.index.wait()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            with h.session(source="benchmark") as session:
                session.before_model("fix the login bug")
                result = session.call_tool("memory", TOOL_CALL["function"]["arguments"])  # type: ignore[index]
                session.after_model(
                    [
                        {"role": "assistant", "content": None, "tool_calls": [TOOL_CALL]},
                        {"role": "tool", "tool_call_id": "call_1", "content": result},
                    ]
                )
                session.before_model()
                session.after_model("Done.")
            h.index.wait()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return trace


def imports(path: Path) -> set[str]:
    """Return the files of the package that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "herma":
            for name in (node.module, *(f"{node.module}.{alias.name}" for alias in node.names)):
                found |= _files_of(name)
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found |= _files_of(alias.name)
    return found


def _files_of(module: str) -> set[str]:
    base = Path(*module.split(".")[1:])
    places = (base.with_suffix(".py"), base / "__init__.py") if base.parts else (Path("__init__.py"),)
    return {str(place) for place in places if (ROOT / place).is_file()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hops", action="store_true", help="list the calls that no import announces")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        trace = one_turn(home)
    known = {name: imports(ROOT / name) for name in trace.files}
    known = {name: files | {INTERFACES[each] for each in files & INTERFACES.keys()} for name, files in known.items()}
    foreign = {hop: count for hop, count in trace.hops.items() if hop[1] not in known[hop[0]]}
    unannounced = {hop: count for hop, count in foreign.items() if hop[0] not in known[hop[1]]}
    calls = sum(trace.hops.values())
    print(
        json.dumps(
            {
                "files": len(trace.files),
                "lines": sum(len((ROOT / name).read_text("utf-8").splitlines()) for name in trace.files),
                "hops": calls,
                "pairs_of_files": len(trace.hops),
                "hops_through_interfaces": sum(foreign.values()) - sum(unannounced.values()),
                "hops_without_import": sum(unannounced.values()),
                "share_without_import": round(sum(unannounced.values()) / calls, 3),
            }
        )
    )
    print("\n".join(trace.files))
    if given.hops:
        for (caller, called), count in sorted(unannounced.items(), key=lambda item: -item[1]):
            print(f"{count:5} {caller} → {called}")


if __name__ == "__main__":
    main()
