"""Which of two messages is possibly outdated: said only where the later one plainly says otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.contradictions import Spoken, asks_for_the_past, claims, contradicts, latest_first, outdated
from herma.search.match import fold


def said(*texts: str) -> list[Spoken]:
    return [Spoken(number, fold(text), float(number)) for number, text in enumerate(texts, 1)]


def test_labelled_pairs_are_told_right() -> None:
    lines = (Path(__file__).parent / "disagreements.tsv").read_text("utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if line and not line.startswith("#")]
    wrong = [pair for pair in pairs if (outdated(said(*pair[1:])) == {1: 2}) is not (pair[0] == "disagree")]
    assert wrong == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["My bank is now Revolut.", "My bank is Sparkasse."], {}),  # a change makes nothing later outdated
        (["My bank is A1.", "My bank is now B2.", "My bank is now C3."], {1: 3, 2: 3}),
        (["My bank is A1.", "My bank is now B2.", "My bank is A1 again now."], {2: 3}),  # it holds again
        (["My time zone is Europe/Berlin.", "My time zone is Asia/Tokyo."], {1: 2}),  # there is only one
        (["My bank is Sparkasse.", "My bank is now Sparkasse Bremen."], {}),  # says more of the same
        (["Ana: My bank is Sparkasse.", "Bo: My bank is now Revolut."], {}),
        (["Ana: My bank is Sparkasse.", "Ana: My bank is now Revolut."], {1: 2}),
        (["My bank is Sparkasse.", "```\nmy bank is now Revolut\n```"], {}),
        (["My bank is Sparkasse.", "> my bank is now Revolut"], {}),
        (["我原本的整理地點想先定在三樓，因為比較安心。", "我後來把整理地點改成系館討論室，舊做法先暫停。"], {1: 2}),
    ],
)
def test_order_speaker_and_quotation_matter(texts: list[str], expected: dict[int, int]) -> None:
    assert outdated(said(*texts)) == expected


def test_another_users_word_does_not_count() -> None:
    one, two = said("My bank is Sparkasse.", "My bank is now Revolut.")
    assert outdated([one, two._replace(who="somebody else")]) == {}


@pytest.mark.parametrize(
    ("earlier", "reply", "counts"),
    [
        ("The staging port is 5432.", "Done: I changed the staging port to 5433. Restart the app.", True),
        ("The staging port is 5432.", "Sure. The staging port is 5433.", False),  # what it repeats it may have wrong
        ("My bank is Sparkasse.", "Noted: your bank is now Revolut.", True),
        ("My bank is Sparkasse.", "My bank is now Revolut.", False),  # its own bank is not the user's
    ],
)
def test_an_assistant_is_heard_where_it_tells_of_a_change(earlier: str, reply: str, counts: bool) -> None:
    one, two = said(earlier, reply)
    assert outdated([one, two._replace(role="assistant")]) == ({1: 2} if counts else {})


def test_the_later_comes_before_what_it_makes_outdated() -> None:
    assert latest_first([5, 1, 7, 2], {1: 2}) == [5, 2, 1, 7]
    assert latest_first([2, 1], {1: 2}) == [2, 1]
    assert latest_first([1, 3], {1: 2}) == [1, 3]


@given(st.lists(st.integers(0, 9), unique=True), st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_arranging_loses_nobody(order: list[int], by: dict[int, int]) -> None:
    assert sorted(latest_first(order, by)) == sorted(order)


def test_the_past_may_be_asked_for() -> None:
    for asked in ("where did I originally keep it", "一開始的地點是什麼", "how has the deadline changed"):
        assert asks_for_the_past(asked), asked
    for asked in ("what is my bank", "目前的地點是什麼"):
        assert not asks_for_the_past(asked), asked


@given(st.text(max_size=400), st.sampled_from(["user", "assistant"]))
def test_no_text_contradicts_itself(text: str, role: str) -> None:
    for one in claims(fold(text), role):
        assert not contradicts(one, one)


_PIECES = (
    "the the ",
    "my a b c d e ",
    "我把",
    "改",
    "is now ",
    "moved the x from ",
    '"',
    "> ",
    "``` ",
    "i ",
    "by the way ",
)


@pytest.mark.parametrize("piece", _PIECES)
def test_long_texts_come_to_an_end(piece: str) -> None:
    assert isinstance(claims(fold(piece * 20_000)), list)
    assert isinstance(outdated(said(*([piece * 300] * 40))), dict)
