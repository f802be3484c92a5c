"""What a message weighs: its text, and what wraps it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from herma.prompt.tokens import estimate

Count: TypeAlias = Callable[[str], int]

PER_MESSAGE = 4
"""What wraps one message: its role and its borders."""
PER_CALL = 8
"""What wraps one tool call, or one tool definition."""
PER_IMAGE = 1_600
"""An image, flat: about what a large one costs with most providers. Its size in pixels is not known here."""
PER_FILE = 3_000
"""A document or a recording, flat."""

_IMAGES = frozenset({"image", "image_url", "input_image"})
_TEXTS = ("text", "thinking", "refusal", "input_text", "output_text")


def count_message(message: Mapping[str, Any], count: Count = estimate) -> int:
    """Tokens of one OpenAI-style message: content or parts, tool calls, reasoning, and the wrapping."""
    total = PER_MESSAGE + count_content(message.get("content"), count)
    for call in message.get("tool_calls") or ():
        total += PER_CALL + count_call(call, count)
    for key in ("reasoning", "reasoning_content", "name", "tool_call_id"):
        value = message.get(key)
        if isinstance(value, str):
            total += count(value)
    return total


def count_messages(messages: Iterable[Mapping[str, Any]], count: Count = estimate) -> int:
    return sum(count_message(message, count) for message in messages)


def count_content(content: Any, count: Count = estimate) -> int:
    """Tokens of a content value: text, or a list of parts. Bytes of images and files are never counted as text."""
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    if isinstance(content, Mapping):
        return _count_part(content, count)
    if isinstance(content, Iterable):
        return sum(count(part) if isinstance(part, str) else _count_part(part, count) for part in content)
    return count(str(content))


def _count_part(part: Any, count: Count) -> int:
    if not isinstance(part, Mapping):
        return count(str(part))
    kind = part.get("type")
    if kind in _IMAGES:
        return PER_IMAGE
    for key in _TEXTS:
        if isinstance(part.get(key), str):
            return count(part[key])
    if kind == "tool_result":
        return PER_CALL + count_content(part.get("content"), count)
    if kind == "tool_use":
        return PER_CALL + count(plain_json([part.get("name"), part.get("input")]))
    return PER_FILE


def count_call(call: Mapping[str, Any], count: Count = estimate) -> int:
    """Tokens of one tool call: id, name and arguments."""
    function = call.get("function")
    function = function if isinstance(function, Mapping) else call
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else plain_json(arguments)
    return count(str(function.get("name") or "")) + count(text) + count(str(call.get("id") or ""))


def count_tools(tools: Iterable[Mapping[str, Any]], count: Count = estimate) -> int:
    """Tokens of tool definitions, as they are sent with every request."""
    return sum(PER_CALL + count(plain_json(tool)) for tool in tools)


def plain_json(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces, letters as they are. What equality of messages means."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)
