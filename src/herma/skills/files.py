"""Keep skills on disk: read and write their folders, read archives, store the curator's records."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tarfile
import threading
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

from herma.errors import StoreBusy, StoreChanged, StoreError, UsageError
from herma.skills.document import MOST_BYTES, SKIPPED_FOLDERS, read_skill
from herma.skills.rows import (
    ARCHIVE,
    ArchivedSkill,
    CuratorMemory,
    CuratorMove,
    CuratorReport,
    Flag,
    Incoming,
    KnownFile,
    MergeCandidate,
    NewSkillChange,
    OpenChange,
    SharedSkills,
    Skill,
    SkillFile,
    SkillHistory,
    SkillListing,
    UnreadableSkill,
    UnsafePath,
    hash_of,
)
from herma.store.database import Database
from herma.store.files import (
    discard,
    exclusive,
    flags,
    flush,
    install,
    make_folder,
    named_lock,
    prepare,
    replace_file,
    sync_folder,
    temporary_of,
)
from herma.types import Author, Origin, Who

DOCUMENT = "SKILL.md"
_DEEPEST = 4
_MOST_SKILLS = 5_000
_MOST_FILES = 500
_File = tuple[str, bytes, bool]
"""Path, content, executable."""


class SkillFiles:
    """Read the skills in the home's `skills/` folder, and in external folders.

    A folder with a SKILL.md is a skill; the folders above it are its category. Links that lead out are not followed.
    """

    def __init__(self, home: Path, rows: SkillHistory, external: Sequence[Path] = ()) -> None:
        self.root = home / "skills"
        self._rows = rows
        self._external = tuple(external)
        self._cache: dict[str, tuple[tuple[int, int, int], Skill | UnreadableSkill]] = {}

    def look(self) -> SkillListing:
        """Return all skills."""
        skills: list[Skill] = []
        refused: list[UnreadableSkill] = []
        categories: dict[str, str] = {}
        seen: set[str] = set()
        stamps: list[str] = []
        for base in (self.root, *self._external):
            root = "" if base is self.root else str(base)
            for found in self._walk(base, root, stamps, categories):
                if isinstance(found, UnreadableSkill):
                    refused.append(found)
                elif root and found.name in seen:
                    refused.append(UnreadableSkill(found.path, "another skill of this name comes first", root))
                else:
                    skills.append(found)
            seen = {skill.name for skill in skills}
        stamp = sha256("\n".join(stamps).encode("utf-8", "surrogatepass")).hexdigest()[:16]
        return SkillListing(tuple(skills), tuple(refused), categories, stamp)

    def files(self, skill: Skill, *, texts: bool = True) -> list[SkillFile]:
        """Return every file of a skill, SKILL.md first. Links that lead out are named and not read."""
        base = self.folder(skill)
        return [_described(base, path, texts=texts) for path in list_files(base)]

    def read(self, skill: Skill, file: str) -> bytes | None:
        """Return the content of one file, None if there is none. `UnsafePath` if the path leads out of the skill."""
        path = inside(self.folder(skill), file)
        try:
            return read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise StoreError(f"{path} cannot be read: {exc.strerror or exc}.") from exc

    def archived(self) -> list[ArchivedSkill]:
        """Return the skills in the archive."""
        known = self._rows.archived_from()
        found = []
        for folder in _folders(self.root / ARCHIVE):
            name = f"{ARCHIVE}/{folder.name}"
            read = self._read_skill(folder, name, "", [])
            if read is None:
                continue
            skill_name = read.name if isinstance(read, Skill) else folder.name
            path, at = known.get(name, (skill_name, None))
            found.append(ArchivedSkill(skill_name, name, path, at))
        return found

    def folder(self, skill: Skill) -> Path:
        """Return where a skill is."""
        return inside(Path(skill.root) if skill.root else self.root, skill.path)

    def _walk(
        self, base: Path, root: str, stamps: list[str], categories: dict[str, str]
    ) -> Iterator[Skill | UnreadableSkill]:
        if not base.is_dir():
            if root:
                yield UnreadableSkill("", "the folder is not there", root)
            return
        real = Path(os.path.realpath(base))
        count = 0
        stack = [(base, "")]
        while stack and count < _MOST_SKILLS:
            folder, path = stack.pop()
            for child in _folders(folder):
                below = f"{path}/{child.name}" if path else child.name
                if child.name.startswith(".") or child.name in SKIPPED_FOLDERS:
                    continue
                if child.is_symlink() and not Path(os.path.realpath(child)).is_relative_to(real):
                    reason = "a link that leads out of the skills folder; name its target in skills.external_dirs"
                    yield UnreadableSkill(below, reason, root)
                    continue
                found = self._read_skill(child, below, root, stamps)
                if found is not None:
                    count += 1
                    yield found
                elif below.count("/") + 1 < _DEEPEST:
                    stack.append((child, below))
                    if (text := _description(child)) and below not in categories:
                        categories[below] = text

    def _read_skill(self, folder: Path, path: str, root: str, stamps: list[str]) -> Skill | UnreadableSkill | None:
        """Return the skill in a folder, None if there is none. Read it again only if its file changed."""
        document = folder / DOCUMENT
        try:
            status = document.lstat()
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            if not Path(os.path.realpath(document)).is_relative_to(os.path.realpath(folder)):
                return UnreadableSkill(path, "its SKILL.md is a link that leads out of the skill", root)
            try:
                status = document.stat()
            except OSError:
                return UnreadableSkill(path, "its SKILL.md is a link that leads nowhere", root)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        stamps.append(f"{root}\0{path}\0{stamp}")
        kept = self._cache.get(str(document))
        if kept is None or kept[0] != stamp:
            kept = self._cache[str(document)] = (stamp, _read_document(document, path, root, status.st_size))
        return kept[1]


def _read_document(document: Path, path: str, root: str, size: int) -> Skill | UnreadableSkill:
    try:
        path.encode()
    except UnicodeEncodeError:
        printable = path.encode("utf-8", "backslashreplace").decode()
        return UnreadableSkill(printable, "the name of its folder is not text", root)
    if size > MOST_BYTES:
        return UnreadableSkill(path, f"it has {size:,} bytes; the limit is {MOST_BYTES:,}", root)
    try:
        return read_skill(read_regular(document), path, root)
    except OSError as exc:
        return UnreadableSkill(path, f"it cannot be read: {exc.strerror or exc}", root)


def external_folders(home: Path, named: str) -> list[Path]:
    """Return the folders that a setting names, separated by commas. `~` and variables are replaced."""
    parts = [part.strip() for part in named.split(",") if part.strip()]
    return [home / Path(os.path.expandvars(part)).expanduser() for part in parts]


def inside(base: Path, relative: str, *, to_write: bool = False) -> Path:
    """Return `base/relative` if it is really inside `base`, else raise `UnsafePath`.

    For writing, no part of it may differ from an existing name in case only: other systems would take both for one.
    """
    parts = relative.split("/")
    bad = not relative or "\\" in relative or "\x00" in relative or any(part in ("", ".", "..") for part in parts)
    if bad or relative.startswith(("/", "~")) or (len(parts[0]) > 1 and parts[0][1] == ":"):
        raise UnsafePath(f"{relative!r} leads out of the skill.", hint="Give a path inside it.")
    path = base
    for part in parts:
        if to_write and not os.path.lexists(path / part):
            _check_case(path, part, relative)
        path = path / part
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(base)):
        raise UnsafePath(f"{relative!r} is a link that leads out of the skill.", hint="Remove the link.")
    if to_write and path.is_symlink():
        raise UnsafePath(f"{relative!r} is a link; files are not written through links.", hint="Remove the link.")
    return path


def _check_case(folder: Path, name: str, relative: str) -> None:
    def folded(text: str) -> str:
        return unicodedata.normalize("NFC", text).casefold()

    try:
        with os.scandir(folder) as entries:
            same = next((entry.name for entry in entries if folded(entry.name) == folded(name)), name)
    except OSError:
        return
    if same != name:
        raise UnsafePath(
            f"{relative!r} differs from the existing {same!r} in upper and lower case only.",
            hint="Choose another name.",
        )


def _folders(folder: Path) -> list[Path]:
    """Return the folders in a folder, and links to folders, by name."""
    try:
        with os.scandir(folder) as entries:
            return sorted((Path(entry.path) for entry in entries if entry.is_dir()), key=lambda path: path.name)
    except OSError:
        return []


def list_files(base: Path) -> list[str]:
    """Return the paths of the files of a skill, SKILL.md first. A link to a folder is one path."""
    found: list[str] = []
    stack = [""]
    while stack and len(found) < _MOST_FILES:
        below = stack.pop()
        try:
            with os.scandir(base / below) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in listed:
            path = f"{below}/{entry.name}" if below else entry.name
            if entry.name.startswith(".") or entry.name in ("__pycache__", "node_modules"):
                continue
            if entry.is_dir(follow_symlinks=False):
                stack.append(path)
            else:
                found.append(path)
    return sorted(found, key=lambda path: (path != DOCUMENT, path))


def _described(base: Path, file: str, *, texts: bool) -> SkillFile:
    path = base / file
    link = ""
    if path.is_symlink():
        real = Path(os.path.realpath(path))
        link = "?" if not real.exists() else "" if real.is_relative_to(os.path.realpath(base)) else str(real)
    if link or not path.is_file():
        return SkillFile(file, 0, link=link or "?")
    try:
        status = path.stat()
        text = as_text(read_regular(path)) if texts and status.st_size <= 4 * MOST_BYTES else None
    except OSError:
        return SkillFile(file, 0, link="?")
    return SkillFile(file, status.st_size, text, executable=bool(status.st_mode & 0o111))


def as_text(data: bytes) -> str | None:
    """Return the text of a file, None if it is not text."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def read_regular(path: Path) -> bytes:
    """Return the bytes of a regular file. `OSError` for a pipe or a device, which could block for ever."""
    handle = os.open(os.path.realpath(path), flags("O_RDONLY", "O_NONBLOCK", "O_NOFOLLOW"))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(64 * MOST_BYTES)


def _description(folder: Path) -> str:
    """Return what DESCRIPTION.md says about a category: its description, else its first line."""
    try:
        text = as_text(read_regular(folder / "DESCRIPTION.md")) or ""
    except OSError:
        return ""
    for line in text.split("\n"):
        if line.startswith("description:"):
            return line.removeprefix("description:").strip().strip("\"'")[:300]
    first = next((line for line in text.split("\n") if line.strip() and line.strip() != "---"), "")
    return first.lstrip("# ").strip()[:300]


# ── writing ──

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_STAGING = ".staging"


class SkillFileWriter:
    """Change the files of skills, with rows in the history, under one lock for all skills of a home.

    A change is a row with the content before and after, then a rename, then the row is marked done. The next
    holder of the lock settles what a killed process left open: the file, or the folder, shows whether it happened.
    """

    def __init__(
        self,
        home: Path,
        rows: SkillHistory,
        *,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
        shared: SharedSkills | None = None,
    ) -> None:
        """`shared`: the rows of a server, which get every change."""
        self._root = home / "skills"
        self._rows = rows
        self._shared = shared
        self._lock_timeout = lock_timeout
        self._clock = clock
        self._mutex = threading.Lock()
        self._alone: bool | None = None

    @contextmanager
    def hold(self, path: str | None = None) -> Iterator[None]:
        """Take the lock; settle earlier changes; record edits by hand, of the skill at `path` or of all known ones.

        A skill at `path` that the history does not know is added to it. `StoreBusy` after the deadline.
        """
        if not self._mutex.acquire(timeout=self._lock_timeout):
            raise StoreBusy(
                f"Another thread has held the lock on skills for more than {self._lock_timeout:g} seconds.",
                hint="Try again.",
            )
        try:
            _make(self._root)
            with exclusive(self._root / ".herma.lock", self._lock_timeout) as alone, self._with_other_hosts():
                self._alone = alone
                self._settle_open()
                if path is None or self._is_new(path):
                    for known in self._rows.known_paths():
                        self._record_hand_edits(known, add=False)
                if path is not None:
                    self._record_hand_edits(path, add=True)
                yield
        finally:
            self._alone = None
            self._mutex.release()

    @contextmanager
    def _with_other_hosts(self) -> Iterator[None]:
        if self._shared is None:
            yield
            return
        with self._shared.alone():
            self._shared.compare()
            try:
                yield
            finally:
                self._shared.compare()

    def write(self, path: str, file: str, expected: str, data: bytes | None, change: NewSkillChange) -> int:
        """Replace one file, or remove it (None). Return the number of the change.

        `StoreChanged` unless its hash is `expected` ('' for no file). `UnsafePath` if the path leads out, or differs
        from an existing one in case only.
        """
        if self._alone is None:
            raise UsageError("Take the lock on skills (hold) before you change them.")
        target = inside(self._root, f"{path}/{file}", to_write=True)
        inside(self._root / path, file, to_write=True)
        before = _bytes(target)
        _check_hash(target, before, expected)
        if data is not None:
            _make(target.parent)
            temporary = prepare(target, data, alone=self._alone)
        try:
            change_id = self._rows.intend(path, file, change, self._clock(), before=before, after=data)
            if hash_of(_bytes(target)) != expected:  # checked as late as possible: editors take no lock
                self._rows.settle(change_id, "void")
                _check_hash(target, _bytes(target), expected)
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
        """Move a skill's folder to or from the archive. Return the number of the change."""
        start, end = inside(self._root, source), inside(self._root, target, to_write=True)
        if start.is_symlink():
            raise UnsafePath(f"{source!r} is a link and was not moved.", hint="Remove the link.")
        if not start.is_dir():
            raise StoreChanged(f"{start} is gone.", hint="Try again.")
        if os.path.lexists(end):
            raise UsageError(f"{end} exists already; nothing was moved.", hint="Move it away first.")
        _make(end.parent)
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

    def add(self, path: str, files: Sequence[_File], change: NewSkillChange) -> int:
        """Add a whole skill in one step. Return the number of the change."""
        end = inside(self._root, path, to_write=True)
        if os.path.lexists(end):
            raise UsageError(f"{end} exists already; nothing was installed.", hint="Choose another name.")
        stage = self._root / _STAGING / path.rpartition("/")[2]
        shutil.rmtree(stage.parent, ignore_errors=True)
        try:
            for file, data, executable in files:
                target = inside(stage, file)
                _make(target.parent)
                _write_new(target, data, executable=executable)
            _make(end.parent)
            change_id = self._rows.intend(path, "", change, self._clock(), moved=("", path))
            stage.rename(end)
            _sync(end.parent)
            self._rows.settle(change_id, "done")
        except OSError as exc:
            raise StoreError(f"{end} could not be written: {exc.strerror or exc}.") from exc
        finally:
            shutil.rmtree(stage.parent, ignore_errors=True)
        for file, data, _ in files:
            if len(data) <= MOST_BYTES:
                taken = NewSkillChange(change.author, change.skill, "installed", change.reason)
                self._rows.intend(path, file, taken, self._clock(), after=data, done=True)
        return change_id

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

    def _record_hand_edits(self, path: str, *, add: bool) -> None:
        """Write rows for what was done to a skill by hand. `add`: also if the history does not know the skill."""
        known = self._rows.known(path)
        folder = self._root / path
        present = folder.is_dir() and not folder.is_symlink()
        if (not known and not add) or (not present and (not known or self._rows.is_moved_away(path))):
            return
        files = list_files(folder) if present else []
        skill = next((each.skill for each in known.values()), path.rpartition("/")[2])
        if not present and not os.path.lexists(folder) and (new := self._renamed_to(known)):
            change = NewSkillChange(_HAND, skill, "moved by hand")
            self._rows.intend(path, "", change, self._clock(), moved=(path, new), done=True)
            return
        for file in files:
            data = _for_history(folder / file)
            if data is None or (file in known and hash_of(data) == known[file].hash):
                continue
            self._record(path, file, skill, known.get(file), data, "edited by hand" if file in known else "found")
        for file, each in known.items():
            if file not in files and each.hash:
                self._record(path, file, skill, each, None, "removed by hand")

    def _is_new(self, path: str) -> bool:
        """Return whether the history does not know the folder: a known one may have been renamed to it."""
        return (self._root / path).is_dir() and not self._rows.known(path)

    def _renamed_to(self, known: dict[str, KnownFile]) -> str:
        """Return where a skill's folder is now if it was renamed: the only new one with the same SKILL.md."""
        wanted = known[DOCUMENT].hash if DOCUMENT in known else ""
        if not wanted:
            return ""
        old = set(self._rows.known_paths())
        places = [
            path
            for path in (each.parent.relative_to(self._root).as_posix() for each in self._root.rglob(DOCUMENT))
            if path not in old
            and not path.startswith(".")
            and hash_of(_for_history(self._root / path / DOCUMENT)) == wanted
        ]
        return places[0] if len(places) == 1 else ""

    def _record(
        self, path: str, file: str, skill: str, before: KnownFile | None, after: bytes | None, action: str
    ) -> None:
        old = before.content if before else None
        data = old.encode() if isinstance(old, str) else old
        change = NewSkillChange(_HAND, skill, action)
        self._rows.intend(path, file, change, self._clock(), before=data, after=after, done=True)

    def _prune(self, folder: Path) -> None:
        """Remove empty folders, up to the skills folder."""
        while folder != self._root and folder.is_relative_to(self._root) and not folder.is_symlink():
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _check_hash(target: Path, found: bytes | None, expected: str) -> None:
    if hash_of(found) != expected:
        raise StoreChanged(f"{target} was just changed by another program; nothing was written.", hint="Try again.")


def _for_history(path: Path) -> bytes | None:
    """Return a file's content; None for links, large files and what cannot be read: a pipe in one skill must not keep
    others from being written."""
    if path.is_symlink():
        return None
    try:
        return _bytes(path, at_most=MOST_BYTES)
    except StoreError:
        return None


def _bytes(path: Path, *, at_most: int = 64 * 2**20) -> bytes | None:
    try:
        return None if path.stat().st_size > at_most else read_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror or exc}.") from exc


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc


def _write_new(path: Path, data: bytes, *, executable: bool) -> None:
    handle = os.open(path, flags("O_WRONLY", "O_CREAT", "O_EXCL", "O_NOFOLLOW"), 0o700 if executable else 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        flush(file)


def _sync(folder: Path) -> None:
    """Make a rename in this folder durable."""
    with suppress(OSError):
        sync_folder(folder)


# ── the curator's records ──

_RUN = re.compile(r"\d{8}-\d{6}(?:-\d{1,4})?")
_KEPT_REPORTS = 100
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class CuratorFiles:
    """The curator's records: `skills/.curator.json` (what it knows) and `logs/curator/<run>/` (its reports)."""

    def __init__(self, home: Path, database: Database | None = None, profile: str = "") -> None:
        self._home = home
        self._db = database
        self._profile = {"profile": profile}
        self._memory = home / "skills" / ".curator.json"
        self._logs = home / "logs" / "curator"

    def alone(self) -> AbstractContextManager[bool]:
        """Let one process at a time run the curator; yield whether no other one does."""
        return named_lock(self._home, "curator")

    def memory(self) -> CuratorMemory:
        """Return what is known; an empty memory if the file is missing or damaged."""
        try:
            value = json.loads(self._memory.read_bytes())
            seen, last_run = (None if value[each] is None else float(value[each]) for each in ("seen", "last_run"))
            return CuratorMemory(
                seen,
                last_run,
                runs=int(value["runs"]),
                noticed={str(name): float(at) for name, at in value["noticed"].items()},
                flagged={str(name): Flag(**flag) for name, flag in value["flagged"].items()},
                asked=tuple(map(str, value.get("asked", ()))),
                clean=tuple(map(str, value.get("clean", ()))),
                scanner=str(value.get("scanner", "")),
            )
        except (OSError, *_BROKEN):
            return CuratorMemory()

    def remember(self, memory: CuratorMemory) -> None:
        _make(self._memory.parent)
        replace_file(self._memory, json.dumps(asdict(memory), ensure_ascii=False, indent=1).encode())

    def write(self, report: CuratorReport, text: str) -> None:
        """Store a report and its text for people; replace an earlier one of the same id."""
        folder = self._logs / report.id
        _make(folder)
        replace_file(folder / "report.json", json.dumps(asdict(report), ensure_ascii=False, indent=1).encode())
        replace_file(folder / "REPORT.md", text.encode("utf-8", "backslashreplace"))
        for old in self._ids()[_KEPT_REPORTS:]:
            shutil.rmtree(self._logs / old, ignore_errors=True)

    def reports(self, limit: int | None = None) -> Sequence[CuratorReport]:
        """Return the reports, newest first; damaged ones are left out."""
        found: list[CuratorReport] = []
        for each in self._ids():
            if limit is not None and len(found) >= limit:
                break
            report = _report(self._logs / each / "report.json")
            if report is not None:
                found.append(replace(report, id=each))
        return found

    def changed(self) -> Mapping[str, float]:
        """Return when each skill was last written or restored."""
        return dict(self._db.rows(self._db.queries("skills.rows")["last_changes"], self._profile)) if self._db else {}

    def last_message(self, besides: str = "") -> float | None:
        """Return when the last message was stored in this home, not counting one session. None: not lately."""
        row = self._db.row(self._db.queries("skills.rows")["last_message"], {"session": besides}) if self._db else None
        return float(row[0]) if row else None

    def _ids(self) -> list[str]:
        """Return the ids of the runs, newest first."""
        try:
            names = [path.name for path in self._logs.iterdir() if _RUN.fullmatch(path.name)]
        except OSError:
            return []
        return sorted(names, key=lambda name: (name[:15], len(name), name), reverse=True)


def _report(path: Path) -> CuratorReport | None:
    try:
        value = json.loads(path.read_bytes())
        known: dict[str, Any] = {each.name: value[each.name] for each in fields(CuratorReport)}
        known["moves"] = tuple(CuratorMove(**move) for move in value["moves"])
        merges = [{**one, "skills": tuple(one["skills"]), "pending": tuple(one["pending"])} for one in value["merges"]]
        known["merges"] = tuple(MergeCandidate(**one) for one in merges)
        return CuratorReport(**{**known, "notes": tuple(value["notes"]), "kept": dict(value["kept"])})
    except (OSError, *_BROKEN):
        return None


# ── skills from outside, read into memory ──

_MOST_INCOMING = (2_000, 32 * 2**20)
"""Files and bytes that are read at most, unpacked: an archive can promise any size."""
_DAMAGED = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error)
_ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")


def read_incoming(path: Path) -> list[Incoming]:
    """Return every skill at a path: the folder itself, the folders in it, or those in an archive. Unpack nothing."""
    try:
        if path.is_dir():
            return _incoming(str(path), path.resolve().name, list(_from_folder(path)))
        if path.is_file() and path.name == DOCUMENT:
            return _incoming(str(path), path.resolve().parent.name, [(DOCUMENT, read_regular(path), False)])
        if path.is_file() and path.name.lower().endswith(_ARCHIVES):
            files = _from_zip(path) if zipfile.is_zipfile(path) else _from_tar(path)
            return _incoming(str(path), path.name.partition(".")[0], list(files))
    except (*_DAMAGED, RuntimeError, NotImplementedError) as exc:  # also: encrypted, an unknown compression
        why = getattr(exc, "strerror", None) or str(exc).partition("\n")[0].strip(" .:") or "it ends too early"
        raise StoreError(
            f"{path} cannot be read: {why}.", hint="Fetch it again, or unpack it and name the folder."
        ) from exc
    if not path.exists():
        raise UsageError(f"{path} does not exist.", hint="Give a folder with a SKILL.md, or an archive of one.")
    raise UsageError(f"{path} is not a skill.", hint=f"Give a folder with a SKILL.md, or {', '.join(_ARCHIVES)}.")


def _incoming(source: str, name: str, files: list[_File | SkillFile]) -> list[Incoming]:
    """Sort files by the skill they belong to: each folder with a SKILL.md is one."""
    paths = [file.path if isinstance(file, SkillFile) else file[0] for file in files]
    roots = sorted({path.removesuffix(DOCUMENT) for path in paths if path.rpartition("/")[2] == DOCUMENT}, key=len)
    roots = [root for at, root in enumerate(roots) if not any(root.startswith(above) for above in roots[:at])]
    if not roots:
        raise UsageError(f"{source} has no SKILL.md.", hint="Give the folder of a skill.")
    found = []
    for root in roots:
        inner: list[_File] = []
        odd: list[SkillFile] = []
        for file, path in zip(files, paths, strict=True):
            if not path.startswith(root):
                continue
            if isinstance(file, SkillFile):
                odd.append(SkillFile(path[len(root) :], file.size, link=file.link))
            else:
                inner.append((path[len(root) :], file[1], file[2]))
        folder = root.rstrip("/").rpartition("/")[2] or name
        found.append(Incoming(f"{source}/{root}".rstrip("/") if root else source, folder, inner, odd))
    return found


def _from_folder(base: Path) -> Iterator[_File | SkillFile]:
    real, count, size = Path(os.path.realpath(base)), 0, 0
    for folder, folders, names in os.walk(base):
        folders[:] = sorted(name for name in folders if name not in (".git", "node_modules", "__pycache__"))
        for name in sorted([*names, *(each for each in folders if (Path(folder) / each).is_symlink())]):
            path = Path(folder) / name
            relative = path.relative_to(base).as_posix()
            if path.is_symlink():
                target = Path(os.path.realpath(path))
                if not target.exists() or not target.is_relative_to(real):
                    yield SkillFile(relative, 0, link=str(target) if target.exists() else "?")
                    continue
            if not path.is_file() or name == ".DS_Store":
                continue
            count, size = count + 1, size + path.stat().st_size
            _check_size(base, count, size)
            yield relative, read_regular(path), bool(path.stat().st_mode & stat.S_IXUSR)


def _from_zip(path: Path) -> Iterator[_File | SkillFile]:
    with zipfile.ZipFile(path) as archive:
        count = size = 0
        for each in archive.infolist():
            if each.is_dir():
                continue
            mode = each.external_attr >> 16
            if stat.S_ISLNK(mode):
                yield SkillFile(each.filename, 0, link="a link in an archive")
                continue
            count, size = count + 1, size + each.file_size
            _check_size(path, count, size)
            with archive.open(each) as file:
                yield each.filename, _bounded(path, file, each.file_size), bool(mode & stat.S_IXUSR)


def _from_tar(path: Path) -> Iterator[_File | SkillFile]:
    with tarfile.open(path) as archive:
        count = size = 0
        for each in archive:
            name = each.name.removeprefix("./")
            if each.isdir():
                continue
            if not each.isfile():
                yield SkillFile(name, 0, link="a link or a device in an archive")
                continue
            count, size = count + 1, size + each.size
            _check_size(path, count, size)
            file = archive.extractfile(each)
            yield name, _bounded(path, file, each.size) if file else b"", bool(each.mode & stat.S_IXUSR)


def _bounded(path: Path, file: IO[bytes], promised: int) -> bytes:
    data = file.read(promised + 1)
    if len(data) > promised:
        raise StoreError(f"{path} holds more than it declares.", hint="Do not trust it.")
    return data


def _check_size(path: Path, count: int, size: int) -> None:
    files, most = _MOST_INCOMING
    if count > files or size > most:
        raise UsageError(
            f"{path} is too large for skills: more than {files:,} files or {most:,} bytes.",
            hint="Give the folder of the skill itself.",
        )
