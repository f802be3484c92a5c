"""Vectors of one kind, and the nearest of them.

A row stays in 8-bit numbers, and some blocks of rows at a time become floats in a buffer that fits the processor's
cache: that is a quarter of the memory of floats, and as fast, because memory is what takes the time. A block is also
small enough that no BLAS spreads it over threads, which on a busy machine costs more than it brings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from herma.index.coarse import Coarse, sample_size
from herma.index.sketch import BLOCK, SAMPLE, SKETCH_FROM, Sketch, edge, learnt

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.ports.vectors import Vector

BLOCK_NUMBERS = 393_216
"""Numbers in a block: 1.5 MB of floats."""
_TOGETHER = 4
"""Blocks that are handed to numpy at a time: other threads of Python run meanwhile, and each return waits for them."""
_GROWTH = 1.25
_FEW = 0.2
"""Share of the rows up to which it is cheaper to pick them out first."""
_UNCOVERED = 0.25
"""Share of the rows that a coarse index may lack before it is built again."""
_NAMED, _NAMED_LEAST = 8, 512
"""How many candidates a coarse index names for each that is wanted."""
_COVERED_AT_A_TIME = 20_000
_FIRST = 256
"""Rows that are compared first where there are short forms: they say how near the nearest are, about."""
_GROWN = 2
"""How many times more rows there may be than when the short forms' axes were learnt."""
_SAMPLED = 16
"""One in so many scores says how high the highest are, about."""
_COLUMNS = ("_ids", "_keys", "_sessions", "_lengths", "_covered", "_vectors")


class Shelf:
    """Vectors of one kind. `keys` are numbers of messages, or places in `names` for other kinds."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self.rows = 0
        self.names: list[tuple[str, str]] = []
        self._vectors: NDArray[np.int8] = np.empty((0, dimension), dtype=np.int8)
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._sessions: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._lengths: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._covered: NDArray[np.bool_] = np.empty(0, dtype=np.bool_)
        self._coarse: Coarse | None = None
        self._sketch: Sketch | None = None
        self._learnt_of = 0
        self._ordered = True
        self._block = max(1, BLOCK_NUMBERS // dimension)
        self._buffer = np.empty((0, dimension), dtype=np.float32)

    def add(self, ids: Sequence[int], keys: Any, sessions: Sequence[int], vectors: NDArray[np.int8]) -> None:
        import numpy as np

        end = self.rows + len(ids)
        self.reserve(end)
        self._ids[self.rows : end] = ids
        self._keys[self.rows : end] = keys
        self._sessions[self.rows : end] = sessions
        self._covered[self.rows : end] = False
        self._vectors[self.rows : end] = vectors
        for start in range(self.rows, end, self._block):
            upto = min(end, start + self._block)
            rows = self._floats(slice(start, upto), upto - start)
            self._lengths[start:upto] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        self._lengths[self.rows : end][self._lengths[self.rows : end] == 0] = np.inf
        if self._sketch is not None and self._sketch.rows == self.rows:
            self._sketch.add(self._units(np.arange(self.rows, end)))
        self.rows = end

    def remove(self, ids: NDArray[np.int64]) -> None:
        """Rows from the end take the places of what goes."""
        import numpy as np

        going = np.isin(self._ids[: self.rows], ids)
        left = self.rows - int(going.sum())
        holes, movers = np.flatnonzero(going[:left]), left + np.flatnonzero(~going[left:])
        for name in _COLUMNS:
            column = getattr(self, name)
            column[holes] = column[movers]
        if self._sketch is not None and self._sketch.rows == self.rows:
            self._sketch.remove(holes, movers, left)
        else:
            self._sketch = None  # one that is being made does not know which rows have moved
        self._ordered = self._ordered and not len(holes)
        self.rows = left

    def scores(self, query: Vector, rows: NDArray[np.int64] | None = None) -> Vector:
        """Cosines with all rows, or with these."""
        import numpy as np

        count = self.rows if rows is None else len(rows)
        found: Vector = np.empty(count, dtype=np.float32)
        for start in range(0, count, _TOGETHER * self._block):
            end = min(count, start + _TOGETHER * self._block)
            some = self._floats(slice(start, end) if rows is None else rows[start:end], end - start)
            whole = (end - start) // self._block * self._block
            blocks = some[:whole].reshape(-1, self._block, some.shape[1])
            np.matmul(blocks, query, out=found[start : start + whole].reshape(-1, self._block))
            np.dot(some[whole:], query, out=found[start + whole : end])
        found /= self._lengths[: self.rows] if rows is None else self._lengths[rows]
        return found

    def rows_of(self, keys: Collection[int]) -> NDArray[np.int64]:
        import numpy as np

        wanted = np.fromiter(keys, dtype=np.int64, count=len(keys))
        return np.flatnonzero(np.isin(self._keys[: self.rows], wanted))

    def best(self, query: Vector, k: int, rows: NDArray[np.int64] | None) -> list[tuple[int, int, float]]:
        """The best `k` keys as (key, session, cosine), each with its best part; only in these rows."""
        if rows is None and self._coarse is not None:
            found = self._best(query, k, self._candidates(query, k, self._coarse))
            if len(found) == k:
                return found
        elif rows is None and self._sketch is not None and self._sketch.rows == self.rows:
            promising = self._promising(query, k, self._sketch)
            if promising is not None:
                return self._chosen(k, *promising)
        return self._best(query, k, rows)

    def _best(self, query: Vector, k: int, rows: NDArray[np.int64] | None) -> list[tuple[int, int, float]]:
        if rows is None or len(rows) > _FEW * self.rows:
            scores = self.scores(query)
            scores = scores if rows is None else scores[rows]
        else:
            scores = self.scores(query, rows)
        return self._chosen(k, rows, scores)

    def _chosen(self, k: int, rows: NDArray[np.int64] | None, scores: Vector) -> list[tuple[int, int, float]]:
        looked_at = 2 * k + 16
        while True:
            top = _top(scores, looked_at)
            places = top if rows is None else rows[top]
            found: dict[int, tuple[int, float]] = {}
            columns = (self._keys[places], self._sessions[places], scores[top])
            for key, session, score in zip(*(column.tolist() for column in columns), strict=True):
                if key not in found:
                    found[key] = (session, score)
                    if len(found) == k:
                        break
            if len(found) == k or looked_at >= len(scores):
                return [(key, session, score) for key, (session, score) in found.items()]
            looked_at *= 4

    # ── when there are so many that it pays not to compare them all in full ──

    @property
    def sketchy(self) -> bool:
        """Whether short forms are to be made (again): there are none, or far more vectors than they were learnt of."""
        if self.rows < SKETCH_FROM or self._coarse is not None:
            return False
        return self._sketch is None or self.rows > _GROWN * self._learnt_of

    def outline(self, mutex: threading.Lock) -> None:
        """Make short forms, aside: `mutex` is held for a block at a time, and all rows are compared meanwhile."""
        import numpy as np

        with mutex:
            rows = self.rows
            sample = self._units(np.random.default_rng(rows).choice(rows, min(rows, SAMPLE), replace=False))
        made = Sketch(learnt(sample))
        with mutex:
            self._sketch, self._learnt_of = made, rows
        while True:
            with mutex:
                if self._sketch is not made or made.rows == self.rows:
                    return
                made.add(self._units(np.arange(made.rows, min(self.rows, made.rows + BLOCK))))

    def _promising(self, query: Vector, k: int, sketch: Sketch) -> tuple[NDArray[np.int64], Vector] | None:
        """The rows that may be among the best `k`, with their cosines; None where they are too many to be picked out.

        Those with the highest estimates are compared first, and tell how near the nearest are at least.
        """
        import numpy as np

        asked = sketch.axes.asked(query)
        estimates = sketch.estimates(asked)
        first = _high(estimates, max(_FIRST, 4 * k))
        cosines = self.scores(query, first)
        found = self._chosen(k, first, cosines)
        if len(found) < k:
            return None
        least = edge(estimates[::_SAMPLED], _SAMPLED, found[-1][2], asked)
        more = estimates >= least
        more[first] = False
        rest = np.flatnonzero(more)
        if len(rest) > _FEW * self.rows:
            return None
        rows, cosines = np.concatenate([first, rest]), np.concatenate([cosines, self.scores(query, rest)])
        order = np.argsort(rows)  # of equals the later row is chosen, as among all
        return rows[order], cosines[order]

    # ── when there are too many even for that ──

    @property
    def lacking(self) -> bool:
        """Whether a coarse index has to be built (again): there is none, or it names too few of the rows."""
        import numpy as np

        uncovered = self.rows - int(np.count_nonzero(self._covered[: self.rows]))
        return self._coarse is None or uncovered > _UNCOVERED * self.rows

    def cover(self, make: Callable[[int, int, Vector], Coarse], mutex: threading.Lock) -> None:
        """Build a coarse index, aside: `mutex` is held for a block at a time, and all rows are compared meanwhile."""
        import numpy as np

        with mutex:
            self._coarse = None
            self._covered[:] = False
            dimension, rows = self._vectors.shape[1], self.rows
            chosen = np.random.default_rng(rows).choice(rows, sample_size(rows), replace=False)
            sample = self._units(chosen)
        made = make(dimension, rows, sample)
        while True:
            with mutex:
                rest = np.flatnonzero(~self._covered[: self.rows])[:_COVERED_AT_A_TIME]
                if not len(rest):
                    self._coarse, self._sketch = made, None
                    return
                ids, vectors = self._ids[rest], self._units(rest)
                self._covered[rest] = True
            made.add(ids, vectors)

    def _candidates(self, query: Vector, k: int, coarse: Coarse) -> NDArray[np.int64]:
        """Rows that it names, and those it does not know yet."""
        import numpy as np

        named, ids = coarse.near(query, max(_NAMED * k, _NAMED_LEAST)), self._ids[: self.rows]
        if self._ordered:
            places = np.searchsorted(ids, named)
            there = places < self.rows
            there[there] = ids[places[there]] == named[there]
            places = places[there]
        else:
            places = np.flatnonzero(np.isin(ids, named))
        return np.concatenate([places, np.flatnonzero(~self._covered[: self.rows])])

    def _units(self, rows: NDArray[np.int64]) -> Vector:
        import numpy as np

        found: Vector = self._vectors[rows].astype(np.float32)
        found /= self._lengths[rows, None]
        return found

    # ── scores of some ──

    def of_keys(self, query: Vector, keys: Collection[int]) -> dict[int, float]:
        rows = self.rows_of(keys)
        found: dict[int, float] = {}
        for key, score in zip(self._keys[rows].tolist(), self.scores(query, rows).tolist(), strict=True):
            found[key] = max(score, found.get(key, -1.0))
        return found

    def _floats(self, rows: slice | NDArray[np.int64], count: int) -> Vector:
        import numpy as np

        if count > len(self._buffer):
            self._buffer = np.empty((count, self._buffer.shape[1]), dtype=np.float32)
        some = self._buffer[:count]
        np.copyto(some, self._vectors[rows])
        return some

    def reserve(self, rows: int) -> None:
        """Have room for so many, and some more where it has grown before."""
        import numpy as np

        if rows <= len(self._ids):
            return
        room = rows if not self.rows else max(rows, int(len(self._ids) * _GROWTH) + 64)
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), dtype=old.dtype)
            new[: self.rows] = old[: self.rows]
            setattr(self, name, new)


def _top(scores: Vector, count: int) -> NDArray[np.int64]:
    """Places of the highest scores, best first; of equals the later row."""
    import numpy as np

    places = _high(scores, count)
    if count < len(places):
        places = places[np.argpartition(scores[places], len(places) - count)[len(places) - count :]]
    order: NDArray[np.int64] = places[np.lexsort((-places, -scores[places]))]
    return order


def _high(scores: Vector, count: int) -> NDArray[np.int64]:
    """Places among which the highest scores are: a sample tells about how high those are, so that few are looked at."""
    import numpy as np

    sample = scores[::_SAMPLED]
    twice = 2 * (count // _SAMPLED) + 8
    if twice < len(sample):
        places = np.flatnonzero(scores >= np.partition(sample, len(sample) - twice)[len(sample) - twice])
        if len(places) >= count:
            return places
    return np.arange(len(scores))
