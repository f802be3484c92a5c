"""Reading a database of an earlier format that cannot be brought up to date: on a read-only or a full disk.

What it lacks is added for one connection only, in memory: tables that are empty, and copies of those that lack columns.
SQLite looks for a name among these before it looks in the file.
"""

from __future__ import annotations

from typing import Any

import apsw

from herma.store.sqlite.salvage_tables import our_schema


def complete(connection: apsw.Connection) -> None:
    """Let queries of this version find everything that they name."""
    connection.pragma("temp_store", "MEMORY")
    ours = our_schema()
    try:
        tables: list[Any] = ours.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for name, sql in tables:
            there = _columns(connection, name)
            if not set(there) >= set(_columns(ours, name)):
                connection.execute(sql.replace("CREATE TABLE ", "CREATE TEMP TABLE ", 1))
                if there:
                    columns = ", ".join(there)
                    connection.execute(f"INSERT INTO temp.{name} ({columns}) SELECT {columns} FROM main.{name}")
                _index(connection, ours, name)
    finally:
        ours.close()


def _index(connection: apsw.Connection, ours: apsw.Connection, table: str) -> None:
    """The table's indexes: queries may name them."""
    sql = "SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
    found: list[Any] = ours.execute(sql, (table,)).fetchall()
    for (made,) in found:
        connection.execute(made.replace(" INDEX ", " INDEX temp.", 1))


def _columns(connection: apsw.Connection, table: str) -> list[str]:
    rows: list[Any] = connection.execute("SELECT name FROM pragma_table_info(?, 'main')", (table,)).fetchall()
    return [name for (name,) in rows]
