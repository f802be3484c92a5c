"""An embedder as a guest: what it does wrong is caught here, counted and told; then it is left alone for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from herma.errors import SpendRefused
from herma.ports.vectors import EmbedderTrouble, ModelRow

if TYPE_CHECKING:
    from herma.ports.embedding import Embedder, Vectors
    from herma.ports.vectors import Vector

Answer = TypeVar("Answer")

FIRST_REST, LONGEST_REST = 1.0, 300.0
_PROBE = "Is anybody there?"
_QUERIES_KEPT = 64
_ASK_AGAIN = 60.0
"""Seconds until it is looked again whether there is room for more today."""


class Guest:
    """One embedder. Every method answers None where it fails or rests; `trouble` says why."""

    def __init__(
        self,
        embedder: Embedder,
        *,
        clock: Callable[[], float] = time.time,
        tell: Callable[[EmbedderTrouble], None] = lambda _: None,
        known: EmbedderTrouble | None = None,
    ) -> None:
        self._embedder = embedder
        self._clock = clock
        self._tell = tell
        self._mutex = threading.Lock()
        self._asked: dict[str, Vector] = {}
        self.name = embedder.name
        self.trouble = known if known is not None and known.model == self.name else EmbedderTrouble()
        self._dimension = 0
        self._spent = (0.0, "")

    @property
    def is_multilingual(self) -> bool:
        return bool(self._embedder.is_multilingual)

    @property
    def resting(self) -> bool:
        return self._clock() < self.trouble.retry_at

    @property
    def waiting(self) -> str:
        """Why no texts are embedded for now, though nothing is wrong with it; questions are."""
        until, why = self._spent
        return why if self._clock() < until else ""

    @property
    def note(self) -> str:
        """What is wrong, in one line for people."""
        return f"the embedder failed ({self.trouble.message})" if self.trouble.message else ""

    def made(self, model: ModelRow) -> bool:
        """Whether these are its vectors, as far as it is known how long its own are."""
        return model.name == self.name and self._dimension in (0, model.dimension)

    def dimension(self) -> int:
        """0 when it does not say. Where it is known, asking costs nothing."""
        if not self._dimension and not self.resting:
            found = self._asking(lambda: self._embedder.dimension)
            self._dimension = found or 0
        return self._dimension

    def query(self, text: str) -> Vector | None:
        with self._mutex:
            if text in self._asked:
                return self._asked[text]
        found = None if self.resting else self._asking(lambda: self._rows(self._embedder.queries([text]), 1))
        if found is None:
            return None
        with self._mutex:
            while len(self._asked) >= _QUERIES_KEPT:
                del self._asked[next(iter(self._asked))]
            self._asked[text] = found[0]
        row: Vector = found[0]
        return row

    def passages(self, texts: Sequence[str]) -> list[bytes] | None:
        """One vector in 8-bit numbers for each text; empty for a text that it refuses though it takes others."""
        if self.resting or self.waiting:
            return None
        found = self._asking(lambda: self._rows(self._embedder.passages(texts), len(texts)), quiet=True)
        if found is not None:
            return packed(found)
        if self.waiting:
            return None
        failed = self.trouble
        if self._asking(lambda: self._rows(self._embedder.passages([_PROBE]), 1)) is None:
            return None
        if len(texts) == 1:
            self._remember(EmbedderTrouble())
            return [b""]
        singly: list[bytes] = []
        for text in texts:
            one = self.passages([text])
            if one is None:
                return None
            singly += one
        if not any(singly):
            self._remember(self._next(failed.message))  # it takes nothing but the probe
            return None
        return singly

    def _asking(self, question: Callable[[], Answer], *, quiet: bool = False) -> Answer | None:
        """Ask. `quiet`: a failure is remembered, but not yet held against it."""
        try:
            answer = question()
        except SpendRefused as refused:  # no failure: tomorrow, or with more room, it goes on
            self._spent = (self._clock() + _ASK_AGAIN, str(refused))
            return None
        except Exception as error:  # noqa: BLE001  a guest may raise anything
            message = " ".join(str(error).split())[:200] or type(error).__name__
            if quiet:
                self.trouble = EmbedderTrouble(self.name, message, self.trouble.failures, self.trouble.retry_at)
            else:
                self._remember(self._next(message))
            return None
        if self.trouble != EmbedderTrouble():
            self._remember(EmbedderTrouble())
        return answer

    def _next(self, message: str) -> EmbedderTrouble:
        failures = self.trouble.failures + 1
        rest = min(LONGEST_REST, FIRST_REST * 2.0 ** min(failures - 1, 20))
        return EmbedderTrouble(self.name, message, failures, self._clock() + rest)

    def _remember(self, trouble: EmbedderTrouble) -> None:
        self.trouble = trouble
        self._tell(trouble)

    def _rows(self, given: Vectors, count: int) -> Vectors:
        import numpy as np

        found = np.asarray(given, dtype=np.float32)
        if found.ndim != 2 or found.shape[0] != count or (self._dimension and found.shape[1] != self._dimension):
            raise ValueError(f"{count} vectors of {self._dimension} numbers were expected, not {found.shape}")
        if not np.isfinite(found).all():
            raise ValueError("a vector has numbers that are none")
        return found


def packed(vectors: Vectors) -> list[bytes]:
    """Each vector scaled so that its largest number is 127. Only the direction is kept: that is all a cosine needs."""
    import numpy as np

    largest = np.abs(vectors).max(axis=1, keepdims=True)
    largest[largest == 0] = 1.0
    rows = np.rint(vectors / largest * 127.0).astype(np.int8)
    return [row.tobytes() for row in rows]
