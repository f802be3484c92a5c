"""Turning texts into vectors whose cosine says how near their meanings are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

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
