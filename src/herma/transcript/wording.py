"""Messages in words, for people: what is no text is named with its size."""

from __future__ import annotations

import json
from typing import Any

from herma.transcript.wire import text_of
from herma.types import Content


def words_of(content: Content) -> str:
    """The text of a content, its other parts by name."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(_part(part) for part in content)


def called(call: dict[str, Any], indent: int | None = None) -> tuple[str, str]:
    """Name and arguments of a tool call, whatever its shape."""
    function = call.get("function")
    inner = function if isinstance(function, dict) else call
    name, arguments = inner.get("name"), inner.get("arguments", inner.get("input"))
    if not isinstance(name, str):
        return "a tool", json.dumps(call, ensure_ascii=False, indent=indent)
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False, indent=indent)
    return name, arguments


def _part(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    size = len(json.dumps(part, ensure_ascii=False))
    return f"[{part.get('type') or 'part'}: {size:,} characters]"
