"""The file `herma.db`: opened at first use, one writer at a time in this process, readers that never wait for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import apsw

from herma.errors import StoreError, UsageError
from herma.store.sqlite.commits import GroupCommit, Work
from herma.store.sqlite.errors import DAMAGED_VALUE, damaged, translated, translation
from herma.store.sqlite.migrate import user_version
from herma.store.sqlite.opening import VERSION, is_frozen, open_reader, open_writer, refuse_lone_log

T = TypeVar("T")
Bindings = Sequence[Any] | Mapping[str, Any]
IDLE_READERS = 4
"""How many reading connections are kept for the next reader."""


class Database:
    """`synchronous=FULL`: a commit that returned survives a power loss. Writes of several threads share a commit."""

    def __init__(self, path: Path, *, busy_timeout: float = 10.0) -> None:
        self.path = path
        self._busy_timeout = busy_timeout
        self._process = os.getpid()
        self._closed = False
        self._commits = GroupCommit(self._writer, lambda: translated(self.path))
        self._writing: _Handle | None = None  # used by whoever leads a commit, nobody else
        self._mutex = threading.Lock()  # guards the next line
        self._idle: list[_Handle] = []
        self._pinned = _Pinned()

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns.

        Works of other threads may be in the same transaction; an error in one undoes that one only. A work uses the
        connection it is given and nothing else, as it may be run again after a rollback.
        """
        self._check()
        return self._commits.run(work)

    def read(self, work: Work[T], otherwise: T) -> T:
        """Run `work` on one consistent state of what is committed; `otherwise` when there is no database yet."""
        if self._pinned.connection is not None:
            return self.glance(work, otherwise)
        return self.glance(lambda connection: _at_one_time(connection, work), otherwise)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """What this thread reads in the block is one consistent state; a connection is found once for all of it."""
        self._check()
        handle = self._take() if self._pinned.connection is None else None
        if handle is None:  # there is no database yet, or it is steady already
            yield
            return
        try:
            handle.connection.execute("BEGIN")
            self._pinned.connection = handle.connection
            yield
        except apsw.Error as exc:
            raise translation(self.path, exc) from exc
        except DAMAGED_VALUE as exc:
            raise damaged(self.path, exc) from exc
        finally:
            self._pinned.connection = None
            if handle.connection.in_transaction:
                handle.connection.execute("ROLLBACK")  # nothing was written; committing fails where a page is damaged
            self._give_back(handle)

    def glance(self, work: Work[T], otherwise: T) -> T:
        """The same without a transaction: for one statement, or where a change in between does no harm."""
        pinned, handle = self._pinned.connection, None
        try:  # written out, without context managers: a search comes here some ten times
            if pinned is not None:
                return work(pinned)
            self._check()
            handle = self._take()
            return otherwise if handle is None else work(handle.connection)
        except apsw.ReadOnlyError as exc:  # another process was killed in the middle of a change
            with translated(self.path):
                self._opened_to_read().close()  # undoes it
                if handle is not None:
                    return work(handle.connection)
            raise translation(self.path, exc) from exc
        except apsw.Error as exc:
            raise translation(self.path, exc) from exc
        except DAMAGED_VALUE as exc:
            raise damaged(self.path, exc) from exc
        finally:
            if handle is not None:
                self._give_back(handle)

    def rows(self, sql: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        """What a query finds in what is committed; nothing when there is no database yet (reading creates none)."""
        return self.glance(lambda connection: connection.execute(sql, bindings).fetchall(), [])

    def identity(self) -> object:
        """Which file this is now; another may be put in its place."""
        return _identity(self.path)

    def close(self) -> None:
        """Let go of the file. Writes that were begun are finished first; closing twice does no harm."""
        if self._process != os.getpid() or self._closed:
            return
        self._closed = True
        drained = self._commits.drain(self._busy_timeout + 5)
        with self._mutex:
            handles, self._idle = self._idle, []
            if self._writing is not None and drained:
                handles.append(self._writing)
                self._writing = None
        with translated(self.path):
            for handle in handles:
                handle.connection.close()

    # ── connections ──

    def _writer(self) -> apsw.Connection:
        """The writing connection; only the caller that leads a commit asks for it."""
        now = _identity(self.path)
        if self._writing is not None and self._writing.identity != now:
            self._writing.connection.close()
            self._writing = None
            if now is None:
                raise self._deleted()
        if self._writing is not None and self._writing.has_lost_its_log():
            raise self._log_deleted(self._writing)
        while self._writing is None:
            self._check()
            connection = open_writer(self.path, self._busy_timeout)
            opened = _identity(self.path)
            if now in (None, opened):
                self._writing = _handle(connection, opened)
            else:  # a repair or a restore put another file in its place while we opened it
                connection.close()
                now = opened
        return self._writing.connection

    def _take(self) -> _Handle | None:
        now = _identity(self.path)
        while True:
            with self._mutex:
                handle = self._idle.pop() if self._idle else None
            if handle is None or (handle.identity == now and not handle.has_lost_its_log()):
                break
            handle.connection.close()
            if now is None:
                raise self._deleted()
            if handle.identity == now and self._writing is not None:
                with suppress(StoreError):  # said to whoever writes next, too
                    self._commits.run(lambda _: None)  # which saves what only the deleted log has
        if handle is None and now is not None:
            if os.path.getsize(self.path):  # noqa: PTH202
                return _handle(self._opened_to_read(), now)
            refuse_lone_log(self.path)
        return handle

    def _opened_to_read(self) -> apsw.Connection:
        """A reading connection. A file of an earlier format is brought up to date first, where it can be written."""
        connection = open_reader(self.path, self._busy_timeout)
        if user_version(connection) >= VERSION:
            return connection
        connection.close()
        with suppress(StoreError):  # read-only, full or busy: what was there before can still be read
            self._commits.run(lambda _: None)
        connection = open_reader(self.path, self._busy_timeout)
        if user_version(connection) < VERSION:
            from herma.store.sqlite.older import complete

            complete(connection)
        return connection

    def _give_back(self, handle: _Handle) -> None:
        with self._mutex:
            if not self._closed and len(self._idle) < IDLE_READERS and not handle.once:
                self._idle.append(handle)
                return
        handle.connection.close()

    def _check(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.",
                hint="Open it again in the child: Herma.open().",
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")

    def _log_deleted(self, handle: _Handle) -> StoreError:
        """SQLite goes on with a log that was deleted, and all of it is lost when the process ends at once. We move
        what it holds into the file, unless others have begun a new log by then, and let go of it.
        """
        new = Path(handle.log_path)
        saved = not new.exists() or not new.stat().st_size
        if saved:
            handle.connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_FULL)
        handle.connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        handle.connection.close()
        self._writing = None
        with self._mutex:
            idle, self._idle = self._idle, []
        for each in idle:
            each.connection.close()
        what = f"what it held is in {self.path.name} now" if saved else "others have begun a new one"
        return StoreError(
            f"{new} was deleted while it was in use; {what}, and nothing new was written.",
            hint="Stop and start every program that uses this home, then try again.",
        )

    def _deleted(self) -> StoreError:
        """SQLite goes on with a file that was deleted, and what it writes is lost. We do not."""
        return StoreError(
            f"{self.path} was deleted while it was in use; nothing was written.",
            hint="Restore it from a backup; the next write begins a new one.",
        )


class _Pinned(threading.local):
    """The connection that a thread reads from while it wants one consistent state."""

    connection: apsw.Connection | None = None


class _Handle(NamedTuple):
    """A connection, and which file it has open: another may get the same name."""

    connection: apsw.Connection
    identity: tuple[int, int] | None
    log_path: str = ""
    log: tuple[int, int] | None = None
    once: bool = False
    """The file may get to be another than the connection takes it for: unchangeable, or of an older format."""

    def has_lost_its_log(self) -> bool:
        """While a connection is open SQLite never deletes the log: somebody else did."""
        return self.log is not None and _identity(self.log_path) != self.log


def _handle(connection: apsw.Connection, identity: tuple[int, int] | None) -> _Handle:
    if is_frozen(connection):
        return _Handle(connection, identity, once=True)
    once = user_version(connection) < VERSION
    return _Handle(connection, identity, connection.filename_wal, _identity(connection.filename_wal), once)


def _at_one_time(connection: apsw.Connection, work: Work[T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def insert_returning_id(connection: apsw.Connection, sql: str, bindings: Bindings) -> int:
    """Run an `INSERT … RETURNING id`."""
    rows: list[Any] = connection.execute(sql, bindings).fetchall()
    return int(rows[0][0])


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  a microsecond less, at every call
    except OSError:
        return None
    return status.st_dev, status.st_ino
