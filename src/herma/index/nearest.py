"""Find the nearest vectors: all are compared, as 8-bit numbers.

A row stays in 8-bit numbers, and some blocks of rows at a time become floats in a buffer that fits the processor's
cache: a quarter of the memory of floats, and as fast, because reading memory takes the time. A block is also small
enough that no BLAS spreads it over threads, which costs more than it brings on a busy machine.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herma.errors import StoreError
from herma.index import MESSAGE, IndexUnusable, Near, Nearest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.index import Vector
    from herma.index.vector_store import VectorStore

LOAD = 16_384
"""Vectors that are read at a time, so that a writer never waits for longer."""
_BLOCK_NUMBERS = 393_216
"""Numbers in a block: 1.5 MB of floats."""
_BLOCKS_TOGETHER = 4
"""Blocks that are handed to numpy at a time: other Python threads run meanwhile, and each return waits for them."""
_GROWTH = 1.25
_FEW = 0.2
"""Share of the rows up to which it is cheaper to pick them out first."""
_SAMPLED = 16
"""One in so many scores tells about how high the highest are."""
_MEAN_OF = 512
"""Vectors whose mean stands for that of all."""
_LEAST_SPREAD = 0.1
"""The spread counts as at least this part of how far messages are from each other: a few say little about it."""
_COLUMNS = ("_ids", "_keys", "_sessions", "_lengths", "_vectors")


class VectorMatrix:
    """Vectors of one kind. `keys` are ids of messages, or positions in `names` for other kinds."""

    def __init__(self, dimension: int) -> None:
        import numpy as np

        self.rows = 0
        self.names: list[tuple[str, str]] = []
        self._vectors: NDArray[np.int8] = np.empty((0, dimension), dtype=np.int8)
        self._ids: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._keys: NDArray[np.int64] = np.empty(0, dtype=np.int64)
        self._sessions: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._lengths: NDArray[np.float32] = np.empty(0, dtype=np.float32)
        self._block = max(1, _BLOCK_NUMBERS // dimension)
        self._buffer = np.empty((0, dimension), dtype=np.float32)
        self._usual: tuple[Vector, float, Vector] | None = None

    def add(self, ids: Sequence[int], keys: Any, sessions: Sequence[int], vectors: NDArray[np.int8]) -> None:
        import numpy as np

        end, self._usual = self.rows + len(ids), None
        self.reserve(end)
        self._ids[self.rows : end] = ids
        self._keys[self.rows : end] = keys
        self._sessions[self.rows : end] = sessions
        self._vectors[self.rows : end] = vectors
        for start in range(self.rows, end, self._block):
            upto = min(end, start + self._block)
            rows = self._floats(slice(start, upto), upto - start)
            self._lengths[start:upto] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        self._lengths[self.rows : end][self._lengths[self.rows : end] == 0] = np.inf
        self.rows = end

    def remove(self, ids: NDArray[np.int64]) -> None:
        """Remove vectors; rows from the end take their places."""
        import numpy as np

        going = np.isin(self._ids[: self.rows], ids)
        left = self.rows - int(going.sum())
        holes, movers = np.flatnonzero(going[:left]), left + np.flatnonzero(~going[left:])
        for name in _COLUMNS:
            column = getattr(self, name)
            column[holes] = column[movers]
        self.rows, self._usual = left, None

    def reserve(self, rows: int) -> None:
        """Make room for so many rows, and for some more if the matrix has grown before."""
        import numpy as np

        if rows <= len(self._ids):
            return
        room = rows if not self.rows else max(rows, int(len(self._ids) * _GROWTH) + 64)
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), dtype=old.dtype)
            new[: self.rows] = old[: self.rows]
            setattr(self, name, new)

    def scores(self, query: Vector, rows: NDArray[np.int64] | None = None) -> Vector:
        """Return the cosines with all rows, or with these."""
        import numpy as np

        count = self.rows if rows is None else len(rows)
        found: Vector = np.empty(count, dtype=np.float32)
        for start in range(0, count, _BLOCKS_TOGETHER * self._block):
            end = min(count, start + _BLOCKS_TOGETHER * self._block)
            some = self._floats(slice(start, end) if rows is None else rows[start:end], end - start)
            whole = (end - start) // self._block * self._block
            blocks = some[:whole].reshape(-1, self._block, some.shape[1])
            np.matmul(blocks, query, out=found[start : start + whole].reshape(-1, self._block))
            np.dot(some[whole:], query, out=found[start + whole : end])
        found /= self._lengths[: self.rows] if rows is None else self._lengths[rows]
        return found

    def scores_of(self, query: Vector, keys: Collection[int]) -> dict[int, float]:
        """Return the cosine of each of these keys that has a vector; of several parts, the highest."""
        rows = self.rows_of(keys)
        found: dict[int, float] = {}
        for key, score in zip(self._keys[rows].tolist(), self.scores(query, rows).tolist(), strict=True):
            found[key] = max(score, found.get(key, -1.0))
        return found

    def rows_of(self, keys: Collection[int]) -> NDArray[np.int64]:
        import numpy as np

        wanted = np.fromiter(keys, dtype=np.int64, count=len(keys))
        return np.flatnonzero(np.isin(self._keys[: self.rows], wanted))

    def best(self, query: Vector, k: int, rows: NDArray[np.int64] | None) -> list[tuple[int, int, float, int]]:
        """Return the best `k` keys as (key, session, cosine, row), each with its best part; only among `rows`."""
        if rows is None or len(rows) > _FEW * self.rows:
            scores = self.scores(query)
            scores = scores if rows is None else scores[rows]
        else:
            scores = self.scores(query, rows)
        looked_at = 2 * k + 16
        while True:
            top = _top(scores, looked_at)
            places = top if rows is None else rows[top]
            found: dict[int, tuple[int, int, float, int]] = {}
            columns = (self._keys[places], self._sessions[places], scores[top], places)
            for hit in zip(*(column.tolist() for column in columns), strict=True):
                if hit[0] not in found:
                    found[hit[0]] = hit
                    if len(found) == k:
                        break
            if len(found) == k or looked_at >= len(scores):
                return list(found.values())
            looked_at *= 4

    def usual(self) -> tuple[Vector, float, Vector]:
        """Return the mean of all vectors, the part of a vector in its own cosine to it, and the sampled vectors.

        The nearness of a vector to all others is its product with the mean, less what it adds itself.
        """
        import numpy as np

        if self._usual is None:
            sample = self.units(np.arange(0, self.rows, -(-self.rows // _MEAN_OF)))
            count = len(sample)
            others = count - 1 if 1 < count == self.rows else count  # one of many makes no difference
            self._usual = sample.sum(axis=0) / np.float32(others), (count - others) / others, sample
        return self._usual

    def units(self, rows: NDArray[np.int64]) -> Vector:
        """Return these rows as floats, scaled to a length of 1."""
        import numpy as np

        found: Vector = self._vectors[rows].astype(np.float32)
        found /= self._lengths[rows, None]
        return found

    def _floats(self, rows: slice | NDArray[np.int64], count: int) -> Vector:
        import numpy as np

        if count > len(self._buffer):
            self._buffer = np.empty((count, self._buffer.shape[1]), dtype=np.float32)
        some = self._buffer[:count]
        np.copyto(some, self._vectors[rows])
        return some


def _top(scores: Vector, count: int) -> NDArray[np.int64]:
    """Return the places of the highest scores, best first; of equals the later row.

    A sample tells about how high the highest are, so that few have to be sorted.
    """
    import numpy as np

    places: NDArray[np.int64] | None = None
    sample, twice = scores[::_SAMPLED], 2 * (count // _SAMPLED) + 8
    if twice < len(sample):
        places = np.flatnonzero(scores >= np.partition(sample, len(sample) - twice)[len(sample) - twice])
    if places is None or len(places) < count:
        places = np.arange(len(scores))
    if count < len(places):
        places = places[np.argpartition(scores[places], len(places) - count)[len(places) - count :]]
    order: NDArray[np.int64] = places[np.lexsort((-places, -scores[places]))]
    return order


class Neighbours:
    """All vectors of one model, read into memory once; after that only what was added or removed is read."""

    def __init__(self, store: VectorStore, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension
        self._store = store
        self._mutex = threading.Lock()
        self._begin()

    def near(
        self,
        query: Vector,
        k: int,
        kinds: Collection[str],
        allowed: Collection[int] | Collection[str] | None,
        scopes: Collection[str] | None,
    ) -> tuple[Near, ...]:
        with self._mutex:
            self._read_on()
            found = []
            for kind in kinds:
                matrix = self._matrices.get(kind)
                if matrix is not None and matrix.rows:
                    rows = self._rows(matrix, kind, allowed, scopes)
                    best = matrix.best(_unit(query), k, rows) if rows is None or len(rows) else []
                    found += [self._near(matrix, kind, *hit[:3]) for hit in best]
        found.sort(key=lambda hit: -hit.score)
        return tuple(found[:k])

    def apart(self, query: Vector, k: int, share: float) -> Nearest:
        """Return the nearest messages, where `share` of how near each is to all others counts against it."""
        import numpy as np

        with self._mutex:
            self._read_on()
            matrix, asked = self._matrices.get(MESSAGE), _unit(query)
            if matrix is None or matrix.rows < 2:  # a single one is neither near nor far
                return Nearest()
            mean, own, sample = matrix.usual()
            best = matrix.best(asked - np.float32(share) * mean, k, None)
            units = matrix.units(np.array([row for *_, row in best], dtype=np.int64))
            cosines, usual = (units @ asked).tolist(), (units @ mean - own).tolist()
            among = sample @ mean - own
            least = _LEAST_SPREAD * (1 - float(among.mean()))
            hits = [
                self._near(matrix, MESSAGE, *hit[:3])._replace(score=cosine, usual=near)
                for hit, cosine, near in zip(best, cosines, usual, strict=True)
            ]
            spread = max(float((sample @ asked - among).std()), least)
            return Nearest(tuple(hits), rows=matrix.rows, spread=spread)

    def scores(self, query: Vector, message_ids: Sequence[int]) -> dict[int, float]:
        with self._mutex:
            self._read_on()
            matrix = self._matrices.get(MESSAGE)
            return matrix.scores_of(_unit(query), message_ids) if matrix is not None and message_ids else {}

    def read(self) -> None:
        """Read the vectors now, so that the first question finds them; that question reports what is wrong."""
        with self._mutex, suppress(IndexUnusable, StoreError):
            self._read_on()

    def _begin(self) -> None:
        self._matrices: dict[str, VectorMatrix] = {}
        self._places: dict[tuple[str, str, str], int] = {}
        self._sessions: dict[int, str] = {0: ""}
        self._changed: object = None
        self._model = ("", 0)
        self._removed = -1
        self._last = [0, 0]

    def _read_on(self) -> None:
        """Read what was added, and forget what was removed, since the last time."""
        import numpy as np

        changed = self._store.changed()
        if changed == self._changed:
            return
        file, number, vectors = self._store.find(self.name, self.dimension)
        model = (file, number)
        if model != self._model:
            self._begin()
            self._model = model
            self._matrix(MESSAGE).reserve(vectors)
        gone, self._removed = self._store.removed(self._removed)
        if gone is None:
            self._begin()
            self._model = model
            gone, self._removed = self._store.removed(self._removed)
        if gone:
            numbers = np.array(gone, dtype=np.int64)
            for matrix in self._matrices.values():
                matrix.remove(numbers)
        if number:
            self._load(0, messages=True)
            self._load(1, messages=False)
            self._sessions |= self._store.sessions(max(self._sessions))
        self._changed = changed

    def _load(self, which: int, *, messages: bool) -> None:
        import numpy as np

        number = self._model[1]
        while rows := self._store.load(number, self.dimension, messages=messages, after=self._last[which], limit=LOAD):
            ids, keys, sessions, vectors, *others = zip(*rows, strict=True)
            numbers = np.frombuffer(b"".join(vectors), dtype=np.int8).reshape(-1, self.dimension)
            if messages:
                self._matrix(MESSAGE).add(ids, keys, sessions, numbers)
            else:
                self._load_others(ids, keys, sessions, numbers, *others)
            self._last[which] = ids[-1]

    def _load_others(
        self,
        ids: Sequence[int],
        keys: Sequence[str],
        sessions: Sequence[int],
        vectors: NDArray[np.int8],
        kinds: Sequence[str],
        scopes: Sequence[str],
    ) -> None:
        for kind in set(kinds):
            matrix = self._matrix(kind)
            rows = [row for row, other in enumerate(kinds) if other == kind]
            places = []
            for row in rows:
                name, scope = str(keys[row]), scopes[row]
                place = self._places.setdefault((kind, name, scope), len(matrix.names))
                if place == len(matrix.names):
                    matrix.names.append((name, scope))
                places.append(place)
            matrix.add([ids[row] for row in rows], places, [sessions[row] for row in rows], vectors[rows])

    def _matrix(self, kind: str) -> VectorMatrix:
        return self._matrices.setdefault(kind, VectorMatrix(self.dimension))

    def _rows(
        self, matrix: VectorMatrix, kind: str, allowed: Collection[Any] | None, scopes: Collection[str] | None
    ) -> NDArray[np.int64] | None:
        """Return the rows that may be found; None for all of them."""
        if kind == MESSAGE:
            return None if allowed is None else matrix.rows_of(allowed)
        if allowed is None and scopes is None:
            return None
        keys, where = set(allowed or ()), set(scopes or ())
        return matrix.rows_of(
            [
                place
                for place, (name, scope) in enumerate(matrix.names)
                if (allowed is None or name in keys) and (scopes is None or scope in where)
            ]
        )

    def _near(self, matrix: VectorMatrix, kind: str, key: int, session: int, score: float) -> Near:
        name, scope = (str(key), "") if kind == MESSAGE else matrix.names[key]
        return Near(kind, name, score, self._sessions.get(session, ""), scope)


def _unit(query: Vector) -> Vector:
    import numpy as np

    given = np.ascontiguousarray(query, dtype=np.float32).reshape(-1)
    length = float(np.linalg.norm(given))
    return given / np.float32(length) if length else given
