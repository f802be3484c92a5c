"""Copying what a backup holds: `herma.db` from one consistent state, folders without what is in motion."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw

from herma.errors import StoreError
from herma.store.atomic import make_folder
from herma.store.sqlite.errors import full, translated
from herma.store.sqlite.migrate import user_version
from herma.store.sqlite.opening import open_reader
from herma.store.sqlite.queries import queries

Progress = Callable[[int, int], None]
_PAGES = 1024


@contextmanager
def staged(folder: Path, name: str, *, fallback: bool = False) -> Iterator[Path]:
    """An empty private folder that is gone afterwards; elsewhere, with `fallback`, when this place is read-only."""
    stage = folder / name
    try:
        make_folder(folder)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
    except OSError:
        if not fallback:
            raise
        stage = Path(tempfile.mkdtemp(prefix="herma-"))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Run the block; what the disk objects to becomes one sentence."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. Nothing was changed.",
            hint="Check free space and permissions, then try again.",
        ) from exc


class DatabaseCopy:
    """A copy of `herma.db` in two steps: `begin` fixes the moment, `copy` takes as long as it takes."""

    def __init__(self, source: apsw.Connection | None, target: Path) -> None:
        self._source = source
        self._target = target

    def begin(self) -> None:
        """From now on the copy will hold what is committed now, whatever others write."""
        if self._source is not None:
            self._source.execute("BEGIN; SELECT count(*) FROM sqlite_master").fetchall()

    def copy(self, progress: Progress | None = None) -> None:
        if self._source is None:
            return
        target = apsw.Connection(str(self._target))
        try:
            with _room(self._target), target.backup("main", self._source, "main") as backup:
                while not backup.done:
                    backup.step(_PAGES)
                    if progress:
                        progress(backup.page_count - backup.remaining, backup.page_count)
        finally:
            target.close()
        self._target.chmod(0o600)


@contextmanager
def _room(target: Path) -> Iterator[None]:
    """Run the block; a full disk is the target's, which may be another than the home's."""
    try:
        yield
    except apsw.FullError as exc:
        raise full(target.parent.parent) from exc


@contextmanager
def copy_database(path: Path | None, target: Path) -> Iterator[DatabaseCopy]:
    """A read transaction keeps the state while it is copied, so the copy never has to begin again."""
    with translated(path or target):
        source = open_reader(path, 10.0) if path and path.exists() and path.stat().st_size else None
        try:
            yield DatabaseCopy(source, target)
        finally:
            if source is not None:
                source.close()


def database_facts(path: Path) -> tuple[dict[str, Any], str]:
    """What the manifest says about a database that nobody else has open. → and what is wrong with it."""
    facts: dict[str, Any] = {}
    sql = queries("checkup")
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("journal_mode", "delete")  # so that it is one file, wherever it is put
        facts["database"] = user_version(connection)
        rows: list[Any] = connection.execute(sql["identity"]).fetchall()
        facts["store_id"], facts["epoch"] = rows[0][0] or "", rows[0][1] or ""
        rows = connection.execute(sql["counts"]).fetchall()
        facts["counts"] = dict(zip(("sessions", "messages", "changes", "payloads"), rows[0], strict=True))
        rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
        damage = "" if rows == [("ok",)] else str(rows[0][0])
        if not damage and connection.execute("PRAGMA foreign_key_check").fetchone():
            damage = "rows refer to others that are not there"
    except apsw.Error as exc:
        damage = str(exc)
    finally:
        connection.close()
    return facts, damage


def copy_folder(source: Path, target: Path, skipped: list[str]) -> None:
    """Ordinary files, linked ones too; not locks and unfinished ones, and not what only links lead to."""
    for folder, folders, files in os.walk(source):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        skipped += [str((Path(folder) / name).relative_to(source.parent)) for name in linked]
        folders[:] = sorted(set(folders) - set(linked))
        for name in sorted(files):
            path = Path(folder) / name
            if name.endswith((".lock", ".tmp")):
                continue
            goal = target / path.relative_to(source)
            if path.is_file():
                goal.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # deleted by hand at this moment
                    shutil.copyfile(path, goal)
            elif os.path.lexists(path):
                skipped.append(str(path.relative_to(source.parent)))
