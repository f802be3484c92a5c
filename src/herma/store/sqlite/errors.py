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
    except (apsw.BusyError, apsw.LockedError) as exc:
        raise StoreBusy(
            f"{path} is in use by another process and did not become free in time.",
            hint="Wait for the other process, or stop it, and try again.",
        ) from exc
    except apsw.FullError as exc:
        raise StoreError(
            f"The disk is full: nothing was written to {path}.", hint="Free some space and try again."
        ) from exc
    except (apsw.ReadOnlyError, apsw.PermissionsError, apsw.CantOpenError) as exc:
        raise StoreError(
            f"{path} cannot be written ({exc}).", hint="Check the permissions of the file and of its folder."
        ) from exc
    except (apsw.CorruptError, apsw.NotADBError) as exc:
        raise StoreError(
            f"{path} is damaged ({exc}).",
            hint="`herma doctor --repair` brings back every readable row; `herma backup list` shows the backups.",
        ) from exc
    except apsw.Error as exc:
        raise StoreError(f"{path}: {exc}.", hint="Run the command again with --debug for details.") from exc
