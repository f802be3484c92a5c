"""Folders, history, snapshots, archives."""

from __future__ import annotations

import io
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
from herma.skills.curator import (
    CuratorMemory,
    CuratorMove,
    CuratorReport,
    Flag,
    MergeCandidate,
    SkillSnapshotContent,
    SkillSnapshotInfo,
)
from herma.skills.rows import KnownFile, OpenChange, SkillRows, hash_of
from herma.skills.types import (
    SUPPORT_FOLDERS,
    ArchivedSkill,
    Incoming,
    NewSkillChange,
    Shelf,
    Skill,
    SkillFile,
    SkillUsage,
    UnreadableSkill,
    UnsafePath,
)
from herma.store.database import Database, queries
from herma.store.files import (
    alone,
    discard,
    exclusive,
    flags,
    install,
    make_folder,
    prepare,
    replace_file,
    temporary_of,
)
from herma.store.salvage import sync_folder
from herma.types import Author, Origin, Who

# ---------- store.skill_files
#
# Skills as folders: the home's own under `skills/`, and folders elsewhere that are only read.
#
# A folder with a SKILL.md in it is a skill; the folders above it are its category. Nothing is read through a link that
# leads out of where it lies.

ARCHIVE = ".archive"
DOCUMENT = "SKILL.md"
Reader = Callable[[bytes, str, str], Skill | UnreadableSkill]
_DEEPEST = 4
_MOST_SKILLS = 5_000
_MOST_FILES = 500
_SKILL_FILES_MOST_BYTES = 2**20
_SKILL_FILES_SKIPPED = {"node_modules", "venv", "env", "__pycache__", "site-packages", *SUPPORT_FOLDERS}
_Stamp = tuple[int, int, int]


class SkillFiles:
    """Implements `SkillFolders`. `reader` makes a skill of the bytes of a SKILL.md."""

    def __init__(self, home: Path, rows: SkillRows, reader: Reader, external: Sequence[Path] = ()) -> None:
        self.root = home / "skills"
        self._rows = rows
        self._reader = reader
        self._external = tuple(external)
        self._cache: dict[str, tuple[_Stamp, Skill | UnreadableSkill]] = {}

    # ── reading ──

    def look(self) -> Shelf:
        skills: list[Skill] = []
        refused: list[UnreadableSkill] = []
        about: dict[str, str] = {}
        seen: set[str] = set()
        stamps = sha256()
        for base in (self.root, *self._external):
            root = "" if base is self.root else str(base)
            for found in self._walk(base, root, stamps, about):
                if isinstance(found, UnreadableSkill):
                    refused.append(found)
                elif root and found.name in seen:
                    refused.append(UnreadableSkill(found.path, "another skill of this name comes first", root))
                else:
                    skills.append(found)
            seen = {skill.name for skill in skills}
        return Shelf(tuple(skills), tuple(refused), about, stamps.hexdigest()[:16])

    def files(self, skill: Skill, *, texts: bool = True) -> list[SkillFile]:
        base = self._folder(skill)
        return [_described(base, path, texts=texts) for path in list_files(base)]

    def read(self, skill: Skill, file: str) -> bytes | None:
        path = inside(self._folder(skill), file)
        try:
            return read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as exc:
            raise StoreError(f"{path} cannot be read: {exc.strerror or exc}.") from exc

    def archived(self) -> list[ArchivedSkill]:
        known = self._rows.archived_from()
        found = []
        for folder in _folders(self.root / ARCHIVE):
            name = f"{ARCHIVE}/{folder.name}"
            read = self._read_skill(folder, name, "")
            if read is None:
                continue
            skill_name = read.name if isinstance(read, Skill) else folder.name
            path, at = known.get(name, (skill_name, None))
            found.append(ArchivedSkill(skill_name, name, path, at))
        return found

    def where(self, skill: Skill) -> str:
        return str(self._folder(skill))

    # ── steps ──

    def _folder(self, skill: Skill) -> Path:
        return inside(Path(skill.root) if skill.root else self.root, skill.path)

    def _walk(self, base: Path, root: str, stamps: object, about: dict[str, str]) -> Iterator[Skill | UnreadableSkill]:
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
                if child.name.startswith(".") or child.name in _SKILL_FILES_SKIPPED:
                    continue
                if child.is_symlink() and not _is_within(Path(os.path.realpath(child)), real):
                    reason = "a link that leads out of the skills folder; name its target in skills.external_dirs"
                    yield UnreadableSkill(below, reason, root)
                    continue
                found = self._read_skill(child, below, root, stamps)
                if found is not None:
                    count += 1
                    yield found
                elif below.count("/") + 1 < _DEEPEST:
                    stack.append((child, below))
                    if (text := _description(child)) and below not in about:
                        about[below] = text

    def _read_skill(self, folder: Path, path: str, root: str, stamps: object = None) -> Skill | UnreadableSkill | None:
        """The skill in a folder, read anew only when its file changed. None: it is no skill."""
        document = folder / DOCUMENT
        try:
            status = document.lstat()
        except OSError:
            return None
        if stat.S_ISLNK(status.st_mode):
            if not _is_within(Path(os.path.realpath(document)), Path(os.path.realpath(folder))):
                return UnreadableSkill(path, "its SKILL.md is a link that leads out of the skill", root)
            try:
                status = document.stat()
            except OSError:
                return UnreadableSkill(path, "its SKILL.md is a link that leads nowhere", root)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if isinstance(stamps, _Hash):
            stamps.update(f"{root}\0{path}\0{stamp}\n".encode("utf-8", "surrogatepass"))
        key = str(document)
        kept = self._cache.get(key)
        if kept is None or kept[0] != stamp:
            kept = (stamp, self._made(document, path, root, status))
            self._cache[key] = kept
        return kept[1]

    def _made(self, document: Path, path: str, root: str, status: os.stat_result) -> Skill | UnreadableSkill:
        try:
            path.encode()
        except UnicodeEncodeError:
            shown = path.encode("utf-8", "backslashreplace").decode()
            return UnreadableSkill(shown, "the name of its folder is not text", root)
        if status.st_size > _SKILL_FILES_MOST_BYTES:
            return UnreadableSkill(
                path, f"it has {status.st_size:,} bytes; {_SKILL_FILES_MOST_BYTES:,} are the limit", root
            )
        try:
            return self._reader(read_regular(document), path, root)
        except OSError as exc:
            return UnreadableSkill(path, f"it cannot be read: {exc.strerror or exc}", root)


_Hash = type(sha256())


def external_folders(home: Path, named: str) -> list[Path]:
    """The folders that a setting names, separated by commas; `~` and variables are understood."""
    parts = [part.strip() for part in named.split(",") if part.strip()]
    return [home / Path(os.path.expandvars(part)).expanduser() for part in parts]


# ── paths ──


def inside(base: Path, relative: str, *, to_write: bool = False) -> Path:
    """`base/relative`, if that is where it really lies. `UnsafePath` otherwise.

    To be written, no part of it may differ from what is there in case alone: other systems would take it for that.
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
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(base))
    if not _is_within(real, root):
        raise UnsafePath(f"{relative!r} is a link that leads out of the skill.", hint="Remove the link.")
    if to_write and path.is_symlink():
        raise UnsafePath(f"{relative!r} is a link; it is not written through.", hint="Remove the link.")
    return path


def _check_case(folder: Path, name: str, relative: str) -> None:
    try:
        with os.scandir(folder) as entries:
            same = next((entry.name for entry in entries if _folded(entry.name) == _folded(name)), None)
    except OSError:
        return
    if same is not None and same != name:
        raise UnsafePath(
            f"{relative!r} differs from {same!r}, which is there, in nothing but case.", hint="Choose another name."
        )


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _is_within(path: Path, root: Path) -> bool:
    return path == root or path.is_relative_to(root)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder, by name; links to folders are among them."""
    try:
        with os.scandir(folder) as entries:
            return sorted((Path(entry.path) for entry in entries if entry.is_dir()), key=lambda path: path.name)
    except OSError:
        return []


def list_files(base: Path) -> list[str]:
    """Paths of the files of a skill, SKILL.md first; those of links to folders as the links themselves."""
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
        link = "?" if not real.exists() else "" if _is_within(real, Path(os.path.realpath(base))) else str(real)
    if link or not path.is_file():
        return SkillFile(file, 0, link=link or "?")
    try:
        status = path.stat()
        text = _text(path) if texts and status.st_size <= 4 * _SKILL_FILES_MOST_BYTES else None
    except OSError:
        return SkillFile(file, 0, link="?")
    return SkillFile(file, status.st_size, text, executable=bool(status.st_mode & 0o111))


def _text(path: Path) -> str | None:
    data = read_regular(path)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text


def read_regular(path: Path) -> bytes:
    """The bytes of an ordinary file; a pipe or a device could keep us waiting for ever."""
    handle = os.open(os.path.realpath(path), flags("O_RDONLY", "O_NONBLOCK", "O_NOFOLLOW"))
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "it is not an ordinary file")
        return file.read(64 * _SKILL_FILES_MOST_BYTES)


def _description(folder: Path) -> str:
    """What DESCRIPTION.md says about a category: its description, else its first line."""
    try:
        text = _text(folder / "DESCRIPTION.md") or ""
    except OSError:
        return ""
    for line in text.split("\n"):
        if line.startswith("description:"):
            return line.removeprefix("description:").strip().strip("\"'")[:300]
    first = next((line for line in text.split("\n") if line.strip() and line.strip() != "---"), "")
    return first.lstrip("# ").strip()[:300]


# ---------- store.skill_snapshots
#
# Copies of all skills in `backups/skills/`: one tar file each, whose first member says what the others must be.
#
# A copy is written aside, read back and compared, and only then given its name. What lies in the archive is not in it:
# nothing ever leaves the archive by itself.

SUFFIX = ".tar.gz"
ID = re.compile(r"\d{8}-\d{6}(?:-\d{1,4})?")
_MANIFEST = "manifest.json"
_FORMAT = 1
_SKILL_SNAPSHOTS_SKIPPED = {"__pycache__", "node_modules", "venv", "site-packages"}
_LARGEST = 32 * 2**20
_MOST_MANIFEST = 64 * 2**20
_TROUBLE = (OSError, EOFError, tarfile.TarError, zlib.error, StoreError, ValueError, TypeError, KeyError)
_File = tuple[str, bytes, bool]
_Listed = tuple[str, str, bool]
"""Path, hash, executable."""


class SkillSnapshotFiles:
    """Implements `SkillSnapshots`."""

    def __init__(self, home: Path) -> None:
        self._skills = home / "skills"
        self._folder = home / "backups" / "skills"

    def take(self, snapshot_id: str, why: str, usage: Mapping[str, SkillUsage], at: float) -> SkillSnapshotInfo:
        path = self._path(snapshot_id)
        skipped: list[str] = []
        files = [(name, sha256(data).hexdigest(), run) for name, data, run in _files(self._skills, skipped)]
        digest = _digest(files, usage)
        newest = next((one for one in self.list() if not one.trouble), None)
        if newest is not None and newest.digest == digest and _is_whole(self._path(newest.id)):
            return newest  # looked at again: a copy that went bad since is no copy
        homes = _homes(files)
        count = len({_home_of(name, homes) for name, _, _ in files} - {""})
        info = SkillSnapshotInfo(snapshot_id, at, why, count, 0, digest, tuple(skipped))
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            make_folder(self._folder)
            for left in self._folder.glob(".*.tmp"):
                left.unlink(missing_ok=True)
            _write(temporary, _manifest(info, files, usage), self._skills, files, at)
            if not _is_whole(temporary):
                raise StoreError(f"{path} is not what was written. Nothing was changed.", hint="Try again.")
            temporary.rename(path)
            sync_folder(self._folder)
        except OSError as exc:
            raise StoreError(
                f"{path} could not be written: {exc.strerror or exc}. Nothing was changed.",
                hint="Check free space and permissions, then try again.",
            ) from exc
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        return _look(path)

    def list(self) -> Sequence[SkillSnapshotInfo]:
        found = [_look(path) for path in self._folder.glob(f"*{SUFFIX}") if ID.fullmatch(_id(path))]
        return sorted(found, key=lambda one: (one.id[:15], len(one.id), one.id), reverse=True)

    def read(self, snapshot_id: str) -> SkillSnapshotContent:
        path = self._path(snapshot_id)
        if not path.is_file():
            raise UsageError(
                f"There is no snapshot {snapshot_id}.", hint="`herma curator rollback --list` shows what there is."
            )
        return _read(path, snapshot_id)

    def prune(self, keep: int, spare: str) -> Sequence[str]:
        gone = []
        for old in self.list()[max(keep, 1) :]:
            if old.id != spare:
                with suppress(OSError):
                    self._path(old.id).unlink(missing_ok=True)
                    gone.append(old.id)
        return gone

    def _path(self, snapshot_id: str) -> Path:
        if not ID.fullmatch(snapshot_id):
            raise UsageError(
                f"{snapshot_id!r} is no snapshot.", hint="`herma curator rollback --list` shows what there is."
            )
        return self._folder / f"{snapshot_id}{SUFFIX}"


# ── what is copied ──


def _files(root: Path, skipped: list[str]) -> Iterator[_File]:
    """Ordinary files below the skills folder; nothing hidden, nothing that only links lead to."""
    for folder, folders, names in os.walk(root):
        here = Path(folder)
        below = here.relative_to(root).as_posix()
        linked = [name for name in folders if not name.startswith(".") and (here / name).is_symlink()]
        skipped += [_shown(f"{below}/{name}") for name in linked]
        folders[:] = sorted(
            name
            for name in folders
            if not (name.startswith(".") or name in _SKILL_SNAPSHOTS_SKIPPED or (here / name).is_symlink())
        )
        for name in sorted(names):
            path = here / name
            relative = name if below == "." else f"{below}/{name}"
            if name.startswith("."):
                continue
            try:
                relative.encode()
                status = path.lstat()
                if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                    skipped.append(relative)
                    continue
                yield relative, read_regular(path), bool(status.st_mode & 0o111)
            except (OSError, UnicodeEncodeError):
                skipped.append(_shown(relative))


def _shown(path: str) -> str:
    return path.removeprefix("./").encode("utf-8", "backslashreplace").decode()


def _homes(files: Sequence[tuple[str, object, bool]]) -> frozenset[str]:
    """The folders that have a SKILL.md."""
    return frozenset(path.rpartition("/")[0] for path, _, _ in files if path.rpartition("/")[2] == "SKILL.md") - {""}


def _home_of(path: str, homes: frozenset[str]) -> str:
    """The folder of the skill that a file belongs to: the uppermost one that has a SKILL.md."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return next((each for each in above if each in homes), "")


def _by_skill(files: Sequence[_File]) -> dict[str, tuple[_File, ...]]:
    homes = _homes(files)
    found: dict[str, list[_File]] = {}
    for path, data, executable in files:
        if home := _home_of(path, homes):
            found.setdefault(home, []).append((path[len(home) + 1 :], data, executable))
    return {home: tuple(each) for home, each in found.items()}


def _digest(files: Sequence[_Listed], usage: Mapping[str, SkillUsage]) -> str:
    """Of what a rollback could bring back: how often a skill was used is no part of it."""
    said = [list(each) for each in sorted(files)]
    states = [[name, one.state, one.pinned, one.origin] for name, one in sorted(usage.items())]
    return sha256(json.dumps([said, states]).encode()).hexdigest()


# ── the file ──


def _manifest(info: SkillSnapshotInfo, files: Sequence[_Listed], usage: Mapping[str, SkillUsage]) -> bytes:
    value = {
        "format": _FORMAT,
        "id": info.id,
        "at": info.at,
        "why": info.why,
        "skills": info.skills,
        "digest": info.digest,
        "skipped": list(info.skipped),
        "files": {path: digest for path, digest, _ in files},
        "usage": [asdict(one) for _, one in sorted(usage.items())],
    }
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def _write(path: Path, manifest: bytes, root: Path, files: Sequence[_Listed], at: float) -> None:
    """One file at a time, read again: what an editor changed meanwhile does not fit the manifest, and is found."""
    handle = os.open(path, flags("O_WRONLY", "O_CREAT", "O_TRUNC", "O_NOFOLLOW"), 0o600)
    with open(handle, "wb") as file:  # noqa: PTH123  the path is open already
        with tarfile.open(fileobj=file, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
            _add(archive, _MANIFEST, manifest, at, executable=False)
            for name, _, executable in files:
                _add(archive, f"skills/{name}", read_regular(root / name), at, executable=executable)
        file.flush()
        os.fsync(file.fileno())


def _add(archive: tarfile.TarFile, name: str, data: bytes, at: float, *, executable: bool) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = len(data), int(at), 0o700 if executable else 0o600
    archive.addfile(member, io.BytesIO(data))


def _look(path: Path) -> SkillSnapshotInfo:
    """What a snapshot says about itself, without reading all of it."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            return _info(_said(archive, archive.next()), path)
    except _TROUBLE as exc:
        return SkillSnapshotInfo(_id(path), 0.0, "", 0, 0, trouble=f"it is damaged ({str(exc) or type(exc).__name__})")


def _is_whole(path: Path) -> bool:
    """Whether everything in it is what it was when it was made."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            for _ in _checked(archive, _said(archive, archive.next())):
                pass
    except _TROUBLE:
        return False
    return True


def _read(path: Path, snapshot_id: str) -> SkillSnapshotContent:
    try:
        with tarfile.open(path, "r:gz") as archive:
            said = _said(archive, archive.next())
            files = list(_checked(archive, said))
            usage = {str(one["name"]): _usage(one) for one in said["usage"]}
            info = _info(said, path)
    except _TROUBLE as exc:
        why = str(exc) or type(exc).__name__
        raise StoreError(f"The snapshot {snapshot_id} is damaged ({why}).", hint="Use another one.") from exc
    return SkillSnapshotContent(info, _by_skill(files), usage)


def _checked(archive: tarfile.TarFile, said: Mapping[str, Any]) -> Iterator[_File]:
    """Every file that the manifest names, once, with the content that it names."""
    hashes = dict(said["files"])
    for member in archive:
        if member.name == _MANIFEST:
            continue
        stream = archive.extractfile(member) if member.isreg() else None
        name = member.name.removeprefix("skills/")
        data = b"" if stream is None else stream.read(_LARGEST + 1)
        if stream is None or hashes.pop(name, "") != sha256(data).hexdigest():
            raise StoreError(f"{member.name} is not what it was")
        yield name, data, bool(member.mode & 0o111)
    if hashes:
        raise StoreError(f"{next(iter(hashes))} is missing")


def _said(archive: tarfile.TarFile, member: tarfile.TarInfo | None) -> dict[str, Any]:
    stream = archive.extractfile(member) if member is not None and member.isreg() else None
    if member is None or stream is None or member.name != _MANIFEST or member.size > _MOST_MANIFEST:
        raise StoreError("it has no manifest")
    value = json.loads(stream.read())
    if not isinstance(value, dict) or value.get("format") != _FORMAT:
        raise StoreError("its manifest is not ours")
    return value


def _info(said: Mapping[str, Any], path: Path) -> SkillSnapshotInfo:
    size = path.stat().st_size
    named = (str(said["id"]), float(said["at"]), str(said["why"]), int(said["skills"]), size, str(said["digest"]))
    return SkillSnapshotInfo(*named, tuple(map(str, said["skipped"])))


def _usage(value: Mapping[str, Any]) -> SkillUsage:
    known = {each.name for each in fields(SkillUsage)}
    return SkillUsage(**{name: item for name, item in value.items() if name in known})


def _id(path: Path) -> str:
    return path.name.removesuffix(SUFFIX)


# ---------- store.curator_book
#
# What the curator writes down: `skills/.curator.json` (what it knows), `logs/curator/<run>/` (its reports).

MEMORY = ".curator.json"
_KEPT_REPORTS = 100
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class CuratorFiles:
    """Implements `CuratorBook`."""

    def __init__(self, home: Path, database: Database | None = None, profile: str = "") -> None:
        self._home = home
        self._db = database
        self._profile = {"profile": profile}
        self._memory = home / "skills" / MEMORY
        self._logs = home / "logs" / "curator"

    def alone(self) -> AbstractContextManager[bool]:
        return alone(self._home, "curator")

    def memory(self) -> CuratorMemory:
        """What is known; nothing, where the file is missing or makes no sense: then everything begins anew."""
        try:
            value = json.loads(self._memory.read_bytes())
            noticed = {str(name): float(at) for name, at in value["noticed"].items()}
            flagged = {str(name): Flag(**flag) for name, flag in value["flagged"].items()}
            times = [None if value[name] is None else float(value[name]) for name in ("seen", "last_run")]
            asked = {str(pair): str(texts) for pair, texts in value.get("asked", {}).items()}
            clean = tuple(map(str, value.get("clean", ())))
            scanner = str(value.get("scanner", ""))
            return CuratorMemory(times[0], times[1], int(value["runs"]), noticed, flagged, asked, clean, scanner)
        except (OSError, *_BROKEN):
            return CuratorMemory()

    def remember(self, memory: CuratorMemory) -> None:
        _make(self._memory.parent)
        replace_file(self._memory, json.dumps(asdict(memory), ensure_ascii=False, indent=1).encode())

    def write(self, report: CuratorReport, text: str) -> str:
        folder = self._logs / report.id
        _make(folder)
        replace_file(folder / "report.json", json.dumps(asdict(report), ensure_ascii=False, indent=1).encode())
        replace_file(folder / "REPORT.md", text.encode("utf-8", "backslashreplace"))
        for old in self._ids()[_KEPT_REPORTS:]:
            shutil.rmtree(self._logs / old, ignore_errors=True)
        return str(folder / "REPORT.md")

    def reports(self, limit: int | None = None) -> Sequence[CuratorReport]:
        found: list[CuratorReport] = []
        for each in self._ids():
            if limit is not None and len(found) >= limit:
                break
            report = _report(self._logs / each / "report.json")
            if report is not None:
                found.append(replace(report, id=each))
        return found

    def changed(self) -> Mapping[str, float]:
        if self._db is None:
            return {}
        return dict(self._db.rows(queries("curator")["last_changes"], self._profile))

    def last_said(self, besides: str = "") -> float | None:
        rows = self._db.rows(queries("curator")["last_message"], {"session": besides}) if self._db else []
        return float(rows[0][0]) if rows else None

    def _ids(self) -> list[str]:
        """Newest first."""
        try:
            names = [path.name for path in self._logs.iterdir() if ID.fullmatch(path.name)]
        except OSError:
            return []
        return sorted(names, key=lambda name: (name[:15], len(name), name), reverse=True)


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be made: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc


def _report(path: Path) -> CuratorReport | None:
    """A report as it was written; None where the file is missing or makes no sense."""
    try:
        value = json.loads(path.read_bytes())
        known: dict[str, Any] = {each.name: value[each.name] for each in fields(CuratorReport)}
        known["moves"] = tuple(CuratorMove(**move) for move in value["moves"])
        merges = [{**one, "skills": tuple(one["skills"]), "pending": tuple(one["pending"])} for one in value["merges"]]
        known["merges"] = tuple(MergeCandidate(**one) for one in merges)
        return CuratorReport(**{**known, "notes": tuple(value["notes"]), "kept": dict(value["kept"])})
    except (OSError, *_BROKEN):
        return None


# ---------- store.skill_incoming
#
# Skills from outside, read into memory: a folder, a folder of skills, or an archive. Nothing is unpacked to disk.

MOST_FILES = 2_000
MOST_BYTES = 32 * 2**20
"""What is read at most, unpacked: an archive can promise any size."""
ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")
_DAMAGED = (OSError, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, NotImplementedError)
"""What the readers of archives raise: damaged, cut off, packed with a password or in an unknown way."""


def read_incoming(path: Path) -> list[Incoming]:
    """Every skill at a path: the folder itself, the folders in it, or what an archive holds of these."""
    try:
        if path.is_dir():
            return _skills(str(path), path.resolve().name, list(_folder(path)))
        if path.is_file() and path.name == DOCUMENT:
            return _skills(str(path), path.resolve().parent.name, [(DOCUMENT, read_regular(path), False)])
        if path.is_file() and path.name.lower().endswith(ARCHIVES):
            return _skills(str(path), path.name.partition(".")[0], list(_archive(path)))
    except _DAMAGED as exc:
        why = getattr(exc, "strerror", None) or str(exc).partition("\n")[0].strip(" .:") or "it ends too early"
        raise StoreError(
            f"{path} cannot be read: {why}.", hint="Fetch it again, or unpack it and name the folder."
        ) from exc
    if not path.exists():
        raise UsageError(f"{path} is not there.", hint="Give a folder with a SKILL.md, or an archive of one.")
    raise UsageError(f"{path} is no skill.", hint=f"Give a folder with a SKILL.md, or {', '.join(ARCHIVES)}.")


def _skills(source: str, name: str, files: list[_File | SkillFile]) -> list[Incoming]:
    """Files by the skill they belong to: each folder with a SKILL.md is one."""
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


def _folder(base: Path) -> Iterator[_File | SkillFile]:
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
            _check(base, count, size)
            yield relative, read_regular(path), bool(path.stat().st_mode & stat.S_IXUSR)


def _archive(path: Path) -> Iterator[_File | SkillFile]:
    yield from _zip(path) if zipfile.is_zipfile(path) else _tar(path)


def _zip(path: Path) -> Iterator[_File | SkillFile]:
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
            _check(path, count, size)
            with archive.open(each) as file:
                yield each.filename, _bounded(path, file, each.file_size), bool(mode & stat.S_IXUSR)


def _tar(path: Path) -> Iterator[_File | SkillFile]:
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
            _check(path, count, size)
            file = archive.extractfile(each)
            yield name, _bounded(path, file, each.size) if file else b"", bool(each.mode & stat.S_IXUSR)


def _bounded(path: Path, file: IO[bytes], promised: int) -> bytes:
    data = file.read(promised + 1)
    if len(data) > promised:
        raise StoreError(f"{path} holds more than it says.", hint="Do not trust it.")
    return data


def _check(path: Path, count: int, size: int) -> None:
    if count > MOST_FILES or size > MOST_BYTES:
        raise UsageError(
            f"{path} is too large for skills: more than {MOST_FILES:,} files or {MOST_BYTES:,} bytes.",
            hint="Give the folder of the skill itself.",
        )


# ---------- store.skill_writing
#
# Changing skills on disk, with their history in `herma.db`.
#
# Under one lock for all skills of a home: commit the intent (a row with the texts before and after), change the file by
# renaming, mark the row done. What a killed process left open is settled by whoever takes the lock next: the file, or
# the folder, tells whether it happened. Edits by hand are rows too.

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_STAGING = ".staging"
_DOCUMENT = "SKILL.md"
_SKILL_WRITING_MOST_BYTES = 2**20
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
            if len(data) <= _SKILL_WRITING_MOST_BYTES:
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
        return _bytes(path, at_most=_SKILL_WRITING_MOST_BYTES)
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
