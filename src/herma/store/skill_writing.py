"""Changing skills on disk, with their history in `herma.db`.

Under one lock for all skills of a home: commit the intent (a row with the texts before and after), change the file by
renaming, mark the row done. What a killed process left open is settled by whoever takes the lock next: the file, or
the folder, tells whether it happened. Edits by hand are rows too.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from herma.errors import StoreBusy, StoreChanged, StoreError, UsageError
from herma.ports.skills import NewSkillChange, UnsafePath
from herma.store.atomic import discard, flags, install, make_folder, prepare, temporary_of
from herma.store.locks import exclusive
from herma.store.skill_files import ARCHIVE, inside, list_files, read_regular
from herma.store.sqlite.skills import KnownFile, OpenChange, SkillRows, hash_of
from herma.types import Author, Origin, Who

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_STAGING = ".staging"
_DOCUMENT = "SKILL.md"
_MOST_BYTES = 2**20
"""Larger files are known by their hash only: the history is no backup of pictures."""


class SkillFileWriting:
    """Implements `SkillWriting`."""

    def __init__(
        self, home: Path, rows: SkillRows, *, lock_timeout: float = 10.0, clock: Callable[[], float] = time.time
    ) -> None:
        self._root = home / "skills"
        self._rows = rows
        self._lock_timeout = lock_timeout
        self._clock = clock
        self._mutex = threading.Lock()
        self._alone: bool | None = None

    @contextmanager
    def hold(self, path: str | None = None) -> Iterator[None]:
        if not self._mutex.acquire(timeout=self._lock_timeout):
            raise StoreBusy(
                f"Another thread has held the skills for more than {self._lock_timeout:g} seconds.", hint="Try again."
            )
        try:
            self._make(self._root)
            with exclusive(self._root / ".herma.lock", self._lock_timeout) as alone:
                self._alone = alone
                self._settle_open()
                if path is None or self._is_new(path):
                    for known in self._rows.known_paths():
                        self._record_hand_edits(known, take_in=False)
                if path is not None:
                    self._record_hand_edits(path, take_in=True)
                yield
        finally:
            self._alone = None
            self._mutex.release()

    def write(self, path: str, file: str, expected: str, data: bytes | None, change: NewSkillChange) -> int:
        alone = self._held()
        target = inside(self._root, f"{path}/{file}", to_write=True)
        inside(self._root / path, file, to_write=True)
        before = _bytes(target)
        self._check(target, before, expected)
        if data is not None:
            self._make(target.parent)
            temporary = prepare(target, data, alone=alone)
        try:
            change_id = self._rows.intend(path, file, change, self._clock(), before=before, after=data)
            if hash_of(_bytes(target)) != expected:  # looked at as late as can be: editors take no lock
                self._rows.settle(change_id, "void")
                self._check(target, _bytes(target), expected)
            if data is None:
                target.unlink()
            else:
                install(temporary, target, data)
            self._rows.settle(change_id, "done")
        except OSError as exc:
            raise StoreError(f"{target} could not be removed: {exc.strerror or exc}.") from exc
        finally:
            if data is not None:
                discard(temporary)
        if data is None:
            self._prune(target.parent)
        return change_id

    def move(self, source: str, target: str, change: NewSkillChange) -> int:
        self._held()
        start, end = inside(self._root, source), inside(self._root, target, to_write=True)
        if start.is_symlink():
            raise UnsafePath(f"{source!r} is a link; it is not moved.", hint="Remove the link.")
        if not start.is_dir():
            raise StoreChanged(f"{start} is gone.", hint="Try again.")
        if os.path.lexists(end):
            raise UsageError(f"{end} is there already.", hint="Move it away first.")
        self._make(end.parent)
        path = target if source.startswith(f"{ARCHIVE}/") else source
        change_id = self._rows.intend(path, "", change, self._clock(), moved=(source, target))
        try:
            start.rename(end)
        except OSError as exc:
            self._rows.settle(change_id, "void")
            raise StoreError(f"{start} could not be moved to {end}: {exc.strerror or exc}.") from exc
        _sync(end.parent)
        _sync(start.parent)
        self._rows.settle(change_id, "done")
        self._prune(start.parent)
        return change_id

    def take_in(self, path: str, files: Sequence[tuple[str, bytes, bool]], change: NewSkillChange) -> int:
        self._held()
        end = inside(self._root, path, to_write=True)
        if os.path.lexists(end):
            raise UsageError(f"{end} is there already.", hint="Choose another name.")
        stage = self._root / _STAGING / path.rpartition("/")[2]
        shutil.rmtree(stage.parent, ignore_errors=True)
        try:
            for file, data, executable in files:
                target = inside(stage, file)
                self._make(target.parent)
                _write_new(target, data, executable=executable)
            self._make(end.parent)
            change_id = self._rows.intend(path, "", change, self._clock(), moved=("", path))
            stage.rename(end)
            _sync(end.parent)
            self._rows.settle(change_id, "done")
        except OSError as exc:
            raise StoreError(f"{end} could not be written: {exc.strerror or exc}.") from exc
        finally:
            shutil.rmtree(stage.parent, ignore_errors=True)
        for file, data, _ in files:
            if len(data) <= _MOST_BYTES:
                taken = NewSkillChange(change.author, change.skill, "installed", change.reason)
                self._rows.intend(path, file, taken, self._clock(), after=data, done=True)
        return change_id

    # ── settling ──

    def _settle_open(self) -> None:
        for each in self._rows.open():
            self._rows.settle(each.id, "done" if self._happened(each) else "void")
            if each.file:
                target = self._root / each.path / each.file
                discard(temporary_of(target, alone=True))
                self._prune(target.parent)

    def _happened(self, change: OpenChange) -> bool:
        if not change.file:
            end = self._root / change.moved_to
            start = self._root / change.moved_from if change.moved_from else None
            return end.is_dir() and (start is None or not start.exists())
        found = hash_of(_bytes(self._root / change.path / change.file))
        return found == change.after_hash or found != change.before_hash  # a hand edit on top of it is recorded next

    def _record_hand_edits(self, path: str, *, take_in: bool) -> None:
        """Rows for what was done to a skill without us. What the history does not know yet is taken in if asked."""
        known = self._rows.known(path)
        folder = self._root / path
        present = folder.is_dir() and not folder.is_symlink()
        if not known and not take_in:
            return
        if not present and (not known or self._rows.is_moved_away(path)):
            return
        files = list_files(folder) if present else []
        skill = next((each.skill for each in known.values()), path.rpartition("/")[2])
        if not present and not os.path.lexists(folder) and (new := self._found_again(known)):
            change = NewSkillChange(_HAND, skill, "moved by hand")
            self._rows.intend(path, "", change, self._clock(), moved=(path, new), done=True)
            return
        for file in files:
            data = _readable(folder / file)
            if data is None or (file in known and hash_of(data) == known[file].hash):
                continue
            self._record(path, file, skill, known.get(file), data, "edited by hand" if file in known else "found")
        for file, each in known.items():
            if file not in files and each.hash:
                self._record(path, file, skill, each, None, "removed by hand")

    def _is_new(self, path: str) -> bool:
        """A folder that the history does not know: one that it knows may have been given another name."""
        return (self._root / path).is_dir() and not self._rows.known(path)

    def _found_again(self, known: dict[str, KnownFile]) -> str:
        """Where a skill's folder lies now, if it was renamed: the only new one with the same SKILL.md."""
        wanted = known[_DOCUMENT].hash if _DOCUMENT in known else ""
        old = set(self._rows.known_paths())
        places = [
            path
            for path in (each.parent.relative_to(self._root).as_posix() for each in self._root.rglob(_DOCUMENT))
            if wanted and path not in old and not path.startswith(".") and _hash_at(self._root / path) == wanted
        ]
        return places[0] if len(places) == 1 else ""

    def _record(
        self, path: str, file: str, skill: str, before: KnownFile | None, after: bytes | None, action: str
    ) -> None:
        old = before.content if before else None
        data = old.encode() if isinstance(old, str) else old
        change = NewSkillChange(_HAND, skill, action)
        self._rows.intend(path, file, change, self._clock(), before=data, after=after, done=True)

    # ── steps ──

    def _held(self) -> bool:
        if self._alone is None:
            raise UsageError("Skills must be held while they are changed.")
        return self._alone

    def _check(self, target: Path, found: bytes | None, expected: str) -> None:
        if hash_of(found) != expected:
            raise StoreChanged(
                f"{target} was changed by another program at this very moment; nothing was written.", hint="Try again."
            )

    def _make(self, folder: Path) -> None:
        try:
            make_folder(folder)
        except OSError as exc:
            raise StoreError(
                f"{folder} cannot be created: {exc.strerror}.", hint="Check the permissions of the home."
            ) from exc

    def _prune(self, folder: Path) -> None:
        """Remove folders that are empty now, up to the skills folder."""
        while folder != self._root and folder.is_relative_to(self._root) and not folder.is_symlink():
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _readable(path: Path) -> bytes | None:
    """A file for the history; None for links, for what is too large, and for what cannot be read: a pipe or a closed
    file in one skill must not keep others from being written.
    """
    if path.is_symlink():
        return None
    try:
        return _bytes(path, at_most=_MOST_BYTES)
    except StoreError:
        return None


def _bytes(path: Path, *, at_most: int = 64 * 2**20) -> bytes | None:
    try:
        if path.stat().st_size > at_most:
            return None
        return read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror or exc}.") from exc


def _hash_at(folder: Path) -> str:
    return hash_of(_readable(folder / _DOCUMENT))


def _write_new(path: Path, data: bytes, *, executable: bool) -> None:
    handle = os.open(path, flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW"), 0o700 if executable else 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _sync(folder: Path) -> None:
    """Make a rename in this folder last."""
    if os.name == "nt":
        return
    with suppress(OSError):
        handle = os.open(folder, flags("O_RDONLY", "O_DIRECTORY"))
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
