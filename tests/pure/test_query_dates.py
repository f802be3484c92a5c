"""Dates as people write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.dates import read_value, spoken_dates
from herma.search.query import parse

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
        ("gestern", "2026-11-17", "2026-11-18"),
        ("letzte Woche", "2026-11-09", "2026-11-16"),
        ("vor drei Tagen", "2026-11-15", "2026-11-16"),
        ("la semaine dernière", "2026-11-09", "2026-11-16"),
        ("il y a 3 jours", "2026-11-15", "2026-11-16"),
        ("ayer", "2026-11-17", "2026-11-18"),
        ("hace dos días", "2026-11-16", "2026-11-17"),
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


@pytest.mark.parametrize(
    ("value", "since"),
    [
        ("2026", "2026-01-01"),
        ("2026-03", "2026-03-01"),
        ("2026/3/5", "2026-03-05"),
        ("yesterday", "2026-11-17"),
        ("last-week", "2026-11-09"),
        ("march", "2026-03-01"),
        ("monday", "2026-11-16"),
    ],
)
def test_values(value: str, since: str) -> None:
    span = read_value(value, NOW)
    assert span is not None
    assert span.since == day(since)


def test_relative_values_count_from_now() -> None:
    span = read_value("7d", NOW)
    assert span is not None
    assert span.since == NOW - 7 * 86_400


@pytest.mark.parametrize("value", ["", "soon", "2026-13", "2026-00-10", "99999-01-01", "d7", "-7d", "0d0"])
def test_no_value(value: str) -> None:
    assert read_value(value, NOW) is None


@given(st.text(max_size=80))
def test_no_text_breaks_the_reading_of_dates(text: str) -> None:
    read_value(text, NOW)
    for span in spoken_dates(text, NOW):
        assert text[slice(*span.at)] == span.words


def test_a_date_filters_only_where_it_means_the_conversation() -> None:
    assert [span.hard for span in parse("what did we discuss last week about rent", NOW).dates] == [True]
    assert [span.hard for span in parse("yesterday", NOW).dates] == [True]
    assert [span.hard for span in parse("trip to Paris in March", NOW).dates] == [False]
    assert [span.hard for span in parse("rent since:2026-03", NOW).dates] == [True]


def test_words_of_a_relative_date_are_not_looked_for() -> None:
    assert [str(term) for term in parse("what did we discuss last week about rent", NOW).any_of] == ["rent"]
    assert [str(term) for term in parse("trip to Paris in March", NOW).any_of] == ["trip", "Paris", "March"]
    assert [str(term) for term in parse("我们昨天聊了房租", NOW).any_of] == ["房租"]


@pytest.mark.parametrize(
    ("value", "moment"),
    [
        ("2026-11-16T10:00", "2026-11-16 10:00:00"),
        ("2026-11-16t10:00:30", "2026-11-16 10:00:30"),
        ("2026-11-16 10:00:30", "2026-11-16 10:00:30"),
        ("16.11.2026", "2026-11-16 00:00:00"),
    ],
)
def test_moments_as_programs_write_them(value: str, moment: str) -> None:
    span = read_value(value, NOW)
    assert span is not None
    assert span.since == time.mktime(time.strptime(moment, "%Y-%m-%d %H:%M:%S"))


def test_moments_with_an_offset() -> None:
    utc, east = read_value("2026-11-16T10:00:00Z", NOW), read_value("2026-11-16T12:00:00.000+02:00", NOW)
    assert utc is not None
    assert east is not None
    assert utc.since == east.since == 1794823200.0


@pytest.mark.parametrize(
    "value", ["2026-02-31", "2026-13-45", "31.02.2026", "2026-11-16T25:00", "9999-99-99t00:00:00z"]
)
def test_days_that_there_never_were_are_no_dates(value: str) -> None:
    assert read_value(value, NOW) is None


def test_now_and_tomorrow_are_dates_of_filters_only() -> None:
    now, tomorrow = read_value("now", NOW), read_value("tomorrow", NOW)
    assert now is not None
    assert now.since == NOW
    assert tomorrow is not None
    assert tomorrow.since is not None
    assert NOW < tomorrow.since < NOW + 86_400
    assert parse("the meeting is tomorrow", NOW).dates == ()
