"""Messages: as models speak them, as they are kept, as they were sent; and what callers give, checked.

Back and forth is exact: every field that has no place of its own, or whose value its place cannot hold, stays in
`extra` as it was.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, cast, get_args

from herma.errors import UsageError
from herma.safety.fold import without_noise
from herma.types import (
    AnyMessage,
    Attachment,
    Content,
    Hidden,
    Message,
    Origin,
    OutsideSpan,
    SdkMessage,
    SessionMetadata,
    Usage,
)

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
KEPT = ("sent", "memory_version", "tokens", "finish_reason", "reasoning", "tool_name")
"""Fields that only Herma reads; `wire_name` says what they are called in dictionaries and exports."""
FOREIGN_ITEM = "_item"
"""The extra field with the item of an agent framework that a message stands for. No model is sent it."""
MOST = 2**53
"""Larger numbers are not a time or a count."""
PREVIEW = 60
_SURROGATE = re.compile("[\ud800-\udfff]")
_HIDDEN = get_args(Hidden)
_TEXTS = ("tool_call_id", "tool_name", "reasoning", "memory_version", "finish_reason")


def wire_name(field: str) -> str:
    """Return the name of a field in dictionaries, exports and the database."""
    return "told" if field == "memory_version" else field


_PLACED = ("role", "content", "tool_calls", "tool_call_id", "timestamp", *map(wire_name, KEPT))


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
    """Return the dictionary it came from; `kept` adds the time and the fields of `KEPT`."""
    wire: dict[str, Any] = {"role": message.role}
    if message.content is not None:
        wire["content"] = message.content
    if message.tool_calls:
        wire["tool_calls"] = list(message.tool_calls)
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if kept:
        wire |= {wire_name(name): value for name in KEPT if (value := getattr(message, name)) is not None}
        wire["timestamp"] = message.timestamp
    return wire | {name: value for name, value in message.extra.items() if name not in wire}


def all_from_wire(messages: Sequence[AnyMessage], now: float) -> list[Message]:
    """Return messages to keep, each with a time. `UsageError` that names the first one that cannot be kept.

    Message objects of the OpenAI and Anthropic SDKs, and Anthropic's blocks, become OpenAI-style messages.
    """
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
            converted += [from_wire(one, now) for one in openai_style(given)]
        except ValueError as exc:
            raise UsageError(
                f"Message {index} {exc}; nothing was written.",
                hint='A message looks like {"role": "user", "content": "…"}.',
            ) from exc
    return converted


# ── messages of the OpenAI and Anthropic SDKs ──

_BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking")
"""Anthropic's blocks that have a place of their own in OpenAI's form."""


def plain(value: Any) -> dict[str, Any]:
    """Return a message, an item or a block of an SDK as a dictionary."""
    return dict(value) if isinstance(value, Mapping) else value.model_dump(exclude_none=True)


def openai_style(given: Any) -> list[Any]:
    """Return a message as OpenAI-style ones. Anthropic's user message with results of tools becomes several."""
    if isinstance(given, Message):
        return [given]
    is_object = not isinstance(given, Mapping) and isinstance(given, SdkMessage)  # the protocol is slow to ask
    if not is_object and not isinstance(given, Mapping):
        return [given]
    message = plain(given) if is_object else given
    if message.get("type") in ("function_call", "function_call_output"):
        return [item_message(message)]
    content = message.get("content")
    if not isinstance(content, list):
        return [message]
    if any(hasattr(part, "model_dump") for part in content):
        content = [plain(part) if hasattr(part, "model_dump") else part for part in content]
        message = {**message, "content": content}
    kinds = {part.get("type") for part in content if isinstance(part, Mapping)}
    if kinds.isdisjoint(_BLOCKS):
        if is_object and message.get("type") == "message":  # an answer of Anthropic or of OpenAI's Responses API
            return [{"role": message["role"], "content": joined_text(content)}]
        return [message]
    return message_of_blocks(message["role"], content)


def message_of_blocks(role: str, blocks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return Anthropic's blocks as OpenAI-style messages: results of tools come first, each as its own."""
    found: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in _BLOCKS}
    rest: list[Mapping[str, Any]] = []
    for block in blocks:
        found.get(str(block.get("type")), rest).append(block)
    results = [
        {"role": "tool", "tool_call_id": block["tool_use_id"], "content": joined_text(block.get("content"))}
        for block in found["tool_result"]
    ]
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)},
        }
        for block in found["tool_use"]
    ]
    is_text = all(block.get("type") == "text" for block in rest)
    message: dict[str, Any] = {"role": role, "content": joined_text(rest) if is_text else list(rest)}
    if calls:
        message |= {"content": message["content"] or None, "tool_calls": calls}
    if thoughts := [dict(block) for kind in _BLOCKS[2:] for block in found[kind]]:
        words = "\n\n".join(str(block["thinking"]) for block in thoughts if block.get("thinking"))
        message |= {"thinking_blocks": thoughts, **({"reasoning": words} if words else {})}
    return [*results, message] if message["content"] or calls or not results else results


def item_message(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item of OpenAI's Responses API as a message."""
    kind = str(item.get("type", "message"))
    if kind == "function_call":
        function = {"name": item.get("name", ""), "arguments": item.get("arguments", "")}
        call = {"id": item.get("call_id", ""), "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}
    if kind.endswith("_output"):
        output = item.get("output")
        text = json.dumps(output, ensure_ascii=False, default=str) if isinstance(output, dict) else joined_text(output)
        return {"role": "tool", "tool_call_id": item.get("call_id", ""), "content": text}
    role = {"user": "user", "system": "system", "developer": "system"}.get(str(item.get("role")), "assistant")
    return {"role": role, "content": joined_text(item.get("content"))}


def joined_text(content: object) -> str:
    """Return the text of a content in any of these forms."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, Mapping) and part.get("text"))


def text_of(content: Content) -> str:
    """Return the words of a content: itself, or the text of its parts."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def preview_of(messages: Sequence[Message]) -> str:
    """Return the first words of the first thing the user said. Messages behind a summary count, too."""
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
        if extra.get(wire_name(name)) is not None:
            fields[name] = extra.pop(wire_name(name))
    if is_part(fields.get("content")):
        fields["content"] = [fields["content"]]
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
    if not isinstance(message.extra, Mapping) or not all(isinstance(name, str) for name in message.extra):
        raise ValueError("has extra fields that are not named by text")
    for name in _PLACED if message.extra else ():
        if message.extra.get(name):  # it would be sent, and neither shown nor searched nor scanned
            raise ValueError(f"has {name} among its extra fields, which has a place of its own")
    if message.hidden not in _HIDDEN:
        raise ValueError(f"is hidden as {message.hidden!r:.40}, not as rewound or compacted")
    for name in _TEXTS:
        value = getattr(message, name)
        if value is not None and not isinstance(value, str):
            raise ValueError(f"has a {wire_name(name)} that is {_kind(value)}, not text")
    if not is_number(message.timestamp):
        raise ValueError(f"has the timestamp {message.timestamp!r}, not seconds since 1970")
    if message.tokens is not None and not (is_number(message.tokens) and isinstance(message.tokens, int)):
        raise ValueError(f"has tokens that are {_kind(message.tokens)}, not a whole number")


def is_number(value: object) -> bool:
    """Return whether this can be a time or a count."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def is_part(content: object) -> bool:
    """Return whether this is one part of a content: a dictionary that says of which type it is."""
    return isinstance(content, dict) and isinstance(content.get("type"), str)


def _check_content(name: str, content: object) -> None:
    if content is None or isinstance(content, str):
        return
    if isinstance(content, Mapping):
        wrong = f"has a {name} that is a mapping without a type, neither text (json.dumps of it) nor a part"
        raise ValueError(wrong)  # noqa: TRY004
    if not isinstance(content, list):
        raise ValueError(f"has a {name} that is {_kind(content)}, neither text nor a list of parts")  # noqa: TRY004
    for at, part in enumerate(content):
        if not isinstance(part, dict):
            wrong = f"has a {name} whose part {at} is {_kind(part)}, not a dictionary with its type"
            raise ValueError(wrong)  # noqa: TRY004


def _clean(message: Message, now: float) -> Message:
    """Return the same with lone surrogates replaced and nothing in it that JSON cannot hold."""
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
    """Return a copy, as it will be read again."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"has {name} that JSON cannot hold ({exc})") from exc
    return json.loads(_SURROGATE.sub("\ufffd", text))


def _kind(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


# A stored conversation as it was sent to the model, byte for byte.

INTERRUPTED = "interrupted"
"""The `finish_reason` of a reply that was cut off."""


def as_sent(message: Message) -> dict[str, Any]:
    """Return the message as the model got it, with the text that was injected into it."""
    wire = to_wire(message)
    wire.pop(FOREIGN_ITEM, None)
    if message.sent is not None:
        wire["content"] = message.sent
    return wire


def with_addition(content: Content, addition: str) -> Content:
    """Return the content with text at its end, where it costs no cache."""
    if not addition:
        return content
    if isinstance(content, list):
        return [*content, {"type": "text", "text": addition}]
    return f"{content}\n\n{addition}" if content else addition


def sendable(messages: Iterable[Message]) -> list[Message]:
    """Return messages that a model accepts: the results of tools right behind the call that they answer, and none
    without it.

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
    """Return the tool calls at the end that have no result: models refuse a request that leaves them open."""
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
    """Return whether the last turn ended with a reply that asks for no tool."""
    last = None
    for last in messages:  # noqa: B007  the last one is wanted
        pass
    return last is not None and last.role == "assistant" and not last.tool_calls


# Summaries that stand for earlier messages.

OPENING = (
    "This conversation was longer than fits. Its earlier part is summarised here as background; it asks for nothing by "
    "itself, and what the user says after it counts more. Numbers such as [#12-18] name the original messages: "
    "session_search with around_message_id=12 shows them, and with a query it looks through all of them."
)


def is_summary(text: str) -> bool:
    """Return whether it reads like one. It may be pasted text: a message that stands for others is marked, too."""
    return text.startswith(OPENING)


# Which text of a message came from outside. Spans count characters of the text that was sent.

_FRAME = re.compile(r"^--- (?:Begin|End) of attachment \d+\b.*$", re.MULTILINE)
_LONGEST_NAME = 120


def attach(content: Content, attachments: Sequence[Attachment]) -> tuple[Content, list[OutsideSpan]]:
    """Put attachments behind what the person typed, each in a frame. Return the content, and where they stand in it."""
    spans: list[OutsideSpan] = []
    block = ""
    for number, one in enumerate(attachments, 1):
        name = f", {' '.join(_framed(one.name).split())[:_LONGEST_NAME]}" if one.name.strip() else ""
        block += (
            f"{chr(10) * 2 if block else ''}--- Begin of attachment {number} (from outside: {one.origin}{name}) ---\n"
        )
        start, text = len(block), _framed(one.text)
        block += f"{text}\n--- End of attachment {number} ---"
        spans.append(OutsideSpan(start, start + len(text), Origin(one.origin)))
    whole = with_addition(content, block)
    before = len(text_of(whole)) - len(block)
    return whole, [replace(span, start=span.start + before, end=span.end + before) for span in spans]


def _framed(text: str) -> str:
    """Return text whose lines cannot be taken for the frame of an attachment."""
    return _FRAME.sub(lambda match: f"-x-{match.group()[3:]}", text)


def outside_parts(message: Message) -> Iterator[tuple[str, Origin]]:
    """Yield the texts of a message that came from outside, each with its origin."""
    sent = text_of(message.content if message.sent is None else message.sent)
    if message.role == "tool":  # as a whole: `sent` may be a short form of it
        yield text_of(message.content), next((span.origin for span in message.outside or ()), Origin.TOOL_OUTPUT)
        return
    if is_summary(text_of(message.content)):  # it repeats the user and everybody else alike
        yield text_of(message.content), Origin.TOOL_OUTPUT
    for span in message.outside or ():
        yield sent[span.start : span.end], span.origin
    if message.outside is None and message.role == "user":  # it was not recorded: recalled text stands at the end
        content = text_of(message.content)
        if sent.startswith(content) and len(sent) > len(content):
            yield sent[len(content) :], Origin.RECALL


def typed_text(message: Message) -> str:
    """Return the text of a message without what came from outside: of the user's, what the person typed."""
    content = text_of(message.content)
    if is_summary(content):
        return ""
    return _FRAME.sub("", without(content, message.outside)).strip() if message.outside else content


def without(text: str, spans: Iterable[OutsideSpan]) -> str:
    """Return a text without these parts of it, each replaced by a line break."""
    kept: list[str] = []
    at = 0
    for span in sorted(spans, key=lambda one: one.start):
        if span.start >= len(text):
            break
        kept.append(text[at : max(at, span.start)])
        at = max(at, span.end)
    return "\n".join([*kept, text[at:]])


# Turns of an imported session, as one of our own goes on from them: words only, scanned, and outside as a whole.

_LARGEST = 2_000_000
"""Characters of an imported message that are sent at most."""


def imported_turns(messages: Iterable[Message], withhold: Callable[[str], str]) -> list[Message]:
    """Return the words of imported messages: no system messages, no foreign `sent`, nothing but text. Pure.

    Tool calls become lines of text and their results messages of the user, so that no foreign call is ever replayed.
    `withhold` takes out what the scanner objects to, with a note in its place.
    """
    turns: list[tuple[str, list[str], Message]] = []
    for message in messages:
        if message.role in ("system", "developer"):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        text = words_of(message.content)
        if message.role in ("tool", "function"):
            role, text = "assistant", f"[Imported: the tool {message.tool_name or ''} answered]\n{text}"
        calls = [
            f"[Imported: it called {name} with {arguments}]" for name, arguments in map(called, message.tool_calls)
        ]
        words = "\n".join(filter(None, [text, *calls]))
        if not words.strip():
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].append(words)
        else:
            turns.append((role, [words], message))
    kept: list[Message] = []
    for role, pieces, first in turns:
        text = withhold("\n\n".join(pieces)[:_LARGEST])
        span = OutsideSpan(0, len(text), Origin.IMPORT)
        kept.append(Message(role, text, timestamp=first.timestamp, outside=(span,)))
    return kept


# Checks of callers' values, as far as types do not state them.

LONGEST_ID = 200
MOST_ID = 2**62
"""Larger than the number of any message."""


def new_session_id(now: float) -> str:
    """Return a readable, unique id that sorts by time: 20261231_235959_1a2b3c4d."""
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


def moment(what: str, value: object) -> float:
    if not is_number(value):
        raise UsageError(f"{what} is seconds since 1970, not {value!r:.40}.", hint="For example: time.time().")
    return float(cast(float, value))


def session_id(value: object) -> str:
    """Return an id that a caller chose for a new session."""
    given = text("The id of a session", value)
    if not given or len(given) > LONGEST_ID or not given.isprintable() or given.strip() != given:
        raise UsageError(
            f"{given[:LONGEST_ID]!r} cannot be the id of a session.",
            hint=f"An id is 1 to {LONGEST_ID} printable characters without spaces at its ends.",
        )
    return given


def place(metadata: Mapping[str, Any]) -> SessionMetadata:
    """Return where a session takes place; `UsageError` for what a session does not have, or what is not text."""
    for name, value in metadata.items():
        if name not in SessionMetadata.__annotations__:
            known = ", ".join(SessionMetadata.__annotations__)
            raise UsageError(f"A session has no {name!r}.", hint=f"Where it takes place: {known}.")
        text(f"The {name.replace('_', ' ')} of a session", value)
    return cast(SessionMetadata, metadata)


_OWN_COUNTS = tuple(item.name for item in fields(Usage))
_FOREIGN_COUNTS: Mapping[str, str] = {
    "prompt_tokens": "sent",
    "input_tokens": "input",
    "completion_tokens": "output",
    "output_tokens": "output",
    "prompt_tokens_details.cached_tokens": "cache_read",
    "input_tokens_details.cached_tokens": "cache_read",
    "prompt_cache_hit_tokens": "cache_read",
    "cache_read_input_tokens": "cache_read",
    "prompt_tokens_details.cache_write_tokens": "cache_write",
    "cache_creation_input_tokens": "cache_write",
    "completion_tokens_details.reasoning_tokens": "reasoning",
    "output_tokens_details.reasoning_tokens": "reasoning",
    "output_tokens_details.thinking_tokens": "reasoning",
    "cost": "cost_usd",
}
"""The names of OpenAI, OpenRouter and Anthropic. Other fields are not counted."""


def usage(value: object) -> Usage:
    """Return tokens and money of a call: from a `Usage`, or a mapping with its names or a provider's."""
    given = value if isinstance(value, Usage) else _usage_in(value)
    for item in fields(given):
        _count(item.name, getattr(given, item.name))
    return given


def _count(name: str, amount: object) -> None:
    wanted = int | float if name in ("cost", "cost_usd") else int
    if not isinstance(amount, wanted) or isinstance(amount, bool) or not 0 <= amount <= MOST:
        raise UsageError(
            f"usage has {amount!r:.40} as {name}; nothing was written.",
            hint="Tokens are whole numbers, cost_usd is dollars.",
        )


def _usage_in(value: object) -> Usage:
    """Return what a mapping says, or an object of a provider's library.

    `prompt_tokens`, and `input_tokens` beside `input_tokens_details`, include what the cache served and kept;
    Anthropic's `input_tokens` do not.
    """
    dump = getattr(value, "model_dump", None)
    said = dump() if callable(dump) and not isinstance(value, type) else value
    if not isinstance(said, Mapping):
        raise _no_usage(f"usage is a Usage or a mapping, not {_kind(value)}")
    flat = {
        f"{name}.{inner}" if inner else str(name): amount
        for name, given in said.items()
        for inner, amount in (given.items() if isinstance(given, Mapping) else [("", given)])
        if amount is not None
    }
    own = flat.keys() & set(_OWN_COUNTS)
    if own:
        if foreign := sorted(flat.keys() - own):
            raise _no_usage(f"usage has {sorted(own)[0]!r} and {foreign[0]!r:.60}, which is not a name beside it")
        return Usage(**flat)
    found: dict[str, Any] = {}
    for name, amount in flat.items():
        if counted := _FOREIGN_COUNTS.get(name):
            _count(name, amount)
            if found.setdefault(counted, amount) != amount:
                raise _no_usage(f"usage says {counted} twice: {found[counted]} and, as {name}, {amount}")
    if not {"sent", "input", "output"} & found.keys() or {"sent", "input"} <= found.keys():
        raise _no_usage(f"usage has {', '.join(flat)[:80] or 'nothing in it'}, which does not say what was sent")
    if "sent" in found or any(name.startswith("input_tokens_details.") for name in flat):
        sent = found.pop("sent", None) or found.pop("input", 0)
        found["input"] = max(0, sent - found.get("cache_read", 0) - found.get("cache_write", 0))
    return Usage(**found)


def _no_usage(what: str) -> UsageError:
    return UsageError(
        f"{what}; nothing was written.",
        hint=f"Its names are {', '.join(_OWN_COUNTS)}, or those of OpenAI (prompt_tokens, completion_tokens) or "
        "Anthropic (input_tokens, output_tokens, cache_read_input_tokens).",
    )


def unknown(session_id: object) -> UsageError:
    return UsageError(f"There is no session {session_id!r:.220}.", hint="`herma sessions list` shows them.")


# Messages in words, for people: other parts are named with their size.


def words_of(content: Content) -> str:
    """Return the text of a content, its other parts by name."""
    if not isinstance(content, list):
        return text_of(content)
    return "\n".join(
        str(part["text"])
        if isinstance(part.get("text"), str)
        else f"[{part.get('type') or 'part'}: {len(json.dumps(part, ensure_ascii=False)):,} characters]"
        for part in content
    )


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


# The searchable text of a message: its words, and the names and arguments of the tools it calls.

DEEPEST = 20
"""Maximum depth to which arguments are searched."""


def searchable_text(content: Content, tool_calls: Sequence[Mapping[str, Any]], tool_name: str | None) -> str:
    """Return one text for the index: what was said, then tool names, then what the tools were given."""
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
    """Yield names and values out of the JSON text: a search is for the meaning, not the escapes."""
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
