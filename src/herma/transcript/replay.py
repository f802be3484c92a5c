"""A stored conversation as it was sent to the model, byte for byte. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from herma.transcript.wire import to_wire
from herma.types import Content, Message

INTERRUPTED = "interrupted"
"""The `finish_reason` of a reply that was cut off."""


def as_sent(message: Message) -> dict[str, Any]:
    """The message as the model got it: what was injected into it is part of it for good."""
    wire = to_wire(message)
    if message.sent is not None:
        wire["content"] = message.sent
    return wire


def with_addition(content: Content, addition: str) -> Content:
    """The content with text at its end, where it costs no cache."""
    if not addition:
        return content
    if isinstance(content, list):
        return [*content, {"type": "text", "text": addition}]
    return f"{content}\n\n{addition}" if content else addition


def sendable(messages: Iterable[Message]) -> list[Message]:
    """Messages that a model accepts: the results of tools right behind the call that they answer, and none without it.

    Two programs that go on with one session may leave a result behind that came after its turn was closed, speak while
    a tool of the other runs, or end before it has answered: a call that was never answered is left out, unless it is
    the last thing that was said.
    """
    groups: list[tuple[list[Message], set[str]]] = []  # a message with the results it got, and what it still waits for
    waiting: dict[str, tuple[list[Message], set[str]]] = {}
    for message in messages:
        if message.role != "tool":
            calls = {str(call.get("id", "")) for call in message.tool_calls}
            groups.append(([message], calls))
            waiting |= dict.fromkeys(calls, groups[-1])
        elif asked := waiting.pop(message.tool_call_id or "", None):
            asked[0].append(message)
            asked[1].discard(message.tool_call_id or "")
    kept = [group for group, open_calls in groups[:-1] if not open_calls]
    return [message for group in (*kept, *(group for group, _ in groups[-1:])) for message in group]


def unanswered(messages: Sequence[Message]) -> list[str]:
    """Tool calls at the end of a conversation that have no result: models refuse a request that leaves them open."""
    answered: set[str] = set()
    for message in reversed(messages):
        if message.role == "tool" and message.tool_call_id:
            answered.add(message.tool_call_id)
        elif message.role == "assistant":
            return [call_id for call in message.tool_calls if (call_id := str(call.get("id", ""))) not in answered]
        else:
            return []
    return []


def is_complete(messages: Iterable[Message]) -> bool:
    """Whether the last turn ended with a reply that asks for no tool."""
    last = None
    for last in messages:  # noqa: B007  the last one is wanted
        pass
    return last is not None and last.role == "assistant" and not last.tool_calls
