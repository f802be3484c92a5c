"""Copies of all skills in `backups/skills/`: one tar file each, whose first member says what the others must be.

A copy is written aside, read back and compared, and only then given its name. What lies in the archive is not in it:
nothing ever leaves the archive by itself.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from herma.errors import StoreError, UsageError
from herma.store.atomic import flags, make_folder
from herma.store.skill_files import read_regular
from herma.store.sqlite.salvage_file import sync_folder
from herma.types.curator import SkillSnapshotContent, SkillSnapshotInfo
from herma.types.skills import SkillUsage

SUFFIX = ".tar.gz"
ID = re.compile(r"\d{8}-\d{6}(?:-\d{1,4})?")
_MANIFEST = "manifest.json"
_FORMAT = 1
_SKIPPED = {"__pycache__", "node_modules", "venv", "site-packages"}
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
            name for name in folders if not (name.startswith(".") or name in _SKIPPED or (here / name).is_symlink())
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
