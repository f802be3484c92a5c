"""Keep the indexes on a PostgreSQL server, for all hosts of a tenant: tables of words and of vectors, and how both are
found.

The words are the index of `postings.py` with other storage. A message is a `tsvector` in the table `texts`, made here
with the same stems and pairs of characters as on SQLite. `@@` cannot use a GIN index under row-level security, because
the operator is not leak-proof; so words are found by plain equality: in `lists`, which have for each word and full
shard the messages in the order of their weight, and in `postings`, for the newest messages. `@@` decides about phrases,
prefixes and boolean queries, within one shard at a time.
"""

from __future__ import annotations

import json
import re
import struct
import threading
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from herma.index import MESSAGE, IndexAnswer, IndexMissing, Near, Nearest
from herma.index.file import COMMON_CAP, VOCABULARY_MESSAGES, IndexRow, IndexState, Rows
from herma.index.postings import (
    BEGINNING,
    FEW_MATCHES,
    FILLING_MOST,
    FINE,
    FREQUENT,
    K1,
    LAST,
    SHARD_BITS,
    WEIGHED,
    B,
    List,
    Match,
    PreparedQuery,
    PreparedTerm,
    Shard,
    Word,
    Words,
    decode,
    encode,
    rank,
    saturated,
    search,
    take_in,
    tokenizer,
)
from herma.index.vector_store import EmbedderTrouble, EmbeddingStep, ModelRow, Reach, VectorFile
from herma.transcript.rows import Position

if TYPE_CHECKING:
    from herma.index import Vector
    from herma.store.database import DatabaseConnection
    from herma.store.postgres import PostgresDatabase

T = TypeVar("T")

FORMAT = 1
"""Changes when the same messages would be stored differently: an index of another format is built again."""
BITS = 13
"""A shard has 8,192 consecutive ids. The lists have room for more: `_number` spreads the shards."""
_MOST_PLACE = 16_383
"""The last place in a message that PostgreSQL tells apart."""
_MOST_BYTES = 900_000
"""Of a `tsvector`; the rest of a longer message is not found by its words."""
_FILLING, _WEIGH_AGAIN = 0, 1
_GAP = 2
_CANDIDATES = 2_000
_LIST_ROWS = 2_000
_PAIR = struct.Struct("<HH")
_OPERATORS = {" AND ": " & ", " OR ": " | ", " NOT ": " & !"}
_OPERATOR = re.compile(r"('(?:[^']|'')*')|( AND | OR | NOT )")


def _number(message: int) -> int:
    """Return the number that the lists have for a message."""
    return message >> BITS << SHARD_BITS | message & (1 << BITS) - 1


def _message(number: int) -> int:
    return number >> SHARD_BITS << BITS | number & (1 << BITS) - 1


def _ids(shard: int) -> dict[str, int]:
    return {"first": shard << BITS, "last": (shard + 1 << BITS) - 1}


# ── text → tsvector ──


class _Tokenizer(threading.local):
    """FTS5's tokenizer, which belongs to a connection of one thread."""

    def __init__(self) -> None:
        self.tokenize = tokenizer(apsw.Connection(":memory:"))


_TOKENIZER = _Tokenizer()


def vector(row: IndexRow) -> tuple[str, int]:
    """Return a message as the text of a `tsvector`, and its number of words. Names follow the text after a gap."""
    text, names = _TOKENIZER.tokenize(row.text), _TOKENIZER.tokenize(row.names)
    places: dict[str, list[int]] = defaultdict(list)
    room = _MOST_BYTES
    for words, first in ((text, 1), (names, len(text) + 1 + _GAP)):
        for place, word in enumerate(words, first):
            if word and room > 0:
                found = places[word]
                room -= 4 if found else 8 + len(word.encode())
                found.append(min(place, _MOST_PLACE))
    return " ".join(f"{_quoted(word)}:{','.join(map(str, at))}" for word, at in places.items()), len(text) + len(names)


def _quoted(word: str) -> str:
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


# ── finding words ──


class ServerWords(Words):
    """Look words up in one build of the index."""

    def __init__(self, connection: DatabaseConnection, sql: Mapping[str, str], build: int) -> None:
        self._link, self._statements, self._build = connection, sql, build
        self._tokens = _TOKENIZER.tokenize
        rows = self._rows("shards")
        self.shards = [Shard(number, messages, stage) for number, messages, _, stage in rows]
        self.total = sum(shard.messages for shard in self.shards)
        self._average = {number: max(1.0, words / messages) for number, messages, words, _ in rows}
        self._filling = {shard.id for shard in self.shards if shard.stage == _FILLING}
        self._weighed = {shard.id for shard in self.shards}
        self._found: dict[str, dict[int, List]] = {}
        self._made: dict[tuple[int, str], bytes] = {}
        self._matched: dict[tuple[str, int], list[int]] = {}

    def read(self, one: PreparedTerm) -> Word | None:
        word = super().read(one)
        if word is not None:
            word.matches = tuple(match for match in word.matches if match.expression)
        return word if word is not None and word.matches else None

    def matching(self, shard: int, expression: str, most: int, groups: Sequence[Sequence[Word]] = ()) -> list[int]:
        """Look at the messages in the shortest lists, of several shards at a time; else at every message of a shard."""
        if (expression, shard) not in self._matched:
            self._match_ahead(shard, expression, groups)
        if (expression, shard) in self._matched:
            return self._matched[expression, shard][:most]
        return [_number(one) & LAST for one, _ in self._matching(shard, expression, None, most)]

    def _match_ahead(self, first: int, expression: str, groups: Sequence[Sequence[Word]]) -> None:
        ids: list[int] = []
        shards: list[int] = []
        for shard in (shard.id for shard in self.shards if shard.id <= first):
            some = min((self._in_group(shard, group) for group in groups), key=_length, default=None)
            if some is None or len(ids) + len(some) > _CANDIDATES:
                break
            ids += [_message(shard << SHARD_BITS | LAST - age) for age in some]
            shards.append(shard)
        self._matched |= {(expression, shard): [] for shard in shards}
        for message, _ in self._rows("matching_of", ids=ids, asked=_asked(expression), most=-1) if ids else ():
            number = _number(message)
            self._matched[expression, number >> SHARD_BITS].append(number & LAST)

    def _in_group(self, shard: int, group: Sequence[Word]) -> set[int] | None:
        """Return at least the messages with one of these words, as ages; None if the lists do not tell, or too many."""
        found: set[int] = set()
        for match in (match for word in group for match in word.matches):
            if not match.needs or not self._found.keys() >= set(match.needs):
                return None
            lists = [self._found[token].get(shard) for token in match.needs]
            here = min((each for each in lists if each), key=lambda each: each.messages, default=None)
            if None in lists or here is None:
                continue  # none has all words of this phrase
            if here.messages > _CANDIDATES:
                return None
            whole = here.rare or here.whole
            token = match.needs[lists.index(here)]
            found |= (
                here.ages() if whole else {age for _, ages in decode(self._whole_list(shard, token)) for age in ages}
            )
        return found

    def _rows(self, name: str, **given: Any) -> list[tuple[Any, ...]]:
        return self._link.rows(self._statements[name], {"build": self._build, **given})

    def _match(self, text: str, tokens: Sequence[str], begun: bool) -> Match:  # noqa: ARG002  the text is for FTS5
        words = tuple(filter(None, tokens))
        needs = words[:-1] if begun else words
        expression = " <-> ".join(map(_quoted, words)) + (":*" if begun and words else "")
        return Match(f"({expression})" if words else "", needs, word=len(words) == len(needs) == 1)

    def _read_lists(self, found: dict[str, dict[int, List]]) -> None:
        for term, shard, messages, strong in self._rows("lists", terms=list(found)):
            if shard not in self._filling:
                self._found_list(term, shard, messages, strong)
        if not self._filling:
            return
        for term, shard, ids, lengths, times in self._rows("postings", terms=list(found), size=1 << BITS):
            rows = (_number(one) & LAST for one in _numbers(ids))
            given = zip(rows, _numbers(lengths), _numbers(times), strict=True)
            messages, strong, rest = listed(given, self._average[shard])
            self._made[shard, term] = strong + (rest or b"")
            self._found_list(term, shard, messages, strong)

    def _found_list(self, term: str, shard: int, messages: int, strong: bytes) -> None:
        rare = _pairs(strong) if messages < FREQUENT else ()
        self._found[term][shard] = List(messages, b"" if rare else strong, rare)

    def weights(
        self, words: Iterable[Word], by_shard: Mapping[int, Sequence[int]]
    ) -> Iterator[tuple[Word, int, float]]:
        """Yield the weights, from the messages themselves: a few hundred rows, where lists would be many."""
        listed = {word.term: word for word in words if word.lists}
        ids = [_message(one) for messages in by_shard.values() for one in messages]
        for message, length, term, times in self._rows("times", ids=ids, terms=list(listed)) if listed else ():
            number, word = _number(message), listed[term]
            if number >> SHARD_BITS in word.lists:
                weight = _weight(times, length, self._average[number >> SHARD_BITS])
                yield word, number, saturated(weight) if word.damped else weight

    def _whole_list(self, shard: int, term: str) -> bytes:
        if (shard, term) in self._made:
            return self._made[shard, term]
        rows = self._rows("whole_list", term=term, shard=shard)
        return rows[0][0] + (rows[0][1] or b"") if rows else b""

    def _weigh(self, word: Word, shard: Shard, match: Match, most: int = FILLING_MOST) -> bool:
        """Score the newest matches. Occurrences of a phrase are counted in the newest of these."""
        if match.word and shard.id in self._found[match.needs[0]]:
            steps = decode(self._whole_list(shard.id, match.needs[0]))
            take_in(word, shard, ((LAST - age, weight) for weight, ages in steps for age in ages))
            return True
        found = self._matching(shard.id, match.expression, match, most + 1)
        places: dict[int, dict[str, list[int]]] = defaultdict(dict)
        tokens = [*match.needs]
        beginning = "" if not match.expression.endswith(":*)") else self._last(match)
        counted = [message for message, _ in found[:FEW_MATCHES]]
        for message, lexeme, positions in self._places(counted, tokens, beginning):
            places[message][lexeme] = positions
        times = {message: _times(where, tokens, beginning) for message, where in places.items()}
        average = self._average[shard.id]
        rows = ((_number(one) & LAST, _weight(times.get(one, 1), length, average)) for one, length in found[:most])
        take_in(word, shard, rows)
        word.whole = word.whole and len(found) <= most
        return True

    def _weigh_newest(self, word: Word, shard: Shard, match: Match) -> int:
        before = len(word.scored)
        self._weigh(word, shard, match, FEW_MATCHES)
        return len(word.scored) - before

    def _visit(self, word: Word, shard: Shard, matches: Sequence[Match], *_: int) -> int:
        before = len(word.scored)
        for match in matches:
            self._weigh(word, shard, match)
        return len(word.scored) - before

    @staticmethod
    def _last(match: Match) -> str:
        """Return the word of which only the beginning is given."""
        text = match.expression.removesuffix(":*)").rpartition(" <-> ")[2].removeprefix("(")
        return text[1:-1].replace("''", "'").replace("\\\\", "\\")

    def _places(self, ids: Sequence[int], terms: Sequence[str], beginning: str) -> list[tuple[Any, ...]]:
        # without a beginning: one with which no word begins
        rows = self._rows("places", ids=ids, terms=terms, beginning=beginning or "\x01") if ids else []
        return [(message, lexeme, _numbers(positions)) for message, lexeme, positions in rows]

    def _matching(self, shard: int, expression: str, match: Match | None, most: int) -> list[tuple[int, int]]:
        asked = _asked(expression)
        lists = [self._found.get(token, {}).get(shard) for token in match.needs] if match else []
        few = min((found for found in lists if found), key=lambda found: found.messages, default=None)
        if few is not None and few.messages <= _CANDIDATES and (few.rare or few.whole):
            last = shard << SHARD_BITS | LAST
            ids = [_message(last - age) for age in few.ages()]
            return [(row[0], row[1]) for row in self._rows("matching_of", ids=ids, asked=asked, most=most)]
        return [(row[0], row[1]) for row in self._rows("matching", asked=asked, most=most, **_ids(shard))]


def _asked(expression: str) -> str:
    return _OPERATOR.sub(lambda found: found[1] or _OPERATORS[found[2]], expression)


def _length(ages: set[int] | None) -> int:
    return _CANDIDATES + 1 if ages is None else len(ages)


def _times(where: Mapping[str, Sequence[int]], tokens: Sequence[str], beginning: str) -> int:
    """Count a phrase in a message: its words side by side, of the last perhaps only the beginning."""
    starts = [set(where.get(token, ())) for token in tokens]
    if beginning:
        starts.append({place for word, at in where.items() if word.startswith(beginning) for place in at})
    if not starts:
        return 1
    return max(1, sum(all(first + step in there for step, there in enumerate(starts)) for first in starts[0]))


def _weight(times: int, length: int, average: float) -> float:
    return times * (K1 + 1) / (times + K1 * (1 - B + B * length / average))


def listed(rows: Iterable[tuple[int, int, int]], average: float) -> tuple[int, bytes, bytes | None]:
    """Return a list of (row in its shard, length, times): how many, its beginning, and the rest of it."""
    given = list(rows)
    if len(given) < FREQUENT:
        exact = ((round(_weight(times, length, average) * FINE), LAST - row) for row, length, times in given)
        ordered = sorted(exact, key=lambda one: (-one[0], one[1]))
        return len(given), b"".join(_PAIR.pack(*one) for one in ordered), None
    ranks = {
        (length, times): rank(times, K1 * (1 - B + B * length / average))
        for length, times in {(length, times) for _, length, times in given}
    }
    ranked = sorted(ranks[length, times] | LAST - row for row, length, times in given)
    blob = encode(ranked)
    return len(given), blob[:BEGINNING], blob[BEGINNING:] or None


def _pairs(strong: bytes) -> list[tuple[float, int]]:
    return [(weight / FINE, age) for weight, age in _PAIR.iter_unpack(strong)]


def _numbers(array: Any) -> list[int]:
    """Return an array of numbers, which may come as text."""
    return list(map(int, array.strip("{}").split(","))) if isinstance(array, str) else list(array)


# ── one build of the index ──


class ServerTables:
    """One build of the index. Writers hold the lock of the tenant's index."""

    def __init__(self, database: PostgresDatabase, build: int) -> None:
        self._db, self.build = database, build
        self._sql = database.queries("index.postgres")
        self.published = False
        """One that is not yet has no postings: most of them would only be deleted when its shards are full."""

    def state(self) -> IndexState:
        def work(connection: DatabaseConnection) -> IndexState:
            ((count,),), ((size,),) = (connection.rows(self._sql[name], self._bound()) for name in ("count", "bytes"))
            return IndexState(self._position(connection), count, int(size or 0))

        return self._db.apart(work)

    def position(self) -> Position | None:
        return self._db.apart(self._position)

    def put(self, rows: Sequence[IndexRow], gone: Sequence[int], position: Position) -> None:
        """Add or replace rows, remove others, and set the position: all or nothing."""
        ready = [(row, *vector(row)) for row in rows]

        def work(connection: DatabaseConnection) -> None:
            changes: dict[int, list[int]] = defaultdict(lambda: [0, 0])
            ids = [*gone, *(row.id for row in rows)]
            lost: dict[int, list[str]] = defaultdict(list)
            for message, _, length in connection.rows(self._sql["known"], self._bound(ids=ids)):
                changes[message >> BITS][0] -= 1
                changes[message >> BITS][1] -= length
            if changes:
                for shard, term in connection.rows(self._sql["words_of"], self._bound(ids=ids, size=1 << BITS)):
                    lost[shard].append(term)
                for name in ("remove_postings", "remove"):
                    connection.run(self._sql[name], self._bound(ids=ids))
            for row, _, length in ready:
                changes[row.id >> BITS][0] += 1
                changes[row.id >> BITS][1] += length
            if ready:
                self._add(connection, ready)
            added: dict[int, list[int]] = defaultdict(list)
            for row in rows:
                added[row.id >> BITS].append(row.id)
            for shard, (messages, words) in changes.items():
                self._change(connection, shard, messages, words, added[shard], lost[shard])
            place = {"store_id": position.store_id, "epoch": position.epoch, "seq": position.seq}
            connection.run(self._sql["advance"], self._bound(**place))

        self._db.apart(work, writing=True)

    def tidy(self) -> bool:
        """Make the lists of one full shard. → whether there is more to do."""

        def work(connection: DatabaseConnection) -> bool:
            due = connection.row(self._sql["unlisted"], self._bound())
            if due:
                shard, messages, words = due
                self._list(connection, shard, words / max(1, messages), None)
                connection.run(self._sql["set_stage"], self._bound(shard=shard, stage=WEIGHED))
                connection.run(self._sql["clear_postings"], self._bound(**_ids(shard)))
            return due is not None

        return self._db.apart(work, writing=True)

    def _add(self, connection: DatabaseConnection, ready: Sequence[tuple[IndexRow, str, int]]) -> None:
        rows, words, lengths = zip(*ready, strict=True)
        given = {"ids": [row.id for row in rows], "digests": [row.digest for row in rows]}
        connection.run(self._sql["add"], self._bound(**given, lengths=lengths, words=words))

    def _change(
        self,
        connection: DatabaseConnection,
        shard: int,
        messages: int,
        words: int,
        added: Sequence[int],
        lost: Sequence[str],
    ) -> None:
        """Count what changed in a shard, and bring its postings or lists up to date."""
        bound = self._bound(shard=shard, messages=messages, words=words)
        ((stage, messages, words),) = connection.rows(self._sql["changed"], bound)
        if not messages:
            connection.run(self._sql["unlist"], self._bound(shard=shard, terms=None))
            connection.run(self._sql["drop_shard"], self._bound(shard=shard))
        elif stage == _FILLING:
            if self.published:
                connection.run(self._sql["add_postings"], self._bound(ids=added, **_ids(shard)))
        elif added:
            connection.run(self._sql["unlist"], self._bound(shard=shard, terms=None))
            connection.run(self._sql["set_stage"], self._bound(shard=shard, stage=_FILLING))
            connection.run(self._sql["add_postings"], self._bound(ids=None, **_ids(shard)))
        else:
            self._list(connection, shard, words / messages, lost)
            connection.run(self._sql["set_stage"], self._bound(shard=shard, stage=_WEIGH_AGAIN))

    def _list(self, connection: DatabaseConnection, shard: int, average: float, only: Sequence[str] | None) -> None:
        """Make the lists of a shard, or those of some words, from its texts."""
        average, place = max(1.0, average), _ids(shard)
        connection.run(self._sql["unlist"], self._bound(shard=shard, terms=only))
        lengths: dict[int, int] = dict(connection.rows(self._sql["lengths"], self._bound(**place)))
        made = []
        for term, ids, times in connection.rows(self._sql["terms"], self._bound(terms=only, **place)):
            rows = zip(_numbers(ids), _numbers(times), strict=True)
            made.append((term, *listed(((_number(one) & LAST, lengths[one], many) for one, many in rows), average)))
        for start in range(0, len(made), _LIST_ROWS):
            some = made[start : start + _LIST_ROWS]
            bound = self._bound(
                shard=shard,
                terms=[row[0] for row in some],
                messages=[row[1] for row in some],
                strong=["\\x" + row[2].hex() for row in some],
                rest=[None if row[3] is None else "\\x" + row[3].hex() for row in some],
            )
            connection.run(self._sql["add_lists"], bound)

    def publish(self) -> None:
        """Add the postings of shards that are not full, and put this build in use."""

        def work(connection: DatabaseConnection) -> None:
            for shard, _, _, stage in connection.rows(self._sql["shards"], self._bound()):
                if stage == _FILLING:
                    connection.run(self._sql["add_postings"], self._bound(ids=None, **_ids(shard)))
            connection.run(self._sql["publish"], self._bound())

        self._db.apart(work, writing=True)
        self.published = True

    def find(self, query: PreparedQuery, limit: int) -> IndexAnswer:
        def work(connection: DatabaseConnection) -> IndexAnswer:
            return search(ServerWords(connection, self._sql, self.build), query, limit, COMMON_CAP)

        found = self._db.apart(work)
        candidates = tuple(one._replace(message_id=_message(one.message_id)) for one in found.candidates)
        return found._replace(candidates=candidates)

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str], limit: int) -> Sequence[str]:
        def work(connection: DatabaseConnection) -> dict[str, int]:
            counts: dict[str, int] = defaultdict(int)
            looked_at, in_lists = 0, []
            bound = self._bound(parts=[*parts], beginnings=[*beginnings], limit=10 * limit)
            for shard, messages, _, stage in connection.rows(self._sql["shards"], self._bound()):
                if stage != _FILLING:
                    in_lists.append(shard)
                else:
                    for term, occurs in connection.rows(self._sql["vocabulary_of_texts"], {**bound, **_ids(shard)}):
                        counts[term] += occurs
                looked_at += messages
                if looked_at >= VOCABULARY_MESSAGES:
                    break
            for term, occurs in connection.rows(self._sql["vocabulary"], {**bound, "shards": in_lists}):
                counts[term] += occurs
            return counts

        counts = self._db.apart(work)
        return sorted(counts, key=lambda term: (-counts[term], term))[:limit]

    def digests(self, message_ids: Sequence[int]) -> Mapping[int, int]:
        return {message: digest for message, digest, _ in self._read("known", ids=[*message_ids])}

    def check(self, rows: Rows, *, thorough: bool) -> str:
        """Compare what is stored with these rows: everything, or the newest. → what is wrong, or ""."""
        after = -1
        if not thorough:
            newest = self._read("shards")
            after = max(-1, (newest[0][0] if newest else 0) - 1 << BITS)
        while True:
            stored = self._read("after", after=after, limit=256)
            if not stored:
                break
            after = stored[-1][0]
            given = rows([message for message, _ in stored])
            if {row.id: row.digest for row in given} != dict(stored):
                return "messages differ"
            if self._read("differing", ids=[row.id for row in given], words=[vector(row)[0] for row in given]):
                return "words differ"
        return self._db.apart(self._compare_lists) if thorough else ""

    def close(self) -> None:
        """Do nothing: the connections are the database's."""

    def _compare_lists(self, connection: DatabaseConnection) -> str:
        listed_words: dict[int, int] = dict(connection.rows(self._sql["listed_words"], self._bound()))
        for shard, _, _, stage in connection.rows(self._sql["shards"], self._bound()):
            ((stored,),) = connection.rows(self._sql["stored_words"], self._bound(**_ids(shard)))
            if stage != _FILLING and stored != listed_words.get(shard):
                return "lists differ"
        return ""

    def _position(self, connection: DatabaseConnection) -> Position | None:
        row = connection.row(self._sql["position"], self._bound())
        if row is None:
            raise IndexMissing(f"build {self.build} of the index is not there")
        return Position(*row) if row[2] is not None else None

    def _read(self, name: str, **given: Any) -> list[tuple[Any, ...]]:
        return self._db.apart(lambda connection: connection.rows(self._sql[name], self._bound(**given)))

    def _bound(self, **given: Any) -> dict[str, Any]:
        return {"build": self.build, **given}


# ── the builds of a tenant ──


class ServerIndex:
    """The index in use, and the one that is being built and takes its place."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._sql = database.queries("index.postgres")
        self._tables: dict[int, ServerTables] = {}

    def current(self) -> ServerTables:
        """Return the index in use; `IndexUnusable` if there is none."""
        build = self._build("published")
        if build is None:
            raise IndexMissing("there is no index of this tenant on the server")
        tables = self._of(build)
        tables.published = True
        return tables

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Take the lock, for all hosts. `StoreBusy` after the deadline."""
        return self._db.hold("index", timeout)

    def building(self, *, fresh: bool) -> ServerTables:
        """Return the index that is being built: a new one, or (not `fresh`) what an interrupted attempt left."""
        build = self._build("unpublished")
        if fresh and build is not None:
            self._drop(build)
            build = None
        if build is None:
            bound = {"format": FORMAT}
            build = self._db.apart(lambda one: one.insert(self._sql["new_build"], bound), writing=True)
        return self._of(build)

    def built(self) -> int:
        """Return how many messages the index has that is being built, by any host; 0 if there is none."""
        build = self._build("unpublished")
        return self._of(build).state().messages if build is not None else 0

    def publish(self) -> None:
        """Replace the index in use with the one that was built."""
        build = self._build("unpublished")
        if build is None:
            return
        self._of(build).publish()
        bound = {"build": build, "format": FORMAT}
        for (other,) in self._db.apart(lambda connection: connection.rows(self._sql["others"], bound)):
            self._drop(other)

    def obstacle(self) -> str:
        return ""

    def drop(self, *, building: bool = True) -> None:
        """Delete both; without `building`, only the index in use."""
        for name in ("published", "unpublished") if building else ("published",):
            if (build := self._build(name)) is not None:
                self._drop(build)

    def close(self, *, building: bool = True) -> None:
        """Do nothing: the connections are the database's."""

    def _of(self, build: int) -> ServerTables:
        return self._tables.setdefault(build, ServerTables(self._db, build))

    def _build(self, name: str) -> int | None:
        found = self._db.apart(lambda connection: connection.row(self._sql[name], {"format": FORMAT}))
        return found[0] if found else None

    def _drop(self, build: int) -> None:
        def work(connection: DatabaseConnection) -> None:
            for name in ("drop_texts", "drop_lists", "drop_postings", "drop_shards", "drop_build"):
                connection.run(self._sql[name], {"build": build})

        self._db.apart(work, writing=True)


# ── vectors, where the server has pgvector ──
#
# This does what `vector_store.py` and `nearest.py` do with a file of one host. A search asks the server for the nearest
# instead of reading all vectors into memory. A walk that begins again replaces what differs, and removes nothing else:
# purged messages are removed when the feed reports them.

_SAY_AGAIN = 600.0
"""Seconds after which it is recorded again that a model is in use."""
_SWEEP = 1_000
_NUL = "\x1e"
"""Stands for NUL, which joins the parts of a key and which PostgreSQL cannot store."""
_MOST_CANDIDATES = 1_000
"""More than pgvector looks at for one question."""
_MEAN_OF = 512
"""Vectors whose mean stands for that of all."""
_MEAN_HOLDS = 1.1
"""Growth of the number of vectors after which the mean is taken again."""
_LEAST_SPREAD = 0.1


class ServerVectors:
    """Implement what embedding and searches call of a `VectorStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._sql = database.queries("index.pgvector")

    def hold(self, timeout: float) -> AbstractContextManager[bool]:
        """Take the lock for embedding, for all hosts. `StoreBusy` after the deadline."""
        return self._db.hold("vectors", timeout)

    def file(self) -> VectorFile:
        """Return how far the vectors are; `IndexMissing` before the first was to be made."""

        def work(connection: DatabaseConnection) -> VectorFile:
            if (row := connection.row(self._sql["state"])) is None:
                raise IndexMissing("no vectors of this tenant are on the server")
            store_id, epoch, noticed, appended, *trouble, size = row
            models = tuple(map(_model, connection.rows(self._sql["models"])))
            return VectorFile(Position(store_id, epoch, noticed), appended, models, EmbedderTrouble(*trouble), size)

        return self._db.apart(work)

    def notice(self, since: int, position: Position, appended: int, gone: Sequence[int]) -> None:
        """Record that the feed was read from `since` to `position`: so many messages came, `gone` were purged.

        Vectors of another store or epoch are walked once more, and `since` is then 0. Does nothing if another host
        recorded it first.
        """

        def work(connection: DatabaseConnection) -> None:
            begun = {"store_id": position.store_id, "epoch": position.epoch}
            if connection.run(self._sql["begin"], begun):
                connection.run(self._sql["walk_again"])
            reached = {"since": since, "noticed": position.seq, "appended": appended}
            if connection.run(self._sql["noticed"], reached) and gone:
                for model in map(_model, connection.rows(self._sql["models"])):
                    self._remove(connection, model.id, MESSAGE, gone)

        self._write(work)

    def model(self, name: str, dimension: int, at: float) -> ModelRow:
        """Return the row of a model, made if needed, and record that the model is in use at this time."""

        def found() -> ModelRow | None:
            rows = map(_model, self._rows("models"))
            return next((row for row in rows if (row.name, row.dimension) == (name, dimension)), None)

        model = found()
        if model is None or at - model.used >= _SAY_AGAIN:
            bound = {"name": name, "dimension": dimension, "at": at}
            self._write(lambda connection: connection.run(self._sql["use"], bound))
            model = found()
        if model is None:  # another process deleted everything just now
            raise IndexMissing("the vectors were deleted")
        return model

    def digests(self, model: ModelRow, kind: str, keys: Sequence[int | str] | None) -> dict[tuple[int | str, int], int]:
        """Return (key, part) → digest for these keys, or for all of a kind."""
        bound = {"model": model.id, "kind": kind, "keys": _texts(keys or ())}
        rows = self._rows("all_digests" if keys is None else "digests", **bound)
        return {(int(key) if kind == MESSAGE else _key(key), part): digest for key, part, digest in rows}

    def known(self, model: ModelRow, digests: Sequence[int]) -> dict[int, bytes]:
        """Return the stored vectors of these texts, wherever they occur."""
        rows = self._rows("known", model=model.id, digests=[*digests])
        return {digest: array("b", map(int, _parsed(vector))).tobytes() for digest, vector in rows}

    def put(self, model: ModelRow, step: EmbeddingStep) -> None:
        def work(connection: DatabaseConnection) -> None:
            self._remove(connection, model.id, step.kind, step.stale)
            connection.run_many(self._sql["add"], [_bindings(model.id, row) for row in step.rows])
            connection.run(self._sql["count"], {"model": model.id, "more": len(step.rows)})
            if step.reach is not None:
                connection.run(self._sql["advance"], {"model": model.id, **step.reach._asdict()})
            if step.version is not None:
                versions = json.dumps({**model.versions, step.kind: step.version})
                connection.run(self._sql["set_versions"], {"model": model.id, "versions": versions})

        self._write(work)

    def trouble(self, found: EmbedderTrouble) -> None:
        """Record for other hosts that the embedder fails, or works again."""
        self._write(lambda connection: connection.run(self._sql["trouble"], found._asdict()))

    def check(self) -> str:
        """Have everything walked once more. → ""."""
        self._write(lambda connection: connection.run(self._sql["walk_again"]))
        return ""

    def sweep(self, model: ModelRow, kinds: Sequence[str], unused_since: float) -> bool:  # noqa: ARG002
        """Remove some vectors of a model that was not used since. → whether there is more."""
        unused = (row for row in map(_model, self._rows("models")) if row.id != model.id and row.used < unused_since)
        for other in unused:
            self._delete(other, _SWEEP)
            return True
        return False

    def drop(self) -> None:
        """Delete all vectors of the tenant."""
        for model in map(_model, self._rows("models")):
            self._delete(model, -1)

    def close(self) -> None:
        """Do nothing: the connections are the database's."""

    def neighbours(self, name: str, dimension: int) -> ServerNeighbours:
        """Return what answers questions about the vectors of a model."""
        return ServerNeighbours(self._db, self, name, dimension)

    def _delete(self, model: ModelRow, most: int) -> None:
        def work(connection: DatabaseConnection) -> None:
            if not connection.run(self._sql["some_of_model"], {"model": model.id, "limit": most}) or most < 0:
                connection.run(self._sql["model_itself"], {"model": model.id})

        self._write(work)

    def _remove(self, connection: DatabaseConnection, model: int, kind: str, keys: Sequence[int | str]) -> None:
        if keys:
            removed = connection.run(self._sql["remove"], {"model": model, "kind": kind, "keys": _texts(keys)})
            connection.run(self._sql["count"], {"model": model, "more": -removed})

    def _rows(self, name: str, **given: Any) -> list[tuple[Any, ...]]:
        return self._db.apart(lambda connection: connection.rows(self._sql[name], given))

    def _write(self, work: Any) -> None:
        self._db.apart(work, writing=True)


class ServerNeighbours:
    """Implement what searches call of `Neighbours`. Scores are cosines."""

    def __init__(self, database: PostgresDatabase, store: ServerVectors, name: str, dimension: int) -> None:
        self.name, self.dimension = name, dimension
        self._db = database
        self._store = store
        self._sql = {
            key: sql.replace("{dimension}", str(dimension)) for key, sql in database.queries("index.pgvector").items()
        }
        self._usual: tuple[int, int, Any] = (-1, 0, None)

    def near(
        self,
        query: Vector,
        k: int,
        kinds: Collection[str],
        allowed: Collection[int] | Collection[str] | None,
        scopes: Collection[str] | None,
    ) -> tuple[Near, ...]:
        found: list[Near] = []
        for kind in kinds:
            if kind == MESSAGE and allowed is None:
                rows = self._distinct("near", k, asked=_text(query))
            else:
                keys = None if allowed is None else _texts(allowed)
                within = None if scopes is None or kind == MESSAGE else _texts(scopes)
                rows = self._distinct("near_of", k, asked=_text(query), kind=kind, keys=keys, scopes=within)
            found += [Near(kind, _key(key), score, session, _key(scope)) for key, session, scope, score in rows]
        return tuple(sorted(found, key=lambda hit: -hit.score)[:k])

    def apart(self, query: Vector, k: int, share: float) -> Nearest:
        """Return the nearest messages, where `share` of how near each is to all others counts against it."""
        import numpy as np

        rows, sample = self._sample()
        if len(sample) < 2:  # a single one is neither near nor far
            return Nearest()
        others = len(sample) - (rows == len(sample))  # one of many makes no difference
        mean, own = sample.sum(axis=0) / np.float32(others), (len(sample) - others) / others
        length = float(np.linalg.norm(mean))
        asked = np.asarray(query, dtype=np.float32) / np.float32(np.linalg.norm(query) or 1.0)
        best = self._distinct(
            "apart", k, asked=_text(asked - np.float32(share) * mean), query=_text(asked), mean=_text(mean)
        )
        among = sample @ mean - own
        spread = max(float((sample @ asked - among).std()), _LEAST_SPREAD * (1 - float(among.mean())))
        hits = [Near(MESSAGE, key, cosine, session, usual=usual * length - own) for key, session, cosine, usual in best]
        return Nearest(tuple(hits), rows=rows, spread=spread)

    def scores(self, query: Vector, message_ids: Sequence[int]) -> dict[int, float]:
        found: dict[int, float] = {}
        for key, score in self._rows("cosines", asked=_text(query), keys=_texts(message_ids)) if message_ids else ():
            found[int(key)] = max(score, found.get(int(key), -1.0))
        return found

    def read(self) -> None:
        """Do nothing: there is nothing to load before the first question."""

    def _sample(self) -> tuple[int, Any]:
        """Return about how many messages have vectors, and some of these as floats of length 1."""
        import numpy as np

        model = self._model()
        rows = model.vectors if model else 0
        number, taken_of, sample = self._usual
        if model is None or number != model.id or not rows / _MEAN_HOLDS <= taken_of <= rows * _MEAN_HOLDS:
            found = [_parsed(vector) for (vector,) in self._rows("sample", limit=_MEAN_OF)]
            sample = np.array(found, dtype=np.float32).reshape(-1, self.dimension)
            sample /= np.maximum(np.linalg.norm(sample, axis=1, keepdims=True), 1e-9)
            self._usual = (model.id if model else 0, rows, sample)
        return rows if len(sample) == _MEAN_OF else len(sample), sample

    def _distinct(self, name: str, k: int, **given: Any) -> list[tuple[Any, ...]]:
        """Return the best `k` keys, each with its best part."""
        most = 2 * k + 16
        while True:
            rows = self._rows(name, tune=most, most=most, **given)
            found: dict[str, tuple[Any, ...]] = {}
            for row in rows:
                found.setdefault(row[0], row)
            if len(found) >= k or len(rows) < most:
                return list(found.values())[:k]
            most *= 4

    def _model(self) -> ModelRow | None:
        rows = self._store.file().models
        return next((row for row in rows if (row.name, row.dimension) == (self.name, self.dimension)), None)

    def _rows(self, name: str, *, tune: int = 0, **given: Any) -> list[tuple[Any, ...]]:
        def work(connection: DatabaseConnection) -> list[tuple[Any, ...]]:
            if tune:
                connection.row(self._sql["tune"], {"most": min(_MOST_CANDIDATES, max(100, tune))})
            return connection.rows(self._sql[name], {"name": self.name, **given})

        return self._db.apart(work)


def _bindings(model: int, row: Any) -> dict[str, Any]:
    kind, key, part, session, scope = row.target
    vector = _text(array("b", row.vector)) if row.vector else None
    (key, scope), place = _texts([key, scope]), {"model": model, "kind": kind, "part": part, "session": session}
    return {**place, "key": key, "scope": scope, "digest": row.digest, "vector": vector}


def _model(row: Sequence[Any]) -> ModelRow:
    number, name, dimension, low, high, low_part, high_part, walked, vectors, used, versions = row
    known: Mapping[str, str] = json.loads(versions)
    reach = Reach(low, high, low_part, high_part, walked)
    return ModelRow(number, name, dimension, reach, vectors, used, checking=False, versions=known)


def _texts(keys: Collection[int] | Collection[str] | Collection[int | str]) -> list[str]:
    return [str(key).replace("\0", _NUL) for key in keys]


def _key(stored: str) -> str:
    return stored.replace(_NUL, "\0")


def _text(vector: Any) -> str:
    return json.dumps(vector.tolist())


def _parsed(vector: str | None) -> list[float]:
    return json.loads(vector) if vector else []
