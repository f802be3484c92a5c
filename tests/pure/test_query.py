"""The query language: any text is a query, and it is read as a person would mean it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from herma.search import dates as when_told
from herma.search.query import MOST_TERMS, Query, describe, parse
from herma.text import strip

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


@pytest.mark.parametrize(
    ("text", "groups", "without"),
    [
        ("(a1 AND b1) OR c1", [["a1", "c1"], ["b1", "c1"]], []),
        ("a1 AND (b1 OR (c1 AND d1))", [["a1"], ["b1", "c1"], ["b1", "d1"]], []),
        ("((a1 AND b1))", [["a1"], ["b1"]], []),
        ("(a1 AND b1", [["a1"], ["b1"]], []),
        ("a1) AND b1)", [["a1"], ["b1"]], []),
        ("a1 NOT (b1 OR c1)", [], ["b1", "c1"]),
        ("a1 -(b1 c1)", [], ["b1", "c1"]),
        ("a1 NOT(b1 OR c1", [], ["b1", "c1"]),
        ("a1 AND NOT (b1 OR (c1 OR d1))", [], ["c1", "d1", "b1"]),
        ("f(x) AND call()", [["f(x"], ["call"]], []),
        ('("a b" OR c1) AND d1', [["“a b”", "c1"], ["d1"]], []),
    ],
)
def test_brackets(text: str, groups: list[list[str]], without: list[str]) -> None:
    query = read(text)
    assert [[str(term) for term in group] for group in query.all_of] == groups
    assert [str(term) for term in query.none_of] == without
    assert not {*query.none_of} & {*query.any_of}


def test_a_bracket_of_all_that_must_not_occur_together_is_read_more_strictly_and_said() -> None:
    query = read("deploy NOT (staging AND canary)")
    assert [str(term) for term in query.none_of] == ["staging", "canary"]
    assert "none of these" in query.notes[0]


NESTED = st.recursive(
    st.sampled_from(["a1", "b2", "c3", "d4"]),
    lambda inner: st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
    max_leaves=8,
)


@given(NESTED, st.sets(st.sampled_from(["a1", "b2", "c3", "d4"])))
def test_groups_say_what_the_brackets_say(tree: Any, there: set[str]) -> None:
    def text(node: Any) -> str:
        return node if isinstance(node, str) else "(" + f" {node[0]} ".join(map(text, node[1])) + ")"

    def holds(node: Any) -> bool:
        if isinstance(node, str):
            return node in there
        return (all if node[0] == "AND" else any)(map(holds, node[1]))

    query = read(text(tree))
    assume(not query.notes)  # more brackets than are followed to the letter
    selected = query.all_of or (query.any_of,)
    assert all(any(term.text in there for term in group) for group in selected) == holds(tree)


MANY_PAIRS = " OR ".join(f"(a{at} AND b{at})" for at in range(1_000))


@pytest.mark.parametrize("text", ["(" * 9_000 + "x1", "(a1 " * 4_000, "a1) " * 4_000, MANY_PAIRS])
def test_no_number_of_brackets_costs_much(text: str) -> None:
    assert read(text).any_of


def test_a_phrase_beside_an_or_is_one_of_two() -> None:
    assert read('"connection reset" OR timeout').all_of == ()
    query = read('"connection reset" OR timeout staging')
    assert [[str(term) for term in group] for group in query.all_of] == [["“connection reset”", "timeout"]]


@pytest.mark.parametrize("text", ["x1 -source:cron", "x1 NOT source:cron", 'x1 -source:"cron"', "x1 NOT (source:cron)"])
def test_a_filter_can_be_turned_round(text: str) -> None:
    query = read(text)
    assert (query.sources, query.excluded, query.none_of) == ((), (("source", "cron"),), ())
    assert "not source cron" in describe(query)
    assert [str(term) for term in query.any_of] == ["x1"]


def test_a_date_can_be_turned_round() -> None:
    (span,) = read("x1 -on:2026-03-05").dates
    assert span.hard
    assert (span.covers(NOW), span.covers((span.since or 0) + 5)) == (True, False)
    assert "read as not 2026-03-05" in describe(read("x1 -on:2026-03-05"))


def test_what_was_typed_is_said_back_in_brief() -> None:
    query = read("x" * 30_000 + " since:" + "y" * 3_000)
    assert len(describe(query)) < 400
    assert all(len(note) < 400 for note in query.notes)


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

    monkeypatch.setattr(when_told, "unframed", unframed)
    found = read("alpha AND beta AND " * 1_000)
    assert len(read_whole) == 1
    assert [[str(term) for term in group] for group in found.all_of] == [["alpha"], ["beta"]]
