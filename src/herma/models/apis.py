"""Write requests for the APIs of OpenAI and Anthropic, and read their answers.

Conversations are OpenAI-style and are translated for Anthropic. The translation of a message depends on that message
and its neighbours only, so a conversation that grows at its end keeps its translated prefix, and the provider's cache
can serve it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from herma.errors import ModelRefused
from herma.models.client import ModelRequest, RemoteModel, Retry, Unfinished, answered, count_of, library_options
from herma.models.endpoints import OUTPUT_TOKENS, Endpoint
from herma.types import Finish, Reply, ToolCall, Usage

Block = dict[str, Any]
MARKS = 4
"""Cache marks that a request may have."""
_GOES_ON = "(The conversation continues.)"
_OWN_BLOCKS = frozenset({"image", "document", "search_result"})
_ANTHROPIC_FINISHES: Mapping[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def anthropic_request(where: Endpoint, wanted: ModelRequest, unwanted: frozenset[str]) -> dict[str, Any]:
    """Return the body of a request."""
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
        made["output_config"] = {"format": {"type": "json_schema", "schema": _with_closed_objects(wanted.json_schema)}}
    made["stream"] = True
    return made


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool  # already in Anthropic's form
    made: Block = {"name": function.get("name", "")}
    if function.get("description"):
        made["description"] = function["description"]
    return made | {"input_schema": function.get("parameters") or {"type": "object", "properties": {}}}


def _with_closed_objects(schema: Any) -> Any:
    """Return the schema with `additionalProperties: false` in every object, which the API requires."""
    if isinstance(schema, list):
        return [_with_closed_objects(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    made = {name: _with_closed_objects(value) for name, value in schema.items()}
    if made.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


# ── conversations for Anthropic ──


def translate(
    messages: Sequence[Mapping[str, Any]], marks: Sequence[int] | None = None, *, long_cache: bool = False
) -> tuple[list[Block], list[Block]]:
    """Return the system's blocks and the messages, with alternating roles and cache marks on the last block of each
    message in `marks`.

    Without `marks`, marks in the messages are kept; if there are none, the system prompt and the last message get one.
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
            if str(part.get("text") or "").strip():  # the API rejects empty text
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
                f"A message has a part of the kind {kind!r}, which Anthropic's models do not accept.",
                hint="Take it out, or choose a model that does.",
            )


def _mark(part: Mapping[str, Any]) -> Block:
    """Return the mark that the caller has set, if any."""
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
    """Return arguments as an object. If the model wrote something else, wrap its text."""
    if isinstance(written, Mapping):
        return written
    try:
        value = json.loads(written) if isinstance(written, str) and written.strip() else {}
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"not_json": written}


# ── answers of Anthropic ──


class AnthropicCollector:
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
                raise Unfinished("has an unexpected shape")
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
            raise Unfinished("has an unexpected shape")
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

    def whole(self) -> Reply:
        if not self._finish or not self._stopped:
            raise Unfinished("is incomplete")
        blocks = sorted(self._blocks.items())
        text = self._text()
        calls = tuple(
            ToolCall(str(block.get("id") or ""), str(block.get("name") or ""), self._input(index, block))
            for index, block in blocks
            if block.get("type") == "tool_use"
        )
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        thoughts = [block for _, block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
        if thoughts:
            message["reasoning"] = "\n\n".join(str(block["thinking"]) for block in thoughts if block.get("thinking"))
            message["thinking_blocks"] = thoughts
        finish, usage = _ANTHROPIC_FINISHES.get(self._finish, "other"), anthropic_usage(self._usage)
        return Reply(message, text, calls, finish, usage, self._model, measured=bool(self._usage))

    def _text(self) -> str:
        return "".join(_said(self._blocks[index]) for index in sorted(self._blocks))

    def _input(self, index: int, block: Mapping[str, Any]) -> str:
        """Return the arguments as they were written; a whole message has them as an object only."""
        written = "".join(self._written.get(index, ()))
        return written or json.dumps(block.get("input") or {}, ensure_ascii=False)


def _said(block: Mapping[str, Any]) -> str:
    return str(block.get("text") or "") if block.get("type") == "text" else ""


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfinished("has an unexpected shape")
    return value


def _index(event: Mapping[str, Any]) -> int:
    index = event.get("index")
    if not isinstance(index, int):
        raise Unfinished("has an unexpected shape")
    return index


def anthropic_usage(usage: Mapping[str, Any]) -> Usage:
    """Return tokens; `input` excludes the cache already."""
    return Usage(
        input=count_of(usage, "input_tokens"),
        output=count_of(usage, "output_tokens"),
        cache_read=count_of(usage, "cache_read_input_tokens"),
        cache_write=count_of(usage, "cache_creation_input_tokens"),
        reasoning=count_of(usage, "output_tokens_details", "thinking_tokens"),
    )


class AnthropicAdapter:
    """Messages, through Anthropic's own library."""

    extra = "anthropic"
    request = staticmethod(anthropic_request)
    collector = AnthropicCollector

    def send(self, where: Endpoint, client: Any, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import anthropic

        library = anthropic.Anthropic(**library_options(where, client))
        body = dict(request)
        if "temperature" in body:  # Anthropic's library has no parameter for it; other servers accept one
            body["extra_body"] = {"temperature": body.pop("temperature")}
        yield from answered(library.messages.create, body)


# ── OpenAI and compatible servers ──

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "cache_control")
_THOUGHTS = ("reasoning_content", "reasoning_details")
"""Reasoning that a server wants to be sent back unchanged."""
_OPENAI_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def openai_request(where: Endpoint, wanted: ModelRequest, unwanted: frozenset[str]) -> dict[str, Any]:
    """Return the body. Messages keep every field of the API, byte for byte; our own fields are left out."""
    fields = _FIELDS if where.official else (*_FIELDS, *_THOUGHTS)
    messages = [{name: message[name] for name in fields if name in message} for message in wanted.messages]
    if "messages" in unwanted:
        messages = taking_turns(messages)
    if where.openrouter and not any(_has_mark(message) for message in messages):
        messages = _marked(messages, wanted, "1h" if where.long_cache else "5m")
    if where.official:
        messages = [_unmarked(message) for message in messages]
    made: dict[str, Any] = {"model": where.name, "messages": messages}
    if wanted.tools:
        made["tools"] = list(wanted.tools)
    if wanted.temperature is not None:
        made["temperature"] = wanted.temperature
    limit = wanted.max_tokens or where.max_tokens
    if limit:
        newer = where.official != bool({"max_tokens", "max_completion_tokens"} & unwanted)
        made["max_completion_tokens" if newer else "max_tokens"] = limit
    if wanted.json_schema is not None:
        schema = dict(wanted.json_schema)
        shape = {"name": _name(schema), "schema": schema, "strict": _is_strict(schema)}
        made["response_format"] = {"type": "json_schema", "json_schema": shape}
    made |= {"stream": True, "stream_options": {"include_usage": True}}
    if where.openrouter:
        made["extra_body"] = {"usage": {"include": True}}  # the answer then has its cost
    return {
        name: value
        for name, value in made.items()
        if name in ("messages", "max_tokens", "max_completion_tokens") or name not in unwanted
    }


def taking_turns(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge neighbours of one role, for servers whose templates require roles to alternate."""
    made: list[dict[str, Any]] = []
    for message in messages:
        last = made[-1] if made else {}
        plain = message.keys() | last.keys() <= {"role", "content"} and message.get("role") in ("user", "assistant")
        if plain and last.get("role") == message["role"]:
            one, other = last["content"], message["content"]
            texts = isinstance(one, str) and isinstance(other, str)
            joined = f"{one}\n\n{other}" if texts else [*_as_parts(one), *_as_parts(other)]
            made[-1] = {**last, "content": joined}
        else:
            made.append(message)
    return made


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _has_mark(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(part, Mapping) and "cache_control" in part for part in content)


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    """Remove cache marks, which OpenAI rejects: it caches every prefix automatically."""
    if not _has_mark(message):
        return message
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in message["content"]]
    return {**message, "content": parts}


def _marked(messages: list[dict[str, Any]], wanted: ModelRequest, ttl: str) -> list[dict[str, Any]]:
    """Add cache marks, which OpenRouter passes on to the models that need them."""
    marks = (0, len(messages) - 1) if wanted.cache_marks is None else wanted.cache_marks
    control = {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}
    for at in sorted({mark for mark in marks if 0 <= mark < len(messages)})[-4:]:
        content = messages[at].get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) and content else content
        if isinstance(parts, list) and parts and messages[at].get("role") != "tool":
            messages[at] = {**messages[at], "content": [*parts[:-1], {**parts[-1], "cache_control": control}]}
    return messages


def _name(schema: Mapping[str, Any]) -> str:
    words = "".join(mark if mark.isascii() and mark.isalnum() else "_" for mark in str(schema.get("title") or "answer"))
    return words[:64]


def _is_strict(schema: object) -> bool:
    """Return whether every object in a schema names all its fields and allows no others, as `strict` requires."""
    if isinstance(schema, list):
        return all(map(_is_strict, schema))
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = schema.get("properties") or {}
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != set(names):
            return False
    return all(map(_is_strict, schema.values()))


class OpenAICollector:
    """An answer: the deltas of a stream, or one whole message."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[Any] = []
        self._calls: list[dict[str, Any]] = []
        self._by_index: dict[int, dict[str, Any]] = {}
        self._finish = ""
        self._refused = False
        self._usage: Usage | None = None
        self._model = ""

    def add(self, event: Mapping[str, Any]) -> str:
        if isinstance(event.get("model"), str):
            self._model = event["model"]
        if isinstance(event.get("usage"), Mapping):
            self._usage = openai_usage(event["usage"])
        choices = event.get("choices")
        if not isinstance(choices, list):
            if self._usage is not None:
                return ""  # some servers omit the empty list
            raise Unfinished("has an unexpected shape")
        said = [self._choice(choice) for choice in choices if isinstance(choice, Mapping) and not choice.get("index")]
        return "".join(said)

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise Unfinished("has an unexpected shape")
        for name in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str) and delta[name]:
                self._thoughts.setdefault(name, []).append(delta[name])
        if isinstance(delta.get("reasoning_details"), list):
            self._details += delta["reasoning_details"]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise Unfinished("has an unexpected shape")
        for call in calls:
            self._call(call)
        if isinstance(choice.get("finish_reason"), str):
            self._finish = choice["finish_reason"]
        text = _words(delta.get("content"))
        if isinstance(delta.get("refusal"), str) and delta["refusal"]:
            self._refused = True
            text += delta["refusal"]
        self._text.append(text)
        return text

    def _call(self, piece: object) -> None:
        """A piece of a tool call: the first has its id and name, the others more of its arguments."""
        function = (piece.get("function") or {}) if isinstance(piece, Mapping) else None
        if not isinstance(piece, Mapping) or not isinstance(function, Mapping):
            raise Unfinished("has an unexpected shape")
        index, call_id = piece.get("index"), str(piece.get("id") or "")
        call = self._by_index.get(index) if isinstance(index, int) else (self._calls[-1] if self._calls else None)
        if call is None or (call_id and call["id"] and call_id != call["id"]):  # not every server counts them
            call = {"id": "", "name": "", "arguments": [], "rest": {}}
            self._calls.append(call)
        if isinstance(index, int):
            self._by_index[index] = call
        call["id"] = call["id"] or call_id
        call["name"] = call["name"] or str(function.get("name") or "")
        call["rest"] |= {
            name: value for name, value in piece.items() if name not in ("index", "id", "type", "function")
        }
        written = function.get("arguments")
        if written:
            call["arguments"].append(written if isinstance(written, str) else json.dumps(written, ensure_ascii=False))

    def whole(self) -> Reply:
        if not self._finish:
            raise Unfinished("is incomplete")
        text = "".join(self._text)
        calls = []
        written = []
        for call in self._calls:
            made = ToolCall(call["id"] or f"call_{secrets.token_hex(8)}", call["name"], "".join(call["arguments"]))
            function = {"name": made.name, "arguments": made.arguments}
            calls.append(made)
            written.append({"id": made.id, "type": "function", "function": function, **call["rest"]})
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        if written:
            message["tool_calls"] = written
        message |= dict(self._kept_thoughts())
        finish = _OPENAI_FINISHES.get(self._finish, "other")
        if calls and finish in ("stop", "other"):
            finish = "tool_calls"
        if self._refused:
            finish = "content_filter"
        usage = self._usage
        return Reply(message, text, tuple(calls), finish, usage or Usage(), self._model, measured=usage is not None)

    def _kept_thoughts(self) -> Iterator[tuple[str, Any]]:
        thoughts = {name: "".join(said) for name, said in self._thoughts.items()}
        if thoughts:
            yield "reasoning", thoughts.get("reasoning") or thoughts["reasoning_content"]
        if "reasoning_content" in thoughts:
            yield "reasoning_content", thoughts["reasoning_content"]
        if self._details:
            yield "reasoning_details", joined(self._details)


def joined(details: list[Any]) -> list[Any]:
    """Join neighbouring pieces of reasoning details of the same index, as they are sent back."""
    made: list[Any] = []
    for piece in details:
        last = made[-1] if made else None
        if not (isinstance(piece, Mapping) and isinstance(last, dict) and _same_detail(last, piece)):
            made.append(dict(piece) if isinstance(piece, Mapping) else piece)
            continue
        for name, value in piece.items():
            if name in ("text", "summary", "data") and isinstance(value, str):
                last[name] = (last.get(name) or "") + value
            elif value is not None:
                last[name] = value
    return made


def _same_detail(last: Mapping[str, Any], piece: Mapping[str, Any]) -> bool:
    return (last.get("type"), last.get("index")) == (piece.get("type"), piece.get("index")) and "index" in piece


def _words(content: object) -> str:
    if isinstance(content, list):
        return "".join(
            part["text"] for part in content if isinstance(part, Mapping) and isinstance(part.get("text"), str)
        )
    return content if isinstance(content, str) else ""


def openai_usage(usage: Mapping[str, Any]) -> Usage:
    """Return tokens as Herma counts them: `input` without what was read from or written to the cache."""
    sent = count_of(usage, "prompt_tokens")
    read = count_of(usage, "prompt_tokens_details", "cached_tokens") or count_of(usage, "prompt_cache_hit_tokens")
    written = count_of(usage, "prompt_tokens_details", "cache_write_tokens")
    read = min(read, sent)
    written = min(written, sent - read)
    paid = usage.get("cost")
    return Usage(
        input=sent - read - written,
        output=count_of(usage, "completion_tokens"),
        cache_read=read,
        cache_write=written,
        reasoning=count_of(usage, "completion_tokens_details", "reasoning_tokens"),
        cost_usd=float(paid) if isinstance(paid, int | float) and not isinstance(paid, bool) and paid > 0 else 0.0,
    )


class OpenAIAdapter:
    """Chat completions, through OpenAI's own library."""

    extra = "openai"
    request = staticmethod(openai_request)
    collector = OpenAICollector

    def send(self, where: Endpoint, client: Any, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import openai

        library = openai.OpenAI(**library_options(where, client))
        yield from answered(library.chat.completions.create, request)


def remote_model(where: Endpoint, *, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
    """Return the model of an endpoint."""
    adapter = AnthropicAdapter() if where.kind == "anthropic" else OpenAIAdapter()
    return RemoteModel(where, adapter, on_retry=on_retry)
