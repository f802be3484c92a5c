"""Vectors from an endpoint: a real HTTP server on this machine that speaks the protocol, well and badly."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from herma import Herma
from herma.errors import EmbedderError
from herma.index.vectors import Vectors
from herma.models.embedder import EndpointEmbedder
from herma.testing import Answer, FixedClock, HashEmbedder, ScriptedModel

WIDTH = 16
Serving: TypeAlias = Callable[..., ScriptedModel]


def vector(text: str) -> list[float]:
    found: list[float] = (HashEmbedder(WIDTH).queries([text])[0] * 3).tolist()
    return found


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Start a server that gives these answers first, and then vectors."""
    with ExitStack() as running:
        yield lambda *first: running.enter_context(ScriptedModel(embed=vector, embedding_script=first))


@pytest.fixture
def server(serving: Serving) -> ScriptedModel:
    return serving()


def data(*items: Any) -> Answer:
    return Answer(raw=json.dumps({"data": items}))


def embedder(server: ScriptedModel, slept: list[float] | None = None, **given: Any) -> EndpointEmbedder:
    clock = FixedClock()

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if slept is not None:
            slept.append(seconds)

    return EndpointEmbedder(**{"url": server.url, "model": "small", **given}, sleep=sleep, clock=clock)


def inputs(server: ScriptedModel) -> list[Any]:
    return [asked.body["input"] for asked in server.requests]


@pytest.mark.parametrize("coded", [False, True])
def test_vectors_come_in_order_and_with_length_one(serving: Serving, coded: bool) -> None:
    texts = ["bread", "salt", "water"]
    rows = [(HashEmbedder(WIDTH).queries([text])[0] * 3).astype("<f4") for text in texts]
    written = [base64.b64encode(row.tobytes()).decode() if coded else row.tolist() for row in rows]
    server = serving(data(*[{"index": at, "embedding": one} for at, one in enumerate(written)][::-1]))
    found = embedder(server).passages(texts)
    assert found.dtype == np.float32
    assert np.allclose(found, HashEmbedder(WIDTH).passages(texts), atol=1e-6)
    large = serving(data({"index": 0, "embedding": [3e38, 0.0]}, {"index": 1, "embedding": [1e38, 1e38]}))
    assert embedder(large).passages(["a", "b"]) == pytest.approx(np.array([[1, 0], [0.5**0.5, 0.5**0.5]]))


def test_what_is_asked_and_sent(server: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    made = embedder(server, api_key="s3cret", model="intfloat/e5-large", url=f"{server.url}/embeddings/")
    made.queries(["x"])
    made.passages([""])
    assert inputs(server) == [["query: x"], ["passage: "]]
    asked = server.requests[0]
    assert (asked.path, asked.body["model"]) == ("/v1/embeddings", "intfloat/e5-large")
    assert asked.headers["authorization"] == "Bearer s3cret"
    assert "s3cret" not in repr(made) + made.name
    plain = embedder(server)
    assert plain.dimension == plain.dimension == WIDTH
    assert len(server.requests) == 3, "the dimension is asked for once"
    assert plain.queries([]).shape == (0, WIDTH)
    monkeypatch.setattr("herma.models.embedder._BATCH", 2)
    assert plain.queries(["a", "b", "c", "d", ""]).shape == (5, WIDTH)
    assert inputs(server)[3:] == [["a", "b"], ["c", "d"], [" "]], "no server takes an empty text"
    assert "authorization" not in server.requests[3].headers


def test_a_key_that_the_server_repeats_is_not_shown(serving: Serving) -> None:
    server = serving(Answer.failing(400, "Incorrect API key provided: s3cret"))
    with pytest.raises(EmbedderError, match="Incorrect API key provided: …"):
        embedder(server, api_key="s3cret").queries(["x"])


def test_names_tell_models_apart(server: ScriptedModel) -> None:
    others: tuple[dict[str, Any], ...] = (
        {},
        {"model": "other"},
        {"model": "e5-base"},
        {"url": "http://user:pw@elsewhere/v1"},
    )
    names = {embedder(server, **other).name for other in others}
    assert len(names) == 4
    assert not any("pw" in name for name in names)


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        ([Answer.failing(429)] * 2, [0.5, 1.0]),
        ([Answer.failing(500)] * 2, [0.5, 1.0]),
        ([Answer.failing(429, retry_after=7), Answer.failing(503, retry_after="nan")], [7.0, 1.0]),
        ([Answer(broken_after=0)], [0.5]),
    ],
)
def test_what_passes_is_tried_again(serving: Serving, failures: list[Answer], pauses: list[float]) -> None:
    slept: list[float] = []
    assert embedder(serving(*failures), slept).queries(["x"]).shape == (1, WIDTH)
    assert slept == pauses


@pytest.mark.parametrize(
    ("reply", "sentence", "hint"),
    [
        (Answer.failing(401, "wrong key"), "answered 401: wrong key", "MY_KEY"),
        (Answer.failing(404, "no such model"), "answered 404: no such model", "embedding.endpoint_model"),
        (Answer.failing(429, "slow down", retry_after=3600), "answered 429: slow down", "made later"),
        (Answer.failing(302, headers={"Location": "http://127.0.0.1:9/"}), "answered 302", "embedding.url"),
        (Answer(status=400, raw="<html>\n bad  request</html>"), "answered 400.", "words alone"),
        (Answer(raw="<html>"), "not what /embeddings gives", "embedding.url"),
        (data(), "0 vectors for 1 texts", "embedding.url"),
        (data({"embedding": None}), "vectors are missing", "embedding.url"),
        (data({"index": 5, "embedding": [1]}), "not what /embeddings gives", "embedding.url"),
        (data({"embedding": ["a"]}), "not numbers", "embedding.url"),
        (data({"embedding": [float("nan"), 1]}), "not finite", "embedding.url"),
        (data({"embedding": []}), "not finite", "embedding.url"),
        (data({"embedding": [0, 0]}), "has no length", "embedding.url"),
        (data({"embedding": "AAAA!"}), "not what /embeddings gives", "embedding.url"),
        (Answer(raw="[" * 100_000), "not what /embeddings gives", "embedding.url"),
    ],
)
def test_what_is_wrong_is_said_at_once(serving: Serving, reply: Answer, sentence: str, hint: str) -> None:
    server, slept = serving(reply), list[float]()
    with pytest.raises(EmbedderError) as caught:
        embedder(server, slept, api_key="k", key_variable="MY_KEY").queries(["x"])
    assert sentence in str(caught.value)
    assert hint in caught.value.hint
    assert (slept, len(server.requests)) == ([], 1)


def test_vectors_of_another_length_are_refused(serving: Serving) -> None:
    made = embedder(serving(data({"embedding": [1.0, 2.0, 3.0]})))
    made.queries(["x"])
    with pytest.raises(EmbedderError, match="16 numbers instead of 3"):
        made.queries(["x"])


def test_a_server_that_does_not_answer_in_time(serving: Serving) -> None:
    with pytest.raises(EmbedderError, match="does not answer: timeout"):
        embedder(serving(Answer(wait=99)), timeout=0.2).queries(["x"])
    with pytest.raises(EmbedderError, match="does not answer: its answer was cut off"):
        embedder(serving(Answer(broken_after=0)), timeout=0.4).queries(["x"])
    gone = ScriptedModel()
    gone.close()
    slept: list[float] = []
    with pytest.raises(EmbedderError, match="does not answer: Connection refused"):
        embedder(gone, slept, timeout=1.2).queries(["x"])
    assert slept == [0.5]


# ── what it costs ──


def configured(home: Path, server: ScriptedModel, monkeypatch: pytest.MonkeyPatch, *, key: bool, tokens: int) -> None:
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
    home: Path, server: ScriptedModel, monkeypatch: pytest.MonkeyPatch
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
        assert "apples" not in str([asked.body for asked in server.requests]), "nothing was sent"
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
    home: Path, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving(Answer(), *[Answer.failing(400)] * 20)  # the first is asked for the dimension
    configured(home, server, monkeypatch, key=True, tokens=100_000)
    with Herma.open(home) as h:
        said(h, "the river was high in spring")
        assert not vectors(h).wait()
        assert h.models.spending().total_today.tokens == 0
    configured(home, serving(), monkeypatch, key=False, tokens=1)
    with Herma.open(home) as h:
        said(h, "we moved the boat to the other bank")
        vectors(h).drop()
        assert vectors(h).wait()
        assert "embedding" not in h.models.spending().spent_today or not h.models.spending().total_today.tokens
