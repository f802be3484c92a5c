"""OpenAI-compatible servers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any

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
from herma.models.endpoints import Endpoint
from herma.types import Finish, ToolCall, Usage

# ---------- models.chat.openai_wire
#
# Requests to OpenAI-compatible servers, and their answers put together. Pure.

_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id", "refusal", "audio", "cache_control")
_THOUGHTS = ("reasoning_content", "reasoning_details")
"""What a server that thinks aloud wants to be given back as it came."""
_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}


def request(where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
    """The body. Messages keep every field that the protocol knows, byte for byte; our own fields stay here."""
    fields = _FIELDS if where.official else (*_FIELDS, *_THOUGHTS)
    messages = [{name: message[name] for name in fields if name in message} for message in wanted.messages]
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
        shape = {"name": _name(schema), "schema": schema, "strict": _closed(schema)}
        made["response_format"] = {"type": "json_schema", "json_schema": shape}
    if where.stream:
        made |= {"stream": True, "stream_options": {"include_usage": True}}
    if where.openrouter:
        made["extra_body"] = {"usage": {"include": True}}  # then it says what it cost
    return {
        name: value
        for name, value in made.items()
        if name in ("max_tokens", "max_completion_tokens") or name not in unwanted
    }


def _has_mark(message: Mapping[str, Any]) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(isinstance(part, Mapping) and "cache_control" in part for part in content)


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    """Without marks, which the maker of the protocol refuses: it keeps every beginning by itself."""
    if not _has_mark(message):
        return message
    parts = [{name: value for name, value in part.items() if name != "cache_control"} for part in message["content"]]
    return {**message, "content": parts}


def _marked(messages: list[dict[str, Any]], wanted: Wanted, ttl: str) -> list[dict[str, Any]]:
    """With marks for the cache, which OpenRouter hands on to the models that need them."""
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


def _closed(schema: object) -> bool:
    """Whether every object in a schema names all its fields and allows no others: what `strict` asks for."""
    if isinstance(schema, list):
        return all(map(_closed, schema))
    if not isinstance(schema, Mapping):
        return True
    if "properties" in schema or schema.get("type") == "object":
        names = schema.get("properties") or {}
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != set(names):
            return False
    return all(map(_closed, schema.values()))


class Pieces:
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
            self._usage = read_usage(event["usage"])
        choices = event.get("choices")
        if not isinstance(choices, list):
            if self._usage is not None:
                return ""  # some servers leave the empty list out
            raise Unfinished("is not of the expected shape")
        said = [self._choice(choice) for choice in choices if isinstance(choice, Mapping) and not choice.get("index")]
        return "".join(said)

    def _choice(self, choice: Mapping[str, Any]) -> str:
        delta = choice.get("delta") or choice.get("message") or {}
        if not isinstance(delta, Mapping):
            raise Unfinished("is not of the expected shape")
        for name in ("reasoning_content", "reasoning"):
            if isinstance(delta.get(name), str) and delta[name]:
                self._thoughts.setdefault(name, []).append(delta[name])
        if isinstance(delta.get("reasoning_details"), list):
            self._details += delta["reasoning_details"]
        calls = delta.get("tool_calls") or []
        if not isinstance(calls, list):
            raise Unfinished("is not of the expected shape")
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
            raise Unfinished("is not of the expected shape")
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

    def whole(self) -> Collected:
        if not self._finish:
            raise Unfinished("ended in the middle")
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
        finish = _FINISHES.get(self._finish, "other")
        if calls and finish in ("stop", "other"):
            finish = "tool_calls"
        if self._refused:
            finish = "content_filter"
        return Collected(message, text, tuple(calls), finish, self._usage, self._model)

    def _kept_thoughts(self) -> Iterator[tuple[str, Any]]:
        thoughts = {name: "".join(said) for name, said in self._thoughts.items()}
        if thoughts:
            yield "reasoning", thoughts.get("reasoning") or thoughts["reasoning_content"]
        if "reasoning_content" in thoughts:
            yield "reasoning_content", thoughts["reasoning_content"]
        if self._details:
            yield "reasoning_details", joined(self._details)


def joined(details: list[Any]) -> list[Any]:
    """Pieces of reasoning details with their neighbours of the same place put together, as they are to be sent back."""
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


def read_usage(usage: Mapping[str, Any]) -> Usage:
    """Tokens as we count them: what the cache served or kept is taken out of the input."""
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


# ---------- models.chat.openai_compatible
#
# Servers that speak OpenAI's protocol, through OpenAI's own library.


def openai_model(where: Endpoint, *, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
    """A model of an OpenAI-compatible server."""
    return RemoteModel(where, OpenAIDialect(), on_retry=on_retry)


class OpenAIDialect:
    """Chat completions."""

    extra = "openai"

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        return request(where, wanted, unwanted)

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import openai

        library = openai.OpenAI(
            api_key=where.key or "none",  # the library wants one; servers without keys do not look at it
            base_url=where.url,
            max_retries=0,
            timeout=line.client.timeout,
            http_client=line.client,
        )
        yield from answered(library.chat.completions.create, request)

    def collector(self) -> Collector:
        return Pieces()

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        import openai

        return fault_of(openai, where, error, partial, began=began, now=now)
