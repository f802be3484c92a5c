"""Anthropic."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from herma.errors import ModelRefused
from herma.models.client import (
    Collected,
    Collector,
    Fault,
    Line,
    RemoteModel,
    Retry,
    Unfinished,
    Wanted,
    answered,
    count_of,
    fault_of,
)
from herma.models.endpoints import OUTPUT_TOKENS, Endpoint
from herma.types import Finish, ToolCall, Usage

# ---------- models.chat.anthropic_wire
#
# OpenAI-style conversations as Anthropic's messages, and its answers back. Pure.
#
# The translation of a message depends on that message and its neighbours only, so a conversation that grows at its end
# does so in the translation too, and the provider's cache can serve the rest.

Block = dict[str, Any]
MARKS = 4
"""How many places a request may mark for the cache."""
_GOES_ON = "(The conversation goes on.)"
_OWN_BLOCKS = frozenset({"image", "document", "search_result"})
_FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def request(where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
    """The body of a request."""
    system, messages = translate(wanted.messages, wanted.cache_marks, long_cache=where.long_cache)
    made: dict[str, Any] = {
        "model": where.name,
        "max_tokens": wanted.max_tokens or where.max_tokens or OUTPUT_TOKENS,
        "messages": messages,
    }
    if system:
        made["system"] = system
    if wanted.tools:
        made["tools"] = [_tool(tool) for tool in wanted.tools]
    if wanted.temperature is not None and "temperature" not in unwanted and not where.official:
        made["temperature"] = wanted.temperature
    if wanted.json_schema is not None:
        made["output_config"] = {"format": {"type": "json_schema", "schema": _closed(wanted.json_schema)}}
    if where.stream:
        made["stream"] = True
    return made


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool  # one that is written Anthropic's way already
    made: Block = {"name": function.get("name", "")}
    if function.get("description"):
        made["description"] = function["description"]
    return made | {"input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _closed(schema: Any) -> Any:
    """The schema with no unnamed fields in any object: others are refused."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: _closed(value) for name, value in schema.items()}
    if made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


# ── the conversation ──


def translate(
    messages: Sequence[Mapping[str, Any]], marks: Sequence[int] | None = None, *, long_cache: bool = False
) -> tuple[list[Block], list[Block]]:
    """The system's blocks and the messages, roles in turn. Marked are the last blocks of these messages.

    Without `marks`: those that the messages have themselves, else the system prompt and the end of the conversation.
    """
    system: list[Block] = []
    turns: list[Block] = []
    ends: dict[int, Block] = {}
    for at, message in enumerate(messages):
        role, blocks = message.get("role"), list(_blocks(message))
        if role in ("system", "developer") and not turns:
            into = system
        else:
            speaker = "assistant" if role == "assistant" else "user"
            if not blocks:
                continue
            if not turns and speaker == "assistant":
                turns.append({"role": "user", "content": [_text(_GOES_ON)]})
            if not turns or turns[-1]["role"] != speaker:
                turns.append({"role": speaker, "content": []})
            into = turns[-1]["content"]
        into += blocks
        if blocks:
            ends[at] = blocks[-1]
    own = any("cache_control" in block for blocks in (system, *(turn["content"] for turn in turns)) for block in blocks)
    chosen = (() if own else _usual(messages, ends)) if marks is None else marks
    control = {"type": "ephemeral", "ttl": "1h"} if long_cache else {"type": "ephemeral"}
    for at in sorted({mark for mark in chosen if mark in ends})[-MARKS:]:
        if ends[at].get("type") not in ("thinking", "redacted_thinking"):
            ends[at]["cache_control"] = control
    return system, turns


def _usual(messages: Sequence[Mapping[str, Any]], ends: Mapping[int, Any]) -> list[int]:
    first = [at for at in ends if messages[at].get("role") in ("system", "developer")][:1]
    return [*first, *([max(ends)] if ends else [])]


def _blocks(message: Mapping[str, Any]) -> Iterator[Block]:
    role, content = message.get("role"), message.get("content")
    if role in ("tool", "function"):
        yield _result(message)
        return
    if role == "assistant":
        for thought in message.get("thinking_blocks") or ():
            yield dict(thought)
    yield from _parts(content)
    for call in message.get("tool_calls") or () if role == "assistant" else ():
        function = call.get("function") or {}
        arguments = _arguments(function.get("arguments"))
        yield {"type": "tool_use", "id": call.get("id", ""), "name": function.get("name", ""), "input": arguments}


def _parts(content: object) -> Iterator[Block]:
    given = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in given if isinstance(given, list) else ():
        kind = part.get("type")
        if kind in ("text", "input_text", "output_text"):
            if str(part.get("text") or "").strip():  # an empty one is refused
                yield _text(part["text"]) | _mark(part)
        elif kind == "refusal":
            yield _text(str(part.get("refusal") or "(refused)"))
        elif kind == "image_url":
            yield {"type": "image", "source": _source(part.get("image_url"))} | _mark(part)
        elif kind == "file" and isinstance(part.get("file"), Mapping):
            yield {"type": "document", "source": _source(part["file"].get("file_data"))} | _mark(part)
        elif kind in _OWN_BLOCKS:
            yield dict(part)
        else:
            raise ModelRefused(
                f"A message has a part of the kind {kind!r}, which Anthropic's models do not take.",
                hint="Take it out, or choose a model that does.",
            )


def _mark(part: Mapping[str, Any]) -> Block:
    """The mark that the caller has set itself, if any."""
    return {"cache_control": part["cache_control"]} if "cache_control" in part else {}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _source(given: object) -> Block:
    url = given.get("url") if isinstance(given, Mapping) else given
    if not isinstance(url, str) or not url:
        raise ModelRefused("A message has an image without an address or data.", hint="Take it out of the message.")
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    kind, _, data = url.removeprefix("data:").partition(",")
    return {"type": "base64", "media_type": kind.partition(";")[0] or "image/png", "data": data}


def _result(message: Mapping[str, Any]) -> Block:
    blocks = list(_parts(message.get("content")))
    plain = len(blocks) == 1 and blocks[0]["type"] == "text"
    made: Block = {"type": "tool_result", "tool_use_id": message.get("tool_call_id") or message.get("name") or ""}
    for block in blocks:  # a mark is the result's, not a part's
        made |= _mark(block)
        block.pop("cache_control", None)
    return made | {"content": blocks[0]["text"] if plain else blocks} if blocks else made


def _arguments(written: object) -> Mapping[str, Any]:
    """Arguments as an object. What a model wrote that is none is shown to it as what it wrote."""
    if isinstance(written, Mapping):
        return written
    try:
        value = json.loads(written) if isinstance(written, str) and written.strip() else {}
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"not_json": written}


# ── the answer ──


class Pieces:
    """An answer: the events of a stream, or one whole message."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._written: dict[int, list[str]] = {}
        self._usage: dict[str, Any] = {}
        self._finish = ""
        self._model = ""
        self._stopped = False

    def add(self, event: Mapping[str, Any]) -> str:
        match event.get("type"):
            case "message_start":
                self._head(_mapping(event.get("message")))
            case "message":
                self._head(event)
                self._stopped = True
                content = event.get("content")
                for index, block in enumerate(content if isinstance(content, list) else ()):
                    self._blocks[index] = dict(_mapping(block))
                return self._text()
            case "content_block_start":
                block = dict(_mapping(event.get("content_block")))
                self._blocks[_index(event)] = block
                return _said(block)
            case "content_block_delta":
                return self._delta(_index(event), _mapping(event.get("delta")))
            case "message_delta":
                self._finish = str(_mapping(event.get("delta")).get("stop_reason") or self._finish)
                self._count(event.get("usage"))
            case "message_stop":
                self._stopped = True
            case None:
                raise Unfinished("is not of the expected shape")
        return ""

    def _head(self, message: Mapping[str, Any]) -> None:
        self._model = str(message.get("model") or "")
        self._finish = str(message.get("stop_reason") or "")
        self._count(message.get("usage"))

    def _count(self, usage: object) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: value for name, value in usage.items() if value is not None}

    def _delta(self, index: int, delta: Mapping[str, Any]) -> str:
        block = self._blocks.get(index)
        if block is None:
            raise Unfinished("is not of the expected shape")
        match delta.get("type"):
            case "text_delta":
                text = str(delta.get("text") or "")
                block["text"] = _said(block) + text
                return text
            case "thinking_delta":
                block["thinking"] = str(block.get("thinking") or "") + str(delta.get("thinking") or "")
            case "signature_delta":
                block["signature"] = str(block.get("signature") or "") + str(delta.get("signature") or "")
            case "input_json_delta":
                self._written.setdefault(index, []).append(str(delta.get("partial_json") or ""))
        return ""

    def whole(self) -> Collected:
        if not self._finish or not self._stopped:
            raise Unfinished("ended in the middle")
        blocks = [self._blocks[index] | {"at": index} for index in sorted(self._blocks)]
        text = self._text()
        calls = tuple(
            ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), self._input(block))
            for block in blocks
            if block.get("type") == "tool_use"
        )
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        thoughts = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
        if thoughts:
            message["reasoning"] = "\n\n".join(str(block["thinking"]) for block in thoughts if block.get("thinking"))
            message["thinking_blocks"] = [_without_place(block) for block in thoughts]
        usage = read_usage(self._usage) if self._usage else None
        return Collected(message, text, calls, _FINISHES.get(self._finish, "other"), usage, self._model)

    def _text(self) -> str:
        return "".join(_said(self._blocks[index]) for index in sorted(self._blocks))

    def _input(self, block: Mapping[str, Any]) -> str:
        """The arguments as they were written; a whole message has them as an object only."""
        written = "".join(self._written.get(block["at"], ()))
        return written or json.dumps(block.get("input") or {}, ensure_ascii=False)


def _said(block: Mapping[str, Any]) -> str:
    return str(block.get("text") or "") if block.get("type") == "text" else ""


def _without_place(block: Block) -> Block:
    return {name: value for name, value in block.items() if name != "at"}


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfinished("is not of the expected shape")
    return value


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise Unfinished("is not of the expected shape")
    return index


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens; the input is counted without the cache already."""
    return Usage(
        input=count_of(usage, "input_tokens"),
        output=count_of(usage, "output_tokens"),
        cache_read=count_of(usage, "cache_read_input_tokens"),
        cache_write=count_of(usage, "cache_creation_input_tokens"),
        reasoning=count_of(usage, "output_tokens_details", "thinking_tokens"),
    )


# ---------- models.chat.anthropic_messages
#
# Anthropic's models, and servers that speak its protocol, through its own library.


def anthropic_model(where: Endpoint, *, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
    """A model that is asked with Anthropic's messages."""
    return RemoteModel(where, AnthropicDialect(), on_retry=on_retry)


class AnthropicDialect:
    """Messages."""

    extra = "anthropic"

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        return request(where, wanted, unwanted)

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import anthropic

        library = anthropic.Anthropic(
            api_key=where.key or "none",  # given, so that no other one is looked for
            base_url=where.url,
            max_retries=0,
            timeout=line.client.timeout,
            http_client=line.client,
        )
        yield from answered(library.messages.create, _as_the_library_has_it(request))

    def collector(self) -> Collector:
        return Pieces()

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        import anthropic

        return fault_of(anthropic, where, error, partial, began=began, now=now)


def _as_the_library_has_it(request: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's own models choose their temperature, so its library has no word for it; others still take one."""
    made = dict(request)
    if "temperature" in made:
        made["extra_body"] = {"temperature": made.pop("temperature")}
    return made
