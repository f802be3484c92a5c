"""Whether an index holds what the transcript gives: structure, every shard's words, every message's digest."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import apsw

from herma.ports import IndexRow
from herma.store.sqlite.index_connection import Connections, fetch, meta
from herma.store.sqlite.index_weights import LAST, SHARD_BITS, WEIGHED
from herma.store.sqlite.queries import queries

Rows = Callable[[Sequence[int]], Sequence[IndexRow]]
_BATCH = 256


def compare(connections: Connections, rows: Rows) -> str:
    """What is wrong, in a few words; empty when nothing is."""
    with connections.reading(afresh=True) as connection:
        meta(connection)
        if fetch(connection, "PRAGMA quick_check(1)") != [("ok",)]:
            return "damaged"
        shards = fetch(connection, "SELECT id, messages, stage, checksum FROM shards")
        if fetch(connection, "SELECT count(*) FROM docs")[0][0] != sum(shard[1] for shard in shards):
            return "counts differ"
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
