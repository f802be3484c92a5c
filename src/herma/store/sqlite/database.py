"""The file `herma.db`: opened at first use, refused when it is not ours, one transaction at a time in this process."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from herma.errors import ForeignStore, StoreError, UsageError
from herma.store.sqlite.errors import translated

T = TypeVar("T")
Bindings = Sequence[Any] | Mapping[str, Any]

APPLICATION_ID = 0x48524D41  # "HRMA", bytes 68–71 of the file
VERSION = 1
_MAGIC = b"SQLite format 3\x00"


class Database:
    """One connection, made when first needed. `synchronous=FULL`: a commit that returned survives a power loss."""

    def __init__(self, path: Path, *, busy_timeout: float = 10.0) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._connection: apsw.Connection | None = None
        self._mutex = threading.RLock()
        self._closed = False
        self._process = os.getpid()

    def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run `work` in one transaction that is durable when this returns."""
        with self._mutex, translated(self.path):
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

    def rows(self, sql: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """What a query finds in what is committed; nothing when there is no database yet (reading creates none)."""
        with self._mutex, translated(self.path):
            if self._connection is None and not self.path.exists():
                return []
            return self._open().execute(sql, bindings).fetchall()

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            if self._connection is not None and self._process == os.getpid():
                with translated(self.path):
                    self._connection.close()
            self._connection = None

    def _open(self) -> apsw.Connection:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.",
                hint="Open it again in the child: Herma.open().",
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> apsw.Connection:
        refuse_foreign(self.path)
        writable = not self.path.exists() or os.access(self.path, os.W_OK)
        if writable:
            _make_folder(self.path.parent)
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE if writable else apsw.SQLITE_OPEN_READONLY
        connection = apsw.Connection(str(self.path), flags=flags)
        connection.set_busy_timeout(int(self._busy_timeout * 1000))
        if writable:
            _prepare(connection, self.path)
        return connection


def refuse_foreign(path: Path) -> None:
    """Raise when the file is not one of ours, judged by its header alone, so that it stays byte for byte as it is."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except FileNotFoundError:
        return
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be read: {exc.strerror}.",
            hint="Check the permissions of the file and of its folder.",
        ) from exc
    if not header:
        return
    if not header.startswith(_MAGIC) or int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise ForeignStore(
            f"{path} is not a Herma database; it was left as it is.",
            hint="Move it away, or choose another folder with --home or HERMA_HOME.",
        )
    _refuse_newer(path, int.from_bytes(header[60:64], "big"))


def _refuse_newer(path: Path, version: int) -> None:
    if version > VERSION:
        raise ForeignStore(
            f"{path} was written by a newer Herma (format {version}; this one knows {VERSION}); it was left as it is.",
            hint="Upgrade with: pip install --upgrade herma",
        )


def _prepare(connection: apsw.Connection, path: Path) -> None:
    """Create the schema when the file is new; then the settings every connection needs."""
    connection.execute("PRAGMA foreign_keys = ON")
    if _user_version(connection) == 0:
        _create(connection)
        path.chmod(0o600)  # transcripts and memory are private
    _refuse_newer(path, _user_version(connection))
    if connection.execute("PRAGMA journal_mode").fetchall() != [("wal",)]:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")


def _create(connection: apsw.Connection) -> None:
    """The whole schema in one transaction, before WAL is switched on: the header names us from the first byte on."""
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if _user_version(connection) == 0:  # nobody else was quicker
            connection.execute(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"))
            connection.executemany(
                "INSERT INTO meta (key, value) VALUES (?, ?)",
                [
                    ("store_id", secrets.token_hex(16)),
                    ("epoch", secrets.token_hex(8)),
                    ("created", str(time.time())),
                ],
            )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def insert_returning_id(connection: apsw.Connection, sql: str, bindings: Bindings) -> int:
    """Run an `INSERT … RETURNING id`."""
    rows: list[Any] = connection.execute(sql, bindings).fetchall()
    return int(rows[0][0])


def _user_version(connection: apsw.Connection) -> int:
    row = connection.execute("PRAGMA user_version").fetchone()
    return int(row[0]) if row else 0


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Choose another folder with --home or HERMA_HOME.",
        ) from exc
