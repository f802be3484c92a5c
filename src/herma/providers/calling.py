"""How a provider is called: with what it takes, and in the shapes that its method names promise. Pure."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from herma.prompt.context import is_injection
from herma.safety.scan import scan
from herma.types import Add, Content, MemoryOp, MemoryWrite, Message, Remove, SessionView

Json = dict[str, Any]


def accepted(method: Callable[..., Any], named: Mapping[str, Any]) -> Json:
    """Those of the named arguments that a method takes: older ones know fewer."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, or by somebody who overrides this too
        return dict(named)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(named)
    taken = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in named.items() if name in taken}


def circumstances(view: SessionView, *, home: str, profile: str) -> Json:
    """Where and for whom a session takes place, as `initialize` is told it."""
    info, around = view.info, view.circumstances
    return {
        "platform": around.platform or info.source,
        "source": info.source,
        "hermes_home": home,
        "agent_context": around.context,
        "agent_identity": info.scope.profile or profile,
        "agent_workspace": "herma",
        "user_id": info.scope.user,
        "user_name": around.user_name,
        "chat_id": info.scope.chat,
        "chat_type": around.chat_type,
        "thread_id": around.thread,
        "parent_session_id": info.parent or "",
        "session_title": info.title or "",
        "system_message": around.system_message,
        "project": info.scope.project,
        "folder": view.folder,
        "model": view.model,
    }


def plain(messages: Iterable[Message]) -> list[Json]:
    """Messages as models speak them, as they were said: without anything that was recalled into them."""
    return [_plain(message) for message in messages]


def mirrored(write: MemoryWrite, view: SessionView) -> list[tuple[str, str, str, Json]]:
    """Action, target, content and metadata of each operation of a write."""
    metadata = {
        "write_origin": "assistant_tool",
        "execution_context": "foreground",
        "session_id": view.id,
        "parent_session_id": view.info.parent or "",
        "platform": view.circumstances.platform or view.info.source,
        "tool_name": "memory",
        "project": write.scope.project,
    }
    return [
        (_action(op), write.target, getattr(op, "content", ""), _filled({**metadata, "old_text": _old_text(op)}))
        for op in write.operations
    ]


def tool_schemas(given: object) -> tuple[list[Json], list[str]]:
    """Schemas as `Tool` takes them, unwrapped, each name once; and what is wrong with the others."""
    found: dict[str, Json] = {}
    wrong: list[str] = []
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [], [f"its tools are {type(given).__name__}, not a list"]
    for schema in given:
        inner = schema.get("function", schema) if isinstance(schema, Mapping) else {}
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or not name.isascii() or not name.replace("_", "").replace("-", "").isalnum():
            wrong.append("a tool has no name that models accept")
        elif name in found:
            wrong.append(f"it has two tools called {name}")
        else:
            parameters = inner.get("parameters")
            made = {
                "name": name,
                "description": str(inner.get("description", "")),
                "parameters": dict(parameters) if isinstance(parameters, Mapping) else dict(_NO_PARAMETERS),
            }
            objection = _objection(made)
            if objection:
                wrong.append(f"its tool {name} is refused: {objection}")
            else:
                found[name] = made
    return list(found.values()), wrong


def _objection(schema: Json) -> str:
    """Why the model must not be shown a tool: its schema is text from outside, and part of every request."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "its schema is not JSON"
    if len(text) > LONGEST_SCHEMA:
        return f"its schema has {len(text):,} characters"
    rules = dict.fromkeys(finding.rule for finding in scan(text) if is_injection(finding))
    return f"the scanner objects ({', '.join(rules)})" if rules else ""


_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
LONGEST_SCHEMA = 20_000
"""Characters that the schema of one tool may have."""


def tool_answer(text: object) -> Json:
    """What a tool of a provider said, as our tools answer."""
    try:
        value = json.loads(text if isinstance(text, str) else json.dumps(text, default=repr))
    except (TypeError, ValueError, RecursionError):
        value = text if isinstance(text, str) else f"an answer that is no text: {type(text).__name__}"
    return value if isinstance(value, dict) else {"result": value}


def text_of(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def _plain(message: Message) -> Json:
    value: Json = {"role": message.role, "content": message.content if message.content is not None else ""}
    if message.tool_calls:
        value["tool_calls"] = [dict(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.tool_name is not None:
        value["name"] = message.tool_name
    return value


def _action(op: MemoryOp) -> str:
    return "add" if isinstance(op, Add) else "remove" if isinstance(op, Remove) else "replace"


def _old_text(op: MemoryOp) -> str:
    return "" if isinstance(op, Add) else op.old_text


def _filled(values: Json) -> Json:
    return {name: value for name, value in values.items() if value}
