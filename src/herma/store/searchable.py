"""What a message has to offer to a search: its text, and the names and arguments of the tools it calls."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from herma.safety.noise import without_noise
from herma.types import Content

DEEPEST = 20
"""How deep arguments are looked into."""


def searchable_text(content: Content, tool_calls: Sequence[Mapping[str, Any]], tool_name: str | None) -> str:
    """One text for the index: what was said, then tool names, then what the tools were given."""
    pieces = [*_said(content), tool_name or "", *_called(tool_calls)]
    return without_noise("\n".join(piece for piece in pieces if piece))


def _said(content: Content) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        for key in ("text", "input_text", "output_text", "refusal", "transcript"):
            if isinstance(part.get(key), str):
                yield part[key]


def _called(tool_calls: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for call in tool_calls:
        for of in (call.get("function"), call):
            if isinstance(of, Mapping):
                yield str(of.get("name") or "")
                yield from _given(of.get("arguments", of.get("input")))


def _given(arguments: object) -> Iterator[str]:
    """Names and values, read out of the JSON text: a search is for what was meant, not for how it was escaped."""
    if isinstance(arguments, str):
        try:
            yield from _words(json.loads(arguments), 0)
        except (ValueError, RecursionError):
            yield arguments
    else:
        yield from _words(arguments, 0)


def _words(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None or depth > DEEPEST:
        return
    elif isinstance(value, int | float):
        yield str(value)
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield str(name)
            yield from _words(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            yield from _words(inner, depth + 1)
