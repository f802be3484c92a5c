"""Ranking by BM25 over all shards, at a cost that does not grow with the transcript.

The score of a message is the sum over words of rarity (from all shards together) times weight. Lists are read from the
top, only as far as the budget goes; what a cut list left out is added for the best candidates afterwards, so that the
order at the top is that of the whole sum.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import apsw

from herma.ports import Found, Scored, Sieve, Sought
from herma.store.sqlite.index_weights import LAST, SHARD_BITS
from herma.store.sqlite.index_words import Word, Words

COMMON_SHARE = 0.05
COMMON_LEAST = 1_000
"""A word in so few messages is never common: visiting them all takes a millisecond."""
READ_MOST = 6_000
"""Entries of lists that are read to find candidates."""
LEAST_READ = 32
"""Entries that are read of every list."""
MUST_MOST = 5_000
"""Messages with everything that must occur that are ranked, newest first."""
COMPLETED = 200
"""Candidates whose scores are completed."""

Scores = dict[int, float]


def search(connection: apsw.Connection, sieve: Sieve, limit: int, cap: int) -> Found:
    """The best messages. Of common words alone, at most `cap` matches are scored where there are no lists."""
    return _Search(Words(connection), limit, cap).run(sieve)


class _Search:
    def __init__(self, words: Words, limit: int, cap: int) -> None:
        self._words = words
        self._limit = limit
        self._cap = cap
        self._enough = (limit + 1) // 2
        self._stopped = False
        self._notes: list[str] = []

    def run(self, sieve: Sieve) -> Found:
        alternatives = dict.fromkeys([*sieve.any_of, *(one for group in sieve.all_of for one in group)])
        known = {one: word for one in alternatives if (word := self._words.read(one))}
        words = list(known.values())
        if not words:
            return Found((), 0, exhausted=True)
        self._words.prepare(words)
        if sieve.all_of or sieve.none_of:
            phrase = self._phrase(sieve, known, alone=len(words) == 1)
            messages = self._among(sieve) if phrase is None else sorted(phrase.scored, reverse=True)
            scores = self._rank_among([word for word in words if word is not phrase], messages, phrase)
            matches = len(scores)
        else:
            scores = self._rank(words)
            matches = max(len(scores), *(word.messages for word in words))
        best = sorted(((scores[message], message) for message in _best(scores, self._limit)), reverse=True)
        found = tuple(Scored(message, round(score, 6)) for score, message in best)
        more = self._stopped and len(found) >= self._enough
        return Found(found, matches, exhausted=len(found) >= matches and not more, notes=tuple(self._notes), more=more)

    # ── what must and must not occur ──

    def _phrase(self, sieve: Sieve, known: Mapping[Sought, Word], *, alone: bool) -> Word | None:
        """Where one phrase is all that must occur, scoring it finds where it does: FTS5 need not be asked twice. Where
        nothing else is asked for, messages with it differ in their length and age only, and as many as are wanted do.
        """
        if sieve.none_of or len(sieve.all_of) != 1 or len(sieve.all_of[0]) != 1:
            return None
        phrase = known.get(sieve.all_of[0][0])
        if phrase is None or phrase.term:
            return None
        self._words.look_up(phrase, None, enough=self._enough if alone else 0)
        if alone and not phrase.whole:
            self._stopped = True
            self._notes.append("Not every match was ranked: the words of the phrase are common. The newest were.")
            return phrase
        return phrase if phrase.whole and len(phrase.scored) <= MUST_MOST else None

    def _among(self, sieve: Sieve) -> list[int]:
        """The newest messages that contain what they must and nothing they must not."""
        groups = [self._read(group) for group in sieve.all_of or (sieve.any_of,)]
        if not all(groups):
            return []
        expression = " AND ".join(f"({_either(group)})" for group in groups)
        if unwanted := self._read(sieve.none_of):
            expression = f"({expression}) NOT ({_either(unwanted)})"
        found: list[int] = []
        for shard in self._words.shards:
            if not all(any(self._words.may_be_in(shard, word) for word in group) for group in groups):
                continue
            rows = self._words.matching(shard.id, expression, MUST_MOST - len(found))
            found += [shard.id << SHARD_BITS | row for row in rows]
            if len(found) >= MUST_MOST:
                self._notes.append(f"Only the newest {MUST_MOST:,} matches were ranked.")
                break
        return found

    def _read(self, alternatives: Iterable[Sought]) -> list[Word]:
        return [word for one in alternatives if (word := self._words.read(one))]

    def _rank_among(self, words: Sequence[Word], messages: Sequence[int], scored: Word | None = None) -> Scores:
        shards = {message >> SHARD_BITS for message in messages}
        for word in words:
            self._words.look_up(word, shards)
            self._words.visit_rest(word, self._cap)
        return self._complete(messages, [*words, scored] if scored else words)

    # ── any of the words ──

    def _rank(self, words: Sequence[Word]) -> Scores:
        for word in words:
            self._words.look_up(word, None)
        common = max(COMMON_LEAST, COMMON_SHARE * self._words.total)
        selecting = [word for word in words if word.messages <= common] or list(words)
        ranking = [word for word in words if word not in selecting]
        alone = len(words) == 1
        for word in selecting:
            self._words.visit_rest(word, self._cap, best=2 * self._limit if alone else 0)
        scores, cut = self._strongest(words[0]) if alone else self._select(selecting)
        only_common = not alone and min(word.messages for word in words) > common
        if not all(word.whole for word in selecting) or (cut and only_common):
            self._notes.append("Not every match was ranked: the words are common. The strongest and the newest were.")
        if alone or not (cut or ranking):
            return scores
        few = _best(scores, max(COMPLETED, 2 * self._limit))
        shards = {message >> SHARD_BITS for message in few}
        for word in ranking:
            self._words.visit_few(word, shards, selecting)
        return self._complete(few, words)

    def _strongest(self, word: Word) -> tuple[Scores, list[Word]]:
        """Of a word that is alone, the top of each list is all there is to know."""
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
        return scores, []

    def _select(self, words: Sequence[Word]) -> tuple[Scores, list[Word]]:
        """Messages with at least one of the words, and the words whose lists were too long to be read in full.

        The rarest words are read first; what they leave of the budget is for the others.
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
        """What all words together are worth in these messages."""
        scores = dict.fromkeys(messages, 0.0)
        by_shard: dict[int, list[int]] = defaultdict(list)
        for message in scores:
            by_shard[message >> SHARD_BITS].append(message)
        for word in words:
            for message in word.scored.keys() & scores.keys():
                scores[message] += word.rarity * word.scored[message]
            for shard in word.lists.keys() & by_shard.keys():
                for message, weight in _weights(self._words.strongest(word, shard), by_shard[shard]):
                    scores[message] += word.rarity * weight
        return scores


def _either(words: Iterable[Word]) -> str:
    """The FTS5 expression for any of these."""
    return " OR ".join(match.expression for word in words for match in word.matches)


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


def _best(scores: Scores, most: int) -> list[int]:
    """The messages with the highest scores, newer ones first among equals."""
    if len(scores) <= most:
        return list(scores)
    floor = heapq.nlargest(most, scores.values())[-1]
    best = [message for message, score in scores.items() if score >= floor]
    if len(best) > most:
        above = [message for message in best if scores[message] > floor]
        level = [message for message in best if scores[message] == floor]
        best = above + heapq.nlargest(most - len(above), level)
    return best
