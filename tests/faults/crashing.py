"""End a process at a chosen point, run threads at the same time, run a script with mounts of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NEEDS_FORK = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and kill"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning"),  # the runner's threads, not ours
]


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a child that never returns into the suite. → its process id."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(99)
    return pid


def die(*_: object, **__: object) -> None:
    os._exit(7)


def after(module: object, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the process die when this function has done its work."""
    real = getattr(module, name)

    def then_die(*args: object, **kwargs: object) -> object:
        real(*args, **kwargs)
        os._exit(7)

    monkeypatch.setattr(module, name, then_die)


def together(*actions: Callable[[], object]) -> list[BaseException]:
    """Run all at the same time. → what went wrong."""
    wrong: list[BaseException] = []
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], object]) -> None:
        start.wait()
        try:
            action()
        except BaseException as exc:  # noqa: BLE001  reported to the test
            wrong.append(exc)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return wrong


def with_own_mounts(mounts: str, folder: Path, code: str) -> str:
    """Run a shell script in a mount namespace, which ends with `exec "$2" -c "$3"`. → what it printed."""
    allowed = subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False) if os.name != "nt" else None
    if allowed is None or allowed.returncode:
        pytest.skip("needs a mount namespace")
    command = ["unshare", "-rm", "sh", "-c", mounts, "sh", str(folder), sys.executable, code]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout
