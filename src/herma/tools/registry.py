"""Tools by name: their schemas as the model sees them, and one call that always answers with JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from herma.errors import HermaError, checked
from herma.models.telemetry import TOOL, traced
from herma.transcript.provenance import SeenText
from herma.types import Author, MemoryWrite, Origin, Scope, Target, Who

Json = dict[str, Any]
_HOME = Scope()
_AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)


class Turn:
    """The state of the tools in one turn: how many memory writes failed, and which memory files were full."""

    def __init__(self) -> None:
        self.failures = 0
        self.full: set[Target] = set()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The scope and session of a call, its turn, and what the conversation has seen.

    `written` is called with each change of curated memory that is on disk; `warn` with what a person should know before
    the answer.
    """

    scope: Scope = _HOME
    author: Author = _AGENT
    turn: Turn = field(default_factory=Turn)
    seen: SeenText = field(default_factory=SeenText)
    written: Callable[[MemoryWrite], None] = lambda _: None
    warn: Callable[[str], object] = lambda _: None


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its OpenAI function schema, and what it does with arguments in a context."""

    name: str
    description: str
    parameters: Json
    run: Callable[[Json, ToolContext], Json]
    hidden: bool = False
    """Another name of a tool: it can be called, and the model is not shown it."""

    @property
    def schema(self) -> Json:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@checked("name", "arguments")
class Tools:
    """The tools of one opened Herma."""

    def __init__(self, tools: Sequence[Tool], ensure_open: Callable[[], None] = lambda: None) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._ensure_open = ensure_open

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def including(self, tools: Sequence[Tool]) -> Tools:
        """Return these tools and some more; a tool whose name is taken is left out."""
        own = list(self._tools.values())
        return Tools([*own, *(tool for tool in tools if tool.name not in self._tools)], self._ensure_open)

    def without(self, names: Collection[str]) -> Tools:
        """Return the tools that do not have these names."""
        return Tools([tool for tool in self._tools.values() if tool.name not in names], self._ensure_open)

    def schemas(self) -> list[Json]:
        """Return the OpenAI function schemas in a fixed order: they are part of the cached prefix."""
        return [json.loads(json.dumps(tool.schema)) for tool in self._tools.values() if not tool.hidden]

    @traced("execute_tool", lambda self, name, *_, **__: {TOOL: name if name in self.names() else "unknown"})
    def call(self, name: str, arguments: Mapping[str, Any] | str, context: ToolContext | None = None) -> str:
        """Run a tool. Return JSON, also for bad arguments and store errors.

        Models send arguments as a JSON string. Without a context, the call is a turn of its own.
        """
        self._ensure_open()
        tool = self._tools.get(name)
        if tool is None:
            return dump({"error": f"There is no tool {name!r}. Known: {', '.join(self._tools)}."})
        try:
            given = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError) as exc:
            return dump({"success": False, "error": f"The arguments are not valid JSON: {exc}."})
        if not isinstance(given, Mapping):
            return dump({"success": False, "error": "The arguments must be a JSON object."})
        try:
            return dump(tool.run(dict(given), context or ToolContext()))
        except HermaError as exc:
            return dump({"success": False, "error": str(exc), **({"hint": exc.hint} if exc.hint else {})})


def dump(value: Json) -> str:
    """Return JSON for the model: text is not escaped; lone surrogates, which cannot be encoded, are replaced."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode("utf-8")
