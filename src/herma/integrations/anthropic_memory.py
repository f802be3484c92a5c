"""Anthropic memory tool (`memory_20250818`): its commands on curated memory and on notes in the home.

    from herma.integrations.anthropic_memory import HermaMemoryTool

    client.beta.messages.tool_runner(model=…, messages=…, tools=[HermaMemoryTool(h)]).until_done()

`/memories/MEMORY.md` and `/memories/USER.md` are curated memory: an edit is scanned, keeps the limits, has a row in
`herma log` and an undo, and what a person wrote changes only with the person's yes. Every other path is a file below
`notes/` in the home; its text is scanned too.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError

from herma.integrations.items import scope_of, session_id_of
from herma.memory.entries import join, parse
from herma.safety.scan import scan
from herma.store.files import make_folder, replace_file
from herma.types import Add, Applied, Author, Duplicate, MemoryOp, Origin, Remove, Staged, Who

if TYPE_CHECKING:
    from anthropic.types.beta import (
        BetaMemoryTool20250818CreateCommand,
        BetaMemoryTool20250818DeleteCommand,
        BetaMemoryTool20250818InsertCommand,
        BetaMemoryTool20250818RenameCommand,
        BetaMemoryTool20250818StrReplaceCommand,
        BetaMemoryTool20250818ViewCommand,
    )

    from herma.app import Herma
    from herma.types import Target

ROOT = PurePosixPath("/memories")
CURATED: dict[str, Target] = {"MEMORY.md": "memory", "USER.md": "user"}
MOST_LINES = 999_999
_AROUND = 2
"""Lines shown before and after an edit."""


class HermaMemoryTool(BetaAbstractMemoryTool):
    """Give it to `run_tools` of the Anthropic SDK."""

    def __init__(self, app: Herma, *, user: str | None = None, project: str | None = None) -> None:
        super().__init__()
        self._app = app
        self._scope = scope_of(app, user, project)
        folder = app.home / "notes"
        self._folder = folder / session_id_of("user", user, user) if user else folder

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Show a file with line numbers, or list a folder two levels deep."""
        path = self._path(command.path)
        if path == ROOT or (self._target(path) is None and self._file(path).is_dir()):
            return self._listing(path, command.path)
        lines = self._read(path, command.path).split("\n")
        if len(lines) > MOST_LINES:
            raise ToolError(f"File {command.path} exceeds maximum line limit of 999,999 lines.")
        first, last = map(int, command.view_range or (1, -1))
        last = len(lines) if last == -1 else last
        head = f"Here's the content of {command.path} with line numbers:"
        return "\n".join([head, *_numbered(lines[max(first, 1) - 1 : last], max(first, 1))])

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Make a new file. A curated file that holds nothing counts as new."""
        path = self._path(command.path)
        if self._exists(path):
            raise ToolError(f"File {command.path} already exists")
        note = self._write(path, command.file_text)
        return f"File created successfully at: {command.path}{note}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replace a text that occurs once."""
        path = self._path(command.path)
        text = self._read(path, command.path)
        count = text.count(command.old_str) if command.old_str else 0
        if count == 0:
            raise ToolError(
                f"No replacement was performed, old_str `{command.old_str}` did not appear verbatim in {command.path}."
            )
        if count > 1:
            at = ", ".join(str(number) for number in _lines_with(text, command.old_str))
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{command.old_str}` in lines: {at}. "
                "Please ensure it is unique"
            )
        before = text.index(command.old_str)
        changed = text[:before] + command.new_str + text[before + len(command.old_str) :]
        note = self._write(path, changed)
        line = text[:before].count("\n")
        start = max(0, line - _AROUND)
        shown = _numbered(changed.split("\n")[start : line + _AROUND + 1], start + 1)
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
        return "\n".join([head, *shown]) + note

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert lines behind a line; 0 is the beginning of the file."""
        path = self._path(command.path)
        lines = self._read(path, command.path).splitlines()
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. "
                f"It should be within the range [0, {len(lines)}]."
            )
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        note = self._write(path, "\n".join(lines) + "\n")
        return f"The file {command.path} has been edited.{note}"

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Delete a file or a folder; of a curated file, its entries."""
        path = self._path(command.path)
        if path == ROOT:
            raise ToolError("Cannot delete the /memories directory itself")
        if not self._exists(path):
            raise ToolError(f"The path {command.path} does not exist")
        note = ""
        if target := self._target(path):
            note = self._empty(target)
        elif self._file(path).is_dir():
            shutil.rmtree(self._file(path))
        else:
            self._file(path).unlink()
        return f"Successfully deleted {command.path}{note}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Rename a file or a folder; never over something else."""
        old, new = self._path(command.old_path), self._path(command.new_path)
        if ROOT in (old, new):
            raise ToolError("Cannot rename the /memories directory itself")
        if not self._exists(old):
            raise ToolError(f"The path {command.old_path} does not exist")
        if self._target(old) or self._target(new):
            raise ToolError("MEMORY.md and USER.md keep their names")
        if self._exists(new):
            raise ToolError(f"The destination {command.new_path} already exists")
        make_folder(self._file(new).parent)
        self._file(old).rename(self._file(new))
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    # ── where a path leads ──

    def _path(self, given: str) -> PurePosixPath:
        if given != str(ROOT) and not given.startswith(f"{ROOT}/"):
            raise ToolError(f"Path must start with /memories, got: {given}")
        parts = PurePosixPath(given).relative_to(ROOT).parts
        if ".." in parts or "\0" in given:
            raise ToolError(f"Path {given} would escape /memories directory")
        path = ROOT.joinpath(*parts)
        root = self._folder.resolve()
        if not self._file(path).resolve().is_relative_to(root):
            raise ToolError("Path would escape /memories directory via symlink")
        return path

    def _file(self, path: PurePosixPath) -> Path:
        return self._folder.joinpath(*path.relative_to(ROOT).parts)

    def _target(self, path: PurePosixPath) -> Target | None:
        return CURATED.get(path.name) if path.parent == ROOT else None

    def _exists(self, path: PurePosixPath) -> bool:
        if target := self._target(path):
            return bool(self._app.memory.entries(target, scope=self._scope))
        return self._file(path).exists()

    # ── what is in it ──

    def _read(self, path: PurePosixPath, named: str) -> str:
        if target := self._target(path):
            return join(self._app.memory.entries(target, scope=self._scope))
        file = self._file(path)
        if not file.exists():
            raise ToolError(f"The path {named} does not exist. Please provide a valid path.")
        if not file.is_file():
            raise ToolError(f"The path {named} is not a file.")
        try:
            return file.read_text("utf-8")
        except ValueError as exc:
            raise ToolError(f"The file {named} is not UTF-8 text.") from exc

    def _write(self, path: PurePosixPath, text: str) -> str:
        """Write a file. → what to add to the answer."""
        if target := self._target(path):
            return self._curate(target, text)
        if findings := scan(text):
            raise ToolError(f"The text was refused by the scanner: {findings[0].why}. Nothing was written.")
        file = self._file(path)
        if file.parent.is_file() or any(parent.is_file() for parent in file.parents):
            raise ToolError(f"{path.parent} is a file, not a directory.")
        make_folder(file.parent)
        replace_file(file, text.encode("utf-8", "replace"))
        return ""

    def _curate(self, target: Target, text: str) -> str:
        """Turn a new text of a curated file into one batch of operations."""
        before, after = self._app.memory.entries(target, scope=self._scope), parse(text)
        ops: list[MemoryOp] = [Remove(entry) for entry in before if entry not in after]
        ops += [Add(entry) for entry in after if entry not in before]
        if not ops:
            return ""
        author = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
        outcome = self._app.memory.apply(target, ops, scope=self._scope, author=author)
        match outcome:
            case Applied() | Duplicate():
                return ""
            case Staged():
                return f"\n{outcome.message}"
        raise ToolError(outcome.message)

    def _empty(self, target: Target) -> str:
        """Remove all entries. If a person wrote one of them, propose it: no single call may drop what a person said."""
        entries = self._app.memory.describe(target, scope=self._scope)
        if not any(entry.of_a_person for entry in entries):
            return self._curate(target, "")
        ops = [Remove(entry.text) for entry in entries]
        author = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
        outcome = self._app.memory.propose(target, ops, scope=self._scope, author=author)
        raise ToolError(f"The user wrote some of it, so nothing was deleted yet. {outcome.message}")

    def _listing(self, path: PurePosixPath, named: str) -> str:
        folder = self._file(path)
        named = named.rstrip("/")
        lines = [f"{_size(folder.stat().st_size if folder.exists() else 0)}\t{named}"]
        found = [(name, self._size_of(name, folder)) for name in _below(folder, 2)]
        if path == ROOT:
            curated = [
                (name, len(self._read(ROOT / name, name).encode())) for name in CURATED if self._exists(ROOT / name)
            ]
            found = sorted([*found, *curated])
        lines += [f"{_size(size)}\t{named}/{name}" for name, size in found]
        head = f"Here're the files and directories up to 2 levels deep in {named}, excluding hidden items:"
        return "\n".join([head, *lines])

    @staticmethod
    def _size_of(name: str, folder: Path) -> int:
        return (folder / name).stat().st_size


class HermaAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """Do the same for an `AsyncAnthropic` client, in threads."""

    def __init__(self, app: Herma, *, user: str | None = None, project: str | None = None) -> None:
        super().__init__()
        self._tool = HermaMemoryTool(app, user=user, project=project)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return await asyncio.to_thread(self._tool.view, command)

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return await asyncio.to_thread(self._tool.create, command)

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return await asyncio.to_thread(self._tool.str_replace, command)

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return await asyncio.to_thread(self._tool.insert, command)

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return await asyncio.to_thread(self._tool.delete, command)

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return await asyncio.to_thread(self._tool.rename, command)


def _below(folder: Path, depth: int, prefix: str = "") -> list[str]:
    """Return what is in a folder, sorted by name, folders with a slash and followed by what is in them."""
    names: list[str] = []
    if not folder.is_dir():
        return names
    for one in sorted(folder.iterdir(), key=lambda path: path.name):
        if one.name.startswith(".") or one.is_symlink():
            continue
        if one.is_dir():
            names.append(f"{prefix}{one.name}/")
            if depth > 1:
                names += _below(one, depth - 1, f"{prefix}{one.name}/")
        elif one.is_file():
            names.append(f"{prefix}{one.name}")
    return names


def _numbered(lines: Sequence[str], first: int) -> list[str]:
    return [f"{number:>6}\t{line}" for number, line in enumerate(lines, first)]


def _lines_with(text: str, part: str) -> list[int]:
    """Return the numbers of the lines in which the occurrences of a text begin."""
    found, at = [], text.find(part)
    while at >= 0:
        found.append(text[:at].count("\n") + 1)
        at = text.find(part, at + len(part))
    return found


def _size(count: int) -> str:
    """Return a number of bytes as the SDK prints it: 0B, 15B, 1.5K, 4K."""
    size, unit = float(count), 0
    while size >= 1024 and unit < 3:
        size, unit = size / 1024, unit + 1
    return f"{int(size)}{'BKMG'[unit]}" if size == int(size) else f"{size:.1f}{'BKMG'[unit]}"
