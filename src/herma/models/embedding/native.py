"""Calls into native code from threads that nobody waits for.

When the interpreter ends, a daemon thread is cut off wherever it next wants to run Python. Inside of onnxruntime that
is the end of the whole process (`std::terminate`, exit code 134), although everything asked for had been done. So the
end waits for calls under way, and lets no new one begin.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from herma.errors import EmbedderError

LONGEST = 20.0
"""Seconds that the end of the program waits; loading a model on a busy machine takes a few."""


class NativeCalls:
    """The calls that are under way in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._ending = False
        self._process = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call that must not be cut off."""
        with self._changed:
            if self._ending:
                raise EmbedderError("The program is ending.")
            if self._process != os.getpid():  # the first call, or a forked child, which has no other threads
                self._process, self._under_way = os.getpid(), 0
                atexit.register(self.end)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let no call begin any more, and wait for those under way."""
        if self._process == os.getpid():
            with self._changed:
                self._ending = True
                self._changed.wait_for(lambda: not self._under_way, LONGEST)


NATIVE = NativeCalls()
