"""The home and its files: can they be used, are they private, is there anything odd among them?"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from herma.config import Settings
from herma.curated.entries import parse, used
from herma.doctor.check import REPAIR, Check, counted, size, some
from herma.ports import Document
from herma.safety.scan import scan
from herma.store import backup
from herma.store.backup_restore import abandoned, unfinished
from herma.store.files import read_document
from herma.store.sqlite.opening import real_path
from herma.store.sqlite.salvage_file import repaired_copy

_TIGHT = 200 * 2**20
_FULL = 20 * 2**20
_OURS = (
    "herma.db*",
    "index.db*",
    "config.yaml",
    ".env",
    "web.token",
    "SOUL.md",
    "memories",
    "memories/**/*",
    "backups",
    "backups/*",
)
_OLD_BACKUP = 30 * 86400
_HOUR = 3600


def closed(home: Path) -> bool:
    """Whether it is there, and we may not look into it."""
    return home.is_dir() and not os.access(home, os.R_OK | os.X_OK)


def check_home(home: Path) -> Iterator[Check]:
    if not home.exists():
        yield Check("home", "note", f"{home} is not there yet; the first write makes it.")
    elif not home.is_dir():
        yield Check("home", "problem", f"{home} is not a folder.", "Choose another with --home or HERMA_HOME.")
    elif closed(home):
        yield Check("home", "problem", f"{home} cannot be read.", f"chmod u+rwx {shlex.quote(str(home))}")
    elif not os.access(home, os.W_OK) or _read_only(home):
        yield Check("home", "warning", f"{home} cannot be written: nothing new will be remembered.")
    else:
        yield Check("home", "ok", f"{home} can be read and written.")


def _read_only(home: Path) -> bool:
    return hasattr(os, "statvfs") and bool(os.statvfs(home).f_flag & os.ST_RDONLY)


def loose(home: Path) -> list[Path]:
    """What others than the owner may get at. Behind a private folder nothing is."""
    if os.name == "nt" or not home.is_dir():
        return []
    if not home.stat().st_mode & 0o077:
        return []
    found = [path for pattern in _OURS for path in home.glob(pattern) if not path.is_symlink()]
    return sorted(path for path in set(found) if not path.name.endswith(".lock") and path.stat().st_mode & 0o077)


def check_permissions(home: Path) -> Iterator[Check]:
    exposed = loose(home)
    if exposed:
        names = some([str(path.relative_to(home)) for path in exposed])
        sentence = f"Others on this machine may read or change {len(exposed)} of the home's files ({names})."
        yield Check("permissions", "warning", sentence, f"chmod -R go-rwx {shlex.quote(str(home))}")
    elif home.is_dir():
        yield Check("permissions", "ok", "Only you can read what is kept here.")


def check_config(settings: Settings) -> Iterator[Check]:
    problems = [str(problem) for problem in settings.problems if problem.pressing]
    foreign = len(settings.problems) - len(problems)
    if problems:
        yield Check("configuration", "warning", some(problems), "herma config show")
    elif foreign:
        sentence = f"{counted(foreign, 'key is', 'keys are')} not Herma's, and ignored."
        yield Check("configuration", "note", sentence, "herma config show")
    else:
        yield Check("configuration", "ok", "Every key is known.")


def curated_files(home: Path) -> list[Path]:
    folder = home / "memories"
    names = ("MEMORY.md", "USER.md")
    found = [folder / name for name in names]
    found += [path for name in names for path in sorted(folder.glob(f"*/*/{name}"))]
    return [path for path in found if os.path.lexists(path)]


def _remedy(path: Path, document: Document) -> str:
    """What `adopt` cannot read it cannot adopt."""
    return "herma memory adopt" if document.raw is not None else f"ls -l {shlex.quote(str(path))}"


def check_curated(home: Path, settings: Settings) -> Iterator[Check]:
    limits = {"MEMORY.md": settings.memory.memory_char_limit, "USER.md": settings.memory.user_char_limit}
    fine, seen = 0, curated_files(home)
    for path in seen:
        where = path.relative_to(home).as_posix()
        document = read_document(path)
        if document.trouble:
            yield Check(where, "problem", f"{document.trouble}.", _remedy(path, document))
            continue
        entries = parse(document.text)
        objections = sum(bool(scan(entry)) for entry in entries)
        limit = limits[path.name]
        if used(entries) > limit:
            sentence = f"{used(entries):,} characters, {limit:,} fit: the model is not shown all of it."
            yield Check(where, "warning", sentence, "herma memory list")
        if objections:
            which = counted(objections, "entry", "entries")
            sentence = f"The scanner objects to {which}; the model is shown those you vouched for only."
            yield Check(where, "warning", sentence, "herma memory list")
        fine += not objections and used(entries) <= limit
    if not seen or fine == len(seen):
        sentence = f"{counted(len(seen), 'file')}, nothing wrong." if seen else "No files yet."
        yield Check("curated memory", "ok", sentence)


def leftovers(home: Path) -> list[Path]:
    """What interrupted work left behind and nobody needs. Unfinished changes of curated files are not among it: the
    next write settles those.
    """
    patterns = ("backups/.*.tmp", "backups/.*.tmp.part")
    found = [path for pattern in patterns for path in home.glob(pattern)]
    database = real_path(home / "herma.db")
    for what in ("repaired", "moved"):
        found += database.parent.glob(f".{glob.escape(database.name)}.{what}.tmp*")
    return sorted([*found, *abandoned(home), *_given_up(home)])


def _given_up(home: Path) -> list[Path]:
    """An index that somebody stopped building beside one that is in use; one that is being built changes all the time.
    It holds words of messages that may be gone for good by now.
    """
    if not (home / "index.db").is_file():
        return []
    return [path for path in home.glob("index.db.new*") if time.time() - path.stat().st_mtime > _HOUR]


def check_leftovers(home: Path) -> Iterator[Check]:
    for stage in unfinished(home):
        yield Check("restore", "problem", f"A restore was cut off before its end ({stage.name}).", REPAIR)
    if repaired_copy(home / "herma.db").exists():
        yield Check("repair", "problem", "A repair was cut off before its end.", REPAIR)
    if useless := leftovers(home):
        which = some([path.name for path in useless])
        sentence = f"Interrupted work left {counted(len(useless), 'file')} ({which})."
        yield Check("leftovers", "note", sentence, REPAIR)
    open_changes = list((home / "memories").rglob(".*.tmp"))
    if open_changes:
        yield Check("unfinished change", "note", "A change to a memory file was cut off; the next write settles it.")
    kept = list((home / "memories").rglob("*.bak.*"))
    if kept:
        total = sum(path.stat().st_size for path in kept)
        copies = counted(len(kept), "copy", "copies")
        yield Check("copies", "note", f"{copies} of earlier memory files, {size(total)}, kept in memories/.")


def check_space(home: Path) -> Iterator[Check]:
    if not home.exists():
        return
    free = shutil.disk_usage(home).free
    database = home / "herma.db"
    wanted = max(_TIGHT, 2 * database.stat().st_size if database.exists() else 0)
    if free < _FULL:
        yield Check("disk", "problem", f"The disk is full: {size(free)} are free.", "Free some space.")
    elif free < wanted:
        sentence = f"{size(free)} are free; a backup or a repair may need {size(wanted)}."
        yield Check("disk", "warning", sentence, "Free some space.")
    else:
        yield Check("disk", "ok", f"{size(free)} are free.")


def check_backups(home: Path, now: float) -> Iterator[Check]:
    all_of_them = backup.listing(home)
    known = [each for each in all_of_them if each.manifest]
    if broken := [each.name for each in all_of_them if not each.manifest or each.manifest.damage]:
        yield Check("backups", "warning", f"Cannot be restored: {some(broken)}.", "herma backup list")
    if not known or known[0].manifest is None:
        if (home / "herma.db").exists():
            yield Check("backups", "note", "There is no backup yet.", "herma backup create")
        return
    age = now - known[0].manifest.created
    when = time.strftime("%Y-%m-%d", time.localtime(known[0].manifest.created))
    old = age > _OLD_BACKUP
    yield Check(
        "backups", "note" if old else "ok", f"{len(known)}, the newest of {when}.", "herma backup create" if old else ""
    )


def check_neighbours(home: Path) -> Iterator[Check]:
    other = home / "state.db"
    if other.is_file():
        sentence = f"The database of a Hermes Agent lies here too (state.db, {size(other.stat().st_size)})."
        yield Check("Hermes Agent", "note", f"{sentence} It is never touched.")
    strange = [path.name for path in home.glob("herma.db*") if not stat.S_ISREG(path.lstat().st_mode)]
    if strange:
        yield Check("herma.db", "warning", f"Not ordinary files: {some(strange)}.")
