"""One after the other, in the background: what a guest is told but nobody waits for."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

WAITING = 500
"""Things that may wait at most; when a guest is that far behind, the oldest are given up."""


class Lane:
    """A queue with one thread, which is begun with the first thing in it and ends when nothing is left."""

    def __init__(self, name: str, *, lost: Callable[[str], None] = lambda _: None, most: int = WAITING) -> None:
        self._name = name
        self._lost = lost
        self._most = most
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, what: str, work: Callable[[], None]) -> bool:
        """Do it after everything that was put here before. → whether it was taken; a closed lane takes nothing."""
        given_up = None
        with self._changed:
            if self._closed:
                return False
            if len(self._waiting) >= self._most:
                given_up = self._waiting.popleft()[0]
            self._waiting.append((what, work))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        if given_up is not None:
            self._lost(given_up)
        return True

    def flush(self, timeout: float) -> bool:
        """Wait until nothing is left. → whether that was so in time."""
        until = time.monotonic() + timeout
        with self._changed:
            while self._thread is not None:
                if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                    return False
        return True

    def close(self, timeout: float) -> list[str]:
        """Take nothing more, wait for what is there. → what was given up because it took too long."""
        with self._changed:
            self._closed = True
        if self.flush(timeout):
            return []
        with self._changed:
            left = [what for what, _ in self._waiting]
            self._waiting.clear()
        return left

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                _, work = self._waiting.popleft()
            work()
