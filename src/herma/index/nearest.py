"""Nearest neighbours over 8-bit vectors (numpy); faiss above a size."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from herma.errors import StoreError
from herma.index.types import MESSAGE, IndexUnusable, Loaded, Near, VectorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.index.types import Vector


# ---------- index.coarse
#
# Where it takes too long to compare all vectors: an approximate index that names a part of them to be compared.
#
# It is built in memory by faiss (the extra `ann`), aside, while all are still compared; what is added after that is
# compared in full until it is built again. Scores never come from it, only candidates.

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


# ---------- index.sketch
#
# Short forms of vectors: by a few of their main axes most are seen to be too far, and need not be compared in full.
#
# Turned so that each axis has what the axes before it lack, vectors of a model differ along few of them, and a question
# has its own few that matter: a quarter of them says nearly all. What the others may add to such an estimate is known
# as a chance, so that it follows how many have to be compared in full for next to none of the nearest to be missed.
# Scores never come from here, only candidates.

SKETCH_FROM = 30_000
"""Vectors of a kind from which on it pays: fewer are compared in two milliseconds."""
SAMPLE = 8_000
"""Vectors that the axes are learnt from."""
BLOCK = 4_096
"""Vectors whose short numbers lie together, axis by axis; with a quarter of 384 axes few enough for a BLAS to multiply
them without threads."""
_SKETCH_TOGETHER = 4
"""Blocks that are handed to numpy at a time: other threads of Python run meanwhile, and each return waits for them."""
_LOOKED_AT = 1 / 4
"""Share of the axes that a question looks at. All are kept: questions have much of what passages hardly differ in."""
_WIDE = 4.5
"""Short numbers reach so many standard deviations; what is further out is drawn in."""
_MISSED = 0.3
"""So many of the nearest may be expected among what is left out."""
_NO_CHANCE = 1.4
"""How much more the other axes may add than chance would: what is near along some axes tends to be near along all."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question to short forms: their numbers along these `axes`, times `weights`, plus `base` are the estimate of a
    cosine; `doubt` is the standard deviation of what it lacks.
    """

    axes: NDArray[np.int64]
    weights: Vector
    base: float
    doubt: float


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """Where vectors lie (`centre`), and the directions in which they differ, the one with the most `spread` first."""

    centre: Vector
    directions: Vector
    spread: Vector
    step: Vector
    """What one of a short number stands for, along each axis."""

    def shortened(self, units: Vector) -> NDArray[np.int8]:
        """(vectors, dimension) → (axes, vectors)."""
        import numpy as np

        along = self.directions.T @ (units - self.centre).T
        along /= self.step[:, None]
        np.rint(along, out=along)
        np.clip(along, -127, 127, out=along)
        return along.astype(np.int8)

    def asked(self, query: Vector) -> Asked:
        import numpy as np

        along = query @ self.directions
        matters = self.spread * np.square(along)
        count = max(1, round(len(along) * _LOOKED_AT))
        axes = np.sort(np.argsort(-matters, kind="stable")[:count])
        weights = along[axes] * self.step[axes]
        rounding = float(np.dot(weights, weights)) / 12
        rest = max(0.0, float(matters.sum() - matters[axes].sum()))
        return Asked(axes, weights, float(query @ self.centre), (rest + rounding) ** 0.5)


class Sketch:
    """The short forms of all vectors of a shelf, in the order of its rows."""

    def __init__(self, axes: Axes) -> None:
        import numpy as np

        self.axes = axes
        self.rows = 0
        self._blocks: NDArray[np.int8] = np.zeros((0, len(axes.step), BLOCK), dtype=np.int8)
        looked_at = (_SKETCH_TOGETHER, round(len(axes.step) * _LOOKED_AT) or 1, BLOCK)
        self._short: NDArray[np.int8] = np.empty(looked_at, dtype=np.int8)
        self._floats: Vector = np.empty(looked_at, dtype=np.float32)

    def add(self, units: Vector) -> None:
        """Vectors with a length of 1, after those that are there."""
        import numpy as np

        end = self.rows + len(units)
        if end > len(self._blocks) * BLOCK:
            blocks = np.zeros((-(-end * 9 // (8 * BLOCK)), *self._blocks.shape[1:]), dtype=np.int8)
            blocks[: len(self._blocks)] = self._blocks
            self._blocks = blocks
        short = self.axes.shortened(units)
        while self.rows < end:
            block, place = divmod(self.rows, BLOCK)
            count = min(BLOCK - place, end - self.rows)
            at = short.shape[1] - (end - self.rows)
            self._blocks[block, :, place : place + count] = short[:, at : at + count]
            self.rows += count

    def remove(self, holes: NDArray[np.int64], movers: NDArray[np.int64], left: int) -> None:
        """The rows `movers` take the places `holes`; then what is after the first `left` is gone."""
        self._blocks[holes // BLOCK, :, holes % BLOCK] = self._blocks[movers // BLOCK, :, movers % BLOCK]
        self.rows = left

    def estimates(self, asked: Asked) -> Vector:
        """For each row, how near it may be; without `base`."""
        import numpy as np

        count = -(-self.rows // BLOCK)
        found: Vector = np.empty((count, BLOCK), dtype=np.float32)
        for start in range(0, count, _SKETCH_TOGETHER):
            end = min(count, start + _SKETCH_TOGETHER)
            some, wide = self._short[: end - start], self._floats[: end - start]
            np.take(self._blocks[start:end], asked.axes, axis=1, out=some, mode="clip")
            np.copyto(wide, some)
            np.matmul(asked.weights, wide, out=found[start:end])
        return found.reshape(-1)[: self.rows]


def learnt(sample: Vector) -> Axes:
    """The axes of these vectors, which have a length of 1."""
    import numpy as np

    centre = sample.mean(axis=0)
    away = sample - centre
    spread, directions = np.linalg.eigh(away.T @ away / np.float32(len(sample)))
    spread = np.maximum(spread[::-1], 0).astype(np.float32)
    step = np.maximum(np.sqrt(spread) * np.float32(_WIDE / 127), np.float32(1e-9))
    return Axes(centre, np.ascontiguousarray(directions[:, ::-1], dtype=np.float32), spread, step)


def edge(estimates: Vector, share: int, least: float, asked: Asked) -> float:
    """The estimate from which on vectors have to be compared, where a cosine of `least` would be among the nearest.

    `estimates` are one in `share` of all.
    """
    import numpy as np

    rising = np.sort(estimates)
    short = (np.float32(least - asked.base) - rising) / np.float32(max(asked.doubt * _NO_CHANCE, 1e-6))
    expected = np.cumsum(_beyond(short), dtype=np.float64) * share
    place = int(np.searchsorted(expected, _MISSED, side="right"))
    return float(rising[place]) if place < len(rising) else float("inf")


def _beyond(deviations: Vector) -> Vector:
    """About how likely something is to be so many standard deviations above its mean: a sixth too low at most, up to
    six; half for all that is below.
    """
    import numpy as np

    above = np.maximum(deviations, np.float32(0))
    found: Vector = np.exp(np.square(above) * np.float32(-0.5)) / (np.float32(2) + np.float32(2.5) * above)
    return found


# ---------- index.shelf
#
# Vectors of one kind, and the nearest of them.
#
# A row stays in 8-bit numbers, and some blocks of rows at a time become floats in a buffer that fits the processor's
# cache: that is a quarter of the memory of floats, and as fast, because memory is what takes the time. A block is also
# small enough that no BLAS spreads it over threads, which on a busy machine costs more than it brings.

BLOCK_NUMBERS = 393_216
"""Numbers in a block: 1.5 MB of floats."""
_SHELF_TOGETHER = 4
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
        for start in range(0, count, _SHELF_TOGETHER * self._block):
            end = min(count, start + _SHELF_TOGETHER * self._block)
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


# ---------- index.nearness
#
# Vectors in memory: read once, then only what was added or removed.
#
# Who reads them is `VectorReader`; how they are compared is `shelf`.

LOAD = 16_384
"""Vectors that are read at a time: nothing that is written has to wait for longer."""
ASKED_OFTEN = 3
"""Questions after which it pays to have something coarse: a command that ends at once asks one."""


class Nearness:
    """All vectors of one model that this process has read."""

    def __init__(self, reader: VectorReader, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension
        self._reader = reader
        self._mutex = threading.Lock()
        self._building: threading.Thread | None = None
        self._asked = 0
        self._begin()

    def near(
        self,
        query: Vector,
        k: int,
        kinds: Collection[str],
        allowed: Collection[int] | Collection[str] | None,
        scopes: Collection[str] | None,
    ) -> list[Near]:
        with self._mutex:
            self._read_on()
            self._asked += 1
            if self._asked >= ASKED_OFTEN:
                self._coarsen()
            found = []
            for kind in kinds:
                shelf = self._shelves.get(kind)
                if shelf is not None and shelf.rows:
                    rows = self._rows(shelf, kind, allowed, scopes)
                    best = shelf.best(_unit(query), k, rows) if rows is None or len(rows) else []
                    found += [self._near(shelf, kind, *hit) for hit in best]
        found.sort(key=lambda hit: -hit.score)
        return found[:k]

    def scores(self, query: Vector, message_ids: Sequence[int]) -> dict[int, float]:
        with self._mutex:
            self._read_on()
            shelf = self._shelves.get(MESSAGE)
            return shelf.of_keys(_unit(query), message_ids) if shelf is not None and message_ids else {}

    def read(self) -> None:
        """Read the vectors now, so that the first question finds them. What is wrong with them is said then."""
        with self._mutex, suppress(IndexUnusable, StoreError):
            self._read_on()

    @property
    def rows(self) -> int:
        return sum(shelf.rows for shelf in self._shelves.values())

    def _begin(self) -> None:
        self._shelves: dict[str, Shelf] = {}
        self._places: dict[tuple[str, str, str], int] = {}
        self._sessions: dict[int, str] = {0: ""}
        self._changed: object = None
        self._model = ("", 0)
        self._removed = -1
        self._last = [0, 0]

    def _read_on(self) -> None:
        """Read what was added and forget what was removed since the last time."""
        import numpy as np

        changed = self._reader.changed()
        if changed == self._changed:
            return
        file, number, vectors = self._reader.find(self.name, self.dimension)
        model = (file, number)
        if model != self._model:
            self._begin()
            self._model = model
            self._shelf(MESSAGE).reserve(vectors)
        gone, self._removed = self._reader.removed(self._removed)
        if gone is None:
            self._begin()
            self._model = model
            gone, self._removed = self._reader.removed(self._removed)
        if gone:
            numbers = np.array(gone, dtype=np.int64)
            for shelf in self._shelves.values():
                shelf.remove(numbers)
        if model[1]:
            self._load(0, messages=True)
            self._load(1, messages=False)
            self._sessions |= self._reader.sessions(max(self._sessions))
        self._changed = changed

    def _coarsen(self) -> None:
        """Where there are many, build what makes them quick, aside, one at a time."""
        if self._building is not None and self._building.is_alive():
            return
        for shelf in self._shelves.values():
            work: tuple[Any, ...] = ()
            if shelf.sketchy:
                work = (shelf.outline, self._mutex)
            elif shelf.rows >= COARSE_FROM and available() and shelf.lacking:
                work = (shelf.cover, faiss_index, self._mutex)
            if work:
                target, *given = work
                self._building = threading.Thread(target=target, args=given, name="herma-near", daemon=True)
                self._building.start()
                return

    def note(self) -> str:
        """What would make it faster, if anything would."""
        if self.rows < COARSE_FROM or available():
            return ""
        return f"{self.rows:,} were compared without an index; pip install 'herma[ann]' makes that faster."

    def _load(self, which: int, *, messages: bool) -> None:
        import numpy as np

        while True:
            found = self._reader.load(
                self._model[1], self.dimension, messages=messages, after=self._last[which], limit=LOAD
            )
            if not found.ids:
                return
            vectors = np.frombuffer(found.vectors, dtype=np.int8).reshape(-1, self.dimension)
            if messages:
                self._shelf(MESSAGE).add(found.ids, found.keys, found.sessions, vectors)
            else:
                self._place(found, vectors)
            self._last[which] = found.last

    def _place(self, found: Loaded, vectors: NDArray[np.int8]) -> None:
        for kind in set(found.kinds):
            shelf = self._shelf(kind)
            rows = [row for row, other in enumerate(found.kinds) if other == kind]
            keys = []
            for row in rows:
                name, scope = str(found.keys[row]), found.scopes[row]
                place = self._places.setdefault((kind, name, scope), len(shelf.names))
                if place == len(shelf.names):
                    shelf.names.append((name, scope))
                keys.append(place)
            ids, sessions = ([column[row] for row in rows] for column in (found.ids, found.sessions))
            shelf.add(ids, keys, sessions, vectors[rows])

    def _shelf(self, kind: str) -> Shelf:
        if kind not in self._shelves:
            self._shelves[kind] = Shelf(self.dimension)
        return self._shelves[kind]

    def _rows(
        self, shelf: Shelf, kind: str, allowed: Collection[Any] | None, scopes: Collection[str] | None
    ) -> NDArray[np.int64] | None:
        """The rows that may be found; None for all of them."""
        if kind == MESSAGE:
            return None if allowed is None else shelf.rows_of(allowed)
        if allowed is None and scopes is None:
            return None
        keys, where = set(allowed or ()), set(scopes or ())
        return shelf.rows_of(
            [
                place
                for place, (name, scope) in enumerate(shelf.names)
                if (allowed is None or name in keys) and (scopes is None or scope in where)
            ]
        )

    def _near(self, shelf: Shelf, kind: str, key: int, session: int, score: float) -> Near:
        name, scope = (str(key), "") if kind == MESSAGE else shelf.names[key]
        return Near(kind, name, score, self._sessions.get(session, ""), scope)


def _unit(query: Vector) -> Vector:
    import numpy as np

    given = np.ascontiguousarray(query, dtype=np.float32).reshape(-1)
    length = float(np.linalg.norm(given))
    return given / np.float32(length) if length else given
