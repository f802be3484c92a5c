"""Who would have told what is asked: named speakers and the first person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.match import fold
from herma.search.rank import BY_THEMSELVES, OF_ONESELF, Candidate
from herma.search.rank import speaker_boost as gains


def said(*texts: str, group: str = "c") -> list[Candidate]:
    return [Candidate(id_, group, fold(text)) for id_, text in enumerate(texts, 1)]


def by_users(candidates: list[Candidate]) -> dict[int, str]:
    return {one.id: "user" for one in candidates}


def gained(question: str, *texts: str) -> list[float]:
    candidates = said(*texts)
    found = gains(question, candidates, by_users(candidates))
    return [round(found.get(one.id, 0.0), 6) for one in candidates]


def test_speakers_are_those_of_one_conversation() -> None:
    candidates = [Candidate(1, "a", "note: buy milk"), Candidate(2, "b", "note: call the bank")]
    assert gains("where is the note about milk?", candidates, by_users(candidates)) == {}


TOLD, OWN = BY_THEMSELVES, OF_ONESELF


@pytest.mark.parametrize(
    ("question", "texts", "gains_"),
    [
        (
            "Which colour did Ann paint the fence?",
            ["Ann: The fence is blue now.", "Bob: The fence of Ann is nice.", "Ann: The gate too.", "Bob: Good."],
            [TOLD, 0.0, TOLD, 0.0],
        ),
        ("which colour did ann paint the fence?", ["Ann: The fence is blue.", "Ann: The gate too."], [TOLD, TOLD]),
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
def test_what_somebody_did_is_told_by_themselves(question: str, texts: list[str], gains_: list[float]) -> None:
    assert gained(question, *texts) == gains_


def test_what_others_say_of_themselves_is_not_the_user() -> None:
    candidates = said("I can move the desk for you.")
    assert gains("Where did I put my desk?", candidates, {1: "assistant"}) == {}


@given(st.text(max_size=200), st.lists(st.text(max_size=100), max_size=8))
def test_no_text_breaks_it_and_nothing_is_taken_away(question: str, texts: list[str]) -> None:
    candidates = said(*texts)
    found = gains(question, candidates, by_users(candidates))
    assert all(0 < gain <= BY_THEMSELVES + OF_ONESELF for gain in found.values())
    assert found.keys() <= {one.id for one in candidates}


def test_long_texts_take_no_longer() -> None:
    candidates = said("a" * 200_000, " " * 200_000, "." * 200_000)
    assert gains("." * 20_000 + " when did I", candidates, by_users(candidates)) == {}
