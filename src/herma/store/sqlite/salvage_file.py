"""Putting another database in the place of `herma.db` while no other process has it open, and keeping the old one.

Everything goes through SQLite's own file layer, because on POSIX closing any other handle on the file would drop the
locks of this process. The exclusive lock is refused while any process has the database open with a write-ahead log.
Whoever opened the file but has read nothing yet, or uses a rollback journal, waits for the lock; what it then finds
is the old file with its head wiped, which SQLite refuses, so that nothing is ever written into a file that is no
longer `herma.db`. (What is kept of the old file is a copy from before.)
"""

from __future__ import annotations

import os
import shutil
import time
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from herma.errors import StoreBusy, StoreError
from herma.store.atomic import make_folder
from herma.store.sqlite.opening import real_path
from herma.store.sqlite.salvage import Progress, Salvaged, salvage
from herma.store.sqlite.salvage_terms import Terms

BESIDE = ("-wal", "-shm", "-journal")
HEAD = 100
"""Bytes at the beginning without which SQLite takes a file for no database."""
_CHUNK = 2**20


class Alone:
    """Hold `herma.db` so that nobody else can read or write it. A file that is not there needs no holding."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = real_path(path)  # what belongs to it lies beside the file itself, not beside a link to it
        self._timeout = timeout
        self._file: apsw.VFSFile | None = None

    def __enter__(self) -> Self:
        if not self.path.exists():
            return self
        try:
            flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE
            self._file = apsw.VFSFile("", str(self.path), [flags, 0])
        except apsw.Error as exc:
            raise StoreError(
                f"{self.path} cannot be opened for writing ({exc}).",
                hint="Check the permissions of the file and of its folder.",
            ) from exc
        try:
            self._lock(self._file)
        except BaseException:
            self.close()
            raise
        return self

    def _lock(self, file: apsw.VFSFile) -> None:
        deadline = time.monotonic() + self._timeout
        for level in (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE):
            while True:
                try:
                    file.xLock(level)
                    break
                except apsw.BusyError as exc:
                    if time.monotonic() >= deadline:
                        raise StoreBusy(
                            f"Another process has {self.path} open.",
                            hint="Stop every program that uses this home (agents, servers), and try again; "
                            "nothing was changed.",
                        ) from exc
                    time.sleep(0.01)
                except apsw.Error as exc:
                    raise StoreError(f"{self.path} cannot be locked ({exc}).") from exc

    def copy_to(self, folder: Path) -> None:
        """Copy the file and what lies beside it into an empty folder, byte for byte, and durably."""
        with (folder / self.path.name).open("xb") as copy:
            for chunk in read_through(self._file):
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
        (folder / self.path.name).chmod(0o600)
        for suffix in BESIDE:
            beside = self.path.with_name(self.path.name + suffix)
            if beside.exists() and suffix != "-shm":
                shutil.copyfile(beside, folder / beside.name)
                (folder / beside.name).chmod(0o600)
                with (folder / beside.name).open("rb+") as copy:
                    os.fsync(copy.fileno())
        sync_folder(folder)

    def digest(self) -> str:
        """The SHA-256 of the file as it is, without its head: that goes first when it is replaced."""
        digest = sha256()
        for number, chunk in enumerate(read_through(self._file)):
            digest.update(chunk if number else chunk[HEAD:])
        return digest.hexdigest()

    def replace(self, new: Path) -> None:
        """Put `new` in the place of the file; what belonged to the old one goes first, as it would be taken for its.

        Before that the old one is made unusable: without its log it may look whole, and whoever went on with it after
        a crash at this point would write what nobody finds again.
        """
        if new.stat().st_dev != self.path.parent.stat().st_dev:  # behind a link to another disk
            new = _moved(new, self.path.with_name(f".{self.path.name}.moved.tmp"))
        self._retire()
        new.replace(self.path)
        sync_folder(self.path.parent)

    def remove(self) -> None:
        """Delete the file and what belongs to it."""
        self._retire()
        self.path.unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _retire(self) -> None:
        if self._file is not None:
            self._file.xWrite(bytes(HEAD), 0)
            self._file.xSync(apsw.SQLITE_SYNC_NORMAL)
        if os.name == "nt":
            self.close()
        for suffix in BESIDE:
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def close(self) -> None:
        if self._file is not None:
            self._file.xUnlock(apsw.SQLITE_LOCK_NONE)
            self._file.xClose()
            self._file = None

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _moved(file: Path, goal: Path) -> Path:
    """The same on another disk, durably; a second attempt finds the first one's file, or writes over it."""
    shutil.copyfile(file, goal)
    goal.chmod(0o600)
    with goal.open("rb+") as copy:
        os.fsync(copy.fileno())
    file.unlink()
    return goal


def read_through(file: apsw.VFSFile | None, limit: int | None = None) -> list[bytes] | _Chunks:
    """The bytes of an open file, in chunks; zeros where the disk cannot read them."""
    return [] if file is None else _Chunks(file, limit)


class _Chunks:
    def __init__(self, file: apsw.VFSFile, limit: int | None) -> None:
        self._file = file
        self._size = file.xFileSize() if limit is None else min(limit, file.xFileSize())

    def __iter__(self) -> Self:
        self._at = 0
        return self

    def __next__(self) -> bytes:
        if self._at >= self._size:
            raise StopIteration
        wanted = min(_CHUNK, self._size - self._at)
        try:
            data = self._file.xRead(wanted, self._at)
        except apsw.Error:
            data = b"".join(self._sector(at, min(4096, self._at + wanted - at)) for at in self._sectors(wanted))
        self._at += wanted
        return data

    def _sectors(self, wanted: int) -> range:
        return range(self._at, self._at + wanted, 4096)

    def _sector(self, at: int, size: int) -> bytes:
        try:
            return self._file.xRead(size, at)
        except apsw.Error:
            return bytes(size)


def beginning(path: Path, size: int) -> bytes:
    """The first bytes of a database, read without harm to the locks that this process may hold on it."""
    try:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
        file = apsw.VFSFile("", str(real_path(path)), [flags, 0])
    except apsw.Error:
        return b""
    try:
        return b"".join(read_through(file, size))
    finally:
        file.xClose()


def sync_folder(folder: Path) -> None:
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ── repairing ──


def repaired_copy(path: Path) -> Path:
    """Where a finished new database waits to take its place; it is there after a crash in the last step only."""
    return real_path(path).with_name(f"{real_path(path).name}.repaired")


def repair_database(
    path: Path, keep_in: Path, timeout: float, progress: Progress | None = None, terms: Terms | None = None
) -> Salvaged:
    """Keep the damaged file in the new folder `keep_in`, and put what could be read in its place."""
    path = real_path(path)
    with Alone(path, timeout) as held:
        _refuse_without_space(path)
        started = keep_in.with_name(f".{keep_in.name}.tmp")
        shutil.rmtree(started, ignore_errors=True)
        new = path.with_name(f".{path.name}.repaired.tmp")
        try:
            make_folder(started)
            held.copy_to(started)
            _forget(new)
            made = salvage(_rolled_back(started, path.name), started / f"{path.name}-wal", new, progress, terms)
            new.chmod(0o600)
            started.rename(keep_in)
            sync_folder(keep_in.parent)
            if (waiting := repaired_copy(path)).exists():
                waiting.rename(keep_in / f"{path.name}.earlier-repair")
            ready = new.rename(repaired_copy(path))
        except OSError as exc:
            raise StoreError(
                f"{path} could not be repaired: {exc.strerror or exc}. It is as it was.",
                hint="Check free space and permissions, then try again.",
            ) from exc
        finally:
            _forget(new)
            shutil.rmtree(started, ignore_errors=True)
        try:
            held.replace(ready)
        except OSError as exc:
            raise StoreError(
                f"{path} is repaired, but could not be put in its place: {exc.strerror or exc}.",
                hint="Check free space and permissions, then run: herma doctor --repair",
            ) from exc
    return made


def _rolled_back(folder: Path, name: str) -> Path:
    """The copy to read. A transaction that a crash cut off is rolled back by SQLite first, on a copy of the copy."""
    copy, journal = folder / name, folder / f"{name}-journal"
    if not journal.exists() or not journal.stat().st_size:
        return copy
    work = folder / "work"
    for suffix in ("", "-journal"):
        shutil.copyfile(folder / f"{name}{suffix}", folder / f"work{suffix}")
    try:
        with apsw.Connection(str(work)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        connection.close()
    except apsw.Error:
        return copy
    return work


def _refuse_without_space(path: Path) -> None:
    needed = 2 * sum(p.stat().st_size for p in (path, path.with_name(f"{path.name}-wal")) if p.exists())
    free = shutil.disk_usage(path.parent).free
    if free < needed:
        raise StoreError(
            f"Repairing {path} needs {needed // 2**20:,} MB of free space, and there are {free // 2**20:,}.",
            hint="Free some space and try again; nothing was changed.",
        )


def _forget(database: Path) -> None:
    for suffix in ("", *BESIDE):
        database.with_name(database.name + suffix).unlink(missing_ok=True)
