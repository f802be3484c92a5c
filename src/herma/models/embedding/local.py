"""Vectors from a model on this machine: through onnxruntime where it is installed, else through numpy alone.

The model is loaded at the first text, not before. Texts are taken one at a time by onnxruntime, on as many threads as
there are processors for them; the work of one text on one thread wastes the least. numpy takes short texts together.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

from herma.errors import EmbedderError
from herma.models.embedding.native import NATIVE
from herma.models.embedding.wordpiece import WordPiece, read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from herma.models.embedding.folder import ModelFolder, Pooling
    from herma.ports.embedding import Vectors

_TOKENS_TOGETHER = 256  # for numpy: enough to keep the matrices busy, few enough to stay in the processor's cache
_MOST_THREADS = 8


class Runner(Protocol):
    """Runs texts, as tokens, through a model."""

    kind: str

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """For each text the vectors of its last layer: (tokens, dimension), or one pooled vector (dimension)."""


class LocalEmbedder:
    """An embedder that works offline."""

    def __init__(self, model: ModelFolder, *, threads: int = 0, runner: str = "") -> None:
        self.model = model
        self.name = model.name
        self.dimension = model.dimension
        self.is_multilingual = model.multilingual
        self._threads = threads or min(os.cpu_count() or 1, _MOST_THREADS)
        self._wanted = runner
        self._loading = threading.Lock()
        self._loaded: tuple[WordPiece, Runner] | None = None

    @property
    def runner(self) -> str:
        """What does the arithmetic: onnxruntime or numpy. Loads the model."""
        with NATIVE.one():
            return self._load()[1].kind

    def queries(self, texts: Sequence[str]) -> Vectors:
        with NATIVE.one():
            return self._embed(texts, self.model.query_prefix)

    def passages(self, texts: Sequence[str]) -> Vectors:
        with NATIVE.one():
            return self._embed(texts, self.model.passage_prefix)

    def _load(self) -> tuple[WordPiece, Runner]:
        with self._loading:
            if self._loaded is None:
                runner = load_runner(self.model, self._threads, self._wanted)
                self._loaded = read_vocabulary(self.model.vocabulary), runner
            return self._loaded

    def _embed(self, texts: Sequence[str], prefix: str) -> Vectors:
        words, runner = self._load()
        import numpy as np

        tokens = [words.encode(prefix + text, self.model.max_tokens) for text in texts]
        vectors: Vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for row, hidden in enumerate(runner.hidden(tokens)):
            vectors[row] = pooled(hidden, self.model.pooling)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(vectors).all() or not lengths.all():
            raise EmbedderError(
                f"The model in {self.model.folder} computes nonsense: its weights are damaged.",
                hint="Install it again: herma models install e5-small --reinstall",
            )
        vectors /= lengths
        return vectors


def pooled(hidden: Any, pooling: Pooling) -> Any:
    """One vector for a text: the mean of its tokens', or that of its first."""
    if hidden.ndim == 1:
        return hidden
    return hidden[0] if pooling == "cls" else hidden.mean(axis=0)


def load_runner(model: ModelFolder, threads: int, wanted: str = "") -> Runner:
    """Whatever can run this model here; `wanted` insists on "onnxruntime" or "numpy"."""
    try:
        import numpy as np  # noqa: F401 (both need it)
    except ImportError as exc:
        raise EmbedderError(
            "A local embedding model needs numpy, which is not installed.", hint="pip install 'herma[local]'"
        ) from exc
    if model.graph is not None and wanted != "numpy":
        try:
            return OnnxRunner(model.graph, threads)
        except ImportError as exc:
            if wanted or model.weights is None:
                raise EmbedderError(
                    "This embedding model needs onnxruntime, which is not installed.",
                    hint="pip install 'herma[local]'",
                ) from exc
    if model.weights is None or wanted == "onnxruntime":
        raise EmbedderError(f"The model in {model.folder} has no file for {wanted or 'numpy'}.")
    return NumpyRunner(model)


class NumpyRunner:
    """Needs numpy alone."""

    kind = "numpy"

    def __init__(self, model: ModelFolder) -> None:
        from herma.models.embedding.bert import assemble
        from herma.models.embedding.safetensors import read_tensors

        if model.weights is None:
            raise EmbedderError(f"The model in {model.folder} has no weights for numpy.")
        self._bert = assemble(read_tensors(model.weights), heads=model.heads, epsilon=model.epsilon)

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        found: list[Any] = [None] * len(texts)
        for group in together(texts, _TOKENS_TOGETHER):
            for place, hidden in zip(group, self._bert.hidden([texts[place] for place in group]), strict=True):
                found[place] = hidden
        return found


def together(texts: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    """The places of texts, in groups that have no more than so many tokens, or one text."""
    group: list[int] = []
    size = 0
    for place, text in enumerate(texts):
        if group and size + len(text) > tokens:
            yield group
            group, size = [], 0
        group.append(place)
        size += len(text)
    if group:
        yield group


class OnnxRunner:
    """Through onnxruntime: Herma's own graph, or any that takes `input_ids` and gives hidden states."""

    kind = "onnxruntime"

    def __init__(self, path: Path, threads: int) -> None:
        import onnxruntime  # type: ignore[import-untyped, unused-ignore]

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # texts side by side, not parts of one
        options.enable_mem_pattern = False  # every text has another length
        options.log_severity_level = 4
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except _failures() as exc:
            raise EmbedderError(f"onnxruntime cannot load {path}: {_first_line(exc)}.") from exc
        self._session, self._threads = session, threads
        self._inputs = [item.name for item in session.get_inputs()]
        self._output = _output([(item.name, len(item.shape or ())) for item in session.get_outputs()])
        if "input_ids" not in self._inputs or self._output is None:
            raise EmbedderError(f"{path} is no text encoder: it does not take input_ids and give hidden states.")

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        if self._threads == 1 or len(texts) < 2:
            return [self._one(tokens) for tokens in texts]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._threads, len(texts)), "herma-embed") as pool:
            return list(pool.map(self._one, texts))

    def _one(self, tokens: Sequence[int]) -> Any:
        import numpy as np

        ids = np.asarray([tokens], dtype=np.int64)
        fillings: dict[str, Callable[[Any], Any]] = {"input_ids": np.asarray, "attention_mask": np.ones_like}
        feed = {name: fillings.get(name, np.zeros_like)(ids) for name in self._inputs}
        try:
            return self._session.run([self._output], feed)[0][0]
        except _failures() as exc:
            raise EmbedderError(f"onnxruntime failed on a text of {len(tokens)} tokens: {_first_line(exc)}.") from exc


def _failures() -> tuple[type[Exception], ...]:
    """What onnxruntime raises: a dozen kinds that have only `Exception` in common."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # type: ignore[import-untyped, unused-ignore]

    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError)


def _output(outputs: Sequence[tuple[str, int]]) -> str | None:
    """Hidden states by their usual name, else whatever has their shape, else a pooled vector."""
    names = {name for name, _ in outputs}
    if "last_hidden_state" in names:
        return "last_hidden_state"
    for wanted in (3, 2):
        for name, dimensions in outputs:
            if dimensions == wanted:
                return name
    return None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(".")
