"""`index.db` and `index.db.new` in a home: which one is used, who may write, and how one takes the other's place."""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path

from herma.errors import StoreError
from herma.ports import IndexUnusable
from herma.ports.index import IndexMissing
from herma.store.locks import exclusive
from herma.store.sqlite.index_connection import create, identity
from herma.store.sqlite.index_tables import SqliteIndexTables

_ASK_AGAIN = 0.001
_BESIDE = ("-journal", "-wal", "-shm")


class SqliteIndexFiles:
    """Implements `IndexFiles`."""

    def __init__(self, home: Path, *, common_cap: int = 20_000) -> None:
        self._path = home / "index.db"
        self._new = home / "index.db.new"
        self._lock = home / "index.db.lock"
        self._common_cap = common_cap
        self._mutex = threading.Lock()
        self._current: SqliteIndexTables | None = None
        self._building: SqliteIndexTables | None = None
        self._identity: tuple[int, int] | None = None
        self._new_identity: tuple[int, int] | None = None

    def current(self) -> SqliteIndexTables:
        with self._mutex:
            found = identity(self._path)
            if found is None:
                raise IndexMissing(f"{self._path} is not there")
            if self._current is None or found != self._identity:
                if self._current is not None:
                    self._current.close()
                self._current = SqliteIndexTables(self._path, common_cap=self._common_cap)
                self._identity = found
            return self._current

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Asks often: whoever builds an index lets go of it for two milliseconds now and then."""
        return exclusive(self._lock, timeout, longest_pause=_ASK_AGAIN)

    def building(self, *, anew: bool) -> SqliteIndexTables:
        with self._mutex:
            if anew or identity(self._new) is None:
                _remove(self._new)
                create(self._new)
            found = identity(self._new)
            if self._building is None or found != self._new_identity:
                if self._building is not None:
                    self._building.close()
                self._building = SqliteIndexTables(self._new, common_cap=self._common_cap)
                self._new_identity = found
            return self._building

    def built(self) -> int:
        if identity(self._new) is None:
            return 0
        tables = SqliteIndexTables(self._new)
        try:
            return tables.state().messages
        except (IndexUnusable, StoreError):  # it is begun, or put in its place, at this moment
            return 0
        finally:
            tables.close()

    def publish(self) -> None:
        with self._mutex:
            if self._building is not None:
                self._building.close()
                self._building = None
            for path in (self._path, self._new):  # left by a killed writer of the old file: not meant for the new one
                for suffix in _BESIDE:
                    _remove(path.with_name(path.name + suffix), beside=False)
            if self._path.is_dir():
                _remove_folder(self._path)
            try:
                os.replace(self._new, self._path)  # noqa: PTH105  the same name on every platform
            except OSError as exc:
                raise StoreError(f"{self._path} cannot be replaced: {exc.strerror}.") from exc

    def obstacle(self) -> str:
        for path in (self._path, self._new):
            if path.is_dir() and any(path.iterdir()):
                return _in_the_way(path)
        return ""

    def drop(self, *, building: bool = True) -> None:
        self.close(building=building)
        if building:
            _remove(self._new)
        _remove(self._path)

    def close(self, *, building: bool = True) -> None:
        with self._mutex:
            if self._current is not None:
                self._current.close()
            self._current = self._identity = None
            if building and self._building is not None:
                self._building.close()
                self._building = None


def _in_the_way(path: Path) -> str:
    return f"{path} is a folder with something in it: move it away, and the index is built by itself."


def _remove_folder(path: Path) -> None:
    """An empty folder is in nobody's way; what is in another is not ours to delete."""
    try:
        path.rmdir()
    except OSError as exc:
        raise StoreError(_in_the_way(path), hint=f"mv {path} {path}.old") from exc


def _remove(path: Path, *, beside: bool = True) -> None:
    if path.is_dir():
        _remove_folder(path)
    try:
        path.unlink(missing_ok=True)
        for suffix in _BESIDE if beside else ():
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path} cannot be deleted: {exc.strerror}.") from exc
