"""Locks, atomic replace, per-home locks (the only fsync in the house)."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from pathlib import Path
from types import ModuleType

from herma.errors import HermaWarning, StoreBusy, StoreError

# ---------- store.atomic
#
# Replace a file's content so that a reader, a crash or a power loss finds the old bytes or the new ones,
# never a mixture.
#
# Two steps: `prepare` makes the new bytes durable beside the file, `install` puts them in its place. As long as the
# prepared file lies there, the second step is not finished: that is how a crash between the two is recognised.

Rename = Callable[[str | Path, str | Path], None]

_MOUNTED = {errno.EBUSY, errno.EXDEV}
_SHARING_TRIES = 40


def replace_file(path: Path, data: bytes) -> None:
    """Temporary file, fsync, rename, fsync of the folder. `path` must not be a link (resolve it first)."""
    temporary = prepare(path, data)
    try:
        install(temporary, path, data)
    except StoreError:
        discard(temporary)
        raise


def temporary_of(path: Path, *, alone: bool = True) -> Path:
    """Where the new bytes are prepared.

    `alone` says that a lock is held: one fixed name will do, and a killed process leaves at most one behind.
    """
    return path.with_name(f".{path.name}.tmp" if alone else f".{path.name}.{os.getpid()}.tmp")


def prepare(path: Path, data: bytes, *, alone: bool = True) -> Path:
    """Make the new bytes durable beside `path`, which stays as it is. → where they are."""
    temporary = temporary_of(path, alone=alone)
    try:
        _write(temporary, data, _status(path))
    except OSError as exc:
        discard(temporary)
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. It is as it was.",
            hint="Check free space and permissions, then try again.",
        ) from exc
    return temporary


def install(temporary: Path, path: Path, data: bytes, *, rename: Rename = os.replace) -> None:
    """Put the prepared bytes in the place of `path`; durable when it returns."""
    try:
        _rename(temporary, path, data, rename)
    except OSError as exc:
        raise StoreError(
            f"{path} could not be replaced: {exc.strerror or exc}.",
            hint="Check free space and permissions, then try again.",
        ) from exc
    try:
        _sync_folder(path.parent)
    except OSError as exc:
        raise StoreError(
            f"{path} was replaced, but may be back to what it was after a power loss: {exc.strerror or exc}.",
            hint="Check the disk, then look at the file.",
        ) from exc


def unfinished(temporary: Path) -> bytes | None:
    """What a killed process meant to write: its temporary file, if it is still there."""
    if not os.path.lexists(temporary):  # as a rule; asking is cheaper than being refused
        return None
    try:
        return temporary.read_bytes()
    except OSError:
        return None


def discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make it, and those above it that are missing: private, and for good, so that a power loss takes nothing in it."""
    if os.path.isdir(folder):  # noqa: PTH112  every write comes through here
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):  # one by one: `parents=True` would let others into those above
        each.mkdir(exist_ok=True, mode=0o700)
    for each in missing:
        _sync_folder(each.parent)


@cache
def flags(*names: str) -> int:
    """Flags for `os.open`, as far as the platform has them; without O_BINARY Windows would rewrite line ends."""
    return reduce(or_, (getattr(os, name, 0) for name in (*names, "O_BINARY", "O_CLOEXEC")))


def _write(path: Path, data: bytes, like: os.stat_result | None) -> None:
    """Write and sync; with the mode and, where we may, the owner of the file it replaces. A new one is private."""
    mode = stat.S_IMODE(like.st_mode) if like else 0o600
    handle = os.open(path, flags("O_WRONLY", "O_CREAT", "O_TRUNC", "O_NOFOLLOW"), mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if hasattr(os, "fchmod"):
            mine = os.fstat(handle)
            if like and (like.st_uid, like.st_gid) != (mine.st_uid, mine.st_gid):
                with contextlib.suppress(OSError):
                    os.fchown(handle, like.st_uid, like.st_gid)
            if stat.S_IMODE(mine.st_mode) != mode:
                os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(temporary: Path, path: Path, data: bytes, rename: Rename) -> None:
    for attempt in range(_SHARING_TRIES):
        try:
            rename(temporary, path)
        except PermissionError:  # Windows: somebody has the file open (a virus scanner, an editor, a reader of ours)
            if os.name != "nt" or attempt == _SHARING_TRIES - 1:
                raise
            time.sleep(0.005 * (attempt + 1))
        except OSError as exc:
            if exc.errno not in _MOUNTED:
                raise
            warnings.warn(
                f"{path} is mounted as a single file, so it is overwritten in place; mount its folder instead.",
                HermaWarning,
                stacklevel=2,
            )
            _overwrite(path, data)
            temporary.unlink()
            return
        else:
            return


def _overwrite(path: Path, data: bytes) -> None:
    """Write in place; when that fails half-way, put back what was there."""
    before, status = path.read_bytes(), _status(path)
    try:
        _write(path, data, status)
    except OSError:
        with contextlib.suppress(OSError):
            _write(path, before, status)
        raise


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # a folder cannot be opened there; the rename is journalled by the file system
    handle = os.open(folder, flags("O_RDONLY", "O_DIRECTORY"))
    try:
        os.fsync(handle)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # some network file systems cannot sync a folder and say so
            raise
    finally:
        os.close(handle)


# ---------- store.locks
#
# One process at a time: an advisory lock on a file beside the one it protects.
#
# POSIX uses `flock` (two handles in one process exclude each other too), Windows one byte of `msvcrt.locking`. Some
# network file systems have neither: then the work goes on unprotected after one warning, and atomic replacement still
# keeps readers safe.

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


# ---------- store.turns
#
# One at a time, by name: whoever holds a name is alone with it over all processes of a home, until it ends or dies.

FOLDER = "locks"
_GATE = 5.0
"""Seconds to wait for somebody who is about to take or give back another name."""


@contextmanager
def alone(home: Path, name: str) -> Iterator[bool]:
    """Hold a name while the block runs; yields whether it was free. The file that stands for it is gone afterwards.

    Files are made, locked and removed behind one gate, so that nobody holds a file that is no longer there. One that a
    dying process leaves behind is empty and does no harm.
    """
    from herma.store.database import refuse_foreign

    folder = home / FOLDER
    if not folder.exists():  # nothing is made in a home whose database is not ours
        refuse_foreign(home / "herma.db")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be made: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc
    gate, file = folder / "gate.lock", folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    with ExitStack() as held:
        with exclusive(gate, _GATE):
            try:
                held.enter_context(exclusive(file, 0.0))
            except StoreBusy:
                taken = True
            else:
                taken = False
                held.callback(_remove, gate, file)
        yield not taken


def _remove(gate: Path, file: Path) -> None:
    """Still under the lock of the file. What cannot be removed may stay."""
    with suppress(StoreError, OSError), exclusive(gate, _GATE):
        file.unlink()
