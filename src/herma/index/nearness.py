"""Vectors in memory, and the nearest of them by looking at all: read once, then only what was added or removed.

A row stays in 8-bit numbers, and a block of rows at a time becomes floats in a buffer that fits the processor's cache:
that is a quarter of the memory of floats, and as fast, because memory is what takes the time. A block is also small
enough that no BLAS spreads it over threads, which on a busy machine costs more than it brings.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from herma.ports.vectors import MESSAGE, Loaded, Near, VectorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.ports.vectors import Vector

BLOCK_NUMBERS = 393_216
"""Numbers in a block: 1.5 MB of floats."""
LOAD = 16_384
"""Vectors that are read at a time: nothing that is written has to wait for longer."""
_GROWTH = 1.25
_FEW = 0.2
"""Share of the rows up to which it is cheaper to pick them out first."""


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
        self._buffer = np.empty((max(1, BLOCK_NUMBERS // dimension), dimension), dtype=np.float32)

    def add(self, ids: Sequence[int], keys: Any, sessions: Sequence[int], vectors: NDArray[np.int8]) -> None:
        import numpy as np

        end = self.rows + len(ids)
        self.reserve(end)
        self._ids[self.rows : end] = ids
        self._keys[self.rows : end] = keys
        self._sessions[self.rows : end] = sessions
        self._vectors[self.rows : end] = vectors
        for start in range(self.rows, end, len(self._buffer)):
            upto = min(end, start + len(self._buffer))
            rows = self._floats(slice(start, upto), upto - start)
            self._lengths[start:upto] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        self._lengths[self.rows : end][self._lengths[self.rows : end] == 0] = np.inf
        self.rows = end

    def remove(self, ids: NDArray[np.int64]) -> None:
        """Rows from the end take the places of what goes."""
        import numpy as np

        going = np.isin(self._ids[: self.rows], ids)
        left = self.rows - int(going.sum())
        holes, movers = np.flatnonzero(going[:left]), left + np.flatnonzero(~going[left:])
        for column in (self._ids, self._keys, self._sessions, self._lengths, self._vectors):
            column[holes] = column[movers]
        self.rows = left

    def scores(self, query: Vector, rows: NDArray[np.int64] | None = None) -> Vector:
        """Cosines with all rows, or with these."""
        import numpy as np

        count = self.rows if rows is None else len(rows)
        found: Vector = np.empty(count, dtype=np.float32)
        for start in range(0, count, len(self._buffer)):
            end = min(count, start + len(self._buffer))
            block = self._floats(slice(start, end) if rows is None else rows[start:end], end - start)
            np.dot(block, query, out=found[start:end])
        found /= self._lengths[: self.rows] if rows is None else self._lengths[rows]
        return found

    def rows_of(self, keys: Collection[int]) -> NDArray[np.int64]:
        import numpy as np

        wanted = np.fromiter(keys, dtype=np.int64, count=len(keys))
        return np.flatnonzero(np.isin(self._keys[: self.rows], wanted))

    def best(self, query: Vector, k: int, rows: NDArray[np.int64] | None) -> list[tuple[int, int, float]]:
        """The best `k` keys as (key, session, cosine), each with its best part; only in these rows."""
        if rows is None or len(rows) > _FEW * self.rows:
            scores = self.scores(query)
            scores = scores if rows is None else scores[rows]
        else:
            scores = self.scores(query, rows)
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

    def of_keys(self, query: Vector, keys: Collection[int]) -> dict[int, float]:
        rows = self.rows_of(keys)
        found: dict[int, float] = {}
        for key, score in zip(self._keys[rows].tolist(), self.scores(query, rows).tolist(), strict=True):
            found[key] = max(score, found.get(key, -1.0))
        return found

    def _floats(self, rows: slice | NDArray[np.int64], count: int) -> Vector:
        import numpy as np

        block = self._buffer[:count]
        np.copyto(block, self._vectors[rows])
        return block

    def reserve(self, rows: int) -> None:
        """Have room for so many, and some more where it has grown before."""
        import numpy as np

        if rows <= len(self._ids):
            return
        room = rows if not self.rows else max(rows, int(len(self._ids) * _GROWTH) + 64)
        for name in ("_ids", "_keys", "_sessions", "_lengths", "_vectors"):
            old = getattr(self, name)
            new = np.empty((room, *old.shape[1:]), dtype=old.dtype)
            new[: self.rows] = old[: self.rows]
            setattr(self, name, new)


class Nearness:
    """All vectors of one model that this process has read."""

    def __init__(self, reader: VectorReader, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension
        self._reader = reader
        self._mutex = threading.Lock()
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


def _top(scores: Vector, count: int) -> NDArray[np.int64]:
    """Places of the highest scores, best first; of equals the later row."""
    import numpy as np

    if count < len(scores):
        places = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
    else:
        places = np.arange(len(scores))
    order: NDArray[np.int64] = places[np.lexsort((-places, -scores[places]))]
    return order
