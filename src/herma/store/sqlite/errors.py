"""SQLite's errors, translated here and nowhere else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from herma.errors import StoreBusy, StoreError

_LEAST = 64 * 1024
DAMAGED_VALUE = (UnicodeDecodeError, json.JSONDecodeError)
"""What reading a row ends in when its text is no text any more, or its JSON no JSON: SQLite does not look at either."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Run the block; what SQLite raises becomes one sentence about `path`."""
    try:
        yield
    except apsw.Error as exc:
        raise translation(path, exc) from exc
    except DAMAGED_VALUE as exc:
        raise damaged(path, exc) from exc


class DamagedLog(StoreError):
    """A part of the write-ahead log cannot be reached."""


def damaged(path: Path | str, why: object) -> StoreError:
    """Something in the file is not what was written."""
    return StoreError(
        f"{path} is damaged ({why}).",
        hint="`herma doctor --repair` brings back every readable row; `herma backup list` shows the backups.",
    )


def parsed(text: str) -> Any:
    """JSON that was stored as a value of a row."""
    try:
        return json.loads(text)
    except ValueError as exc:
        raise damaged("A value in herma.db", exc) from exc


def full(path: Path) -> StoreError:
    return StoreError(f"The disk is full: nothing was written to {path}.", hint="Free some space and try again.")


def _nothing_is_free(path: Path) -> bool:
    """Whether the disk has no room for the little that SQLite needs besides the file, even for reading."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST
    except OSError:
        return False


def translation(path: Path, error: apsw.Error) -> StoreError:
    """The error to raise instead."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{path} is in use by another process and did not become free in time.",
                hint="Wait for the other process, or stop it, and try again.",
            )
        case apsw.FullError():
            return full(path)
        case apsw.IOError() if _nothing_is_free(path):
            return full(path)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(
                f"{path} cannot be written ({error}).", hint="Check the permissions of the file and of its folder."
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return damaged(path, error)
        case _:
            return StoreError(f"{path}: {error}.", hint="Run the command again with --debug for details.")
