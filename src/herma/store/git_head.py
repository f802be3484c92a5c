"""Which git branch a folder is on, read from its files: no program is run."""

from __future__ import annotations

import re
from pathlib import Path

_MOST_BYTES = 4_096
_FOLDERS_UP = 40
_BRANCH = re.compile(r"ref: refs/heads/([^\x00-\x20\x7f]{1,250})\s*")
_DETACHED = re.compile(r"([0-9a-f]{12})[0-9a-f]{28,52}\s*")
_ELSEWHERE = re.compile(r"gitdir: ([^\x00\n]{1,4000})\s*")


def branch_of(folder: str | Path) -> str:
    """The branch that is checked out there, the beginning of a commit's name where none is, or nothing."""
    at = Path(folder)
    for place in [at, *at.parents][:_FOLDERS_UP]:
        head = _head(place / ".git")
        if head is not None:
            named = _BRANCH.fullmatch(head) or _DETACHED.fullmatch(head)
            return named[1] if named else ""
    return ""


def _head(git: Path) -> str | None:
    """The text of HEAD: of the folder `.git`, or of the one that a file of this name points to (a worktree)."""
    if git.is_dir():
        return _read(git / "HEAD")
    pointer = _ELSEWHERE.fullmatch(_read(git) or "")
    return _read(git.parent / pointer[1].strip() / "HEAD") if pointer else None


def _read(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return opened.read(_MOST_BYTES).decode("utf-8", "backslashreplace")
    except (OSError, ValueError):
        return None
