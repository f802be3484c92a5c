"""Index.db: files, tables, checks."""

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

import apsw

from herma.errors import StoreError
from herma.index.postings import (
    BUCKET_BITS,
    LAST,
    LIST_BITS,
    MOST_CHECKSUM,
    SHARD_BITS,
    WEIGHED,
    WEIGHING,
    Connections,
    Weigher,
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
from herma.index.types import Found, IndexMissing, IndexRow, IndexState, IndexUnusable, Sieve
from herma.store.database import queries
from herma.store.files import exclusive
from herma.transcript.rows import Position

# ---------- store.sqlite.index_check
#
# Whether an index holds what the transcript gives: structure, every shard's words, every message's digest.

Rows = Callable[[Sequence[int]], Sequence[IndexRow]]
_BATCH = 256
_SAMPLE = 200
_WORDS = 12
_LISTS = 4


def compare(connections: Connections, rows: Rows) -> str:
    """What is wrong, in a few words; empty when nothing is."""
    with connections.reading(afresh=True) as connection:
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
    """Digests of all messages; words by the checksum taken when it was full, or else by indexing it again in memory."""
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
            again.executemany(queries("index")["insert"].format(shard=0), values)
    expected = words_checksum(again, 0) if again is not None else checksum
    with connections.reading(afresh=True) as connection:
        return "" if words_checksum(connection, shard) == expected else "words differ"


def _compare_lists(connections: Connections) -> str:
    """The lists of every shard that is weighed, by the checksum taken when they were written; of others, there may be
    what is about to be deleted.
    """
    with connections.reading(afresh=True) as connection:
        expected = dict(fetch(connection, "SELECT id, lists_checksum FROM shards WHERE stage = ?", (WEIGHED,)))
        found = dict.fromkeys(expected, 0)
        for table, bits in (("frequent", 0), ("lists", LIST_BITS), ("rare", BUCKET_BITS)):
            for row in connection.execute(f"SELECT * FROM {table}"):
                shard = row[0] >> bits
                if shard in found:
                    found[shard] += row_checksum(row)
    return "" if {shard: total & MOST_CHECKSUM for shard, total in found.items()} == expected else "lists differ"


def sample(connections: Connections, rows: Rows) -> str:
    """A few messages anywhere, found by their own words, and one full shard."""
    with connections.reading(afresh=True) as connection:
        meta(connection)
        shards = fetch(connection, "SELECT id, stage, checksum FROM shards WHERE messages > 0")
        ids = {message for shard, _, _ in shards for message in _some(connection, shard, 1 + _SAMPLE // len(shards))}
        stored = dict(fetch(connection, queries("index")["known"], (json.dumps(sorted(ids)),)))
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
    """Whether a message is found by its first words."""
    tokens = tokenizer(connection)
    words = [word.replace('"', " ") for word in row.text.split()[:_WORDS]]
    phrases = [f'"{word}"' for word in words if tokens(word)]
    if not phrases:
        return True
    shard = row.id >> SHARD_BITS
    sql = f"SELECT 1 FROM shard_{shard} WHERE shard_{shard} MATCH ? AND rowid = ?"
    return bool(fetch(connection, sql, (" AND ".join(phrases), row.id & LAST)))


def _lists(connection: apsw.Connection, row: IndexRow) -> bool:
    """Whether the lists of a few of its words have a message."""
    shard, age = row.id >> SHARD_BITS, LAST - (row.id & LAST)
    for term in filter(None, dict.fromkeys(tokenizer(connection)(row.text)[:_LISTS])):  # an accent alone has no list
        stored = fetch(connection, queries("index")["whole_list"], (shard, term))
        bucket, name = place(term)
        rare = fetch(connection, queries("index")["rare_row"], (shard, bucket)) if not stored else []
        ages = listed(*stored[0]) if stored else {one for (words,) in rare for _, one in look_up(words, name)}
        if age not in ages:
            return False
    return True


def words_checksum(connection: apsw.Connection, shard: int) -> int:
    checksum = 0
    for term, places in connection.execute(queries("index")["places"].format(shard=shard), ("",)):
        checksum = zlib.crc32(f"{term}\t{places}\n".encode(), checksum)
    return checksum


def _empty_shard() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(queries("index")["schema"])
    connection.execute(queries("index")["create_shard"].format(shard=0))
    return connection


# ---------- store.sqlite.index_tables
#
# One index file: messages in FTS5 tables of 32,768 ids each (shards), so that no merge and no count grows with the
# transcript. A shard that is full is merged into one segment and weighed (`index_weights`), a few milliseconds at a
# time.

PAGES = 16
"""How many pages one step of merging writes: a few milliseconds."""
MOST_TERMS = 100_000
VOCABULARY_MESSAGES = 30_000
"""How many words of a shard, and of how many messages, newest first, `vocabulary` looks through: reading the words of
a full shard takes some 50 ms.
"""
_SETTLED = 3_000_000_000
"""Nanoseconds after which a file that is written again has another time: no file system counts in longer steps."""
FILLING, MERGING = 0, 1
"""Stages of a shard before it is weighed."""


class SqliteIndexTables:
    """Implements `IndexTables`. Writers hold the lock of the home's index."""

    def __init__(self, path: Path, *, common_cap: int = 20_000) -> None:
        self.path = path
        self._common_cap = common_cap
        self._connections = Connections(path)
        self._sql = queries("index")
        self._weigher: Weigher | None = None
        self._reached: tuple[object, Position | None] | None = None

    def state(self) -> IndexState:
        with self._connections.reading() as connection:
            position = _position(meta(connection))
            messages = sum(row[1] for row in fetch(connection, self._sql["shards"]))
        return IndexState(position, messages, self.path.stat().st_size if self.path.exists() else 0)

    def position(self) -> Position | None:
        """Read again only after a change: every search asks for it."""
        stamp, settled = _stamp(self.path)
        known = self._reached
        if known is not None and known[0] == stamp:
            return known[1]
        with self._connections.glancing() as connection:
            position = _position(meta(connection))
        self._reached = (stamp, position) if settled else None
        return position

    def put(self, rows: Sequence[IndexRow], gone: Sequence[int], position: Position) -> None:
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
        try:
            with self._connections.writing() as connection:
                return self._tidy(connection)
        except BaseException:
            self._weigher = None  # it is ahead of what was written
            raise

    def find(self, sieve: Sieve, limit: int) -> Found:
        with self._connections.reading() as connection:
            return search(connection, sieve, limit, self._common_cap)

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

    def check(self, rows: Callable[[Sequence[int]], Sequence[IndexRow]], *, thorough: bool) -> str:
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
        """One step of the work on a shard that is full, or that has changed since it was."""
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
        """FTS5 tells by the number of its changes whether there was anything to merge."""
        before = connection.total_changes()
        connection.execute(self._sql["merge"].format(shard=shard), (pages,))
        return connection.total_changes() - before >= 2


def _stamp(path: Path) -> tuple[object, bool]:
    """What changes whenever a file is written, and whether that can be relied on: two writes within a moment may have
    happened at the same time as far as a file system can tell.
    """
    try:
        status = os.stat(path)  # noqa: PTH116  a microsecond less, at every search
    except OSError:
        return None, False
    return (status.st_ino, status.st_mtime_ns, status.st_size), time.time_ns() - status.st_mtime_ns > _SETTLED


def _position(facts: Mapping[str, str]) -> Position | None:
    return Position(facts["store_id"], facts["epoch"], int(facts["seq"])) if "seq" in facts else None


# ---------- store.sqlite.index_files
#
# `index.db` and `index.db.new` in a home: which one is used, who may write, and how one takes the other's place.

_ASK_AGAIN = 0.001
_BESIDE = ("-journal", "-wal", "-shm")


class SqliteIndexFiles:
    """Implements `IndexFiles`."""

    def __init__(self, home: Path, *, common_cap: int = 20_000) -> None:
        self._path = home / "index.db"
        self._new = home / "index.db.new"
        self._lock = home / "index.db.lock"
        self._common_cap = common_cap
        self._mutex = threading.Lock()
        self._current: SqliteIndexTables | None = None
        self._building: SqliteIndexTables | None = None
        self._identity: tuple[int, int] | None = None
        self._new_identity: tuple[int, int] | None = None

    def current(self) -> SqliteIndexTables:
        with self._mutex:
            found = identity(self._path)
            if found is None:
                raise IndexMissing(f"{self._path} is not there")
            if self._current is None or found != self._identity:
                if self._current is not None:
                    self._current.close()
                self._current = SqliteIndexTables(self._path, common_cap=self._common_cap)
                self._identity = found
            return self._current

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Asks often: whoever builds an index lets go of it for two milliseconds now and then."""
        return exclusive(self._lock, timeout, longest_pause=_ASK_AGAIN)

    def building(self, *, anew: bool) -> SqliteIndexTables:
        with self._mutex:
            if anew or identity(self._new) is None:
                _remove(self._new)
                create(self._new)
            found = identity(self._new)
            if self._building is None or found != self._new_identity:
                if self._building is not None:
                    self._building.close()
                self._building = SqliteIndexTables(self._new, common_cap=self._common_cap)
                self._new_identity = found
            return self._building

    def built(self) -> int:
        if identity(self._new) is None:
            return 0
        tables = SqliteIndexTables(self._new)
        try:
            return tables.state().messages
        except (IndexUnusable, StoreError):  # it is begun, or put in its place, at this moment
            return 0
        finally:
            tables.close()

    def publish(self) -> None:
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
        for path in (self._path, self._new):
            if path.is_dir() and any(path.iterdir()):
                return _in_the_way(path)
        return ""

    def drop(self, *, building: bool = True) -> None:
        self.close(building=building)
        if building:
            _remove(self._new)
        _remove(self._path)

    def close(self, *, building: bool = True) -> None:
        with self._mutex:
            if self._current is not None:
                self._current.close()
            self._current = self._identity = None
            if building and self._building is not None:
                self._building.close()
                self._building = None


def _in_the_way(path: Path) -> str:
    return f"{path} is a folder with something in it: move it away, and the index is built by itself."


def _remove_folder(path: Path) -> None:
    """An empty folder is in nobody's way; what is in another is not ours to delete."""
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
