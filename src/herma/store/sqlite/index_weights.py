"""How much a word weighs in each message of a full shard, strongest first: what makes words cheap, common and rare.

FTS5 scores a word by visiting every message that has it, twenty times as slowly as it counts them. Here the messages
are put in order once. The weight of a word in a message is BM25's without the rarity of the word:
`tf · 2.2 / (tf + 1.2 · (0.25 + 0.75 · length / average length))`. A message is kept as its distance from the last id of
the shard, so that newer ones come first among equals.

A word in many messages has a list of its own, a sequence of 16-bit numbers: step, count, that many messages, next lower
step, and so on, with 20 steps to the unit. The beginning of it is kept apart from the rest, so that it can be read
alone. Words in few messages share rows (`index_rare`).
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
from typing import Any

import apsw

from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.index_rare import BUCKET_BITS, FINE, RareWords
from herma.store.sqlite.queries import queries

SHARD_BITS = 15
LAST = (1 << SHARD_BITS) - 1
"""The last message number of a shard."""
STEPS = 20
"""Steps per unit of weight."""
FREQUENT = 32
"""Words in fewer messages of a shard are rare there."""
LIST_BITS = 20
"""A shard has at most so many lists."""
BEGINNING = 384
"""Bytes of a list that can be read alone."""
WEIGHING, WEIGHED = 2, 3
"""Stages of a shard: see index.sql."""
MOST_CHECKSUM = (1 << 62) - 1
_TOP = 44  # weights are below 2.2
_SLICE = 0.003
_K1, _B = 1.2, 0.75


class Weigher:
    """Weighs one shard, word after word in alphabetical order. Whoever weighs it writes the same, so nothing goes wrong
    when two processes do.
    """

    def __init__(self, connection: apsw.Connection, shard: int, version: int) -> None:
        self.shard, self.version = shard, version
        self._sql = queries("index")
        sizes = fetch(connection, self._sql["lengths"].format(shard=shard))
        lengths = {str(row): _length(size) for row, size in sizes}
        average = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        norm = {length: _K1 * (1 - _B + _B * length / average) for length in set(lengths.values())}
        self._norms = {row: norm[length] for row, length in lengths.items()}
        rank = {value: _rank(1, value) for value in norm.values()}
        self._once = {row: rank[value] | LAST - int(row) for row, value in self._norms.items()}
        self._rare = RareWords()
        self._reached, self._all_words, self._next_list = "", False, shard << LIST_BITS
        self._checksum = self._lists_checksum = 0

    def step(self, connection: apsw.Connection) -> None:
        """Weigh as many words as a slice of time allows."""
        deadline = time.monotonic() + _SLICE
        if not self._all_words:
            self._weigh(connection, deadline)
        elif not self._write_rare(connection, deadline):
            bindings = (WEIGHED, self._checksum, self._lists_checksum & MOST_CHECKSUM, self.shard)
            connection.execute(self._sql["weighed"], bindings)

    def _weigh(self, connection: apsw.Connection, deadline: float) -> None:
        words: list[tuple[int, str, int, int]] = []
        lists: list[tuple[int, bytes, bytes | None]] = []
        for term, places in connection.execute(self._sql["places"].format(shard=self.shard), (self._reached,)):
            self._checksum = zlib.crc32(f"{term}\t{places}\n".encode(), self._checksum)
            self._reached = term
            counts = Counter(places.split()) if places.count(" ") >= FREQUENT - 1 else None
            if counts is None or len(counts) < FREQUENT:
                self._add_rare(term, places)
            else:
                blob = encode(self._ranked(counts))
                words.append((self.shard, term, len(counts), self._next_list))
                lists.append((self._next_list, blob[:BEGINNING], blob[BEGINNING:] or None))
                self._next_list += 1
            if time.monotonic() > deadline:
                break
        else:
            self._all_words = True
        self._write(connection, "frequent", words)
        self._write(connection, "lists", lists)

    def _write(self, connection: apsw.Connection, table: str, rows: Sequence[Sequence[Any]]) -> None:
        self._lists_checksum += sum(map(row_checksum, rows))
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", rows)

    def _add_rare(self, term: str, places: str) -> None:
        if " " not in places:  # most words are in one message, once
            self._rare.add(term, ((self._weight(1, places), LAST - int(places)),))
            return
        counts = Counter(places.split())
        weighed = [(self._weight(count, row), LAST - int(row)) for row, count in counts.items()]
        self._rare.add(term, sorted(weighed, key=lambda one: (-one[0], one[1])))

    def _write_rare(self, connection: apsw.Connection, deadline: float) -> bool:
        """→ whether there was anything to write."""
        rows: list[tuple[int, bytes]] = []
        for bucket, words in self._rare.rows():
            rows.append((self.shard << BUCKET_BITS | bucket, words))
            if time.monotonic() > deadline:
                break
        self._write(connection, "rare", rows)
        return bool(rows)

    def _weight(self, count: int, row: str) -> int:
        return round(count * (_K1 + 1) * FINE / (count + self._norms[row]))

    def _ranked(self, counts: Counter[str]) -> list[int]:
        """The messages in order: steps below the highest in the upper bits, distance from the last id in the lower."""
        once, norms = self._once, self._norms
        ranked = [
            once[row] if count == 1 else _rank(count, norms[row]) | LAST - int(row) for row, count in counts.items()
        ]
        ranked.sort()
        return ranked


def row_checksum(row: Sequence[Any]) -> int:
    """Those of all rows of a shard are added up: the order in which they are written does not matter."""
    checksum = 0
    for value in row:
        checksum = zlib.crc32(value if isinstance(value, bytes) else f"{value}\t".encode(), checksum)
    return checksum


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


def listed(strong: bytes, rest: bytes | None = None) -> set[int]:
    """The messages of a list."""
    return {age for _, ages in decode(strong + (rest or b"")) for age in ages}


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
