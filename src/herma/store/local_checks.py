"""What can be looked up on this machine without doing anything: whether a path is there, and which version of a tool a
project's own files name. Nothing is run, no connection is made, and what cannot be told for certain is not told.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from herma.store.sqlite.journal import file_system, is_unsuited, unsuited_mount

_MOST = 65_536
_FILES: dict[str, tuple[str, ...]] = {
    "python": (".python-version",),
    "node": (".nvmrc", ".node-version"),
    "ruby": (".ruby-version",),
    "java": (".java-version",),
    "go": ("go.mod",),
    "rust": ("rust-toolchain",),
}
_NUMBER = re.compile(r"^(?:v|[a-z]+-)?(\d+(?:\.\d+){0,2})\b")
_GO = re.compile(r"^go (\d+(?:\.\d+){1,2})\s*$", re.MULTILINE)
_ASDF = {"nodejs": "node", "golang": "go"}


class LocalChecks:
    """Looks on this machine, and in the folder of a project if there is one."""

    def __init__(self, folder: str = "") -> None:
        """A project that is only a name has no folder, whatever lies in the current one."""
        self._folder = Path(folder) if os.path.isabs(folder) and Path(folder).is_dir() else None  # noqa: PTH117

    def exists(self, path: str) -> bool | None:
        """Whether it is there. False only where one would expect it: the folders above it are here, and it is not."""
        place = self._place(path)
        if place is None or _is_elsewhere(place):
            return None
        try:
            os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return False if self._is_known_ground(_there(place.parent)) else None
        except (OSError, ValueError):
            return None
        return True

    def version(self, tool: str) -> tuple[str, str] | None:
        """The version that the project's files name, and which file; None where none does."""
        if self._folder is None:
            return None
        for name in _FILES.get(tool, ()):
            text = _read(self._folder / name)
            found = _GO.search(text) if name == "go.mod" else _NUMBER.match(text.strip())
            if found:
                return found[1], name
        for line in _read(self._folder / ".tool-versions").splitlines():
            named, _, version = line.strip().partition(" ")
            found = _NUMBER.match(version.strip())
            if found and _ASDF.get(named, named) == tool:
                return found[1], ".tool-versions"
        return None

    def _place(self, path: str) -> Path | None:
        """Where it would be here. Network shares are never looked at, and another system's path means nothing."""
        if len(path) > 1_000 or "\0" in path or path.startswith(("//", "\\\\")):
            return None
        if os.name != "nt" and "\\" in path:
            return None
        if path.startswith("~/"):
            return Path(os.path.expanduser(path))  # noqa: PTH111  no error where there is no home
        if os.path.isabs(path):  # noqa: PTH117
            return Path(path)
        parts = PurePosixPath(path).parts
        if self._folder is None or len(parts) < 2 or ".." in parts:
            return None
        first = self._folder / parts[0]
        return self._folder / path if first.is_dir() else None

    def _is_known_ground(self, ancestor: Path) -> bool:
        """Whether the nearest folder that is there belongs to the project, or lies deep enough to be the one meant."""
        if self._folder is not None and ancestor.is_relative_to(self._folder):
            return True
        return len(ancestor.parts) > 2


def _is_elsewhere(place: Path) -> bool:
    """Whether looking would go over a network: decided by the list of mounts, before anything is touched."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        mounts = ""
    kind = file_system(mounts, PurePosixPath(os.path.abspath(place)))  # noqa: PTH100  links are not followed
    return kind == "autofs" or is_unsuited(kind) or bool(unsuited_mount(_there(place.parent)))


def _there(path: Path) -> Path:
    """The nearest folder above that exists."""
    for place in (path, *path.parents):
        try:
            if place.is_dir():
                return place
        except OSError:
            continue
    return Path(path.anchor or ".")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MOST).decode("utf-8", "replace")
    except OSError:
        return ""
