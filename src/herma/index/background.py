"""Indexing in the background of a process that goes on: one thread, started by the first write, woken by later ones."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from herma.errors import HermaError, StoreBusy
from herma.ports import IndexUnusable

QUIET = 0.2
"""Seconds without a write after which indexing begins."""
MOST_BEHIND = 5_000
"""Messages behind at which it begins without waiting."""
_RETRY = 0.1

Work = Callable[[Callable[[], bool]], None]


class Background:
    """Runs `work` after writes, and checks on request. A failure is kept for whoever asks, and ends nothing."""

    def __init__(
        self, work: Work, check: Work, clock: Callable[[], float] = time.monotonic, *, quiet: float = QUIET
    ) -> None:
        self._work, self._check = work, check
        self._clock = clock
        self._quiet = quiet
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due: float | None = None
        self._behind = 0
        self._suspicious = False
        self._stopping = threading.Event()
        self.trouble = ""

    def written(self, messages: int) -> None:
        """Messages were written: index them when writing pauses."""
        with self._changed:
            self._behind += messages
            quiet = self._clock() + self._quiet
            self._due = quiet if self._behind < MOST_BEHIND else min(self._due or quiet, self._clock())
            self._start()

    def begin(self, *, check: bool = False) -> None:
        """There is something to do: begin at once."""
        with self._changed:
            self._due = self._clock()
            self._suspicious = self._suspicious or check
            self._start()

    def close(self, timeout: float) -> None:
        """Stop after the slice at hand."""
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> None:
        if self._thread is None and not self._stopping.is_set():
            self._thread = threading.Thread(target=self._run, name="herma-index", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _run(self) -> None:
        while not self._stopping.is_set():
            check = self._wait()
            if self._stopping.is_set():
                return
            try:
                self._work(self._stopping.is_set)
                if check:
                    self._check(self._stopping.is_set)
                self.trouble = ""
            except StoreBusy:
                self._stopping.wait(_RETRY)
                self.begin(check=check)
            except (HermaError, IndexUnusable) as error:
                self.trouble = str(error)

    def _wait(self) -> bool:
        """Until work is due. → whether a check was asked for."""
        with self._changed:
            while not self._stopping.is_set():
                left = None if self._due is None else self._due - self._clock()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            self._due, self._behind = None, 0
            check, self._suspicious = self._suspicious, False
            return check
