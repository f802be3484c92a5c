"""Put another `herma.db` in the place of the one that is there, and finish a restore that was cut off.

Everything goes through SQLite's own file layer, because on POSIX closing any other handle on the file would drop the
locks of this process. The exclusive lock is refused while any process has the database open with a write-ahead log.
A process that opened the file but has read nothing yet, or uses a rollback journal, waits for the lock; it then finds
the old file with its head wiped, which SQLite refuses, so that nothing is ever written into a file that is no longer
`herma.db`. (The copy of the old file is made before.)
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self

import apsw

from herma.errors import StoreBusy, StoreError
from herma.store.archive import BEFORE_RESTORE, DATABASE
from herma.store.files import exclusive, make_folder, real_path, sync_file, sync_folder

BESIDE = ("-wal", "-shm", "-journal")
HEAD = 100
"""Bytes at the beginning without which SQLite does not take a file for a database."""
_CHUNK, _SECTOR = 2**20, 4096


class Alone:
    """Hold `herma.db` so that no other process can read or write it. A missing file needs no holding."""

    def __init__(self, path: Path, timeout: float) -> None:
        self.path = real_path(path)  # its other files lie beside the file itself, not beside a link to it
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
            deadline = time.monotonic() + self._timeout
            for level in (apsw.SQLITE_LOCK_SHARED, apsw.SQLITE_LOCK_RESERVED, apsw.SQLITE_LOCK_EXCLUSIVE):
                self._lock(self._file, level, deadline)
        except BaseException:
            self.close()
            raise
        return self

    def _lock(self, file: apsw.VFSFile, level: int, deadline: float) -> None:
        while True:
            try:
                return file.xLock(level)
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
        """Copy the file and its log into an empty folder, byte for byte, and durably."""
        with (folder / self.path.name).open("xb") as copy:
            for chunk in _chunks(self._file):
                copy.write(chunk)
        for suffix in ("", *BESIDE):
            name = self.path.name + suffix
            if suffix and suffix != "-shm" and self.path.with_name(name).exists():
                shutil.copyfile(self.path.with_name(name), folder / name)
            if (folder / name).exists():
                (folder / name).chmod(0o600)
                sync_file(folder / name)
        sync_folder(folder)

    def digest(self) -> str:
        """Return the SHA-256 of the file without its head, which is wiped first when the file is replaced."""
        digest = sha256()
        for number, chunk in enumerate(_chunks(self._file)):
            digest.update(chunk if number else chunk[HEAD:])
        return digest.hexdigest()

    def replace(self, new: Path) -> None:
        """Put `new` in the place of the file. Delete the log of the old one first: it would be taken for the new one's.

        Before that, make the old file unusable: without its log it may look whole, and a program that went on with it
        after a crash at this point would write to a file that is lost.
        """
        ready = new
        if new.stat().st_dev != self.path.parent.stat().st_dev:  # behind a link to another disk
            ready = self.path.with_name(f".{self.path.name}.moved.tmp")  # a second attempt writes over the first one's
            shutil.copyfile(new, ready)
            ready.chmod(0o600)
            sync_file(ready)
        self._retire()
        ready.replace(self.path)
        sync_folder(self.path.parent)
        if ready != new:  # not before: while it is there, a crash is known to have come before the end
            new.unlink()

    @property
    def holds(self) -> bool:
        """Return whether there was a file to hold."""
        return self._file is not None

    def retired(self) -> bool:
        """Return whether there is no file, or one that was made unusable before it was replaced."""
        return self._file is None or next(_chunks(self._file, HEAD), b"") == bytes(HEAD)

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


def _chunks(file: apsw.VFSFile | None, limit: int | None = None) -> Iterator[bytes]:
    """Yield the bytes of an open file; zeros where the disk cannot read them."""
    size = 0 if file is None else file.xFileSize() if limit is None else min(limit, file.xFileSize())
    for at in range(0, size, _CHUNK):
        assert file is not None
        end = min(size, at + _CHUNK)
        try:
            yield file.xRead(end - at, at)
        except apsw.Error:
            yield b"".join(_sector(file, place, min(_SECTOR, end - place)) for place in range(at, end, _SECTOR))


def _sector(file: apsw.VFSFile, at: int, size: int) -> bytes:
    try:
        return file.xRead(size, at)
    except apsw.Error:
        return bytes(size)


def beginning(path: Path, size: int) -> bytes:
    """Return the first bytes of a database, without harm to the locks that this process may hold on it."""
    try:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
        file = apsw.VFSFile("", str(real_path(path)), [flags, 0])
    except apsw.Error:
        return b""
    try:
        return b"".join(_chunks(file, size))
    finally:
        file.xClose()


def repaired_copy(path: Path) -> Path:
    """Return where a finished new database waits to be moved; it exists only after a crash in the last step."""
    return real_path(path).with_name(f"{real_path(path).name}.repaired")


# ── a restore, from the moment on at which it cannot be given up ──

RESTORING = ".restore-"
RESTORE_LIST = "moves.json"
LOCK = "lock"
"""In the folder of a restore: held while it runs."""
Step = Callable[[str], None]


def cut_off_restores(home: Path) -> list[Path]:
    """Return the folders of restores that have begun to move things, and have not come to their end."""
    try:
        names = sorted(name for name in os.listdir(home) if name.startswith(RESTORING))  # noqa: PTH208  every open
    except OSError:
        return []
    return [home / name for name in names if (home / name / RESTORE_LIST).is_file()]


def settle(home: Path, *, lock_timeout: float = 10.0) -> None:
    """Finish restores that were cut off; wait for one that is under way."""
    for stage in cut_off_restores(home):
        finish(home, stage, lock_timeout=lock_timeout)


def finish(home: Path, stage: Path, *, lock_timeout: float = 10.0) -> str:
    """Do what is left of a restore. Keep what is in the way. Return what was moved and where the copies are, in words;
    an empty string if another process was quicker.
    """
    try:
        with exclusive(stage / LOCK, lock_timeout), to_the_end(home):
            if not (stage / RESTORE_LIST).is_file():
                return ""
            moves, copies = _read_list(stage)
            with Alone(home / DATABASE, lock_timeout) as held:
                if (stage / "new" / DATABASE).exists() and not held.retired():
                    held.copy_to(_found(stage))
                move(home, stage, moves, held)
            kept = tidy(stage, kept=False)
    except StoreError:
        if not stage.exists():
            return ""
        raise
    there = [*(path for path in copies if path.exists()), *([kept] if kept else [])]
    where = f" What was there before: {', '.join(map(str, there))}." if there else ""
    return f"In place now: {', '.join(moves)}.{where}"


def copies_of(stage: Path) -> list[Path]:
    """Return where a restore that was cut off has put what was there before it."""
    return [path for path in _read_list(stage)[1] if path.exists()]


@contextmanager
def to_the_end(home: Path) -> Iterator[None]:
    """Run what cannot be given up any more; turn an error of the disk into one sentence."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"The restore of {home} was begun and cannot be finished: {exc.strerror or exc}. The old files are kept.",
            hint="Check free space and permissions; the next herma command finishes it.",
        ) from exc


def write_list(stage: Path, moves: dict[str, bool], copies: list[Path]) -> None:
    """Write the list of moves. Everything else is on the disk before it, and it is before anything is moved."""
    for folder, _, files in os.walk(stage / "new"):
        if DATABASE in files:
            sync_file(Path(folder) / DATABASE)
        sync_folder(Path(folder))
    sync_folder(stage)
    sync_folder(stage.parent)
    temporary = stage / f"{RESTORE_LIST}.tmp"
    temporary.write_text(json.dumps({"moves": moves, "copies": [str(path) for path in copies]}), encoding="utf-8")
    sync_file(temporary)
    temporary.rename(stage / RESTORE_LIST)
    sync_folder(stage)


def _read_list(stage: Path) -> tuple[dict[str, bool], list[Path]]:
    """Return the moves and the copies."""
    known = json.loads((stage / RESTORE_LIST).read_text(encoding="utf-8"))
    return known["moves"], [Path(path) for path in known["copies"]]


def move(home: Path, stage: Path, moves: dict[str, bool], held: Alone, step: Step = lambda _what: None) -> None:
    """Move piece by piece. Files of the backup that the folder lacks were moved before a crash."""
    old = stage / "old"
    for name, given in moves.items():
        step(name)
        new, here = stage / "new" / name, home / name
        if given and not new.exists():
            continue
        if name == DATABASE:
            _replace(new, held, stage)
            continue
        if os.path.lexists(here):
            here.rename(_free(old / name))
            sync_folder(old)
            sync_folder(home)
        if given:
            new.rename(here)
            sync_folder(home)
    sync_folder(home)


def _replace(new: Path, held: Alone, stage: Path) -> None:
    if held.holds or not held.path.exists():
        held.replace(new)
        return
    with Alone(held.path, 10.0) as made:  # by another process, since we found that there was none
        made.copy_to(_found(stage))
        made.replace(new)


def _found(stage: Path) -> Path:
    aside = stage / "old" / f"found-{secrets.token_hex(4)}"
    make_folder(aside)
    return aside


def _free(path: Path) -> Path:
    return path if not os.path.lexists(path) else path.with_name(f"{path.name}.{secrets.token_hex(4)}")


def tidy(stage: Path, *, kept: bool) -> Path | None:
    """End a restore. Delete what was there before if a complete backup of it was made (`kept`), else keep it.

    Return where it is then.
    """
    old, folder = stage / "old", stage.parent / "backups"
    goal = folder / f"{BEFORE_RESTORE}-{stage.name.removeprefix(RESTORING)}"
    if not kept and old.exists() and any(old.iterdir()):
        make_folder(folder)
        old.rename(_free(goal))
        sync_folder(folder)
    (stage / RESTORE_LIST).unlink()
    sync_folder(stage)
    shutil.rmtree(stage, ignore_errors=True)
    return goal if goal.exists() else None
