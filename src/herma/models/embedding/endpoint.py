"""Vectors from any endpoint that speaks OpenAI's `/embeddings`: a service, or a server of one's own.

One request carries up to `batch` texts. What may pass by itself (too many requests, a server's failure, a connection
that breaks) is tried again with growing pauses, or when the server says so, within one deadline for the request and
all its repetitions. Everything else is an `EmbedderError` at once. What comes back is checked: as many vectors as
texts, all of one length, made of finite numbers.
"""

from __future__ import annotations

import base64
import binascii
import json
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from herma.errors import EmbedderError
from herma.models.embedding.http import Answer, Unreachable, post

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from herma.ports.embedding import Vectors

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
