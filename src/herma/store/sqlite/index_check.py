"""Whether an index holds what the transcript gives: structure, every shard's words, every message's digest."""

from __future__ import annotations

import json
import secrets
import zlib
from collections.abc import Callable, Sequence

import apsw

from herma.ports import IndexRow
from herma.store.sqlite.index_connection import Connections, fetch, meta
from herma.store.sqlite.index_rare import BUCKET_BITS, look_up, place
from herma.store.sqlite.index_weights import LAST, LIST_BITS, MOST_CHECKSUM, SHARD_BITS, WEIGHED, listed, row_checksum
from herma.store.sqlite.index_words import tokenizer
from herma.store.sqlite.queries import queries

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
