"""SQLite's errors, translated here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from herma.errors import StoreBusy, StoreError


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Run the block; what SQLite raises becomes one sentence about `path`."""
    try:
        yield
    except apsw.Error as exc:
        raise translation(path, exc) from exc


def translation(path: Path, error: apsw.Error) -> StoreError:
    """The error to raise instead."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{path} is in use by another process and did not become free in time.",
                hint="Wait for the other process, or stop it, and try again.",
            )
        case apsw.FullError():
            return StoreError(
                f"The disk is full: nothing was written to {path}.", hint="Free some space and try again."
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(
                f"{path} cannot be written ({error}).", hint="Check the permissions of the file and of its folder."
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return StoreError(
                f"{path} is damaged ({error}).",
                hint="`herma doctor --repair` brings back every readable row; `herma backup list` shows the backups.",
            )
        case _:
            return StoreError(f"{path}: {error}.", hint="Run the command again with --debug for details.")
