"""Message ↔ wire format, replay, validation of what callers give."""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast, get_args

from herma.errors import UsageError
from herma.safety.scan import without_noise
from herma.types import Content, Hidden, Message, Reason, SessionFilter, SessionInfo, Usage, Whereabouts

# ---------- transcript.wire
#
# Messages as models speak them (OpenAI-style dictionaries) and as they are kept.
#
# Back and forth is exact: every field that has no place of its own, or whose value its place cannot hold, stays in
# `extra` as it was.

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


# ---------- transcript.replay
#
# A stored conversation as it was sent to the model, byte for byte. Pure.

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


# ---------- transcript.given
#
# What callers hand to transcripts, checked at the door: what cannot be meant is one sentence, and changes nothing.
#
# Python would take most of it further, and SQLite takes almost anything: a text compares as larger than every number,
# so that "up to message 'a'" would be all messages.

T = TypeVar("T")
LONGEST_ID = 200
MOST_ID = 2**62
"""Larger than the number of any message; SQLite counts to twice as much."""


def new_session_id(now: float) -> str:
    """Readable, sorted by time, unique: 20261231_235959_1a2b3c4d."""
    return f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}_{secrets.token_hex(4)}"


def text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} is text, not {type(value).__name__}.", hint="Give it as a string.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} has half a character in it.", hint="Give it as whole Unicode text.") from None
    return value


def number(what: str, value: object, least: int = 0) -> int:
    """A whole number that no database has trouble with; the very large ones mean: no limit."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} is a whole number, not {type(value).__name__}.", hint="For example: 20.")
    return min(max(value, least), MOST_ID)


def moment(what: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
        raise UsageError(f"{what} is seconds since 1970, not {value!r:.40}.", hint="For example: time.time().")
    return float(value)


def length(what: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
        raise UsageError(f"{what} is a number of days, not {value!r:.40}.", hint="For example: 90.")
    return float(value)


def ids(session_ids: str | Sequence[str]) -> list[str]:
    """One id, or several."""
    if isinstance(session_ids, str):
        return [text("The id of a session", session_ids)]
    if not isinstance(session_ids, Iterable) or isinstance(session_ids, Mapping | bytes):
        raise UsageError(
            f"Sessions are named by their ids, not by {type(session_ids).__name__}.", hint="Give a string, or a list."
        )
    return [text("The id of a session", session_id) for session_id in session_ids]


def kind(what: str, value: object, wanted: type[T]) -> T:
    if not isinstance(value, wanted):
        raise UsageError(
            f"{what} is a {wanted.__name__}, not {type(value).__name__}.",
            hint=f"It is made by {wanted.__module__}.{wanted.__name__}(…).",
        )
    return value


def session_filter(which: SessionFilter | None) -> SessionFilter:
    """Each field of a type that compares as it is meant."""
    chosen = SessionFilter() if which is None else kind("What is looked for", which, SessionFilter)
    for name in (item.name for item in fields(chosen)):
        value, what = getattr(chosen, name), f"{name} in a SessionFilter"
        if value is None:
            continue
        if name.startswith(("min_", "max_", "started_", "active_")):
            if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
                raise UsageError(f"{what} cannot be {value!r:.40}.", hint="It is a number; leave it out for no bound.")
        elif name in ("archived", "delegated"):
            kind(what, value, bool)
        elif name == "exclude_sources":
            for source in kind(what, value, tuple):
                text(what, source)
        else:
            text(what, value)
    return chosen


def session_id(value: object) -> str:
    """An id that a caller chose for a new session."""
    given = text("The id of a session", value) if not isinstance(value, str) else value
    if not given or len(given) > LONGEST_ID or not given.isprintable() or given.strip() != given:
        raise UsageError(
            f"{given[:LONGEST_ID]!r} cannot be the id of a session.",
            hint=f"An id is 1 to {LONGEST_ID} printable characters without spaces at its ends.",
        )
    return given


def reason(value: object, parent: str | None) -> Reason:
    if value is None:
        return "resume" if parent else "new"
    for known in get_args(Reason):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"{value!r:.40} is no reason for a session.", hint=f"One of: {', '.join(get_args(Reason))}.")


def beginning(session: SessionInfo, system_prompt: str | None) -> SessionInfo:
    """A session that is about to be kept."""
    text("The source of a session", session.source)
    for name in ("profile", "project", "user", "chat"):
        text(f"The {name} of a session", getattr(session.scope, name))
    for name in Whereabouts.__annotations__:
        text(f"The {name.replace('_', ' ')} of a session", getattr(session, name))
    for what, value in (("model", session.model), ("parent", session.parent), ("system prompt", system_prompt)):
        if value is not None:
            text(f"The {what} of a session", value)
    return session


def place(whereabouts: Mapping[str, Any]) -> Whereabouts:
    for name in whereabouts:
        if name not in Whereabouts.__annotations__:
            raise UsageError(
                f"A session has no {name!r}.", hint=f"Where it takes place: {', '.join(Whereabouts.__annotations__)}."
            )
    return cast(Whereabouts, whereabouts)


def usage(value: object) -> Usage:
    """Tokens and money that can be added to what was spent before."""
    given = kind("What a session cost", value, Usage)
    for item in fields(given):
        amount = getattr(given, item.name)
        wanted = int | float if item.name == "cost_usd" else int
        if not isinstance(amount, wanted) or isinstance(amount, bool) or not -MOST <= amount <= MOST:
            raise UsageError(
                f"A session cannot cost {amount!r:.40} as {item.name}; nothing was counted.",
                hint="Tokens are whole numbers, cost_usd is dollars.",
            )
    return given


def unknown(session_id: object) -> UsageError:
    return UsageError(f"There is no session {session_id!r:.220}.", hint="`herma sessions list` shows them.")


# ---------- transcript.wording
#
# Messages in words, for people: what is no text is named with its size.


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


# ---------- store.searchable
#
# What a message has to offer to a search: its text, and the names and arguments of the tools it calls.

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
