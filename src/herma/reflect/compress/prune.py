"""Old tool results, shortened further: the cheapest way to make room, and often enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from herma.prompt.results import compress_result, digest
from herma.types import Message

SHORT = 80
"""Tokens that an old result may take."""


def prune(messages: Sequence[Message], keep: int, count: Callable[[str], int], *, limit: int = SHORT) -> list[Message]:
    """The conversation with the tool results before `messages[keep]` shortened; identical ones become references.

    The transcript has them in full, and each placeholder says how to get it.
    """
    seen: dict[str, str] = {}
    pruned: list[Message] = []
    for at, message in enumerate(messages):
        text = message.content
        if at >= keep or message.role != "tool" or not isinstance(text, str):
            pruned.append(message)
            continue
        short = compress_result(text, limit_tokens=limit, reference=message.tool_call_id, seen=seen, count=count)
        if message.tool_call_id:
            seen.setdefault(digest(text), message.tool_call_id)
        now = message.sent if isinstance(message.sent, str) else text
        pruned.append(replace(message, sent=short.text, tokens=None) if len(short.text) < len(now) else message)
    return pruned
