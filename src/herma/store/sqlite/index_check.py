"""Whether an index holds what the transcript gives: structure, every shard's words, every message's digest."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence

import apsw

from herma.ports import IndexRow
from herma.store.sqlite.index_connection import Connections
from herma.store.sqlite.queries import queries

Rows = Callable[[Sequence[int]], Sequence[IndexRow]]
_BATCH = 256
SHARD_BITS = 15


def compare(connections: Connections, rows: Rows) -> str:
    """What is wrong, in a few words; empty when nothing is."""
    with connections.reading(afresh=True) as connection:
        if connection.execute("PRAGMA quick_check(1)").fetchall() != [("ok",)]:
            return "damaged"
        shards = connection.execute("SELECT id, messages, stage, checksum FROM shards").fetchall()
        if connection.execute("SELECT count(*) FROM docs").fetchall()[0][0] != sum(shard[1] for shard in shards):
            return "counts differ"
    for shard, _, stage, checksum in shards:
        trouble = _compare_shard(connections, shard, checksum if stage == 3 else None, rows)
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
            stored = connection.execute(sql, (low, high, _BATCH)).fetchall()
        if not stored:
            break
        low = stored[-1][0] + 1
        given = rows([message for message, _ in stored])
        if {row.id: row.digest for row in given} != dict(stored):
            return "messages differ"
        if again is not None:
            values = [(row.id & (1 << SHARD_BITS) - 1, row.text, row.names) for row in given]
            again.executemany(queries("index")["insert"].format(shard=0), values)
    expected = words_checksum(again, 0) if again is not None else checksum
    with connections.reading(afresh=True) as connection:
        return "" if words_checksum(connection, shard) == expected else "words differ"


def words_checksum(connection: apsw.Connection, shard: int) -> int:
    checksum = 0
    for term, places in _words(connection, shard):
        checksum = zlib.crc32(f"{term}\t{places}\n".encode(), checksum)
    return checksum


def _words(connection: apsw.Connection, shard: int) -> Iterator[tuple[str, str]]:
    yield from connection.execute(queries("index")["places"].format(shard=shard), ("",))


def _empty_shard() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(queries("index")["schema"])
    connection.execute(queries("index")["create_shard"].format(shard=0))
    return connection
