"""Connections to an index file. What SQLite objects to there means "build it anew", unless it is the disk's fault.

No WAL: a rebuilt index takes the place of the old one by its name, and a WAL of the old file would then be taken for
one of the new. Readers and the one writer exclude each other for a few milliseconds at a time instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from herma.errors import StoreBusy, StoreError
from herma.ports import IndexUnusable
from herma.store.sqlite.index_bm25 import provide
from herma.store.sqlite.opening import keep_plans
from herma.store.sqlite.queries import queries

APPLICATION_ID = 0x48524D49  # "HRMI"
FORMAT = 2
"""Changes whenever the same messages would be stored differently: an index of another format is built anew."""
_BUSY_MS = 5_000
_CACHE_KB = 8_192
_STATEMENTS = 512


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Run the block; a busy file, a full disk or a file that cannot be written are errors, all else is damage."""
    try:
        yield
    except (apsw.Error, ValueError, TypeError) as exc:
        raise _translation(path, exc) from exc


def _translation(path: Path, exc: Exception) -> Exception:
    match exc:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path} is in use and did not become free in time.", hint="Try again.")
        case apsw.FullError():
            return StoreError(f"The disk is full: {path} is not up to date.", hint="Free some space.")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreError(f"{path} cannot be written ({exc}).", hint="Check the permissions of its folder.")
        case _:
            return IndexUnusable(f"{path}: {exc}")


class Connections:
    """One connection for writing, and as many for reading as there are readers at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[apsw.Connection] = []
        self._writer: apsw.Connection | None = None
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False

    @contextmanager
    def reading(self, *, afresh: bool = False) -> Iterator[apsw.Connection]:
        """One consistent view of the index. FTS5 checks its structure rightly only on a connection made `afresh`."""
        with self.glancing(afresh=afresh) as connection:
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def glancing(self, *, afresh: bool = False) -> Iterator[apsw.Connection]:
        """For one statement."""
        try:
            with self._mutex:
                connection = self._idle.pop() if self._idle and not afresh else None
            connection = connection or _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
            try:
                yield connection
            finally:
                self._put_back(connection)
        except (apsw.Error, ValueError, TypeError) as exc:
            raise _translation(self.path, exc) from exc

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """One transaction. The caller holds the lock of the home's index."""
        with self._writing, guarded(self.path):
            if self._writer is None:
                self._writer = _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close(True)
        with self._writing:  # a slice may be at work in another thread
            if self._writer is not None:
                self._writer.close(True)
            self._writer = None

    def _put_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._mutex:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close(True)


def create(path: Path) -> None:
    """An empty index."""
    with guarded(path):
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(queries("index")["schema"])
            connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        finally:
            connection.close(True)
    path.chmod(0o600)


def fetch(
    connection: apsw.Connection, sql: str, bindings: Sequence[Any] | Mapping[str, Any] = ()
) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return connection.execute(sql, bindings).fetchall()


def meta(connection: apsw.Connection, wanted: int = FORMAT) -> dict[str, str]:
    """Facts about this index. Raises when it is of another format."""
    facts = {str(key): str(value) for key, value in fetch(connection, "SELECT key, value FROM meta")}
    if facts.get("format") != str(wanted):
        raise ValueError(f"format {facts.get('format')} instead of {wanted}")
    return facts


def identity(path: Path) -> tuple[int, int] | None:
    """Which file stands at `path` now: another one, once a new index took its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect(path: Path, flags: int) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENTS)
    connection.set_busy_timeout(_BUSY_MS)
    keep_plans(connection)
    fetch(connection, "SELECT 1 FROM sqlite_schema LIMIT 1")  # waits for a writer; a function that is provided does not
    provide(connection)
    connection.execute(f"PRAGMA synchronous = OFF; PRAGMA journal_mode = TRUNCATE; PRAGMA cache_size = -{_CACHE_KB}")
    return connection
