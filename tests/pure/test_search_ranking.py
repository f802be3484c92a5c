"""What counts for a message: words, neighbours, meaning, speakers, phrasing, similar words, and a second opinion."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.match import fold, units
from herma.search.query import parse
from herma.search.rank import (
    BY_THEMSELVES,
    LEAST_SPREAD,
    MEANING,
    NEARER,
    NEAREST,
    OF_ONESELF,
    READS,
    STANDING,
    Candidate,
    by_cosine,
    character_boost,
    characters_of,
    fuse,
    lasting,
    near_enough,
    opinion,
    rank,
    rarities,
    shares,
    similar_word_boost,
    speaker_boost,
    weigh,
)

LOOKED_FOR = units(parse("apple pear", 0.0))
TEXTS = st.lists(st.text(max_size=100), max_size=6)


def one(id_: int, text: str = "", found: float = 0.0, group: str = "", **more: float) -> Candidate:
    return Candidate(id_, group or f"g{id_}", fold(text), found, **more)  # type: ignore[arg-type]


def said(*texts: str, group: str = "c") -> list[Candidate]:
    return [one(id_, text, group=group, own=1.0) for id_, text in enumerate(texts, 1)]


# ── by words ──


def test_the_better_match_comes_first_and_of_equals_the_newest() -> None:
    ranked = rank([one(1, "apple", 1.0), one(2, "apple pear", 2.0), one(3, "apple", 1.0, timestamp=9.0)], LOOKED_FOR)
    assert [candidate.id for candidate in ranked] == [2, 3, 1]


def test_turns_beside_a_match_and_terms_elsewhere_in_the_conversation_count() -> None:
    alone, match = one(1, "apple", 1.0), one(2, "apple", 1.0, "g", before=3)
    ranked = rank([alone, match, one(3, "nothing of that", 0.0, "g", after=2)], LOOKED_FOR)
    assert [candidate.id for candidate in ranked] == [2, 1, 3]
    assert ranked[-1].score > 0
    here, half = [one(1, "apple", 1.0, "full"), one(2, "pear", 1.0, "full")], one(3, "apple", 1.0, "half")
    assert rank([*here, half], LOOKED_FOR)[-1] is half


def test_a_rarer_word_is_worth_more_in_the_scale_of_the_index() -> None:
    candidates = [one(1, "apple", 4.0), one(2, "pear", 1.0), one(3, "pear", 1.0), one(4, "pear pear", 1.2)]
    weigh(candidates, LOOKED_FOR)
    worth = rarities(candidates)
    assert worth["appl"] > 2 * worth["pear"]
    told = sum(weight * worth[name] for each in candidates for name, weight in each.weights.items())
    assert told == pytest.approx(7.2)


@given(st.lists(st.tuples(st.text("applear ", max_size=30), st.floats(0, 50)), max_size=30))
def test_any_candidates_can_be_ranked(given_: list[tuple[str, float]]) -> None:
    candidates = [
        one(id_, text, found, f"g{id_ % 3}", before=id_ - 1, after=id_ + 1)
        for id_, (text, found) in enumerate(given_, 1)
    ]
    ranked = rank(candidates, LOOKED_FOR)
    assert sorted(each.id for each in ranked) == sorted(each.id for each in candidates)
    scores = [each.score for each in ranked]
    assert all(score >= 0 for score in scores)
    assert scores == sorted(scores, reverse=True)


# ── by meaning ──


def test_the_nearest_is_worth_one_and_the_last_nothing() -> None:
    assert shares([(1, 0.9), (2, 0.8), (3, 0.7)]) == {1: 1.0, 2: pytest.approx(0.5), 3: 0.0}
    assert shares([(1, 0.80), (2, 0.79)])[2] == pytest.approx(1 - 0.01 / LEAST_SPREAD), "close together"
    assert len(shares([(number, 1 - number / 1000) for number in range(200)])) == NEAREST


@given(st.lists(st.floats(-1, 1, allow_nan=False), max_size=100))
def test_shares_lie_between_nothing_and_one_in_the_order_of_the_cosines(cosines: list[float]) -> None:
    found = list(shares(list(enumerate(sorted(cosines, reverse=True)))).values())
    assert all(0.0 <= share <= 1.0 for share in found)
    assert found == sorted(found, reverse=True)


def test_what_words_and_meaning_add() -> None:
    ranked = fuse([one(1, score=0.3), one(2)], {2: 1.0})
    assert [each.id for each in ranked] == [2, 1], "a message without the words can come first"
    assert ranked[0].meaning == pytest.approx(MEANING)
    words = [one(1, score=0.3), one(2, score=0.2)]
    assert fuse(words, {}) == words
    alone = by_cosine([one(1, score=9.0), one(2, score=0.1), one(3, score=5.0)], {1: 0.7, 2: 0.9})
    assert [(each.id, each.score) for each in alone] == [(2, 0.9), (1, 0.7)], "by meaning alone words do not count"


@given(st.floats(0, 1), st.floats(0, 1))
def test_less_trust_never_adds(near: float, trust: float) -> None:
    full, less = (fuse([one(1, score=0.5)], {1: near}, by)[0].score for by in (1.0, trust))
    assert 0.5 <= less <= full


def test_without_words_more_nearness_is_asked_for_and_the_more_the_larger_the_home() -> None:
    few, many = near_enough(8, alone=True), near_enough(2_000, alone=True)
    assert few < many
    assert near_enough(2_000, alone=False) == NEARER < many
    assert near_enough(2, alone=False) == near_enough(2, alone=True) < NEARER


# ── boosts ──


@pytest.mark.parametrize(
    ("question", "characters"),
    [
        ("流れる物体", ["流", "物", "体"]),
        ("王位を継承した", ["王", "位", "継", "承"]),
        *(("王位", []), ("どこですか", []), ("the plumber", [])),
    ],
)
def test_the_characters_of_a_question(question: str, characters: list[str]) -> None:
    assert characters_of(parse(question, 0.0))[: len(characters) or None] == characters


def test_what_says_the_same_with_other_endings_comes_first() -> None:
    flowing, falling = said("流体の位置を水頭という", "落下するものを表している")
    found = character_boost(["流", "物", "体"], [flowing, falling])
    assert found[flowing.id] > found[falling.id]
    rare, *rest = said("水流", "水車", "水道", "水門")
    found = character_boost(["水", "流"], [rare, *rest])
    assert all(found[rare.id] > found[each.id] for each in rest)
    first, second = said("流体", "固体")
    first.own, second.own = 4.0, 2.0
    assert 1.0 + character_boost(["流", "体"], [first, second])[first.id] == pytest.approx(1.0), "the best stays one"
    nothing = said("流体")
    nothing[0].own = 0.0
    assert character_boost([], said("流体")) == character_boost(["流"], []) == character_boost(["流"], nothing) == {}


TOLD, OWN = BY_THEMSELVES, OF_ONESELF


@pytest.mark.parametrize(
    ("question", "texts", "gains"),
    [
        (
            "Which colour did Ann paint the fence?",
            ["Ann: The fence is blue now.", "Bob: The fence of Ann is nice.", "Ann: The gate too.", "Bob: Good."],
            [TOLD, 0.0, TOLD, 0.0],
        ),
        ("which colour did ann like?", ["Ann Lee: blue.", "Ann Lee: green."], [TOLD, TOLD]),  # a part of the name
        ("where is the error of the build?", ["Error: no such file.", "the build is red"], [0.0, 0.0]),
        ("宜庭提到的地點是什麼", ["宜庭：總圖三樓", "宜庭：好", "阿哲：總圖一樓"], [TOLD, TOLD, 0.0]),
        (
            "Where did I put my desk?",
            ["I moved the desk to the window.", "The desk is by the window.", "On Monday we moved the desk."],
            [OWN, 0.0, OWN],
        ),
        ("which port does staging use?", ["I changed the port.", "the port is 5433"], [0.0, 0.0]),
    ],
)
def test_what_somebody_did_is_told_by_themselves(question: str, texts: list[str], gains: list[float]) -> None:
    candidates = said(*texts)
    found = speaker_boost(question, candidates, {each.id: "user" for each in candidates})
    assert [found.get(each.id, 0.0) for each in candidates] == pytest.approx(gains)


def test_assistants_speak_of_themselves_and_a_label_is_no_speaker() -> None:
    assert speaker_boost("Where did I put my desk?", said("I can move the desk for you."), {1: "assistant"}) == {}
    notes = [one(1, "note: buy milk"), one(2, "note: call the bank")]  # in two conversations
    assert speaker_boost("where is the note about milk?", notes, {1: "user", 2: "user"}) == {}


def similar(question: str, *texts: str) -> list[float]:
    query = parse(question, 0.0)
    candidates = [one(id_, text) for id_, text in enumerate(texts, 1)]
    for each in candidates:
        each.found = float(any(unit.find(each.folded, 1) for unit in units(query)))
    found = similar_word_boost(query, rank(candidates, units(query)))
    return [found.get(each.id, 0.0) for each in candidates]


@pytest.mark.parametrize(
    ("question", "texts", "moved"),
    [
        ("Which museum did the kids like?", ["kids museum", "the children's museum", "museum"], [False, True, False]),
        ("How much did I spend on fruit?", ["I spent 20 on fruit", "I saw 20 on fruit"], [True, False]),
        ("Which museum did the kids like?", ["museum", "a childlike museum, unspent"], [False, False]),
        ("Did Grocery come to the talks?", ["talks", "the supermarket of the talks"], [False, False]),  # a name
    ],
)
def test_similar_words_count_and_names_stand_for_themselves(question: str, texts: list[str], moved: list[bool]) -> None:
    assert [gain > 0.0 for gain in similar(question, *texts)] == moved


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        *(("always answer in metric units.", STANDING), ("from now on, call me kit", STANDING)),
        *(("以后都用表格回答", STANDING), ("we always went to the lake", 0.0), ("the kettle is blue", 0.0)),
        ("always " + "x" * 1000, 0.0),
    ],
)
def test_what_is_said_for_all_times_is_worth_more(text: str, worth: float) -> None:
    assert lasting(text) == worth


@given(st.text(max_size=200), TEXTS)
def test_no_text_breaks_a_boost(question: str, texts: list[str]) -> None:
    candidates, query = said(*texts), parse(question, 0.0)
    spoken = speaker_boost(question, candidates, {each.id: "user" for each in candidates})
    assert all(0 < gain <= BY_THEMSELVES + OF_ONESELF for gain in spoken.values())
    assert all(-1.0 <= gain <= 1.0 for gain in character_boost(characters_of(query), candidates).values())
    assert all(gain >= 0.0 for gain in similar(question, *texts))


def test_long_texts_take_no_longer() -> None:
    candidates = said("a" * 200_000, " " * 200_000, "." * 200_000)
    assert speaker_boost("." * 20_000 + " when did I", candidates, {1: "user", 2: "user", 3: "user"}) == {}


# ── a second opinion ──


class Scripted:
    """Answers what it is told to."""

    def __init__(self, answer: Callable[[Sequence[str]], Sequence[float]]) -> None:
        self._answer = answer

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        assert question == "which"
        return self._answer(texts)


def test_a_rerankers_order_is_taken_equals_stay_and_long_texts_are_cut() -> None:
    right = Scripted(lambda texts: [1.0 if "right" in text else 0.0 for text in texts])
    assert opinion(right, "which", ["a", "b", "the right one", "d"], 5.0) == ([2, 0, 1, 3], "")
    assert opinion(right, "which", ["a", "x" * READS + "right"], 5.0) == ([0, 1], "")


def test_a_reranker_that_fails_or_is_late_leaves_the_order_and_that_is_told() -> None:
    go = threading.Event()

    def fail(_: Sequence[str]) -> Sequence[float]:
        raise RuntimeError("out of memory")

    def wait(texts: Sequence[str]) -> Sequence[float]:
        go.wait(30)
        return [0.0] * len(texts)

    cases: list[tuple[Callable[[Sequence[str]], Sequence[float]], float, str]] = [
        *(
            (lambda _, answer=answer: answer, 5.0, "one number for each text")
            for answer in ([], [1.0], [1.0, float("nan")])
        ),
        (fail, 5.0, "out of memory"),
        (wait, 0.01, "no answer within 0.01 s"),
    ]
    for answer, deadline, told in cases:
        order, note = opinion(Scripted(answer), "which", ["a", "b"], deadline)
        assert order == []
        assert told in note
    go.set()
