"""A BERT-like model as an ONNX graph with 8-bit matrices, against the same model computed plainly in 64 bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny_bert import DEPTH, HEADS, LONGEST, WIDTH, tensors

from herma.errors import EmbedderError
from herma.models.embedder import compose, quantised

if TYPE_CHECKING:
    from pathlib import Path


def plainly(t: dict[str, Any], tokens: list[int]) -> Any:
    """The same model written down without any care for speed."""

    def norm(x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * t[f"{name}.weight"] + t[f"{name}.bias"]

    def linear(x: Any, name: str) -> Any:
        return x @ t[f"{name}.weight"].T.astype(np.float64) + t[f"{name}.bias"]

    x = t["embeddings.word_embeddings.weight"][tokens].astype(np.float64)
    x = x + t["embeddings.position_embeddings.weight"][: len(tokens)] + t["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    size = WIDTH // HEADS
    for layer in range(DEPTH):
        p = f"encoder.layer.{layer}."
        q, k, v = (linear(x, f"{p}attention.self.{part}") for part in ("query", "key", "value"))
        heads = []
        for head in range(HEADS):
            cut = slice(head * size, (head + 1) * size)
            scores = np.exp(q[:, cut] @ k[:, cut].T / math.sqrt(size))
            heads.append(scores / scores.sum(-1, keepdims=True) @ v[:, cut])
        x = norm(x + linear(np.concatenate(heads, -1), f"{p}attention.output.dense"), f"{p}attention.output.LayerNorm")
        wide = linear(x, f"{p}intermediate.dense")
        wide = wide * 0.5 * (1 + np.vectorize(math.erf)(wide / math.sqrt(2)))
        x = norm(x + linear(wide, f"{p}output.dense"), f"{p}output.LayerNorm")
    return x


def hidden(folder: Path, tokens: list[int], given: dict[str, Any], beside: str = "", **options: Any) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    graph, weights = compose(given, heads=HEADS, beside=beside, **options)
    assert bool(weights) == bool(beside)
    (folder / "graph").write_bytes(graph)
    (folder / "weights").write_bytes(weights)
    session = onnxruntime.InferenceSession(str(folder / "graph"), providers=["CPUExecutionProvider"])
    return session.run(None, {"input_ids": np.array([tokens], dtype=np.int64)})[0][0]


@pytest.mark.parametrize("form", ["one file", "weights beside", "names with a prefix", "positions from 2"])
def test_the_graph_computes_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setattr("herma.models.embedder._SMALL", 64)
    given, options = tensors(), {}
    if form == "names with a prefix":
        given = {f"bert.{name}": tensor for name, tensor in given.items()}
    if form == "positions from 2":
        table = given["embeddings.position_embeddings.weight"]
        given["embeddings.position_embeddings.weight"] = np.concatenate([np.full((2, WIDTH), 9, np.float32), table])
        options = {"first_position": 2}
    for tokens in ([2, 3], [2, 5, 6, 7, 3], list(range(LONGEST))):
        mean = hidden(tmp_path, tokens, given, "weights" if form == "weights beside" else "", **options).mean(0)
        exact = plainly(tensors(), tokens).mean(0)
        assert mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact) > 0.99


@given(st.integers(0, 1), st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_rounding_is_off_by_half_a_step_at_most(axis: int, rows: int, columns: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    matrix[:, 0] = 0  # a column of zeros has a scale too
    rounded, scale = quantised(matrix, axis)
    wide = np.expand_dims(scale, axis)
    assert rounded.dtype == np.int8
    assert (scale > 0).all()
    assert (np.abs(rounded * wide - matrix) <= wide * 0.5001).all()


def test_other_weights_are_refused() -> None:
    broken = tensors()
    del broken["encoder.layer.1.output.dense.bias"]
    for given_tensors, heads, message in (
        ({"wte.weight": np.zeros((2, 2))}, 1, "word_embeddings"),
        (tensors(), 5, "5 heads"),
        (broken, HEADS, r"output\.dense\.bias is missing"),
    ):
        with pytest.raises(EmbedderError, match=message):
            compose(given_tensors, heads=heads)
