"""Ending a process at a chosen point, for tests of what is on disk afterwards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

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
