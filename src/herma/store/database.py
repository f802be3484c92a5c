"""Herma.db: open, refuse, migrate, group commit, reader pool, error translation."""

from __future__ import annotations

import json
import os
import random
import re
import secrets
import shutil
import sys
import threading
import time
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple, TypeAlias, TypeVar

import apsw

from herma.errors import ForeignStore, HermaWarning, StoreBusy, StoreError, UsageError
from herma.store.files import make_folder
from herma.store.salvage_pages import HEAD as LOG_HEAD
from herma.store.salvage_pages import left_out

# ---------- store.sqlite.commits
#
# Many writers, one commit: whoever finds nobody writing writes for all who come meanwhile.
#
# docs/decisions/0006-group-commit-without-a-thread.md says why there is no writer thread.

T = TypeVar("T")
Work: TypeAlias = Callable[[apsw.Connection], T]
AT_MOST = 128
"""How many works share one transaction, so that nobody's wait grows without bound."""


class _Ticket:
    """One caller's work, and what came of it."""

    __slots__ = ("done", "error", "result", "since", "thread", "turn", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.thread = threading.get_ident()
        self.since = time.monotonic()
        self.turn = threading.Lock()  # held until this work is done, or its caller is to lead
        self.turn.acquire()
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit:
    """Runs works one after the other; those that wait at the same time share a transaction and its flush to disk."""

    def __init__(
        self, connect: Callable[[], apsw.Connection], translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._connect = connect
        self._translated = translated
        self._gate = threading.Condition(threading.Lock())
        self._queue: deque[_Ticket] = deque()
        self._leader: _Ticket | None = None

    def run(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns. An error in it undoes this work only.

        A work may be run a second time, after a rollback, when the thread that ran it was interrupted.
        """
        ticket = _Ticket(work)
        try:  # an interrupt may come anywhere in here, and must not leave anybody waiting for this thread
            with self._gate:
                if self._leader is not None and self._leader.thread == ticket.thread:
                    raise StoreError(
                        "A write was begun inside another write.", hint="Use the connection that was given."
                    )
                leads = self._leader is None
                if leads:
                    self._leader = ticket
                else:
                    self._queue.append(ticket)
            if not leads:
                self._await(ticket)
            if not ticket.done:
                self._lead(ticket)
        finally:
            if self._leader is ticket or not ticket.done:
                self._step_down(ticket)
        result: T = ticket.outcome()
        return result

    def drain(self, timeout: float) -> bool:
        """Wait until nobody writes. → False when that took too long."""
        with self._gate:
            return self._gate.wait_for(lambda: self._leader is None, timeout)

    def _await(self, ticket: _Ticket) -> None:
        """Until the work is done or its caller is to lead. Leaders are bounded by the database's deadline."""
        ticket.turn.acquire()

    def _lead(self, own: _Ticket) -> None:
        batch = [own]
        connection: apsw.Connection | None = None
        committing = False
        try:
            try:
                with self._translated():
                    connection = self._connect()
                    self._begin(connection, batch)
                    self._run_all(connection, batch)
                    committing = True
                    connection.execute("COMMIT")
            except Exception as exc:  # noqa: BLE001  handed to every caller whose work it undid
                _commits_roll_back(connection)
                for ticket in batch:
                    ticket.error = ticket.error or exc
        except BaseException:
            done = committing and connection is not None and not connection.in_transaction
            if not done:
                _commits_roll_back(connection)
                with self._gate:
                    self._queue.extendleft(reversed(batch[1:]))
                raise
            _release(batch)
            raise
        _release(batch)

    def _begin(self, connection: apsw.Connection, batch: list[_Ticket]) -> None:
        """Wait for other processes. When that took too long, it did so for those who have waited half as long too."""
        began = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            now = time.monotonic()
            with self._gate:
                while self._queue and now - self._queue[0].since >= (now - began) / 2:
                    batch.append(self._queue.popleft())
            raise

    def _run_all(self, connection: apsw.Connection, batch: list[_Ticket]) -> None:
        """The leader's work, then whatever was queued meanwhile. `batch` grows by what was taken from the queue."""
        at = 0
        while at < len(batch):
            self._run_one(connection, batch[at], first=not at)
            at += 1
            if at == len(batch) and at < AT_MOST and self._queue:
                with self._gate:
                    while self._queue and len(batch) < AT_MOST:
                        batch.append(self._queue.popleft())

    def _run_one(self, connection: apsw.Connection, ticket: _Ticket, *, first: bool) -> None:
        """Run a work so that it can be undone by itself; before the first there is nothing to keep."""
        if not first:
            connection.execute("SAVEPOINT work")
        ticket.error = None  # of a first run that was rolled back with everything else
        try:
            with self._translated():
                ticket.result = ticket.work(connection)
        except Exception as exc:
            ticket.error = exc
            if not connection.in_transaction:  # SQLite gave up the whole transaction: all of it has failed
                raise
            connection.execute("ROLLBACK; BEGIN IMMEDIATE" if first else "ROLLBACK TO work")
        if not first:
            connection.execute("RELEASE work")

    def _step_down(self, ticket: _Ticket) -> None:
        """Let the first who waits lead; nobody, when nobody waits. Who leaves without leading waits no longer."""
        with self._gate:
            if self._leader is not ticket:
                if ticket in self._queue:
                    self._queue.remove(ticket)
            elif self._queue:
                self._leader = self._queue.popleft()
                self._leader.turn.release()
            else:
                self._leader = None
                self._gate.notify_all()


def _commits_roll_back(connection: apsw.Connection | None) -> None:
    if connection is not None and connection.in_transaction:
        connection.execute("ROLLBACK")


def _release(batch: list[_Ticket]) -> None:
    for ticket in batch:
        ticket.done = True
        if ticket is not batch[0]:
            ticket.turn.release()


# ---------- store.sqlite.errors
#
# SQLite's errors, translated here and nowhere else.

_LEAST = 64 * 1024
DAMAGED_VALUE = (UnicodeDecodeError, json.JSONDecodeError)
"""What reading a row ends in when its text is no text any more, or its JSON no JSON: SQLite does not look at either."""


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Run the block; what SQLite raises becomes one sentence about `path`."""
    try:
        yield
    except apsw.Error as exc:
        raise translation(path, exc) from exc
    except DAMAGED_VALUE as exc:
        raise damaged(path, exc) from exc


class DamagedLog(StoreError):
    """A part of the write-ahead log cannot be reached."""


def damaged(path: Path | str, why: object) -> StoreError:
    """Something in the file is not what was written."""
    return StoreError(
        f"{path} is damaged ({why}).",
        hint="`herma doctor --repair` brings back every readable row; `herma backup list` shows the backups.",
    )


def parsed(text: str) -> Any:
    """JSON that was stored as a value of a row."""
    try:
        return json.loads(text)
    except ValueError as exc:
        raise damaged("A value in herma.db", exc) from exc


def full(path: Path) -> StoreError:
    return StoreError(f"The disk is full: nothing was written to {path}.", hint="Free some space and try again.")


def _nothing_is_free(path: Path) -> bool:
    """Whether the disk has no room for the little that SQLite needs besides the file, even for reading."""
    try:
        return shutil.disk_usage(path.parent).free < _LEAST
    except OSError:
        return False


def translation(path: Path, error: apsw.Error) -> StoreError:
    """The error to raise instead."""
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
        case _:
            return StoreError(f"{path}: {error}.", hint="Run the command again with --debug for details.")


# ---------- store.sqlite.migrate
#
# From an older `herma.db` to this one: `migrations/NNNN_name.sql` leads from format NNNN - 1 to NNNN.
#
# `schema.sql` is what a new database gets; a test proves that the migrations lead to the same.

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


# ---------- store.sqlite.journal
#
# How `herma.db` writes: a write-ahead log, or a rollback journal where the file system cannot do the first.
#
# A write-ahead log needs memory that all processes share and locks that all of them see. Network and host-shared mounts
# offer neither reliably, and say so only by damage, so they are recognised by name before anything is written.

UNSUITED = re.compile(
    r"9p|acfs|afs|afpfs|beegfs|ceph|cifs|coda|drvfs|fakeowner|gfs2?|glusterfs|gpfs|hgfs|lustre|ncpfs|nfs[34]?|ocfs2|"
    r"orangefs|osxfs|panfs|prl_fs|pvfs2|smb2|smb3|smbfs|vboxsf|virtiofs|vmhgfs|webdav|wslfs|"
    r"fuse\.(?:ceph|curlftpfs|davfs|gcsfuse|glusterfs|goofys|grpcfuse|juicefs|lustre|mergerfs|moosefs|osxfs|portal|"
    r"rclone|s3fs|seaweedfs|smbnetfs|sshfs|unionfs|virtiofs|vmhgfs-fuse|weed)"
)
"""File systems without shared memory or without locks that every client sees."""

_OCTAL = re.compile(r"\\([0-7]{3})")
_REMOTE_DRIVE = 4  # what GetDriveTypeW answers for a network drive
_told: set[str] = set()


def file_system(mountinfo: str, path: PurePosixPath) -> str:
    """The type of the file system that holds an absolute path, by the text of /proc/self/mountinfo; "" if unknown.

    Of several mounts the one with the longest mount point counts, and of two on the same point the later one.
    """
    best, found = -1, ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if not separator or len(fields) < 5 or not kind:
            continue
        point = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        if len(point.parts) >= best and path.is_relative_to(point):
            best, found = len(point.parts), kind
    return found


def is_unsuited(kind: str) -> bool:
    """Whether a write-ahead log would not be safe on this type of file system."""
    return UNSUITED.fullmatch(kind) is not None


def unsuited_mount(path: Path) -> str:
    """What is wrong with the place of this file, in a word or two; "" when a write-ahead log is safe there."""
    if sys.platform == "win32":  # pragma: no cover
        return _windows_share(path)
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind = file_system(mounts, PurePosixPath(os.path.realpath(path)))
    return kind if is_unsuited(kind) else ""


def _windows_share(path: Path) -> str:  # pragma: no cover
    drive = path.absolute().drive
    if drive.startswith("\\\\"):
        return "network share"
    import ctypes

    kind = ctypes.windll.kernel32.GetDriveTypeW(f"{drive}\\")  # type: ignore[attr-defined]
    return "network drive" if kind == _REMOTE_DRIVE else ""


def choose(connection: apsw.Connection, path: Path) -> str:
    """Set the journal mode that is safe where the file lies, and what is flushed at each commit. → "wal" or "delete".

    FULL flushes the log before a commit returns; a rollback journal needs EXTRA for the same promise, because there
    the commit is the removal of a file. On a Mac, a flush stops at the drive's own memory unless it is asked for in
    full; elsewhere that changes nothing.
    """
    now = str(connection.pragma("journal_mode"))
    mount = unsuited_mount(path)
    wanted = "delete" if mount else "wal"
    if now != wanted:
        try:
            now = str(connection.pragma("journal_mode", wanted))
        except (apsw.BusyError, apsw.LockedError):
            raise  # somebody else is at it: that says nothing about the file system
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
    if str(path) in _told:
        return
    _told.add(str(path))
    why = f"lies on {mount}" if mount else "cannot have a write-ahead log"
    warnings.warn(
        f"{path} {why}: it is kept with a rollback journal, which is safe but slower, and writers make readers wait. "
        "A folder on a local disk is better.",
        HermaWarning,
        stacklevel=2,
    )


# ---------- store.sqlite.opening
#
# Opening `herma.db`: refused when it is not ours, created when it is not there, given what every connection needs.
#
# Nothing here opens the file except through SQLite. On POSIX, closing any other handle on it would silently drop all
# the locks that this process holds on it.

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
            _opening_roll_back(path, busy_timeout)
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


def _opening_roll_back(path: Path, busy_timeout: float) -> None:
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
    choose(connection, path)
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


# ---------- store.sqlite.database
#
# The file `herma.db`: opened at first use, one writer at a time in this process, readers that never wait for it.

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


# ---------- store.sqlite.older
#
# Reading a database of an earlier format that cannot be brought up to date: on a read-only or a full disk.
#
# What it lacks is added for one connection only, in memory: tables that are empty, and copies of those that lack
# columns. SQLite looks for a name among these before it looks in the file.


def complete(connection: apsw.Connection) -> None:
    """Let queries of this version find everything that they name."""
    from herma.store.salvage import our_schema

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


# ---------- store.sqlite.queries
#
# Named SQL: `-- name --` on a line of its own starts a statement, which runs to the next such line.

_HEADING = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """The statements of `<name>.sql` in this folder, by name."""
    parts = _HEADING.split(Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8"))
    return {key: sql.strip() for key, sql in zip(parts[1::2], parts[2::2], strict=True)}
