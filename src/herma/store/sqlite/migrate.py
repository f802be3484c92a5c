"""From an older `herma.db` to this one: `migrations/NNNN_name.sql` leads from format NNNN - 1 to NNNN.

`schema.sql` is what a new database gets; a test proves that the migrations lead to the same.
"""

from __future__ import annotations

from pathlib import Path

import apsw

MIGRATIONS = Path(__file__).with_name("migrations")


def migrate(connection: apsw.Connection, version: int, folder: Path = MIGRATIONS) -> None:
    """Apply in order what leads to `version`, each step in one transaction; one that fails changes nothing."""
    if user_version(connection) >= version:
        return
    for number, script in migrations(folder):
        connection.execute("BEGIN IMMEDIATE")
        try:
            if user_version(connection) == number - 1:  # else it is behind us, or another process was quicker
                connection.execute(script.read_text(encoding="utf-8"))
                connection.execute(f"PRAGMA user_version = {number}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def migrations(folder: Path = MIGRATIONS) -> list[tuple[int, Path]]:
    """The steps there are: format reached → script, in order."""
    return sorted((int(script.name[:4]), script) for script in folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))


def user_version(connection: apsw.Connection) -> int:
    row = connection.execute("PRAGMA user_version").fetchone()
    return int(row[0]) if row else 0
