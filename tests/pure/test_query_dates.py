"""Dates as people write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.dates import read_value, spoken_dates
from herma.search.query import edges, parse

NOW = time.mktime((2026, 11, 18, 15, 30, 0, 0, 0, -1))  # a Wednesday


def day(text: str) -> float:
    return time.mktime(time.strptime(text, "%Y-%m-%d"))


@pytest.mark.parametrize(
    ("text", "since", "before"),
    [
        ("yesterday", "2026-11-17", "2026-11-18"),
        ("the day before yesterday", "2026-11-16", "2026-11-17"),
        ("last week", "2026-11-09", "2026-11-16"),
        ("this month", "2026-11-01", "2026-12-01"),
        ("last month", "2026-10-01", "2026-11-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("in March", "2026-03-01", "2026-04-01"),
        ("in december", "2025-12-01", "2026-01-01"),
        ("in March 2024", "2024-03-01", "2024-04-01"),
        ("on March 5th, 2024", "2024-03-05", "2024-03-06"),
        ("on the 5th of March", "2026-03-05", "2026-03-06"),
        ("on 2026-03-05", "2026-03-05", "2026-03-06"),
        ("in 2025", "2025-01-01", "2026-01-01"),
        ("three days ago", "2026-11-15", "2026-11-16"),
        ("a couple of days ago", "2026-11-16", "2026-11-17"),
        ("on Monday", "2026-11-16", "2026-11-17"),
        ("last Wednesday", "2026-11-11", "2026-11-12"),
        ("我们昨天聊了什么", "2026-11-17", "2026-11-18"),
        ("先週の会議", "2026-11-09", "2026-11-16"),
    ],
)
def test_spoken(text: str, since: str, before: str) -> None:
    (span,) = spoken_dates(text, NOW)
    assert (span.since, span.before) == (day(since), day(before))


@pytest.mark.parametrize(
    "text", ["May I help", "march on", "Monday", "3.11.7", "version 2024", "how many days ago", "the the la"]
)
def test_what_is_no_date(text: str) -> None:
    assert spoken_dates(text, NOW) == []


def test_values() -> None:
    for value, since in (
        *(("2026", "2026-01-01"), ("2026-03", "2026-03-01"), ("2026/3/5", "2026-03-05"), ("yesterday", "2026-11-17")),
        *(("last-week", "2026-11-09"), ("march", "2026-03-01"), ("monday", "2026-11-16"), ("16.11.2026", "2026-11-16")),
        *(("2026-11-16T10:00", "2026-11-16 10:00:00"), ("2026-11-16t10:00:30", "2026-11-16 10:00:30")),
        *(("7d", NOW - 7 * 86_400), ("now", NOW), ("tomorrow", "2026-11-19")),
        *(("2026-11-16T10:00:00Z", 1794823200.0), ("2026-11-16T12:00:00.000+02:00", 1794823200.0)),
    ):
        span = read_value(value, NOW)
        assert span is not None, value
        at = f"{since}" if ":" in f"{since}" else f"{since} 00:00:00"
        expected = time.mktime(time.strptime(at, "%Y-%m-%d %H:%M:%S")) if isinstance(since, str) else since
        assert span.since == expected, value


def test_no_value() -> None:
    for value in (
        *("", "soon", "2026-13", "2026-00-10", "99999-01-01", "d7", "-7d", "0d0"),
        *("2026-02-31", "2026-13-45", "31.02.2026", "2026-11-16T25:00", "9999-99-99t00:00:00z"),  # there never were
        *("31/2/2026", "13/13", "0/5", "1/2/3", "3/5/202"),
    ):
        assert read_value(value, NOW) is None, value


@given(st.text(max_size=80))
def test_no_text_breaks_the_reading_of_dates(text: str) -> None:
    read_value(text, NOW)
    for span in spoken_dates(text, NOW):
        assert text[slice(*span.at)] == span.words


@pytest.mark.parametrize(
    ("asked", "hard", "words"),
    [
        ("what did we discuss last week about rent", [True], ["rent"]),
        ("yesterday", [True], []),
        ("trip to Paris in March", [False], ["trip", "Paris", "March"]),
        ("rent since:2026-03", [True], ["rent"]),
        ("我们昨天聊了房租", [True], ["房租"]),
        ("what certificate did I complete last month", [False], ["certificate", "complete"]),  # not when it was told
        ("在4月29日我们聊了哪些话题呢？", [True], []),
        ("what did we talk about on May 3", [True], []),
        ("the meeting is tomorrow", [], ["meeting", "tomorrow"]),
        ("add 3/5 of a cup", [], ["add", "3/5", "cup"]),
        *((odd, [], [odd]) for odd in ("13月40日", "10月0日")),
    ],
)
def test_a_date_filters_only_where_it_means_the_conversation(asked: str, hard: list[bool], words: list[str]) -> None:
    query = parse(asked, NOW)
    assert [span.hard for span in query.dates] == hard
    assert [str(term) for term in query.any_of] == words


@pytest.mark.parametrize(
    ("ago", "begins"),
    [
        ("2 weeks ago", "2026-11-04"),
        ("two weeks ago", "2026-11-04"),
        ("a week ago", "2026-11-11"),
        ("3 days ago", "2026-11-15"),
        ("3 months ago", "2026-08-18"),
        ("a year ago", "2025-11-18"),
    ],
)
def test_a_filter_begins_exactly_so_long_ago(ago: str, begins: str) -> None:
    (since,) = parse(f'rent since:"{ago}"', NOW).dates
    (before,) = parse(f'rent before:"{ago}"', NOW).dates
    (spoken,) = parse(f"rent since {ago}", NOW).dates
    assert (since.since, since.before) == (day(begins), None)
    assert (before.since, before.before) == (None, day(begins))
    assert spoken.since == day(begins)
    assert [span.since for span in edges(ago, None, NOW)] == [day(begins)]


@pytest.mark.parametrize(
    ("value", "begins", "told"),
    [
        ("2026/03/05", "2026-03-05", False),
        ("05/03/2026", "2026-03-05", True),
        ("5/3/26", "2026-03-05", True),
        ("13/5/2026", "2026-05-13", False),
        ("5/13/2026", "2026-05-13", False),
        ("3/5", "2026-05-03", True),
        ("24/12", "2025-12-24", False),
        ("4/4", "2026-04-04", False),
    ],
)
def test_dates_with_slashes_are_day_and_month_and_the_report_says_so(value: str, begins: str, told: bool) -> None:
    query = parse(f"rent since:{value}", NOW)
    assert [span.since for span in query.dates] == [day(begins)]
    assert [str(term) for term in query.any_of] == ["rent"]
    assert any("was read as day/month" in note for note in query.notes) is told
    assert [span.since for span in edges(value, None, NOW)] == [day(begins)]


@pytest.mark.parametrize(
    ("asked", "since", "days"),
    [
        ("在5月6号我读了一本书", (2026, 5, 6), 1),
        ("5月9日に何を買った", (2026, 5, 9), 1),
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
