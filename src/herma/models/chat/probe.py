"""Trying a model out with two tiny questions: whether it answers, in pieces, how fast, and whether it calls tools."""

from __future__ import annotations

from dataclasses import dataclass

from herma.errors import ModelError
from herma.ports import ChatModel
from herma.types import Reply, Usage

_HELLO = [{"role": "user", "content": "Count from one to ten in words, and say nothing else."}]
_ASK = [{"role": "user", "content": "What is the time? Use the tool, and say nothing else."}]
_TOOL = {
    "type": "function",
    "function": {
        "name": "current_time",
        "description": "The time of day.",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "description": "A time zone."}}},
    },
}
_ANSWER_TOKENS = 200
"""Enough for a model that thinks before it speaks."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it. `tools` is `None` where nothing was learnt about them."""

    name: str
    reachable: bool
    answered_as: str = ""
    pieces: int = 0
    first_text: float | None = None
    seconds: float = 0.0
    usage: Usage | None = None
    tools: bool | None = None
    tools_error: str = ""
    error: str = ""
    hint: str = ""

    @property
    def streams(self) -> bool:
        return self.pieces > 1


def probe(model: ChatModel, *, deadline: float = 60.0) -> Probe:
    """Ask twice, each within the deadline. Never raises for what the model does."""
    pieces: list[str] = []
    try:
        hello = model.reply(_HELLO, max_tokens=_ANSWER_TOKENS, deadline=deadline, on_text=pieces.append)
    except ModelError as exc:
        return Probe(model.name, False, error=str(exc), hint=exc.hint)
    try:
        asked: Reply | None = model.reply(_ASK, tools=[_TOOL], max_tokens=_ANSWER_TOKENS, deadline=deadline)
        tools_error = ""
    except ModelError as exc:
        asked, tools_error = None, str(exc)
    return Probe(
        name=model.name,
        reachable=True,
        answered_as=hello.model,
        pieces=len(pieces),
        first_text=hello.first_text,
        seconds=hello.seconds,
        usage=hello.usage if hello.measured else None,
        tools=asked is not None and any(call.name == "current_time" for call in asked.tool_calls),
        tools_error=tools_error,
    )
