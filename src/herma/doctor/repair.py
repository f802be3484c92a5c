"""Mending what `diagnose` found. First a plan that a person can agree to, then one step after the other.

Nothing that could be needed is deleted: a damaged database is kept byte for byte, and only what interrupted work left
behind goes.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from hashlib import file_digest
from pathlib import Path
from typing import Any, Literal

import apsw

from herma.doctor.checks import leftovers, loose, needs_salvage, some
from herma.episodes.build import terms_of
from herma.episodes.episodes import terms_of_episode
from herma.episodes.rows import episode_of
from herma.errors import StoreError
from herma.index import IndexUnusable
from herma.index.file import IndexFiles
from herma.index.sync import WAIT, Follower
from herma.index.vectors import silent
from herma.memory.archive import TERMS
from herma.store import archive
from herma.store.checkup import examine, state_of
from herma.store.files import real_path, size_of
from herma.store.replace import HEAD, Alone, cut_off_restores, finish, repaired_copy
from herma.store.salvage import Salvaged, ranges, repair_database
from herma.store.sqlite import SqliteConnection, SqliteDatabase, index_position, open_reader, translated
from herma.text import count
from herma.transcript.rows import ChangeFeed

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Fix:
    """One step that would help, in one sentence."""

    kind: Literal["restore", "repair", "database", "permissions", "leftovers", "index"]
    sentence: str
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Mended:
    """The result of a step. After a salvage: what could not be read, and the folder in which the old file is."""

    fix: Fix
    sentence: str
    salvaged: Salvaged | None = None
    kept: Path | None = None


def plan(home: Path, *, full: bool = False) -> list[Fix]:
    """Return what there is to do, in the order in which it has to be done."""
    fixes = [Fix("restore", f"Finish the restore that was cut off ({s.name}).", (s,)) for s in cut_off_restores(home)]
    database = home / "herma.db"
    if repaired_copy(database).exists():
        fixes.append(Fix("repair", "Finish the repair that was cut off.", (repaired_copy(database),)))
    found = examine(database, now=time.time(), full=full)
    if needs_salvage(found) and not fixes:
        sentence = "Bring every row that can be read into a new herma.db; the damaged file is kept in backups/."
        if _is_lost(database):
            sources = (
                " and ".join(
                    name
                    for name, there in (
                        ("its log", _log_of(database).exists()),
                        ("the newest backup", bool(archive.of_database(home))),
                    )
                    if there
                )
                or "nothing, as nothing is left of it"
            )
            sentence = f"herma.db is lost: make a new one from {sources}; what is left is copied to backups/ first."
        fixes.append(Fix("database", sentence, (database,)))
    alien = found.state in ("foreign", "newer")
    if exposed := [path for path in loose(home) if not (alien and path.name.startswith("herma.db"))]:
        fixes.append(Fix("permissions", f"Make {count(len(exposed), 'file')} private.", tuple(exposed)))
    if useless := leftovers(home):
        names = some([path.name for path in useless])
        fixes.append(Fix("leftovers", f"Delete what interrupted work left behind ({names}).", tuple(useless)))
    if found.state == "ours" and found.seq and _index_is_broken(home):
        fixes.append(Fix("index", "Rebuild the search index.", (home / "index.db",)))
    return fixes


def mend(home: Path, fix: Fix, *, lock_timeout: float = 10.0, progress: Progress | None = None) -> Mended:
    """Do one step of a plan."""
    match fix.kind:
        case "restore":
            done = finish(home, fix.paths[0], lock_timeout=lock_timeout)
            return Mended(fix, f"The restore is finished. {done}" if done else "It is finished already.")
        case "repair":
            return _finish_repair(home, fix, lock_timeout, progress)
        case "database":
            return _salvage(home, fix, lock_timeout, progress)
        case "permissions":
            there = [path for path in fix.paths if path.exists()]  # a restore may have taken some away since the plan
            for path in there:
                path.chmod(0o700 if path.is_dir() else 0o600)
            return Mended(fix, f"{len(there)} files are private now.")
        case "leftovers":
            useless = set(fix.paths) & set(leftovers(home))  # a restore may have gone further since the plan was made
            for path in useless:
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
            return Mended(fix, f"{len(useless)} leftovers are gone.")
        case "index":
            _rebuild(home, lock_timeout, progress)
            return Mended(fix, "The search index is rebuilt.")


def _salvage(home: Path, fix: Fix, timeout: float, progress: Progress | None) -> Mended:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    kept = home / "backups" / f"damaged-{stamp}-{secrets.token_hex(2)}"
    database, known = home / "herma.db", index_position(home)
    index = [path for path in sorted(home.glob("index.db*")) if path.name in ("index.db", "index.db-wal")]
    why = state_of(database)[1]
    with ExitStack() as staged:
        base = _older_copy(home, known, staged) if _is_lost(database) else None
        made = repair_database(database, kept, timeout, progress, _terms, base=base, also_keep=index if known else ())
    if why:
        made = replace(made, notes=(f"{why.rstrip('.')}.", *made.notes))
    if known and (lost := _known_to_index(kept / "index.db", database, timeout)):
        note = f"Messages that the index had seen are lost: {some(lost)}. A backup may have them."
        made = replace(made, notes=(*made.notes, note))
    sentence = f"{made.kept:,} rows are in a new herma.db."
    if not made.complete:
        sentence += f" {made.lost:,} could not be read."
    return Mended(fix, sentence, made, kept)


def _log_of(database: Path) -> Path:
    real = real_path(database)
    return real.with_name(f"{real.name}-wal")


def _is_lost(database: Path) -> bool:
    """Return whether the file itself is not there, or is empty."""
    return not database.exists() or not database.stat().st_size


def _older_copy(home: Path, known: tuple[str, str, int] | None, staged: ExitStack) -> Path | None:
    """Return the database of the backup that is nearest to the one that is lost: of the same state, else of the same
    store, else the newest.
    """
    each = [(one, one.manifest) for one in archive.of_database(home) if one.manifest]
    if known:
        each = [(one, manifest) for one, manifest in each if manifest.store_id == known[0]]
        each.sort(key=lambda pair: pair[1].epoch != known[1])
    for one, _ in each:
        folder = Path(staged.enter_context(tempfile.TemporaryDirectory(prefix=".restore-", dir=home)))
        try:
            archive.unpack(one, folder)
        except (StoreError, OSError):
            continue
        return folder / archive.DATABASE
    copies = sorted(archive.folder_of(home).glob(f"*/{archive.DATABASE}"), key=lambda path: path.stat().st_mtime)
    return next((path for path in reversed(copies) if path.stat().st_size), None)


def _known_to_index(index: Path, database: Path, timeout: float) -> list[str]:
    """Return the messages that a copy of the index has and the database has not, as ranges of their numbers."""
    try:
        with closing(apsw.Connection(str(index))) as connection:
            seen: list[Any] = connection.execute("SELECT id FROM docs ORDER BY id").fetchall()
    except apsw.Error:
        return []
    with translated(database), closing(open_reader(database, timeout)) as connection:
        there = {row[0] for row in connection.execute("SELECT id FROM messages")}
    lost = [number for (number,) in seen if number not in there]
    return [f"{first}–{last}" if first != last else f"{first}" for first, last in ranges(lost)]


def _terms(connection: SqliteConnection) -> dict[str, int]:
    """Rewrite the words by which episodes and archived entries are found. Return how many rows each table has."""
    sql = connection.queries("store.salvage")
    rows = connection.rows(connection.queries("episodes.rows")["columns"] + " WHERE e.archived IS NULL")
    for episode in map(episode_of, rows):
        connection.run_many(sql["episode_term"], [(term, episode.id) for term in terms_of_episode(episode)])
    for number, text in connection.rows(sql["tail_entries"]):
        connection.run_many(sql["entry_term"], [(term, number) for term in terms_of(text, TERMS)])
    return dict(connection.rows(sql["count_terms"]))


def _finish_repair(home: Path, fix: Fix, timeout: float, progress: Progress | None) -> Mended:
    """Put the new database in its place if the damaged one is as it was when that was made; else repair again."""
    database, ready = real_path(home / "herma.db"), fix.paths[0]
    log = database.with_name(f"{database.name}-wal")
    with Alone(database, timeout) as held:
        for kept in sorted((home / "backups").glob("damaged-*/herma.db"), reverse=True):
            if not size_of(log) and held.digest() == _digest(kept):
                held.replace(ready)
                return Mended(fix, "The repair is finished.", kept=kept.parent)
    if needs_salvage(examine(database, now=time.time())):
        return _salvage(home, fix, timeout, progress)
    aside = home / "backups" / f"not-used-{secrets.token_hex(2)}.db"
    aside.parent.mkdir(exist_ok=True, mode=0o700)
    ready.rename(aside)
    return Mended(fix, f"herma.db is whole; what an earlier repair had made is kept as {aside.name}.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(HEAD)
        return file_digest(file, "sha256").hexdigest()


def _index_is_broken(home: Path) -> bool:
    files = IndexFiles(home)
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
    database = SqliteDatabase(home / "herma.db", busy_timeout=timeout)
    files = IndexFiles(home)
    try:
        with files.hold(WAIT):
            files.drop()
        Follower(files, ChangeFeed(database)).rebuild(WAIT, progress or silent)
    finally:
        files.close()
        database.close()
