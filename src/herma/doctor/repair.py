"""Mending what `diagnose` found. First a plan that a person can agree to, then one step after the other.

Nothing that could be needed is deleted: a damaged database is kept byte for byte, and only what interrupted work left
behind goes.
"""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Literal

from herma.doctor.checks import leftovers, loose
from herma.doctor.database import needs_salvage, some
from herma.errors import StoreError
from herma.index.file import SqliteIndexFiles
from herma.index.sync import Index
from herma.index.types import IndexUnusable
from herma.store.checkup import examine
from herma.store.database import Database, real_path
from herma.store.restore import finish, unfinished
from herma.store.salvage import HEAD, Alone, Salvaged, Terms, repair_database, repaired_copy
from herma.transcript.rows import SqliteFeed

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fix:
    """One step that would help, in one sentence."""

    kind: Literal["restore", "repair", "database", "permissions", "leftovers", "index"]
    sentence: str
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Mended:
    """What a step did. After a salvage: what could not be read, and the folder in which the old file is."""

    fix: Fix
    sentence: str
    salvaged: Salvaged | None = None
    kept: Path | None = None


def plan(home: Path, *, full: bool = False, clock: Callable[[], float] = time.time) -> list[Fix]:
    """What there is to do, in the order in which it has to be done."""
    fixes = [Fix("restore", f"Finish the restore that was cut off ({s.name}).", (s,)) for s in unfinished(home)]
    database = home / "herma.db"
    if repaired_copy(database).exists():
        fixes.append(Fix("repair", "Finish the repair that was cut off.", (repaired_copy(database),)))
    found = examine(database, now=clock(), full=full)
    if needs_salvage(found) and not fixes:
        sentence = "Bring every row that can be read into a new herma.db; the damaged file is kept in backups/."
        fixes.append(Fix("database", sentence, (database,)))
    alien = found.state in ("foreign", "newer")
    if exposed := [path for path in loose(home) if not (alien and path.name.startswith("herma.db"))]:
        fixes.append(Fix("permissions", f"Make {len(exposed)} files private.", tuple(exposed)))
    if useless := leftovers(home):
        names = some([path.name for path in useless])
        fixes.append(Fix("leftovers", f"Delete what interrupted work left behind ({names}).", tuple(useless)))
    if found.state == "ours" and found.seq and _index_is_broken(home):
        fixes.append(Fix("index", "Build the search index anew.", (home / "index.db",)))
    return fixes


def mend(
    home: Path,
    fix: Fix,
    *,
    lock_timeout: float = 10.0,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Mended:
    """Do one step of a plan."""
    match fix.kind:
        case "restore":
            pieces = finish(home, fix.paths[0], lock_timeout=lock_timeout)
            return Mended(fix, f"The restore is finished: {', '.join(pieces)}.")
        case "repair":
            return _finish_repair(home, fix, lock_timeout, clock, progress)
        case "database":
            return _salvage(home, fix, lock_timeout, clock, progress)
        case "permissions":
            for path in fix.paths:
                path.chmod(0o700 if path.is_dir() else 0o600)
            return Mended(fix, f"{len(fix.paths)} files are private now.")
        case "leftovers":
            useless = set(fix.paths) & set(leftovers(home))  # a restore may have gone further since the plan was made
            for path in useless:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            return Mended(fix, f"{len(useless)} leftovers are gone.")
        case "index":
            _rebuild(home, lock_timeout, progress)
            return Mended(fix, "The search index is built anew.")


def _salvage(home: Path, fix: Fix, timeout: float, clock: Callable[[], float], progress: Progress | None) -> Mended:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(clock()))
    kept = home / "backups" / f"damaged-{stamp}-{secrets.token_hex(2)}"
    made = repair_database(home / "herma.db", kept, timeout, progress, _terms())
    sentence = f"{made.kept:,} rows are in a new herma.db."
    if not made.complete:
        sentence += f" {made.lost:,} could not be read."
    return Mended(fix, sentence, made, kept)


def _terms() -> Terms:
    """How episodes and entries of the long tail are found: made anew, as they can be."""
    from herma.episodes.episodes import terms_of_episode
    from herma.episodes.outcome import Language, terms_of
    from herma.memory.archive import TERMS
    from herma.text import STOP_WORDS, stem

    language = Language(STOP_WORDS, stem)
    return Terms(lambda one: terms_of_episode(one, language), lambda text: terms_of(text, language, TERMS))


def _finish_repair(
    home: Path, fix: Fix, timeout: float, clock: Callable[[], float], progress: Progress | None
) -> Mended:
    """The new database was ready. It takes its place if the damaged one is as it was then; else repair again."""
    database, ready = real_path(home / "herma.db"), fix.paths[0]
    log = database.with_name(f"{database.name}-wal")
    with Alone(database, timeout) as held:
        for kept in sorted((home / "backups").glob("damaged-*/herma.db"), reverse=True):
            if not (log.exists() and log.stat().st_size) and held.digest() == _digest(kept):
                held.replace(ready)
                return Mended(fix, "The repair is finished.", kept=kept.parent)
    if needs_salvage(examine(database, now=clock())):
        return _salvage(home, fix, timeout, clock, progress)
    aside = home / "backups" / f"not-used-{secrets.token_hex(2)}.db"
    aside.parent.mkdir(exist_ok=True, mode=0o700)
    ready.rename(aside)
    return Mended(fix, f"herma.db is whole; what an earlier repair had made is kept as {aside.name}.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(HEAD)
        return file_digest(file, "sha256").hexdigest()


def _index_is_broken(home: Path) -> bool:
    files = SqliteIndexFiles(home)
    try:
        files.current().state()
    except IndexUnusable:
        return (home / "index.db").exists() and not files.obstacle()
    except StoreError:
        return False
    finally:
        files.close()
    return False


def _rebuild(home: Path, timeout: float, progress: Progress | None) -> None:
    database = Database(home / "herma.db", busy_timeout=timeout)
    index = Index(SqliteIndexFiles(home), SqliteFeed(database))
    try:
        index.drop()
        index.rebuild(progress or (lambda _done, _total: None))
    finally:
        index.close()
        database.close()
