"""Damage to a `herma.db`, what is in it, and its repair: for tests of what comes back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from herma.doctor.repair import Mended, mend, plan


def rows(path: Path, table: str) -> list[tuple[Any, ...]]:
    """Return all rows of a table, read by Python's SQLite."""
    with closing(sqlite3.connect(path)) as database:
        return database.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()


def roots(path: Path) -> dict[str, int]:
    """Return the first page of each table and index."""
    with closing(sqlite3.connect(path)) as database:
        return dict(database.execute("SELECT name, rootpage FROM sqlite_master"))


def change(home: Path, how: Callable[[bytearray, int], object]) -> bytes:
    """Change the bytes of the file; `how` gets them and the size of a page. Return the damaged file."""
    path = home / "herma.db"
    raw = bytearray(path.read_bytes())
    how(raw, int.from_bytes(raw[16:18], "big"))
    path.write_bytes(raw)
    return bytes(raw)


def zeroed(home: Path, *texts: bytes) -> bytes:
    """Zero the pages on which these texts stand. Return the damaged file."""

    def zero(raw: bytearray, size: int) -> None:
        for text in texts:
            page = raw.index(text) // size * size
            raw[page : page + size] = bytes(size)

    return change(home, zero)


def repair(home: Path) -> Mended:
    """Do the one step of the doctor's plan that makes a new database."""
    (fix,) = (fix for fix in plan(home) if fix.kind == "database")
    return mend(home, fix)
