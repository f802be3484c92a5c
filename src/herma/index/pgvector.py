"""Keep the vectors of a tenant on a PostgreSQL server that has pgvector, for all hosts, and compare them there.

It does what `vector_store.py` and `nearest.py` do with a file of one host. A search asks the server for the nearest
instead of reading all vectors into memory. A walk that begins again replaces what differs, and removes nothing else:
what was purged is removed when the feed says so.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from herma.index import MESSAGE, IndexMissing, Near, Nearest
from herma.index.vector_store import EmbedderTrouble, EmbeddingStep, ModelRow, Reach, VectorFile
from herma.transcript.rows import Position

if TYPE_CHECKING:
    from herma.index import Vector
    from herma.store.database import DatabaseConnection
    from herma.store.postgres import PostgresDatabase

_SAY_AGAIN = 600.0
"""Seconds after which it is recorded again that a model is in use."""
_SWEEP = 1_000
_NUL = "\x1e"
"""Stands for NUL, which joins the parts of a key and which PostgreSQL cannot store."""
_MOST_CANDIDATES = 1_000
"""More than pgvector looks at for one question."""
_MEAN_OF = 512
"""Vectors whose mean stands for that of all."""
_MEAN_HOLDS = 1.1
"""Growth of the number of vectors after which the mean is taken again."""
_LEAST_SPREAD = 0.1


class ServerVectors:
    """Implement what embedding and searches call of a `VectorStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._sql = database.queries("index.pgvector")

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Take the lock for embedding, for all hosts. `StoreBusy` after the deadline."""
        return self._db.hold("vectors", timeout)

    def file(self) -> VectorFile:
        """Return how far the vectors are; `IndexMissing` before the first was to be made."""

        def work(connection: DatabaseConnection) -> VectorFile:
            if (row := connection.row(self._sql["state"])) is None:
                raise IndexMissing("no vectors of this tenant are on the server")
            store_id, epoch, noticed, appended, *trouble, size = row
            models = tuple(map(_model, connection.rows(self._sql["models"])))
            return VectorFile(Position(store_id, epoch, noticed), appended, models, EmbedderTrouble(*trouble), size)

        return self._db.apart(work)

    def notice(self, since: int, position: Position, appended: int, gone: Sequence[int]) -> None:
        """Record that the feed was read from `since` to `position`: so many messages came, `gone` were purged.

        Vectors of another store or epoch are walked once more, and `since` is then 0. Does nothing if another host
        recorded it first.
        """

        def work(connection: DatabaseConnection) -> None:
            begun = {"store_id": position.store_id, "epoch": position.epoch}
            if connection.run(self._sql["begin"], begun):
                connection.run(self._sql["walk_again"])
            reached = {"since": since, "noticed": position.seq, "appended": appended}
            if connection.run(self._sql["noticed"], reached) and gone:
                for model in map(_model, connection.rows(self._sql["models"])):
                    self._remove(connection, model.id, MESSAGE, gone)

        self._write(work)

    def model(self, name: str, dimension: int, at: float) -> ModelRow:
        """Return the row of a model, made if needed, and record that the model is in use at this time."""

        def found() -> ModelRow | None:
            rows = map(_model, self._rows("models"))
            return next((row for row in rows if (row.name, row.dimension) == (name, dimension)), None)

        model = found()
        if model is None or at - model.used >= _SAY_AGAIN:
            bound = {"name": name, "dimension": dimension, "at": at}
            self._write(lambda connection: connection.run(self._sql["use"], bound))
            model = found()
        if model is None:  # another process deleted everything just now
            raise IndexMissing("the vectors were deleted")
        return model

    def digests(self, model: ModelRow, kind: str, keys: Sequence[int | str] | None) -> dict[tuple[int | str, int], int]:
        """Return (key, part) → digest for these keys, or for all of a kind."""
        bound = {"model": model.id, "kind": kind, "keys": _texts(keys or ())}
        rows = self._rows("all_digests" if keys is None else "digests", **bound)
        return {(int(key) if kind == MESSAGE else _key(key), part): digest for key, part, digest in rows}

    def known(self, model: ModelRow, digests: Sequence[int]) -> dict[int, bytes]:
        """Return the stored vectors of these texts, wherever they occur."""
        rows = self._rows("known", model=model.id, digests=[*digests])
        return {digest: array("b", map(int, _numbers(vector))).tobytes() for digest, vector in rows}

    def put(self, model: ModelRow, step: EmbeddingStep) -> None:
        def work(connection: DatabaseConnection) -> None:
            self._remove(connection, model.id, step.kind, step.stale)
            connection.run_many(self._sql["add"], [_bindings(model.id, row) for row in step.rows])
            connection.run(self._sql["count"], {"model": model.id, "more": len(step.rows)})
            if step.reach is not None:
                connection.run(self._sql["advance"], {"model": model.id, **step.reach._asdict()})
            if step.version is not None:
                versions = json.dumps({**model.versions, step.kind: step.version})
                connection.run(self._sql["set_versions"], {"model": model.id, "versions": versions})

        self._write(work)

    def trouble(self, found: EmbedderTrouble) -> None:
        """Record for other hosts that the embedder fails, or works again."""
        self._write(lambda connection: connection.run(self._sql["trouble"], found._asdict()))

    def check(self) -> str:
        """Have everything walked once more. → ""."""
        self._write(lambda connection: connection.run(self._sql["walk_again"]))
        return ""

    def sweep(self, model: ModelRow, kinds: Sequence[str], unused_since: float) -> bool:  # noqa: ARG002
        """Remove some vectors of a model that was not used since. → whether there is more."""
        unused = (row for row in map(_model, self._rows("models")) if row.id != model.id and row.used < unused_since)
        for other in unused:
            self._delete(other, _SWEEP)
            return True
        return False

    def drop(self) -> None:
        """Delete all vectors of the tenant."""
        for model in map(_model, self._rows("models")):
            self._delete(model, -1)

    def close(self) -> None:
        """Do nothing: the connections are the database's."""

    def neighbours(self, name: str, dimension: int) -> ServerNeighbours:
        """Return what answers questions about the vectors of a model."""
        return ServerNeighbours(self._db, self, name, dimension)

    def _delete(self, model: ModelRow, most: int) -> None:
        def work(connection: DatabaseConnection) -> None:
            if not connection.run(self._sql["some_of_model"], {"model": model.id, "limit": most}) or most < 0:
                connection.run(self._sql["model_itself"], {"model": model.id})

        self._write(work)

    def _remove(self, connection: DatabaseConnection, model: int, kind: str, keys: Sequence[int | str]) -> None:
        if keys:
            removed = connection.run(self._sql["remove"], {"model": model, "kind": kind, "keys": _texts(keys)})
            connection.run(self._sql["count"], {"model": model, "more": -removed})

    def _rows(self, name: str, **given: Any) -> list[tuple[Any, ...]]:
        return self._db.apart(lambda connection: connection.rows(self._sql[name], given))

    def _write(self, work: Any) -> None:
        self._db.apart(work, writing=True)


class ServerNeighbours:
    """Implement what searches call of `Neighbours`. Scores are cosines."""

    def __init__(self, database: PostgresDatabase, store: ServerVectors, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension
        self._db = database
        self._store = store
        self._sql = {
            key: sql.replace("{dimension}", str(dimension)) for key, sql in database.queries("index.pgvector").items()
        }
        self._usual: tuple[int, int, Any] = (-1, 0, None)

    def near(
        self,
        query: Vector,
        k: int,
        kinds: Collection[str],
        allowed: Collection[int] | Collection[str] | None,
        scopes: Collection[str] | None,
    ) -> tuple[Near, ...]:
        found: list[Near] = []
        for kind in kinds:
            if kind == MESSAGE and allowed is None:
                rows = self._distinct("near", k, asked=_text(query))
            else:
                keys = None if allowed is None else _texts(allowed)
                within = None if scopes is None or kind == MESSAGE else _texts(scopes)
                rows = self._distinct("near_of", k, asked=_text(query), kind=kind, keys=keys, scopes=within)
            found += [Near(kind, _key(key), score, session, _key(scope)) for key, session, scope, score in rows]
        return tuple(sorted(found, key=lambda hit: -hit.score)[:k])

    def apart(self, query: Vector, k: int, share: float) -> Nearest:
        """Return the nearest messages, where `share` of how near each is to all others counts against it."""
        import numpy as np

        rows, sample = self._sample()
        if len(sample) < 2:  # a single one is neither near nor far
            return Nearest()
        others = len(sample) - (rows == len(sample))  # one of many makes no difference
        mean, own = sample.sum(axis=0) / np.float32(others), (len(sample) - others) / others
        length = float(np.linalg.norm(mean))
        asked = np.asarray(query, dtype=np.float32) / np.float32(np.linalg.norm(query) or 1.0)
        best = self._distinct(
            "apart", k, asked=_text(asked - np.float32(share) * mean), query=_text(asked), mean=_text(mean)
        )
        among = sample @ mean - own
        spread = max(float((sample @ asked - among).std()), _LEAST_SPREAD * (1 - float(among.mean())))
        hits = [Near(MESSAGE, key, cosine, session, usual=usual * length - own) for key, session, cosine, usual in best]
        return Nearest(tuple(hits), rows=rows, spread=spread)

    def scores(self, query: Vector, message_ids: Sequence[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        for key, score in self._rows("cosines", asked=_text(query), keys=_texts(message_ids)) if message_ids else ():
            found[int(key)] = max(score, found.get(int(key), -1.0))
        return found

    def read(self) -> None:
        """Do nothing: there is nothing to load before the first question."""

    def _sample(self) -> tuple[int, Any]:
        """Return about how many messages have vectors, and some of these as floats of length 1."""
        import numpy as np

        model = self._model()
        rows = model.vectors if model else 0
        number, taken_of, sample = self._usual
        if model is None or number != model.id or not rows / _MEAN_HOLDS <= taken_of <= rows * _MEAN_HOLDS:
            found = [_numbers(vector) for (vector,) in self._rows("sample", limit=_MEAN_OF)]
            sample = np.array(found, dtype=np.float32).reshape(-1, self.dimension)
            sample /= np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-9)
            self._usual = (model.id if model else 0, rows, sample)
        return rows if len(sample) == _MEAN_OF else len(sample), sample

    def _distinct(self, name: str, k: int, **given: Any) -> list[tuple[Any, ...]]:
        """Return the best `k` keys, each with its best part."""
        most = 2 * k + 16
        while True:
            rows = self._rows(name, tune=most, most=most, **given)
            found: dict[str, tuple[Any, ...]] = {}
            for row in rows:
                found.setdefault(row[0], row)
            if len(found) >= k or len(rows) < most:
                return list(found.values())[:k]
            most *= 4

    def _model(self) -> ModelRow | None:
        rows = self._store.file().models
        return next((row for row in rows if (row.name, row.dimension) == (self.name, self.dimension)), None)

    def _rows(self, name: str, *, tune: int = 0, **given: Any) -> list[tuple[Any, ...]]:
        def work(connection: DatabaseConnection) -> list[tuple[Any, ...]]:
            if tune:
                connection.row(self._sql["tune"], {"most": min(_MOST_CANDIDATES, max(100, tune))})
            return connection.rows(self._sql[name], {"name": self.name, **given})

        return self._db.apart(work)


def _bindings(model: int, row: Any) -> dict[str, Any]:
    kind, key, part, session, scope = row.target
    vector = _text(array("b", row.vector)) if row.vector else None
    (key, scope), place = _texts([key, scope]), {"model": model, "kind": kind, "part": part, "session": session}
    return {**place, "key": key, "scope": scope, "digest": row.digest, "vector": vector}


def _model(row: Sequence[Any]) -> ModelRow:
    number, name, dimension, low, high, low_part, high_part, walked, vectors, used, versions = row
    known: Mapping[str, str] = json.loads(versions)
    reach = Reach(low, high, low_part, high_part, walked)
    return ModelRow(number, name, dimension, reach, vectors, used, checking=False, versions=known)


def _texts(keys: Collection[int] | Collection[str] | Collection[int | str]) -> list[str]:
    return [str(key).replace("\0", _NUL) for key in keys]


def _key(stored: str) -> str:
    return stored.replace(_NUL, "\0")


def _text(vector: Any) -> str:
    return json.dumps(vector.tolist())


def _numbers(vector: str | None) -> list[float]:
    return json.loads(vector) if vector else []
