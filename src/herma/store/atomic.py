"""Replace a file's content so that a reader, a crash or a power loss finds the old bytes or the new ones,
never a mixture.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import warnings
from collections.abc import Callable
from pathlib import Path

from herma.errors import HermaWarning, StoreError

Rename = Callable[[str | Path, str | Path], None]

_MOUNTED = {errno.EBUSY, errno.EXDEV}
_SHARING_TRIES = 40
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def replace_file(path: Path, data: bytes, *, alone: bool = True, rename: Rename = os.replace) -> None:
    """Temporary file, fsync, rename, fsync of the folder. `path` must not be a link (resolve it first).

    `alone` says that a lock is held: one fixed temporary name will do, and a killed process leaves at most one behind.
    """
    temporary = _temporary(path) if alone else path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        _write(temporary, data, _mode(path))
        _rename(temporary, path, data, rename)
        _sync_folder(path.parent)
    except OSError as exc:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. It is as it was.",
            hint="Check free space and permissions, then try again.",
        ) from exc


def unfinished(path: Path) -> bytes | None:
    """What a killed process meant to write: its temporary file, if it is still there."""
    try:
        return _temporary(path).read_bytes()
    except OSError:
        return None


def discard_unfinished(path: Path) -> None:
    with contextlib.suppress(OSError):
        _temporary(path).unlink(missing_ok=True)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, data: bytes, mode: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NOFOLLOW, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if hasattr(os, "fchmod"):
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
            _write(path, data, _mode(path))
            temporary.unlink()
            return
        else:
            return


def _mode(path: Path) -> int:
    """The mode the file has; a new one is for its owner only."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return 0o600


def _sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return  # a folder cannot be opened there; the rename is journalled by the file system
    handle = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        os.fsync(handle)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # some network file systems cannot sync a folder and say so
            raise
    finally:
        os.close(handle)
