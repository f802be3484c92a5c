"""Create, verify, prune."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from hashlib import file_digest, sha256
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import apsw

from herma import __version__
from herma.errors import ForeignStore, StoreError, UsageError
from herma.store.checkup import state_of
from herma.store.database import VERSION, full, open_reader, queries, refuse_foreign, translated, user_version
from herma.store.files import exclusive, make_folder
from herma.store.salvage import sync_folder

# ---------- store.backup_archive
#
# The file that a backup is: a tar file compressed with zstd, whose first member says what the others must be.

FORMAT = 1
SUFFIX = ".tar.zst"
MANIFEST = "manifest.json"
FOLDERS = ("memories", "skills")
FILES = ("config.yaml", "SOUL.md")
SECRETS = (".env",)
DATABASE = "herma.db"
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
    """What a backup holds. `kept`: it was given a name, and is never pruned. `damage`: what was wrong already then."""

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
    """What a backup says about itself, without reading all of it."""
    try:
        status = path.stat()
        with members(path) as each:
            manifest = _manifest(*next(each, (None, None)))
    except (OSError, StoreError, ValueError, TypeError) as exc:
        return Backup(path, path.stat().st_size if path.exists() else 0, None, str(exc))
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
    """Only ordinary files, and only below the folders and under the names that a backup has."""
    path = PurePosixPath(member.name)
    strange = "\\" in member.name or ":" in member.name or "\0" in member.name or str(path) != member.name
    if not member.isreg() or path.is_absolute() or ".." in path.parts or strange:
        raise StoreError(f"{member.name!r} in the backup is not an ordinary file below the home.")
    alone = len(path.parts) == 1 and path.name in (*FILES, *SECRETS, DATABASE)
    if not alone and not (len(path.parts) > 1 and path.parts[0] in FOLDERS):
        raise StoreError(f"{member.name!r} does not belong in a backup.")


def _each(archive: tarfile.TarFile, plain: Any) -> Iterator[tuple[tarfile.TarInfo, Any]]:
    for member in archive:
        yield member, archive.extractfile(member) if member.isreg() else None
    while plain.read(2**20):  # to the very end, where the checksum of everything is compared
        pass


@contextmanager
def members(path: Path) -> Iterator[Iterator[tuple[tarfile.TarInfo, Any]]]:
    """What is in a backup file, in order, each with its content."""
    import zstandard

    with path.open("rb") as file:
        plain: Any = _Plain(file)
        try:
            with tarfile.open(fileobj=plain, mode="r|") as archive:
                yield _each(archive, plain)
        except (tarfile.TarError, zstandard.ZstdError, EOFError) as exc:
            raise StoreError(f"{path} is damaged or not a backup ({exc}).") from exc


class _Plain:
    """What a compressed file holds: one frame that is complete, and nothing behind it.

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
    """Write what a stream holds to a new file, never more than `size`. → its SHA-256."""
    digest = sha256()
    with goal.open("xb") as file:
        while size > 0 and (chunk := stream.read(min(size, 2**20))):
            digest.update(chunk)
            file.write(chunk)
            size -= len(chunk)
        file.flush()
        os.fsync(file.fileno())
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
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _member(name: str, size: int, at: float) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, int(at), 0o600
    return member


# ── what is remembered about one: when it was last found to be good ──


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


# ---------- store.backup_copy
#
# Copying what a backup holds: `herma.db` from one consistent state, folders without what is in motion.

_BACKUP_COPY_PAGES = 1024


@contextmanager
def staged(folder: Path, name: str, *, fallback: bool = False) -> Iterator[Path]:
    """An empty private folder that is gone afterwards; elsewhere, with `fallback`, when this place is read-only."""
    stage = folder / name
    try:
        make_folder(folder)
        shutil.rmtree(stage, ignore_errors=True)
        stage.mkdir(mode=0o700)
    except OSError:
        if not fallback:
            raise
        stage = Path(tempfile.mkdtemp(prefix="herma-"))
    try:
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


@contextmanager
def failing(path: Path) -> Iterator[None]:
    """Run the block; what the disk objects to becomes one sentence."""
    try:
        yield
    except OSError as exc:
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. Nothing was changed.",
            hint="Check free space and permissions, then try again.",
        ) from exc


class DatabaseCopy:
    """A copy of `herma.db` in two steps: `begin` fixes the moment, `copy` takes as long as it takes."""

    def __init__(self, source: apsw.Connection | None, target: Path) -> None:
        self._source = source
        self._target = target

    def begin(self) -> None:
        """From now on the copy will hold what is committed now, whatever others write."""
        if self._source is not None:
            self._source.execute("BEGIN; SELECT count(*) FROM sqlite_master").fetchall()

    def copy(self, progress: Progress | None = None) -> None:
        if self._source is None:
            return
        target = apsw.Connection(str(self._target))
        try:
            with _room(self._target), target.backup("main", self._source, "main") as backup:
                while not backup.done:
                    backup.step(_BACKUP_COPY_PAGES)
                    if progress:
                        progress(backup.page_count - backup.remaining, backup.page_count)
        finally:
            target.close()
        self._target.chmod(0o600)


@contextmanager
def _room(target: Path) -> Iterator[None]:
    """Run the block; a full disk is the target's, which may be another than the home's."""
    try:
        yield
    except apsw.FullError as exc:
        raise full(target.parent.parent) from exc


@contextmanager
def copy_database(path: Path | None, target: Path) -> Iterator[DatabaseCopy]:
    """A read transaction keeps the state while it is copied, so the copy never has to begin again."""
    with translated(path or target):
        source = open_reader(path, 10.0) if path and path.exists() and path.stat().st_size else None
        try:
            yield DatabaseCopy(source, target)
        finally:
            if source is not None:
                source.close()


def database_facts(path: Path) -> tuple[dict[str, Any], str]:
    """What the manifest says about a database that nobody else has open. → and what is wrong with it."""
    facts: dict[str, Any] = {}
    sql = queries("checkup")
    connection = apsw.Connection(str(path))
    try:
        connection.pragma("journal_mode", "delete")  # so that it is one file, wherever it is put
        facts["database"] = user_version(connection)
        rows: list[Any] = connection.execute(sql["identity"]).fetchall()
        facts["store_id"], facts["epoch"] = rows[0][0] or "", rows[0][1] or ""
        rows = connection.execute(sql["counts"]).fetchall()
        facts["counts"] = dict(zip(("sessions", "messages", "changes", "payloads"), rows[0], strict=True))
        rows = connection.execute("PRAGMA integrity_check(1)").fetchall()
        damage = "" if rows == [("ok",)] else str(rows[0][0])
        if not damage and connection.execute("PRAGMA foreign_key_check").fetchone():
            damage = "rows refer to others that are not there"
    except apsw.Error as exc:
        damage = str(exc)
    finally:
        connection.close()
    return facts, damage


def copy_folder(source: Path, target: Path, skipped: list[str]) -> None:
    """Ordinary files, linked ones too; not locks and unfinished ones, and not what only links lead to."""
    for folder, folders, files in os.walk(source):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        skipped += [str((Path(folder) / name).relative_to(source.parent)) for name in linked]
        folders[:] = sorted(set(folders) - set(linked))
        for name in sorted(files):
            path = Path(folder) / name
            if name.endswith((".lock", ".tmp")):
                continue
            goal = target / path.relative_to(source)
            if path.is_file():
                goal.parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileNotFoundError):  # deleted by hand at this moment
                    shutil.copyfile(path, goal)
            elif os.path.lexists(path):
                skipped.append(str(path.relative_to(source.parent)))


# ---------- store.backup
#
# Backups: one file that holds everything, made while others write, checked before it is trusted.
#
# `herma.db` is copied by SQLite's own backup from one consistent state; memory files and skills are read while their
# locks are held, together with the moment of that state, so that files and history belong together. `index.db` is never
# in a backup: it is derived.

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


# ---------- store.sqlite.derived_copy
#
# A copy of a derived file (`index.db` and the like), taken while others may write to it.

_DERIVED_COPY_PAGES = 1_000


def copy_derived(path: Path, target: Path) -> bool:
    """→ whether there is a copy now. One that cannot be made is no loss: what is derived is made again."""
    if not path.is_file():
        return False
    try:
        with (
            closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as source,
            closing(apsw.Connection(str(target))) as made,
        ):
            source.set_busy_timeout(5_000)
            with made.backup("main", source, "main") as backup:
                while not backup.done:
                    backup.step(_DERIVED_COPY_PAGES)
    except apsw.Error:
        target.unlink(missing_ok=True)
        return False
    return True
