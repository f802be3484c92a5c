"""Importing has no effect: no file, thread, connection, output, or change to the process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import herma

# Runs in a fresh process: imports each module named on the command line, and reports what each one did.
PROBE = """
import sys
watched = []
def audit(event, args):
    if event in ("socket.connect", "socket.bind", "socket.__new__", "subprocess.Popen", "os.system", "os.mkdir",
                 "os.remove", "os.rename", "os.chmod", "os.putenv", "sqlite3.connect", "os.fork",
                 "_thread.start_new_thread"):
        watched.append(event + " " + repr(args)[:80])
    elif event == "open":
        path, mode, flags = args
        written = isinstance(flags, int) and flags & 0x3 or isinstance(mode, str) and set(mode) & set("wax+")
        if written and "__pycache__" not in str(path):
            watched.append("open " + repr(args)[:80])
sys.addaudithook(audit)
import atexit, gc, importlib, io, json, locale, logging, os, pathlib, signal, threading, warnings

class Stream(io.StringIO):
    pass

out, err = Stream(), Stream()
real, sys.stdout, sys.stderr = sys.stdout, out, err

def state():
    return {
        "files": sorted(str(p) for p in pathlib.Path(os.environ["HOME"]).rglob("*")),
        "threads": threading.active_count(),
        "printed": out.getvalue() + err.getvalue(),
        "environment": dict(os.environ),
        "signals": {s.name: str(signal.getsignal(s)) for s in signal.Signals},
        "filters": [str(f) for f in warnings.filters],
        "showwarning": str(warnings.showwarning),
        "loggers": {str(n): str(getattr(l, "handlers", "")) for n, l in logging.root.manager.loggerDict.items()
                    if str(n).startswith("herma")},
        "handlers": [str(h) for h in logging.root.handlers] + [logging.root.level],
        "hooks": [str(h) for h in (sys.excepthook, sys.displayhook, threading.excepthook, sys.unraisablehook)],
        "atexit": atexit._ncallbacks(),
        "cwd": os.getcwd(),
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion": sys.getrecursionlimit(),
        "events": list(watched),
    }

effects = {}
before = state()
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except BaseException:
        sys.stderr = sys.__stderr__
        raise
    after = state()
    effects[name] = {key: str(after[key]) for key in after if after[key] != before[key]}
    before = after
print(json.dumps({"effects": effects}), file=real)
"""


def all_modules() -> list[str]:
    source = Path(herma.__file__).parent
    names = (path.relative_to(source.parent).with_suffix("").parts for path in sorted(source.rglob("*.py")))
    found = [".".join(part for part in parts if part != "__init__") for parts in names if parts[-1] != "__main__"]
    frameworks = ("herma.integrations.items", "herma.integrations")  # the others need packages that are not here
    return [name for name in found if not name.startswith("herma.integrations") or name in frameworks]


def probe(folder: Path, *names: str, path: Path | None = None) -> dict[str, dict[str, dict[str, str]]]:
    environ = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "LC_ALL", "SYSTEMROOT")}
    environ |= {"HOME": str(folder), "USERPROFILE": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    if path is not None:
        environ["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *names], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, dict[str, str]]] = json.loads(done.stdout)
    return result


def test_importing_any_module_has_no_effect(tmp_path: Path) -> None:
    names = all_modules()
    assert {"herma", "herma.config", "herma.cli.main", "herma.cli.settings"} <= set(names)
    library = "mcp.server"  # has effects of its own (exit handlers); `herma mcp` alone loads the module that needs it
    effects = probe(tmp_path, library, *names)["effects"]
    assert effects.pop(library).keys() <= {"atexit"}
    assert list(effects) == names
    assert {name: effect for name, effect in effects.items() if effect} == {}


def test_the_probe_says_why_an_import_failed(tmp_path: Path) -> None:
    (tmp_path / "guilty.py").write_text("import no_such_thing")
    with pytest.raises(AssertionError, match="No module named 'no_such_thing'"):
        probe(tmp_path, "guilty", path=tmp_path)


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("import pathlib; pathlib.Path('made').write_text('')", "files"),
        ("import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "threads"),
        ("import socket; socket.socket().close()", "events"),
        ("import sqlite3; sqlite3.connect(':memory:')", "events"),
        ("import subprocess, sys; subprocess.run([sys.executable, '-c', ''])", "events"),
        ("import os; open(os.devnull, 'w').close()", "events"),
        ("print('hello')", "printed"),
        ("import warnings; warnings.warn('x')", "printed"),
        ("import os; os.environ['X'] = '1'", "environment"),
        ("import signal; signal.signal(signal.SIGTERM, lambda *_: None)", "signals"),
        ("import warnings; warnings.simplefilter('ignore')", "filters"),
        ("import logging; logging.basicConfig()", "handlers"),
        ("import logging; logging.getLogger('herma.x').addHandler(logging.NullHandler())", "loggers"),
        ("import sys; sys.excepthook = print", "hooks"),
        ("import atexit; atexit.register(print)", "atexit"),
        ("import os; os.chdir('/')", "cwd"),
    ],
)
def test_the_probe_sees_effects(tmp_path: Path, text: str, effect: str) -> None:
    code, empty = tmp_path / "code", tmp_path / "empty"
    code.mkdir()
    empty.mkdir()
    (code / "guilty.py").write_text(text)
    assert effect in probe(empty, "guilty", path=code)["effects"]["guilty"]
