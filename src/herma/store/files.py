"""Curated memory as files under the home, with their history in `herma.db`.

The file is what people edit and the model is shown; the row is what makes every change undoable. To change both in
one step, under the lock: commit the intent (hashes before and after, text after), then replace the file. Whoever
takes the lock next looks at the file and settles: it is the text after (the change is done), the text before (it
never happened), or something else (a person edited it since, which becomes a row of its own).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from herma.errors import StoreChanged, StoreError, UsageError
from herma.ports import Document, NewChange, Place
from herma.store.atomic import discard_unfinished, replace_file, unfinished
from herma.store.locks import exclusive
from herma.store.places import path_of
from herma.store.sqlite.curated import CuratedRows, LastChange
from herma.types import Author, Origin, Who

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)


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

    def where(self, place: Place) -> str:
        return str(path_of(self._home, place))

    def read(self, place: Place) -> Document:
        return read_document(path_of(self._home, place))

    @contextmanager
    def hold(self, place: Place) -> Iterator[Document]:
        # A linked file is locked and replaced where it really lies: the link survives, and homes that share it
        # share the lock.
        path = Path(os.path.realpath(path_of(self._home, place)))
        _make_folder(path.parent)
        with exclusive(path.with_name(path.name + ".lock"), self._lock_timeout) as alone:
            document = self._settle(place, path, read_document(path))
            self._held[place] = (path, alone)
            try:
                yield document
            finally:
                del self._held[place]

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        if place not in self._held:
            raise UsageError("A curated document must be held while it is changed.")
        path, alone = self._held[place]
        if read_document(path).version != version:
            raise StoreChanged(
                f"{path} was changed by another program at this very moment; nothing was written.",
                hint="Try again.",
            )
        change_id = self._rows.intend(place, change, self._clock(), version, text)
        replace_file(path, text.encode(), alone=alone)
        return change_id

    def back_up(self, place: Place, document: Document) -> str:
        path = Path(os.path.realpath(path_of(self._home, place)))
        data = document.raw if document.raw is not None else document.text.encode()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
        try:
            for earlier in path.parent.glob(f"{path.name}.bak.*"):
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

    def close(self) -> None:
        """Nothing is held between calls."""

    # ── settling ──

    def _settle(self, place: Place, path: Path, document: Document) -> Document:
        """Bring the history into line with the file:

        finish, void, or record a hand edit. Done-marks wait for the next change.
        """
        if document.trouble:
            return document
        last = self._rows.last(place)
        if last is None:
            return self._record_hand_edit(place, "", "", document, "found") if document.text else document
        if document.version == last.after_hash:
            return document
        if last.open and document.version == last.before_hash:
            self._rows.settle_void(last.id)
            discard_unfinished(path)
            return document
        if last.open and _is_torn(document, last, unfinished(path)):
            replace_file(path, last.after_text.encode())
            return read_document(path)
        if not document.text and not last.after_text:
            return document  # missing and empty are the same to us
        return self._record_hand_edit(place, last.after_hash, last.after_text, document, "edited by hand")

    def _record_hand_edit(
        self, place: Place, before_hash: str, before: str, document: Document, action: str
    ) -> Document:
        self._rows.intend(place, NewChange(_HAND, action), self._clock(), before_hash, document.text, done=True)
        return replace(document, edited_from=before)


def read_document(path: Path) -> Document:
    """Read a file once, whole; a problem is described, not raised."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return Document("", "")
    except IsADirectoryError:
        return Document("", "", trouble=f"{path} is a folder, not a file")
    except OSError as exc:
        reason = "permission denied" if exc.errno in (errno.EACCES, errno.EPERM) else exc.strerror or str(exc)
        return Document("", "", trouble=f"{path} cannot be read: {reason}")
    version = sha256(raw).hexdigest()
    try:
        return Document(raw.decode("utf-8"), version)
    except UnicodeDecodeError as exc:
        return Document("", version, trouble=f"{path} is not UTF-8 text (byte {exc.start})", raw=raw)


def _is_torn(document: Document, last: LastChange, meant: bytes | None) -> bool:
    """An overwrite in place (see `atomic`) that was cut off:

    the file is the beginning of what its temporary file holds whole.
    """
    torn = len(document.text) < len(last.after_text) and last.after_text.startswith(document.text)
    return torn and meant == last.after_text.encode()


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Check the permissions of the home, or choose another with --home.",
        ) from exc
