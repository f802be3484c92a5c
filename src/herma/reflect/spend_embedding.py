"""An embedder that is paid for, behind the meter: what it embeds unasked counts like other background work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from herma.errors import EmbedderError, SpendRefused
from herma.reflect.spend import Meter, Refused
from herma.types import Usage

if TYPE_CHECKING:
    from herma.ports.embedding import Embedder, Vectors

PURPOSE = "embedding"


class MeteredEmbedder:
    """Implements `Embedder`. Texts that are stored count under `embedding`, and at the cap `SpendRefused` is raised
    before anything is sent. Questions are what somebody asked for: they are let through.
    """

    def __init__(self, embedder: Embedder, meter: Meter, model: str) -> None:
        self._embedder = embedder
        self._meter = meter
        self._model = model

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    @property
    def is_multilingual(self) -> bool:
        return self._embedder.is_multilingual

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._embedder.queries(texts)

    def passages(self, texts: Sequence[str]) -> Vectors:
        worst = Usage(input=sum(map(self._meter.count, texts)))
        held = self._meter.reserve(PURPOSE, self._model, worst)
        if isinstance(held, Refused):
            raise SpendRefused(held.notice, hint=held.hint)
        try:
            found = self._embedder.passages(texts)
        except EmbedderError:  # an endpoint that fails for hours must not use up what reviews may spend
            self._meter.settle(held, Usage())
            raise
        self._meter.settle(held, worst)
        return found
