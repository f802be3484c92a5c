"""Tools by name: their schemas as the model sees them, and one call that always answers with JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from herma.errors import HermaError
from herma.memory.store import Heard
from herma.types import Author, MemoryWrite, Origin, Scope, Who

Json = dict[str, Any]

_HOME = Scope()
_AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)


@dataclass(slots=True)
class Turn:
    """What one turn knows while it runs: how often a write did not fit."""

    failures: int = 0


@dataclass(frozen=True, slots=True)
class ToolContext:
    """For whom a tool is called: scope and session, the turn it belongs to, and what the conversation was told."""

    scope: Scope = _HOME
    author: Author = _AGENT
    turn: Turn = field(default_factory=Turn)
    heard: Heard = field(default_factory=Heard)
    written: Callable[[MemoryWrite], None] = lambda _: None
    """Told of each change of curated memory, once it is on disk."""


Run: TypeAlias = Callable[[Json, ToolContext], Json]
"""What a tool does: arguments, and for whom → its answer."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: its OpenAI function schema and what it does."""

    name: str
    description: str
    parameters: Json
    run: Run

    @property
    def schema(self) -> Json:
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class Tools:
    """The tools of one opened Herma."""

    def __init__(self, tools: Sequence[Tool], alive: Callable[[], None] = lambda: None) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._alive = alive

    def names(self) -> tuple[str, ...]:
        return tuple(self._tools)

    def including(self, tools: Sequence[Tool]) -> Tools:
        """These and some more; a name that is taken stays with whom it belongs to."""
        own = list(self._tools.values())
        return Tools([*own, *(tool for tool in tools if tool.name not in self._tools)], self._alive)

    def schemas(self) -> list[Json]:
        """OpenAI function schemas, in a fixed order: they are part of the prefix that the model's cache keeps."""
        return [json.loads(json.dumps(tool.schema)) for tool in self._tools.values()]

    def call(self, name: str, arguments: Mapping[str, Any] | str, context: ToolContext | None = None) -> str:
        """Run a tool.

        → a JSON string, also for bad arguments and for stores that fail. Without a context one call is one
        turn.
        """
        self._alive()
        tool = self._tools.get(name)
        if tool is None:
            return dump({"error": f"There is no tool {name!r}. Known: {', '.join(self._tools)}."})
        parsed = _parse(arguments)
        if isinstance(parsed, str):
            return dump({"success": False, "error": parsed})
        try:
            return dump(tool.run(parsed, context or ToolContext()))
        except HermaError as exc:
            return dump({"success": False, "error": str(exc), **({"hint": exc.hint} if exc.hint else {})})


def dump(value: Json) -> str:
    """JSON as the model reads it: text unescaped, halves of surrogate pairs replaced because they are not text."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode("utf-8")
    return text


def _parse(arguments: object) -> Json | str:
    """Arguments as a mapping; models send them as a JSON string."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError) as exc:
            return f"The arguments are not valid JSON: {exc}."
    if not isinstance(arguments, Mapping):
        return "The arguments must be a JSON object."
    return dict(arguments)
