"""Turn texts into vectors: the `Embedder` interface, the one that the settings name, endpoints, and local models.

A local model is a folder, run with onnxruntime. `herma.json` describes one that Herma installed; a folder from
elsewhere is described by the files that such models usually come with: config.json, those of the tokenizer, and those
of sentence-transformers.
"""

from __future__ import annotations

import atexit
import base64
import binascii
import hashlib
import json
import os
import re
import struct
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from herma.errors import ConfigError, EmbedderError, install_command
from herma.models.client import retry_after, words_of
from herma.models.endpoints import read_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from herma.config import EmbeddingSettings

    Vectors: TypeAlias = NDArray[np.float32]


_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
_LONGEST_RETRY_AFTER = 3600.0
_LONGEST_TEXT = 20_000  # characters: more than such models read, and endpoints refuse what is too long
_SHORTEST_KEY = 6
_QUOTED = 200  # characters of a server's own words in an error
_LARGEST_ANSWER = 256 * 1024 * 1024
_PIECE = 64 * 1024
_BATCH = 64


class Embedder(Protocol):
    """A model that gives every text one vector of length 1, so that a dot product is the cosine.

    Many models embed questions and answers differently, so there are two methods. A text's vector depends on that text
    alone. A failure raises `EmbedderError`, and no vector of that call may be kept. Safe to use from several threads.
    """

    @property
    def name(self) -> str:
        """Identify the model, down to its weights: vectors of two names must never be compared."""

    @property
    def dimension(self) -> int:
        """Return the length of a vector. An endpoint may have to be asked once, which may raise `EmbedderError`."""

    @property
    def is_multilingual(self) -> bool:
        """Say whether it understands more than English; if not, ranking trusts it less for other questions."""

    def queries(self, texts: Sequence[str]) -> Vectors:
        """Embed questions: float32 of shape (texts, dimension)."""

    def passages(self, texts: Sequence[str]) -> Vectors:
        """Embed texts that may answer: the same shape."""


@dataclass(frozen=True, slots=True)
class Choice:
    """An embedder; or none, and the reason. `wanted`: it is missing although it was asked for by name."""

    embedder: Embedder | None
    reason: str = ""
    wanted: bool = False


def make_embedder(
    settings: EmbeddingSettings, environ: Mapping[str, str] = os.environ, *, home: Path | None = None
) -> Choice:
    """Return the embedder that `embedding.model` names on this machine. Load and ask nothing yet; never raise.

    The key of an endpoint may be in the `.env` file of `home`.
    """
    model = settings.model.strip()
    if model == "none":
        return Choice(None, "embedding.model is none")
    needed = ("numpy",) if model == "endpoint" else LIBRARIES
    if missing := [name for name in needed if find_spec(name) is None]:
        verb = "is" if len(missing) == 1 else "are"
        return Choice(
            None, f"{' and '.join(missing)} {verb} not installed ({install_command('local')})", model != "auto"
        )
    try:
        return Choice(_endpoint(settings, environ, home)) if model == "endpoint" else _local(model, environ)
    except (EmbedderError, ConfigError) as exc:
        return Choice(None, str(exc).rstrip("."), wanted=True)


def _local(model: str, environ: Mapping[str, str]) -> Choice:
    """`auto` is e5-small, or the only model that is installed. Another word is an installed model, or a path."""
    folder = models_folder(environ)
    there = look(folder, AUTOMATIC if model == "auto" else model)
    if there is None and model == "auto":
        others = installed(folder)
        there = others[0] if len(others) == 1 else None
    if there is None and model in ("auto", AUTOMATIC):
        return Choice(None, f"{AUTOMATIC} is not installed (herma models install {AUTOMATIC})", wanted=model != "auto")
    if there is not None and not there.whole:
        return Choice(None, f"{there.name} is damaged (herma models install {there.name})", wanted=True)
    return Choice(LocalEmbedder(read_folder(there.folder if there else Path(model).expanduser())))


def _endpoint(settings: EmbeddingSettings, environ: Mapping[str, str], home: Path | None) -> EndpointEmbedder:
    if not settings.url.startswith(("https://", "http://")) or not settings.endpoint_model:
        raise EmbedderError("embedding.model is endpoint, which needs embedding.url and embedding.endpoint_model")
    variable = settings.api_key_env
    key = environ.get(variable, "") or (read_key(variable, home, environ) if home is not None else "")
    if variable and not key:
        raise EmbedderError(f"The variable {variable} of embedding.api_key_env is not set")
    return EndpointEmbedder(settings.url, settings.endpoint_model, api_key=key, key_variable=variable)


class EndpointEmbedder:
    """An embedder behind HTTP, with OpenAI's `/embeddings`. `url` is the base (`https://…/v1`) or the whole address.

    One request carries up to `_BATCH` texts. Errors that may pass (too many requests, a server error, a broken
    connection) are retried with growing pauses within `timeout`. The answer is checked: one vector for each text, all
    of the same length, all finite. Models of families that want a word before questions and texts get it.
    """

    is_multilingual = True

    def __init__(
        self,
        url: str,
        model: str,
        *,
        api_key: str = "",
        key_variable: str = "",
        timeout: float = 30.0,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        base = url.rstrip("/")
        self.address = base if base.endswith("/embeddings") else f"{base}/embeddings"
        self._model = model
        self._key, self._key_variable = api_key, key_variable
        self._timeout = timeout
        self._query_prefix, self._passage_prefix = prefixes_of(model)
        self._sleep, self._clock = sleep, clock
        self._dimension = 0
        self._asking = threading.Lock()

    @property
    def name(self) -> str:
        """Name the model, its host, and whatever else changes its vectors."""
        host = self.address.partition("://")[2].partition("/")[0].rpartition("@")[2]
        return f"endpoint:{host}/{self._model}" + (f" {self._passage_prefix!r}" if self._passage_prefix else "")

    @property
    def dimension(self) -> int:
        with self._asking:
            if not self._dimension:
                self._embed(["dimension"])
        return self._dimension

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._all([self._query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._all([self._passage_prefix + text for text in texts])

    def _all(self, texts: Sequence[str]) -> Vectors:
        np = _numpy()
        if not texts:
            empty: Vectors = np.zeros((0, self.dimension), dtype=np.float32)
            return empty
        rows = [self._embed(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        joined: Vectors = np.concatenate(rows)
        return joined

    def _embed(self, texts: Sequence[str]) -> Vectors:
        clean = [text[:_LONGEST_TEXT].encode("utf-8", "replace").decode() or " " for text in texts]
        body = {"model": self._model, "input": clean}
        answer = self._ask(json.dumps(body).encode())
        vectors = self._checked(_read_vectors(answer, len(texts)))
        self._dimension = vectors.shape[1]
        return vectors

    def _ask(self, body: bytes) -> bytes:
        """Return the body of a successful answer; retry what may pass, until the deadline."""
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        deadline = self._clock() + self._timeout
        pause = _FIRST_PAUSE
        while True:
            wait = 0.0
            try:
                status, answer, wait = _post(self.address, body, headers, deadline, self._clock)
            except _Unreachable as exc:
                failure = EmbedderError(
                    f"The embedding endpoint {self.address} does not answer: {exc}.",
                    hint="Check embedding.url. Search uses words alone until it answers.",
                )
            else:
                if status == 200:
                    return answer
                failure = self._refused(status, answer)
                if status not in _PASSING:
                    raise failure
            wait = max(wait, pause)
            if self._clock() + wait >= deadline:
                raise failure
            self._sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _refused(self, status: int, body: bytes) -> EmbedderError:
        words = words_of(body)[0]
        if len(self._key) >= _SHORTEST_KEY:  # some servers repeat it
            words = words.replace(self._key, "…")
        words = " ".join(words.split())[:_QUOTED].rstrip(".")
        sentence = f"The embedding endpoint {self.address} answered {status}{f': {words}' if words else ''}."
        if status in (401, 403):
            key = self._key_variable
            hint = f"Check the key in {key}." if key else "Set embedding.api_key_env to the variable that holds a key."
        elif status in (404, 405) or 300 <= status < 400:
            hint = "Check embedding.url (the base, such as https://host/v1) and embedding.endpoint_model."
        elif status == 429:
            hint = "Too many requests; missing vectors are made later."
        else:
            hint = "Search uses words alone until it answers."
        return EmbedderError(sentence, hint=hint)

    def _checked(self, rows: list[list[float]] | list[bytes]) -> Vectors:
        """Return unit vectors; raise unless all have the dimension of this endpoint."""
        np = _numpy()
        try:
            if isinstance(rows[0], bytes):
                found = np.array([np.frombuffer(row, dtype="<f4") for row in rows], dtype=np.float32)
            else:
                found = np.array(rows, dtype=np.float32)
        except (ValueError, TypeError, OverflowError) as exc:
            raise _nonsense("its vectors are not numbers, or not all of one length") from exc
        if found.ndim != 2 or not found.shape[1] or not np.isfinite(found).all():
            raise _nonsense("its vectors are not finite numbers, all of one length")
        if self._dimension and found.shape[1] != self._dimension:
            raise EmbedderError(
                f"The embedding endpoint gave vectors of {found.shape[1]} numbers instead of {self._dimension}.",
                hint="Check embedding.endpoint_model.",
            )
        lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)  # squares of floats may be too large
        if not lengths.all():
            raise _nonsense("a vector has no length")
        unit: Vectors = (found / lengths).astype(np.float32)
        return unit


def _read_vectors(body: bytes, wanted: int) -> list[list[float]] | list[bytes]:
    """Return the vectors of an answer in the order of the texts, each as numbers or as the bytes of float32 numbers."""
    try:
        answer = json.loads(body)
        data = answer["data"]
        ordered: list[Any] = [None] * wanted
        if len(data) != wanted:
            raise _nonsense(f"{len(data)} vectors for {wanted} texts")
        for place, item in enumerate(data):
            ordered[item.get("index", place)] = item["embedding"]
        if all(isinstance(vector, str) for vector in ordered):
            return [base64.b64decode(vector, validate=True) for vector in ordered]
        if all(isinstance(vector, list) for vector in ordered):
            return ordered
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, binascii.Error) as exc:
        raise _nonsense("the answer is not what /embeddings gives") from exc
    raise _nonsense("vectors are missing")


def _nonsense(what: str) -> EmbedderError:
    return EmbedderError(
        f"The embedding endpoint gave no usable vectors: {what}.",
        hint="Check embedding.url and embedding.endpoint_model.",
    )


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError as exc:
        raise EmbedderError("Vectors need numpy, which is not installed.", hint=install_command("local")) from exc
    return np


class _Unreachable(Exception):
    """No complete answer came; the message says why."""


def _post(
    url: str, body: bytes, headers: Mapping[str, str], deadline: float, clock: Callable[[], float]
) -> tuple[int, bytes, float]:
    """Send JSON; return the status, the body, and the seconds that the server asks to wait.

    Redirects are not followed: they would carry the key elsewhere.
    """
    import http.client
    import urllib.error
    import urllib.request

    class AnyStatus(urllib.request.HTTPErrorProcessor):
        """Returns every status to the caller."""

        def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 (urllib names it)
            return response

        https_response = http_response

    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")  # noqa: S310
    try:
        with urllib.request.build_opener(AnyStatus).open(request, timeout=max(deadline - clock(), 0.001)) as response:
            kept = b"".join(_pieces(response, deadline, clock))
            named = {name.lower(): value for name, value in response.headers.items()}
            return response.status, kept, min(retry_after(named, time.time()) or 0.0, _LONGEST_RETRY_AFTER)
    except (OSError, http.client.HTTPException, ValueError) as exc:
        reason = getattr(exc, "reason", None) or exc
        words = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
        raise _Unreachable("timeout" if isinstance(reason, TimeoutError) else str(words).rstrip(".")) from exc


def _pieces(response: Any, deadline: float, clock: Callable[[], float]) -> Iterator[bytes]:
    """Read to the end; a server that sends slowly does not hold the caller beyond the deadline."""
    size = 0
    while piece := response.read1(_PIECE):
        yield piece
        size += len(piece)
        if size > _LARGEST_ANSWER:
            raise _Unreachable("its answer is too large")
        if clock() > deadline:
            raise _Unreachable("timeout")
    if response.length:
        raise _Unreachable("its answer was cut off")


AUTOMATIC = "e5-small"
"""The model that `embedding.model: auto` uses if it is installed."""
MANIFEST = "herma.json"
WEIGHTS = "model.safetensors"
GRAPH = "model.onnx"
GRAPH_WEIGHTS = "model.onnx.weights"  # of a graph that Herma wrote; a graph from elsewhere may name any file
BERT_LIKE = ("bert", "roberta", "xlm-roberta")
"""The model types whose weights can be written as a graph."""
LIBRARIES = ("numpy", "onnxruntime", "tokenizers")
"""Packages that run a model: the extra `local`."""
_SAMPLES, _SAMPLE = 64, 4096  # of a weight file, enough to tell two apart without reading a gigabyte
_MOST_THREADS = 8
_CHARACTERS_PER_TOKEN = 64  # characters beyond this many per token are cut off before the text is tokenised
_LONGEST_WAIT = 20.0  # seconds for which the end of the program waits for calls; loading a model takes a few

_PREFIXES = (
    (r"(^|[-_/])e5([-_]|$)", ("query: ", "passage: ")),
    (r"bge-.*-en", ("Represent this sentence for searching relevant passages: ", "")),
    (r"nomic-embed", ("search_query: ", "search_document: ")),
)
"""Prefixes of well-known families for questions and texts; many of their folders do not name them."""

Pooling = Literal["mean", "cls"]


def prefixes_of(model: str) -> tuple[str, str]:
    """Return what a model of a well-known family wants in front of questions and of texts."""
    return next((known for pattern, known in _PREFIXES if re.search(pattern, model.lower())), ("", ""))


def models_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of installed models, one for all homes: HERMA_MODELS, else in the user's cache."""
    if chosen := environ.get("HERMA_MODELS"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        cache = Path(environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        cache = Path.home() / "Library" / "Caches"
    else:
        cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "herma" / "models"


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """A model in the models folder. `whole`: every file is there, with the size that was written."""

    name: str
    folder: Path
    size: int
    revision: str
    whole: bool
    new: bool = False


def installed(folder: Path) -> list[InstalledModel]:
    """Return the models in the models folder, by name."""
    if not folder.is_dir():
        return []
    found = (look(folder, path.name) for path in sorted(folder.iterdir()) if not path.name.startswith("."))
    return [model for model in found if model is not None]


def look(folder: Path, name: str) -> InstalledModel | None:
    """Return one model of the models folder; `None` if it is not there."""
    place = folder / name
    try:
        manifest = json.loads((place / MANIFEST).read_text("utf-8"))
        files = {str(file): int(size) for file, size in manifest["sizes"].items()}
        revision = str(manifest["revision"])
    except FileNotFoundError:
        return InstalledModel(name, place, 0, "", whole=False) if name == AUTOMATIC and place.is_dir() else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return InstalledModel(name, place, 0, "", whole=False)
    sizes = [path.stat().st_size if (path := place / file).is_file() else -1 for file in files]
    return InstalledModel(name, place, sum(files.values()), revision, whole=sizes == list(files.values()))


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A model on disk, and how to use it. `name` tells its weights from others with the same name."""

    folder: Path
    name: str
    dimension: int
    heads: int
    max_tokens: int
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    multilingual: bool = False
    epsilon: float = 1e-12
    first_position: int = 0
    lowercase: bool = True
    kind: str = "bert"

    @property
    def weights(self) -> Path | None:
        return _existing(self.folder / WEIGHTS)

    @property
    def graph(self) -> Path | None:
        return _existing(self.folder / GRAPH) or _existing(self.folder / "onnx" / GRAPH)

    @property
    def vocabulary(self) -> Path:
        for name in ("tokenizer.json", "vocab.txt"):
            if found := _existing(self.folder / name):
                return found
        raise EmbedderError(f"The model in {self.folder} has no tokenizer (tokenizer.json or vocab.txt).")


def read_folder(folder: Path) -> ModelFolder:
    """Return the model in `folder`. Raise `EmbedderError` if there is none that can be used."""
    if not folder.is_dir():
        raise EmbedderError(f"There is no model in {folder}: it is not a folder.")
    manifest = _json(folder / MANIFEST)
    found = _from_manifest(folder, manifest) if manifest else _from_config(folder)
    if found.weights is None and found.graph is None:
        raise EmbedderError(f"The model in {folder} has no weights: it needs {WEIGHTS} or {GRAPH}.")
    return found


def _from_manifest(folder: Path, manifest: dict[str, Any]) -> ModelFolder:
    try:
        return ModelFolder(
            folder=folder,
            name=f"{manifest['name']}:{manifest['revision']}",
            dimension=int(manifest["dimension"]),
            heads=int(manifest["heads"]),
            max_tokens=int(manifest["max_tokens"]),
            pooling="cls" if manifest["pooling"] == "cls" else "mean",
            query_prefix=str(manifest["query_prefix"]),
            passage_prefix=str(manifest["passage_prefix"]),
            multilingual=bool(manifest["multilingual"]),
            lowercase=bool(manifest.get("lowercase", True)),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise EmbedderError(f"{folder / MANIFEST} is incomplete: {exc}.") from exc


def _from_config(folder: Path) -> ModelFolder:
    config = _json(folder / "config.json")
    if not config:
        raise EmbedderError(
            f"The model in {folder} does not describe itself: it has no config.json.",
            hint=f"A folder with a model needs config.json, tokenizer.json or vocab.txt, and {WEIGHTS} or {GRAPH}.",
        )
    prompts = _json(folder / "config_sentence_transformers.json").get("prompts") or {}
    pooling = _json(folder / "1_Pooling" / "config.json")
    tokenizer = _json(folder / "tokenizer_config.json")
    longest = _json(folder / "sentence_bert_config.json").get("max_seq_length") or config.get("max_position_embeddings")
    prefixes = str(prompts.get("query", "")), str(prompts.get("passage", prompts.get("document", "")))
    cls = bool(pooling.get("pooling_mode_cls_token"))
    if pooling.get("pooling_mode_lasttoken") or pooling.get("pooling_mode_max_tokens"):
        raise EmbedderError(
            f"The model in {folder} does not take the mean or the first token for the text; others are not supported.",
            hint="Serve it and set embedding.model: endpoint.",
        )
    kind = config.get("model_type", "bert")
    first = int(config.get("pad_token_id") or 0) + 1 if kind in BERT_LIKE[1:] else 0
    try:
        found = ModelFolder(
            folder=folder,
            name=f"{folder.resolve().name}:{_fingerprint(folder, f'{prefixes} {cls} {longest}')}",
            dimension=int(config["hidden_size"]),
            heads=int(config["num_attention_heads"]),
            max_tokens=min(int(longest or 512), int(config.get("max_position_embeddings") or 512) - first),
            pooling="cls" if cls else "mean",
            query_prefix=prefixes[0],
            passage_prefix=prefixes[1],
            multilingual=int(config.get("vocab_size", 0)) > 60_000,  # English vocabularies have about 30,000 entries
            epsilon=float(config.get("layer_norm_eps", 1e-12)),
            first_position=first,
            lowercase=tokenizer.get("do_lower_case") is not False,
            kind=str(kind),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise EmbedderError(f"{folder / 'config.json'} is incomplete: {exc}.") from exc
    if found.graph is None and (
        kind not in ("bert", "roberta", "xlm-roberta") or config.get("hidden_act", "gelu") != "gelu"
    ):
        raise EmbedderError(
            f"The model in {folder} is not BERT-like ({kind}, {config.get('hidden_act')}), so it needs {GRAPH}.",
            hint="Take a version with an ONNX graph, or serve the model and set embedding.model: endpoint.",
        )
    return found


def _fingerprint(folder: Path, extra: str) -> str:
    """Return a hash that tells this model from others: sizes of its files, and samples from all over its weights."""
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
        break  # the others are forms of the same weights
    return digest.hexdigest()[:12]


def _existing(path: Path) -> Path | None:
    return path if path.is_file() else None


def _json(path: Path) -> dict[str, Any]:
    """Return the object in a file; {} if there is no file."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise EmbedderError(f"{path} cannot be read: {exc}.") from exc
    return found if isinstance(found, dict) else {}


class LocalEmbedder:
    """An embedder that works offline. The model is loaded with the first text."""

    runner = "onnxruntime"

    def __init__(self, model: ModelFolder) -> None:
        self.model = model
        self.name = model.name
        self.dimension = model.dimension
        self.is_multilingual = model.multilingual
        self._threads = min(os.cpu_count() or 1, _MOST_THREADS)
        self._loading = threading.Lock()
        self._loaded: tuple[Any, _Encoder] | None = None

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.model.query_prefix)

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._embed(texts, self.model.passage_prefix)

    def _load(self) -> tuple[Any, _Encoder]:
        with self._loading:
            if self._loaded is None:
                self._loaded = load_tokenizer(self.model), _Encoder(self.model, self._threads)
            return self._loaded

    def _embed(self, texts: Sequence[str], prefix: str) -> Vectors:
        with NATIVE.one():
            tokenizer, encoder = self._load()
            import numpy as np

            longest = self.model.max_tokens * _CHARACTERS_PER_TOKEN
            cut = [(prefix + text)[:longest].encode("utf-8", "ignore").decode() for text in texts]
            tokens = [
                tokenizer.encode(text).ids or [0] for text in cut
            ]  # a batch would start threads, and warn at forks
            vectors: Vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
            for row, hidden in enumerate(encoder.hidden(tokens)):
                pooled = (
                    hidden if hidden.ndim == 1 else hidden[0] if self.model.pooling == "cls" else hidden.mean(axis=0)
                )
                if pooled.shape != (self.dimension,):
                    raise EmbedderError(
                        f"The model in {self.model.folder} gives vectors of {len(pooled)} numbers instead of "
                        f"{self.dimension}."
                    )
                vectors[row] = pooled
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not np.isfinite(vectors).all() or not lengths.all():
            raise EmbedderError(
                f"The model in {self.model.folder} gives vectors that are not finite: its weights are damaged.",
                hint=f"Install it again: herma models install {self.name.partition(':')[0]} --reinstall; "
                "or download its files again.",
            )
        vectors /= lengths
        return vectors


def load_tokenizer(model: ModelFolder) -> Any:
    """Return the model's tokenizer, which cuts at `max_tokens`. Marks of the model are plain text inside a text."""
    try:
        from tokenizers import BertWordPieceTokenizer, Tokenizer
        from tokenizers.models import WordPiece
    except ImportError as exc:
        raise _missing("tokenizers") from exc
    path = model.vocabulary
    try:
        if path.suffix == ".json":
            tokenizer = Tokenizer.from_file(str(path))
        else:
            words = WordPiece.read_file(str(path))
            tokenizer = Tokenizer.from_str(BertWordPieceTokenizer(words, lowercase=model.lowercase).to_str())
    except Exception as exc:
        raise EmbedderError(f"The tokenizer {path} cannot be read: {_first_line(exc)}.") from exc
    tokenizer.no_padding()
    tokenizer.enable_truncation(model.max_tokens)
    tokenizer.encode_special_tokens = True
    return tokenizer


class _Encoder:
    """A loaded graph: one that Herma wrote, or any that takes `input_ids` and gives hidden states.

    It takes one text at a time, on as many threads as there are processors: one text on one thread wastes the least.
    """

    def __init__(self, model: ModelFolder, threads: int) -> None:
        try:
            import onnxruntime  # type: ignore[import-untyped, unused-ignore]
        except ImportError as exc:
            raise _missing("onnxruntime") from exc
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # texts side by side, not parts of one
        options.enable_mem_pattern = False  # every text has another length
        options.log_severity_level = 4
        graph: str | bytes = str(model.graph) if model.graph else graph_of(model)[0]
        try:
            session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
        except _failures() as exc:
            raise EmbedderError(f"onnxruntime cannot load {model.graph}: {_first_line(exc)}.") from exc
        self._session, self._threads = session, threads
        self._inputs = [item.name for item in session.get_inputs()]
        self._output = _output([(item.name, len(item.shape or ())) for item in session.get_outputs()])
        if "input_ids" not in self._inputs or self._output is None:
            raise EmbedderError(f"{model.graph} is not a text encoder: it must take input_ids and give hidden states.")

    def hidden(self, texts: Sequence[Sequence[int]]) -> list[Any]:
        """Return for each text the vectors of the last layer, (tokens, dimension), or one pooled vector."""
        if self._threads == 1 or len(texts) < 2:
            return [self._one(tokens) for tokens in texts]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(self._threads, len(texts)), "herma-embed") as pool:
            return list(pool.map(self._one, texts))

    def _one(self, tokens: Sequence[int]) -> Any:
        import numpy as np

        ids = np.asarray([tokens], dtype=np.int64)
        known = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feed = {name: known.get(name, np.zeros_like(ids)) for name in self._inputs}
        try:
            return self._session.run([self._output], feed)[0][0]
        except _failures() as exc:
            raise EmbedderError(f"onnxruntime failed on a text of {len(tokens)} tokens: {_first_line(exc)}.") from exc


def graph_of(model: ModelFolder, beside: str = "") -> tuple[bytes, bytes]:
    """Return the graph for a model that has weights only, and the content of the file `beside` it."""
    assert model.weights is not None
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as exc:
        raise _missing("safetensors") from exc
    try:
        tensors = load_file(model.weights)
    except (SafetensorError, OSError, KeyError, TypeError) as exc:
        raise EmbedderError(f"{model.weights} is not a readable safetensors file: {_first_line(exc)}.") from exc
    return compose(
        tensors, heads=model.heads, epsilon=model.epsilon, first_position=model.first_position, beside=beside
    )


def _output(outputs: Sequence[tuple[str, int]]) -> str | None:
    """Return the output with the hidden states, by its usual name or its shape, else one with a pooled vector."""
    names = {name for name, _ in outputs}
    if "last_hidden_state" in names:
        return "last_hidden_state"
    by_shape = [name for wanted in (3, 2) for name, dimensions in outputs if dimensions == wanted]
    return by_shape[0] if by_shape else None


def _failures() -> tuple[type[Exception], ...]:
    """Return what onnxruntime raises: a dozen kinds that have only `Exception` in common."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state  # type: ignore[import-untyped, unused-ignore]

    own = [kind for kind in vars(state).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*own, RuntimeError, ValueError)


def _missing(library: str) -> EmbedderError:
    return EmbedderError(
        f"A local embedding model needs {library}, which is not installed.", hint=install_command("local")
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200].rstrip(".")


class NativeCalls:
    """Counts calls into native code, so that the end of the program can wait for them.

    When the interpreter ends, a daemon thread is cut off wherever it next wants to run Python. Inside onnxruntime that
    aborts the process (`std::terminate`, exit code 134). So the end waits for running calls and refuses new ones.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._ending = False
        self._process = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Make a call that must not be cut off."""
        with self._changed:
            if self._ending:
                raise EmbedderError("The program is ending.")
            if self._process != os.getpid():  # the first call, or a forked child, which has no other threads
                self._process, self._running = os.getpid(), 0
                atexit.register(self.end)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Refuse new calls, and wait for the running ones."""
        if self._process == os.getpid():
            with self._changed:
                self._ending = True
                self._changed.wait_for(lambda: not self._running, _LONGEST_WAIT)


NATIVE = NativeCalls()


# Write the weights of a BERT-like model as an ONNX graph with 8-bit matrices.
#
# The graph is a quarter of the size of the weights and runs more than twice as fast. Each column of a matrix and each
# row of the word table has its own scale, which keeps the vectors within a few thousandths of those of the 32-bit
# model. The graph takes one text at a time, so nothing is padded. ONNX files are protocol buffers; the few kinds of
# fields that are needed are written here. decisions/0016 has what was measured against onnxruntime's own quantiser.

_FLOAT, _INT8, _INT64 = 1, 3, 7  # ONNX's numbers of element types
_STEPS = 127  # values are -127 … 127: symmetric, so no zero point is needed
_MICROSOFT = "com.microsoft"  # the domain of the operators that onnxruntime adds to the standard
_PAGE = 4096  # an external tensor begins on a page, so that onnxruntime can map it into memory
_SMALL = 1024  # a tensor of fewer bytes stays in the graph
_WORDS = "embeddings.word_embeddings.weight"


def compose(
    tensors: Mapping[str, Any], *, heads: int, epsilon: float = 1e-12, first_position: int = 0, beside: str = ""
) -> tuple[bytes, bytes]:
    """Return the graph, and the content of the file `beside` it that holds the large tensors.

    The graph takes `input_ids` (1, tokens) and gives `last_hidden_state` (1, tokens, dimension). `tensors` have BERT's
    usual names, with or without a prefix. `first_position` is the row of the first token in the position table: 2 for
    models of the RoBERTa family. Without `beside` everything is in the graph.
    """
    weights = _Weights(tensors)
    depth = sum(1 for name in tensors if name.endswith(".attention.self.query.weight"))
    words = weights[_WORDS]
    if not depth or words.ndim != 2 or heads <= 0 or words.shape[1] % heads:
        raise EmbedderError(f"These weights are not those of a BERT-like model with {heads} heads.")
    graph = _Graph(beside)
    x = _embedded(graph, weights, epsilon, first_position)
    for number in range(depth):
        x = _layer(graph, x, weights, f"encoder.layer.{number}.", heads, epsilon)
    graph.node("Identity", [x], "last_hidden_state")
    ends = _bytes(2, "bert")
    ends += _bytes(11, _shaped("input_ids", _INT64, (1, "tokens")))
    ends += _bytes(12, _shaped("last_hidden_state", _FLOAT, (1, "tokens", int(words.shape[1]))))
    domains = (_bytes(1, "") + _number(2, 17), _bytes(1, _MICROSOFT) + _number(2, 1))
    head = _number(1, 8) + _bytes(2, "herma") + b"".join(_bytes(8, domain) for domain in domains)
    return head + _bytes(7, b"".join(graph.parts) + ends), bytes(graph.external)


def quantised(matrix: Any, axis: int) -> tuple[Any, Any]:
    """Return a matrix in 8 bits, and the scale of each column (axis 0) or row (axis 1)."""
    import numpy as np

    wide = np.asarray(matrix, dtype=np.float32)
    scale = np.abs(wide).max(axis=axis) / np.float32(_STEPS)
    if not np.isfinite(scale).all():
        raise EmbedderError("The weights contain values that are not finite: the file is damaged.")
    scale[scale == 0] = 1
    rounded = np.rint(wide / np.expand_dims(scale, axis)).astype(np.int8)
    return rounded, scale


class _Weights:
    """The tensors of a model by BERT's names; matrices are given as they are applied (`x @ matrix`)."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        prefix = next((name.removesuffix(_WORDS) for name in tensors if name.endswith(_WORDS)), None)
        if prefix is None:
            raise EmbedderError(f"These weights are not those of a BERT-like model: they have no {_WORDS}.")
        self._tensors, self._prefix = tensors, prefix

    def __getitem__(self, name: str) -> Any:
        try:
            return self._tensors[self._prefix + name]
        except KeyError as exc:
            raise EmbedderError(f"These weights are not those of a BERT-like model: {name} is missing.") from exc

    def wide(self, name: str) -> Any:
        import numpy as np

        return np.asarray(self[name], dtype=np.float32)

    def matrix(self, *names: str) -> Any:
        import numpy as np

        return np.concatenate([self.wide(f"{name}.weight").T for name in names], axis=1)

    def bias(self, *names: str) -> Any:
        import numpy as np

        return np.concatenate([self.wide(f"{name}.bias") for name in names])


class _Graph:
    """The nodes and constants of a graph, in the order in which they were added."""

    def __init__(self, beside: str) -> None:
        self.parts: list[bytes] = []
        self.external = bytearray()
        self._beside = beside

    def constant(self, name: str, array: Any) -> str:
        import numpy as np

        kind = {"float32": _FLOAT, "int8": _INT8, "int64": _INT64}[str(array.dtype)]
        dims = b"".join(_number(1, size) for size in array.shape)
        raw = np.ascontiguousarray(array).tobytes()
        content = _bytes(9, raw) if not self._beside or len(raw) < _SMALL else self._put_beside(raw)
        self.parts.append(_bytes(5, dims + _number(2, kind) + _bytes(8, name) + content))
        return name

    def _put_beside(self, raw: bytes) -> bytes:
        self.external += bytes(-len(self.external) % _PAGE)
        place = {"location": self._beside, "offset": str(len(self.external)), "length": str(len(raw))}
        self.external += raw
        return b"".join(_bytes(13, _bytes(1, key) + _bytes(2, value)) for key, value in place.items()) + _number(14, 1)

    def node(self, kind: str, inputs: Sequence[str], out: str | Sequence[str], domain: str = "", **named: float) -> str:
        outs = [out] if isinstance(out, str) else list(out)
        body = b"".join(_bytes(1, name) for name in inputs) + b"".join(_bytes(2, name) for name in outs)
        body += _bytes(3, outs[0]) + _bytes(4, kind)
        body += b"".join(_bytes(5, _attribute(name, value)) for name, value in named.items())
        self.parts.append(_bytes(1, body + (_bytes(7, domain) if domain else b"")))
        return outs[0]

    def multiply(self, x: str, matrix: Any, name: str) -> str:
        """Add x @ matrix, with the matrix in 8 bits by column; x is rounded to 8 bits on the way."""
        import numpy as np

        rounded, scale = quantised(matrix, axis=0)
        weight, scales = self.constant(f"{name}.weight", rounded), self.constant(f"{name}.scale", scale)
        zero = self.constant(f"{name}.zero", np.zeros(scale.shape, np.int8))
        return self.node("DynamicQuantizeMatMul", [x, weight, scales, zero], f"{name}.out", _MICROSOFT)

    def add_and_norm(self, x: str, y: str, bias: Any, weights: _Weights, norm: str, epsilon: float) -> str:
        gain, shift = weights.wide(f"{norm}.weight"), weights.wide(f"{norm}.bias")
        inputs = [x, y, self.constant(f"{norm}.gain", gain), self.constant(f"{norm}.shift", shift)]
        if bias is not None:
            inputs.append(self.constant(f"{norm}.added", bias))
        return self.node("SkipLayerNormalization", inputs, f"{norm}.out", _MICROSOFT, epsilon=epsilon)


def _embedded(graph: _Graph, weights: _Weights, epsilon: float, first_position: int) -> str:
    """Add the sum of word, position and sentence type for each token."""
    import numpy as np

    rounded, scale = quantised(weights[_WORDS], axis=1)
    positions = weights.wide("embeddings.position_embeddings.weight")[first_position:]
    graph.constant("words", rounded)
    graph.constant("words.scale", scale[:, None])
    graph.constant("positions", (positions + weights.wide("embeddings.token_type_embeddings.weight")[:1])[None])
    for name, value in (("zero", 0), ("one", 1), ("two", 2)):
        graph.constant(name, np.array([value], dtype=np.int64))
    graph.node("Gather", ["words", "input_ids"], "words.int")
    graph.node("Cast", ["words.int"], "words.float", to=_FLOAT)
    graph.node("Gather", ["words.scale", "input_ids"], "words.row")
    graph.node("Mul", ["words.float", "words.row"], "words.out")
    graph.node("Shape", ["input_ids"], "shape")
    graph.node("Slice", ["shape", "one", "two"], "tokens")
    graph.node("Slice", ["positions", "zero", "tokens", "one"], "positions.out")
    return graph.add_and_norm("words.out", "positions.out", None, weights, "embeddings.LayerNorm", epsilon)


def _layer(graph: _Graph, x: str, weights: _Weights, name: str, heads: int, epsilon: float) -> str:
    """Add one layer: attention, and the two matrices after it, each followed by a sum and a norm."""
    parts = [f"{name}attention.self.{part}" for part in ("query", "key", "value")]
    qkv = graph.multiply(x, weights.matrix(*parts), f"{name}qkv")
    graph.node("Split", [qkv], parts, axis=-1 & (1 << 64) - 1)
    bias = graph.constant(f"{name}qkv.bias", weights.bias(*parts))
    mixed = graph.node("MultiHeadAttention", [*parts, bias], f"{name}mixed", _MICROSOFT, num_heads=heads)
    dense = f"{name}attention.output.dense"
    out = graph.multiply(mixed, weights.matrix(dense), dense)
    x = graph.add_and_norm(x, out, weights.bias(dense), weights, f"{name}attention.output.LayerNorm", epsilon)
    dense = f"{name}intermediate.dense"
    wide = graph.multiply(x, weights.matrix(dense), dense)
    wide = graph.node(
        "BiasGelu", [wide, graph.constant(f"{dense}.bias", weights.bias(dense))], f"{name}wide", _MICROSOFT
    )
    dense = f"{name}output.dense"
    down = graph.multiply(wide, weights.matrix(dense), dense)
    return graph.add_and_norm(x, down, weights.bias(dense), weights, f"{name}output.LayerNorm", epsilon)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _number(place: int, number: int) -> bytes:
    return _varint(place << 3) + _varint(number)


def _bytes(place: int, content: bytes | str) -> bytes:
    raw = content.encode() if isinstance(content, str) else content
    return _varint(place << 3 | 2) + _varint(len(raw)) + raw


def _attribute(name: str, value: float) -> bytes:
    if isinstance(value, float):
        return _bytes(1, name) + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)
    return _bytes(1, name) + _number(3, value) + _number(20, 2)


def _shaped(name: str, kind: int, shape: Sequence[int | str]) -> bytes:
    sizes = [_number(1, size) if isinstance(size, int) else _bytes(2, size) for size in shape]
    tensor = _number(1, kind) + _bytes(2, b"".join(_bytes(1, size) for size in sizes))
    return _bytes(1, name) + _bytes(2, _bytes(1, tensor))
