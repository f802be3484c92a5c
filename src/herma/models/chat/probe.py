"""Trying a model out with three tiny questions: whether it answers, in pieces, how fast, whether it calls tools, and
whether it keeps to a form, as background work wants it.
"""

from __future__ import annotations

import json
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
_FORM = [{"role": "user", "content": 'Name two colours. Answer with JSON alone: {"colours": ["...", "..."]}'}]
_SHAPE = {
    "type": "object",
    "properties": {"colours": {"type": "array", "items": {"type": "string"}}},
    "required": ["colours"],
    "additionalProperties": False,
}
_ANSWER_TOKENS = 200
"""Enough for a model that thinks before it speaks."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it. `tools` and `form` are `None` where nothing was learnt about them."""

    name: str
    reachable: bool
    answered_as: str = ""
    pieces: int = 0
    first_text: float | None = None
    seconds: float = 0.0
    usage: Usage | None = None
    tools: bool | None = None
    tools_error: str = ""
    form: bool | None = None
    """Whether it answers with JSON of a given shape."""
    form_error: str = ""
    error: str = ""
    hint: str = ""

    @property
    def streams(self) -> bool:
        return self.pieces > 1


def probe(model: ChatModel, *, deadline: float = 60.0) -> Probe:
    """Ask three times, each within the deadline. Never raises for what the model does."""
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
    form, form_error = _keeps_to_a_form(model, deadline)
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
        form=form,
        form_error=form_error,
    )


def _keeps_to_a_form(model: ChatModel, deadline: float) -> tuple[bool, str]:
    try:
        text = model.reply(_FORM, max_tokens=_ANSWER_TOKENS, deadline=deadline, json_schema=_SHAPE).text
    except ModelError as exc:
        return False, str(exc)
    try:
        value = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return False, ""
    return isinstance(value, dict) and isinstance(value.get("colours"), list), ""
