"""Doubles for tests: a clock, an embedder without a model, and a model that serves scripted answers over HTTP.

    with ScriptedModel(["Hello.", Answer.calling("memory", {"action": "add"}), Answer.failing(429)]) as model:
        ...                      # point an OpenAI-compatible client at model.url, or Anthropic's at model.root
        assert model.requests[0].last == "hi"

It has /v1/chat/completions, /v1/messages (Anthropic), /v1/embeddings and /v1/models. The script is a list, whose steps
are used up one by one, or a function of the request. Nothing outside the standard library is needed.
"""

from __future__ import annotations

import hashlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from herma.types import Finish, ToolCall, Usage

if TYPE_CHECKING:
    from herma.models.embedder import Vectors

Dialect: TypeAlias = Literal["openai", "anthropic", "embeddings", "models"]
_NOTHING: Mapping[str, str] = MappingProxyType({})
Json = dict[str, Any]
_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
_ERRORS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
_ERRORS |= {413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error"}
_STEP = 0.02
"""Seconds between two checks whether the client hung up."""
_PATHS: dict[str, Dialect] = {
    "/chat/completions": "openai",
    "/messages": "anthropic",
    "/embeddings": "embeddings",
    "/models": "models",
}
_JSON, _EVENTS = "application/json", "text/event-stream"


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One request. `body` is its JSON; the names in `headers` are lower case."""

    dialect: Dialect
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    hung_up: threading.Event = field(default_factory=threading.Event)
    """Set when the client closed the connection before the answer was complete."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", ()))

    @property
    def tools(self) -> list[dict[str, Any]]:
        return list(self.body.get("tools", ()))

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def last(self) -> str:
        """Return the text of the last message, which most scripts decide by."""
        return text_of(self.messages[-1].get("content")) if self.messages else ""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer, and how it is sent: by default whole and at once, else in pieces, slowly, cut off, or not at all."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    usage: Usage | None = None
    """The usage that the answer reports; `None`: a count by characters."""
    says_usage: bool = True
    finish: Finish | None = None
    model: str | None = None
    """The model that the answer names; `None`: the one in the request."""
    piece: int = 8
    """Characters in one piece of a stream: of text, of reasoning and of a tool call's arguments."""
    wait: float = 0.0
    """Seconds before the first byte."""
    pause: float = 0.0
    """Seconds before each piece."""
    broken_after: int | None = None
    """The connection is cut after so many pieces."""
    silent_after: int | None = None
    """Pieces after which nothing more is sent, while the connection stays open."""
    endless: bool = False
    """The text is repeated until the client hangs up."""
    malformed: bool = False
    """The second piece of a stream, or the whole answer, is not valid JSON."""
    status: int = 200
    error: str = ""
    code: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    content_type: str | None = None
    """A wrong content type, in place of the right one."""
    raw: str | None = None
    """The whole body, in place of an answer: a proxy's error page, for example."""

    @classmethod
    def calling(cls, name: str, arguments: Mapping[str, Any] | str | None = None, **how: Any) -> Self:
        """Answer with one tool call. Arguments that are text are sent as they are, valid or not."""
        return cls(calls=(tool_call(name, arguments),), **how)

    @classmethod
    def failing(
        cls, status: int, error: str = "", *, code: str = "", retry_after: float | str | None = None, **how: Any
    ) -> Self:
        """Refuse, with a status: 401, 429, 500, 503, …"""
        headers = dict(how.pop("headers", {}))
        if retry_after is not None:
            headers["Retry-After"] = f"{retry_after:g}" if isinstance(retry_after, float | int) else retry_after
        return cls(status=status, error=error or f"scripted failure {status}", code=code, headers=headers, **how)


Step: TypeAlias = "str | Answer | Callable[[Asked], str | Answer]"
Script: TypeAlias = "Sequence[Step] | Callable[[Asked], str | Answer]"


def tool_call(name: str, arguments: Mapping[str, Any] | str | None = None, *, call_id: str = "") -> ToolCall:
    """Return a tool call for an `Answer`; by default its id is made from the name."""
    written = arguments if isinstance(arguments, str) else json.dumps(dict(arguments or {}), ensure_ascii=False)
    return ToolCall(call_id or f"call_{name}", name, written)


def text_of(content: object) -> str:
    """Return the text of a message's content, in either protocol."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


_OVER = Answer.failing(
    400, "The script is over: the model was asked once more than it has answers.", code="script_over"
)


class ScriptedModel:
    """The server. It listens once it is made, and stops at `close()` or at the end of a `with` block."""

    def __init__(
        self,
        script: Script = (),
        *,
        name: str = "scripted",
        api_key: str = "",
        embed: Callable[[str], list[float]] | None = None,
        embedding_script: Sequence[Answer] = (),
    ) -> None:
        """`api_key`: requests without it are refused with 401. `embed` gives the vectors of /v1/embeddings, and
        `embedding_script` its first answers: late, refused, malformed.
        """
        self.name = name
        self.requests: list[Asked] = []
        """Every request for an answer, oldest first."""
        self._script = script if callable(script) else list(script)
        self._embeddings = list(embedding_script)
        self._key = api_key
        self.embed = embed or hashed
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted model")
        self._thread.start()

    @property
    def root(self) -> str:
        """Return the address without a version, for Anthropic's client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """Return the address for OpenAI's client."""
        return f"{self.root}/v1"

    @property
    def left(self) -> int:
        """Return how many steps of the script are unused."""
        return 0 if callable(self._script) else len(self._script)

    def then(self, *steps: str | Answer | Callable[[Asked], str | Answer]) -> Self:
        """Add steps to a script that is a list."""
        if callable(self._script):
            raise TypeError("The script is a function; it has no steps to add to.")
        with self._lock:
            self._script.extend(steps)
        return self

    def close(self) -> None:
        """Stop listening and cut every connection. Closing twice does no harm."""
        if self._thread.is_alive():
            self._server.stopping.set()
            self._server.shutdown()
            self._thread.join()
            self._server.hang_up()
            self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def admits(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        return not self._key or given == self._key

    def answer(self, asked: Asked) -> Answer:
        """Record the request, and take the next step of the script."""
        with self._lock:
            self.requests.append(asked)
            if asked.dialect == "embeddings":
                return self._embeddings.pop(0) if self._embeddings else Answer()
            if callable(self._script):
                step: Any = self._script
            else:
                step = self._script.pop(0) if self._script else _OVER
        answered = step(asked) if callable(step) else step
        return Answer(answered) if isinstance(answered, str) else answered


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # they are joined when the server closes, so that nothing outlives a test
    request_queue_size = 64

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without asking the network for this machine's name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._guard:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._guard:
            for connection in self._open:
                _cut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay silent about a client that hung up; show anything else as usual."""
        import sys

        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Gone(Exception):
    """The client hung up, or the server stops."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def _scripted(self) -> _Server:
        return cast("_Server", self.server)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class names it
        """Log nothing: tests read `requests`."""

    def do_GET(self) -> None:
        if self.path.partition("?")[0].endswith("/models"):
            entry = {"id": self._scripted.model.name, "object": "model", "created": 0, "owned_by": "scripted"}
            self._send(200, {"object": "list", "data": [entry]})
        else:
            self._send(404, {"error": {"message": f"There is no {self.path} here.", "code": None}})

    def do_POST(self) -> None:
        path = self.path.partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        dialect = next((kind for ending, kind in _PATHS.items() if path.endswith(ending)), None)
        if dialect is None:
            self._send(404, {"error": {"message": f"There is no {path} here.", "code": None}})
            return
        try:
            body = json.loads(raw)
        except ValueError:
            self._send(400, {"error": {"message": "The request is not JSON.", "code": None}})
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(dialect, path, headers, body)
        model = self._scripted.model
        refused = Answer.failing(401, "This key is not the scripted one.", code="invalid_api_key")
        answer = model.answer(asked) if model.admits(headers) else refused
        try:
            self._deliver(asked, answer)
        except (_Gone, ConnectionError):
            asked.hung_up.set()
            self.close_connection = True

    def _deliver(self, asked: Asked, answer: Answer) -> None:
        self._wait(answer.wait)
        anthropic = asked.dialect == "anthropic"
        if answer.status != 200:
            body = anthropic_error(answer) if anthropic else openai_error(answer)
            self._send(answer.status, body, answer)
        elif asked.dialect == "embeddings":
            self._send(200, embeddings(asked, self._scripted.model.embed), answer)
        elif asked.stream and answer.raw is None:
            chunks = (anthropic_events if anthropic else openai_chunks)(asked, answer)
            self._stream(chunks, answer, anthropic=anthropic)
        else:
            for _ in pieces(answer.text, answer.piece):
                self._wait(answer.pause)
            if answer.silent_after is not None or answer.endless:
                self._wait(float("inf"))
            self._send(200, (anthropic_whole if anthropic else openai_whole)(asked, answer), answer)

    def _send(self, status: int, body: Mapping[str, Any], answer: Answer | None = None) -> None:
        answer = answer or Answer()
        text = json.dumps(body, ensure_ascii=False) if answer.raw is None else answer.raw
        data = text.encode()[: 20 if answer.malformed else None]
        self.send_response(status)
        self.send_header("Content-Type", answer.content_type or _JSON)
        self.send_header("Content-Length", str(len(data)))
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.broken_after is not None:
            self.wfile.write(data[: len(data) // 2])
            self._break()
            return
        self.wfile.write(data)

    def _stream(self, chunks: Iterable[Mapping[str, Any]], answer: Answer, *, anthropic: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", answer.content_type or _EVENTS)
        self.send_header("Transfer-Encoding", "chunked")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for number, chunk in enumerate(chunks):
            if number == answer.broken_after:
                self._break()
                return
            self._wait(float("inf") if number == answer.silent_after else answer.pause)
            data = "{no JSON" if answer.malformed and number == 1 else json.dumps(chunk, ensure_ascii=False)
            event = f"event: {chunk['type']}\n" if anthropic else ""
            self._chunk(f"{event}data: {data}\n\n".encode())
        if not anthropic:
            self._chunk(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        if self._scripted.stopping.is_set():
            raise _Gone
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _break(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        _cut(self.connection)

    def _wait(self, seconds: float) -> None:
        """Wait, unless the client hangs up or the server stops."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._scripted.stopping.wait(min(left, _STEP)) or self._peer_gone():
                raise _Gone

    def _peer_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)


def _cut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it was closed already
        return


def used(asked: Asked, answer: Answer) -> Usage:
    """Return the usage of an answer: as scripted, or a quarter of the characters."""
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
    """Yield the chunks of a stream; the arguments of a tool call come in pieces too."""
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
    """Yield the events of a stream; `type` is also the event's name."""
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
    """Return the part of the usage that is known at the end only."""
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


def embeddings(asked: Asked, embed: Callable[[str], list[float]]) -> Json:
    given = asked.body.get("input", [])
    texts = [given] if isinstance(given, str) else list(given)
    data = [{"object": "embedding", "index": at, "embedding": embed(text)} for at, text in enumerate(texts)]
    tokens = sum(map(_tokens, texts))
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": asked.body.get("model", "scripted"), "usage": usage}


def hashed(text: str, size: int = 16) -> list[float]:
    """Return a vector of length 1 that depends on the words, not on their order."""
    vector = [0.0] * size
    for word in text.lower().split():
        digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
        vector[digest[0] % size] += 1.0 if digest[1] % 2 else -1.0
    length = sum(value * value for value in vector) ** 0.5
    return [value / length for value in vector] if length else [1.0, *vector[1:]]


# ── a clock, and an embedder ──


class FixedClock:
    """A clock that stands still until `advance`; call it for the seconds since 1970."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass; return the new time."""
        self.now += seconds
        return self.now


_GRAM = 3
_WORD_WEIGHT = 2.0  # a shared word says more than three shared letters


class HashEmbedder:
    """An embedder without a model: it counts words and three-letter parts in hashed places. Needs numpy.

    Texts that share words are near, a text is nearest to itself, and two that share nothing are about at right angles.
    The vectors are the same in every process and on every machine.
    """

    def __init__(self, dimension: int = 256, *, name: str = "hash", is_multilingual: bool = True) -> None:
        self.dimension = dimension
        self.name = f"{name}-{dimension}"
        self.is_multilingual = is_multilingual
        self.seen: list[str] = []  # every text that was embedded, in order

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed questions: the same as passages."""
        return self.passages(texts)

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Return one vector of length 1 for each text."""
        import numpy as np

        self.seen += texts
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in _features(text):
                place, sign = _place(feature, self.dimension)
                row[place] += sign * weight
        lengths = np.linalg.norm(rows, axis=1)
        rows[lengths == 0, 0] = 1.0  # no words at all, or all cancelled out: a vector must still have length 1
        lengths[lengths == 0] = 1.0
        unit: Vectors = rows / lengths[:, None]
        return unit


def _features(text: str) -> Iterator[tuple[str, float]]:
    letters = "".join(character if character.isalnum() else " " for character in text.casefold())
    for word in letters.split():
        yield word, _WORD_WEIGHT
        framed = f"<{word}>"
        for start in range(len(framed) - _GRAM + 1):
            yield f"#{framed[start : start + _GRAM]}", 1.0


def _place(feature: str, dimension: int) -> tuple[int, float]:
    digest = hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
