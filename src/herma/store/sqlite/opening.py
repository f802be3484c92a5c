"""Opening `herma.db`: refused when it is not ours, created when it is not there, given what every connection needs.

Nothing here opens the file except through SQLite. On POSIX, closing any other handle on it would silently drop all the
locks that this process holds on it.
"""

from __future__ import annotations

import os
import random
import secrets
import time
import weakref
from pathlib import Path

import apsw

from herma.errors import ForeignStore, StoreError
from herma.store.atomic import make_folder
from herma.store.sqlite import journal
from herma.store.sqlite.errors import DamagedLog
from herma.store.sqlite.migrate import migrate, user_version
from herma.store.sqlite.salvage_log import HEAD as LOG_HEAD
from herma.store.sqlite.salvage_log import left_out

APPLICATION_ID = 0x48524D41  # "HRMA", bytes 68–71 of the file
VERSION = 2
PAGE_SIZE = 4096
"""An append changes six pages and writes each to the log as a whole: on a disk it takes an eighth longer with pages
twice as large, which waste 5 % instead of 12 % on messages of a few hundred bytes.
"""
CHECKPOINT_PAGES = 1000
"""How long the write-ahead log may get before a commit also moves it into the file: short enough for short stalls."""
LOG_LIMIT = 8 * 1024 * 1024
CACHE_KIB = 8 * 1024
"""Room for the pages of the indexes that appends to many sessions touch."""

_LOOKS, _LOOK_AGAIN = 200, 0.01
"""How often and how long (seconds) to look again at a file that somebody seems to be making."""

_NO_SHARED_MEMORY = {
    *(apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMLOCK, apsw.SQLITE_IOERR_SHMMAP)
}

_alive: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
_fork_hook = False


def open_writer(path: Path, busy_timeout: float) -> apsw.Connection:
    """A connection that may write; the file, its folder and its schema are made when they are not there."""
    refuse_foreign(path)
    _make_folder(path.parent)
    connection = _connect(str(path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, busy_timeout)
    try:
        if not connection.readonly("main"):
            _prepare(connection, path)
        elif user_version(connection) < VERSION:
            raise StoreError(
                f"{path} cannot be written, nor brought from format {user_version(connection)} to {VERSION}.",
                hint="Check the permissions of the file and of its folder.",
            )
        refuse_damaged_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path, busy_timeout: float) -> apsw.Connection:
    """A connection that cannot write. Where SQLite may not even make its shared-memory file, nobody else writes: in a
    folder that is read-only, and on a disk that is full to the last byte.
    """
    refuse_foreign(path)
    try:
        connection = _reading(path, busy_timeout)
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError) as exc:
        if isinstance(exc, apsw.IOError) and getattr(exc, "extendedresult", 0) not in _NO_SHARED_MEMORY:
            raise
        real = real_path(path)
        log = real.with_name(f"{real.name}-wal")
        if path.with_name(path.name + "-journal").exists():
            _roll_back(path, busy_timeout)
            connection = _reading(path, busy_timeout)
        elif log.exists() and log.stat().st_size and isinstance(exc, apsw.IOError):
            raise
        elif log.exists() and log.stat().st_size:
            raise StoreError(
                f"{path} cannot be read: its newest changes are in {log.name}, which can be read only where files can "
                "be made beside it.",
                hint="Make its folder writable, or copy the whole folder to a place that is, and read it there.",
            ) from exc
        else:
            connection = _connect(_frozen(path), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, busy_timeout)
    connection.pragma("cache_size", -CACHE_KIB)  # a search reads a few hundred messages all over the file
    return connection


def _reading(path: Path, busy_timeout: float) -> apsw.Connection:
    connection = _connect(str(path), apsw.SQLITE_OPEN_READONLY, busy_timeout)
    try:
        _refuse_newer(path, user_version(connection))
        refuse_damaged_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_damaged_log(connection: apsw.Connection) -> None:
    """Raise when SQLite leaves out a part of the write-ahead log that was finished, and was acknowledged: it goes by
    the log up to the first wrong bit, says nothing, and would soon write over the rest.
    """
    log = Path(connection.filename_wal)
    try:
        lost = _lost_changes(connection, log)
    except apsw.ReadOnlyError:  # a read-only disk, where nobody writes over anything
        return
    except apsw.BusyError:  # somebody writes at this moment, so somebody can
        return
    if lost:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # so that the log stays as it is
        raise DamagedLog(
            f"{log} is damaged: {lost} finished changes in it cannot be reached.",
            hint="Stop every program that uses this home, then run: herma doctor --repair",
        )


def _lost_changes(connection: apsw.Connection, log: Path) -> int:
    size, used, before = int(connection.pragma("page_size")), _frames_used(connection), -1
    lost = 0
    while used != before:  # others may write meanwhile, or begin the log anew
        before = used
        lost = left_out(log, used, size)
        if not lost:
            break
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # sees what others did
        used = _frames_used(connection)
    return lost


def _frames_used(connection: apsw.Connection) -> int:
    return max(0, connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)[0])


def _roll_back(path: Path, busy_timeout: float) -> None:
    """Undo what a killed process had half written: its journal says what was there before, and only a connection that
    may write puts that back. Until then the file must not be read, whatever it looks like.
    """
    connection = _connect(str(path), apsw.SQLITE_OPEN_READWRITE, busy_timeout)
    try:
        user_version(connection)
    finally:
        connection.close()


def is_frozen(connection: apsw.Connection) -> bool:
    """Whether it takes the file for unchangeable: good for one answer, as others may come to write."""
    return bool(connection.open_flags & apsw.SQLITE_OPEN_URI)


def refuse_foreign(path: Path) -> None:
    """Raise when the file is not one of ours, judged without locks or recovery, so that it stays exactly as it is.

    Another process may be making the file at this moment: what does not look like ours is looked at again.
    """
    journal_of = path.with_name(path.name + "-journal")
    for attempt in range(_LOOKS):
        being_made = journal_of.exists()
        ours, version = _judge(path)
        if ours:
            _refuse_newer(path, version)
            return
        if attempt and not being_made:
            break
        time.sleep(_LOOK_AGAIN)
    raise ForeignStore(
        f"{path} is not a Herma database; it was left as it is.",
        hint="If it is one that was damaged, `herma doctor` says so; else move it away, or choose another --home.",
    )


def real_path(path: Path) -> Path:
    """The file behind links, where its log lies too. Unlike `resolve`, it does not mind links that go round."""
    return Path(os.path.realpath(path))


def refuse_lone_log(path: Path) -> None:
    """Raise when the file was emptied and its log was not: SQLite would delete the log, with all that is left."""
    real = real_path(path)
    log = real.with_name(f"{real.name}-wal")
    if not real.stat().st_size and log.exists() and log.stat().st_size > LOG_HEAD:
        raise DamagedLog(
            f"{path} was emptied, and only its log still holds something.",
            hint="Stop every program that uses this home, then run: herma doctor --repair",
        )


def _judge(path: Path) -> tuple[bool, int]:
    """Whether the file is ours, or not there yet, or still empty; and its version."""
    if not path.exists():
        return True, 0
    refuse_lone_log(path)
    if not path.is_file():  # a folder; or a pipe, which SQLite would wait for without end
        return False, 0
    try:
        connection = apsw.Connection(_frozen(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            # Moving the write-ahead log into the file may have been cut off, by a kill or a full disk: then the head
            # names more pages than are there yet, which SQLite takes for damage unless it is told not to mind.
            connection.pragma("writable_schema", True)
            ours = connection.pragma("application_id") == APPLICATION_ID
            empty = not ours and connection.pragma("page_count") == 0
            return ours or empty, user_version(connection)
        finally:
            connection.close()
    except (apsw.CantOpenError, apsw.IOError, apsw.PermissionsError) as exc:
        raise StoreError(
            f"{path} cannot be read ({exc}).", hint="Check the permissions of the file and of its folder."
        ) from exc
    except apsw.Error:
        return False, 0


def _frozen(path: Path) -> str:
    """The address of a file that SQLite should take for unchangeable: no locks, no recovery, no files beside it."""
    return path.absolute().as_uri() + "?immutable=1"


def _refuse_newer(path: Path, version: int) -> None:
    if version > VERSION:
        raise ForeignStore(
            f"{path} was written by a newer Herma (format {version}; this one knows {VERSION}); it was left as it is.",
            hint="Upgrade with: pip install --upgrade herma",
        )


def _connect(target: str, flags: int, busy_timeout: float) -> apsw.Connection:
    _watch_forks()
    connection = apsw.Connection(target, flags=flags)
    keep_plans(connection)
    connection.set_busy_handler(_Patience(busy_timeout))
    _alive.add(connection)
    return connection


def keep_plans(connection: apsw.Connection) -> None:
    """Have each statement planned once. Otherwise SQLite plans it anew whenever a value is bound that statistics could
    tell something about, and there are none: most of the time of a short statement goes into that.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


class _Patience:
    """Wait for another process in short, uneven steps until the deadline; SQLite's own starve whoever waits long."""

    __slots__ = ("_deadline", "_timeout")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._deadline = 0.0

    def __call__(self, attempt: int) -> bool:
        if attempt == 0:
            self._deadline = time.monotonic() + self._timeout
        elif time.monotonic() >= self._deadline:
            return False
        time.sleep(random.uniform(0.0002, min(0.0005 * (attempt + 1), 0.008)))  # noqa: S311  spreads waiters
        return True


def _prepare(connection: apsw.Connection, path: Path) -> None:
    """Create the schema when the file is new, bring it up to date when it is old; then every writer's settings."""
    connection.pragma("foreign_keys", True)
    connection.pragma("secure_delete", True)  # what is gone for good is overwritten, not merely let go of
    if user_version(connection) == 0:
        _create(connection)
        path.chmod(0o600)  # transcripts and memory are private
    _refuse_newer(path, user_version(connection))
    migrate(connection, VERSION)
    journal.choose(connection, path)
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", LOG_LIMIT)
    connection.pragma("cache_size", -CACHE_KIB)


def _create(connection: apsw.Connection) -> None:
    """The whole schema in one transaction, before WAL is switched on: the header names us from the first byte on."""
    connection.pragma("page_size", PAGE_SIZE)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if user_version(connection) == 0:  # nobody else was quicker
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


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Choose another folder with --home or HERMA_HOME.",
        ) from exc


def _watch_forks() -> None:
    """A forked child must never close its parent's connections, not even at its end: there it keeps them for good."""
    global _fork_hook
    if not _fork_hook and hasattr(os, "register_at_fork"):
        _fork_hook = True
        os.register_at_fork(after_in_child=_keep_for_good)


def _keep_for_good() -> None:
    import ctypes

    for connection in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
