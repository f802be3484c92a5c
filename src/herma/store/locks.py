"""One process at a time: an advisory lock on a file beside the one it protects.

POSIX uses `flock` (two handles in one process exclude each other too), Windows one byte of `msvcrt.locking`. Some
network file systems have neither: then the work goes on unprotected after one warning, and atomic replacement still
keeps readers safe.
"""

from __future__ import annotations

import errno
import os
import random
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from herma.errors import HermaWarning, StoreBusy, StoreError

_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_LONGEST_PAUSE = 0.02
_told: set[str] = set()


@dataclass(frozen=True, slots=True)
class Locking:
    """How a platform locks an open file: `take` at once or raise OSError; `release`.

    Letting go is said in so many words, because closing is not enough: a forked child has the file open too.
    """

    take: Callable[[int], None]
    release: Callable[[int], None]


def platform_locking() -> Locking | None:
    """How this platform locks, or None where it cannot."""
    try:
        import fcntl
    except ImportError:
        try:
            import msvcrt
        except ImportError:
            return None
        return windows_locking(msvcrt)
    return Locking(
        take=lambda handle: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB),
        release=lambda handle: fcntl.flock(handle, fcntl.LOCK_UN),
    )


def windows_locking(msvcrt: ModuleType) -> Locking:
    """Lock the first byte; Windows allows that beyond the end of the file too."""

    def locking(handle: int, mode: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, mode, 1)

    return Locking(
        take=lambda handle: locking(handle, msvcrt.LK_NBLCK), release=lambda handle: locking(handle, msvcrt.LK_UNLCK)
    )


@contextmanager
def exclusive(
    path: Path, timeout: float, locking: Locking | None = None, *, longest_pause: float = _LONGEST_PAUSE
) -> Iterator[bool]:
    """Hold the lock file `path` while the block runs; yields whether a lock is really held.

    `longest_pause` is for a lock that its holder lets go of for moments only: whoever pauses longer misses them.
    """
    locking = locking or platform_locking()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as exc:
        raise StoreError(
            f"{path.parent} cannot be written: {exc.strerror}.",
            hint="Check the permissions of the folder and its file system.",
        ) from exc
    try:
        if locking is None:
            _warn_once(path)
        held = locking is not None and _wait(handle, path, timeout, locking, longest_pause)
        try:
            yield held
        finally:
            if locking and held:
                with suppress(OSError):
                    locking.release(handle)
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, timeout: float, locking: Locking, longest_pause: float) -> bool:
    """Try until it works (True), the file system turns out to have no locks (False), or time is up (`StoreBusy`)."""
    deadline = time.monotonic() + timeout
    pause = 0.0005
    while True:
        try:
            locking.take(handle)
        except OSError as exc:
            if exc.errno in _UNSUPPORTED:
                _warn_once(path)
                return False
            if exc.errno not in _TAKEN:
                raise StoreError(f"{path} cannot be locked: {exc.strerror}.") from exc
            if time.monotonic() >= deadline:
                raise StoreBusy(
                    f"Another process has held {path} for more than {timeout:g} seconds.",
                    hint="Wait for it or stop it, and try again; nothing was changed.",
                ) from exc
        else:
            return True
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  spreads waiters, guards nothing
        pause = min(pause * 1.5, longest_pause)


def _warn_once(path: Path) -> None:
    folder = str(path.parent)
    if folder not in _told:
        _told.add(folder)
        warnings.warn(
            f"No file locks in {folder}: two programs that write at the same moment may undo each other's change.",
            HermaWarning,
            stacklevel=2,
        )
