"""The words of a full shard that are in few of its messages: most of all words, a few bytes each.

A word goes by a digest of 45 bits; a few of a hundred million words that are not there are taken for one that is, and
ranking, which reads the text, leaves out what they find. The upper bits name the row. A row has: how many words (two
bytes), the other 32 bits of each in order, in how many messages each is (a byte), and for all of these in turn two
16-bit numbers: the weight, in steps of 1/29,000, and the message. Heaviest first.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Sequence
from hashlib import blake2b

FINE = 29_000
"""Steps per unit of weight, which is below 2.2: what fits into 16 bits."""
BUCKET_BITS = 13
"""A shard has so many rows: short enough to be read whole, long enough to be worth a row."""
_PAIR = struct.Struct("<HH")
_NAME = 4


class RareWords:
    """Collects the words of a shard, and gives rows of them."""

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = defaultdict(bytearray)  # name, count, pairs; name, count, pairs; …

    def add(self, term: str, weighed: Sequence[tuple[int, int]]) -> None:
        """A word, with weights and messages."""
        bucket, name = place(term)
        entries = self._buckets[bucket]
        entries += name
        entries.append(len(weighed))
        for weight, age in weighed:
            entries += _PAIR.pack(weight, age)

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Rows that were not given yet."""
        for bucket in sorted(self._buckets):
            yield bucket, _row(self._buckets.pop(bucket))


def place(term: str) -> tuple[int, bytes]:
    """The row of a word, and its name in it."""
    digest = blake2b(term.encode(), digest_size=6).digest()
    return (digest[0] << 8 | digest[1]) >> 16 - BUCKET_BITS, digest[2:]


def look_up(row: bytes, name: bytes) -> list[tuple[float, int]]:
    """Weights and messages of a word; none when it is not in this row."""
    count = int.from_bytes(row[:2], "little")
    names, counts = row[2 : 2 + _NAME * count], row[2 + _NAME * count : 2 + (_NAME + 1) * count]
    at = names.find(name)
    while at % _NAME and at >= 0:
        at = names.find(name, at + 1)
    if at < 0:
        return []
    which = at // _NAME
    first = 2 + (_NAME + 1) * count + _PAIR.size * sum(counts[:which])
    pairs = _PAIR.iter_unpack(row[first : first + _PAIR.size * counts[which]])
    return [(weight / FINE, age) for weight, age in pairs]


def _row(entries: bytearray) -> bytes:
    found: list[tuple[bytes, int, bytes]] = []
    at = 0
    while at < len(entries):
        count, pairs = entries[at + _NAME], at + _NAME + 1
        end = pairs + count * _PAIR.size
        found.append((bytes(entries[at : at + _NAME]), count, bytes(entries[pairs:end])))
        at = end
    found.sort()
    names, counts, pairs_of = zip(*found, strict=True)
    return len(found).to_bytes(2, "little") + b"".join(names) + bytes(counts) + b"".join(pairs_of)
