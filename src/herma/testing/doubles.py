"""HashEmbedder, FixedClock, prefix check."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from herma.models.embedder import Vectors


# ---------- testing.clock
#
# A clock that goes when it is told to.


class FixedClock:
    """Call it for the time in seconds since 1970; it stands still until `advance`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass. → the new time."""
        self.now += seconds
        return self.now


# ---------- testing.hash_embedder
#
# An embedder without a model: what shares words and parts of words is near.

_GRAM = 3
_WORD_WEIGHT = 2.0  # a shared word says more than three shared letters


class HashEmbedder:
    """Counts a text's words and three-letter parts in hashed places, the same in every process and on every machine.

    Enough to test what is done with vectors: texts that share words are near, a text is nearest to itself, and two
    that share nothing are about at right angles. It knows no meaning. Needs numpy.
    """

    def __init__(self, dimension: int = 256, *, name: str = "hash", is_multilingual: bool = True) -> None:
        self.dimension = dimension
        self.name = f"{name}-{dimension}"
        self.is_multilingual = is_multilingual
        self.seen: list[str] = []  # every text that was embedded, in order: what a test asks about

    def queries(self, texts: Sequence[str]) -> Vectors:
        """What is asked; the same as a passage."""
        return self.passages(texts)

    def passages(self, texts: Sequence[str]) -> Vectors:
        """One vector of length 1 for each text."""
        import numpy as np

        self.seen += texts
        rows = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            for feature, weight in _features(text):
                place, sign = _place(feature, self.dimension)
                row[place] += sign * weight
        lengths = np.linalg.norm(rows, axis=1)
        rows[lengths == 0, 0] = 1.0  # no words at all, or all cancelled out: a vector must still have length 1
        lengths[lengths == 0] = 1.0
        unit: Vectors = rows / lengths[:, None]
        return unit


def _features(text: str) -> Iterator[tuple[str, float]]:
    letters = "".join(character if character.isalnum() else " " for character in text.casefold())
    for word in letters.split():
        yield word, _WORD_WEIGHT
        framed = f"<{word}>"
        for start in range(len(framed) - _GRAM + 1):
            yield f"#{framed[start : start + _GRAM]}", 1.0


def _place(feature: str, dimension: int) -> tuple[int, float]:
    digest = hashlib.blake2b(feature.encode("utf-8", "replace"), digest_size=8).digest()
    number = int.from_bytes(digest, "big")
    return (number >> 1) % dimension, 1.0 if number & 1 else -1.0
