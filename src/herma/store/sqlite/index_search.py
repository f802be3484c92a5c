"""Ranking by BM25 over all shards, at a cost that does not grow with the transcript.

The score of a message is the sum over words of rarity (from all shards together) times weight (`index_weights`).
Weights come from the lists of full shards, strongest first and only as many as the budget allows, and from FTS5 where
there is no list: in the shards still filling, for rare words, phrases and beginnings. What a cut list left out is added
for the best candidates afterwards, so that the order at the top is that of the whole sum.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import apsw

from herma.ports import Found, Scored, Sieve, Sought
from herma.store.sqlite.index_weights import LAST, SHARD_BITS, decode
from herma.store.sqlite.queries import queries

COMMON_SHARE = 0.05
COMMON_LEAST = 1_000
"""A word in so few messages is never common: visiting them all takes a millisecond."""
FILLING_MOST = 4_000
"""Matches of one word that are scored in a shard without lists, newest first."""
VISIT_MOST = 4_000
"""Matches of a phrase or a beginning of a word that are scored in all; shards are visited from the newest on."""
READ_MOST = 6_000
"""Entries of lists that are read to find candidates."""
MUST_MOST = 5_000
"""Messages with everything that must occur that are ranked, newest first."""
WEIGHED = 3
TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* M* N* Co"]


@dataclass(slots=True)
class _Word:
    """One alternative, and where it was found: scored messages of FTS5, and shards that have a list for it."""

    matches: tuple[str, ...]
    term: str = ""
    messages: int = 0
    scored: dict[int, float] = field(default_factory=dict)
    lists: dict[int, int] = field(default_factory=dict)
    unvisited: dict[int, int] = field(default_factory=dict)
    whole: bool = True
    rarity: float = 0.0


def search(connection: apsw.Connection, sieve: Sieve, limit: int, cap: int) -> Found:
    """The best messages. `cap` is how many matches of common words are looked at."""
    sql = queries("index")
    shards = [_Shard(int(i), int(n), int(stage)) for i, n, stage in connection.execute(sql["shards"]).fetchall()]
    return _Search(connection, [shard for shard in shards if shard.messages], cap).run(sieve, limit)


@dataclass(frozen=True, slots=True)
class _Shard:
    id: int
    messages: int
    stage: int


class _Search:
    def __init__(self, connection: apsw.Connection, shards: Sequence[_Shard], cap: int) -> None:
        self._connection = connection
        self._tokens = connection.fts5_tokenizer("porter", TOKENIZER)
        self._sql = queries("index")
        self._shards = shards
        self._cap = cap
        self._total = sum(shard.messages for shard in shards)
        self._notes: list[str] = []

    def run(self, sieve: Sieve, limit: int) -> Found:
        alternatives = dict.fromkeys([*sieve.any_of, *(one for group in sieve.all_of for one in group)])
        words = [word for one in alternatives if (word := self._word(one))]
        if not words:
            return Found((), 0, exhausted=True)
        among = self._among(sieve) if sieve.all_of or sieve.none_of else None
        within = {message >> SHARD_BITS for message in among} if among is not None else None
        for word in words:
            self._look_up(word, within)
        scores = self._rank(words, among, limit)
        best = sorted(((scores[message], message) for message in _best(scores, limit)), reverse=True)
        whole = not self._notes and all(word.whole for word in words)
        found = tuple(Scored(message, round(score, 6)) for score, message in best)
        return Found(found, max(len(scores), len(found)), exhausted=whole, notes=tuple(self._notes))

    # ── what to look for ──

    def _word(self, one: Sought) -> _Word | None:
        matches = _matches(one)
        tokens = self._tokenize(one.text)
        if not tokens and not one.name:
            return None
        single = len(tokens) == 1 and not one.prefix and not one.name
        return _Word(matches, tokens[0] if single else "")

    def _tokenize(self, text: str) -> list[str]:
        tokens: list[str] = self._tokens(
            text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False, include_colocated=False
        )
        return tokens

    def _expression(self, alternatives: Iterable[Sought]) -> str:
        return " OR ".join(match for one in alternatives if self._word(one) for match in _matches(one))

    def _among(self, sieve: Sieve) -> set[int]:
        """The newest messages that contain what they must and nothing they must not."""
        groups = [self._expression(group) for group in sieve.all_of or (sieve.any_of,)]
        if not all(groups):
            return set()
        expression = " AND ".join(f"({group})" for group in groups)
        if unwanted := self._expression(sieve.none_of):
            expression = f"({expression}) NOT ({unwanted})"
        found: set[int] = set()
        for shard in self._shards:
            sql = self._sql["matching"].format(shard=shard.id)
            rows = self._connection.execute(sql, (expression, MUST_MOST - len(found))).fetchall()
            found.update(shard.id << SHARD_BITS | row[0] for row in rows)
            if len(found) >= MUST_MOST:
                self._notes.append(f"Only the newest {MUST_MOST:,} matches were ranked.")
                break
        return found

    # ── where it is ──

    def _look_up(self, word: _Word, within: set[int] | None) -> None:
        """Where lists are, and how many messages have the word. What has no list is visited later, unless cheap."""
        if word.term:
            lists = {int(i): int(n) for i, n in self._connection.execute(self._sql["weighed"], (word.term,)).fetchall()}
            word.messages = sum(lists.values())
            word.lists = lists if within is None else {shard: n for shard, n in lists.items() if shard in within}
        for shard in self._shards:
            if shard.id in word.lists or (within is not None and shard.id not in within):
                continue
            if shard.stage != WEIGHED and word.term and within is None:
                count = self._count(shard, word.matches[0])
                word.messages += count
                if count > FILLING_MOST // 8:
                    word.unvisited[shard.id] = count
                    continue
                self._visit(word, shard, count)
            elif len(word.scored) < VISIT_MOST:
                before = len(word.scored)
                self._visit(word, shard)
                word.messages += len(word.scored) - before
            else:
                word.whole = False
                break
        word.rarity = math.log(1 + (self._total - word.messages + 0.5) / (word.messages + 0.5))

    def _count(self, shard: _Shard, match: str) -> int:
        return int(self._connection.execute(self._sql["count"].format(shard=shard.id), (match,)).fetchall()[0][0])

    def _visit(self, word: _Word, shard: _Shard, count: int = 0) -> None:
        """Score with FTS5, and take its rarity out again: it knows this shard only."""
        base, scored = shard.id << SHARD_BITS, word.scored
        for match in word.matches:
            rows = self._connection.execute(
                self._sql["scored"].format(shard=shard.id), (match, FILLING_MOST)
            ).fetchall()
            matches = count or len(rows)
            if len(rows) == FILLING_MOST:
                matches = count or self._count(shard, match)
                word.whole = False
            if rows:
                unit = -1 / max(math.log((shard.messages - matches + 0.5) / (matches + 0.5)), 1e-6)
                found = {base | row: score * unit for row, score in rows}
                if scored:
                    found.update((message, max(found[message], scored[message])) for message in found.keys() & scored)
                scored.update(found)

    # ── ranking ──

    def _rank(self, words: Sequence[_Word], among: set[int] | None, limit: int) -> dict[int, float]:
        if among is not None:
            scores = dict.fromkeys(among, 0.0)
            self._complete(scores, words)
            return scores
        common = max(COMMON_LEAST, COMMON_SHARE * self._total)
        selecting = [word for word in words if word.messages <= common] or list(words)
        for word in selecting:
            self._visit_newest(word)
        scores, cut = self._select(selecting)
        if min(word.messages for word in words) > common and (cut or not all(word.whole for word in selecting)):
            self._notes.append("Only common words: ranked among their strongest and newest matches.")
        if len(words) == 1 or not (cut or len(selecting) < len(words)):
            return scores
        few = dict.fromkeys(_best(scores, max(200, 2 * limit)), 0.0)
        if len(selecting) < len(words):
            self._visit_few(few, [word for word in words if word not in selecting], selecting)
        self._complete(few, words)
        return few

    def _visit_newest(self, word: _Word) -> None:
        """Score a common word where there are no lists, until enough is scored."""
        for shard in self._shards:
            if shard.id in word.unvisited:
                if len(word.scored) >= self._cap:
                    word.whole = False
                    break
                self._visit(word, shard, word.unvisited[shard.id])

    def _visit_few(self, few: dict[int, float], ranking: Sequence[_Word], selecting: Sequence[_Word]) -> None:
        """Which of the best candidates also have these common words, where no list says so. How often is not asked."""
        shards = {message >> SHARD_BITS for message in few}
        any_of = " OR ".join(match for word in selecting for match in word.matches)
        for word in ranking:
            for shard in word.unvisited.keys() & shards:
                sql = self._sql["matching"].format(shard=shard)
                rows = self._connection.execute(sql, (f"({word.matches[0]}) AND ({any_of})", FILLING_MOST)).fetchall()
                word.scored.update((shard << SHARD_BITS | row[0], 1.0) for row in rows)

    def _select(self, words: Sequence[_Word]) -> tuple[dict[int, float], list[_Word]]:
        """Messages with at least one of the words, and the words whose lists were too long to be read in full.

        The rarest words are read first; what they leave of the budget is for the others.
        """
        scores: dict[int, float] = defaultdict(float)
        cut, budget = [], READ_MOST
        for place, word in enumerate(sorted(words, key=lambda word: (word.messages, word.matches))):
            for message, weight in word.scored.items():
                scores[message] += word.rarity * weight
            listed, share = sum(word.lists.values()), budget // (len(words) - place)
            quota = max(64, share // len(word.lists)) if listed > share else 0
            if quota:
                cut.append(word)
            for shard in word.lists:
                self._read(word, shard, quota, scores)
            budget = max(0, budget - (min(listed, share)))
        return scores, cut

    def _read(self, word: _Word, shard: int, quota: int, scores: dict[int, float]) -> None:
        left, last = quota or 1 << SHARD_BITS, shard << SHARD_BITS | LAST
        for weight, ages in self._list(word, shard, quota):
            gain = word.rarity * weight
            for age in ages[:left]:
                scores[last - age] += gain
            left -= len(ages)
            if left <= 0:
                return

    def _list(self, word: _Word, shard: int, quota: int) -> Iterable[tuple[float, Sequence[int]]]:
        size = 2 * quota + 256 if quota else 1 << 20
        blobs = self._connection.execute(self._sql["strong"], (size, shard, word.term)).fetchall()
        return decode(blobs[0][0]) if blobs else ()

    def _complete(self, scores: dict[int, float], words: Sequence[_Word]) -> None:
        """Add what each word is worth in these messages."""
        by_shard: dict[int, list[int]] = defaultdict(list)
        for message in scores:
            by_shard[message >> SHARD_BITS].append(message)
        for word in words:
            for message in word.scored.keys() & scores.keys():
                scores[message] += word.rarity * word.scored[message]
            for shard in word.lists.keys() & by_shard.keys():
                for message, weight in _weights(self._list(word, shard, 0), by_shard[shard]):
                    scores[message] += word.rarity * weight


def _weights(steps: Iterable[tuple[float, Sequence[int]]], messages: Sequence[int]) -> Iterable[tuple[int, float]]:
    """Which of these messages of one shard are in a list, and their weights."""
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


def _best(scores: dict[int, float], most: int) -> list[int]:
    """The messages with the highest scores, newer ones first among equals."""
    if len(scores) <= most:
        return list(scores)
    floor = heapq.nlargest(most, scores.values())[-1]
    above = [message for message, score in scores.items() if score > floor]
    level = [message for message, score in scores.items() if score == floor]
    return above + heapq.nlargest(most - len(above), level)


def _matches(one: Sought) -> tuple[str, ...]:
    """FTS5 expressions: the phrase, and the name of the same thing."""
    star = " *" if one.prefix else ""
    texts = [text for text in (one.text, one.name) if text.strip()]
    return tuple('"' + text.replace('"', " ") + '"' + star for text in texts)
