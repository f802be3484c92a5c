"""Replace files atomically, lock them, tell what is at a path, and read untrusted files and YAML within bounds."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import random
import re
import shlex
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import IO, Any

from herma.errors import HermaWarning, StoreBusy, StoreError

# Replace a file so that a reader, a crash or a power loss finds the old bytes or the new ones, never a mixture.
#
# Two steps: `prepare` makes the new bytes durable beside the file, `install` puts them in its place. While the prepared
# file exists, the second step is not finished: a crash between the two is recognised by it.

Rename = Callable[[str | Path, str | Path], None]

_MOUNTED = {errno.EBUSY, errno.EXDEV}
_SHARING_TRIES = 40


def replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file, flush it, rename it, flush the folder. `path` must not be a link."""
    temporary = prepare(path, data)
    try:
        install(temporary, path, data)
    except StoreError:
        discard(temporary)
        raise


def temporary_of(path: Path, *, alone: bool = True) -> Path:
    """Return where the new bytes are prepared.

    `alone` says that a lock is held: one fixed name will do, and a killed process leaves at most one behind.
    """
    return path.with_name(f".{path.name}.tmp" if alone else f".{path.name}.{os.getpid()}.tmp")


def prepare(path: Path, data: bytes, *, alone: bool = True) -> Path:
    """Make the new bytes durable beside `path`, which stays as it is. Return where they are."""
    temporary = temporary_of(path, alone=alone)
    try:
        _write(temporary, data, status_of(path))
    except OSError as exc:
        discard(temporary)
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}. It is as it was.",
            hint="Check free space and permissions, then try again.",
        ) from exc
    return temporary


def install(temporary: Path, path: Path, data: bytes, *, rename: Rename = os.replace) -> None:
    """Put the prepared bytes in the place of `path`; durable when it returns."""
    try:
        _rename(temporary, path, data, rename)
    except OSError as exc:
        raise StoreError(
            f"{path} could not be replaced: {exc.strerror or exc}.",
            hint="Check free space and permissions, then try again.",
        ) from exc
    try:
        sync_folder(path.parent)
    except OSError as exc:
        raise StoreError(
            f"{path} was replaced, but may be back to what it was after a power loss: {exc.strerror or exc}.",
            hint="Check the disk, then look at the file.",
        ) from exc


def unfinished(temporary: Path) -> bytes | None:
    """Return what a killed process meant to write: its temporary file, if it is still there."""
    if not os.path.lexists(temporary):  # as a rule; asking is cheaper than being refused
        return None
    try:
        return temporary.read_bytes()
    except OSError:
        return None


def discard(temporary: Path) -> None:
    with contextlib.suppress(OSError):
        temporary.unlink(missing_ok=True)


def make_folder(folder: Path) -> None:
    """Make it, and those above it that are missing: private, and for good, so that a power loss takes nothing in it."""
    if os.path.isdir(folder):  # noqa: PTH112  every write comes through here
        return
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):  # one by one: `parents=True` would let others into those above
        each.mkdir(exist_ok=True, mode=0o700)
    for each in missing:
        sync_folder(each.parent)


@cache
def flags(*names: str) -> int:
    """Return flags for `os.open` that this platform has; without O_BINARY Windows would rewrite line ends."""
    return reduce(or_, (getattr(os, name, 0) for name in (*names, "O_BINARY", "O_CLOEXEC")))


def _write(path: Path, data: bytes, like: os.stat_result | None) -> None:
    """Write and sync; with the mode and, where we may, the owner of the file it replaces. A new one is private."""
    mode = stat.S_IMODE(like.st_mode) if like else 0o600
    handle = os.open(path, flags("O_WRONLY", "O_CREAT", "O_TRUNC", "O_NOFOLLOW"), mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(handle, view) :]
        if hasattr(os, "fchmod"):
            mine = os.fstat(handle)
            if like and (like.st_uid, like.st_gid) != (mine.st_uid, mine.st_gid):
                with contextlib.suppress(OSError):
                    os.fchown(handle, like.st_uid, like.st_gid)
            if stat.S_IMODE(mine.st_mode) != mode:
                os.fchmod(handle, mode)
        os.fsync(handle)
    finally:
        os.close(handle)


def _rename(temporary: Path, path: Path, data: bytes, rename: Rename) -> None:
    for attempt in range(_SHARING_TRIES):
        try:
            rename(temporary, path)
        except PermissionError:  # Windows: a virus scanner, an editor or a reader has the file open
            if os.name != "nt" or attempt == _SHARING_TRIES - 1:
                raise
            time.sleep(0.005 * (attempt + 1))
        except OSError as exc:
            if exc.errno not in _MOUNTED:
                raise
            warnings.warn(
                f"{path} is mounted as a single file, so it is overwritten in place; mount its folder instead.",
                HermaWarning,
                stacklevel=2,
            )
            _overwrite(path, data)
            temporary.unlink()
            return
        else:
            return


def _overwrite(path: Path, data: bytes) -> None:
    """Write in place; when that fails half-way, put back what was there."""
    before, status = path.read_bytes(), status_of(path)
    try:
        _write(path, data, status)
    except OSError:
        with contextlib.suppress(OSError):
            _write(path, before, status)
        raise


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    with path.open("rb+") as file:
        flush(file)


def flush(file: IO[bytes]) -> None:
    """Make what was written to an open file durable."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":
        return  # a folder cannot be opened there; the rename is journalled by the file system
    handle = os.open(folder, flags("O_RDONLY", "O_DIRECTORY"))
    try:
        os.fsync(handle)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # some network file systems cannot sync a folder and say so
            raise
    finally:
        os.close(handle)


# Advisory locks on a file beside the one that they protect.
#
# POSIX uses `flock` (two handles in one process exclude each other too), Windows one byte of `msvcrt.locking`. Some
# network file systems have neither: then the work goes on unprotected after one warning; readers are still safe.

_TAKEN = {errno.EACCES, errno.EAGAIN, errno.EDEADLK}
_UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL}
_LONGEST_PAUSE = 0.02
_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class Locking:
    """The way in which a platform locks an open file: `take` at once or raise OSError; `release`.

    Letting go is said in so many words, because closing is not enough: a forked child has the file open too.
    """

    take: Callable[[int], None]
    release: Callable[[int], None]


def platform_locking() -> Locking | None:
    """Return how this platform locks, or None where it cannot."""
    try:
        import fcntl
    except ImportError:
        try:
            import msvcrt
        except ImportError:
            return None
        return windows_locking(msvcrt)
    return Locking(
        take=lambda handle: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB),
        release=lambda handle: fcntl.flock(handle, fcntl.LOCK_UN),
    )


def windows_locking(msvcrt: ModuleType) -> Locking:
    """Lock the first byte; Windows allows that beyond the end of the file too."""

    def locking(handle: int, mode: int) -> None:
        os.lseek(handle, 0, os.SEEK_SET)
        msvcrt.locking(handle, mode, 1)

    return Locking(
        take=lambda handle: locking(handle, msvcrt.LK_NBLCK), release=lambda handle: locking(handle, msvcrt.LK_UNLCK)
    )


@contextmanager
def exclusive(
    path: Path, timeout: float, locking: Locking | None = None, *, longest_pause: float = _LONGEST_PAUSE
) -> Iterator[bool]:
    """Hold the lock file `path` while the block runs; yields whether a lock is really held.

    `longest_pause` is for a lock that its holder lets go of for moments only: a longer pause would miss them.
    """
    locking = locking or platform_locking()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as exc:
        raise StoreError(
            f"{path.parent} cannot be written: {exc.strerror}.",
            hint="Check the permissions of the folder and its file system.",
        ) from exc
    try:
        if locking is None:
            _warn_once(path)
        held = locking is not None and _wait(handle, path, timeout, locking, longest_pause)
        try:
            yield held
        finally:
            if locking and held:
                with suppress(OSError):
                    locking.release(handle)
    finally:
        os.close(handle)


def _wait(handle: int, path: Path, timeout: float, locking: Locking, longest_pause: float) -> bool:
    """Try until it works (True), the file system turns out to have no locks (False), or time is up (`StoreBusy`)."""
    deadline = time.monotonic() + timeout
    pause = 0.0005
    while True:
        try:
            locking.take(handle)
        except OSError as exc:
            if exc.errno in _UNSUPPORTED:
                _warn_once(path)
                return False
            if exc.errno not in _TAKEN:
                raise StoreError(f"{path} cannot be locked: {exc.strerror}.") from exc
            if time.monotonic() >= deadline:
                raise StoreBusy(
                    f"Another process has held {path} for more than {timeout:g} seconds.",
                    hint="Wait for it or stop it, and try again; nothing was changed.",
                ) from exc
        else:
            return True
        time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311  spreads waiters, guards nothing
        pause = min(pause * 1.5, longest_pause)


def _warn_once(path: Path) -> None:
    folder = str(path.parent)
    if folder not in _warned:
        _warned.add(folder)
        warnings.warn(
            f"No file locks in {folder}: two programs that write at the same moment may undo each other's change.",
            HermaWarning,
            stacklevel=2,
        )


FOLDER = "locks"
_GATE = 5.0
"""Seconds to wait for a process that is taking or giving back another name."""


@contextmanager
def named_lock(home: Path, name: str) -> Iterator[bool]:
    """Hold a name across all processes of a home while the block runs; yield whether it was free.

    Lock files are made, locked and removed behind one gate, so that no process holds a file that is no longer there.
    One that a dying process leaves behind is empty and does no harm.
    """
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be made: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc
    gate, file = folder / "gate.lock", folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    with ExitStack() as held:
        with exclusive(gate, _GATE):
            try:
                held.enter_context(exclusive(file, 0.0))
            except StoreBusy:
                taken = True
            else:
                taken = False
                held.callback(_remove, gate, file)
        yield not taken


def _remove(gate: Path, file: Path) -> None:
    """Remove a lock file, still under its lock. One that cannot be removed may stay."""
    with suppress(StoreError, OSError), exclusive(gate, _GATE):
        file.unlink()


# Which file systems are safe for a write-ahead log: one needs memory that all processes share, and locks that all of
# them see. Network and host-shared mounts offer neither reliably, and show it only by damage.

_UNSUITED = re.compile(
    r"9p|acfs|afs|afpfs|beegfs|ceph|cifs|coda|drvfs|fakeowner|gfs2?|glusterfs|gpfs|hgfs|lustre|ncpfs|nfs[34]?|ocfs2|"
    r"orangefs|osxfs|panfs|prl_fs|pvfs2|smb2|smb3|smbfs|vboxsf|virtiofs|vmhgfs|webdav|wslfs|"
    r"fuse\.(?:ceph|curlftpfs|davfs|gcsfuse|glusterfs|goofys|grpcfuse|juicefs|lustre|mergerfs|moosefs|osxfs|portal|"
    r"rclone|s3fs|seaweedfs|smbnetfs|sshfs|unionfs|virtiofs|vmhgfs-fuse|weed)"
)
"""File systems without shared memory or without locks that every client sees."""

_OCTAL = re.compile(r"\\([0-7]{3})")
_REMOTE_DRIVE = 4  # the result of GetDriveTypeW for a network drive


def file_system(mountinfo: str, path: PurePosixPath) -> str:
    """Return the type of the file system that holds an absolute path, by the text of /proc/self/mountinfo; "" if
    unknown.

    Of several mounts the one with the longest mount point counts, and of two on the same point the later one.
    """
    best, found = -1, ""
    for line in mountinfo.splitlines():
        before, separator, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")[0]
        if not separator or len(fields) < 5 or not kind:
            continue
        point = PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4]))
        if len(point.parts) >= best and path.is_relative_to(point):
            best, found = len(point.parts), kind
    return found


def is_unsuited(kind: str) -> bool:
    """Return whether a write-ahead log would not be safe on this type of file system."""
    return _UNSUITED.fullmatch(kind) is not None


def unsuited_mount(path: Path) -> str:
    """Return what is wrong with the place of this file, in a word or two; "" when a write-ahead log is safe there."""
    if sys.platform == "win32":  # pragma: no cover
        return _windows_share(path)
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind = file_system(mounts, PurePosixPath(os.path.realpath(path)))
    return kind if is_unsuited(kind) else ""


def _windows_share(path: Path) -> str:  # pragma: no cover
    drive = path.absolute().drive
    if drive.startswith("\\\\"):
        return "network share"
    import ctypes

    kind = ctypes.windll.kernel32.GetDriveTypeW(f"{drive}\\")  # type: ignore[attr-defined]
    return "network drive" if kind == _REMOTE_DRIVE else ""


# What is at a path.


def real_path(path: Path) -> Path:
    """Return the file behind links, where its log lies too. Unlike `resolve`, accept links that go round."""
    return Path(os.path.realpath(path))


def kind_of(status: os.stat_result) -> str:
    """Return what stands at a path instead of a file, in words."""
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(status.st_mode), "a device")


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of what is at `path`, links followed; None if nothing is there.

    One look: SQLite removes a log when the last connection closes, also between two looks of another process.
    """
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            return None
        raise


def size_of(path: Path) -> int:
    """Return the size of a file; 0 if nothing is there."""
    status = status_of(path)
    return status.st_size if status else 0


def special_beside(path: Path) -> tuple[Path, str] | None:
    """Return what is not a file though it has the name of a database's log, and what it is."""
    for suffix in ("-wal", "-shm", "-journal"):
        beside = path.with_name(path.name + suffix)
        if (status := status_of(beside)) and not stat.S_ISREG(status.st_mode):
            return beside, kind_of(status)
    return None


def refuse_special(path: Path) -> None:
    """Raise if a pipe, a device or a folder has the name of the database's log: opening it could wait for ever."""
    if found := special_beside(real_path(path)):
        beside, kind = found
        raise StoreError(
            f"{beside} is {kind}, not an ordinary file; nothing was changed.",
            hint=f"Move it away, then try again: mv {shlex.quote(str(beside))} {shlex.quote(str(beside))}.aside",
        )


# Files from unknown sources: a repository, a skill or a plugin may hold a pipe, a device, a huge file, or a small text
# that stands for a huge one.

DEEPEST = 20
"""Levels of lists and maps that YAML may have."""
MOST_NODES = 1_000
"""Keys, values, lists and maps that YAML may have. ruamel.yaml takes about 0.1 ms for each."""
_PLAIN_TAGS = (
    None,
    "!",
    *(f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")),
)


def read_start(path: str | Path, limit: int) -> bytes:
    """Return the first `limit` bytes of a regular file. Raise `OSError` for a pipe, a device or a folder."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        return file.read(limit)


def plain_yaml() -> Any:
    """Return a `ruamel.yaml.YAML` that composes plain scalars, lists and maps only, and neither deep nor large ones.

    Anything else raises a `MarkedYAMLError`, before memory or time is spent on it.
    """
    from ruamel.yaml import YAML

    reader: Any = YAML(typ="safe", pure=True)
    reader.Composer = _plain_composer()
    return reader


@cache
def _plain_composer() -> Any:
    from ruamel.yaml.composer import Composer, ComposerError
    from ruamel.yaml.events import AliasEvent

    class PlainComposer(Composer):
        levels = nodes = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            event: Any = self.parser.peek_event()
            self.nodes += 1
            problem = ""
            if isinstance(event, AliasEvent) or event.anchor is not None:
                problem = "anchors and aliases are not supported"
            elif (str(event.tag) if event.tag is not None else None) not in _PLAIN_TAGS:
                problem = "tags are not supported"
            elif self.levels >= DEEPEST:
                problem = f"it is nested more than {DEEPEST} levels deep"
            elif self.nodes > MOST_NODES:
                problem = f"it has more than {MOST_NODES:,} keys and values"
            if problem:
                raise ComposerError(None, None, problem, event.start_mark)
            self.levels += 1
            node: Any = super().compose_node(parent, index)
            self.levels -= 1
            if str(node.tag).endswith(":merge"):
                raise ComposerError(None, None, "merge keys (<<) are not supported", event.start_mark)
            return node

    return PlainComposer
