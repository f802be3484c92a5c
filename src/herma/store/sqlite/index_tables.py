"""One index file: messages in FTS5 tables of 32,768 ids each (shards), so that no merge and no count grows with the
transcript. A shard that is full is merged into one segment and weighed (`index_weights`), a few milliseconds at a time.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import apsw

from herma.ports import Found, IndexRow, IndexState, Position, Sieve
from herma.store.sqlite.index_check import compare, sample
from herma.store.sqlite.index_connection import Connections, fetch, meta
from herma.store.sqlite.index_search import search
from herma.store.sqlite.index_weights import LAST, SHARD_BITS, WEIGHING, Weigher
from herma.store.sqlite.queries import queries

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
