"""Who would have told what is asked: named speakers, the first person, a time where the question is when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.match import fold
from herma.search.rank import BY_THEMSELVES, OF_ONESELF, WITH_A_TIME, Candidate
from herma.search.rank import teller_gains as gains


def said(*texts: str, group: str = "c") -> list[Candidate]:
    return [Candidate(id_, group, fold(text)) for id_, text in enumerate(texts, 1)]


def by_users(candidates: list[Candidate]) -> dict[int, str]:
    return {one.id: "user" for one in candidates}


def gained(question: str, *texts: str) -> list[float]:
    candidates = said(*texts)
    found = gains(question, candidates, by_users(candidates))
    return [round(found.get(one.id, 0.0), 6) for one in candidates]


def test_what_somebody_did_is_told_by_themselves() -> None:
    talk = ("Ann: The fence is blue now.", "Bob: The fence of Ann is nice.", "Ann: The gate too.", "Bob: Good.")
    assert gained("Which colour did Ann paint the fence?", *talk) == [BY_THEMSELVES, 0.0, BY_THEMSELVES, 0.0]


def test_a_name_may_be_written_small() -> None:
    talk = ("Ann: The fence is blue.", "Ann: The gate too.")
    assert gained("which colour did ann paint the fence?", *talk) == [BY_THEMSELVES, BY_THEMSELVES]


def test_who_is_named_by_the_whole_name_is_found_by_a_part_of_it() -> None:
    talk = ("Ann Lee: blue.", "Ann Lee: green.")
    assert gained("which colour did ann like?", *talk) == [BY_THEMSELVES, BY_THEMSELVES]


def test_a_colon_alone_makes_no_speaker() -> None:
    assert gained("where is the error of the build?", "Error: no such file.", "the build is red") == [0.0, 0.0]


def test_speakers_are_those_of_one_conversation() -> None:
    candidates = [Candidate(1, "a", "note: buy milk"), Candidate(2, "b", "note: call the bank")]
    assert gains("where is the note about milk?", candidates, by_users(candidates)) == {}


def test_speakers_in_scripts_without_spaces() -> None:
    talk = ("宜庭：總圖三樓", "宜庭：好", "阿哲：總圖一樓")
    assert gained("宜庭提到的地點是什麼", *talk) == [BY_THEMSELVES, BY_THEMSELVES, 0.0]


def test_what_i_did_is_told_in_the_first_person() -> None:
    texts = ("I moved the desk to the window.", "The desk is by the window.", "On Monday we moved the desk.")
    assert gained("Where did I put my desk?", *texts) == [OF_ONESELF, 0.0, OF_ONESELF]


def test_a_question_about_nobody_gives_nothing_to_the_first_person() -> None:
    assert gained("which port does staging use?", "I changed the port.", "the port is 5433") == [0.0, 0.0]


def test_what_others_say_of_themselves_is_not_the_user() -> None:
    candidates = said("I can move the desk for you.")
    assert gains("Where did I put my desk?", candidates, {1: "assistant"}) == {}


@pytest.mark.parametrize("question", ["When was the roof mended?", "what year was the roof mended?", "wann war das?"])
def test_what_happened_when_is_told_with_a_time(question: str) -> None:
    assert gained(question, "the roof was mended last week", "the roof is mended") == [WITH_A_TIME, 0.0]


def test_a_time_is_worth_nothing_where_nobody_asks_when() -> None:
    assert gained("how was the roof mended?", "the roof was mended last week") == [0.0]


@given(st.text(max_size=200), st.lists(st.text(max_size=100), max_size=8))
def test_no_text_breaks_it_and_nothing_is_taken_away(question: str, texts: list[str]) -> None:
    candidates = said(*texts)
    found = gains(question, candidates, by_users(candidates))
    assert all(0 < gain <= BY_THEMSELVES + OF_ONESELF + WITH_A_TIME for gain in found.values())
    assert found.keys() <= {one.id for one in candidates}


def test_long_texts_take_no_longer() -> None:
    candidates = said("a" * 200_000, " " * 200_000, "." * 200_000)
    assert gains("." * 20_000 + " when did I", candidates, by_users(candidates)) == {}
