"""Keep `index.db.vectors`: the vectors of each model, how far each model is, and what was removed.

It is not part of `index.db`: rebuilding words takes seconds and replaces their file; making vectors takes minutes, so
they are only added and removed. Nothing here waits for a lock that words need.
"""

from __future__ import annotations

import json
import secrets
import threading
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from herma.errors import StoreError
from herma.index import MESSAGE, IndexUnusable
from herma.index.nearest import Neighbours
from herma.index.postings import Connections, fetch, guarded, identity, meta
from herma.store.database import queries
from herma.store.files import exclusive
from herma.transcript.rows import Position

APPLICATION_ID = 0x48524D56  # "HRMV"
FORMAT = 1
"""Changes when the same texts would be stored differently: a file of another format is made again."""
_ASK_AGAIN = 0.005
_REMOVALS_KEPT = 20_000
_SWEEP = 1_000


class VectorTarget(NamedTuple):
    """The owner of a vector: a part of the text of something. The key of a message is its id."""

    kind: str
    key: int | str
    part: int = 0
    session_id: str = ""
    scope: str = ""


class VectorRow(NamedTuple):
    """A vector in 8-bit numbers, and the digest of its text. No bytes: the embedder refuses the text."""

    target: VectorTarget
    digest: int
    vector: bytes


class Reach(NamedTuple):
    """The part of the feed that a model has embedded: all changes after `low` up to `high`, and of the change on either
    side the
    messages nearest to these. New messages come first, then older ones, because questions are mostly about new ones.
    `walked` is how many messages that makes.
    """

    low: int
    high: int
    low_part: int = 0
    high_part: int = 0
    walked: int = 0


class ModelRow(NamedTuple):
    """One model. `checking`: everything is walked once more, and what that walk does not meet is removed."""

    id: int
    name: str
    dimension: int
    reach: Reach
    vectors: int
    used: float
    checking: bool
    versions: Mapping[str, str]


class EmbedderTrouble(NamedTuple):
    """The last failure of an embedder, how often it failed in a row, and when it is asked again."""

    model: str = ""
    message: str = ""
    failures: int = 0
    retry_at: float = 0.0


class VectorFile(NamedTuple):
    """A file of vectors. Everything purged up to `noticed` is gone; `appended` messages came up to there."""

    noticed: Position
    appended: int
    models: tuple[ModelRow, ...]
    trouble: EmbedderTrouble
    size: int


@dataclass(frozen=True, slots=True)
class EmbeddingStep:
    """The changes of one step of embedding, all or nothing.

    `met`: keys whose vectors stay; `stale`: keys whose other vectors go. `version`: all of this kind is done.
    """

    rows: Sequence[VectorRow] = ()
    kind: str = MESSAGE
    met: Sequence[int | str] = ()
    stale: Sequence[int | str] = ()
    reach: Reach | None = None
    version: str | None = None


class VectorStore:
    """Writers that embed hold the lock; removing what was purged needs no more than a transaction."""

    def __init__(self, home: Path) -> None:
        self.path = home / "index.db.vectors"
        self._lock = home / "index.db.vectors.lock"
        self._sql = queries("index.vectors")
        self._mutex = threading.Lock()
        self._open: Connections | None = None
        self._identity: tuple[int, int] | None = None
        self._changes = 0
        self._versions: dict[apsw.Connection, int] = {}
        self._seen: tuple[object, VectorFile] | None = None

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Take the lock for embedding in this home. `StoreBusy` after the deadline."""
        return exclusive(self._lock, timeout, longest_pause=_ASK_AGAIN)

    def file(self) -> VectorFile:
        """Return the state of the file; it is read again only after a change."""
        changed, seen = self.changed(), self._seen
        if seen is None or seen[0] != changed:
            with self._connections().reading() as connection:
                facts = meta(connection, FORMAT)
                models = tuple(_model(row) for row in fetch(connection, self._sql["models"]))
            failed = (facts.get("trouble_of", ""), facts.get("trouble", ""))
            trouble = EmbedderTrouble(*failed, int(facts.get("failures", 0)), float(facts.get("retry_at", 0.0)))
            noticed = Position(facts["store_id"], facts["epoch"], int(facts["noticed"]))
            file = VectorFile(noticed, int(facts["appended"]), models, trouble, self.path.stat().st_size)
            seen = self._seen = (changed, file)
        return seen[1]

    def notice(self, since: int, position: Position, appended: int, gone: Sequence[int]) -> None:
        """Record that the feed was read from `since` to `position`: so many messages came, `gone` were purged.

        Makes the file if needed; one of another store or epoch is walked once more, and `since` is then 0. Does nothing
        if another process recorded it first.
        """
        if identity(self.path) is None:
            _create(self.path, position)
        with self._connections().writing() as connection:
            facts = meta(connection, FORMAT)
            if (facts["store_id"], facts["epoch"]) != (position.store_id, position.epoch):
                connection.execute(self._sql["walk_again"], (position.seq,))
                facts |= {"appended": "0", "noticed": "0"}
            if int(facts["noticed"]) != since:
                return
            if gone:
                rows = fetch(connection, self._sql["ids_of_keys"], (MESSAGE, json.dumps([*gone]), 0))
                self._forget(connection, rows)
            _remember(
                connection,
                store_id=position.store_id,
                epoch=position.epoch,
                noticed=position.seq,
                appended=int(facts["appended"]) + appended,
            )

    def model(self, name: str, dimension: int, at: float) -> ModelRow:
        """Return the row of a model, made if needed, and record that the model is in use at this time."""
        with self._connections().reading() as connection:
            for row in fetch(connection, self._sql["models"]):
                found = _model(row)
                if (found.name, found.dimension) == (name, dimension) and at - found.used < _SAY_AGAIN:
                    return found
        with self._connections().writing() as connection:
            noticed = int(meta(connection, FORMAT)["noticed"])
            connection.execute(self._sql["add_model"], (name, dimension, at, noticed))
            rows = fetch(connection, self._sql["models"])
        return next(row for row in map(_model, rows) if (row.name, row.dimension) == (name, dimension))

    def digests(self, model: ModelRow, kind: str, keys: Sequence[int | str] | None) -> dict[tuple[int | str, int], int]:
        """Return (key, part) → digest for these keys, or for all of a kind. Damaged vectors are left out."""
        with self._connections().reading() as connection:
            if keys is None:
                rows = fetch(connection, self._sql["all_stored"], (kind, model.id))
                return {(key, part): digest for key, part, digest in rows}
            rows = fetch(connection, self._sql["stored"], (kind, json.dumps([*keys]), model.id))
        return {
            (key, part): digest for key, part, digest, check, vector in rows if _whole(check, vector, model.dimension)
        }

    def known(self, model: ModelRow, digests: Sequence[int]) -> dict[int, bytes]:
        """Return the stored vectors of these texts, wherever they occur."""
        with self._connections().reading() as connection:
            rows = fetch(connection, self._sql["known"], (json.dumps([*digests]), model.id))
        return {digest: vector for digest, checksum, vector in rows if _whole(checksum, vector, model.dimension)}

    def put(self, model: ModelRow, step: EmbeddingStep) -> None:
        with self._connections().writing() as connection:
            if step.stale:
                given = (step.kind, json.dumps([*step.stale]), model.id)
                self._forget(connection, fetch(connection, self._sql["ids_of_keys"], given))
            if step.met:
                connection.execute(self._sql["met"], (step.kind, json.dumps([*step.met]), model.id))
            self._add(connection, model, step.rows)
            if step.reach is not None:
                reach = step.reach
                values = (model.id, reach.low, reach.high, reach.low_part, reach.high_part, reach.walked)
                connection.execute(self._sql["advance"], values)
            if step.version is not None:
                connection.execute(self._sql["set_version"], (model.id, step.kind, step.version))

    def trouble(self, found: EmbedderTrouble) -> None:
        """Record for other processes that the embedder fails, or works again."""
        with self._connections().writing() as connection:
            facts = {"trouble_of": found.model, "trouble": found.message}
            _remember(connection, **facts, failures=found.failures, retry_at=found.retry_at)

    def check(self) -> str:
        """Return what is wrong with the file, or ""; a whole one is walked once more."""
        with self._connections().reading(fresh=True) as connection:
            meta(connection, FORMAT)
            if fetch(connection, "PRAGMA quick_check(1)") != [("ok",)]:
                return "damaged"
        with self._connections().writing() as connection:
            connection.execute(self._sql["walk_again"], (int(meta(connection, FORMAT)["noticed"]),))
        return ""

    def sweep(self, model: ModelRow, kinds: Sequence[str], unused_since: float) -> bool:
        """Remove some vectors that the last walk did not meet, or whose models were not used since. → whether there is
        more.
        """
        with self._connections().writing() as connection:
            given = (model.id, json.dumps([*kinds]), _SWEEP)
            if model.checking and self._forget(connection, fetch(connection, self._sql["not_met"], given)):
                return True
            connection.execute("UPDATE models SET whole = round WHERE id = ?", (model.id,))
            for other in map(_model, fetch(connection, self._sql["models"])):
                if other.id != model.id and other.used < unused_since:
                    if not self._forget(connection, fetch(connection, self._sql["of_model"], (other.id, _SWEEP))):
                        connection.execute("DELETE FROM models WHERE id = ?", (other.id,))
                    return True
        with self._connections().writing() as connection:
            before = fetch(connection, "PRAGMA freelist_count")[0][0]
            fetch(connection, f"PRAGMA incremental_vacuum({_SWEEP})")
            after = fetch(connection, "PRAGMA freelist_count")[0][0]
        return bool(0 < after < before)

    def drop(self) -> None:
        """Delete the file."""
        self.close()
        _remove(self.path)

    def neighbours(self, name: str, dimension: int) -> Neighbours:
        """Return what answers questions about the vectors of a model."""
        return Neighbours(self, name, dimension)

    def close(self) -> None:
        with self._mutex:
            if self._open is not None:
                self._open.close()
            self._open = self._identity = None

    def changed(self) -> object:
        """Return a value that differs after every change of the file.

        SQLite tells a connection whether others wrote since it last looked, but the numbers of two connections cannot
        be compared. So changes are counted here: a connection that sees none confirms the count.
        """
        with self._connections().borrowed() as connection:
            version = fetch(connection, "PRAGMA data_version")[0][0]
            with self._mutex:
                if self._versions.get(connection) != version:
                    self._versions[connection] = version
                    self._changes += 1
                return self._changes

    def find(self, name: str, dimension: int) -> tuple[str, int, int]:
        """Return the id of the file, the number of a model in it (0: none), and how many vectors it has."""
        with self._connections().reading() as connection:
            file = meta(connection, FORMAT)["file"]
            sql = "SELECT id, vectors FROM models WHERE name = ? AND dimension = ?"
            rows = fetch(connection, sql, (name, dimension))
        return (file, *rows[0]) if rows else (file, 0, 0)

    def load(self, model: int, dimension: int, *, messages: bool, after: int, limit: int) -> list[tuple[Any, ...]]:
        """Return rows with a larger id: id, key, session, vector; without `messages`, of the other kinds, with kind and
        scope.
        """
        with self._connections().reading() as connection:
            sql = self._sql["load_messages" if messages else "load_others"]
            return fetch(connection, sql, (after, model, dimension, limit))

    def removed(self, after: int) -> tuple[Sequence[int] | None, int]:
        """Return the vectors that were removed after this number, and the number to go on from; -1 starts now.

        None: too many were removed to list them.
        """
        with self._connections().reading() as connection:
            last = fetch(connection, "SELECT coalesce(max(seq), 0) FROM removed")[0][0]
            if after < 0 or after == last:
                return (), last
            rows = fetch(connection, "SELECT seq, vector FROM removed WHERE seq > ? ORDER BY seq", (after,))
        whole = bool(rows) and rows[0][0] == after + 1
        return [row[1] for row in rows] if whole else None, last

    def sessions(self, after: int) -> dict[int, str]:
        """Return the names of sessions with a larger number."""
        with self._connections().reading() as connection:
            return dict(fetch(connection, "SELECT id, session FROM sessions WHERE id > ?", (after,)))

    def _connections(self) -> Connections:
        with self._mutex:
            found = identity(self.path)
            if found is None:
                raise IndexUnusable(f"{self.path} is not there")
            if self._open is None or found != self._identity:
                if self._open is not None:
                    self._open.close()
                self._open, self._identity = Connections(self.path), found
                self._changes, self._versions = self._changes + 1, {}
            return self._open

    def _forget(self, connection: apsw.Connection, rows: Sequence[tuple[Any, ...]]) -> int:
        connection.executemany("DELETE FROM vectors WHERE id = ?", [(row[0],) for row in rows])
        connection.executemany("INSERT INTO removed (vector) VALUES (?)", [(row[0],) for row in rows])
        for model, count in Counter(row[1] for row in rows).items():
            connection.execute("UPDATE models SET vectors = vectors - ? WHERE id = ?", (count, model))
        if rows:
            connection.execute("DELETE FROM removed WHERE seq <= (SELECT max(seq) FROM removed) - ?", (_REMOVALS_KEPT,))
        return len(rows)

    def _add(self, connection: apsw.Connection, model: ModelRow, rows: Iterable[VectorRow]) -> None:
        numbers: dict[str, int] = {"": 0}
        values = []
        for row in rows:
            target = row.target
            if target.session_id not in numbers:
                connection.execute("INSERT OR IGNORE INTO sessions (session) VALUES (?)", (target.session_id,))
                found = fetch(connection, "SELECT id FROM sessions WHERE session = ?", (target.session_id,))
                numbers[target.session_id] = found[0][0]
            checksum = zlib.crc32(row.vector)
            place = (model.id, target.kind, target.key, target.part, numbers[target.session_id], target.scope)
            values.append((*place, row.digest, checksum, row.vector))
        connection.executemany(self._sql["add"], values)
        connection.execute("UPDATE models SET vectors = vectors + ? WHERE id = ?", (len(values), model.id))


_SAY_AGAIN = 600.0
"""Seconds after which it is recorded again that a model is in use."""


def _whole(checksum: int, vector: bytes, dimension: int) -> bool:
    """Return whether a vector is what was stored. A refused text has none."""
    return zlib.crc32(vector) == checksum and len(vector) in (0, dimension)


def _model(row: Sequence[Any]) -> ModelRow:
    number, name, dimension, low, high, low_part, high_part, walked, vectors, used, checking, versions = row
    known: Mapping[str, str] = json.loads(versions)
    reach = Reach(low, high, low_part, high_part, walked)
    return ModelRow(number, name, dimension, reach, vectors, used, bool(checking), known)


def _create(path: Path, position: Position) -> None:
    with guarded(path):
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.set_busy_timeout(5_000)
            fetch(connection, "PRAGMA synchronous = OFF")
            fetch(connection, "PRAGMA auto_vacuum = INCREMENTAL")
            connection.execute("BEGIN EXCLUSIVE")
            if not fetch(connection, "SELECT 1 FROM sqlite_schema WHERE name = 'meta'"):
                connection.execute(queries("index.vectors")["schema"])
                _remember(
                    connection,
                    format=FORMAT,
                    file=secrets.token_hex(8),
                    store_id=position.store_id,
                    epoch=position.epoch,
                    noticed=0,
                    appended=0,
                )
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        finally:
            connection.close(True)
    path.chmod(0o600)


def _remember(connection: apsw.Connection, **facts: str | float) -> None:
    connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", [(key, str(facts[key])) for key in facts])


def _remove(path: Path) -> None:
    try:
        for name in (path, path.with_name(path.name + "-journal")):
            name.unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path} cannot be deleted: {exc.strerror}.") from exc
