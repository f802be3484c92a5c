"""Keep the text index on a PostgreSQL server, for all hosts of a tenant: the tables, and how words are found in them.

It is the index of `postings.py` with other storage. A message is a `tsvector` in the table `texts`, made here with the
same stems and pairs of characters as on SQLite. `@@` cannot use a GIN index under row-level security, because the
operator is not leak-proof; so words are found by plain equality: in `lists`, which have for each word and full shard
the messages in the order of their weight, and in `postings`, for the newest messages. `@@` decides about phrases,
prefixes and boolean queries, within one shard at a time.
"""

from __future__ import annotations

import re
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import apsw

from herma.index import IndexAnswer, IndexMissing
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
from herma.transcript.rows import Position

if TYPE_CHECKING:
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
        self.divide = tokenizer(apsw.Connection(":memory:"))


_TOKENIZER = _Tokenizer()


def vector(row: IndexRow) -> tuple[str, int]:
    """Return a message as the text of a `tsvector`, and its number of words. Names follow the text after a gap."""
    text, names = _TOKENIZER.divide(row.text), _TOKENIZER.divide(row.names)
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
        self._tokens = _TOKENIZER.divide
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

    def building(self, *, anew: bool) -> ServerTables:
        """Return the index that is being built: a new one, or (not `anew`) what an interrupted attempt left."""
        build = self._build("unpublished")
        if anew and build is not None:
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
