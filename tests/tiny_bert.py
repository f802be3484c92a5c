"""A BERT-like model small enough to be made in a test, with random weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

WIDTH, WIDE, HEADS, DEPTH, LONGEST = 32, 64, 4, 2, 24
ENTRIES = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    *"abcdefghijklmnopqrstuvwxyz",
    *(f"##{c}" for c in "abcdefghijklmnopqrst"),
]
CONFIG = {
    "model_type": "bert",
    "hidden_size": WIDTH,
    "num_attention_heads": HEADS,
    "max_position_embeddings": LONGEST,
    "vocab_size": len(ENTRIES),
}


def tensors(seed: int = 1) -> dict[str, Any]:
    random = np.random.default_rng(seed)

    def made(*shape: int, scale: float = 0.3) -> Any:
        return (random.standard_normal(shape) * scale).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": made(len(ENTRIES), WIDTH),
        "embeddings.position_embeddings.weight": made(LONGEST, WIDTH),
        "embeddings.token_type_embeddings.weight": made(2, WIDTH),
        "embeddings.LayerNorm.weight": 1 + made(WIDTH),
        "embeddings.LayerNorm.bias": made(WIDTH),
    }
    shapes = {
        **dict.fromkeys(("attention.self.query", "attention.self.key", "attention.self.value"), (WIDTH, WIDTH)),
        "attention.output.dense": (WIDTH, WIDTH),
        "intermediate.dense": (WIDE, WIDTH),
        "output.dense": (WIDTH, WIDE),
    }
    for layer in range(DEPTH):
        for name, shape in shapes.items():
            found[f"encoder.layer.{layer}.{name}.weight"] = made(*shape)
            found[f"encoder.layer.{layer}.{name}.bias"] = made(shape[0])
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            found[f"encoder.layer.{layer}.{name}.weight"] = 1 + made(WIDTH)
            found[f"encoder.layer.{layer}.{name}.bias"] = made(WIDTH)
    return found


def write_folder(folder: Path, *, graph: bool = True, weights: bool = True) -> Path:
    """A folder as people download them: config.json, a vocabulary, weights."""
    for library in ("onnxruntime", "safetensors", "tokenizers"):
        pytest.importorskip(library)
    from safetensors.numpy import save_file

    from herma.models.embedder import compose

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "vocab.txt").write_text("\n".join(ENTRIES) + "\n")
    if weights:
        save_file(tensors(), folder / "model.safetensors")
    if graph:
        (folder / "model.onnx").write_bytes(compose(tensors(), heads=HEADS)[0])
    return folder
