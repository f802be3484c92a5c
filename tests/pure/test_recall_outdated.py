"""Which of two messages is possibly outdated: said only where the later one plainly says otherwise."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.contradictions import (
    Claim,
    Spoken,
    asks_for_the_past,
    claims,
    latest_first,
    outdated,
    says_otherwise,
    tells,
    tells_of_a_change,
)
from herma.search.match import fold


def said(*texts: str) -> list[Spoken]:
    return [Spoken(number, fold(text), float(number)) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("My bank is Sparkasse.", "My bank is now Revolut."),
        ("The deadline is Friday.", "We moved the deadline from Friday to Monday because of the audit."),
        ("Our budget is 400 euros.", "The budget was raised to 600 euros."),
        ("I live in Porto.", "I moved to Lyon in spring."),
        ("My time zone is Europe/Berlin.", "My time zone is Asia/Tokyo."),
        ("My favorite coffee is espresso.", "My favorite coffee is flat white now."),
        ("My favourite soup is leek.", "My favourite soup is pumpkin."),
        ("My dentist was Dr Brandt.", "My new dentist is Dr Okafor."),
        (
            "The response time is 300ms.",
            "I work on the response time, which has recently improved to 250ms, and tests.",
        ),
        ("我原本的整理地點想先定在三樓，因為比較安心。", "我後來把整理地點改成系館討論室，舊做法先暫停。"),
        ("我的生日聚会地点是公园", "我把生日聚会地点改成餐厅了"),
        ("我住在台北。", "我搬到高雄了。"),
        ("我在华为工作。", "我现在在腾讯工作。"),
        ("部署目标是fly.io。", "部署目标不再是fly.io，而是hetzner。"),
    ],
)
def test_a_later_claim_about_the_same_thing_makes_the_earlier_one_outdated(earlier: str, later: str) -> None:
    assert outdated(said(earlier, later)) == {1: 2}


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("My bank is Sparkasse.", "My bike is now Revolut red."),
        ("My bank is Sparkasse.", "Is my bank now Revolut?"),
        ("My bank is Sparkasse.", "Maybe my bank is now Revolut."),
        ("My bank is Sparkasse.", "My bank is now Sparkasse Bremen."),
        ("I live in Lyon.", "I lived in Porto."),
        ("The kettle is blue.", "We painted the door green."),
        ("Ana: My bank is Sparkasse.", "Bo: My bank is now Revolut."),
        ("我們打算把地點改成三樓", "我的地點是二樓"),
        ("My bank is Sparkasse.", "```\nmy bank is now Revolut\n```"),
        ("My bank is Sparkasse.", "> my bank is now Revolut"),
    ],
)
def test_what_is_not_plainly_otherwise_is_left_alone(earlier: str, later: str) -> None:
    assert outdated(said(earlier, later)) == {}


PAIRS = [
    line.split("\t")
    for line in (Path(__file__).parent / "disagreements.tsv").read_text("utf-8").splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("part", ["dev", "kept"])
def test_of_labelled_pairs_nearly_all_are_told_right(part: str) -> None:
    """Precision before recall: a wrong mark leads astray, a missing one leaves things as they were."""
    counts = Counter((label, bool(outdated(said(earlier, later)))) for of, label, earlier, later in PAIRS if of == part)
    right, wrong, missed = counts["disagree", True], counts["apart", True], counts["disagree", False]
    assert right + wrong + missed >= 50
    assert right / (right + wrong) >= 0.95
    assert right / (right + missed) >= 0.9


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (
            ["My bank is now Revolut.", "My bank is Sparkasse."],
            {},
        ),  # a change makes nothing outdated that is said later
        (["My bank is A1.", "My bank is now B2.", "My bank is now C3."], {1: 3, 2: 3}),
        (["My bank is A1.", "My bank is now B2.", "My bank is A1 again now."], {2: 3}),  # it holds again
    ],
)
def test_the_order_of_claims_matters(texts: list[str], expected: dict[int, int]) -> None:
    assert outdated(said(*texts)) == expected


def test_another_persons_word_does_not_count() -> None:
    one, two = said("My bank is Sparkasse.", "My bank is now Revolut.")
    assert outdated([one, Spoken(two.id, two.text, two.at, who="somebody else")]) == {}


def test_an_assistant_is_heard_where_it_tells_of_a_change() -> None:
    one = said("The staging port is 5432.")[0]
    did = Spoken(2, fold("Done: I changed the staging port to 5433. Restart the app."), 2.0, role="assistant")
    assert outdated([one, did]) == {1: 2}
    repeats = Spoken(2, fold("Sure. The staging port is 5433."), 2.0, role="assistant")
    assert outdated([one, repeats]) == {}, "what it only repeats it may have wrong"
    yours = Spoken(2, fold("Noted: your bank is now Revolut."), 2.0, role="assistant")
    assert outdated([said("My bank is Sparkasse.")[0], yours]) == {1: 2}
    own = Spoken(2, fold("My bank is now Revolut."), 2.0, role="assistant")
    assert outdated([said("My bank is Sparkasse.")[0], own]) == {}, "its own bank is not the user's"


def test_the_later_comes_before_what_it_makes_outdated() -> None:
    assert latest_first([5, 1, 7, 2], {1: 2}) == [5, 2, 1, 7]
    assert latest_first([2, 1], {1: 2}) == [2, 1]
    assert latest_first([1, 3], {1: 2}) == [1, 3]


def test_the_past_may_be_asked_for() -> None:
    for asked in ("where did I originally keep it", "一開始的地點是什麼", "how has the deadline changed"):
        assert asks_for_the_past(asked), asked
    for asked in ("what is my bank", "目前的地點是什麼"):
        assert not asks_for_the_past(asked), asked


@given(st.text(max_size=400), st.sampled_from(["user", "assistant"]))
def test_any_text_claims_something_or_nothing(text: str, role: str) -> None:
    for claim in claims(fold(text), role):
        assert claim.value or claim.former
        assert claim.thing or claim.former


@given(st.lists(st.integers(0, 9), unique=True), st.dictionaries(st.integers(0, 9), st.integers(0, 9)))
def test_arranging_loses_nobody(order: list[int], by: dict[int, int]) -> None:
    assert sorted(latest_first(order, by)) == sorted(order)


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "the the ",
            "my a b c d e ",
            "我把",
            "改",
            "を",
            "is now ",
            "moved the x from ",
            '"',
            "> ",
            "``` ",
            "is not a, ",
        ),
        *("i ", "we have ", ", which has ", "by the way ", "dr. ", "may "),
    ],
)
def test_long_texts_come_to_an_end(piece: str) -> None:
    assert isinstance(claims(fold(piece * 20_000)), list)
    assert isinstance(outdated(said(*([piece * 300] * 40))), dict)


_WORDS = (
    *[
        "my",
        "our",
        "the",
        "i",
        "we",
        "have",
        "just",
        "bank",
        "deadline",
        "is",
        "are",
        "was",
        "now",
        "new",
        "changed",
        "moved",
        "dropped",
        "rose",
        "relocated",
        "live",
        "in",
    ],
    *["from", "to", "until", "Friday", "not", "port", "5432", "use", "as", "for", "prefer", "over", "joined"],
    *(
        "，",
        ".",
        "把地點改成三樓",
        "現在的地點是",
        "我們的地點定在",
        "我搬到高雄",
        "我住在北京",
        "端口不再是80，而是81",
    ),
    *("pushed back", "went up", "no longer", "any more", "instead of"),
)


@given(st.lists(st.sampled_from(_WORDS), max_size=14).map(" ".join))
def test_what_is_looked_at_first_hides_nothing(text: str) -> None:
    """Sentences that may tell of a change are picked out cheaply: none that does is left out."""
    folded = fold(text)
    telling = [one for one in claims(folded) if (one.new and not one.weak) or one.single]
    if telling:
        assert tells(folded)
    if any(one.new for one in telling):
        assert tells_of_a_change(folded)


@given(st.lists(st.sampled_from(_WORDS), max_size=10).map(" ".join))
def test_nothing_says_otherwise_than_itself(text: str) -> None:
    for one in claims(fold(text)):
        assert not says_otherwise(one, one)


def test_kinds_do_not_mix() -> None:
    where = Claim(frozenset({"meet"}), frozenset({"room"}), "name", "at", new=True)
    when = Claim(frozenset({"meet"}), frozenset({"friday"}), "when", "at")
    assert not says_otherwise(where, when)
