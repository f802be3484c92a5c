"""Keep `index.db`: its tables, their checks, and which file is in use or being built."""

from __future__ import annotations

import json
import os
import secrets
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import apsw

from herma.errors import StoreError
from herma.index import IndexAnswer, IndexMissing, IndexUnusable
from herma.index.postings import (
    BUCKET_BITS,
    LAST,
    LIST_BITS,
    MOST_CHECKSUM,
    SHARD_BITS,
    WEIGHED,
    WEIGHING,
    Connections,
    PreparedQuery,
    Weigher,
    Words,
    create,
    fetch,
    identity,
    listed,
    look_up,
    meta,
    place,
    row_checksum,
    search,
    tokenizer,
)
from herma.store.database import queries
from herma.store.files import exclusive
from herma.transcript.rows import Position


class IndexRow(NamedTuple):
    """One message, prepared, with a digest of its original text."""

    id: int
    text: str
    names: str
    digest: int


class IndexState(NamedTuple):
    """The position and size of an index. No position: nothing was ever indexed."""

    position: Position | None = None
    messages: int = 0
    size: int = 0


# ── does an index hold what the transcript has? ──

Rows = Callable[[Sequence[int]], Sequence[IndexRow]]
_BATCH = 256
_SAMPLE = 200
_WORDS = 12
_LISTS = 4


def compare(connections: Connections, rows: Rows) -> str:
    """Compare everything: structure, words of every shard, digest of every message. → what is wrong, or ""."""
    with connections.reading(fresh=True) as connection:
        meta(connection)
        if fetch(connection, "PRAGMA quick_check(1)") != [("ok",)]:
            return "damaged"
        shards = fetch(connection, "SELECT id, messages, stage, checksum FROM shards")
        if fetch(connection, "SELECT count(*) FROM docs")[0][0] != sum(shard[1] for shard in shards):
            return "counts differ"
    trouble = _compare_lists(connections)
    if trouble:
        return trouble
    for shard, _, stage, checksum in shards:
        trouble = _compare_shard(connections, shard, checksum if stage == WEIGHED else None, rows)
        if trouble:
            return trouble
    return ""


def _compare_shard(connections: Connections, shard: int, checksum: int | None, rows: Rows) -> str:
    """Compare digests of all messages, and words: with the checksum of a full shard, else by indexing it in memory."""
    again = None if checksum is not None else _empty_shard()
    low, high = shard << SHARD_BITS, (shard + 1) << SHARD_BITS
    while True:
        with connections.reading() as connection:
            sql = "SELECT id, digest FROM docs WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"
            stored = fetch(connection, sql, (low, high, _BATCH))
        if not stored:
            break
        low = stored[-1][0] + 1
        given = rows([message for message, _ in stored])
        if {row.id: row.digest for row in given} != dict(stored):
            return "messages differ"
        if again is not None:
            values = [(row.id & LAST, row.text, row.names) for row in given]
            again.executemany(queries("index.postings")["insert"].format(shard=0), values)
    expected = words_checksum(again, 0) if again is not None else checksum
    with connections.reading(fresh=True) as connection:
        return "" if words_checksum(connection, shard) == expected else "words differ"


def _compare_lists(connections: Connections) -> str:
    """Compare the lists of every weighed shard with their checksum. Lists of other shards are about to be deleted."""
    with connections.reading(fresh=True) as connection:
        expected = dict(fetch(connection, "SELECT id, lists_checksum FROM shards WHERE stage = ?", (WEIGHED,)))
        found = dict.fromkeys(expected, 0)
        for table, bits in (("frequent", 0), ("lists", LIST_BITS), ("rare", BUCKET_BITS)):
            for row in connection.execute(f"SELECT * FROM {table}"):
                shard = row[0] >> bits
                if shard in found:
                    found[shard] += row_checksum(row)
    return "" if {shard: total & MOST_CHECKSUM for shard, total in found.items()} == expected else "lists differ"


def sample(connections: Connections, rows: Rows) -> str:
    """Compare a few messages, which must be found by their own words, and one full shard. → what is wrong, or ""."""
    with connections.reading(fresh=True) as connection:
        meta(connection)
        shards = fetch(connection, "SELECT id, stage, checksum FROM shards WHERE messages > 0")
        ids = {message for shard, _, _ in shards for message in _some(connection, shard, 1 + _SAMPLE // len(shards))}
        stored = dict(fetch(connection, queries("index.postings")["known"], (json.dumps(sorted(ids)),)))
        given = rows(sorted(ids))
        if {row.id: row.digest for row in given} != stored:
            return "messages differ"
        weighed = {shard for shard, stage, _ in shards if stage == WEIGHED}
        if not all(_finds(connection, row) for row in given):
            return "words differ"
        if not all(_lists(connection, row) for row in given if row.id >> SHARD_BITS in weighed):
            return "lists differ"
        full = [(shard, checksum) for shard, stage, checksum in shards if stage == WEIGHED]
        if full:
            shard, checksum = secrets.choice(full)
            return "" if words_checksum(connection, shard) == checksum else "words differ"
    return ""


def _some(connection: apsw.Connection, shard: int, count: int) -> list[int]:
    start = (shard << SHARD_BITS) + secrets.randbelow(LAST + 1)
    after = fetch(connection, "SELECT id FROM docs WHERE id >= ? ORDER BY id LIMIT ?", (start, count))
    before = fetch(connection, "SELECT id FROM docs WHERE id < ? ORDER BY id DESC LIMIT ?", (start, count))
    return [row[0] for row in (*after, *before)]


def _finds(connection: apsw.Connection, row: IndexRow) -> bool:
    """Return whether a message is found by its first words."""
    tokens = tokenizer(connection)
    words = [word.replace('"', " ") for word in row.text.split()[:_WORDS]]
    phrases = [f'"{word}"' for word in words if tokens(word)]
    if not phrases:
        return True
    shard = row.id >> SHARD_BITS
    sql = f"SELECT 1 FROM shard_{shard} WHERE shard_{shard} MATCH ? AND rowid = ?"
    return bool(fetch(connection, sql, (" AND ".join(phrases), row.id & LAST)))


def _lists(connection: apsw.Connection, row: IndexRow) -> bool:
    """Return whether the lists of a few of its words contain a message."""
    shard, age = row.id >> SHARD_BITS, LAST - (row.id & LAST)
    for term in filter(None, dict.fromkeys(tokenizer(connection)(row.text)[:_LISTS])):  # an accent alone has no list
        stored = fetch(connection, queries("index.postings")["whole_list"], (shard, term))
        bucket, name = place(term)
        rare = fetch(connection, queries("index.postings")["rare_row"], (shard, bucket)) if not stored else []
        ages = listed(*stored[0]) if stored else {one for (words,) in rare for _, one in look_up(words, name)}
        if age not in ages:
            return False
    return True


def words_checksum(connection: apsw.Connection, shard: int) -> int:
    checksum = 0
    for term, places in connection.execute(queries("index.postings")["places"].format(shard=shard), ("",)):
        checksum = zlib.crc32(f"{term}\t{places}\n".encode(), checksum)
    return checksum


def _empty_shard() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(queries("index.postings")["schema"])
    connection.execute(queries("index.postings")["create_shard"].format(shard=0))
    return connection


# ── one index file ──
#
# Messages are in FTS5 tables of 32,768 ids each (shards), so that no merge and no count grows with the transcript. A
# full shard is merged into one segment and weighed (`Weigher`), a few milliseconds at a time.

PAGES = 16
"""Pages that one step of merging writes, in a few milliseconds."""
MOST_TERMS = 100_000
VOCABULARY_MESSAGES = 30_000
"""Words of a shard, and messages (newest first), that `vocabulary` reads: the words of a full shard take about 50 ms.
"""
_SETTLED = 3_000_000_000
"""Nanoseconds after which another write changes the time of a file on every file system."""
FILLING, MERGING = 0, 1
"""Stages of a shard before it is weighed."""

COMMON_CAP = 20_000
"""Matches of very common words that are ranked."""


class IndexTables:
    """The tables of one index file. Writers hold the lock of the home's index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connections = Connections(path)
        self._sql = queries("index.postings")
        self._weigher: Weigher | None = None
        self._reached: tuple[object, Position | None] | None = None

    def state(self) -> IndexState:
        with self._connections.reading() as connection:
            position = _position(meta(connection))
            messages = sum(row[1] for row in fetch(connection, self._sql["shards"]))
        return IndexState(position, messages, self.path.stat().st_size if self.path.exists() else 0)

    def position(self) -> Position | None:
        """Return the position; it is read again only after a change."""
        stamp, settled = _stamp(self.path)
        known = self._reached
        if known is not None and known[0] == stamp:
            return known[1]
        with self._connections.borrowed() as connection:
            position = _position(meta(connection))
        self._reached = (stamp, position) if settled else None
        return position

    def put(self, rows: Sequence[IndexRow], gone: Sequence[int], position: Position) -> None:
        """Add or replace rows, remove others, and set the position: all or nothing."""
        with self._connections.writing() as connection:
            self._forget(connection, [*gone, *(row.id for row in rows)])
            by_shard: dict[int, list[IndexRow]] = defaultdict(list)
            for row in rows:
                by_shard[row.id >> SHARD_BITS].append(row)
            for shard, members in by_shard.items():
                self._insert(connection, shard, members)
            facts = {"store_id": position.store_id, "epoch": position.epoch, "seq": str(position.seq)}
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())

    def tidy(self) -> bool:
        """Do a few milliseconds of upkeep. → whether there is more to do."""
        try:
            with self._connections.writing() as connection:
                return self._tidy(connection)
        except BaseException:
            self._weigher = None  # it is ahead of what was written
            raise

    def find(self, query: PreparedQuery, limit: int) -> IndexAnswer:
        with self._connections.reading() as connection:
            return search(Words(connection), query, limit, COMMON_CAP)

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str], limit: int) -> Sequence[str]:
        inside, first = ["instr(term, ?)"] * len(parts), ["instr(term, ?) = 1"] * len(beginnings)
        one_of_them = " OR ".join([*inside, *first])
        counts: dict[str, int] = defaultdict(int)
        looked_at = 0
        with self._connections.reading() as connection:
            for shard, messages, _ in fetch(connection, self._sql["shards"]):
                sql = self._sql["vocabulary"].format(shard=shard, one_of_them=one_of_them)
                for term, occurs in fetch(connection, sql, (MOST_TERMS, *parts, *beginnings)):
                    counts[term] += occurs
                looked_at += messages
                if looked_at >= VOCABULARY_MESSAGES:
                    break
        return sorted(counts, key=lambda term: (-counts[term], term))[:limit]

    def digests(self, message_ids: Sequence[int]) -> Mapping[int, int]:
        with self._connections.reading() as connection:
            return dict(fetch(connection, self._sql["known"], (json.dumps([*message_ids]),)))

    def check(self, rows: Rows, *, thorough: bool) -> str:
        """Compare what is stored with these rows: everything, or a sample. → what is wrong, or ""."""
        return compare(self._connections, rows) if thorough else sample(self._connections, rows)

    def close(self) -> None:
        self._connections.close()

    def _forget(self, connection: apsw.Connection, message_ids: Sequence[int]) -> None:
        known = [row[0] for row in fetch(connection, self._sql["known"], (json.dumps([*message_ids]),))]
        by_shard: dict[int, list[int]] = defaultdict(list)
        for message_id in known:
            by_shard[message_id >> SHARD_BITS].append(message_id)
        for shard, members in by_shard.items():
            sql = self._sql["delete"].format(shard=shard)
            connection.executemany(sql, [(message_id & LAST,) for message_id in members])
            connection.executemany("DELETE FROM docs WHERE id = ?", [(message_id,) for message_id in members])
            self._changed(connection, shard, -len(members))

    def _insert(self, connection: apsw.Connection, shard: int, rows: Sequence[IndexRow]) -> None:
        if not fetch(connection, "SELECT 1 FROM shards WHERE id = ?", (shard,)):
            connection.execute(self._sql["create_shard"].format(shard=shard))
        sql = self._sql["insert"].format(shard=shard)
        connection.executemany(sql, [(row.id & LAST, row.text, row.names) for row in rows])
        connection.executemany("INSERT INTO docs VALUES (?, ?)", [(row.id, row.digest) for row in rows])
        self._changed(connection, shard, len(rows))

    def _changed(self, connection: apsw.Connection, shard: int, by: int) -> None:
        ((stage,),) = fetch(connection, "SELECT stage FROM shards WHERE id = ?", (shard,))
        if stage >= WEIGHING:
            connection.execute(self._sql["forget"].format(shard=shard))
        connection.execute(self._sql["changed_shard"], (shard, by))

    def _tidy(self, connection: apsw.Connection) -> bool:
        if self._merge_filling(connection):
            return True
        for shard, stage, version in fetch(connection, self._sql["unfinished"]):
            self._finish(connection, shard, stage, version)
            return True
        self._weigher = None
        return False

    def _finish(self, connection: apsw.Connection, shard: int, stage: int, version: int) -> None:
        """Do one step of the work on a shard that is full."""
        if stage < WEIGHING:
            self._merge_full(connection, shard, stage)
            return
        if self._weigher is None or (self._weigher.shard, self._weigher.version) != (shard, version):
            self._weigher = Weigher(connection, shard, version)
        self._weigher.step(connection)

    def _merge_filling(self, connection: apsw.Connection) -> bool:
        newest = fetch(connection, "SELECT max(id) FROM shards")[0][0]
        return newest is not None and self._merged(connection, newest, PAGES)

    def _merge_full(self, connection: apsw.Connection, shard: int, stage: int) -> None:
        more = self._merged(connection, shard, -PAGES if stage == FILLING else PAGES)
        following = MERGING if stage == FILLING or more else WEIGHING
        connection.execute("UPDATE shards SET stage = ? WHERE id = ?", (following, shard))

    def _merged(self, connection: apsw.Connection, shard: int, pages: int) -> bool:
        """Merge pages. → whether there were any, by the number of changes."""
        before = connection.total_changes()
        connection.execute(self._sql["merge"].format(shard=shard), (pages,))
        return connection.total_changes() - before >= 2


def _stamp(path: Path) -> tuple[object, bool]:
    """Return what changes when a file is written, and whether it is old enough that the next write has another time."""
    try:
        status = os.stat(path)  # noqa: PTH116  a microsecond less, at every search
    except OSError:
        return None, False
    return (status.st_ino, status.st_mtime_ns, status.st_size), time.time_ns() - status.st_mtime_ns > _SETTLED


def _position(facts: Mapping[str, str]) -> Position | None:
    return Position(facts["store_id"], facts["epoch"], int(facts["seq"])) if "seq" in facts else None


# ── `index.db` and `index.db.new` in a home ──

_ASK_AGAIN = 0.001
_BESIDE = ("-journal", "-wal", "-shm")


class IndexFiles:
    """The index in use, and the one that is being built and takes its place."""

    def __init__(self, home: Path) -> None:
        self._path = home / "index.db"
        self._new = home / "index.db.new"
        self._lock = home / "index.db.lock"
        self._mutex = threading.Lock()
        self._current: IndexTables | None = None
        self._building: IndexTables | None = None
        self._identity: tuple[int, int] | None = None
        self._new_identity: tuple[int, int] | None = None

    def current(self) -> IndexTables:
        """Return the index in use; `IndexUnusable` if there is none."""
        with self._mutex:
            found = identity(self._path)
            if found is None:
                raise IndexMissing(f"{self._path} is not there")
            if self._current is None or found != self._identity:
                if self._current is not None:
                    self._current.close()
                self._current = IndexTables(self._path)
                self._identity = found
            return self._current

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Take the lock. It is tried often: a process that builds an index frees it for two milliseconds at a time."""
        return exclusive(self._lock, timeout, longest_pause=_ASK_AGAIN)

    def building(self, *, fresh: bool) -> IndexTables:
        """Return the index that is being built: a new one, or (not `fresh`) what an interrupted attempt left."""
        with self._mutex:
            if fresh or identity(self._new) is None:
                _remove(self._new)
                create(self._new)
            found = identity(self._new)
            if self._building is None or found != self._new_identity:
                if self._building is not None:
                    self._building.close()
                self._building = IndexTables(self._new)
                self._new_identity = found
            return self._building

    def built(self) -> int:
        """Return how many messages the index has that is being built, by any process; 0 if there is none."""
        if identity(self._new) is None:
            return 0
        tables = IndexTables(self._new)
        try:
            return tables.state().messages
        except (IndexUnusable, StoreError):  # it is created or moved at this moment
            return 0
        finally:
            tables.close()

    def publish(self) -> None:
        """Replace the index in use with the one that was built."""
        with self._mutex:
            if self._building is not None:
                self._building.close()
                self._building = None
            for path in (self._path, self._new):  # left by a killed writer of the old file: not meant for the new one
                for suffix in _BESIDE:
                    _remove(path.with_name(path.name + suffix), beside=False)
            if self._path.is_dir():
                _remove_folder(self._path)
            try:
                os.replace(self._new, self._path)  # noqa: PTH105  the same name on every platform
            except OSError as exc:
                raise StoreError(f"{self._path} cannot be replaced: {exc.strerror}.") from exc

    def obstacle(self) -> str:
        """Return what is in the place of an index and is not ours, as a sentence with the remedy; mostly ""."""
        for path in (self._path, self._new):
            if path.is_dir() and any(path.iterdir()):
                return _in_the_way(path)
        return ""

    def drop(self, *, building: bool = True) -> None:
        """Delete both; without `building`, only the index in use."""
        self.close(building=building)
        if building:
            _remove(self._new)
        _remove(self._path)

    def close(self, *, building: bool = True) -> None:
        """Close both; without `building`, only the index in use."""
        with self._mutex:
            if self._current is not None:
                self._current.close()
            self._current = self._identity = None
            if building and self._building is not None:
                self._building.close()
                self._building = None


def _in_the_way(path: Path) -> str:
    return f"{path} is a folder that is not empty: move it away, and the next search builds the index."


def _remove_folder(path: Path) -> None:
    """Remove an empty folder; one with something in it is not ours to delete."""
    try:
        path.rmdir()
    except OSError as exc:
        raise StoreError(_in_the_way(path), hint=f"mv {path} {path}.old") from exc


def _remove(path: Path, *, beside: bool = True) -> None:
    if path.is_dir():
        _remove_folder(path)
    try:
        path.unlink(missing_ok=True)
        for suffix in _BESIDE if beside else ():
            path.with_name(path.name + suffix).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"{path} cannot be deleted: {exc.strerror}.") from exc
