"""A model whose answers are written down beforehand: a real server on loopback that speaks the real protocols.

    with ScriptedModel(["Hello.", Answer.calling("memory", {"action": "add"}), Answer.failing(429)]) as model:
        ...                      # point an OpenAI-compatible client at model.url, or Anthropic's at model.root
        assert model.requests[0].last == "hi"

It has /v1/chat/completions, /v1/messages (Anthropic's), /v1/embeddings and /v1/models. The script is a list, whose
steps are used up one by one, or a function of the request. Nothing outside the standard library is needed.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from herma.testing import scripted_model_wire as wire
from herma.testing.scripted_model_answer import Answer, Asked, Dialect, Script

_STEP = 0.02
"""Seconds between two looks whether somebody hung up."""
_PATHS: dict[str, Dialect] = {
    "/chat/completions": "openai",
    "/messages": "anthropic",
    "/embeddings": "embeddings",
    "/models": "models",
}
_OVER = Answer.failing(
    400, "The script is over: the model was asked once more than it has answers.", code="script_over"
)
_JSON, _EVENTS = "application/json", "text/event-stream"


class ScriptedModel:
    """The server. It listens as soon as it is made, and stops at `close()` or at the end of a `with` block."""

    def __init__(
        self,
        script: Script = (),
        *,
        name: str = "scripted",
        api_key: str = "",
        embed: Callable[[str], list[float]] = wire.hashed,
        embedding_script: Sequence[Answer] = (),
    ) -> None:
        """`api_key`: whoever does not bring it is refused with 401. `embed` gives the vectors of /v1/embeddings, and
        `embedding_script` says how its first answers come: late, refused, malformed.
        """
        self.name = name
        self.requests: list[Asked] = []
        """Every request for an answer, oldest first."""
        self._script = script if callable(script) else list(script)
        self._embeddings = list(embedding_script)
        self._key = api_key
        self.embed = embed
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="scripted model")
        self._thread.start()

    @property
    def root(self) -> str:
        """The address without a version, as Anthropic's client wants it."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        """The address as OpenAI's client wants it."""
        return f"{self.root}/v1"

    @property
    def left(self) -> int:
        """Steps of the script that nobody asked for yet."""
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

    # ── asked by the server's threads ──

    def admits(self, headers: Mapping[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        return not self._key or given == self._key

    def answer(self, asked: Asked) -> Answer:
        """Write the request down, and take the next step of the script."""
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
        """As usual, without asking the network for this machine's name, which may take seconds."""
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
        """A client that is gone is what these tests are about; anything else is shown as usual."""
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
        """Silent: tests read `requests`."""

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

    # ── an answer, with everything that goes wrong with it ──

    def _deliver(self, asked: Asked, answer: Answer) -> None:
        self._wait(answer.wait)
        anthropic = asked.dialect == "anthropic"
        if answer.status != 200:
            body = wire.anthropic_error(answer) if anthropic else wire.openai_error(answer)
            self._send(answer.status, body, answer)
        elif asked.dialect == "embeddings":
            self._send(200, wire.embeddings(asked, self._scripted.model.embed), answer)
        elif asked.stream and answer.raw is None:
            chunks = (wire.anthropic_events if anthropic else wire.openai_chunks)(asked, answer)
            self._stream(chunks, answer, anthropic=anthropic)
        else:
            for _ in wire.pieces(answer.text, answer.piece):
                self._wait(answer.pause)
            if answer.silent_after is not None or answer.endless:
                self._wait(float("inf"))
            self._send(200, (wire.anthropic_whole if anthropic else wire.openai_whole)(asked, answer), answer)

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
        """Let time pass, unless the client hangs up or the server stops."""
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
