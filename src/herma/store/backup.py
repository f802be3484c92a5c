"""Make, find, verify, prune and restore backups.

A backup is one file that holds everything, made while other programs write, and checked before it is trusted.
`herma.db` is copied by SQLite's own backup from one consistent state. Memory files and skills are read while their
locks are held, together with the moment of that state, so that files and history belong together. `index.db` is never
in a backup: it is derived.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any

import apsw

from herma import __version__
from herma.errors import ForeignStore, StoreError, UsageError
from herma.store import archive
from herma.store.archive import (
    DATABASE,
    SUFFIX,
    Backup,
    Manifest,
    Progress,
    folder_of,
    is_safety,
    listing,
    look_at,
    mark_of,
)
from herma.store.checkup import state_of
from herma.store.database import queries
from herma.store.files import exclusive, make_folder, refuse_special, size_of, sync_file
from herma.store.replace import (
    BESIDE,
    LOCK,
    RESTORE_LIST,
    RESTORING,
    Alone,
    Step,
    move,
    settle,
    tidy,
    to_the_end,
    write_list,
)
from herma.store.sqlite import (
    APPLICATION_ID,
    create_empty,
    full,
    open_reader,
    refuse_foreign,
    refuse_lost,
    translated,
    user_version,
)

_LOCK_WAIT = 10.0
_COPY_PAGES = 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STAMP = re.compile(r"\d{8}-\d{6}(?:\.\d+)?")


class NothingThere(UsageError):
    """There is nothing to back up."""


def create(
    home: Path,
    target: Path | None = None,
    *,
    name: str = "",
    with_secrets: bool = False,
    kept: bool | None = None,
    held: bool = False,
    database: Path | None = None,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Backup:
    """Make a backup in `backups/`, or at `target` (a new file, or a folder), whole or not at all. A restore that was
    cut off is finished first.

    `kept` says whether it is never pruned; by default one with a name is not. With `held`, the caller holds every lock
    of the home, and `database` is a copy of `herma.db` to take, or None for none.
    """
    if name and not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name.", hint="Use up to 64 letters, digits, dots, dashes, underscores.")
    if not held:
        settle(home)
        database = home / DATABASE
        if state_of(database)[0] == "damaged":
            refuse_lost(database)
            raise StoreError(
                f"{database} is damaged, and so would be its copy.", hint="Repair it first: herma doctor --repair"
            )
        refuse_foreign(database)
    now = clock()
    path = _free_path(home, target, name, now)
    with failing(path), _staged(path.parent, f".{path.name}.tmp") as stage:
        locks = nullcontext() if held else files_held(home, _LOCK_WAIT)
        skipped, facts = _gather(home, database, stage, locks, with_secrets=with_secrets, progress=progress)
        manifest = Manifest(
            format=archive.FORMAT,
            herma=__version__,
            created=now,
            name=name,
            kept=bool(name) if kept is None else kept,
            files={each: _measure(stage / each) for each in _listed(stage)},
            secrets=with_secrets,
            skipped=tuple(skipped),
            **facts,
        )
        if not manifest.files:
            raise NothingThere(
                f"There is nothing in {home} to back up.", hint="Is it the right home? --home names another."
            )
        archive.write_archive(path, manifest, stage)
    trouble = verify(look_at(path))
    if trouble and not manifest.damage:
        raise StoreError(f"{path} cannot be trusted: {trouble[0]}.", hint="Check the disk, then make another one.")
    return look_at(path)


def find(home: Path, name: str) -> Backup:
    """Return a backup by its name or the beginning of it, the name it was given, "latest", or the path of its file."""
    path = Path(name)
    if path.name.endswith(SUFFIX) and path.is_file():
        return look_at(path)
    exact = folder_of(home) / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    if PurePosixPath(name).name == name and exact.is_file():
        return look_at(exact)
    known = listing(home)
    if name == "latest" and (good := [each for each in known if each.manifest and not each.manifest.damage]):
        return next((each for each in good if not is_safety(each)), good[0])
    if named := [each for each in known if each.manifest and name and each.manifest.name == name]:
        return named[0]
    matching = [each for each in known if name and each.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    if path.is_file():
        what = f"{name} is not a backup: the name of a backup ends with {SUFFIX}."
        raise UsageError(what, hint="`herma backup list` shows them all.")
    if not known:
        raise UsageError("There is no backup yet.", hint="Make one: herma backup create")
    what = f"{len(matching)} backups begin with {name!r}" if matching else f"There is no backup {name!r}"
    raise UsageError(f"{what}.", hint="`herma backup list` shows them all.")


def prune(home: Path, keep: int, *, beside: Backup | None = None) -> list[Backup]:
    """Delete all but the newest `keep` sound backups without a name. Return those that are gone.

    With `beside`, look in the folder of that backup, and only at those of the same database whose file was named by
    its time: other homes may use that folder too.
    """
    sound = [each for each in listing(home, beside.path.parent if beside else None) if each.manifest]
    plain = [each for each in sound if each.manifest and not each.manifest.damage and not each.manifest.kept]
    if beside is not None:
        own = beside.manifest.store_id if beside.manifest else ""
        same = [each for each in plain if own and each.manifest and each.manifest.store_id == own]
        plain = [each for each in same if _STAMP.fullmatch(each.name)]
    gone = plain[max(keep, 1) :]
    for backup in gone:
        mark_of(backup.path).unlink(missing_ok=True)
        backup.path.unlink(missing_ok=True)
    return gone


def verify(backup: Backup, progress: Progress | None = None) -> list[str]:
    """Read all of a backup: every file is there with its hash, nothing else is, and the database passes its own checks.
    Return what is wrong.
    """
    manifest = backup.manifest
    if manifest is None:
        return [backup.trouble]
    trouble = ""
    with _staged(backup.path.parent, f".{backup.path.name}.verify.tmp", fallback=True) as stage:
        try:
            archive.unpack(backup, stage, progress)
            if DATABASE in manifest.files and (damage := database_facts(stage / DATABASE)[1]):
                trouble = f"its database is damaged: {damage}"
        except (StoreError, OSError) as exc:
            trouble = str(exc).rstrip(".")
    if trouble:
        return [trouble]
    archive.mark(backup.path)
    return []


@contextmanager
def files_held(home: Path, timeout: float) -> Iterator[None]:
    """Hold the locks of memory files and skills, so that none is in the middle of a change."""
    with ExitStack() as locks:
        for lock in (*sorted((home / "memories").rglob("*.lock")), home / "skills" / ".herma.lock"):
            if os.access(lock, os.W_OK):
                locks.enter_context(exclusive(lock, timeout))
        yield


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Run the block; turn an error of the disk into one sentence."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. Nothing was changed.",
            hint="Check free space and permissions, then try again.",
        ) from exc


@contextmanager
def _staged(folder: Path, name: str, *, fallback: bool = False) -> Iterator[Path]:
    """Yield an empty private folder and delete it afterwards; elsewhere, with `fallback`, if `folder` is read-only."""
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


class DatabaseCopy:
    """A copy of `herma.db` in two steps: `begin` fixes its state, `copy` takes as long as it takes."""

    def __init__(self, source: apsw.Connection | None, target: Path) -> None:
        self._source = source
        self._target = target

    def begin(self) -> None:
        """Copy what is committed now, whatever others write from now on."""
        if self._source is not None:
            self._source.execute("BEGIN; SELECT count(*) FROM sqlite_master").fetchall()

    def copy(self, progress: Progress | None = None) -> None:
        if self._source is None:
            return
        try:
            _copy_pages(self._source, self._target, progress)
        except apsw.FullError as exc:  # of the target's disk, which may be another than the home's
            raise full(self._target.parent.parent) from exc
        self._target.chmod(0o600)


@contextmanager
def copy_database(path: Path | None, target: Path) -> Iterator[DatabaseCopy]:
    """Yield a copy to be made. A read transaction keeps the state meanwhile, so that it never begins again."""
    with translated(path or target), ExitStack() as opened:
        source = None
        if path and size_of(path):
            source = opened.enter_context(closing(open_reader(path, 10.0)))
        yield DatabaseCopy(source, target)


def copy_derived(path: Path, target: Path) -> bool:
    """Copy a derived file (`index.db` and the like) while others may write to it. Return whether there is a copy now:
    one that cannot be made is made again when it is needed.
    """
    if not path.is_file():
        return False
    try:
        with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as source:
            source.set_busy_timeout(5_000)
            _copy_pages(source, target)
    except apsw.Error:
        target.unlink(missing_ok=True)
        return False
    return True


def _copy_pages(source: apsw.Connection, target: Path, progress: Progress | None = None) -> None:
    with closing(apsw.Connection(str(target))) as made, made.backup("main", source, "main") as backup:
        while not backup.done:
            backup.step(_COPY_PAGES)
            if progress:
                progress(backup.page_count - backup.remaining, backup.page_count)


def database_facts(path: Path) -> tuple[dict[str, Any], str]:
    """Return what the manifest says about a database that no other process has open, and what is wrong with it."""
    facts: dict[str, Any] = {}
    sql = queries("store.checkup")
    with closing(apsw.Connection(str(path))) as connection:
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
    return facts, damage


def _gather(
    home: Path,
    database: Path | None,
    stage: Path,
    locks: AbstractContextManager[None],
    *,
    with_secrets: bool,
    progress: Progress | None,
) -> tuple[list[str], dict[str, Any]]:
    """Copy everything into `stage`: memory files, skills and database of the same moment."""
    skipped: list[str] = []
    with copy_database(database, stage / DATABASE) as copy:
        with locks:
            copy.begin()
            for folder in archive.FOLDERS:
                _copy_folder(home / folder, stage / folder, skipped)
        for name in (*archive.FILES, *(archive.SECRETS if with_secrets else ())):
            if (home / name).is_file():
                shutil.copyfile(home / name, stage / name)
        if (home / archive.FACTS).exists() and not copy_derived(home / archive.FACTS, stage / archive.FACTS):
            skipped.append(archive.FACTS)
        copy.copy(progress)
    facts, damage = database_facts(stage / DATABASE) if (stage / DATABASE).exists() else ({}, "")
    return skipped, {**facts, "damage": damage}


def _copy_folder(source: Path, target: Path, skipped: list[str]) -> None:
    """Copy ordinary files, linked ones too; no locks, no unfinished files, and nothing that only links lead to."""
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


def _listed(stage: Path) -> list[str]:
    return sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, file_digest(file, "sha256").hexdigest()


def _free_path(home: Path, target: Path | None, name: str, now: float) -> Path:
    """Return where the backup goes: a file that does not exist yet."""
    stem = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + (f"-{name}" if name else "")
    if target is not None and not target.is_dir():
        if target.exists():
            raise UsageError(f"{target} exists already.", hint="Choose another name.")
        if not target.name.endswith(SUFFIX):
            raise UsageError(
                f"There is no folder {target}, and the name of a backup ends with {SUFFIX}.",
                hint=f"Make the folder, or name a file: {target}{SUFFIX}",
            )
        return target.absolute()
    folder = folder_of(home) if target is None else target.absolute()
    for number in range(1000):
        path = folder / (stem + (f".{number}" if number else "") + SUFFIX)
        if not path.exists():
            return path
    raise StoreError(f"Too many backups in {folder} within one second.", hint="Try again.")


# Restore a backup: its files replace those of the home, all of them or none.
#
# Everything is extracted, checked and made ready in a folder of its own first, and a backup is made of what is there,
# while no other process can write. Then a list of what is to be moved is written and flushed. From that moment on the
# restore only goes forward: after a crash, the next program that opens the home finishes it (`store/replace.py`). What
# a step leaves on the disk tells whether it was done: what comes from the backup is moved last, so it is in the folder
# until then. Nothing is merged: files that the backup lacks are gone afterwards.


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """List the effects of a restore, done or planned. `safety` is the backup of what was there before; `kept` a
    folder with it.
    """

    backup: Backup
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    safety: Backup | None = None
    kept: Path | None = None
    dry_run: bool = False


def restore(
    home: Path,
    backup: Backup,
    *,
    dry_run: bool = False,
    lock_timeout: float = 10.0,
    progress: Progress | None = None,
    step: Step = lambda _what: None,
) -> RestoreResult:
    """Put the home back to what the backup holds. A restore that was cut off is finished first.

    `step` is called with the name of each step before it.
    """
    damaged = _refuse(home, backup)
    secret = bool(backup.manifest and backup.manifest.secrets)
    stage = home / f"{RESTORING}{secrets.token_hex(4)}"
    with ExitStack() as locks:
        try:
            with failing(home):
                make_folder(stage)
                locks.enter_context(exclusive(stage / LOCK, lock_timeout))
                _fill(stage, backup, progress)
                pieces = _pieces(home, stage / "new", with_secrets=secret)
                replaced = tuple(name for name in pieces if (stage / "new" / name).exists())
                removed = tuple(name for name in pieces if name not in replaced)
                if dry_run:
                    return RestoreResult(backup, replaced, removed, dry_run=True)
                step("safety")
                held = locks.enter_context(Alone(home / DATABASE, lock_timeout))
                locks.enter_context(files_held(home, lock_timeout))
                kept = _keep_damaged(home, held) if damaged or _is_lone_log(held) else None
                safety = _save(home, stage, None if kept else held, with_secrets=secret)
                step("list")
                moves = _moves(stage, pieces)
                write_list(stage, moves, [each for each in (safety.path if safety else None, kept) if each])
        finally:
            if not (stage / RESTORE_LIST).exists():
                shutil.rmtree(stage, ignore_errors=True)
        with to_the_end(home):
            move(home, stage, moves, held, step)
            tidy(stage, kept=safety is not None and not (safety.manifest and safety.manifest.skipped))
    return RestoreResult(backup, replaced, removed, safety, kept)


def abandoned(home: Path) -> list[Path]:
    """Return the folders of restores that ended before they changed anything, and that no process holds."""
    stages = sorted(stage for stage in home.glob(f"{RESTORING}*") if stage.is_dir())
    return [stage for stage in stages if not (stage / RESTORE_LIST).is_file() and not _is_held(stage / LOCK)]


def _is_held(lock: Path) -> bool:
    if not lock.exists():
        return False
    try:
        with exclusive(lock, 0.0):
            return False
    except StoreError:
        return True


def _refuse(home: Path, backup: Backup) -> bool:
    """Raise if the backup cannot be restored here. Return whether the database that is there is damaged."""
    manifest = backup.manifest
    if manifest is None:
        raise ForeignStore(
            f"{backup.path} cannot be restored: {backup.trouble.rstrip('.')}.", hint="`herma backup list` shows others."
        )
    if manifest.damage:
        raise StoreError(
            f"{backup.path} holds a database that was already damaged ({manifest.damage}).",
            hint="Choose another: `herma backup list`.",
        )
    settle(home)
    state, why = state_of(home / DATABASE)
    if state in ("foreign", "newer"):
        raise ForeignStore(why, hint="Move the file away first.")
    refuse_special(home / DATABASE)
    return (home / DATABASE).exists() and state in ("damaged", "unreadable")


def _fill(stage: Path, backup: Backup, progress: Progress | None) -> None:
    """Extract and check everything. The database begins a new epoch: an index of another state is not valid."""
    (stage / "new").mkdir(mode=0o700)
    (stage / "old").mkdir(mode=0o700)
    archive.unpack(backup, stage / "new", progress)
    path = stage / "new" / DATABASE
    if not path.exists():
        return
    if damage := database_facts(path)[1]:
        raise StoreError(f"The database in {backup.path} is damaged: {damage}.", hint="Choose another backup.")
    with translated(path):
        connection = apsw.Connection(str(path))
        try:
            if connection.pragma("application_id") != APPLICATION_ID:
                raise ForeignStore(
                    f"The database in {backup.path} is not a Herma database.", hint="Choose another backup."
                )
            connection.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (secrets.token_hex(8),))
        finally:
            connection.close()
    sync_file(path)
    path.chmod(0o600)


def _pieces(home: Path, new: Path, *, with_secrets: bool) -> list[str]:
    """Return what is moved as a whole, the database first. Leave out what is on neither side."""
    facts = [archive.FACTS + end for end in ("", "-wal", "-shm")] if (new / archive.FACTS).exists() else []
    names = [DATABASE, *facts, *archive.FOLDERS, *archive.FILES, *(archive.SECRETS if with_secrets else ())]
    return [name for name in names if os.path.lexists(home / name) or (new / name).exists()]


def _is_lone_log(held: Alone) -> bool:
    beside = [held.path.with_name(held.path.name + suffix) for suffix in BESIDE if suffix != "-shm"]
    return not held.path.exists() and any(size_of(path) for path in beside)


def _keep_damaged(home: Path, held: Alone) -> Path:
    """Copy the files of a database that no backup can be made of, as they are."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = archive.folder_of(home) / f"damaged-{stamp}-{secrets.token_hex(2)}"
    make_folder(kept)
    held.copy_to(kept)
    return kept


def _save(home: Path, stage: Path, held: Alone | None, *, with_secrets: bool) -> Backup | None:
    """Back up what is there, `.env` only if the restore replaces it. Return None if there is nothing."""
    folder, copy = stage / "was", None
    if held is not None and held.path.exists():
        make_folder(folder)
        held.copy_to(folder)
        copy = folder / held.path.name
    try:
        name = archive.BEFORE_RESTORE
        return create(home, name=name, with_secrets=with_secrets, kept=False, held=True, database=copy)
    except NothingThere:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _moves(stage: Path, pieces: list[str]) -> dict[str, bool]:
    """Return what is moved, in order, and whether the backup has it. Put an empty database where the backup has none:
    a home without one, and with an index and backups that know one, would be damaged.
    """
    new = stage / "new" / DATABASE
    if DATABASE in pieces and not new.exists():
        create_empty(new)
    return {name: (stage / "new" / name).exists() for name in pieces}
