"""Files that people write for the prompt: SOUL.md in the home, AGENTS.md and the like in a project's folder."""

from __future__ import annotations

from pathlib import Path

SOUL = "SOUL.md"
PROJECT_FILES = (".herma.md", "AGENTS.md", "CLAUDE.md")
_MOST_BYTES = 2 * 2**20
"""More is never shown, so it is not read either."""


def read_soul(home: Path) -> str:
    """Who the agent is, if the user wrote that down."""
    return _read(home / SOUL)


def read_project_files(folder: str | Path | None) -> list[tuple[str, str]]:
    """Name and text of a folder's context files; one that only repeats another (often a link) is left out."""
    if not folder:
        return []
    found: dict[str, str] = {}
    for name in PROJECT_FILES:
        path = Path(folder) / name
        text = _read(path) if _stays_inside(path) else ""
        if text.strip() and text not in found.values():
            found[name] = text
    return list(found.items())


def _stays_inside(path: Path) -> bool:
    """Whether a file of somebody's repository is in it: a link out of it would show the model any file at all."""
    try:
        return path.resolve().is_relative_to(path.parent.resolve())
    except (OSError, RuntimeError):  # a link that leads nowhere, or round in circles
        return False


def _read(path: Path) -> str:
    """The text of a file; nothing when it is missing or cannot be read, since a session starts without it too."""
    try:
        if not path.is_file():
            return ""
        with path.open("rb") as file:
            return file.read(_MOST_BYTES).decode("utf-8-sig", "replace")
    except OSError:
        return ""
