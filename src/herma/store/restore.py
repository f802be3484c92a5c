"""Restoring a backup: what it holds takes the place of what is there, all of it or nothing.

Everything is extracted, checked and made ready in a folder of its own first. Then a list of what is to be moved is
written there; from that moment on the restore goes forward only: whoever finds the list after a crash finishes it.
Nothing is merged: what the backup does not have is not there afterwards.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import apsw

from herma.errors import ForeignStore, StoreError
from herma.store import backup as backups
from herma.store.backup import DATABASE, FILES, FOLDERS, SECRETS, Backup, Progress, database_facts, failing, unpack
from herma.store.checkup import state_of
from herma.store.database import APPLICATION_ID, translated
from herma.store.files import make_folder
from herma.store.salvage import Alone, sync_folder

_PREFIX = ".restore-"
_LIST = "moves.json"
Step = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did, or would do. `safety` is the backup of what was there before; `kept` a folder with it."""

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
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
    step: Step = lambda _what: None,
) -> Restored:
    """Put the home back to what the backup holds. `step` is told what comes next."""
    _refuse(home, backup)
    stage = home / f"{_PREFIX}{secrets.token_hex(4)}"
    try:
        with failing(home):
            make_folder(stage)
            (stage / "new").mkdir(mode=0o700)
            (stage / "old").mkdir(mode=0o700)
            unpack(backup, stage / "new", progress)
            if (stage / "new" / DATABASE).exists():
                _ready(stage / "new" / DATABASE, backup)
            pieces = _pieces(home, stage / "new", with_secrets=bool(backup.manifest and backup.manifest.secrets))
            replaced = tuple(name for name in pieces if (stage / "new" / name).exists())
            removed = tuple(name for name in pieces if name not in replaced)
            if dry_run:
                return Restored(backup, replaced, removed, dry_run=True)
            step("safety")
            safety, kept = _save(home, pieces, lock_timeout, clock)
            with Alone(home / DATABASE, lock_timeout) as held, backups.files_held(home, lock_timeout):
                step("list")
                _write_list(stage, pieces)
                _move(home, stage, pieces, held, step)
            _tidy(stage, kept=safety is not None and not (safety.manifest and safety.manifest.skipped))
    finally:
        if not (stage / _LIST).exists():
            shutil.rmtree(stage, ignore_errors=True)
    return Restored(backup, replaced, removed, safety, kept)


def unfinished(home: Path) -> list[Path]:
    """Restores that a crash cut off after they could no longer be given up."""
    return sorted(stage for stage in home.glob(f"{_PREFIX}*") if (stage / _LIST).is_file())


def abandoned(home: Path) -> list[Path]:
    """What is left of restores that never began to change anything."""
    return sorted(stage for stage in home.glob(f"{_PREFIX}*") if stage.is_dir() and not (stage / _LIST).exists())


def finish(home: Path, stage: Path, *, lock_timeout: float = 10.0) -> tuple[str, ...]:
    """Do what is left of a restore. → what is in its place now."""
    pieces = json.loads((stage / _LIST).read_text(encoding="utf-8"))
    with failing(home), Alone(home / DATABASE, lock_timeout) as held:
        _move(home, stage, pieces, held, lambda _what: None)
    _tidy(stage, kept=False)
    return tuple(pieces)


def _refuse(home: Path, backup: Backup) -> None:
    manifest = backup.manifest
    if manifest is None:
        raise ForeignStore(
            f"{backup.path} cannot be restored: {backup.trouble.rstrip('.')}.", hint="`herma backup list` shows others."
        )
    if manifest.damage:
        raise StoreError(
            f"{backup.path} holds a database that was damaged already ({manifest.damage}).",
            hint="Choose another: `herma backup list`.",
        )
    if waiting := unfinished(home):
        raise StoreError(
            f"An earlier restore was cut off ({waiting[0].name}).", hint="Finish it first: herma doctor --repair"
        )
    state, why = state_of(home / DATABASE)
    if state in ("foreign", "newer"):
        raise ForeignStore(why, hint="Move the file away first.")


def _ready(path: Path, backup: Backup) -> None:
    """The database is ours and whole, and begins a new epoch: what was derived from another state is not valid."""
    damage = database_facts(path)[1]
    if damage:
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
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    path.chmod(0o600)


def _pieces(home: Path, new: Path, *, with_secrets: bool) -> list[str]:
    """What is moved as a whole, the database first. What is on neither side is left out."""
    names = [DATABASE, *FOLDERS, *FILES, *(SECRETS if with_secrets else ())]
    return [name for name in names if os.path.lexists(home / name) or (new / name).exists()]


def _save(
    home: Path, pieces: list[str], timeout: float, clock: Callable[[], float]
) -> tuple[Backup | None, Path | None]:
    """A backup of what is there; of a database that no backup can be made of, the files as they are."""
    if not any(os.path.lexists(home / name) for name in pieces):
        return None, None
    kept = None
    if state_of(home / DATABASE)[0] in ("damaged", "unreadable"):
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock()))
        kept = backups.folder_of(home) / f"damaged-{stamp}-{secrets.token_hex(2)}"
        make_folder(kept.parent)
        kept.mkdir(mode=0o700)
        with Alone(home / DATABASE, timeout) as held:
            held.copy_to(kept)
    try:
        safety = backups.create(
            home,
            name=backups.BEFORE_RESTORE,
            with_secrets=True,
            kept=False,
            clock=clock,
            without_database=kept is not None,
        )
    except backups.NothingThere:
        safety = None
    return safety, kept


def _write_list(stage: Path, pieces: list[str]) -> None:
    temporary = stage / f"{_LIST}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(pieces, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(stage / "new")
    temporary.rename(stage / _LIST)
    sync_folder(stage)
    sync_folder(stage.parent)


def _move(home: Path, stage: Path, pieces: list[str], held: Alone, step: Step) -> None:
    """Move piece by piece; what was moved before a crash is not there to be moved again."""
    for name in pieces:
        step(name)
        old, new, here = stage / "old" / name, stage / "new" / name, home / name
        marker = stage / "old" / f"{name}.moved"
        if name == DATABASE:
            if new.exists():
                held.replace(new)
            elif not marker.exists():  # the backup had none
                held.remove()
            marker.touch()
            continue
        if not marker.exists():
            if os.path.lexists(here):
                here.rename(_free(old))
            marker.touch()
            sync_folder(stage / "old")
        if new.exists():
            if os.path.lexists(here):  # made by somebody since the crash
                here.rename(_free(old))
            new.rename(here)
    sync_folder(home)


def _free(path: Path) -> Path:
    return path if not os.path.lexists(path) else path.with_name(f"{path.name}.{secrets.token_hex(4)}")


def _tidy(stage: Path, *, kept: bool) -> None:
    """Nothing is left to do. What was there before goes when a complete backup of it was made, else it stays."""
    if not kept and any(not path.name.endswith(".moved") for path in (stage / "old").iterdir()):
        folder = stage.parent / "backups"
        folder.mkdir(exist_ok=True, mode=0o700)
        (stage / "old").rename(folder / f"{backups.BEFORE_RESTORE}-{stage.name.removeprefix(_PREFIX)}")
    (stage / _LIST).unlink()
    shutil.rmtree(stage, ignore_errors=True)
