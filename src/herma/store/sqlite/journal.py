"""How `herma.db` writes: a write-ahead log, or a rollback journal where the file system cannot do the first.

A write-ahead log needs memory that all processes share and locks that all of them see. Network and host-shared mounts
offer neither reliably, and say so only by damage, so they are recognised by name before anything is written.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path, PurePosixPath

import apsw

from herma.errors import HermaWarning

UNSUITED = re.compile(
    r"9p|acfs|afs|afpfs|beegfs|ceph|cifs|coda|drvfs|fakeowner|gfs2?|glusterfs|gpfs|hgfs|lustre|ncpfs|nfs[34]?|ocfs2|"
    r"orangefs|osxfs|panfs|prl_fs|pvfs2|smb2|smb3|smbfs|vboxsf|virtiofs|vmhgfs|webdav|wslfs|"
    r"fuse\.(?:ceph|curlftpfs|davfs|gcsfuse|glusterfs|goofys|grpcfuse|juicefs|lustre|mergerfs|moosefs|osxfs|portal|"
    r"rclone|s3fs|seaweedfs|smbnetfs|sshfs|unionfs|virtiofs|vmhgfs-fuse|weed)"
)
"""File systems without shared memory or without locks that every client sees."""

_OCTAL = re.compile(r"\\([0-7]{3})")
_REMOTE_DRIVE = 4  # what GetDriveTypeW answers for a network drive
_told: set[str] = set()


def file_system(mountinfo: str, path: PurePosixPath) -> str:
    """The type of the file system that holds an absolute path, by the text of /proc/self/mountinfo; "" if unknown.

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
    """Whether a write-ahead log would not be safe on this type of file system."""
    return UNSUITED.fullmatch(kind) is not None


def unsuited_mount(path: Path) -> str:
    """What is wrong with the place of this file, in a word or two; "" when a write-ahead log is safe there."""
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


def choose(connection: apsw.Connection, path: Path) -> str:
    """Set the journal mode that is safe where the file lies, and what is flushed at each commit. → "wal" or "delete".

    FULL flushes the log before a commit returns; a rollback journal needs EXTRA for the same promise, because there
    the commit is the removal of a file. On a Mac, a flush stops at the drive's own memory unless it is asked for in
    full; elsewhere that changes nothing.
    """
    now = str(connection.pragma("journal_mode"))
    mount = unsuited_mount(path)
    wanted = "delete" if mount else "wal"
    if now != wanted:
        try:
            now = str(connection.pragma("journal_mode", wanted))
        except (apsw.BusyError, apsw.LockedError):
            raise  # somebody else is at it: that says nothing about the file system
        except apsw.Error:
            if wanted == "delete":
                raise
            now = str(connection.pragma("journal_mode", "delete"))
    if now != "wal":
        _warn_once(path, mount)
    connection.pragma("synchronous", "FULL" if now == "wal" else "EXTRA")
    connection.pragma("fullfsync", True)
    return now


def _warn_once(path: Path, mount: str) -> None:
    if str(path) in _told:
        return
    _told.add(str(path))
    why = f"lies on {mount}" if mount else "cannot have a write-ahead log"
    warnings.warn(
        f"{path} {why}: it is kept with a rollback journal, which is safe but slower, and writers make readers wait. "
        "A folder on a local disk is better.",
        HermaWarning,
        stacklevel=2,
    )
