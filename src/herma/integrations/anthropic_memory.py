"""Anthropic memory tool (`memory_20250818`): its commands on curated memory and on notes in the home.

    from herma.integrations.anthropic_memory import HermaMemoryTool

    client.beta.messages.tool_runner(model=…, messages=…, tools=[HermaMemoryTool(h)]).until_done()

`/memories/MEMORY.md` and `/memories/USER.md` are curated memory: an edit is scanned, keeps the limits, has a row in
`herma log` and an undo, and what a person wrote changes only with the person's yes. Every other path is a file below
`notes/memories/` in the home; its text is scanned too.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from anthropic.lib.tools import ToolError
from anthropic.tools.memory import BetaAsyncLocalFilesystemMemoryTool, BetaLocalFilesystemMemoryTool

from herma.integrations.items import scope_of, session_id_of
from herma.memory.entries import join, parse
from herma.safety.scan import scan
from herma.store.files import exclusive, make_folder, replace_file
from herma.types import Add, Applied, Author, Duplicate, MemoryOp, Origin, Remove, Replace, Staged, Who

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anthropic.lib.tools import BetaFunctionToolResultType
    from anthropic.types.beta import BetaMemoryTool20250818Command

    from herma.app import Herma
    from herma.types import Target

CURATED: dict[str, Target] = {"MEMORY.md": "memory", "USER.md": "user"}
_AUTHOR = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
_LOCK_WAIT = 30.0


class HermaMemoryTool(BetaLocalFilesystemMemoryTool):
    """Give it to `tool_runner` of the Anthropic SDK.

    The SDK's own class works on the files. The curated ones are among them while a command runs; what a command made of
    them is then written to curated memory, or refused.
    """

    def __init__(self, app: Herma, *, user: str | None = None, project: str | None = None) -> None:
        folder = app.home / "notes"
        super().__init__(str(folder / session_id_of("user", user, user) if user else folder))
        self._app = app
        self._scope = scope_of(app, user, project)

    def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        """Carry out a command. Raise `ToolError` if it is refused; then nothing has changed."""
        try:
            command.to_json()  # ValueError for half a surrogate pair
            with self._curated() as files:
                if command.command == "rename":
                    if {self._validate_path(command.old_path), self._validate_path(command.new_path)} & set(files):
                        raise ToolError("MEMORY.md and USER.md keep their names")
                    return super().execute(command)
                file = self._validate_path(command.path)
                before = file.read_bytes() if file.is_file() else None
                answer = str(super().execute(command))
                if command.command == "view":
                    if file not in files and before is not None and (found := scan(before.decode("utf-8", "replace"))):
                        raise ToolError(f"The file is withheld by the scanner: {found[0].why}.")
                    return answer
                if file in files:
                    return answer + self._curate(files[file], file.read_text("utf-8") if file.exists() else "")
                self._check(file, before)
                return answer
        except ValueError as exc:  # a path or a text that no file can have
            raise ToolError(str(exc)) from exc
        except OSError as exc:
            raise ToolError(f"The file system refused it: {exc.strerror or exc}.") from exc

    @contextmanager
    def _curated(self) -> Iterator[dict[Path, Target]]:
        """Show curated memory as files, alone among the programs of this home. A file without entries is not there."""
        files = {self.memory_root.resolve() / name: target for name, target in CURATED.items()}
        make_folder(self._app.home / "locks")
        with exclusive(self._app.home / "locks" / "notes.lock", _LOCK_WAIT):
            try:
                for file, target in files.items():
                    file.unlink(missing_ok=True)
                    if entries := self._app.memory.entries(target, scope=self._scope):
                        replace_file(file, join(entries).encode())
                yield files
            finally:
                for file in files:
                    file.unlink(missing_ok=True)

    def _check(self, file: Path, before: bytes | None) -> None:
        """Take a change of a file back if the scanner refuses it."""
        if not file.is_file() or not (findings := scan(file.read_text("utf-8", "replace"))):
            return
        if before is None:
            file.unlink()
        else:
            replace_file(file, before)
        raise ToolError(f"The text was refused by the scanner: {findings[0].why}. Nothing was written.")

    def _curate(self, target: Target, text: str) -> str:
        """Turn a new text of a curated file into one batch of operations. → what to add to the answer."""
        before, after = self._app.memory.entries(target, scope=self._scope), parse(text)
        if not text and any(entry.of_a_person for entry in self._app.memory.describe(target, scope=self._scope)):
            # No single call may drop what a person said.
            outcome = self._app.memory.propose(target, list(map(Remove, before)), scope=self._scope, author=_AUTHOR)
            raise ToolError(f"The user wrote some of it, so nothing was deleted yet. {outcome.message}")
        gone, new = [one for one in before if one not in after], [one for one in after if one not in before]
        both = min(len(gone), len(new))
        ops: list[MemoryOp] = list(map(Replace, gone, new))
        ops += [*map(Remove, gone[both:]), *map(Add, new[both:])]
        if not ops:
            return ""
        outcome = self._app.memory.apply(target, ops, scope=self._scope, author=_AUTHOR)
        if not isinstance(outcome, Applied | Duplicate | Staged):
            raise ToolError(outcome.message)
        announced = isinstance(outcome, Staged) or (isinstance(outcome, Applied) and outcome.freed)
        return f"\n{outcome.message}" if announced else ""


class HermaAsyncMemoryTool(BetaAsyncLocalFilesystemMemoryTool):
    """Do the same for an `AsyncAnthropic` client, in threads."""

    def __init__(self, app: Herma, *, user: str | None = None, project: str | None = None) -> None:
        self._tool = HermaMemoryTool(app, user=user, project=project)
        super().__init__(str(self._tool.base_path))

    async def execute(self, command: BetaMemoryTool20250818Command) -> BetaFunctionToolResultType:
        return await asyncio.to_thread(self._tool.execute, command)
