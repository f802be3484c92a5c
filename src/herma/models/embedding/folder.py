"""A folder with a model in it: what files there are, and how its texts are to be prepared.

`herma.json` says it for the models that Herma installed. Folders from elsewhere say it in the files that such models
usually come with: config.json, and those of sentence-transformers for the prefixes and the pooling.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from herma.errors import EmbedderError

Pooling = Literal["mean", "cls"]
MANIFEST = "herma.json"
WEIGHTS = "model.safetensors"
GRAPH = "model.onnx"
GRAPH_WEIGHTS = "model.onnx.weights"  # of the graph that Herma makes; a graph from elsewhere may name any file
_SAMPLES, _SAMPLE = 64, 4096  # of a weight file, enough to tell two apart without reading a gigabyte


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk, and how to use it."""

    folder: Path
    name: str  # with what tells its weights from others of the same name
    dimension: int
    heads: int
    max_tokens: int
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    multilingual: bool = False
    epsilon: float = 1e-12

    @property
    def weights(self) -> Path | None:
        return _there(self.folder / WEIGHTS)

    @property
    def graph(self) -> Path | None:
        return _there(self.folder / GRAPH) or _there(self.folder / "onnx" / GRAPH)

    @property
    def vocabulary(self) -> Path:
        for name in ("vocab.txt", "tokenizer.json"):
            if found := _there(self.folder / name):
                return found
        raise EmbedderError(f"The model in {self.folder} has no vocabulary (vocab.txt or tokenizer.json).")


def read_folder(folder: Path) -> ModelFolder:
    """What `folder` holds; EmbedderError when that is no model that can be used here."""
    if not folder.is_dir():
        raise EmbedderError(f"There is no model in {folder}: it is no folder.")
    manifest = _json(folder / MANIFEST)
    found = _from_manifest(folder, manifest) if manifest else _from_foreign(folder)
    if found.weights is None and found.graph is None:
        raise EmbedderError(f"The model in {folder} has no weights: neither {WEIGHTS} nor {GRAPH} is there.")
    return found


def _from_manifest(folder: Path, manifest: dict[str, Any]) -> ModelFolder:
    try:
        return ModelFolder(
            folder=folder,
            name=f"{manifest['name']}:{manifest['revision']}",
            dimension=int(manifest["dimension"]),
            heads=int(manifest["heads"]),
            max_tokens=int(manifest["max_tokens"]),
            pooling=_pooling(manifest["pooling"]),
            query_prefix=str(manifest["query_prefix"]),
            passage_prefix=str(manifest["passage_prefix"]),
            multilingual=bool(manifest["multilingual"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise EmbedderError(f"{folder / MANIFEST} is incomplete: {exc}.") from exc


def _from_foreign(folder: Path) -> ModelFolder:
    config = _json(folder / "config.json")
    if not config:
        raise EmbedderError(
            f"The model in {folder} does not say what it is: there is no config.json.",
            hint=f"Models by folder need config.json, a vocabulary, and {WEIGHTS} or {GRAPH}.",
        )
    if config.get("model_type", "bert") != "bert" or config.get("hidden_act", "gelu") != "gelu":
        raise EmbedderError(
            f"The model in {folder} is not BERT-like ({config.get('model_type')}, {config.get('hidden_act')}).",
            hint="Other kinds can be used through an endpoint: embedding.model: endpoint",
        )
    if _json(folder / "tokenizer_config.json").get("do_lower_case") is False:
        raise EmbedderError(f"The model in {folder} tells upper from lower case, which is not supported here.")
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
    pooling = _json(folder / "1_Pooling" / "config.json")
    longest = _json(folder / "sentence_bert_config.json").get("max_seq_length") or config["max_position_embeddings"]
    prefixes = str(prompts.get("query", "")), str(prompts.get("passage", prompts.get("document", "")))
    cls = bool(pooling.get("pooling_mode_cls_token"))
    try:
        return ModelFolder(
            folder=folder,
            name=f"{folder.resolve().name}:{_fingerprint(folder, f'{prefixes} {cls} {longest}')}",
            dimension=int(config["hidden_size"]),
            heads=int(config["num_attention_heads"]),
            max_tokens=min(int(longest), int(config["max_position_embeddings"])),
            pooling="cls" if cls else "mean",
            query_prefix=prefixes[0],
            passage_prefix=prefixes[1],
            multilingual=int(config.get("vocab_size", 0)) > 60_000,  # English vocabularies have about 30,000 entries
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise EmbedderError(f"{folder / 'config.json'} is incomplete: {exc}.") from exc


def _fingerprint(folder: Path, extra: str) -> str:
    """Tells this model from others: the sizes of its files, and samples from all over its weights."""
    digest = hashlib.sha256(extra.encode())
    for name in (WEIGHTS, GRAPH, f"onnx/{GRAPH}"):
        path = folder / name
        if not path.is_file():
            continue
        size = path.stat().st_size
        digest.update(f"{name} {size}".encode())
        with path.open("rb") as file:
            for number in range(_SAMPLES):
                file.seek(number * max(size - _SAMPLE, 0) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
        break  # the other form of the same weights
    return digest.hexdigest()[:12]


def _pooling(value: object) -> Pooling:
    if value == "mean" or value == "cls":
        return value
    raise ValueError(f"pooling {value!r} is neither mean nor cls")


def _there(path: Path) -> Path | None:
    return path if path.is_file() else None


def _json(path: Path) -> dict[str, Any]:
    """The file's object; empty where there is no file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise EmbedderError(f"{path} cannot be read: {exc}.") from exc
    return found if isinstance(found, dict) else {}
