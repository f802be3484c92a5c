"""One installation at a time in a models' folder, over all processes. The system frees the lock of one that dies."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from herma.errors import StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LOCK = ".lock"
_LOOK_EVERY = 0.1


@contextmanager
def my_turn(folder: Path, seconds: float, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Hold the folder's lock; `waiting` is told once if somebody else has it."""
    deadline = time.monotonic() + seconds
    with (folder / LOCK).open("ab") as file:
        told = False
        while not _locked(file):
            if not told:
                waiting()
                told = True
            if time.monotonic() >= deadline:
                raise StoreBusy(f"Another process has been installing into {folder} for too long.")
            time.sleep(_LOOK_EVERY)
        yield  # closing the file gives the lock back


def _locked(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
