"""What callers hand to a session and get from it: checked, cleaned, and copied so that ours stays as it was. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from herma.errors import UsageError
from herma.prompt.fence import NOTES, sanitize
from herma.prompt.results import compress_result, digest
from herma.transcript.replay import as_sent, with_addition
from herma.transcript.wire import text_of
from herma.turn.account import recalled_in
from herma.types import Content, Message


def replies_of(reply: Any) -> list[Mapping[str, Any]]:
    """A reply as messages."""
    if isinstance(reply, str):
        return [{"role": "assistant", "content": reply}]
    if isinstance(reply, Mapping):
        return [reply]
    if not isinstance(reply, Iterable):
        raise UsageError(
            f"A reply is text or messages, not {type(reply).__name__}.",
            hint='A model that only calls tools: after_model({"role": "assistant", "tool_calls": […]}).',
        )
    return list(reply)


def user_content(given: object) -> Content:
    """What the user says, without any fence: recalled text is never taken for something that was said."""
    if isinstance(given, str):
        return cleaned(given)
    if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
        raise UsageError("A user's message is text, or a list of parts.", hint='For example: "Why?"')
    return cleaned(given)


def as_kept(message: Message, limit: int, seen: dict[str, str]) -> Message:
    """What came back as it is kept: of a tool's result, the model gets the short form again and again.

    The whole of it is in the transcript. `seen` are results that came before, by their digests; it grows.
    """
    if message.role != "tool" or not isinstance(message.content, str) or message.sent is not None:
        return replace(message, content=cleaned(message.content)) if message.role == "assistant" else message
    call_id = message.tool_call_id
    short = compress_result(message.content, limit_tokens=limit, reference=call_id, seen=seen)
    if call_id:
        seen.setdefault(digest(message.content), call_id)
    return replace(message, sent=short.text) if short.text != message.content else message


def handed_out(message: Message) -> dict[str, Any]:
    """The message as it is sent, for a caller who may change it: ours stays as it was."""
    return {key: _copied(value) for key, value in as_sent(message).items()}


def cleaned(content: Content) -> Content:
    """What came back or in, without any fence."""
    if isinstance(content, list):
        return [
            {**part, "text": sanitize(part["text"])} if isinstance(part.get("text"), str) else part for part in content
        ]
    return sanitize(content) if content is not None else None


def afresh(messages: Sequence[Message], told: str) -> list[Message]:
    """Messages as a conversation begins with them that stands for another one.

    Updates of memory that were put into them are left out: the prompt that goes before them now holds what is current,
    and `told` says so.
    """
    return [_afresh(message, told) for message in messages]


def tells_of_changes(messages: Iterable[Message]) -> bool:
    """Whether the model was told of a change of memory in one of them: a prompt built anew does not take that back."""
    return any(NOTES["update"] in text_of(message.sent) for message in messages if message.sent is not None)


def shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages both begin with, as they are sent."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if as_sent(old) != as_sent(new):
            return at
    return min(len(before), len(after))


def _afresh(message: Message, told: str) -> Message:
    message = replace(message, id=0, session_id="", hidden="", told=told)
    if message.sent is None:
        return replace(message, content=cleaned(message.content)) if message.role != "tool" else message
    if message.role != "user":
        return message
    sent = with_addition(message.content, recalled_in(message.sent))
    if sent == message.sent:
        return message
    return replace(message, sent=sent if sent != message.content else None, tokens=None)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
