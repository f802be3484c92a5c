"""Work that nobody waits for: done in a thread of its own that begins with the first piece and ends with the last."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from herma.errors import HermaError

T = TypeVar("T")


class Aside(Generic[T]):
    """One piece after the other, in order. A failure is counted and kept for whoever asks, and ends nothing.

    The thread is not a daemon: a program that ends lets it finish, which takes as long as one write may wait.
    """

    def __init__(self, work: Callable[[T], object], name: str) -> None:
        self._work = work
        self._name = name
        self._changed = threading.Condition()
        self._queue: deque[T] = deque()
        self._busy = False
        self.failures = 0
        self.trouble = ""

    def put(self, piece: T) -> None:
        with self._changed:
            self._queue.append(piece)
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._run, name=self._name).start()

    def wait(self, timeout: float) -> bool:
        """Until everything is done. → False when that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._busy, timeout)

    def _run(self) -> None:
        finished = False
        try:
            while (piece := self._next()) is not None:
                try:
                    self._work(piece[0])
                except HermaError as exc:  # the home is read-only or busy: the next run of `rebuild` makes up for it
                    self.failures += 1
                    self.trouble = str(exc)
            finished = True
        finally:
            if not finished:  # a mistake of ours ends the thread, and must not leave others waiting
                with self._changed:
                    self._busy = False
                    self._queue.clear()
                    self._changed.notify_all()

    def _next(self) -> tuple[T] | None:
        with self._changed:
            if self._queue:
                return (self._queue.popleft(),)
            self._busy = False
            self._changed.notify_all()
            return None
