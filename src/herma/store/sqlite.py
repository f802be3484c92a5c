"""Keep `herma.db` in SQLite: open, refuse and migrate it, commit in groups, pool readers, translate errors."""

from __future__ import annotations

import json
import os
import random
import secrets
import shutil
import stat
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from herma.errors import ForeignStore, HermaWarning, StoreBusy, StoreError, install_command
from herma.store.archive import folder_of, of_database
from herma.store.database import (
    MIGRATIONS,
    VERSION,
    Bindings,
    Database,
    DatabaseConnection,
    GroupCommit,
    NotUnique,
    Row,
    T,
    Work,
    damaged,
    migrations,
    queries,
)
from herma.store.files import (
    make_folder,
    named_lock,
    real_path,
    refuse_special,
    size_of,
    special_beside,
    status_of,
    sync_file,
    unsuited_mount,
)
from herma.store.replace import cut_off_restores, repaired_copy, settle
from herma.store.salvage_pages import HEAD as LOG_HEAD
from herma.store.salvage_pages import left_out, missing_frames


class SqliteConnection(apsw.Connection, DatabaseConnection):
    """A connection to `herma.db`. The rows of a feature call the methods of `DatabaseConnection` only."""

    engine = "sqlite"
    path = ""
    """The file that it was opened for; `filename` cannot be asked while another thread uses the connection."""

    def stream(self, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
        cursor = self.execute(sql, bindings)
        try:
            yield from cursor
        finally:
            cursor.close(True)

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        return self.execute(sql, bindings).fetchall()

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        self.execute(sql, bindings)
        return self.changes()

    def run_many(self, sql: str, bindings: Iterable[Bindings]) -> None:
        self.executemany(sql, bindings)

    def begin(self) -> None:
        try:
            self.execute("BEGIN IMMEDIATE")
        except apsw.BusyError as exc:
            raise translation(Path(self.filename), exc) from exc

    def commit(self) -> None:
        self.execute("COMMIT")

    def roll_back(self) -> None:
        self.execute("ROLLBACK")


def _roll_back(connection: apsw.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


_LEAST = 64 * 1024
"""Bytes that SQLite needs even for reading."""
DAMAGED_VALUE = (UnicodeDecodeError, json.JSONDecodeError)
"""Errors of reading damaged text or JSON: SQLite checks neither."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Run the block; turn an error of SQLite into one sentence about `path`."""
    try:
        yield
    except apsw.Error as exc:
        raise translation(path, exc) from exc
    except DAMAGED_VALUE as exc:
        raise damaged(path, exc) from exc


class DamagedLog(StoreError):
    """Changes that were acknowledged are missing: a part of the write-ahead log, the index knows more, or the file."""


def full(path: Path) -> StoreError:
    return StoreError(f"The disk is full: nothing was written to {path}.", hint="Free some space and try again.")


def _nothing_is_free(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < _LEAST
    except OSError:
        return False


def translation(path: Path, error: apsw.Error) -> StoreError:
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{path} is in use by another process and did not become free in time.",
                hint="Wait for the other process, or stop it, and try again.",
            )
        case apsw.FullError():
            return full(path)
        case apsw.IOError() if _nothing_is_free(path):
            return full(path)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError():
            return StoreError(
                f"{path} cannot be written ({error}).", hint="Check the permissions of the file and of its folder."
            )
        case apsw.CorruptError() | apsw.NotADBError():
            return damaged(path, error)
        case apsw.ConstraintError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_CONSTRAINT_UNIQUE:
            return NotUnique(f"{path}: {error}.")
        case _:
            return StoreError(f"{path}: {error}.", hint="Run the command again with --debug for details.")


# From an older format to this one: `migrations/NNNN_name.sql` leads from format NNNN - 1 to NNNN. A new database gets
# `schema.sql`; a test proves that the migrations lead to the same.


def migrate(connection: apsw.Connection, version: int, folder: Path = MIGRATIONS) -> None:
    """Apply the scripts up to `version` in order, each in one transaction; one that fails changes nothing."""
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
            _roll_back(connection)
            raise


def user_version(connection: apsw.Connection) -> int:
    row = connection.execute("PRAGMA user_version").fetchone()
    return int(row[0]) if row else 0


# The journal: a write-ahead log, or a rollback journal where the file system cannot do the first. A write-ahead log
# needs memory that all processes share and locks that all of them see. Network and host-shared mounts offer neither
# reliably, and show it only by damage, so they are recognised by name before anything is written.

_warned: set[str] = set()


def choose(connection: apsw.Connection, path: Path) -> str:
    """Set the journal mode that is safe where the file lies, and what each commit flushes. Return "wal" or "delete".

    FULL flushes the log before a commit returns; a rollback journal needs EXTRA, because its commit is the removal of a
    file. On a Mac a flush ends in the drive's memory without `fullfsync`; elsewhere that changes nothing.
    """
    now = str(connection.pragma("journal_mode"))
    mount = unsuited_mount(path)
    wanted = "delete" if mount else "wal"
    if now != wanted:
        try:
            now = str(connection.pragma("journal_mode", wanted))
        except (apsw.BusyError, apsw.LockedError):
            raise  # another process has it open: that says nothing about the file system
        except apsw.Error:
            if wanted == "delete":
                raise
            now = str(connection.pragma("journal_mode", "delete"))
    if now != "wal":
        _warn_once(path, mount)
    connection.pragma("synchronous", "FULL" if now == "wal" else "EXTRA")
    connection.pragma("fullfsync", True)
    return now


def _warn_once(path: Path, mount: str) -> None:
    if str(path) in _warned:
        return
    _warned.add(str(path))
    why = f"lies on {mount}" if mount else "cannot have a write-ahead log"
    warnings.warn(
        f"{path} {why}: it is kept with a rollback journal, which is safe but slower, and writers make readers wait. "
        "A folder on a local disk is better.",
        HermaWarning,
        stacklevel=2,
    )


# Opening `herma.db`. Nothing here opens the file except through SQLite: on POSIX, closing any other handle on it would
# drop all the locks that this process holds on it.

APPLICATION_ID = 0x48524D41  # "HRMA", bytes 68–71 of the file
PAGE_SIZE = 4096
"""An append changes six pages and writes each to the log as a whole: on a disk it takes an eighth longer with pages
twice as large, which waste 5 % instead of 12 % on messages of a few hundred bytes.
"""
CHECKPOINT_PAGES = 1000
"""Size of the write-ahead log at which a commit also moves it into the file: short enough for short stalls."""
LOG_LIMIT = 8 * 1024 * 1024
CACHE_KIB = 8 * 1024
"""Room for the pages of the indexes that appends to many sessions touch."""

_LOOKS, _LOOK_AGAIN = 200, 0.01
"""Attempts, and seconds between them, to read a file that another process seems to be making."""

_NO_SHARED_MEMORY = {
    *(apsw.SQLITE_IOERR_SHMOPEN, apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMLOCK, apsw.SQLITE_IOERR_SHMMAP)
}

_alive: weakref.WeakSet[SqliteConnection] = weakref.WeakSet()
_opening = threading.Lock()
"""Held while a connection is made: see `_refuse_short_log`."""
_fork_hook = False


def open_writer(path: Path, busy_timeout: float) -> SqliteConnection:
    """Open a connection that may write; make the file, its folder and its schema if they are missing."""
    refuse_foreign(path)
    _make_folder(path.parent)
    connection = _connect(str(path), apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, busy_timeout, path)
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


def open_reader(path: Path, busy_timeout: float) -> SqliteConnection:
    """Open a connection that cannot write. Where SQLite cannot even make its shared-memory file (a read-only folder, a
    disk that is full to the last byte), no other process writes.
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
            _undo_half_written(path, busy_timeout)
            connection = _reading(path, busy_timeout)
        elif size_of(log) and isinstance(exc, apsw.IOError):
            raise
        elif size_of(log):
            raise StoreError(
                f"{path} cannot be read: its newest changes are in {log.name}, which can be read only where files can "
                "be made beside it.",
                hint="Make its folder writable, or copy the whole folder to a place that is, and read it there.",
            ) from exc
        else:
            connection = _connect(_frozen(path), apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, busy_timeout)
    connection.pragma("cache_size", -CACHE_KIB)  # a search reads a few hundred messages all over the file
    return connection


def _reading(path: Path, busy_timeout: float) -> SqliteConnection:
    connection = _connect(str(path), apsw.SQLITE_OPEN_READONLY, busy_timeout, path)
    try:
        _refuse_newer(path, user_version(connection))
        refuse_damaged_log(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_damaged_log(connection: apsw.Connection) -> None:
    """Raise if SQLite ignores finished changes in the write-ahead log: it reads the log up to the first wrong bit, says
    nothing, and would soon write over the rest.
    """
    log = Path(connection.filename_wal)
    try:
        lost = _lost_changes(connection, log)
    except (apsw.ReadOnlyError, apsw.BusyError):  # the file is read-only; or another process writes at this moment
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
    while used != before:  # others may write meanwhile, or begin the log again
        before = used
        lost = left_out(log, used, size)
        if not lost:
            break
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()  # sees what others did
        used = _frames_used(connection)
    return lost


def _frames_used(connection: apsw.Connection) -> int:
    return max(0, connection.wal_checkpoint("main", apsw.SQLITE_CHECKPOINT_NOOP)[0])


def _undo_half_written(path: Path, busy_timeout: float) -> None:
    """Undo what a killed process left half written: only a connection that may write puts back what its journal has.
    Until then the file must not be read.
    """
    connection = _connect(str(path), apsw.SQLITE_OPEN_READWRITE, busy_timeout)
    try:
        user_version(connection)
    finally:
        connection.close()


def refuse_foreign(path: Path) -> None:
    """Raise if the file is not one of ours, judged without locks or recovery, so that it stays exactly as it is.

    Another process may be making the file at this moment: look again at one that does not look like ours.
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


def refuse_lost(path: Path) -> None:
    """Raise if the file is missing or empty though its log, which SQLite would delete, the index or a backup shows that
    there was more.
    """
    real = real_path(path)
    status = status_of(real)
    if status and (status.st_size or not stat.S_ISREG(status.st_mode)):
        return
    log = real.with_name(f"{real.name}-wal")
    knows = [f"its log ({log.name})"] if size_of(log) > LOG_HEAD else []
    if path.name == "herma.db":
        knows += _knowing(path)
    if knows and not size_of(real):  # else another process has made it meanwhile
        raise DamagedLog(
            f"{path} {'was emptied' if status else 'is missing'}, and only {' and '.join(knows)} still "
            f"{'holds' if len(knows) == 1 and knows != ['the backups'] else 'hold'} something.",
            hint="Stop every program that uses this home, then run: herma doctor --repair "
            "(or put a backup back: herma backup restore latest)",
        )


def _knowing(path: Path) -> list[str]:
    """Return what beside a missing `herma.db` shows that there was one: a new home has none of it."""
    home = path.parent
    found = [repaired_copy(path).name] if repaired_copy(path).exists() else []
    if (position := index_position(home)) and position[2]:
        found.append("index.db")
    if of_database(home):
        found.append("the backups")
    elif any(folder_of(home).glob(f"*/{path.name}")):
        found.append("the copies in backups")
    return found


def refuse_behind(path: Path, connection: apsw.Connection, known: tuple[str, str, int] | None) -> None:
    """Raise if the index has seen changes that the database lacks: they were acknowledged, and are lost.

    `known` is what the index says, read before the database, as it follows the database.
    """
    if known is None:
        return
    found: list[Any] = connection.execute(queries("store.checkup")["identity"]).fetchall()
    store_id, epoch, seq = found[0]
    if known[:2] == (store_id, epoch) and known[2] > seq:
        if not connection.readonly("main"):
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # so that the log stays as it is
        raise DamagedLog(
            f"{path} lacks {known[2] - seq} of {known[2]} changes that the index has seen: its newest part is missing.",
            hint="Stop every program that uses this home, then run: herma doctor --repair",
        )


def index_position(home: Path) -> tuple[str, str, int] | None:
    """Return the store, the epoch and the number of the last change that `index.db` has seen, if it can be read."""
    path = home / "index.db"
    if not path.is_file() or not size_of(path) or special_beside(path):
        return None
    for target, flags in ((str(path), 0), (_frozen(path), apsw.SQLITE_OPEN_URI)):
        try:
            connection = apsw.Connection(target, flags=apsw.SQLITE_OPEN_READONLY | flags)
            try:
                connection.set_busy_timeout(1_000)
                rows: list[Any] = connection.execute("SELECT key, value FROM meta").fetchall()
                facts = dict(rows)
                return str(facts["store_id"]), str(facts["epoch"]), int(facts["seq"])
            finally:
                connection.close()
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            continue
        except (apsw.Error, KeyError, ValueError, TypeError):
            return None
    return None


def _judge(path: Path) -> tuple[bool, int]:
    """Return whether the file is ours, or missing, or still empty; and its version."""
    if not path.exists():
        refuse_special(path)
        refuse_lost(path)
        return True, 0
    if not path.is_file():  # a folder; or a pipe, which SQLite would wait for for ever
        return False, 0
    refuse_special(path)
    refuse_lost(path)
    try:
        connection = apsw.Connection(_frozen(path), flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        try:
            # Moving the write-ahead log into the file may have been cut off, by a kill or a full disk: then the head
            # names more pages than are there yet, which SQLite takes for damage without this setting.
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
    """Return the address of a file that SQLite takes for unchangeable: no locks, no recovery, no files beside it."""
    return path.absolute().as_uri() + "?immutable=1"


def _refuse_newer(path: Path, version: int) -> None:
    if version > VERSION:
        raise ForeignStore(
            f"{path} was written by a newer Herma (format {version}; this one knows {VERSION}); it was left as it is.",
            hint=f"Upgrade with: {install_command()}",
        )


def _connect(target: str, flags: int, busy_timeout: float, path: Path | None = None) -> SqliteConnection:
    """Open a file; with `path`, check its log first: SQLite forgets what is missing in it when it opens the file."""
    _watch_forks()
    with _opening:
        if path is not None:
            _refuse_short_log(path)
        connection = SqliteConnection(target, flags=flags)
        connection.path = "" if path is None else str(real_path(path))
        connection.convert_binding = lambda _cursor, _number, value: apsw.jsonb_encode(value)  # of a list
        _alive.add(connection)
    keep_plans(connection)
    connection.set_busy_handler(_BusyHandler(busy_timeout))
    return connection


def _refuse_short_log(path: Path) -> None:
    """Raise if the write-ahead log is shorter than the memory beside it (`-shm`) says that it was.

    Read that memory only while this process does not have this database open, as closing it drops all locks on it.
    """
    real = real_path(path)
    if str(real) in _open_files():
        return
    if lost := missing_frames(real.with_name(f"{real.name}-wal"), real.with_name(f"{real.name}-shm")):
        raise DamagedLog(
            f"{real.name}-wal was cut off or deleted: {lost} pages of finished changes are missing in it.",
            hint="Stop every program that uses this home, then run: herma doctor --repair",
        )


def _open_files() -> set[str]:
    """Return the databases that this process has open."""
    files = set()
    for connection in list(_alive):
        try:
            files.add(connection.filename)
        except apsw.ConnectionClosedError:
            continue
        except apsw.ThreadingViolationError:  # another thread uses it at this moment, so it is open
            files.add(connection.path)
    return files


def keep_plans(connection: apsw.Connection) -> None:
    """Plan each statement once. Otherwise SQLite plans it again for values that statistics could say something about,
    and there are none: a short statement spends most of its time on that.
    """
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


class _BusyHandler:
    """Wait for another process in short, uneven steps until the deadline. SQLite's own wait starves some callers."""

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
    """Create the schema of a new file, migrate an old one; then make every writer's settings."""
    connection.pragma("foreign_keys", True)
    connection.pragma("secure_delete", True)  # deleted data is overwritten, not only unlinked
    if user_version(connection) == 0:
        _create(connection)
        path.chmod(0o600)  # transcripts and memory are private
    _refuse_newer(path, user_version(connection))
    migrate(connection, VERSION)
    choose(connection, path)
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)
    connection.pragma("journal_size_limit", LOG_LIMIT)
    connection.pragma("cache_size", -CACHE_KIB)


def _create(connection: apsw.Connection) -> None:
    """Create the whole schema in one transaction, before the journal mode is set: the header names us at once."""
    connection.pragma("page_size", PAGE_SIZE)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        if user_version(connection) == 0:  # no other process was quicker
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
        _roll_back(connection)
        raise


def create_empty(path: Path) -> None:
    """Create a database without rows, in one file, durably."""
    with translated(path):
        connection = open_writer(path, 10)
        connection.pragma("journal_mode", "delete")
        connection.close()
    sync_file(path)


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Choose another folder with --home or HERMA_HOME.",
        ) from exc


def _watch_forks() -> None:
    """Keep a forked child from closing its parent's connections, even at its end."""
    global _fork_hook
    if not _fork_hook and hasattr(os, "register_at_fork"):
        _fork_hook = True
        os.register_at_fork(after_in_child=_keep_for_good)


def _keep_for_good() -> None:
    import ctypes

    for connection in list(_alive):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


IDLE_READERS = 4
"""Number of idle connections for readers."""


class SqliteDatabase(Database):
    """The file `herma.db`: opened at first use, one writer at a time in this process, readers that never wait for it.

    `synchronous=FULL`: a commit that returned survives a power loss. Writes of several threads share a commit.
    """

    engine = "sqlite"

    def __init__(self, path: Path, *, busy_timeout: float = 10.0) -> None:
        super().__init__()
        self.path = path
        self._busy_timeout = busy_timeout
        self._commits = GroupCommit(self._writer, lambda: translated(self.path))
        self._writing: _Handle | None = None  # used only by the caller that leads a commit
        self._mutex = threading.Lock()  # guards the next line
        self._idle: list[_Handle] = []
        self._pinned = _Pinned()

    def write(self, work: Work[T]) -> T:
        self._check()
        return self._commits.run(work)

    def read(self, work: Work[T], otherwise: T) -> T:
        if self._pinned.connection is not None:
            return self._using(work, otherwise)
        return self._using(lambda connection: _at_one_time(connection, work), otherwise)

    def read_one(self, work: Work[T], otherwise: T) -> T:
        return self._using(work, otherwise)

    @contextmanager
    def snapshot(self) -> Iterator[None]:
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

    def _using(self, work: Callable[[SqliteConnection], T], otherwise: T) -> T:
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

    def lock(self, name: str) -> AbstractContextManager[bool]:
        return named_lock(self.path.parent, name)

    def identity(self) -> object:
        return _identity(self.path)

    def refuse_foreign(self) -> None:
        refuse_foreign(self.path)

    def close(self) -> None:
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

    def _writer(self) -> SqliteConnection:
        """Return the writing connection. Only the caller that leads a commit asks for it."""
        if self._writing is None or not self._writing.log:
            self._settle()
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
            known = index_position(self.path.parent)
            connection = open_writer(self.path, self._busy_timeout)
            try:
                refuse_behind(self.path, connection, known)
            except BaseException:
                connection.close()
                raise
            opened = _identity(self.path)
            if now in (None, opened) and not cut_off_restores(self.path.parent):
                self._writing = _handle(connection, opened)
            else:  # a repair or a restore put another file in its place meanwhile
                connection.close()
                self._settle()
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
                with suppress(StoreError):  # the next writer gets the error, too
                    self._commits.run(lambda _: None)  # saves what only the deleted log has
        if handle is None or not handle.log:
            try:
                self._settle()
            except BaseException:
                if handle is not None:
                    handle.connection.close()
                raise
        if handle is None:
            if now is not None and os.path.getsize(self.path):  # noqa: PTH202
                known = index_position(self.path.parent)
                handle = _handle(self._opened_to_read(), now)
                try:  # before a search sees it, and rebuilds the index over what is known
                    refuse_behind(self.path, handle.connection, known)
                except BaseException:
                    handle.connection.close()
                    raise
                if cut_off_restores(self.path.parent):  # begun, and cut off, since we looked
                    handle.connection.close()
                    return self._take()
                return handle
            refuse_foreign(self.path)
        return handle

    def _settle(self) -> None:
        """Finish a restore that was cut off before anything is read or written, or wait for one that is under way.
        Refuse the caller once: its earlier reads are of another state.
        """
        if cut_off_restores(self.path.parent):
            settle(self.path.parent, lock_timeout=self._busy_timeout)
            raise StoreBusy(
                f"A restore of {self.path.parent} has just been finished; nothing was written.",
                hint="Try again: everything is as in the backup.",
            )

    def _opened_to_read(self) -> SqliteConnection:
        """Return a reading connection; migrate a file of an earlier format first."""
        connection = open_reader(self.path, self._busy_timeout)
        if user_version(connection) >= VERSION:
            return connection
        connection.close()
        self._commits.run(lambda _: None)
        return open_reader(self.path, self._busy_timeout)

    def _give_back(self, handle: _Handle) -> None:
        with self._mutex:
            if not self._closed and len(self._idle) < IDLE_READERS and not handle.once:
                self._idle.append(handle)
                return
        handle.connection.close()

    def _log_deleted(self, handle: _Handle) -> StoreError:
        """SQLite goes on with a deleted log, and loses all of it if the process ends at once. Move what it holds into
        the file, unless others have begun a new log by then, and let go of it.
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
        """Return the error for a deleted file: SQLite would go on with it, and lose what it writes."""
        return StoreError(
            f"{self.path} was deleted while it was in use; nothing was written.",
            hint="Restore it from a backup; the next write begins a new one.",
        )


class _Pinned(threading.local):
    """The connection of a thread that reads one consistent state."""

    connection: SqliteConnection | None = None


class _Handle(NamedTuple):
    """A connection, and which file it has open: another may get the same name."""

    connection: SqliteConnection
    identity: tuple[int, int] | None
    log_path: str = ""
    log: tuple[int, int] | None = None
    once: bool = False
    """Not to be used again: opened as unchangeable."""

    def has_lost_its_log(self) -> bool:
        """Return whether something else than SQLite deleted the log: SQLite never does while a connection is open."""
        return self.log is not None and _identity(self.log_path) != self.log


def _handle(connection: SqliteConnection, identity: tuple[int, int] | None) -> _Handle:
    if connection.open_flags & apsw.SQLITE_OPEN_URI:  # it takes the file for unchangeable: good for one answer
        return _Handle(connection, identity, once=True)
    return _Handle(connection, identity, connection.filename_wal, _identity(connection.filename_wal))


def _at_one_time(connection: SqliteConnection, work: Work[T]) -> T:
    connection.execute("BEGIN")
    try:
        return work(connection)
    finally:
        if connection.in_transaction:
            connection.execute("COMMIT")


def _identity(path: Path | str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116  a microsecond less, at every call
    except OSError:
        return None
    return status.st_dev, status.st_ino


def our_schema(page_size: int = PAGE_SIZE) -> SqliteConnection:
    """Return an empty database with our tables, in memory. With the same page size, each table has the same root."""
    connection = SqliteConnection(":memory:")
    connection.pragma("page_size", page_size)
    connection.execute(Path(__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    return connection
