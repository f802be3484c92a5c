"""One word, phrase or beginning of a word in the stored index: where it is, how often, how much it weighs there.

Full shards have lists of the strongest messages (`index_weights`) for frequent words. Everything else is asked of FTS5:
rare words, phrases, beginnings, and the shards that are still filling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

import apsw

from herma.ports import Sought
from herma.store.sqlite.index_connection import fetch
from herma.store.sqlite.index_weights import FREQUENT, SHARD_BITS, WEIGHED, decode
from herma.store.sqlite.queries import queries

FILLING_MOST = 4_000
"""Matches of one word that are scored in a shard without lists, newest first."""
ALONE_MOST = 1_000
"""The same when the query is this word alone: only its strongest matches are wanted, and there are many as strong."""
VISIT_MOST = 4_000
"""Matches of a phrase or a beginning of a word that are scored in all; shards are visited from the newest on."""
PHRASE_WORK = 100_000
"""Messages in which the words of a phrase are compared, about; then older shards are left out."""
_CHEAP = 500
_TOKENIZER = ["unicode61", "remove_diacritics", "2", "categories", "L* M* N* Co"]
_ENDINGS = ("ations", "ions", "ings", "ments", "nesses", "ities", "ables", "ively", "fully", "ously", "izers", "ers")


@dataclass(frozen=True, slots=True)
class Shard:
    id: int
    messages: int
    stage: int


@dataclass(slots=True)
class Word:
    """One alternative and what is known of it so far. `scored`: message → weight, from FTS5. `lists`: shard → messages
    in its list. `unvisited`: shard without a list → matches there, too many to be scored before it is known whether
    that is needed. `whole`: nothing was left out.
    """

    matches: tuple[str, ...]
    tokens: tuple[str, ...]
    term: str = ""
    messages: int = 0
    rarity: float = 0.0
    scored: dict[int, float] = field(default_factory=dict)
    lists: dict[int, int] = field(default_factory=dict)
    unvisited: dict[int, int] = field(default_factory=dict)
    whole: bool = True


class Words:
    """Looks words up on one connection, within one view of the index."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._sql = queries("index")
        self._tokens = tokenizer(connection)
        rows = fetch(connection, self._sql["shards"])
        self.shards = [Shard(number, messages, stage) for number, messages, stage in rows if messages]
        self.total = sum(shard.messages for shard in self.shards)

    def read(self, one: Sought) -> Word | None:
        """What FTS5 is asked for it; None when nothing of it is a word."""
        tokens = self._tokens(one.text)
        if not tokens and not self._tokens(one.name):
            return None
        matches = [_quoted(text, one.prefix) for text in (one.text, one.name) if text.strip()]
        if one.prefix and len(tokens) == 1:
            matches += [_quoted(word, begun=False) for word in self._endings(one.text.strip())]
        single = len(matches) == 1 and len(tokens) == 1 and not one.prefix
        return Word(tuple(matches), tuple(tokens), tokens[0] if single else "")

    def look_up(self, word: Word, within: Collection[int] | None) -> None:
        """Find its lists, and score it in the other shards where that is cheap. `within`: only these shards count."""
        shards = [shard for shard in self.shards if within is None or shard.id in within]
        if word.term:
            lists = self._lists(word.term)
            word.messages = sum(lists.values())
            word.lists = {shard.id: lists[shard.id] for shard in shards if shard.id in lists}
            for shard in shards:
                if shard.id not in word.lists:
                    self._visit_or_count(word, shard)
        else:
            self._visit_newest_first(word, shards)
        word.rarity = math.log(1 + (self.total - word.messages + 0.5) / (word.messages + 0.5))

    def visit_rest(self, word: Word, most: int, best: int = 0) -> None:
        """Score what `look_up` only counted, newest first, until there is enough; of each shard all, or the best."""
        for shard in self.shards:
            if shard.id in word.unvisited:
                if len(word.scored) >= most:
                    word.whole = False
                    return
                self._visit(word, shard, word.unvisited[shard.id], best)

    def visit_few(self, word: Word, shards: Collection[int], selecting: Sequence[Word]) -> None:
        """In which of the messages with `selecting` words it occurs, where it was only counted. Not: how often."""
        any_of = " OR ".join(match for other in selecting for match in other.matches)
        for shard in word.unvisited.keys() & shards:
            rows = self.matching(shard, f"({word.matches[0]}) AND ({any_of})", FILLING_MOST)
            word.scored.update((shard << SHARD_BITS | row, 1.0) for row in rows)

    def matching(self, shard: int, expression: str, most: int) -> list[int]:
        rows = fetch(self._connection, self._sql["matching"].format(shard=shard), (expression, most))
        return [row[0] for row in rows]

    def strongest(self, word: Word, shard: int, most: int = 0) -> Iterable[tuple[float, Sequence[int]]]:
        """Weights and messages from the top of a list: at least `most` messages, or all."""
        size = 2 * most + 256 if most else 1 << 20
        blobs = fetch(self._connection, self._sql["strong"], (size, shard, word.term))
        return decode(blobs[0][0]) if blobs else ()

    def _endings(self, begun: str) -> list[str]:
        """Words whose stem is shorter than the beginning that was typed: for `compressio`, `compressions`."""
        whole = {begun + ending[i:] for ending in _ENDINGS for i in range(1, len(ending)) if begun.endswith(ending[:i])}
        stems = {(self._tokens(word) or [word])[0]: word for word in sorted(whole)}
        return [word for stem, word in stems.items() if len(stem) < len(begun) and len(stem) > 2]

    def _lists(self, term: str) -> dict[int, int]:
        return dict(fetch(self._connection, self._sql["weighed"], (term,)))

    def _count(self, shard: Shard, match: str) -> int:
        return int(fetch(self._connection, self._sql["count"].format(shard=shard.id), (match,))[0][0])

    def _visit_or_count(self, word: Word, shard: Shard) -> None:
        if shard.stage == WEIGHED:  # no list: there are few
            word.messages += self._visit(word, shard)
            return
        count = self._count(shard, word.matches[0])
        word.messages += count
        if count > _CHEAP:
            word.unvisited[shard.id] = count
        elif count:
            self._visit(word, shard, count)

    def _visit_newest_first(self, word: Word, shards: Sequence[Shard]) -> None:
        frequencies = [self._lists(token) for token in word.tokens]
        work = 0
        for shard in shards:
            if len(word.scored) >= VISIT_MOST or work > PHRASE_WORK:
                word.whole = False
                return
            word.messages += self._visit(word, shard)
            if shard.stage == WEIGHED:
                work += min((lists.get(shard.id, FREQUENT) for lists in frequencies), default=0)

    def _visit(self, word: Word, shard: Shard, count: int = 0, best: int = 0) -> int:
        """Score with FTS5, and take its rarity out again, which it knows for this shard only. → how many matched."""
        base, scored, before = shard.id << SHARD_BITS, word.scored, len(word.scored)
        sql = self._sql["best" if best else "scored"].format(shard=shard.id)
        for match in word.matches:
            rows = fetch(self._connection, sql, (match, ALONE_MOST, best) if best else (match, FILLING_MOST))
            if not rows:
                continue
            most = ALONE_MOST if best else FILLING_MOST
            matches = count or (self._count(shard, match) if len(rows) == most else len(rows))
            word.whole = word.whole and matches <= most
            unit = -1 / max(math.log((shard.messages - matches + 0.5) / (matches + 0.5)), 1e-6)
            found = {base | row: score * unit for row, score in rows}
            found.update((message, max(found[message], scored[message])) for message in found.keys() & scored)
            scored.update(found)
        return len(scored) - before


def tokenizer(connection: apsw.Connection) -> Callable[[str], list[str]]:
    """How FTS5 divides and stems text."""
    divide = connection.fts5_tokenizer("porter", _TOKENIZER)
    flags = {"include_offsets": False, "include_colocated": False}
    return lambda text: [str(token) for token in divide(text.encode(), apsw.FTS5_TOKENIZE_QUERY, None, **flags)]


def _quoted(text: str, begun: bool) -> str:
    return '"' + text.replace('"', " ") + '"' + (" *" if begun else "")
