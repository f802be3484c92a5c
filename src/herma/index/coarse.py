"""Where it takes too long to compare all vectors: an approximate index that names a part of them to be compared.

It is built in memory by faiss (the extra `ann`), aside, while all are still compared; what is added after that is
compared in full until it is built again. Scores never come from it, only candidates.
"""

from __future__ import annotations

import math
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.ports.vectors import Vector

COARSE_FROM = 200_000
"""Vectors of a kind from which on it pays."""
_SAMPLE_PER_CELL = 40
_CELLS_LOOKED_INTO = 48


class Coarse(Protocol):
    """Names vectors that may be near."""

    def add(self, ids: NDArray[np.int64], vectors: Vector) -> None: ...

    def near(self, query: Vector, count: int) -> NDArray[np.int64]:
        """Ids, some of which may be gone by now."""
        ...


def available() -> bool:
    return find_spec("faiss") is not None


def faiss_index(dimension: int, rows: int, sample: Vector) -> Coarse:
    """An empty index for about so many vectors, with cells that fit a sample of them."""
    return _Faiss(dimension, rows, sample)


def sample_size(rows: int) -> int:
    return min(rows, _cells(rows) * _SAMPLE_PER_CELL)


def _cells(rows: int) -> int:
    return max(1, int(4 * math.sqrt(rows)))


class _Faiss:
    """Cells round centres, in 8-bit numbers; a question looks into the nearest cells."""

    def __init__(self, dimension: int, rows: int, sample: Vector) -> None:
        faiss: Any = import_module("faiss")
        self._index: Any = faiss.index_factory(dimension, f"IVF{_cells(rows)},SQ8", faiss.METRIC_INNER_PRODUCT)
        self._index.train(sample)
        self._index.nprobe = _CELLS_LOOKED_INTO

    def add(self, ids: NDArray[np.int64], vectors: Vector) -> None:
        self._index.add_with_ids(vectors, ids)

    def near(self, query: Vector, count: int) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._index.search(query.reshape(1, -1), count)[1][0]
        return found[found >= 0]
