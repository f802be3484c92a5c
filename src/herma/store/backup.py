"""Backups: one file that holds everything, made while others write, checked before it is trusted.

`herma.db` is copied by SQLite's own backup from one consistent state; memory files and skills are read while their
locks are held, together with the moment of that state, so that files and history belong together. `index.db` is never
in a backup: it is derived.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path, PurePosixPath
from typing import Any

from herma import __version__
from herma.errors import StoreError, UsageError
from herma.store.backup_archive import (
    DATABASE,
    FILES,
    FORMAT,
    SECRETS,
    SUFFIX,
    Backup,
    Manifest,
    Progress,
    look_at,
    mark,
    mark_of,
    unpack,
    write_archive,
)
from herma.store.backup_copy import copy_database, copy_folder, database_facts, failing, staged
from herma.store.locks import exclusive
from herma.store.sqlite.checkup import state_of
from herma.store.sqlite.opening import refuse_foreign

_LOCK_WAIT = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
BEFORE_RESTORE = "before-restore"
"""What is there when a restore begins is kept under this name."""
_STAMP = re.compile(r"\d{8}-\d{6}(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Verified:
    """What checking a backup found; nothing, when it is as good as on its first day."""

    backup: Backup
    trouble: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.trouble


class NothingThere(UsageError):
    """There is nothing to back up."""


def folder_of(home: Path) -> Path:
    return home / "backups"


def create(
    home: Path,
    target: Path | None = None,
    *,
    name: str = "",
    with_secrets: bool = False,
    kept: bool | None = None,
    without_database: bool = False,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Backup:
    """Make a backup in `backups/`, or at `target` (a file, or a folder that is there). Whole or not at all."""
    if name and not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot be a name.", hint="Use up to 64 letters, digits, dots, dashes, underscores.")
    if not without_database and state_of(home / DATABASE)[0] == "damaged":
        raise StoreError(
            f"{home / DATABASE} is damaged, and so would be its copy.",
            hint="Repair it first: herma doctor --repair",
        )
    if not without_database:
        refuse_foreign(home / DATABASE)
    now = clock()
    path = _free_path(home, target, name, now)
    with failing(path), staged(path.parent, f".{path.name}.tmp") as stage:
        database = None if without_database else home / DATABASE
        skipped, facts = _gather(home, database, stage, with_secrets=with_secrets, progress=progress)
        manifest = Manifest(
            format=FORMAT,
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
        write_archive(path, manifest, stage)
    backup = look_at(path)
    checked = verify(backup)
    if not checked.ok and not manifest.damage:
        raise StoreError(
            f"{path} cannot be trusted: {checked.trouble[0]}.", hint="Check the disk, then make another one."
        )
    return look_at(path)


def listing(home: Path, folder: Path | None = None) -> list[Backup]:
    """The backups in a home, or in another folder, newest first; files that are none with what is wrong with them."""
    found = [look_at(path) for path in (folder or folder_of(home)).glob(f"*{SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda b: (b.manifest.created if b.manifest else 0.0, b.name), reverse=True)


def find(home: Path, name: str) -> Backup:
    """A backup by its name or the beginning of it, by the name it was given, or by the path of its file."""
    path = Path(name)
    if path.name.endswith(SUFFIX) and path.is_file():
        return look_at(path)
    exact = folder_of(home) / f"{name.removesuffix(SUFFIX)}{SUFFIX}"
    if PurePosixPath(name).name == name and exact.is_file():
        return look_at(exact)
    known = listing(home)
    if name == "latest" and (good := [each for each in known if each.manifest and not each.manifest.damage]):
        return next((each for each in good if not _is_safety(each)), good[0])
    matching = [each for each in known if each.manifest and name and each.manifest.name == name]
    matching = matching or [each for each in known if name and each.name.startswith(name)]
    if len(matching) == 1 or (matching and matching[0].manifest and matching[0].manifest.name == name):
        return matching[0]
    if not known:
        raise UsageError("There is no backup yet.", hint="Make one: herma backup create")
    what = f"{len(matching)} backups begin with {name!r}" if matching else f"There is no backup {name!r}"
    raise UsageError(f"{what}.", hint="`herma backup list` shows them all.")


def _is_safety(backup: Backup) -> bool:
    """Whether a restore made it. To restore the latest twice must not bring back what the first time replaced."""
    manifest = backup.manifest
    return manifest is not None and manifest.name == BEFORE_RESTORE and not manifest.kept


def prune(home: Path, keep: int, *, beside: Backup | None = None) -> list[Backup]:
    """Delete all but the newest `keep` sound backups that were given no name. → those that are gone.

    `beside` a backup that lies elsewhere: among those of the same database, as other homes may use that folder too, and
    not those whose file a person named.
    """
    folder = beside.path.parent if beside else None
    sound = [each for each in listing(home, folder) if each.manifest and not each.manifest.damage]
    plain = [each for each in sound if each.manifest and not each.manifest.kept]
    if beside is not None:
        own = beside.manifest.store_id if beside.manifest else ""
        same = [each for each in plain if own and each.manifest and each.manifest.store_id == own]
        plain = [each for each in same if _STAMP.fullmatch(each.name)]
    gone = plain[max(keep, 1) :]
    for backup in gone:
        mark_of(backup.path).unlink(missing_ok=True)
        backup.path.unlink(missing_ok=True)
    return gone


def verify(backup: Backup, progress: Progress | None = None) -> Verified:
    """Read all of it: every file is there with its hash, nothing else is, and the database passes its own checks."""
    manifest, trouble = backup.manifest, []
    if manifest is None:
        return Verified(backup, (backup.trouble,))
    with staged(backup.path.parent, f".{backup.path.name}.verify.tmp", fallback=True) as stage:
        try:
            unpack(backup, stage, progress)
            if DATABASE in manifest.files:
                damage = database_facts(stage / DATABASE)[1]
                trouble += [f"its database is damaged: {damage}"] if damage else []
        except (StoreError, OSError) as exc:
            trouble.append(str(exc).rstrip("."))
    if not trouble:
        mark(backup.path)
    return Verified(backup, tuple(trouble))


@contextmanager
def files_held(home: Path, timeout: float) -> Iterator[None]:
    """Nobody is in the middle of a change to a memory file or a skill while the block runs."""
    with ExitStack() as locks:
        for lock in (*sorted((home / "memories").rglob("*.lock")), home / "skills" / ".herma.lock"):
            if os.access(lock, os.W_OK):
                locks.enter_context(exclusive(lock, timeout))
        yield


# ── making one ──


def _gather(
    home: Path, database: Path | None, stage: Path, *, with_secrets: bool, progress: Progress | None
) -> tuple[list[str], dict[str, Any]]:
    """Copy everything into `stage`. Curated files, skills and the state of the database are of the same moment."""
    skipped: list[str] = []
    with copy_database(database, stage / DATABASE) as finish:
        with files_held(home, _LOCK_WAIT):
            finish.begin()
            copy_folder(home / "memories", stage / "memories", skipped)
            copy_folder(home / "skills", stage / "skills", skipped)
        for name in (*FILES, *(SECRETS if with_secrets else ())):
            if (home / name).is_file():
                shutil.copyfile(home / name, stage / name)
        finish.copy(progress)
    facts, damage = database_facts(stage / DATABASE) if (stage / DATABASE).exists() else ({}, "")
    return skipped, {**facts, "damage": damage}


def _listed(stage: Path) -> list[str]:
    return sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, file_digest(file, "sha256").hexdigest()


def _free_path(home: Path, target: Path | None, name: str, now: float) -> Path:
    """Where the backup goes: a file that is not there yet."""
    stem = time.strftime("%Y%m%d-%H%M%S", time.localtime(now)) + (f"-{name}" if name else "")
    if target is not None and not target.is_dir():
        if target.exists():
            raise UsageError(f"{target} is there already.", hint="Choose another name.")
        if not target.name.endswith(SUFFIX):
            raise UsageError(
                f"There is no folder {target}, and a backup's name ends with {SUFFIX}.",
                hint=f"Make the folder, or name a file: {target}{SUFFIX}",
            )
        return target.absolute()
    folder = folder_of(home) if target is None else target.absolute()
    for number in range(1000):
        path = folder / (stem + (f".{number}" if number else "") + SUFFIX)
        if not path.exists():
            return path
    raise StoreError(f"Too many backups in {folder} within one second.", hint="Try again.")
