"""Answers as OpenAI-compatible servers and as Anthropic write them: whole, or as the pieces of a stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from herma.testing.scripted_model_answer import Answer, Asked
from herma.types import Usage

Json = dict[str, Any]
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_ERRORS |= {413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}


def used(asked: Asked, answer: Answer) -> Usage:
    """What the answer takes: as scripted, or a quarter of the characters."""
    if answer.usage is not None:
        return answer.usage
    said = answer.text + answer.reasoning + "".join(call.name + call.arguments for call in answer.calls)
    return Usage(input=_tokens(json.dumps([asked.messages, asked.tools])), output=_tokens(said))


def _tokens(text: str) -> int:
    return -(-len(text) // 4)


def pieces(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def model_of(asked: Asked, answer: Answer) -> str:
    return str(answer.model or asked.body.get("model", "scripted"))


# ── OpenAI ──


def openai_error(answer: Answer) -> Json:
    return {"error": {"message": answer.error, "type": "error", "param": None, "code": answer.code or None}}


def openai_whole(asked: Asked, answer: Answer) -> Json:
    message: Json = {"role": "assistant", "content": answer.text if answer.text or not answer.calls else None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": finish(answer), "logprobs": None}
    whole = {**_openai_head(asked, answer, "chat.completion"), "choices": [choice]}
    return {**whole, "usage": openai_usage(used(asked, answer))} if answer.says_usage else whole


def openai_chunks(asked: Asked, answer: Answer) -> Iterator[Json]:
    """One delta after the other; the arguments of a tool call come in pieces too."""
    head = _openai_head(asked, answer, "chat.completion.chunk")

    def chunk(delta: Mapping[str, Any], why: str | None = None) -> Json:
        return {**head, "choices": [{"index": 0, "delta": dict(delta), "finish_reason": why}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in pieces(answer.reasoning, answer.piece):
        yield chunk({"reasoning_content": piece})
    for piece in pieces(answer.text, answer.piece):
        yield chunk({"content": piece})
    while answer.endless:
        yield chunk({"content": answer.text or "and "})
    for index, call in enumerate(answer.calls):
        begun = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [begun]})
        for piece in pieces(call.arguments, answer.piece):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, finish(answer))
    if answer.says_usage and (asked.body.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": openai_usage(used(asked, answer))}


def _openai_head(asked: Asked, answer: Answer, kind: str) -> Json:
    return {"id": "chatcmpl-scripted", "object": kind, "created": 0, "model": model_of(asked, answer)}


def openai_usage(usage: Usage) -> Json:
    sent = usage.input + usage.cache_read + usage.cache_write
    return {
        "prompt_tokens": sent,
        "completion_tokens": usage.output,
        "total_tokens": sent + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


# ── Anthropic ──


def anthropic_error(answer: Answer) -> Json:
    kind = answer.code or _ERRORS.get(answer.status, "api_error")
    return {"type": "error", "error": {"type": kind, "message": answer.error}}


def anthropic_whole(asked: Asked, answer: Answer) -> Json:
    content: list[Json] = []
    if answer.reasoning:
        content.append({"type": "thinking", "thinking": answer.reasoning, "signature": "signed"})
    if answer.text:
        content.append({"type": "text", "text": answer.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
        for call in answer.calls
    ]
    usage = used(asked, answer)
    return {**_anthropic_head(asked, answer), "content": content, **_ending(answer), "usage": anthropic_usage(usage)}


def anthropic_events(asked: Asked, answer: Answer) -> Iterator[Json]:
    """The events of a stream; `type` is also the event's name."""
    usage = anthropic_usage(used(asked, answer))
    start = {**_anthropic_head(asked, answer), "content": [], "stop_reason": None, "stop_sequence": None}
    yield {"type": "message_start", "message": {**start, "usage": {**usage, "output_tokens": 1}}}
    blocks: list[tuple[Json, list[Json]]] = []
    if answer.reasoning:
        thought = [{"type": "thinking_delta", "thinking": one} for one in pieces(answer.reasoning, answer.piece)]
        signed = {"type": "signature_delta", "signature": "signed"}
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, [*thought, signed]))
    if answer.text or answer.endless:
        said = [{"type": "text_delta", "text": one} for one in pieces(answer.text or "and ", answer.piece)]
        blocks.append(({"type": "text", "text": ""}, said))
    for call in answer.calls:
        written = [{"type": "input_json_delta", "partial_json": one} for one in pieces(call.arguments, answer.piece)]
        blocks.append(({"type": "tool_use", "id": call.id, "name": call.name, "input": {}}, written))
    for index, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        while answer.endless and block["type"] == "text":
            yield {"type": "content_block_delta", "index": index, "delta": deltas[0]}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": _ending(answer), "usage": _spent(usage)}
    yield {"type": "message_stop"}


def _spent(usage: Json) -> Json:
    """What is known at the end only."""
    return {name: usage[name] for name in ("output_tokens", "output_tokens_details")}


def _anthropic_head(asked: Asked, answer: Answer) -> Json:
    return {"id": "msg_scripted", "type": "message", "role": "assistant", "model": model_of(asked, answer)}


def _ending(answer: Answer) -> Json:
    return {"stop_reason": _STOPS.get(finish(answer), "end_turn"), "stop_sequence": None}


def anthropic_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


# ── embeddings ──


def embeddings(asked: Asked, embed: Callable[[str], list[float]]) -> Json:
    given = asked.body.get("input", [])
    texts = [given] if isinstance(given, str) else list(given)
    data = [{"object": "embedding", "index": at, "embedding": embed(text)} for at, text in enumerate(texts)]
    tokens = sum(map(_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": asked.body.get("model", "scripted"), "usage": usage}


def hashed(text: str, size: int = 16) -> list[float]:
    """A vector of length 1 that depends on the words only: the same words in another order have the same one."""
    vector = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
        vector[digest[0] % size] += 1.0 if digest[1] % 2 else -1.0
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector] if length else [1.0, *vector[1:]]
