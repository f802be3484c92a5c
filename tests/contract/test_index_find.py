"""What the text index finds, and in which order."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.feeds import SHARD, Feed
from tests.homes import of_files

from herma import Herma
from herma.index import IndexAnswer, IndexQuery
from herma.index.sync import Index

MESSAGES = [
    "We met get_compression_tip in the code",
    "getCompressionTip is written in camel case",
    "HTTPServerError2 was raised",
    "write to user@example.com now",
    "see foo/bar.py",
    "I love C# and C++ and .NET",
    "release v1.2.3 fixes #1234",
    "東京都庁に行きました",
    "我用docker部署好了",
    "안녕하세요 데이터베이스를 사용",
    "compression of contexts",
    "Café ＡＢＣ naïve",
    "กินข้าวแล้ว",
    "हिन्दी में लिखा",
    "she was running home",
]


@contextmanager
def of(home: Path, texts: dict[int, str]) -> Iterator[Index]:
    """An index of these texts."""
    with Herma.open(home) as h:
        found = Index(h, feed=Feed.of(texts))
        assert found.wait(60)
        yield found
        found.close()


@pytest.fixture(params=["one shard", "a shard each"])
def index(request: pytest.FixtureRequest, home: Path) -> Iterator[Index]:
    step = 1 if request.param == "one shard" else SHARD
    with of(home, {1 + i * step: text for i, text in enumerate(MESSAGES)}) as found:
        yield found


def numbers(found: IndexAnswer) -> list[int]:
    """Which of `MESSAGES`, in order of their number."""
    return sorted((c.message_id - 1) // SHARD or c.message_id - 1 for c in found.candidates)


def words(*given: str, **others: Iterable[object]) -> IndexQuery:
    return IndexQuery(any_of=tuple((word,) for word in given), **others)  # type: ignore[arg-type]


WORDS = {
    0: "get_compression_tip getCompressionTip getcompressiontip tip",
    2: "HTTPServerError2 server",
    3: "user@example.com example",
    4: "foo/bar.py bar",
    5: "C# C++ .NET",
    6: "v1.2.3 1.2.3 #1234",
    7: "東京 都 に た 東京都庁 ました",
    8: "用 docker 部署 哪里部署docker",
    9: "데이터",
    10: "compressions",
    11: "cafe abc",
    12: "ข้าว",
    13: "हिन्दी",
    14: "run",
    -1: 'absent ??? " \0',
}
"""Number of a message, and words that find it."""
TERMS = [
    (IndexQuery(any_of=(("compression", "of"),)), [10]),
    (IndexQuery(any_of=(("of", "compression"),)), []),
    (words("compr", prefix=frozenset({"compr"})), [0, 1, 10]),
    (words("compressio", prefix=frozenset({"compressio"})), [0, 1, 10]),
    (words("getComp", prefix=frozenset({"getComp"})), [0, 1]),
    (words("compression", none_of=(("contexts",),)), [0, 1]),
    (IndexQuery(all_of=((("compression",),), (("contexts",), ("code",)))), [0, 10]),
    (words("release", all_of=((("compression",),),)), [0, 1, 10]),
    (words("release", "love"), [5, 6]),
    (words("release", all_of=((("???",),),)), []),
    (IndexQuery(none_of=(("contexts",),)), []),
    (IndexQuery(), []),
    (words(""), []),
]


def test_words_are_found_and_terms_select(index: Index) -> None:
    for number, given in WORDS.items():
        expected = {0: [0, 1], 10: [0, 1, 10], -1: []}.get(number, [number])
        for word in given.split():
            assert numbers(index.find(words(word), 20)) == expected, word
    for terms, expected in TERMS:
        assert numbers(index.find(terms, 20)) == expected, terms


def test_more_and_rarer_words_rank_higher_and_equals_by_age(index: Index) -> None:
    found = index.find(words("compression", "contexts"), 20)
    assert numbers(found)[-1] == 10
    assert found.candidates[0].message_id == max(c.message_id for c in found.candidates)
    assert [c.score for c in found.candidates] == sorted((c.score for c in found.candidates), reverse=True)
    assert found.matches == 3
    assert len(index.find(words("compression"), 2).candidates) == 2


def test_the_vocabulary_has_parts_of_words(index: Index) -> None:
    assert index.vocabulary(["ompress"]) == ["compress", "getcompressiontip"]
    assert index.vocabulary(["ompress", "nowhere"], limit=1) == ["compress"]
    assert index.vocabulary([], ["compr"]) == ["compress"]
    assert not index.vocabulary([""], [""])
    assert not index.vocabulary(["nowhere"], ["ompress"])


# ── many messages ──

VOCABULARY = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(400)]


def many(seed: int, messages: int) -> dict[int, str]:
    """Messages of common and rare words, over three full shards and one that is filling."""
    chance = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(VOCABULARY))]
    places = [1 + (i * 4 // messages) * SHARD + i for i in range(messages)]
    return {i: " ".join(chance.choices(VOCABULARY, weights, k=chance.randint(5, 40))) for i in places}


def bm25(texts: dict[int, str], query: Sequence[str]) -> dict[int, float]:
    """The formula, word by word."""
    split = {i: text.split() for i, text in texts.items()}
    average = sum(map(len, split.values())) / len(split)
    scores: dict[int, float] = {}
    for word in query:
        df = sum(word in tokens for tokens in split.values())
        rarity = math.log(1 + (len(split) - df + 0.5) / (df + 0.5))
        for i, tokens in split.items():
            if tf := tokens.count(word):
                norm = 1.2 * (0.25 + 0.75 * len(tokens) / average)
                scores[i] = scores.get(i, 0.0) + rarity * tf * 2.2 / (tf + norm)
    return scores


def test_scores_are_those_of_bm25(home: Path) -> None:
    """Weights are kept in steps of a twentieth, so scores agree up to that."""
    texts = many(1, 3_000)
    with of(home, texts) as index:
        for query in ((0,), (30,), (390,), (0, 1), (3, 50), (5, 60, 200), (0, 1, 2, 3, 4), (100, 390, 200)):
            given = [VOCABULARY[i] for i in query]
            exact = bm25(texts, given)
            found = index.find(words(*given), 10)
            assert found.candidates
            tolerance = 0.06 * sum(math.log(1 + len(texts)) for _ in query)
            ranked = sorted(exact.values(), reverse=True)
            for place, candidate in enumerate(found.candidates):
                assert abs(candidate.score - exact[candidate.message_id]) <= tolerance
                assert abs(candidate.score - ranked[place]) <= 2 * tolerance


def test_a_common_word_ranks_but_does_not_select_beside_a_rarer_one(home: Path) -> None:
    texts = dict.fromkeys(range(1, 1_500), "common filler")
    texts |= {2_000: "seldom rare", 2_001: "common rare", 2_002: "seldom rare"}
    with of(home, texts) as index:
        found = [c.message_id for c in index.find(words("common", "rare"), 10).candidates]
        alone = index.find(words("common"), 10)
    assert found[0] == 2_001
    assert sorted(found) == [2_000, 2_001, 2_002]
    assert alone.matches == 1_500
    assert len(alone.candidates) == 10


@of_files
def test_too_many_matches_are_cut_and_said(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.index.file.COMMON_CAP", 1_000)
    texts = dict.fromkeys(range(1, 6_000), "always the same")
    with of(home, texts) as index:
        alone = index.find(words("same"), 5)
        both = index.find(words("same", all_of=((("always",),),)), 5)
    assert [c.message_id for c in alone.candidates] == [5_999, 5_998, 5_997, 5_996, 5_995]
    assert alone.notes
    assert both.notes
    assert alone.matches == 5_999


def phrase(*given: str) -> IndexQuery:
    """Words that must stand side by side."""
    return IndexQuery(any_of=(given,), all_of=((given,),))


def test_phrases_are_scored_as_words_are(home: Path) -> None:
    texts = many(2, 3_000)
    joined = {i: text.replace("waa wab", "both") for i, text in texts.items()}
    exact = bm25(joined, ["both"])
    with of(home, texts) as index:
        found = index.find(phrase("waa", "wab"), 3_000)
    assert {c.message_id for c in found.candidates} == set(exact)
    assert not found.notes
    assert not found.more
    for candidate in found.candidates:  # of two words, and each shard has an average of its own
        assert candidate.score == pytest.approx(exact[candidate.message_id], rel=0.1)


def test_of_a_phrase_that_is_found_often_the_newest_are_ranked_and_that_is_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herma.index.postings.PHRASE_READ", 0)
    texts = many(2, 3_000)
    with of(home, texts) as index:
        few, more = index.find(phrase("waa", "wab"), 10), index.find(phrase("waa", "wab"), 3_000)
        rare = index.find(phrase("waa", "wnx"), 10)
    assert few.notes
    assert few.more
    assert {c.message_id // SHARD for c in few.candidates} <= {2, 3}
    assert len(more.candidates) == sum("waa wab" in text for text in texts.values())
    assert not more.more
    assert len(rare.candidates) == sum("waa wnx" in text for text in texts.values())


def test_a_phrase_of_common_words_that_never_meet_ends_somewhere(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.index.postings.LONE_PHRASE_WORK", 0)
    texts = {1 + shard * SHARD + i: "that which is not this" for shard in range(3) for i in range(60)}
    with of(home, texts) as index:
        found = index.find(phrase("this", "that"), 10)
    assert not found.candidates
    assert not found.more
    assert found.notes
