"""How much a word weighs in each message of a full shard, strongest first: what makes common words cheap.

FTS5 scores a word by visiting every message that has it, twenty times as slowly as it counts them. Here the messages
are put in order once. The weight of a word in a message is BM25's without the rarity of the word, in 45 steps:
`tf · 2.2 / (tf + 1.2 · (0.25 + 0.75 · length / average length))`. A list is a sequence of 16-bit numbers: step, count,
that many messages (as distances from the last id of the shard: rising, newest first), next lower step, and so on.
Words in only a few messages get no list.
"""

from __future__ import annotations

import sys
import time
import zlib
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import apsw

from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.queries import queries

SHARD_BITS = 15
LAST = (1 << SHARD_BITS) - 1
"""The last message number of a shard."""
STEPS = 20
"""Steps per unit of weight."""
FREQUENT = 32
"""Words in fewer messages of a shard get no list: FTS5 visits these in no time."""
WEIGHING, WEIGHED = 2, 3
"""Stages of a shard: see index.sql."""
_TOP = 44  # weights are below 2.2
_SLICE = 0.003
_K1, _B = 1.2, 0.75


class Weigher:
    """Weighs one shard, word after word in alphabetical order."""

    def __init__(self, connection: apsw.Connection, shard: int) -> None:
        self.shard = shard
        self._sql = queries("index")
        sizes = fetch(connection, self._sql["lengths"].format(shard=shard))
        lengths = {str(row): _length(size) for row, size in sizes}
        average = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        norm = {length: _K1 * (1 - _B + _B * length / average) for length in set(lengths.values())}
        self._norms = {row: norm[length] for row, length in lengths.items()}
        rank = {value: _rank(1, value) for value in norm.values()}
        self._once = {row: rank[value] | LAST - int(row) for row, value in self._norms.items()}

    def step(self, connection: apsw.Connection, weighed_to: str, checksum: int) -> None:
        """Weigh as many words as a slice of time allows."""
        deadline = time.monotonic() + _SLICE
        lists, last, done = [], weighed_to, True
        for term, places in connection.execute(self._sql["places"].format(shard=self.shard), (weighed_to,)):
            checksum = zlib.crc32(f"{term}\t{places}\n".encode(), checksum)
            last = term
            if places.count(" ") >= FREQUENT - 1:
                counts = Counter(places.split())
                if len(counts) >= FREQUENT:
                    lists.append((self.shard, term, len(counts), encode(self._ranked(counts))))
            if time.monotonic() > deadline:
                done = False
                break
        connection.executemany("INSERT INTO weights VALUES (?, ?, ?, ?)", lists)
        connection.execute(
            "UPDATE shards SET stage = ?, weighed_to = ?, checksum = ? WHERE id = ?",
            (WEIGHED if done else WEIGHING, "" if done else last, checksum, self.shard),
        )

    def _ranked(self, counts: Counter[str]) -> list[int]:
        """The messages in order: steps below the highest in the upper bits, distance from the last id in the lower."""
        once, norms = self._once, self._norms
        ranked = [
            once[row] if count == 1 else _rank(count, norms[row]) | LAST - int(row) for row, count in counts.items()
        ]
        ranked.sort()
        return ranked


def _rank(count: int, norm: float) -> int:
    return _TOP - int(count * (_K1 + 1) * STEPS / (count + norm)) << SHARD_BITS


def encode(ranked: Sequence[int]) -> bytes:
    numbers, at = array("H"), 0
    while at < len(ranked):
        below = ranked[at] >> SHARD_BITS
        end = bisect_left(ranked, below + 1 << SHARD_BITS, at)
        numbers.extend((_TOP - below, end - at))
        numbers.extend([value & LAST for value in ranked[at:end]])
        at = end
    return _little_endian(numbers).tobytes()


def decode(blob: bytes) -> Iterator[tuple[float, Sequence[int]]]:
    """Weight and messages, heaviest first. What was cut off at the end of the blob is missing at the end."""
    numbers, at = _numbers(blob[: len(blob) & ~1]), 0
    while at + 2 < len(numbers):
        step, count = numbers[at], numbers[at + 1]
        yield (step + 0.5) / STEPS, numbers[at + 2 : at + 2 + count]
        at += 2 + count


def _numbers(blob: bytes) -> Sequence[int]:
    if sys.byteorder == "little":
        return memoryview(blob).cast("H")
    numbers = array("H")
    numbers.frombytes(blob)
    return _little_endian(numbers)


def _little_endian(numbers: array[int]) -> array[int]:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


@lru_cache(maxsize=4_096)
def _length(size: bytes) -> int:
    """The words of a message: FTS5 keeps one variable-length number per column."""
    total = value = 0
    for byte in size:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            total += value
            value = 0
    return total
