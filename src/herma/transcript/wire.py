"""Messages as models speak them (OpenAI-style dictionaries) and as they are kept.

Back and forth is exact: every field that has no place of its own, or whose value its place cannot hold, stays in
`extra` as it was.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from herma.errors import UsageError
from herma.types import Content, Hidden, Message

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
KEPT = ("sent", "told", "tokens", "finish_reason", "reasoning", "tool_name")
"""Fields that have the same name and value here and there, besides those that models read."""
MOST = 2**53
"""Larger numbers are no time and no count."""
PREVIEW = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = get_args(Hidden)
_PLACED = ("role", "content", "tool_calls", "tool_call_id", "timestamp", *KEPT)
_TEXTS = ("tool_call_id", "tool_name", "reasoning", "told", "finish_reason")


def from_wire(given: Mapping[str, Any] | Message, now: float = 0.0) -> Message:
    """A message to keep, of the present time if it has none. ValueError, in a few words, for what cannot be one."""
    if isinstance(given, Message):
        message = given
    elif isinstance(given, Mapping):
        message = _from_mapping(given, now)
    else:
        raise ValueError(f"is {_kind(given)}, not a message")  # noqa: TRY004  one kind of error for all that is wrong
    _check(message)
    return _clean(message, now)


def to_wire(message: Message, *, kept: bool = False) -> dict[str, Any]:
    """The dictionary it came from; `kept` adds what only we care for (timestamp, sent, told, tokens, …)."""
    wire: dict[str, Any] = {"role": message.role}
    if message.content is not None:
        wire["content"] = message.content
    if message.tool_calls:
        wire["tool_calls"] = list(message.tool_calls)
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if kept:
        wire |= {name: value for name in KEPT if (value := getattr(message, name)) is not None}
        wire["timestamp"] = message.timestamp
    return wire | {name: value for name, value in message.extra.items() if name not in wire}


def all_from_wire(messages: Sequence[Mapping[str, Any] | Message], now: float) -> list[Message]:
    """Messages to keep, each with a time. `UsageError` that names the first one that cannot be kept."""
    if isinstance(messages, Mapping | Message | str | bytes):
        raise UsageError("append takes a list of messages, not one.", hint="Put it into a list.")
    if not isinstance(messages, list) and not isinstance(messages, Iterable):
        raise UsageError(
            f"append takes a list of messages, not {_kind(messages)}.",
            hint='For example: [{"role": "user", "content": "…"}].',
        )
    converted = []
    for index, given in enumerate(messages):
        try:
            converted.append(from_wire(given, now))
        except ValueError as exc:
            raise UsageError(
                f"Message {index} {exc}; nothing was written.",
                hint='A message looks like {"role": "user", "content": "…"}.',
            ) from exc
    return converted


def text_of(content: Content) -> str:
    """The words of a content: itself, or the text of its parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def preview_of(messages: Sequence[Message]) -> str:
    """The first words of the first thing the user said. What a summary stands for was said all the same."""
    for message in messages:
        if message.role == "user" and message.hidden != "rewound":
            words = " ".join(text_of(message.content)[: 8 * PREVIEW].replace("\0", " ").split())
            if words:
                return words if len(words) <= PREVIEW else words[: PREVIEW - 1].rstrip() + "…"
    return ""


def _from_mapping(given: Mapping[str, Any], now: float) -> Message:
    if not all(isinstance(name, str) for name in given):
        raise ValueError("has a field whose name is not text")
    fields: dict[str, Any] = {}
    extra = dict(given)
    for name in ("content", "tool_call_id", *KEPT):
        if extra.get(name) is not None:
            fields[name] = extra.pop(name)
    if extra.get("tool_calls"):
        fields["tool_calls"] = _calls(extra.pop("tool_calls"))
    if "tool_name" not in fields and given.get("role") in ("tool", "function") and isinstance(extra.get("name"), str):
        fields["tool_name"] = extra["name"]
    timestamp = extra.pop("timestamp", None)
    return Message(
        role=extra.pop("role", None), timestamp=now if timestamp is None else timestamp, extra=extra, **fields
    )


def _calls(calls: object) -> tuple[dict[str, Any], ...]:
    if not isinstance(calls, list | tuple) or not all(isinstance(call, dict) for call in calls):
        raise ValueError("has tool_calls that are not a list of objects")
    return tuple(calls)


def _check(message: Message) -> None:
    if not isinstance(message.role, str) or message.role not in ROLES:
        raise ValueError(f"has the role {message.role!r}, not one of {', '.join(sorted(ROLES))}")
    for name in ("content", "sent"):
        _check_content(name, getattr(message, name))
    if message.tool_calls != ():
        _calls(message.tool_calls)
    if message.extra != {}:
        _check_extra(message.extra)
    if message.hidden not in _HIDDEN:
        raise ValueError(f"is hidden as {message.hidden!r:.40}, not as rewound or compacted")
    for name in _TEXTS:
        value = getattr(message, name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"has a {name} that is {_kind(value)}, not text")
    if not _is_number(message.timestamp):
        raise ValueError(f"has the timestamp {message.timestamp!r}, not seconds since 1970")
    if message.tokens is not None and not (_is_number(message.tokens) and isinstance(message.tokens, int)):
        raise ValueError(f"has tokens that are {_kind(message.tokens)}, not a whole number")


def _check_extra(extra: object) -> None:
    if not isinstance(extra, Mapping) or not all(isinstance(name, str) for name in extra):
        raise ValueError("has extra fields that are not named by text")
    for name in _PLACED:
        if extra.get(name):  # it would be sent, and neither shown nor searched nor scanned
            raise ValueError(f"has {name} among its extra fields, which has a place of its own")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _check_content(name: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError(f"has a {name} that is {_kind(content)}, neither text nor a list of parts")


def _clean(message: Message, now: float) -> Message:
    """The same with lone surrogates replaced and nothing in it that JSON cannot hold."""
    changes: dict[str, Any] = {
        name: _SURROGATE.sub("\ufffd", value)
        for name in ("content", "sent", *_TEXTS)
        if isinstance(value := getattr(message, name), str) and not value.isascii()
    }
    structures: dict[str, Any] = {
        name: _through_json(name, dict(value) if name == "extra" else value)
        for name in ("content", "sent", "tool_calls", "extra")
        if (value := getattr(message, name)) and not isinstance(value, str)
    }
    if "tool_calls" in structures:
        structures["tool_calls"] = tuple(structures["tool_calls"])
    if not message.timestamp or type(message.timestamp) is not float:
        changes["timestamp"] = float(message.timestamp or now)
    return replace(message, **changes, **structures) if changes or structures else message


def _through_json(name: str, value: Any) -> Any:
    """A copy that nobody else can change, as it will be read again."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"has {name} that JSON cannot hold ({exc})") from exc
    return json.loads(_SURROGATE.sub("\ufffd", text))


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
