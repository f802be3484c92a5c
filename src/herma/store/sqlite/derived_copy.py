"""A copy of a derived file (`index.db` and the like), taken while others may write to it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

_PAGES = 1_000


def copy_derived(path: Path, target: Path) -> bool:
    """→ whether there is a copy now. One that cannot be made is no loss: what is derived is made again."""
    if not path.is_file():
        return False
    try:
        with (
            closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as source,
            closing(apsw.Connection(str(target))) as made,
        ):
            source.set_busy_timeout(5_000)
            with made.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(_PAGES)
    except apsw.Error:
        target.unlink(missing_ok=True)
        return False
    return True
