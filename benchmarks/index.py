"""The text index against plain FTS5 over the same prepared text, in the same run.

    python benchmarks/index.py                    10,000 and 100,000 messages
    python benchmarks/index.py --sizes 1000000    takes a few minutes
    python benchmarks/index.py --json

Messages are made up: about 500 characters of words by Zipf's law, some of it code, some Chinese. Times are processor
time in milliseconds, p50 / p95 over many different queries of each kind, both sides in turns; rates are by the clock,
and "longest hold" is what a writer may have to wait for. Sizes are shares of the raw text. "same top 10" is how much of
plain FTS5's first ten our first ten have, "flat" the p50 at the largest size over that at the smallest: of the index
alone. `growth.py` measures whole searches, `versus_hermes.py` next to Hermes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw

from herma import Herma
from herma.index import IndexQuery
from herma.index.sync import Index, prepare, sought
from herma.transcript.rows import ChangeFeed, FeedChange, Position, Searchable

VOCABULARY = 50_000
LIMIT = 50
ROUNDS = 40
FOLLOWED = 4_000
KINDS = ("common word", "rare word", "question of 5", "2 Chinese characters", "phrase", "beginning*", "both of 2")


class Corpus:
    """Message number n is always the same text, so that nothing needs to be kept."""

    def __init__(self, size: int) -> None:
        self.size = size
        chance = random.Random(7)
        syllables = [a + b for a in "ktmrsnlvdp" for b in ("a", "e", "i", "o", "ur")]
        self.words = [
            "".join(chance.choices(syllables, k=1 + n.bit_length() // 4)) + "abcdefghijklmnopqrstuvwxyz"[n % 26]
            for n in range(VOCABULARY)
        ]
        self._sums = list(itertools.accumulate(1 / (n + 2.7) for n in range(VOCABULARY)))
        self._han = [chr(0x4E00 + n) for n in range(3_000)]
        self._han_sums = list(itertools.accumulate(1 / (n + 10) for n in range(3_000)))

    def text(self, number: int) -> str:
        chance = random.Random(number)
        if number % 10 == 3:
            runs = ("".join(chance.choices(self._han, cum_weights=self._han_sums, k=12)) for _ in range(12))
            return "，".join(runs)
        words = chance.choices(self.words, cum_weights=self._sums, k=chance.randint(30, 110))
        if number % 10 == 7:
            threes = zip(*[iter(words[:30])] * 3, strict=True)
            return " ".join(f"{a}_{b} = {a.title()}{b.title()}({c})" for a, b, c in threes)
        return " ".join(words)


class Feed(ChangeFeed):
    """The corpus as a change feed of one message a change; counts the time it takes to make texts up."""

    def __init__(self, corpus: Corpus, size: int) -> None:
        self.corpus, self.size = corpus, size
        self.gone: list[int] = []
        self.raw = 0
        self.making = 0.0

    def position(self) -> Position:
        return Position("benchmark", "1", self.size + len(self.gone))

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        end = self.position().seq
        changes = [FeedChange(n, "append", (n,)) for n in range(seq + 1, min(seq + limit, self.size) + 1)]
        return changes or [FeedChange(n, "purge", (self.gone[n - self.size - 1],)) for n in range(seq + 1, end + 1)]

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        started = time.perf_counter()
        made = [Searchable(n, "s", "user", 0.0, self.corpus.text(n)) for n in message_ids if n not in self.gone]
        self.raw += sum(len(message.text.encode()) for message in made)
        self.making += time.perf_counter() - started
        return made

    def message_count(self) -> int:
        return self.size - len(self.gone)


def queries(corpus: Corpus) -> dict[str, list[IndexQuery]]:
    """Different queries of each kind, made of messages that are there."""
    chance = random.Random(11)
    made: dict[str, list[IndexQuery]] = {kind: [] for kind in KINDS}
    rank = {word: n for n, word in reversed(list(enumerate(corpus.words)))}
    while len(made["phrase"]) < ROUNDS:
        number = chance.randint(1, corpus.size)
        chinese = number - number % 10 + (3 if number % 10 > 3 or number < 10 else -7)
        words = corpus.text(number - number % 10 + 1).split()
        common = [word for word in words if rank[word] < 40]
        rare = [word for word in words if rank[word] > 10_000]
        middle = [n for n, word in enumerate(words[:-1]) if 100 < rank[word] < 3_000]
        if not (common and rare and middle and chinese > 0):
            continue
        place = chance.randrange(140)
        place -= 1 if place % 13 in (11, 12) else 0
        han = corpus.text(chinese)[place - place % 13 :][:2]
        start, first = words[middle[0]], chance.choice(common)
        made["common word"].append(IndexQuery(any_of=((first,),)))
        made["rare word"].append(IndexQuery(any_of=((rare[0],),)))
        made["question of 5"].append(IndexQuery(any_of=tuple((word,) for word in [start, *chance.sample(words, 4)])))
        made["2 Chinese characters"].append(IndexQuery(any_of=((han,),)))
        pair = (start, words[middle[0] + 1])
        made["phrase"].append(IndexQuery(any_of=(pair,), all_of=((pair,),)))
        made["beginning*"].append(IndexQuery(any_of=((start[:6],),), prefix=frozenset({start[:6]})))
        made["both of 2"].append(IndexQuery(all_of=(((first,),), ((start,),))))
    return made


class Plain:
    """One FTS5 table and `ORDER BY rank`, over the same prepared text."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = TRUNCATE")
        self.connection.execute(
            "CREATE VIRTUAL TABLE plain USING fts5(text, names, content='', contentless_delete=1,"
            " tokenize=\"porter unicode61 remove_diacritics 2 categories 'L* M* N* Co'\")"
        )

    def build(self, feed: Feed) -> None:
        for start in range(1, feed.size + 1, 1_000):
            rows = []
            for message in feed.searchable(range(start, min(start + 1_000, feed.size + 1))):
                prepared = prepare(message.text)
                rows.append((message.id, prepared.text, " ".join(prepared.names)))
            with self.connection:
                self.connection.executemany("INSERT INTO plain (rowid, text, names) VALUES (?, ?, ?)", rows)

    def find(self, terms: IndexQuery) -> list[int]:
        groups = [[one] for one in terms.any_of] if terms.any_of else [list(group) for group in terms.all_of]
        star = " *" if terms.prefix else ""
        phrases = ['"' + sought(" ".join(one))[0] + '"' + star for group in groups for one in group]
        expression = (" OR " if terms.any_of else " AND ").join(phrases)
        sql = "SELECT rowid FROM plain WHERE plain MATCH ? ORDER BY rank LIMIT ?"
        return [int(row[0]) for row in self.connection.execute(sql, (expression, LIMIT)).fetchall()]  # type: ignore[arg-type]


Find = Callable[[IndexQuery], list[int]]


def timed(ours: Find, plain: Find, asked: Sequence[IndexQuery]) -> dict[str, float]:
    """Both are asked in turns: whatever else the machine does, it does it to both."""
    times: tuple[list[float], list[float]] = ([], [])
    same = []
    for terms in [asked[0], *asked]:  # the first warms up
        answers = []
        for ask, took in zip((ours, plain), times, strict=True):
            started = time.process_time()
            answers.append(ask(terms)[:10])
            took.append((time.process_time() - started) * 1_000)
        if answers[1]:
            same.append(len(set(answers[0]) & set(answers[1])) / len(answers[1]))
    return _summary(sorted(times[0][1:]), sorted(times[1][1:]), same[1:])


def measure(size: int, folder: Path) -> dict[str, Any]:
    corpus = Corpus(size)
    feed = Feed(corpus, size - FOLLOWED)
    held: list[float] = []
    index = Index(Herma.open(folder), feed=feed)
    hold = index._files.hold

    @contextmanager
    def watched(timeout: float) -> Iterator[bool]:
        with hold(timeout) as really:
            started = time.perf_counter()
            yield really
            held.append(time.perf_counter() - started)

    index._files.hold = watched  # type: ignore[method-assign]
    started = time.perf_counter()
    index.wait()
    rate = feed.size / (time.perf_counter() - started - feed.making)
    held.clear()
    feed.making, started, feed.size = 0.0, time.perf_counter(), size
    index._follower.in_slices(lambda: False)
    following = FOLLOWED / (time.perf_counter() - started - feed.making)
    raw = feed.raw
    if size > 1 << 15:  # a full shard is merged and weighed again
        feed.gone = [5]
        index._follower.in_slices(lambda: False)
    result: dict[str, Any] = {
        "messages": size,
        "build_per_s": round(rate),
        "follow_per_s": round(following),
        "longest_hold_ms": round(max(held) * 1_000, 1),
        "size": round(index.status().size / raw, 3),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024),
    }
    asked = queries(corpus)

    def find(terms: IndexQuery) -> list[int]:
        return [c.message_id for c in index.find(terms, LIMIT).candidates]

    for kind in KINDS:
        for terms in asked[kind]:
            find(terms)
    result["peak_mb_searching"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024)
    plain = Plain(folder / "plain.db")
    started, feed.making, feed.gone = time.perf_counter(), 0.0, []
    plain.build(feed)
    result["plain_build_per_s"] = round(size / (time.perf_counter() - started - feed.making))
    result["plain_size"] = round((folder / "plain.db").stat().st_size / raw, 3)
    result["queries"] = {kind: timed(find, plain.find, asked[kind]) for kind in KINDS}
    index.close()
    return result


def _summary(ours: Sequence[float], plain: Sequence[float], same: Sequence[float]) -> dict[str, float]:
    def at(times: Sequence[float], share: float) -> float:
        return round(times[int(share * (len(times) - 1))], 2)

    return {
        "p50": at(ours, 0.5),
        "p95": at(ours, 0.95),
        "plain_p50": at(plain, 0.5),
        "plain_p95": at(plain, 0.95),
        "same_top_10": round(sum(same) / max(1, len(same)), 2),
    }


def show(results: list[dict[str, Any]]) -> None:
    for result in results:
        print(f"\n{result['messages']:,} messages")
        for key, value in result.items():
            if key not in ("messages", "queries"):
                print(f"  {key.replace('_', ' '):24}{value:>12,}")
        print(f"  {'':24}{'ours p50/p95':>18}{'plain p50/p95':>20}{'same top 10':>14}")
        for kind, row in result["queries"].items():
            mine, theirs = f"{row['p50']} / {row['p95']}", f"{row['plain_p50']} / {row['plain_p95']}"
            print(f"  {kind:24}{mine:>18}{theirs:>20}{row['same_top_10']:>14}")
    if len(results) > 1:
        first, last = results[0]["queries"], results[-1]["queries"]
        print("\nflat: " + ", ".join(f"{kind} {last[kind]['p50'] / first[kind]['p50']:.1f}×" for kind in KINDS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--folder", help="where to put the files (default: a temporary folder)")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            print(json.dumps(measure(options.one, Path(folder))))
        return
    results = []
    for size in options.sizes.split(","):  # each in a process of its own: memory is measured
        command = [sys.executable, __file__, "--one", size, *(["--folder", options.folder] if options.folder else [])]
        results.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
