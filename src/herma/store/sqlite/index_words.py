"""One word, phrase or beginning of a word in the stored index: where it is, how often, how much it weighs there.

Full shards have lists of the messages with each word (`index_weights`). FTS5 is asked for everything else: phrases and
beginnings, where the lists do not rule them out, and the shards that are still filling.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import apsw

from herma.ports import Sought
from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.index_rare import look_up, place
from herma.store.sqlite.index_weights import BEGINNING, LAST, SHARD_BITS, WEIGHED, decode, listed
from herma.store.sqlite.queries import queries

FILLING_MOST = 4_000
"""Matches of one word that are scored in a shard without lists, newest first."""
ALONE_MOST = 1_000
"""The same when the query is this word alone: only its strongest matches are wanted, and there are many as strong."""
VISIT_MOST = 4_000
"""Matches of a phrase or a beginning of a word that are scored in all; shards are visited from the newest on."""
PHRASE_WORK, LONE_PHRASE_WORK = 100_000, 400_000
"""Messages in which the words of a phrase are compared, about; then older shards are left out. Where the phrase is not
all that is asked for, FTS5 goes through these for what must occur.
"""
PHRASE_READ, SHARD_READ, PLENTY = 40_000, 2_500, 4
"""Entries of lists that are read for a phrase that is found often enough; a shard takes as long as so many, however
few. With so many times as many matches as are enough, no more are looked for at all.
"""
FEW_MATCHES, MANY_COMPARED = 400, 8_000
"""A phrase is mostly in few of the messages that have its words. So many are weighed by `weight`, one by one. FTS5's
own `bm25` is faster where there are more, but looks for the phrase in the whole shard once more. Of a phrase that is
alone, so many of a shard are enough.
"""
_CHEAP = 500
_STEPS = 180
"""Room for the steps between the messages of a list."""
_K1, _PAIR_K1 = 1.2, 0.6
"""How soon it no longer matters how often a word occurs: BM25's own, and for pairs of characters in Japanese. One more
of a hundred Japanese questions is answered first with 0.4 to 0.7, in both halves of them; Chinese ones lose by it.
"""
_SENSE = (1.0, 0.7, 0.2)
"""By how many of two characters are hiragana. Much the same from half to twice of it: a few more of a thousand Japanese
questions are answered first; nothing else has hiragana.
"""
_TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* M* N* Co"]
_ENDINGS = ("ations", "ions", "ings", "ments", "nesses", "ities", "ables", "ively", "fully", "ously", "izers", "ers")


@dataclass(frozen=True, slots=True)
class Shard:
    id: int
    messages: int
    stage: int


@dataclass(frozen=True, slots=True)
class Match:
    """What FTS5 is asked, the words without which there is no match, and whether one of them is all there is to it."""

    expression: str
    needs: tuple[str, ...]
    word: bool = False


class List(NamedTuple):
    """In how many messages of a shard a word is, and which: the beginning of its list, or all where it is rare."""

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
    """One alternative and what is known of it so far. `scored`: message → weight, from FTS5 and from short lists.
    `lists`: shard → long list. `unvisited`: shard without lists → matches there, too many to be scored before it is
    known whether that is needed. `whole`: nothing was left out.
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
    """Whether occurring more often adds less than it would."""


class Words:
    """Looks words up on one connection, within one view of the index."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = queries("index")
        self._tokens = tokenizer(connection)
        rows = fetch(connection, self._sql["shards"])
        self.shards = [Shard(number, messages, stage) for number, messages, stage in rows if messages]
        self.total = sum(shard.messages for shard in self.shards)
        self._found: dict[str, dict[int, List]] = {}
        self._weighed = {shard.id for shard in self.shards if shard.stage == WEIGHED}

    def read(self, one: Sought) -> Word | None:
        """What FTS5 is asked for it; None when nothing of it is a word."""
        tokens = self._tokens(one.text)
        named = self._tokens(one.name) if one.name else []
        if not tokens and not named:
            return None
        matches = [
            _match(text, words, one.prefix) for text, words in ((one.text, tokens), (one.name, named)) if text.strip()
        ]
        if one.prefix and len(tokens) == 1:
            matches += [_match(word, [stem], begun=False) for stem, word in self._endings(one.text.strip()).items()]
        single = len(matches) == 1 and matches[0].word
        return Word(tuple(matches), tokens[0] if single else "")

    def prepare(self, words: Iterable[Word]) -> None:
        """Read where all of these are among the weighed shards."""
        words = list(words)
        japanese = is_japanese(words)
        for word in words:
            word.damped = japanese and len(word.term) == 2 and not word.term.isascii()
        needed = dict.fromkeys(token for word in words for match in word.matches for token in match.needs)
        self._found = found = {token: dict[int, List]() for token in needed}
        if not found or not self._weighed:
            return
        for term, shard, messages, strong in fetch(self._connection, self._sql["lists"], (_json(found),)):
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
        """Find its lists, and score it in the other shards where that is cheap. `within`: only these shards count.
        `enough`: with so many matches of a phrase, older shards are left out.
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
        """Score what `look_up` only counted, newest first, until there is enough; of each shard all, or the best."""
        for shard in self.shards:
            if shard.id in word.unvisited:
                if len(word.scored) >= most:
                    word.whole = False
                    return
                self._visit(word, shard, word.matches, word.unvisited[shard.id], best)

    def visit_few(self, word: Word, shards: Collection[int], selecting: Sequence[Word]) -> None:
        """In which of the messages with `selecting` words it occurs, where it was only counted. Not: how often."""
        any_of = " OR ".join(match.expression for other in selecting for match in other.matches)
        for shard in word.unvisited.keys() & shards:
            rows = self.matching(shard, f"({word.matches[0].expression}) AND ({any_of})", FILLING_MOST)
            word.scored.update((shard << SHARD_BITS | row, 1.0) for row in rows)

    def may_be_in(self, shard: Shard, word: Word) -> bool:
        """Whether a shard can have a message with it, as far as the lists tell."""
        return shard.id not in self._weighed or any(self._may_match(shard, match) for match in word.matches)

    def _may_match(self, shard: Shard, match: Match) -> bool:
        here = [lists[shard.id] for token in match.needs if shard.id in (lists := self._found.get(token, {}))]
        known = all(token in self._found for token in match.needs)
        return not known or (len(here) == len(match.needs) and _share(here))

    def matching(self, shard: int, expression: str, most: int) -> list[int]:
        rows = fetch(self._connection, self._sql["matching"].format(shard=shard), (expression, most))
        return [row[0] for row in rows]

    def strongest(self, word: Word, shard: int, most: int = 0) -> Iterable[tuple[float, Sequence[int]]]:
        """Weights and messages from the top of a list: at least `most` messages, or all."""
        found = word.lists[shard]
        if found.whole or (most and 2 * most + _STEPS <= BEGINNING):
            return _as_counted(word, decode(found.strong))
        rows = fetch(self._connection, self._sql["whole_list"], (shard, word.term))
        return _as_counted(word, decode(rows[0][0] + (rows[0][1] or b""))) if rows else ()

    def _endings(self, begun: str) -> dict[str, str]:
        """Words whose stem is shorter than the beginning that was typed, by stem: for `compressio`, `compressions`."""
        whole = {begun + ending[i:] for ending in _ENDINGS for i in range(1, len(ending)) if begun.endswith(ending[:i])}
        stems = {(self._tokens(word) or [word])[0]: word for word in sorted(whole)}
        return {stem: word for stem, word in stems.items() if len(stem) < len(begun) and len(stem) > 2}

    def _take(self, word: Word, shard: int, found: List) -> None:
        """Short lists are read at once."""
        if not found.rare:
            word.lists[shard] = found
            return
        last = shard << SHARD_BITS | LAST
        word.scored.update((last - age, weight) for weight, (age,) in _as_counted(word, _singly(found.rare)))

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
        """As far as the lists do not tell. → about how many messages FTS5 had to compare, and entries to read."""
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
        """Whether any of several occurs: most rare words do not."""
        return bool(self.matching(shard.id, " OR ".join(match.expression for match in matches), 1))

    def _weigh(self, word: Word, shard: Shard, match: Match) -> bool:
        """Score all that match, if they are few. → whether they were."""
        rows = fetch(self._connection, _statement("weighted", shard.id), (match.expression, FEW_MATCHES + 1))
        if len(rows) > FEW_MATCHES:
            return False
        _take_in(word, shard, rows)
        return True

    def _weigh_newest(self, word: Word, shard: Shard, match: Match) -> int:
        """Score the newest that match. → how many they are."""
        before, sql = len(word.scored), _statement("newest_weighted", shard.id)
        rows = fetch(self._connection, sql, (match.expression, FEW_MATCHES + 1))
        word.whole = word.whole and len(rows) <= FEW_MATCHES
        _take_in(word, shard, rows[:FEW_MATCHES])
        return len(word.scored) - before

    def _visit(self, word: Word, shard: Shard, matches: Sequence[Match], count: int = 0, best: int = 0) -> int:
        """Score with FTS5, and take its rarity out again, which it knows for this shard only. → how many matched."""
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
    return queries("index")[name].format(shard=shard)


def _take_in(word: Word, shard: Shard, rows: Iterable[tuple[int, float]]) -> None:
    """What was weighed in a shard; of several ways to match, the one that weighs most counts."""
    base, scored = shard.id << SHARD_BITS, word.scored
    for row, weight in rows:
        counted = saturated(weight) if word.damped else weight
        scored[base | row] = max(counted, scored.get(base | row, 0.0))


def is_japanese(words: Iterable[Word]) -> bool:
    """Whether kana occur in any of these."""
    asked = [match.expression for word in words for match in word.matches if not match.expression.isascii()]
    return any("\u3041" <= sign <= "\u30fe" for expression in asked for sign in expression)


def saturated(weight: float) -> float:
    """What a pair of characters weighs in Japanese: repeating it says less than repeating a word, as grammar repeats.

    The weight that BM25 gives with k1 = 1.2, turned into the one it would give with `_PAIR_K1`.
    """
    times = _K1 * weight / max(_K1 + 1 - weight, 1e-6)  # over the length of the text
    return (_PAIR_K1 + 1) * times / (times + _PAIR_K1)


def _as_counted(word: Word, steps: Iterable[tuple[float, Sequence[int]]]) -> Iterable[tuple[float, Sequence[int]]]:
    return ((saturated(weight), ages) for weight, ages in steps) if word.damped else steps


def _singly(rare: Iterable[tuple[float, int]]) -> Iterable[tuple[float, Sequence[int]]]:
    return ((weight, (age,)) for weight, age in rare)


def _sense(term: str) -> float:
    """How much of its rarity a pair of Japanese characters is worth: hiragana is grammar for the most part."""
    return _SENSE[sum("\u3041" <= letter <= "\u309f" for letter in term)] if len(term) == 2 else 1.0


def _share(lists: Sequence[List]) -> bool:
    """Whether all of these words can be in one message, as far as that is quickly seen."""
    short = [found for found in lists if len(found.strong) < BEGINNING]
    return len(short) < 2 or bool(set.intersection(*(found.ages() for found in short)))


def _match(text: str, tokens: Sequence[str], begun: bool) -> Match:
    needs = tuple(filter(None, tokens[:-1] if begun else tokens))
    return Match(_quoted(text, begun), needs, word=len(tokens) == len(needs) == 1)


def tokenizer(connection: apsw.Connection) -> Callable[[str], list[str]]:
    """How FTS5 divides and stems text."""
    divide = connection.fts5_tokenizer("porter", _TOKENIZER)
    flags = {"include_offsets": False, "include_colocated": False}
    return lambda text: [str(token) for token in divide(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags)]


def _json(names: Iterable[object]) -> str:
    return json.dumps(list(names))


def _quoted(text: str, begun: bool) -> str:
    return '"' + text.replace('"', " ") + '"' + (" *" if begun else "")
