"""Skills from outside, read into memory: a folder, a folder of skills, or an archive. Nothing is unpacked to disk."""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from herma.errors import StoreError, UsageError
from herma.ports.skills import Incoming
from herma.store.skill_files import DOCUMENT, read_regular
from herma.types import SkillFile

MOST_FILES = 2_000
MOST_BYTES = 32 * 2**20
"""What is read at most, unpacked: an archive can promise any size."""
ARCHIVES = (".zip", ".skill", ".tar", ".tar.gz", ".tgz")
_DAMAGED = (OSError, zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, NotImplementedError)
"""What the readers of archives raise: damaged, cut off, packed with a password or in an unknown way."""
_File = tuple[str, bytes, bool]


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
