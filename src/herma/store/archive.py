"""Read and write the file that a backup is: a tar file compressed with zstd. Its first member, the manifest, names the
others with their size and hash.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from herma.errors import ForeignStore, StoreError
from herma.store.database import VERSION
from herma.store.files import flush, make_folder, size_of, sync_folder

FORMAT = 1
SUFFIX = ".tar.zst"
MANIFEST = "manifest.json"
FOLDERS = ("memories", "notes", "skills", "hindsight", "byterover")
_PROVIDERS = ("holographic", "honcho", "mem0", "openviking", "retaindb", "supermemory", "byterover")
FILES = ("config.yaml", "SOUL.md", *(f"{name}.json" for name in _PROVIDERS))
FACTS = "memory_store.db"
"""The database of the holographic provider."""
SECRETS = (".env",)
DATABASE = "herma.db"
BEFORE_RESTORE = "before-restore"
"""The name of the backup that a restore makes first."""
_MOST_MANIFEST = 64 * 2**20
_PACKED = 1024
"""Bytes that are unpacked at a time: of a file made with malice they can become many thousand times as many."""
_KINDS: tuple[tuple[str, type], ...] = (
    *(("created", float), ("counts", dict), ("files", dict), ("skipped", list)),
    *((name, str) for name in ("herma", "name", "store_id", "epoch", "damage")),
)
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Describe a backup. `kept`: it was given a name, and is never pruned. `damage`: what was wrong already then."""

    format: int
    herma: str
    created: float
    name: str = ""
    kept: bool = False
    database: int = 0
    store_id: str = ""
    epoch: str = ""
    counts: dict[str, int] = field(default_factory=dict)
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    secrets: bool = False
    skipped: tuple[str, ...] = ()
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup file. `manifest` is None when it cannot be read, and `trouble` says why; `verified` is when, if ever."""

    path: Path
    size: int
    manifest: Manifest | None
    trouble: str = ""
    verified: float | None = None

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(SUFFIX)


def look_at(path: Path) -> Backup:
    """Return what a backup says about itself, without reading all of it."""
    try:
        status = path.stat()
        with members(path) as each:
            manifest = _manifest(*next(each, (None, None)))
    except (OSError, StoreError, ValueError, TypeError, RecursionError) as exc:
        return Backup(path, size_of(path), None, str(exc))
    return Backup(path, status.st_size, manifest, verified=_marked(path, status))


def unpack(backup: Backup, stage: Path, progress: Progress | None = None) -> None:
    """Extract what the manifest names into an empty folder, checking each name and each hash. Nothing else gets out."""
    manifest = backup.manifest
    if manifest is None:
        raise ForeignStore(f"{backup.path} is not a backup: {backup.trouble}.", hint="`herma backup list` shows them.")
    left, done = dict(manifest.files), 0
    total = sum(size for size, _ in left.values())
    with members(backup.path) as each:
        next(each, None)
        for member, stream in each:
            refuse_unsafe(member)
            if member.name not in left or stream is None:
                raise StoreError(f"{member.name} is not in the manifest, or is there twice.")
            size, digest = left.pop(member.name)
            goal = stage / member.name
            make_folder(goal.parent)
            if member.size != size or _copy(stream, goal, size) != digest:
                raise StoreError(f"{member.name} is not what it was when the backup was made.")
            done += size
            if progress:
                progress(done, total)
    if left:
        raise StoreError(f"{next(iter(left))} is missing.")


def refuse_unsafe(member: tarfile.TarInfo) -> None:
    """Raise unless it is an ordinary file below the folders, or with a name, that a backup has."""
    path = PurePosixPath(member.name)
    strange = "\\" in member.name or ":" in member.name or "\0" in member.name or str(path) != member.name
    if not member.isreg() or path.is_absolute() or ".." in path.parts or strange:
        raise StoreError(f"{member.name!r} in the backup is not an ordinary file below the home.")
    alone = len(path.parts) == 1 and path.name in (*FILES, *SECRETS, DATABASE, FACTS)
    if not alone and not (len(path.parts) > 1 and path.parts[0] in FOLDERS):
        raise StoreError(f"{member.name!r} does not belong in a backup.")


def _each(archive: tarfile.TarFile, plain: Any) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    for member in archive:
        yield member, archive.extractfile(member) if member.isreg() else None
    while plain.read(2**20):  # to the very end, where the checksum of everything is compared
        pass


@contextmanager
def members(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, Any]]]:
    """Yield the members of a backup file, in order, each with its content."""
    import zstandard

    with path.open("rb") as file:
        plain: Any = _Plain(file)
        try:
            with tarfile.open(fileobj=plain, mode="r|") as archive:
                yield _each(archive, plain)
        except (tarfile.TarError, zstandard.ZstdError, EOFError) as exc:
            raise StoreError(f"{path} is damaged or not a backup ({exc}).") from exc


class _Plain:
    """Hold what a compressed file holds: one frame that is complete, and nothing behind it.

    The library's own stream takes a file that was cut off for its end, checksum or not.
    """

    def __init__(self, file: BinaryIO) -> None:
        import zstandard

        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = bytearray()

    def read(self, size: int) -> bytes:
        while len(self._ready) < size and not self._frame.eof:
            packed = self._file.read(_PACKED)
            if not packed:
                raise EOFError("it was cut off")
            self._ready += self._frame.decompress(packed)
            if self._frame.eof and (self._frame.unused_data or self._file.read(1)):
                raise EOFError("something stands behind its end")
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data


def _copy(stream: BinaryIO, goal: Path, size: int) -> str:
    """Write what a stream holds to a new file, never more than `size`. Return its SHA-256."""
    digest = sha256()
    with goal.open("xb") as file:
        while size > 0 and (chunk := stream.read(min(size, 2**20))):
            digest.update(chunk)
            file.write(chunk)
            size -= len(chunk)
        flush(file)
    goal.chmod(0o600)
    return digest.hexdigest()


def _manifest(member: tarfile.TarInfo | None, stream: Any) -> Manifest:
    if member is None or member.name != MANIFEST or stream is None or member.size > _MOST_MANIFEST:
        raise StoreError("it has no manifest")
    fields = json.loads(stream.read())
    if not isinstance(fields, dict) or not isinstance(fields.get("format"), int) or "herma" not in fields:
        raise StoreError("its manifest is not ours")
    if fields["format"] > FORMAT or int(fields.get("database") or 0) > VERSION:
        raise StoreError(f"it was made by a newer Herma ({fields['herma']}); upgrade first")
    known = {name: value for name, value in fields.items() if name in Manifest.__dataclass_fields__}
    if not all(isinstance(known.get(name, kind()), kind) for name, kind in _KINDS):
        raise StoreError("its manifest is not ours")
    files = {str(name): (int(size), str(digest)) for name, (size, digest) in dict(known.get("files", {})).items()}
    return Manifest(**{**known, "files": files, "skipped": tuple(known.get("skipped", ()))})


def write_archive(path: Path, manifest: Manifest, stage: Path) -> None:
    import zstandard

    temporary = path.with_name(f".{path.name}.tmp.part")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_NOFOLLOW", 0), 0o600)
        with open(handle, "wb") as file:  # noqa: PTH123  the path is open already
            with (
                zstandard.ZstdCompressor(level=6, write_checksum=True).stream_writer(file, closefd=False) as packed,
                tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
            ):
                text = json.dumps(asdict(manifest), ensure_ascii=False, indent=1).encode()
                archive.addfile(_member(MANIFEST, len(text), manifest.created), io.BytesIO(text))
                for name, (size, _) in manifest.files.items():
                    with (stage / name).open("rb") as content:
                        archive.addfile(_member(name, size, manifest.created), content)
            flush(file)
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _member(name: str, size: int, at: float) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(at), 0o600
    return member


def folder_of(home: Path) -> Path:
    return home / "backups"


def listing(home: Path, folder: Path | None = None) -> list[Backup]:
    """Return the backups in a home, or in another folder, newest first; other files with what is wrong with them."""
    found = [look_at(path) for path in (folder or folder_of(home)).glob(f"*{SUFFIX}") if path.is_file()]
    return sorted(found, key=lambda b: (b.manifest.created if b.manifest else 0.0, b.name), reverse=True)


def of_database(home: Path) -> list[Backup]:
    """Return the sound backups that hold a database, newest first; those that a restore made come last."""
    sound = [each for each in listing(home) if each.manifest and each.manifest.store_id and not each.manifest.damage]
    return sorted(sound, key=is_safety)


def is_safety(backup: Backup) -> bool:
    """Return whether a restore made it. Restoring the latest twice must not bring back what the first one replaced."""
    manifest = backup.manifest
    return manifest is not None and manifest.name == BEFORE_RESTORE and not manifest.kept


def mark_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.verified")


def mark(path: Path) -> None:
    """Remember that this very file was read and found to be good. A folder that cannot be written forgets it."""
    status = path.stat()
    text = json.dumps({"size": status.st_size, "changed": status.st_mtime_ns, "at": time.time()})
    try:
        mark_of(path).touch(mode=0o600)
        mark_of(path).write_text(text, encoding="utf-8")
    except OSError:
        return


def _marked(path: Path, status: os.stat_result) -> float | None:
    try:
        known = json.loads(mark_of(path).read_text(encoding="utf-8"))
        same = (known["size"], known["changed"]) == (status.st_size, status.st_mtime_ns)
        return float(known["at"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
