"""The query language: any text is a query, and it is read as a person would mean it."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.recall import query
from herma.recall.query import MOST_TERMS, Query, describe, parse, strip

NOW = time.mktime((2026, 11, 18, 15, 30, 0, 0, 0, -1))  # a Wednesday


def read(text: str) -> Query:
    return parse(text, NOW)


def words(text: str) -> list[str]:
    return [str(term) for term in read(text).any_of]


PIECES = st.sampled_from(
    [
        *(
            "AND",
            "OR",
            "NOT",
            '"',
            '""',
            "-",
            "--",
            "-x",
            "*",
            "a*",
            "**",
            "(",
            ")",
            "role:",
            "role:user",
            "since:",
            "on:7d",
        ),
        *(
            "since:0000-00-00",
            "before:99999999d",
            "project:,",
            "'",
            "’",
            "\0",
            "\n",
            "  ",
            "日本",
            "の",
            "吗",
            "😀",
            "\ud800",
        ),
        *(
            "last",
            "week",
            "ago",
            "in",
            "March",
            "three",
            "days",
            "the",
            "il",
            "y",
            "a",
            "vor",
            "2026-13-45",
            "C#",
            "x:y:z",
        ),
    ]
)


@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=25).map(" ".join), st.lists(PIECES).map("".join)))
@settings(max_examples=400)
def test_any_text_is_a_query(text: str) -> None:
    query = read(text)
    assert query.text == text
    assert describe(query).endswith((".", "…"))
    assert len(query.any_of) <= MOST_TERMS
    assert all(term.text for term in (*query.any_of, *query.none_of))
    required = {term for group in query.all_of for term in group}
    assert required <= set(query.any_of)


@given(st.text(min_size=1, max_size=60))
def test_nothing_with_letters_or_digits_is_read_as_nothing(text: str) -> None:
    query = read(text)
    if any(letter.isalnum() and letter.isascii() for letter in text):
        assert query.any_of or query.none_of or query.dates or query.roles or query.sessions or query.sources
    else:
        describe(query)


@pytest.mark.parametrize(
    "text", ['"' * 100_000, "a " * 50_000, "-" * 100_000, "(" * 100_000, "last " * 20_000, "x:" * 50_000]
)
def test_long_texts_are_cut_and_say_so(text: str) -> None:
    query = read(text)
    assert any("first" in note for note in query.notes)


@pytest.mark.parametrize("symbol", list("'/@#,%$?!\\~[]=;|&-+{}():^*<>.\"`"))
def test_punctuation_does_no_harm(symbol: str) -> None:
    assert words(f"plan{symbol}") in (["plan"], [f"plan{symbol}"])
    assert any("plan" in word for word in words(f"{symbol} plan {symbol}"))
    assert words(f"{symbol}plan")[:1] in (["plan"], [f"{symbol}plan"]) or read(f"{symbol}plan").none_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("what's the docker config?", ["docker", "config"]),
        (
            "foo/bar.py user@example.com C# C++ .env config.",
            ["foo/bar.py", "user@example.com", "C#", "C++", ".env", "config"],
        ),
        ("cats or dogs", ["cats", "dogs"]),
        ("Where did Melanie's kids go?", ["Melanie", "kids"]),
        ("is IT broken in the US?", ["IT", "broken", "US"]),
        ("write it in Go", ["write", "Go"]),
        ("was ist mit dem Vertrag", ["Vertrag"]),
        ("où est l'école ?", ["école"]),
        ("the who", ["the", "who"]),
        ("AND OR", ["AND", "OR"]),
        ("总图在哪里？", ["总图在"]),
        ("吗", ["吗"]),
        ("git log --oneline -n", ["git", "log", "--oneline", "-n"]),
        ("deploy*", ["deploy*"]),
        ("😀", ["😀"]),
        ('"unbalanced phrase', ["unbalanced", "phrase"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_operators() -> None:
    query = read('login AND (sso OR saml) NOT okta -"dry run"')
    assert [[str(term) for term in group] for group in query.all_of] == [["login"], ["sso", "saml"]]
    assert [str(term) for term in query.none_of] == ["okta", "“dry run”"]


def test_phrases_must_occur_but_one_of_several_is_enough() -> None:
    assert [[str(term) for term in group] for group in read('"a b" "c d" x').all_of] == [["“a b”", "“c d”"]]
    assert [[str(term) for term in group] for group in read('"a b" AND "c d"').all_of] == [["“a b”"], ["“c d”"]]


def test_filters() -> None:
    query = read('role:me,assistant source:cli project:"my app" session:2026_x timeout')
    assert (query.roles, query.sources, query.projects) == (("user", "assistant"), ("cli",), ("my app",))
    assert query.sessions == ("2026_x",)
    assert words("role:me timeout") == ["timeout"]


def test_filters_that_cannot_be_read_are_words_and_said() -> None:
    query = read("role:nobody since:soon http://example.com 12:30")
    assert [str(term) for term in query.any_of] == ["role:nobody", "since:soon", "http://example.com", "12:30"]
    assert len(query.notes) == 2


def test_the_description_says_everything_that_matters() -> None:
    sentence = describe(read('"exact words" timeout -staging role:user since:2026-03 what'))
    for part in ("“exact words”", "timeout", "without staging", "role user", "2026-03-01", "Not searched for: what"):
        assert part in sentence


@given(st.text(max_size=40))
def test_stripping_twice_changes_nothing_more(word: str) -> None:
    once = strip(word)
    assert len(once) <= len(word)
    assert strip(once) == once or "'" in word


@pytest.mark.parametrize(
    ("unquoted", "quoted"),
    [
        ("login since:last week", 'login since:"last week"'),
        ("since:3 days ago login", 'since:"3 days ago" login'),
        ("since:last week, login bug", 'since:"last week" login bug'),
        ("login before:last month -staging", 'login before:"last month" -staging'),
        ("on:5 March login", 'on:"5 March" login'),
    ],
)
def test_a_date_of_several_words_needs_no_quotes(unquoted: str, quoted: str) -> None:
    one, other = read(unquoted), read(quoted)
    assert [(span.since, span.before, span.hard) for span in one.dates] == [
        (span.since, span.before, span.hard) for span in other.dates
    ]
    assert one.dates
    assert (one.any_of, one.none_of, one.notes) == (other.any_of, other.none_of, ())


def test_a_date_takes_no_words_that_are_not_its_own() -> None:
    query = read("since:yesterday week plan")
    assert [str(term) for term in query.any_of] == ["week", "plan"]
    assert [str(term) for term in read('since:last "week plan"').any_of] == ["since:last", "“week plan”"]


def test_many_parts_cost_what_their_text_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frame of the question is looked for once, not once for each part; a part said twice is asked for once."""
    read_whole: list[str] = []

    def unframed(text: str) -> str:
        read_whole.append(text)
        return text

    monkeypatch.setattr(query, "unframed", unframed)
    found = read("alpha AND beta AND " * 1_000)
    assert len(read_whole) == 1
    assert [[str(term) for term in group] for group in found.all_of] == [["alpha"], ["beta"]]
