"""Adopting what somebody wrote otherwise: entries of the right size, and not a word lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import decode, join, parse, split

WORD = st.sampled_from(["alpha", "beta", "gamma", "Größe", "日本", "x.", "C#", "end!"])
LINE = st.builds(
    lambda start, words, end: start + " ".join(words) + end,
    st.sampled_from(["", "- ", "* ", "  - ", "# ", "## ", "### ", "1. ", "\t", "```", "> "]),
    st.lists(WORD, max_size=6),
    st.sampled_from(["", " ", " ##", "\r"]),
)
MARKDOWN = st.lists(LINE | st.sampled_from(["", "§", "§ ", "---", "```"]), max_size=20).map("\n".join)
MARKER = re.compile(r"^[ \t]*(?:#{1,6}|[-*+•]|\d{1,3}[.)]|§)[ \t]|[ \t]#+[ \t\r]*$|[§:#`>*+•-]", re.MULTILINE)


def words(text: str) -> set[str]:
    """What was said, apart from signs that only give it a form."""
    return set(MARKER.sub(" ", MARKER.sub(" ", text)).split())


@given(MARKDOWN)
def test_no_word_is_lost(text: str) -> None:
    assert words(text) <= words("\n".join(split(text, 100)))


@given(MARKDOWN | st.text(max_size=200), st.integers(min_value=1, max_value=60))
def test_every_entry_fits_and_can_be_written(text: str, limit: int) -> None:
    entries = split(text, limit)
    assert all(len(entry) <= limit for entry in entries)
    assert parse(join(entries)) == entries
    assert len(set(entries)) == len(entries)


@given(st.text(alphabet="ab \n.", max_size=200), st.integers(min_value=1, max_value=30))
def test_no_letter_is_lost_even_when_words_must_be_cut(text: str, limit: int) -> None:
    """Entries that repeat each other are kept once, so compare what is there, not how often."""
    pieces = {text[index : index + 1] for index in range(len(text))} - set(" \n")
    assert pieces <= set("".join(split(text, limit)))


def test_bullets_become_entries_with_their_heading() -> None:
    text = """# Setup
- Python 3.12
  - with uv
  and a continuation
- make test runs everything

## Style ##
Tabs are wrong.
They always were.

* short lines
1. first
"""
    assert split(text, 500) == [
        "Setup: Python 3.12\n  - with uv\n  and a continuation",
        "Setup: make test runs everything",
        "Style: Tabs are wrong.\nThey always were.",
        "Style: short lines",
        "Style: first",
    ]


@pytest.mark.parametrize(
    ("text", "limit", "entries"),
    [
        ("# Notes\n## Tools\n- make\n# Later", 500, ["Notes", "Tools: make", "Later"]),
        ("# C#\n- typed", 500, ["C#: typed"]),
        ("- not\n- split\n§\n# kept", 500, ["- not\n- split", "# kept"]),  # entries that are there already
        *((code, 500, [code]) for code in ["Build:\n```sh\n# not a heading\n- not a bullet\n```\nafter"]),
        ("One two three. Four five six. Seven.", 20, ["One two three.", "Four five six.", "Seven."]),
        ("aaa bbb ccc ddd", 7, ["aaa bbb", "ccc ddd"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
    ],
)
def test_text_is_cut_where_it_hurts_least(text: str, limit: int, entries: list[str]) -> None:
    assert split(text, limit) == entries


def test_a_very_long_text_is_split_in_one_pass() -> None:
    words = " ".join(map(str, range(200_000)))
    assert " ".join(split(words, 2200)) == words
    assert split("#" + " " * 200_000 + "x #" + " " * 200_000, 2200) == ["x"]


@pytest.mark.parametrize("encoding", ["utf-16", "cp1252", "latin-1", "utf-8-sig"])
def test_other_encodings_are_read(encoding: str) -> None:
    text = "Größe über Café\n§\nnaïve"
    assert parse(decode(text.encode(encoding))) == ["Größe über Café", "naïve"]


def test_each_line_is_read_in_its_own_encoding() -> None:
    mixed = "Größe".encode() + b"\n" + "Café".encode("latin-1") + b"\r\n\xa7\r\n" + "日本".encode()
    assert parse(decode(mixed)) == ["Größe\nCafé", "日本"]


@given(st.binary(max_size=60))
def test_any_bytes_become_text_that_can_be_written(raw: bytes) -> None:
    for entry in split(decode(raw), 50):
        entry.encode("utf-8", "surrogatepass")
        assert len(entry) <= 50
