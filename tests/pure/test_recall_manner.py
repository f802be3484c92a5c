"""What frames a question, what is said for all times; dates of East Asia."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.query import Query, parse
from herma.search.rank import STANDING, lasting
from herma.text import unframed

NOW = time.mktime((2026, 5, 8, 12, 0, 0, 0, 0, -1))


def words(query: Query) -> list[str]:
    return [term.text for term in query.any_of]


def test_what_frames_a_question_is_not_looked_for() -> None:
    asked = "Can you list the order in which I brought up different aspects of the boiler across our conversations?"
    found = parse(asked, NOW)
    assert words(found) == ["boiler"]
    assert "conversations" in found.ignored
    assert words(parse("a summary of our conversations", NOW)) != [], "there is nothing else in it"
    assert "order" in words(parse("list the order of the order numbers", NOW)), "in the frame and in the question"
    assert words(parse("in order to mount the tent", NOW)) == ["order", "mount", "tent"]


@given(st.text(max_size=300))
def test_unframing_never_fails_and_never_adds(text: str) -> None:
    assert len(unframed(text)) <= len(text)


@pytest.mark.parametrize(
    ("said", "worth"),
    [
        ("always answer in metric units.", STANDING),
        ("from now on, call me kit", STANDING),
        ("以后都用表格回答", STANDING),
        ("we always went to the lake", 0.0),
        ("the kettle is blue", 0.0),
        ("always " + "x" * 1000, 0.0),
    ],
)
def test_what_is_said_for_all_times_is_worth_more(said: str, worth: float) -> None:
    assert lasting(said) == worth


@pytest.mark.parametrize(
    ("asked", "since", "days"),
    [
        ("在5月6号我读了一本书", (2026, 5, 6), 1),
        ("5月9日に何を買った", (2025, 5, 9), 1),
        ("2024年3月的计划", (2024, 3, 1), 31),
        ("3월 2일에 산 자전거", (2026, 3, 2), 1),
    ],
)
def test_east_asian_dates_prefer_their_day(asked: str, since: tuple[int, int, int], days: int) -> None:
    span = parse(asked, NOW).soft_dates[0]
    assert time.localtime(span.since)[:3] == since
    assert span.before is not None
    assert span.since is not None
    assert round((span.before - span.since) / 86_400) == days


@pytest.mark.parametrize("asked", ["13月40日", "0月", "10月0日"])
def test_what_is_no_day_is_no_date(asked: str) -> None:
    assert parse(asked, NOW).dates == ()


@pytest.mark.parametrize(
    "asked", ["在4月29日我们聊了哪些话题呢？", "what did we talk about on May 3", "what did we do last week"]
)
def test_when_nothing_but_a_day_is_asked_for_it_filters(asked: str) -> None:
    found = parse(asked, NOW)
    assert len(found.hard_dates) == 1
    assert found.any_of == ()


def test_when_something_happened_is_not_when_it_was_told() -> None:
    found = parse("what certificate did I complete last month", NOW)
    assert found.hard_dates == ()
    assert len(found.soft_dates) == 1
