"""One session: what the model is shown at its start, and what it may call while it runs.

Everything in `system_prompt` and `tools` is fixed when the session opens, so that the model's cache of it stays warm.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from herma.curated import MemoryStore
from herma.errors import UsageError
from herma.tools import Tools
from herma.tools.registry import Json, ToolContext
from herma.types import Author, Origin, Scope, Snapshot, Who


class Session:
    """Opened by `Herma.session()`; a context manager."""

    def __init__(self, memory: MemoryStore, tools: Tools, *, source: str, scope: Scope, now: float) -> None:
        self.id = new_session_id(now)
        self.source = source
        self.scope = scope
        self.snapshot: Snapshot = memory.load(scope)
        self.system_prompt: str = self.snapshot.text
        self.tools: list[Json] = tools.schemas()
        self._registry = tools
        self._context = ToolContext(scope, Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=self.id))
        self._open = True

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person should know: files that could not be read, entries that were withheld."""
        return self.snapshot.warnings

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run a tool for the model. → a JSON string; a write is on disk before this returns."""
        if not self._open:
            raise UsageError("This session is closed.", hint="Open a new one: Herma.session().")
        return self._registry.call(name, arguments, self._context)

    def heard(self, text: str, origin: Origin = Origin.TOOL_OUTPUT) -> None:
        """Tell the session that the model was shown text from outside:

        what it repeats of it waits for a person's decision.
        """
        self._context.turn.outside.append((text, origin))

    def close(self) -> None:
        self._open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def new_session_id(now: float) -> str:
    """Readable, sorted by time, unique: 20261231_235959_1a2b3c4d."""
    return f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}_{secrets.token_hex(4)}"
