"""Curated memory as files under the home, with their history in `herma.db`.

The file is what people edit and the model is shown; the row is what makes every change undoable. To change both in
one step, under the lock: make the new text durable in a temporary file, commit the intent (a row with the text
after), rename. Whoever takes the lock next settles: the file holds the text after (the change is done), or the
temporary file is still there (it never happened), or a person edited the file since (which becomes a row of its own).
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from glob import escape
from hashlib import sha256
from pathlib import Path

from herma.errors import StoreBusy, StoreChanged, StoreError, UsageError
from herma.ports import Document, NewChange, Place
from herma.store.atomic import discard, flags, install, make_folder, prepare, replace_file, temporary_of, unfinished
from herma.store.locks import exclusive
from herma.store.places import path_of
from herma.store.sqlite.curated import CuratedRows, LastChange, hash_of
from herma.types import Author, Origin, Who

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_MOST_BYTES = 64 * 2**20
"""A larger file is not memory; it is not read at all."""


class CuratedFiles:
    """Implements `CuratedDocuments`."""

    def __init__(
        self,
        home: Path,
        rows: CuratedRows,
        *,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = home
        self._rows = rows
        self._lock_timeout = lock_timeout
        self._clock = clock
        self._held: dict[Place, tuple[Path, bool]] = {}
        self._installed: dict[Place, tuple[object, ...]] = {}
        """What we put where, so that the history need not be asked whether the file is as we left it."""
        self._mutexes: dict[Place, threading.Lock] = {}

    def where(self, place: Place) -> str:
        return str(path_of(self._home, place))

    def read(self, place: Place) -> Document:
        return read_document(path_of(self._home, place))

    def stamp(self, place: Place) -> object:
        try:
            status = os.stat(path_of(self._home, place))  # noqa: PTH116  every turn asks
        except FileNotFoundError:
            return "missing"
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    @contextmanager
    def hold(self, place: Place) -> Iterator[Document]:
        path = _where_it_lies(path_of(self._home, place))
        lock = path.with_name(path.name + ".lock")
        if not lock.exists():  # nothing is made in a home whose database is not ours
            self._rows.refuse_foreign()
            _make_folder(path.parent)
        with self._one_thread(place, lock), exclusive(lock, self._lock_timeout) as alone:
            document = self._settle(place, path, alone=alone)
            self._held[place] = (path, alone)
            try:
                yield document
            finally:
                del self._held[place]

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        if place not in self._held:
            raise UsageError("A curated document must be held while it is changed.")
        path, alone = self._held[place]
        data = text.encode()
        temporary = prepare(path, data, alone=alone)
        try:
            change_id = self._rows.intend(place, change, self._clock(), version, text)
            if read_document(path).version != version:  # looked at as late as can be: editors take no lock
                self._rows.settle_void(change_id)
                discard(temporary)
                raise StoreChanged(
                    f"{path} was changed by another program at this very moment; nothing was written.",
                    hint="Try again.",
                )
            install(temporary, path, data)
            self._installed[place] = (hash_of(text), _marks(path), self._rows.identity())
        except BaseException:
            with suppress(StoreError):  # else whoever takes the lock next does it
                self._settle_open(place, path, alone=alone)
            raise
        return change_id

    def back_up(self, place: Place, document: Document) -> str:
        path = _where_it_lies(path_of(self._home, place))
        data = document.raw if document.raw is not None else document.text.encode()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
        try:
            for earlier in path.parent.glob(f"{escape(path.name)}.bak.*"):
                if earlier.stat().st_size == len(data) and earlier.read_bytes() == data:
                    return str(earlier)
            for number in range(1000):
                backup = path.with_name(f"{path.name}.bak.{stamp}" + (f".{number}" if number else ""))
                if not backup.exists():
                    replace_file(backup, data)
                    return str(backup)
        except OSError as exc:
            raise StoreError(f"{path} could not be backed up: {exc.strerror}.") from exc
        raise StoreError(f"Too many backups of {path} within one second.", hint="Try again.")

    @contextmanager
    def _one_thread(self, place: Place, lock: Path) -> Iterator[None]:
        """Threads of this process take turns, also where the file system has no locks."""
        mutex = self._mutexes.setdefault(place, threading.Lock())
        if not mutex.acquire(timeout=self._lock_timeout):
            raise StoreBusy(
                f"Another thread has held {lock} for more than {self._lock_timeout:g} seconds.", hint="Try again."
            )
        try:
            yield
        finally:
            mutex.release()

    # ── settling ──

    def _settle(self, place: Place, path: Path, *, alone: bool) -> Document:
        """Bring the history into line with the file."""
        self._settle_open(place, path, alone=alone)
        document = read_document(path)
        if document.trouble or self._installed.get(place) == (document.version, _marks(path), self._rows.identity()):
            return document
        last = self._rows.last(place)
        if last is None:
            return self._record_hand_edit(place, "", "", document, "found") if document.text else document
        if document.version == last.after_hash:
            return document
        if not document.text and not last.after_text:
            return document  # missing and empty are the same to us
        return self._record_hand_edit(place, last.after_hash, last.after_text, document, "edited by hand")

    def _settle_open(self, place: Place, path: Path, *, alone: bool) -> None:
        """Finish or void a change whose temporary file is still there: nobody was told that it succeeded."""
        temporary = temporary_of(path, alone=alone)
        meant = unfinished(temporary)
        if meant is None:
            return
        last = self._rows.last(place)
        if last and last.open and meant == last.after_text.encode() and last.after_hash != _version(path):
            if _is_torn(path, last, meant):
                install(temporary, path, meant)
                return
            self._rows.settle_void(last.id)
        discard(temporary)

    def _record_hand_edit(
        self, place: Place, before_hash: str, before: str, document: Document, action: str
    ) -> Document:
        self._rows.intend(place, NewChange(_HAND, action), self._clock(), before_hash, document.text, done=True)
        return replace(document, edited_from=before)


def read_document(path: Path) -> Document:
    """Read a file once, whole; a problem is described, not raised."""
    try:
        raw = _read_regular(path)
    except FileNotFoundError:
        return Document("", "")
    except _Unusable as exc:
        return Document("", "", trouble=f"{path} {exc}")
    except OSError as exc:
        reason = "permission denied" if exc.errno in (errno.EACCES, errno.EPERM) else exc.strerror or str(exc)
        return Document("", "", trouble=f"{path} cannot be read: {reason}")
    version = sha256(raw).hexdigest()
    try:
        return Document(raw.decode("utf-8"), version)
    except UnicodeDecodeError as exc:
        return Document("", version, trouble=f"{path} is not UTF-8 text (byte {exc.start})", raw=raw)


class _Unusable(Exception):
    """What is at the path is there, but no file that could be memory."""


def _read_regular(path: Path) -> bytes:
    """The bytes of an ordinary file. A pipe or a device could keep us waiting for ever."""
    handle = os.open(path, flags("O_RDONLY", "O_NONBLOCK"))
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise _Unusable("is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise _Unusable("is not an ordinary file")
        if status.st_size > _MOST_BYTES:
            raise _Unusable(f"has {status.st_size:,} bytes; a memory file may have {_MOST_BYTES:,}")
        parts = [os.read(handle, status.st_size + 1)]
        while parts[-1]:
            parts.append(os.read(handle, 2**20))
        return b"".join(parts)
    finally:
        os.close(handle)


def _where_it_lies(path: Path) -> Path:
    """A linked file is locked and replaced at its target: the link survives, homes that share it share the lock."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _marks(path: Path) -> tuple[int, ...] | None:
    """What no other program leaves as it was when it writes the file, or puts another in its place."""
    try:
        status = os.stat(path)  # noqa: PTH116  at every write
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _version(path: Path) -> str:
    return read_document(path).version


def _is_torn(path: Path, last: LastChange, meant: bytes) -> bool:
    """An overwrite in place (see `atomic`) that was cut off: the file is the beginning of what was meant."""
    document = read_document(path)
    found = document.raw if document.raw is not None else document.text.encode()
    unread = document.trouble and document.raw is None
    return not unread and document.version not in ("", last.before_hash) and meant.startswith(found)


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Check the permissions of the home, or choose another with --home.",
        ) from exc
