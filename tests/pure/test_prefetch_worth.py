"""What is worth telling unasked, and which words of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.expand import read_words, united
from herma.search.prefetch import (
    BY_WORDS,
    FEW,
    MANY,
    QuestionType,
    RecallEvidence,
    chance,
    few,
    model_for,
    question_of,
    question_type,
    rarity,
    stands_out,
    weigh,
)
from herma.search.query import Hit, parse

SHARES = st.floats(0, 1)


@given(SHARES, SHARES, st.integers(1, 30), st.floats(-3, 8) | st.none())
def test_more_evidence_never_counts_less(low: float, high: float, words: int, near: float | None) -> None:
    low, high = sorted((low, high))
    weak = RecallEvidence(low, low, low * words + 0.01, 1 - low, words, near)
    strong = RecallEvidence(high, high, high * words + 0.01, 1 - high, words, near)
    assert 0 <= chance(weak) <= chance(strong) <= 1


def test_nothing_speaks_for_what_has_none_of_the_words_and_the_usual_takes_some_to_know() -> None:
    assert chance(RecallEvidence(words=3, unknown=1.0)) == 0
    assert weigh(set(), set(), {"argon2": 0}, 100).unknown == 1.0
    assert weigh({"argon2"}, {"argon2"}, {"argon2": 1}, 100).covered == 1.0
    assert stands_out(0.9, [0.7] * 3) is None
    assert stands_out(0.9, [0.7] * 40) is None  # no spread: nothing can be said
    assert round(stands_out(0.9, [0.7, 0.8] * 20) or 0.0, 2) == 3.0


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_rarer_words_tell_more_and_a_home_grows_out_of_being_small(one: int, other: int) -> None:
    assert few(min(one, other)) >= few(max(one, other))
    assert (few(FEW), few(MANY)) == (1.0, 0.0)
    messages = max(one, other, 1)
    assert 0 <= rarity(messages, messages) <= rarity(min(one, other), messages) <= 1


@given(st.floats(0, 1), st.floats(0, 1), st.integers(1, 6), st.sampled_from(["", "plain", "own", "run on"]))
def test_a_plain_question_is_told_sooner_in_a_small_home_only(
    beside: float, unknown: float, words: int, asked: QuestionType
) -> None:
    small = RecallEvidence(beside, beside, beside * words, unknown, words, None, asked, 1.0)
    large = replace(small, few=0.0)
    assert model_for(large) == BY_WORDS
    assert model_for(small).least <= BY_WORDS.least
    assert chance(small) >= chance(large)


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("which port does staging use?", "plain"),
        ("Hey, do you remember when the fitter comes?", "plain"),
        ("who is my supervisor?", "own"),
        ("which tiles did we choose?", "own"),
        ("Wann ist mein Termin?", "own"),
        ("Wie heißt der Server?", "plain"),
        ("测试服务器的端口是多少？", "run on"),
        ("how do I run the tests?", "plain"),
        ("what is a port?", ""),
        ("which editor should I use?", ""),
        ("who are you?", ""),
        ("run the tests", ""),
        ("什么是数据库？", ""),
        ("thanks", ""),
        ("what " + "very " * 40 + "long", ""),
        ("", ""),
    ],
)
def test_how_plainly_a_text_asks(text: str, how: QuestionType) -> None:
    assert question_type(text) == how


@given(st.text(max_size=6_000))
def test_any_message_can_be_asked_and_is_no_query(text: str) -> None:
    assert question_of('why -x NOT "y" role:user (a OR b)?') == "why x not y role user a or b ?"
    assert question_of("see https://example.org/a?b now") == "see now"
    assert question_of("before\n```python\nx = 1\n```\nafter") == "before after"
    assert question_of("```\nnever closed") == ""
    assert question_of("begin " + "on and on " * 400 + "end").startswith("begin")
    asked = question_of(text)
    assert len(asked) <= 1_600
    query = parse(asked, 0.0)
    rules = (query.all_of, query.none_of, query.roles, query.sources, query.projects, query.sessions)
    assert not any(rules)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ('{"words": ["sign-in", "SSO", 3]}', ["sign-in", "SSO"]),
        ('Here you are: {"words": ["sso"]} done', ["sso"]),
        ('["sso"]', ["sso"]),
        ("- sso\n- saml", ["sso", "saml"]),
        *((odd, []) for odd in ('{"other": 1}', "{broken", "")),
    ],
)
def test_proposed_words_are_read_with_care(answer: str, words: list[str]) -> None:
    assert read_words(answer) == words


def hit(number: int, conversation: str) -> Hit:
    return Hit(conversation, number, "user", "", 1.0, 0.0, conversation)


def test_other_words_come_last() -> None:
    asked = [hit(n, f"c{n}") for n in range(6)]
    others = [hit(n, f"c{n}") for n in (0, 7, 8, 9)]
    found = united(asked, others, 6, by="session")
    assert [one.message_id for one in found] == [0, 1, 2, 3, 7, 8]
    assert found[-1].why == ("found by other words than asked",)
    assert [one.message_id for one in united(asked[:2], others, 6, by="message")] == [0, 1, 7, 8, 9]
    assert united((), others, 1, by="session")[0].message_id == 0
