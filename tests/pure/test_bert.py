"""The arithmetic of a BERT-like model, in numpy and as an ONNX graph, against a plain one in 64 bits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny_bert import DEPTH, ENTRIES, HEADS, LONGEST, WIDTH, tensors

from herma.errors import EmbedderError
from herma.models.bert import assemble, compose, quantised, read_tensors, write_tensors

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = st.lists(st.integers(0, len(ENTRIES) - 1), min_size=1, max_size=LONGEST)
BERT = assemble(tensors(), heads=HEADS)


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


@given(TOKENS)
def test_numpy_computes_the_model(tokens: list[int]) -> None:
    assert np.allclose(BERT.hidden([tokens])[0], plainly(tensors(), tokens), atol=2e-4)


@given(st.lists(TOKENS, min_size=1, max_size=4))
def test_a_text_does_not_depend_on_its_company(texts: list[list[int]]) -> None:
    for alone, together in zip((BERT.hidden([text])[0] for text in texts), BERT.hidden(texts), strict=True):
        assert np.allclose(alone, together, atol=1e-5)


@pytest.mark.parametrize("beside", ["", "weights"])
def test_the_graph_computes_nearly_the_same(beside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    monkeypatch.setattr("herma.models.bert._SMALL", 64)
    graph, weights = compose(BERT, beside)
    (tmp_path / "graph").write_bytes(graph)
    (tmp_path / "weights").write_bytes(weights)
    assert bool(weights) == bool(beside)
    session = onnxruntime.InferenceSession(str(tmp_path / "graph"), providers=["CPUExecutionProvider"])
    for tokens in ([2, 3], [2, 5, 6, 7, 3], list(range(LONGEST))):
        mean = session.run(None, {"input_ids": np.array([tokens], dtype=np.int64)})[0][0].mean(0)
        exact = plainly(tensors(), tokens).mean(0)
        assert mean @ exact / np.linalg.norm(mean) / np.linalg.norm(exact) > 0.99


@given(st.integers(0, 1), st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_rounding_is_off_by_half_a_step_at_most(axis: int, rows: int, columns: int, seed: int) -> None:
    matrix = np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)
    rounded, scale = quantised(matrix, axis)
    wide = np.expand_dims(scale, axis)
    assert rounded.dtype == np.int8
    assert (np.abs(rounded * wide - matrix) <= wide * 0.5001).all()


def test_a_column_of_zeros_has_a_scale() -> None:
    rounded, scale = quantised(np.zeros((3, 2), np.float32), 0)
    assert not rounded.any()
    assert (scale == 1).all()


def test_tensors_are_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    given_tensors = tensors() | {"half": np.ones((2, 3), np.float16), "small": np.array([-1, 2], np.int8)}
    write_tensors(path, given_tensors, {"model": "tiny"})
    found = read_tensors(path)
    assert list(found) == list(given_tensors)
    assert all(np.array_equal(found[name], tensor) for name, tensor in given_tensors.items())


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4,
        b"\xff" * 64,
        b"\x02\x00\x00\x00\x00\x00\x00\x00[]",
        (62).to_bytes(8, "little") + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}       ' + b"\x00" * 8,
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(EmbedderError, match=r"no readable safetensors"):
        read_tensors(path)


def test_other_weights_are_refused() -> None:
    with pytest.raises(EmbedderError, match="word_embeddings"):
        assemble({"wte.weight": np.zeros((2, 2))}, heads=1)
    with pytest.raises(EmbedderError, match="5 heads"):
        assemble(tensors(), heads=5)
    broken = tensors()
    del broken["encoder.layer.1.output.dense.bias"]
    with pytest.raises(EmbedderError, match=r"output\.dense\.bias is missing"):
        assemble(broken, heads=HEADS)


def test_names_may_have_a_prefix() -> None:
    prefixed = assemble({f"bert.{name}": tensor for name, tensor in tensors().items()}, heads=HEADS)
    assert np.allclose(prefixed.hidden([[2, 5, 3]])[0], BERT.hidden([[2, 5, 3]])[0])
