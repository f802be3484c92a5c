"""The database of a home: rows, backup and repair.

files         locks, atomic replace, file types; untrusted files, read within bounds
database      what rows may ask of a database; an engine implements it
sqlite        the engine for SQLite: open, refuse, migrate
postgres      the engine for PostgreSQL: connect, migrate, retry, one writer per tenant
archive       the file that a backup is
backup        make, find, verify, prune and restore backups
replace       put another herma.db in place; finish a restore that was cut off
checkup       examine a herma.db
salvage       make a new herma.db from what can be read
salvage_pages SQLite pages and write-ahead log, read as bytes

A `.sql` file names its statements: `-- name --` for every engine, `-- name [sqlite] --` or `-- name [postgres] --` for
one. Lists are `= ANY(:ids)` and `<> ALL(:ids)`; upserts are `ON CONFLICT`; see `database.queries`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from herma.config import Settings
    from herma.store.database import Database


def open_database(settings: Settings) -> Database:
    """Return the database of a home. It is opened with its first statement."""
    if settings.store.url:
        from herma.store.postgres import PostgresDatabase

        return PostgresDatabase(settings.store.url, settings.tenant, busy_timeout=settings.memory.lock_timeout)
    from herma.store.sqlite import SqliteDatabase

    return SqliteDatabase(settings.home / "herma.db", busy_timeout=settings.memory.lock_timeout)
