"""Vectors from an endpoint: a real HTTP server on this machine that speaks the protocol, well and badly."""

from __future__ import annotations

import base64
import json
import struct
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from herma import Herma
from herma.errors import EmbedderError
from herma.index.vectors import Vectors
from herma.models.embedder import EndpointEmbedder
from herma.testing import FixedClock, HashEmbedder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

Reply = tuple[int, dict[str, str], bytes]
WIDTH = 16


@dataclass
class Server:
    """Answers with `replies` while there are some, then as it should."""

    url: str = ""
    base64: bool = False
    replies: list[Reply] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    before: Callable[[], object] = lambda: None

    def answer(self, body: dict[str, Any]) -> Reply:
        self.asked.append(body)
        if self.replies:
            return self.replies.pop(0)
        vectors = (HashEmbedder(body.get("dimensions", WIDTH)).queries(body["input"]) * 3).tolist()
        data = [{"index": place, "embedding": self.written(vector)} for place, vector in enumerate(vectors)]
        return 200, {}, json.dumps({"object": "list", "data": data[::-1], "model": body["model"]}).encode()

    def written(self, vector: list[float]) -> object:
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode() if self.base64 else vector


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@contextmanager
def serving() -> Iterator[Server]:
    made = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            made.headers.append(dict(self.headers))
            status, headers, body = made.answer(json.loads(self.rfile.read(length)) | {"path": self.path})
            made.before()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    made.url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield made
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


def embedder(server: Server, *, slept: list[float] | None = None, **given: Any) -> EndpointEmbedder:
    given = {"url": server.url, "model": "small", **given}
    clock = FixedClock()

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if slept is not None:
            slept.append(seconds)

    return EndpointEmbedder(**given, sleep=sleep, clock=clock)


def failing(status: int, text: str = "", **headers: str) -> Reply:
    return status, headers, json.dumps({"error": {"message": text}}).encode()


@pytest.mark.parametrize("coded", [False, True])
def test_vectors_come_in_order_and_with_length_one(server: Server, coded: bool) -> None:
    server.base64 = coded
    texts = ["bread", "salt", "water"]
    found = embedder(server).passages(texts)
    assert found.dtype == np.float32
    assert np.allclose(found, HashEmbedder(WIDTH).passages(texts), atol=1e-6)


def test_very_large_numbers_are_a_direction_too(server: Server) -> None:
    data = [{"index": 0, "embedding": [3e38, 0.0]}, {"index": 1, "embedding": [1e38, 1e38]}]
    server.replies = [(200, {}, json.dumps({"data": data}).encode())]
    assert embedder(server).passages(["a", "b"]) == pytest.approx(np.array([[1, 0], [0.5**0.5, 0.5**0.5]]))


def test_what_is_asked_and_sent(server: Server) -> None:
    made = embedder(server, api_key="s3cret", model="intfloat/e5-large", url=f"{server.url}/embeddings/")
    made.queries(["x"])
    made.passages([""])
    assert [body["input"] for body in server.asked] == [["query: x"], ["passage: "]]
    assert server.asked[0]["path"] == "/v1/embeddings"
    assert server.asked[0]["model"] == "intfloat/e5-large"
    assert server.headers[0]["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(made) + made.name


def test_texts_go_in_batches_and_no_key_is_sent_where_there_is_none(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = embedder(server)
    assert made.dimension == made.dimension == WIDTH
    assert len(server.asked) == 1, "the dimension is asked for once"
    assert made.queries([]).shape == (0, WIDTH)
    monkeypatch.setattr("herma.models.embedder._BATCH", 2)
    assert made.queries(["a", "b", "c", "d", ""]).shape == (5, WIDTH)
    assert [body["input"] for body in server.asked[1:]] == [["a", "b"], ["c", "d"], [" "]]  # none takes an empty text
    assert "Authorization" not in server.headers[0]


def test_names_tell_models_apart(server: Server) -> None:
    names = {
        embedder(server).name,
        embedder(server, model="other").name,
        embedder(server, model="e5-base").name,
        embedder(server, url="http://user:pw@elsewhere/v1").name,
    }
    assert len(names) == 4
    assert not any("pw" in name for name in names)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_passes_is_tried_again_with_growing_pauses(server: Server, status: int) -> None:
    server.replies = [failing(status), failing(status)]
    slept: list[float] = []
    assert embedder(server, slept=slept).queries(["x"]).shape == (1, WIDTH)
    assert slept == [0.5, 1.0]


def test_the_server_says_how_long_to_wait(server: Server) -> None:
    server.replies = [failing(429, **{"Retry-After": "7"}), failing(429, **{"Retry-After": "nan"})]
    slept: list[float] = []
    embedder(server, slept=slept).queries(["x"])
    assert slept == [7.0, 1.0]
    server.replies = [failing(429, "slow down", **{"Retry-After": "3600"})]
    with pytest.raises(EmbedderError, match="429: slow down"):
        embedder(server, slept=slept).queries(["x"])
    assert slept == [7.0, 1.0], "a wait beyond the deadline is not waited for"


@pytest.mark.parametrize(
    ("reply", "sentence", "hint"),
    [
        (failing(401, "wrong key"), "answered 401: wrong key", "MY_KEY"),
        (failing(404, "no such model"), "answered 404: no such model", "embedding.endpoint_model"),
        ((302, {"Location": "http://127.0.0.1:9/"}, b""), "answered 302", "embedding.url"),
        ((400, {}, b"<html>\n bad  request</html>"), "answered 400.", "words alone"),
        ((200, {}, b"<html>"), "not what /embeddings gives", "embedding.url"),
        ((200, {}, b'{"data": []}'), "0 vectors for 1 texts", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": null}]}'), "vectors are missing", "embedding.url"),
        ((200, {}, b'{"data": [{"index": 5, "embedding": [1]}]}'), "not what /embeddings gives", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": ["a"]}]}'), "not numbers", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": [NaN, 1]}]}'), "not finite", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": []}]}'), "not finite", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": [0, 0]}]}'), "has no length", "embedding.url"),
        ((200, {}, b'{"data": [{"embedding": "AAAA!"}]}'), "not what /embeddings gives", "embedding.url"),
        ((200, {}, b"[" * 100_000), "not what /embeddings gives", "embedding.url"),
    ],
)
def test_what_is_wrong_is_said_at_once(server: Server, reply: Reply, sentence: str, hint: str) -> None:
    server.replies = [reply]
    slept: list[float] = []
    with pytest.raises(EmbedderError) as caught:
        embedder(server, slept=slept, api_key="k", key_variable="MY_KEY").queries(["x"])
    assert sentence in str(caught.value)
    assert hint in caught.value.hint
    assert slept == []
    assert len(server.asked) == 1


def test_vectors_of_another_length_are_refused(server: Server) -> None:
    made = embedder(server)
    made.queries(["x"])
    server.replies = [(200, {}, json.dumps({"data": [{"embedding": [1.0, 2.0]}]}).encode())]
    with pytest.raises(EmbedderError, match="2 numbers instead of 16"):
        made.queries(["x"])


def test_a_server_that_does_not_answer_in_time(server: Server) -> None:
    stop = threading.Event()
    server.before = lambda: stop.wait(5)
    try:
        with pytest.raises(EmbedderError, match="does not answer: timeout"):
            embedder(server, timeout=0.2).queries(["x"])
    finally:
        stop.set()


def test_a_server_that_hangs_up_in_the_middle(server: Server) -> None:
    server.replies = [(200, {"Content-Length": "5000"}, b'{"data"')]
    slept: list[float] = []
    assert embedder(server, slept=slept).queries(["x"]).shape == (1, WIDTH)  # it may pass: tried again
    assert slept == [0.5]
    server.replies = [(200, {"Content-Length": "5000"}, b'{"data"')]
    with pytest.raises(EmbedderError, match="does not answer: its answer was cut off"):
        embedder(server, timeout=0.4).queries(["x"])


def test_nobody_there() -> None:
    with serving() as gone:
        pass
    slept: list[float] = []
    with pytest.raises(EmbedderError, match="does not answer: Connection refused"):
        embedder(gone, slept=slept, timeout=1.2).queries(["x"])
    assert slept == [0.5]


# ── what it costs ──


def configured(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch, *, key: bool, tokens: int) -> None:
    monkeypatch.setenv("A_KEY", "k")
    named = "  api_key_env: A_KEY\n" if key else ""
    (home / "config.yaml").write_text(
        f"embedding:\n  model: endpoint\n  url: {server.url}\n  endpoint_model: small\n{named}"
        f"spend:\n  daily_tokens: {tokens}\n"
    )


def vectors(h: Herma) -> Vectors:
    found = h.index.vectors
    assert found is not None
    return found


def said(h: Herma, *texts: str) -> None:
    session = h.transcripts.start("cli")
    h.transcripts.append(session, [{"role": "user", "content": text} for text in texts])
    h.transcripts.end(session)


def test_what_a_paid_endpoint_embeds_is_counted_and_capped(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, server, monkeypatch, key=True, tokens=100_000)
    with Herma.open(home) as h:
        said(h, "the river was high in spring", "we moved the boat to the other bank")
        assert vectors(h).wait()
        spent = h.models.spending().spent_today["embedding"]
        assert spent.tokens > 0
        assert vectors(h).wait()
        assert h.models.spending().spent_today["embedding"] == spent, "known texts are not sent again"
    configured(home, server, monkeypatch, key=True, tokens=spent.tokens + 1)
    with Herma.open(home) as h:
        said(h, "in autumn the garden was full of apples and somebody made jam of them")
        assert not vectors(h).wait()
        assert "apples" not in str(server.asked), "nothing was sent"
        state = vectors(h).state()
        assert "does not allow embedding" in state.trouble
        assert state.left == 1, "no text counts as one that the endpoint refused"
        assert state.failures == 0
        assert vectors(h).near("the river", 3).hits, "questions go on"
    configured(home, server, monkeypatch, key=True, tokens=100_000)
    with Herma.open(home) as h:
        assert vectors(h).wait()
        assert not vectors(h).state().left


def test_an_endpoint_that_fails_uses_nothing_up_and_one_without_a_key_is_not_counted(
    home: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(home, server, monkeypatch, key=True, tokens=100_000)
    with Herma.open(home) as h:
        said(h, "the river was high in spring")
        server.replies = [(400, {}, b"{}")] * 20
        assert not vectors(h).wait()
        assert h.models.spending().total_today.tokens == 0
    server.replies = []
    configured(home, server, monkeypatch, key=False, tokens=1)
    with Herma.open(home) as h:
        said(h, "we moved the boat to the other bank")
        vectors(h).drop()
        assert vectors(h).wait()
        assert "embedding" not in h.models.spending().spent_today or not h.models.spending().total_today.tokens
