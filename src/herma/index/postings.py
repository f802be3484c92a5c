"""Find messages by their words in one index file: connections, shards, weighted posting lists, ranking by BM25."""

from __future__ import annotations

import heapq
import json
import math
import struct
import sys
import threading
import time
import zlib
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from herma.errors import StoreBusy, StoreError
from herma.index import IndexAnswer, IndexUnusable, ScoredMessage
from herma.store.database import queries
from herma.store.files import special_beside
from herma.store.sqlite import keep_plans


class PreparedTerm(NamedTuple):
    """One alternative: the words of `text` side by side (of the last perhaps only the beginning), or the name."""

    text: str
    name: str = ""
    prefix: bool = False


class PreparedQuery(NamedTuple):
    """`IndexQuery`, prepared as messages are."""

    any_of: tuple[PreparedTerm, ...]
    all_of: tuple[tuple[PreparedTerm, ...], ...]
    none_of: tuple[PreparedTerm, ...]


K1, B = 1.2, 0.75
"""Saturation of repeated words, and weight of a message's length: as in FTS5's `bm25`.
"""


def _weight(found: apsw.FTS5ExtensionApi, *_: object) -> float:
    """Weigh a phrase in one message, as a function of FTS5. Its own `bm25` also looks for the phrase in the whole
    table, to know how rare it is; here that is known from all tables together.
    """
    times = found.inst_count
    average = found.column_total_size(-1) / found.row_count
    return times * (K1 + 1) / (times + K1 * (1 - B + B * found.column_size(-1) / average))


# ── connections to an index file ──
#
# No WAL: a rebuilt index takes the place of the old one by its name, and SQLite would take a WAL of the old file for
# one of the new. Readers and the one writer exclude each other for a few milliseconds at a time instead.

APPLICATION_ID = 0x48524D49  # "HRMI"
FORMAT = 2
"""Changes when the same messages would be stored differently: an index of another format is built again."""
_BUSY_MS = 5_000
_CACHE_KB = 8_192
_STATEMENTS = 512


@contextmanager
def guarded(path: Path) -> Iterator[None]:
    """Translate errors: a busy file, a full disk and a read-only file are errors, all else is damage."""
    try:
        yield
    except (apsw.Error, ValueError, TypeError) as exc:
        raise _translation(path, exc) from exc


def _translation(path: Path, exc: Exception) -> Exception:
    match exc:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(f"{path} is in use and did not become free in time.", hint="Try again.")
        case apsw.FullError():
            return StoreError(f"The disk is full: {path} is not up to date.", hint="Free some space.")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return StoreError(f"{path} cannot be written ({exc}).", hint="Check the permissions of its folder.")
        case _:
            return IndexUnusable(f"{path}: {exc}")


class Connections:
    """One connection for writing, and one for reading for each reader at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[apsw.Connection] = []
        self._writer: apsw.Connection | None = None
        self._mutex = threading.Lock()
        self._writing = threading.Lock()
        self._closed = False

    @contextmanager
    def reading(self, *, fresh: bool = False) -> Iterator[apsw.Connection]:
        """Give one consistent view of the index. FTS5 checks its structure only on a connection made `fresh`."""
        with self.borrowed(fresh=fresh) as connection:
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def borrowed(self, *, fresh: bool = False) -> Iterator[apsw.Connection]:
        """Give a connection for one statement."""
        try:
            with self._mutex:
                connection = self._idle.pop() if self._idle and not fresh else None
            connection = connection or _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
            try:
                yield connection
            finally:
                self._put_back(connection)
        except (apsw.Error, ValueError, TypeError) as exc:
            raise _translation(self.path, exc) from exc

    @contextmanager
    def writing(self) -> Iterator[apsw.Connection]:
        """Run one transaction. The caller holds the lock of the home's index."""
        with self._writing, guarded(self.path):
            if self._writer is None:
                self._writer = _connect(self.path, apsw.SQLITE_OPEN_READWRITE)
            connection = self._writer
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close(True)
        with self._writing:  # another thread may be writing
            if self._writer is not None:
                self._writer.close(True)
            self._writer = None

    def _put_back(self, connection: apsw.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        with self._mutex:
            if not self._closed:
                self._idle.append(connection)
                return
        connection.close(True)


def create(path: Path) -> None:
    """Create an empty index."""
    with guarded(path):
        connection = _connect(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(queries("index.postings")["schema"])
            connection.execute("INSERT INTO meta VALUES ('format', ?)", (str(FORMAT),))
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute("COMMIT")
        finally:
            connection.close(True)
    path.chmod(0o600)


def fetch(
    connection: apsw.Connection, sql: str, bindings: Sequence[Any] | Mapping[str, Any] = ()
) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    return connection.execute(sql, bindings).fetchall()


def meta(connection: apsw.Connection, wanted: int = FORMAT) -> dict[str, str]:
    """Return the facts about this index; raise if it has another format."""
    facts = {str(key): str(value) for key, value in fetch(connection, "SELECT key, value FROM meta")}
    if facts.get("format") != str(wanted):
        raise ValueError(f"format {facts.get('format')} instead of {wanted}")
    return facts


def identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies the file that is at `path` now: a new index replaces the old one under the same name."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _connect(path: Path, flags: int) -> apsw.Connection:
    if found := special_beside(path):
        raise ValueError(f"{found[0].name} is not a file")
    connection = apsw.Connection(str(path), flags=flags, statementcachesize=_STATEMENTS)
    connection.set_busy_timeout(_BUSY_MS)
    keep_plans(connection)
    fetch(connection, "SELECT 1 FROM sqlite_schema LIMIT 1")  # waits for a writer; registering a function does not
    connection.register_fts5_function("weight", _weight)
    connection.execute(f"PRAGMA synchronous = OFF; PRAGMA journal_mode = TRUNCATE; PRAGMA cache_size = -{_CACHE_KB}")
    return connection


# ── the rare words of a full shard: most of all words, a few bytes each ──
#
# A word is stored as a digest of 45 bits: of a hundred million words that are not there, a few are taken for one that
# is, and ranking, which reads the text, leaves out what they find. The upper bits name the row. A row has the number of
# words (two bytes), the other 32 bits of each in order, the number of messages of each (a byte), and for all of these
# in turn two 16-bit numbers: the weight, in steps of 1/29,000, and the message. Heaviest first.

FINE = 29_000
"""Steps per unit of weight, which is below 2.2: this fits into 16 bits."""
BUCKET_BITS = 13
"""Bits of a row's number. The rows of a shard are short enough to be read whole, and long enough to be few."""
_PAIR = struct.Struct("<HH")
_NAME = 4


class RareWords:
    """Collect the rare words of a shard in rows."""

    def __init__(self) -> None:
        self._buckets: dict[int, bytearray] = defaultdict(bytearray)  # name, count, pairs; name, count, pairs; …

    def add(self, term: str, weighed: Sequence[tuple[int, int]]) -> None:
        """Add a word with weights and messages."""
        bucket, name = place(term)
        entries = self._buckets[bucket]
        entries += name
        entries.append(len(weighed))
        for weight, age in weighed:
            entries += _PAIR.pack(weight, age)

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Yield the rows that were not given yet."""
        for bucket in sorted(self._buckets):
            yield bucket, _row(self._buckets.pop(bucket))


def place(term: str) -> tuple[int, bytes]:
    """Return the row of a word, and its name in it."""
    digest = blake2b(term.encode(), digest_size=6).digest()
    return (digest[0] << 8 | digest[1]) >> 16 - BUCKET_BITS, digest[2:]


def look_up(row: bytes, name: bytes) -> list[tuple[float, int]]:
    """Return weights and messages of a word; none if it is not in this row."""
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


# ── the weights of the frequent words of a full shard ──
#
# FTS5 scores a word by visiting every message that has it, twenty times as slowly as it counts them. Here the messages
# are put in order once. The weight of a word in a message is BM25's without the rarity of the word: `tf · 2.2 / (tf +
# 1.2 · (0.25 + 0.75 · length / average length))`. A message is stored as its distance from the last id of the shard
# (its age), so that newer ones come first among equals.
#
# A frequent word has a list of its own, a sequence of 16-bit numbers: step, count, that many messages, next lower step,
# and so on, with 20 steps to the unit. The beginning of a list is stored apart from the rest and can be read alone.

SHARD_BITS = 15
LAST = (1 << SHARD_BITS) - 1
"""The last message number of a shard."""
STEPS = 20
"""Steps per unit of weight."""
FREQUENT = 32
"""A word in fewer messages of a shard is rare there."""
LIST_BITS = 20
"""Bits of the number of a list in its shard."""
BEGINNING = 384
"""Bytes of a list that can be read alone."""
WEIGHING, WEIGHED = 2, 3
"""Stages of a shard: see postings.sql."""
MOST_CHECKSUM = (1 << 62) - 1
_TOP = 44  # weights are below 2.2
_SLICE = 0.003


class Weigher:
    """Weigh one shard, word after word in alphabetical order. Two processes that weigh it write the same."""

    def __init__(self, connection: apsw.Connection, shard: int, version: int) -> None:
        self.shard, self.version = shard, version
        self._sql = queries("index.postings")
        sizes = fetch(connection, self._sql["lengths"].format(shard=shard))
        lengths = {str(row): _length(size) for row, size in sizes}
        average = max(1.0, sum(lengths.values()) / max(1, len(lengths)))
        norm = {length: K1 * (1 - B + B * length / average) for length in set(lengths.values())}
        self._norms = {row: norm[length] for row, length in lengths.items()}
        once = {value: rank(1, value) for value in norm.values()}
        self._once = {row: once[value] | LAST - int(row) for row, value in self._norms.items()}
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
        """Write some rows. → whether there were any."""
        rows: list[tuple[int, bytes]] = []
        for bucket, words in self._rare.rows():
            rows.append((self.shard << BUCKET_BITS | bucket, words))
            if time.monotonic() > deadline:
                break
        self._write(connection, "rare", rows)
        return bool(rows)

    def _weight(self, count: int, row: str) -> int:
        return round(count * (K1 + 1) * FINE / (count + self._norms[row]))

    def _ranked(self, counts: Counter[str]) -> list[int]:
        """Return the messages in order, as numbers: steps below the highest in the upper bits, age in the lower."""
        once, norms = self._once, self._norms
        ranked = [
            once[row] if count == 1 else rank(count, norms[row]) | LAST - int(row) for row, count in counts.items()
        ]
        ranked.sort()
        return ranked


def row_checksum(row: Sequence[Any]) -> int:
    """Return the checksum of a row. Those of a shard are added up, in whatever order they are written."""
    checksum = 0
    for value in row:
        checksum = zlib.crc32(value if isinstance(value, bytes) else f"{value}\t".encode(), checksum)
    return checksum


def rank(count: int, norm: float) -> int:
    return _TOP - int(count * (K1 + 1) * STEPS / (count + norm)) << SHARD_BITS


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
    """Yield weight and messages, heaviest first, as far as the blob goes."""
    numbers, at = _numbers(blob[: len(blob) & ~1]), 0
    while at + 2 < len(numbers):
        step, count = numbers[at], numbers[at + 1]
        yield (step + 0.5) / STEPS, numbers[at + 2 : at + 2 + count]
        at += 2 + count


def listed(strong: bytes, rest: bytes | None = None) -> set[int]:
    """Return the messages of a list."""
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
    """Return the number of words of a message: FTS5 stores one variable-length number per column."""
    total = value = 0
    for byte in size:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            total += value
            value = 0
    return total


# ── one word, phrase or prefix: in which messages it is, how often, and how much it weighs there ──
#
# Full shards have lists of the messages with each word (`Weigher`). FTS5 answers everything else: phrases and prefixes,
# where the lists do not rule them out, and the shards that are still filling.

FILLING_MOST = 4_000
"""Matches of one word that are scored in a shard without lists, newest first."""
ALONE_MOST = 1_000
"""The same if the query is this word alone: many matches are as strong as the strongest."""
VISIT_MOST = 4_000
"""Matches of a phrase or a prefix that are scored in all; shards are visited from the newest on."""
PHRASE_WORK, LONE_PHRASE_WORK = 100_000, 400_000
"""About the messages in which the words of a phrase are compared; then older shards are left out. The second number
holds if the query is this phrase alone.
"""
PHRASE_READ, SHARD_READ, PLENTY = 40_000, 2_500, 4
"""Entries of lists that are read for a phrase that is found often enough; a shard takes as long as `SHARD_READ` of
them. With `PLENTY` times as many matches as are enough, no more are looked for.
"""
FEW_MATCHES, MANY_COMPARED = 400, 8_000
"""Matches of a phrase in a shard that are weighed one by one with `weight`. For more, FTS5's `bm25` is faster, although
it looks for the phrase in the whole shard once more. Of a phrase that is the whole query, so many are enough.
"""
_CHEAP = 500
_STEPS = 180
"""Room for the steps between the messages of a list."""
_PAIR_K1 = 0.6
"""`K1` for pairs of characters in Japanese, which repeat as grammar does. Values from 0.4 to 0.7 answer one more of a
hundred Japanese questions first, in both halves of the data; Chinese questions lose by it.
"""
_SENSE = (1.0, 0.7, 0.2)
"""Weights of a pair with no, one or two hiragana, which are mostly grammar."""
_TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* M* N* Co"]
_ENDINGS = ("ations", "ions", "ings", "ments", "nesses", "ities", "ables", "ively", "fully", "ously", "izers", "ers")


class Shard(NamedTuple):
    id: int
    messages: int
    stage: int


class Match(NamedTuple):
    """An expression for FTS5, the words without which nothing matches, and whether it is a single word."""

    expression: str
    needs: tuple[str, ...]
    word: bool = False


class List(NamedTuple):
    """In how many messages of a shard a word is, and which: the beginning of its list, or all if it is rare."""

    messages: int
    strong: bytes = b""
    rare: Sequence[tuple[float, int]] = ()

    @property
    def whole(self) -> bool:
        return len(self.strong) < BEGINNING

    def ages(self) -> set[int]:
        return {age for _, age in self.rare} if self.rare else listed(self.strong)


@dataclass(slots=True)
class Word:
    """One alternative and what is known of it so far.

    `scored`: message → weight, from FTS5 and from short lists. `lists`: shard → long list. `unvisited`: shard without
    lists → number of matches there, too many to score before it is known whether that is needed. `whole`: nothing was
    left out.
    """

    matches: tuple[Match, ...]
    term: str = ""
    messages: int = 0
    rarity: float = 0.0
    scored: dict[int, float] = field(default_factory=dict)
    lists: dict[int, List] = field(default_factory=dict)
    unvisited: dict[int, int] = field(default_factory=dict)
    whole: bool = True
    damped: bool = False
    """True if more occurrences count less, as for pairs of characters in Japanese."""


class Words:
    """Look words up within one view of the index."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = queries("index.postings")
        self._tokens = tokenizer(connection)
        rows = fetch(connection, self._sql["shards"])
        self.shards = [Shard(number, messages, stage) for number, messages, stage in rows if messages]
        self.total = sum(shard.messages for shard in self.shards)
        self._found: dict[str, dict[int, List]] = {}
        self._weighed = {shard.id for shard in self.shards if shard.stage == WEIGHED}

    def read(self, one: PreparedTerm) -> Word | None:
        """Return what FTS5 is asked for a term; None if it has no word."""
        tokens = self._tokens(one.text)
        named = self._tokens(one.name) if one.name else []
        if not tokens and not named:
            return None
        matches = [
            self._match(text, words, one.prefix)
            for text, words in ((one.text, tokens), (one.name, named))
            if text.strip()
        ]
        if one.prefix and len(tokens) == 1:
            endings = self._endings(one.text.strip())
            matches += [self._match(word, [stem], begun=False) for stem, word in endings.items()]
        single = len(matches) == 1 and matches[0].word
        return Word(tuple(matches), tokens[0] if single else "")

    def prepare(self, words: Iterable[Word]) -> None:
        """Read in which weighed shards all of these are."""
        words = list(words)
        japanese = is_japanese(words)
        for word in words:
            word.damped = japanese and len(word.term) == 2 and not word.term.isascii()
        needed = dict.fromkeys(token for word in words for match in word.matches for token in match.needs)
        self._found = found = {token: dict[int, List]() for token in needed}
        if found and self._weighed:
            self._read_lists(found)

    def _read_lists(self, found: dict[str, dict[int, List]]) -> None:
        """Find each of these words in the weighed shards."""
        for term, shard, messages, strong in fetch(self._connection, self._sql["lists"], (json.dumps(list(found)),)):
            found[term][shard] = List(messages, strong)
        places: dict[int, list[tuple[bytes, dict[int, List]]]] = defaultdict(list)
        for term, lists in found.items():
            if len(lists) < len(self._weighed):
                bucket, name = place(term)
                places[bucket].append((name, lists))
        buckets = f"[{','.join(map(str, places))}]"
        for bucket, shard, row in fetch(self._connection, self._sql["rare"], (buckets,)) if places else ():
            for name, lists in places[bucket]:
                if shard not in lists and (rare := look_up(row, name)):
                    lists[shard] = List(len(rare), rare=rare)

    def look_up(self, word: Word, within: Collection[int] | None, enough: int = 0) -> None:
        """Find the lists of a word, and score it in the other shards if that is cheap.

        `within`: only these shards count. `enough`: with so many matches of a phrase, older shards are left out.
        """
        shards = [shard for shard in self.shards if within is None or shard.id in within]
        if word.term:
            lists = self._found[word.term]
            word.messages = sum(found.messages for found in lists.values())
            for shard in shards:
                if shard.id in lists:
                    self._take(word, shard.id, lists[shard.id])
                elif shard.id not in self._weighed:
                    self._visit_or_count(word, shard)
        else:
            self._visit_newest_first(word, shards, enough)
        rarity = math.log(1 + (self.total - word.messages + 0.5) / (word.messages + 0.5))
        word.rarity = rarity * _sense(word.term)

    def visit_rest(self, word: Word, most: int, best: int = 0) -> None:
        """Score what `look_up` only counted, newest shards first, until there is enough; of each shard all, or the
        best.
        """
        for shard in self.shards:
            if shard.id in word.unvisited:
                if len(word.scored) >= most:
                    word.whole = False
                    return
                self._visit(word, shard, word.matches, word.unvisited[shard.id], best)

    def visit_few(self, word: Word, shards: Collection[int], selecting: Sequence[Word]) -> None:
        """Mark the messages with `selecting` words that also have this one, if it was only counted."""
        any_of = " OR ".join(match.expression for other in selecting for match in other.matches)
        for shard in word.unvisited.keys() & shards:
            rows = self.matching(shard, f"({word.matches[0].expression}) AND ({any_of})", FILLING_MOST)
            word.scored.update((shard << SHARD_BITS | row, 1.0) for row in rows)

    def may_be_in(self, shard: Shard, word: Word) -> bool:
        """Return whether a shard can have a message with a word, as far as the lists tell."""
        return shard.id not in self._weighed or any(self._may_match(shard, match) for match in word.matches)

    def _may_match(self, shard: Shard, match: Match) -> bool:
        here = [lists[shard.id] for token in match.needs if shard.id in (lists := self._found.get(token, {}))]
        known = all(token in self._found for token in match.needs)
        return not known or (len(here) == len(match.needs) and _share(here))

    def matching(self, shard: int, expression: str, most: int, groups: Sequence[Sequence[Word]] = ()) -> list[int]:  # noqa: ARG002
        """Return the newest messages of a shard that match; each has a word of each group."""
        rows = fetch(self._connection, self._sql["matching"].format(shard=shard), (expression, most))
        return [row[0] for row in rows]

    def strongest(self, word: Word, shard: int, most: int = 0) -> Iterable[tuple[float, Sequence[int]]]:
        """Return weights and messages from the top of a list: at least `most` messages, or all."""
        found = word.lists[shard]
        if found.whole or (most and 2 * most + _STEPS <= BEGINNING):
            return _as_counted(word, decode(found.strong))
        return _as_counted(word, decode(self._whole_list(shard, word.term)))

    def weights(
        self, words: Iterable[Word], by_shard: Mapping[int, Sequence[int]]
    ) -> Iterator[tuple[Word, int, float]]:
        """Yield which of these messages are in the lists of these words, with their weights."""
        for word in words:
            for shard in word.lists.keys() & by_shard.keys():
                for message, weight in _weights(self.strongest(word, shard), by_shard[shard]):
                    yield word, message, weight

    def _whole_list(self, shard: int, term: str) -> bytes:
        rows = fetch(self._connection, self._sql["whole_list"], (shard, term))
        return rows[0][0] + (rows[0][1] or b"") if rows else b""

    def _match(self, text: str, tokens: Sequence[str], begun: bool) -> Match:
        """Return what is asked for a word or phrase. FTS5 divides and stems the text itself."""
        needs = tuple(filter(None, tokens[:-1] if begun else tokens))
        return Match(_quoted(text, begun), needs, word=len(tokens) == len(needs) == 1)

    def _endings(self, begun: str) -> dict[str, str]:
        """Return words whose stem is shorter than the prefix, by stem: for `compressio`, `compressions`."""
        whole = {begun + ending[i:] for ending in _ENDINGS for i in range(1, len(ending)) if begun.endswith(ending[:i])}
        stems = {(self._tokens(word) or [word])[0]: word for word in sorted(whole)}
        return {stem: word for stem, word in stems.items() if len(stem) < len(begun) and len(stem) > 2}

    def _take(self, word: Word, shard: int, found: List) -> None:
        """Score the messages of a short list, and keep a long one."""
        if not found.rare:
            word.lists[shard] = found
            return
        last = shard << SHARD_BITS | LAST
        word.scored.update((last - age, saturated(weight) if word.damped else weight) for weight, age in found.rare)

    def _count(self, shard: Shard, match: str) -> int:
        return int(fetch(self._connection, self._sql["count"].format(shard=shard.id), (match,))[0][0])

    def _visit_or_count(self, word: Word, shard: Shard) -> None:
        count = self._count(shard, word.matches[0].expression)
        word.messages += count
        if count > _CHEAP:
            word.unvisited[shard.id] = count
        elif count:
            self._visit(word, shard, word.matches, count)

    def _visit_newest_first(self, word: Word, shards: Sequence[Shard], enough: int) -> None:
        compared = read = 0
        most_compared, often = (LONE_PHRASE_WORK, enough) if enough else (PHRASE_WORK, VISIT_MOST // PLENTY)
        for at, shard in enumerate(shards):
            found = len(word.scored)
            if found >= PLENTY * often or (found >= often and read > PHRASE_READ) or compared > most_compared:
                word.whole = word.whole and not any(self.may_be_in(other, word) for other in shards[at:])
                return
            if shard.id in self._weighed:
                here = self._visit_weighed(word, shard, alone=bool(enough))
                compared, read = compared + here[0], read + here[1] + SHARD_READ
            elif enough:
                for match in word.matches:
                    word.messages += self._weigh_newest(word, shard, match)
                read += shard.messages
            elif len(word.matches) == 1 or self._any(shard, word.matches):
                word.messages += self._visit(word, shard, word.matches)

    def _visit_weighed(self, word: Word, shard: Shard, *, alone: bool) -> tuple[int, int]:
        """Score matches that the lists do not rule out. → about how many messages were compared, and entries read."""
        before, compared, read = len(word.scored), 0, 0
        last = shard.id << SHARD_BITS | LAST
        for match in word.matches:
            here = [lists[shard.id] for token in match.needs if shard.id in (lists := self._found[token])]
            if match.word and here and here[0].rare:
                for weight, age in here[0].rare:
                    word.scored[last - age] = max(weight, word.scored.get(last - age, 0.0))
            elif len(here) == len(match.needs) and _share(here):
                counts = [found.messages for found in here]
                fewest = min(counts) if counts else shard.messages
                if fewest > MANY_COMPARED or not self._weigh(word, shard, match):
                    self._weigh_newest(word, shard, match) if alone else self._visit(word, shard, (match,))
                compared, read = compared + (fewest if counts else 0), read + sum(counts)
        word.messages += len(word.scored) - before
        return compared, read

    def _any(self, shard: Shard, matches: Sequence[Match]) -> bool:
        """Return whether any of several occurs: most rare words do not."""
        return bool(self.matching(shard.id, " OR ".join(match.expression for match in matches), 1))

    def _weigh(self, word: Word, shard: Shard, match: Match) -> bool:
        """Score all matches, if they are few. → whether they were."""
        rows = fetch(self._connection, _statement("weighted", shard.id), (match.expression, FEW_MATCHES + 1))
        if len(rows) > FEW_MATCHES:
            return False
        take_in(word, shard, rows)
        return True

    def _weigh_newest(self, word: Word, shard: Shard, match: Match) -> int:
        """Score the newest matches. → how many they are."""
        before, sql = len(word.scored), _statement("newest_weighted", shard.id)
        rows = fetch(self._connection, sql, (match.expression, FEW_MATCHES + 1))
        word.whole = word.whole and len(rows) <= FEW_MATCHES
        take_in(word, shard, rows[:FEW_MATCHES])
        return len(word.scored) - before

    def _visit(self, word: Word, shard: Shard, matches: Sequence[Match], count: int = 0, best: int = 0) -> int:
        """Score with FTS5, and divide by its rarity, which holds for this shard only. → how many matched."""
        base, scored, before = shard.id << SHARD_BITS, word.scored, len(word.scored)
        sql = self._sql["best" if best else "scored"].format(shard=shard.id)
        for match in matches:
            asked = match.expression
            rows = fetch(self._connection, sql, (asked, ALONE_MOST, best) if best else (asked, FILLING_MOST))
            if not rows:
                continue
            most = ALONE_MOST if best else FILLING_MOST
            matching = count or (self._count(shard, asked) if len(rows) == most else len(rows))
            word.whole = word.whole and matching <= most
            unit = -1 / max(math.log((shard.messages - matching + 0.5) / (matching + 0.5)), 1e-6)
            found = {base | row: saturated(score * unit) if word.damped else score * unit for row, score in rows}
            found.update((message, max(found[message], scored[message])) for message in found.keys() & scored)
            scored.update(found)
        return len(scored) - before


@lru_cache(maxsize=1_024)
def _statement(name: str, shard: int) -> str:
    return queries("index.postings")[name].format(shard=shard)


def take_in(word: Word, shard: Shard, rows: Iterable[tuple[int, float]]) -> None:
    """Add the weights of a shard; of several ways to match, the one that weighs most counts."""
    base, scored = shard.id << SHARD_BITS, word.scored
    for row, weight in rows:
        counted = saturated(weight) if word.damped else weight
        scored[base | row] = max(counted, scored.get(base | row, 0.0))


def is_japanese(words: Iterable[Word]) -> bool:
    """Return whether any of these contains kana."""
    asked = [match.expression for word in words for match in word.matches if not match.expression.isascii()]
    return any("\u3041" <= sign <= "\u30fe" for expression in asked for sign in expression)


def saturated(weight: float) -> float:
    """Turn a weight of BM25 with `K1` into the one with `_PAIR_K1`."""
    times = K1 * weight / max(K1 + 1 - weight, 1e-6)  # over the length of the text
    return (_PAIR_K1 + 1) * times / (times + _PAIR_K1)


def _as_counted(word: Word, steps: Iterable[tuple[float, Sequence[int]]]) -> Iterable[tuple[float, Sequence[int]]]:
    return ((saturated(weight), ages) for weight, ages in steps) if word.damped else steps


def _sense(term: str) -> float:
    """Return how much of its rarity a pair of Japanese characters counts."""
    return _SENSE[sum("\u3041" <= letter <= "\u309f" for letter in term)] if len(term) == 2 else 1.0


def _share(lists: Sequence[List]) -> bool:
    """Return whether all of these words can be in one message, as far as their short lists tell."""
    short = [found for found in lists if len(found.strong) < BEGINNING]
    return len(short) < 2 or bool(set.intersection(*(found.ages() for found in short)))


def tokenizer(connection: apsw.Connection) -> Callable[[str], list[str]]:
    """Return a function that divides and stems text as FTS5 does."""
    tokenize = connection.fts5_tokenizer("porter", _TOKENIZER)
    flags = {"include_offsets": False, "include_colocated": False}
    return lambda text: [str(token) for token in tokenize(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags)]


def _quoted(text: str, begun: bool) -> str:
    return '"' + text.replace('"', " ") + '"' + (" *" if begun else "")


# ── ranking by BM25 over all shards, at a cost that does not grow with the transcript ──
#
# The score of a message is the sum over words of rarity (from all shards together) times weight. Lists are read from
# the top, only as far as the budget goes; for the best candidates, the rest of a cut list is added afterwards, so
# that the order at the top is that of the whole sum.

COMMON_SHARE = 0.05
COMMON_LEAST = 1_000
"""A word in fewer messages is never common: visiting them all takes a millisecond."""
READ_MOST = 6_000
"""Entries of lists that are read to find candidates."""
LEAST_READ = 32
"""Entries that are read of every list at least."""
MUST_MOST = 5_000
"""Messages with all that must occur that are ranked, newest first."""
COMPLETED = 200
"""Candidates whose scores are completed."""

Scores = dict[int, float]


def search(words: Words, query: PreparedQuery, limit: int, cap: int) -> IndexAnswer:
    """Return the best messages. In shards without lists, at most `cap` matches of common words are scored."""
    return _Search(words, limit, cap).run(query)


class _Search:
    def __init__(self, words: Words, limit: int, cap: int) -> None:
        self._words = words
        self._limit = limit
        self._cap = cap
        self._enough = (limit + 1) // 2
        self._stopped = False
        self._notes: list[str] = []

    def run(self, query: PreparedQuery) -> IndexAnswer:
        alternatives = dict.fromkeys([*query.any_of, *(one for group in query.all_of for one in group)])
        known = {one: word for one in alternatives if (word := self._words.read(one))}
        words = list(known.values())
        if not words:
            return IndexAnswer((), 0)
        self._words.prepare(words)
        if query.all_of or query.none_of:
            phrase = self._phrase(query, known, alone=len(words) == 1)
            messages = self._among(query) if phrase is None else sorted(phrase.scored, reverse=True)
            scores = self._rank_among([word for word in words if word is not phrase], messages, phrase)
            matches = len(scores)
        else:
            scores = self._rank(words)
            matches = max(len(scores), *(word.messages for word in words))
        best = sorted(((scores[message], message) for message in _best(scores, self._limit)), reverse=True)
        found = tuple(ScoredMessage(message, round(score, 6)) for score, message in best)
        more = self._stopped and len(found) >= self._enough
        return IndexAnswer(found, matches, tuple(self._notes), more)

    def _phrase(self, query: PreparedQuery, known: Mapping[PreparedTerm, Word], *, alone: bool) -> Word | None:
        """If one phrase is all that must occur, score it: that finds the messages, and FTS5 is asked once.

        Messages that match a phrase `alone` differ only in length and age, so the wanted number of them is enough.
        """
        if query.none_of or len(query.all_of) != 1 or len(query.all_of[0]) != 1:
            return None
        phrase = known.get(query.all_of[0][0])
        if phrase is None or phrase.term:
            return None
        self._words.look_up(phrase, None, enough=self._enough if alone else 0)
        if alone and not phrase.whole:
            self._stopped = True
            self._notes.append("The words of the phrase are common: only the newest matches were ranked.")
            return phrase
        return phrase if phrase.whole and len(phrase.scored) <= MUST_MOST else None

    def _among(self, query: PreparedQuery) -> list[int]:
        """Return the newest messages that contain what must occur and nothing that must not."""
        groups = [self._read(group) for group in query.all_of or (query.any_of,)]
        if not all(groups):
            return []
        expression = " AND ".join(f"({_either(group)})" for group in groups)
        if unwanted := self._read(query.none_of):
            expression = f"({expression}) NOT ({_either(unwanted)})"
        found: list[int] = []
        for shard in self._words.shards:
            if not all(any(self._words.may_be_in(shard, word) for word in group) for group in groups):
                continue
            rows = self._words.matching(shard.id, expression, MUST_MOST - len(found), groups)
            found += [shard.id << SHARD_BITS | row for row in rows]
            if len(found) >= MUST_MOST:
                self._notes.append(f"Only the newest {MUST_MOST:,} matches were ranked.")
                break
        return found

    def _read(self, alternatives: Iterable[PreparedTerm]) -> list[Word]:
        return [word for one in alternatives if (word := self._words.read(one))]

    def _rank_among(self, words: Sequence[Word], messages: Sequence[int], scored: Word | None = None) -> Scores:
        shards = {message >> SHARD_BITS for message in messages}
        for word in words:
            self._words.look_up(word, shards)
            self._words.visit_rest(word, self._cap)
        return self._complete(messages, [*words, scored] if scored else words)

    def _rank(self, words: Sequence[Word]) -> Scores:
        for word in words:
            self._words.look_up(word, None)
        common = max(COMMON_LEAST, COMMON_SHARE * self._words.total)
        selecting = [word for word in words if word.messages <= common] or list(words)
        ranking = [word for word in words if word not in selecting]
        alone = len(words) == 1
        for word in selecting:
            self._words.visit_rest(word, self._cap, best=2 * self._limit if alone else 0)
        scores, cut = (self._strongest(words[0]), []) if alone else self._select(selecting)
        only_common = not alone and min(word.messages for word in words) > common
        if not all(word.whole for word in selecting) or (cut and only_common):
            self._notes.append("The words are common: only the strongest and the newest matches were ranked.")
        if alone or not (cut or ranking):
            return scores
        few = _best(scores, max(COMPLETED, 2 * self._limit))
        shards = {message >> SHARD_BITS for message in few}
        for word in ranking:
            self._words.visit_few(word, shards, selecting)
        return self._complete(few, words)

    def _strongest(self, word: Word) -> Scores:
        """Score a word that is the whole query: the top of each list is enough."""
        scores = {message: word.rarity * weight for message, weight in word.scored.items()}
        tops: list[tuple[float, int, Sequence[int]]] = []
        for shard in word.lists:
            left = self._limit
            for weight, ages in self._words.strongest(word, shard, self._limit):
                tops.append((weight, shard, ages[:left]))
                left -= len(ages)
                if left <= 0:
                    break
        tops.sort(key=lambda top: (top[0], top[1]), reverse=True)
        left = self._limit
        for weight, shard, ages in tops:
            last = shard << SHARD_BITS | LAST
            scores.update((last - age, word.rarity * weight) for age in ages[:left])
            left -= len(ages)
            if left <= 0:
                break
        return scores

    def _select(self, words: Sequence[Word]) -> tuple[Scores, list[Word]]:
        """Return messages with at least one of the words, and the words whose lists were too long to read in full.

        The rarest words are read first; the others get the rest of the budget.
        """
        scores: Scores = defaultdict(float)
        cut, budget = [], READ_MOST
        for place, word in enumerate(sorted(words, key=lambda word: (word.messages, word.matches[0].expression))):
            for message, weight in word.scored.items():
                scores[message] += word.rarity * weight
            listed, share = sum(found.messages for found in word.lists.values()), budget // (len(words) - place)
            most = max(LEAST_READ, share // len(word.lists)) if listed > share else 0
            if most:
                cut.append(word)
            for shard in word.lists:
                self._add(word, shard, most, scores)
            budget -= min(listed, share)
        return scores, cut

    def _add(self, word: Word, shard: int, most: int, scores: Scores) -> None:
        left, last = most or 1 << SHARD_BITS, shard << SHARD_BITS | LAST
        for weight, ages in self._words.strongest(word, shard, most):
            gain = word.rarity * weight
            for age in ages[:left]:
                scores[last - age] += gain
            left -= len(ages)
            if left <= 0:
                return

    def _complete(self, messages: Iterable[int], words: Sequence[Word]) -> Scores:
        """Return the sum over all words for these messages."""
        scores = dict.fromkeys(messages, 0.0)
        by_shard: dict[int, list[int]] = defaultdict(list)
        for message in scores:
            by_shard[message >> SHARD_BITS].append(message)
        for word in words:
            for message in word.scored.keys() & scores.keys():
                scores[message] += word.rarity * word.scored[message]
        for word, message, weight in self._words.weights(words, by_shard):
            scores[message] += word.rarity * weight
        return scores


def _either(words: Iterable[Word]) -> str:
    """Return the FTS5 expression for any of these."""
    return " OR ".join(match.expression for word in words for match in word.matches)


def _weights(steps: Iterable[tuple[float, Sequence[int]]], messages: Sequence[int]) -> Iterable[tuple[int, float]]:
    """Yield which of these messages of one shard are in a list, with their weights."""
    ages = {LAST - (message & LAST): message for message in messages}
    for weight, step in steps:
        if len(step) < 8 * len(ages):
            inside = list(ages.keys() & set(step))
        else:
            inside = [age for age in ages if (at := bisect_left(step, age)) < len(step) and step[at] == age]
        for age in inside:
            yield ages.pop(age), weight
        if not ages:
            return


def _best(scores: Scores, most: int) -> list[int]:
    """Return the messages with the highest scores, newer ones first among equals."""
    if len(scores) <= most:
        return list(scores)
    floor = heapq.nlargest(most, scores.values())[-1]
    best = [message for message, score in scores.items() if score >= floor]
    if len(best) > most:
        above = [message for message in best if scores[message] > floor]
        level = [message for message in best if scores[message] == floor]
        best = above + heapq.nlargest(most - len(above), level)
    return best
