"""Vectors in memory: read once, then only what was added or removed.

Who reads them is `VectorReader`; how they are compared is `shelf`.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from herma.errors import StoreError
from herma.index import coarse
from herma.index.shelf import Shelf
from herma.ports import IndexUnusable
from herma.ports.vectors import MESSAGE, Loaded, Near, VectorReader

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.ports.vectors import Vector

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
            elif shelf.rows >= coarse.COARSE_FROM and coarse.available() and shelf.lacking:
                work = (shelf.cover, coarse.faiss_index, self._mutex)
            if work:
                target, *given = work
                self._building = threading.Thread(target=target, args=given, name="herma-near", daemon=True)
                self._building.start()
                return

    def note(self) -> str:
        """What would make it faster, if anything would."""
        if self.rows < coarse.COARSE_FROM or coarse.available():
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
