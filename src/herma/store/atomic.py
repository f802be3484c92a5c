"""Replace a file's content so that a reader, a crash or a power loss finds the old bytes or the new ones,
never a mixture.

Two steps: `prepare` makes the new bytes durable beside the file, `install` puts them in its place. As long as the
prepared file lies there, the second step is not finished: that is how a crash between the two is recognised.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import warnings
from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from pathlib import Path

from herma.errors import HermaWarning, StoreError

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
