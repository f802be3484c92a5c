"""The query language: any text is a query, and it is read as a person would mean it."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from herma.index.sync import prepare_query
from herma.search.candidates import terms_of
from herma.search.query import MOST_PARTS, MOST_TERMS, PARTS_IN_ALL, Query, describe, parse

NOW = time.mktime((2026, 11, 18, 15, 30, 0, 0, 0, -1))  # a Wednesday


def read(text: str) -> Query:
    return parse(text, NOW)


def words(text: str) -> list[str]:
    return [str(term) for term in read(text).any_of]


_PIECES = (
    'AND OR NOT " "" - -- -x * a* ** ( ) role: role:user since: on:7d since:0000-00-00 before:99999999d project:, \' ’'
    " 日本 の 吗 😀 last week ago in March three days the il y a vor 2026-13-45 C# x:y:z"
)
PIECES = st.sampled_from([*_PIECES.split(), "\0", "\n", "  ", "\ud800"])


@given(st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=25).map(" ".join), st.lists(PIECES).map("".join)))
@settings(max_examples=400)
def test_any_text_is_a_query(text: str) -> None:
    query = read(text)
    assert query.text == text
    assert describe(query).endswith((".", "…"))
    assert len(query.any_of) <= MOST_TERMS
    assert all(term.text for term in (*query.any_of, *query.none_of))
    assert {term for group in query.all_of for term in group} <= set(query.any_of)


@given(st.text(min_size=1, max_size=60).filter(lambda text: any(one.isalnum() and one.isascii() for one in text)))
def test_nothing_with_letters_or_digits_is_read_as_nothing(text: str) -> None:
    query = read(text)
    assert query.any_of or query.none_of or query.dates or query.roles or query.sessions or query.sources


def test_long_texts_are_cut_and_say_so() -> None:
    for text in ('"' * 100_000, "a " * 50_000, "-" * 100_000, "(" * 100_000, "last " * 20_000, "x:" * 50_000):
        assert any("first" in note for note in read(text).notes)
    many_pairs = " OR ".join(f"(a{at} AND b{at})" for at in range(1_000))
    for text in ("(" * 9_000 + "x1", "(a1 " * 4_000, "a1) " * 4_000, many_pairs):
        assert read(text).any_of, "no number of brackets costs much"


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
    stricter = read("deploy NOT (staging AND canary)")
    assert [str(term) for term in stricter.none_of] == ["staging", "canary"]
    assert "none of these" in stricter.notes[0]


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


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ('"connection reset" OR timeout', []),
        ('"connection reset" OR timeout staging', [["“connection reset”", "timeout"]]),
        ('"a b" "c d" x', [["“a b”", "“c d”"]]),
        ('"a b" AND "c d"', [["“a b”"], ["“c d”"]]),
    ],
)
def test_phrases_must_occur_but_one_of_several_is_enough(text: str, groups: list[list[str]]) -> None:
    assert [[str(term) for term in group] for group in read(text).all_of] == groups


def test_a_filter_or_a_date_can_be_turned_round() -> None:
    for text in ("x1 -source:cron", "x1 NOT source:cron", 'x1 -source:"cron"', "x1 NOT (source:cron)"):
        query = read(text)
        assert (query.sources, query.excluded, query.none_of) == ((), (("source", "cron"),), ())
        assert "not source cron" in describe(query)
        assert words(text) == ["x1"]
    query = read("x1 -on:2026-03-05")
    (span,) = query.dates
    assert (span.hard, span.covers(NOW), span.covers((span.since or 0) + 5)) == (True, True, False)
    assert "read as not 2026-03-05" in describe(query)


def test_filters() -> None:
    query = read('role:me,assistant source:cli project:"my app" session:2026_x timeout')
    assert (query.roles, query.sources, query.projects) == (("user", "assistant"), ("cli",), ("my app",))
    assert query.sessions == ("2026_x",)
    odd = read("role:nobody since:soon http://example.com 12:30")  # what cannot be read is a word, and that is said
    assert [str(term) for term in odd.any_of] == ["role:nobody", "since:soon", "http://example.com", "12:30"]
    assert len(odd.notes) == 2


def test_the_description_says_everything_that_matters_in_brief() -> None:
    sentence = describe(read('"exact words" timeout -staging role:user since:2026-03 what'))
    for part in ("“exact words”", "timeout", "without staging", "role user", "2026-03-01", "Not searched for: what"):
        assert part in sentence
    query = read("x" * 30_000 + " since:" + "y" * 3_000)
    assert len(describe(query)) < 400
    assert all(len(note) < 400 for note in query.notes)


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


LONG = (
    *("a." * 5_000, "a:" * 200, "((a)" * 4_000, "-" + "a." * 490 + " hello", "a." * 400 + "a*", "中文" * 10_000),
    *(
        '"' + "a " * 5_000 + '"',
        '"' + "a." * 5_000 + '" hello',
        '-"' + "a " * 5_000 + '" hello',
        '"' + "中文" * 5_000 + '"',
    ),
    *('"' + "a中" * 5_000 + '"', "中文" * 400 + " AND hello"),
    " ".join(f"{chr(0x4E00 + number)}{'中文' * 100}" for number in range(90)),
    " ".join(f"a.{number}." + "a." * 20 for number in range(300)),
    *(joint.join(f'"{"a " * 30}b{number}"' for number in range(250)) for joint in (" ", " NOT ", " AND ")),
)


@pytest.mark.parametrize("text", LONG, ids=lambda text: text[:12])
def test_the_index_is_asked_for_few_parts_of_phrases_however_long_the_query_is(text: str) -> None:
    """FTS5 compares every part of a phrase with each place of the part before it."""
    asked = prepare_query(terms_of(read(text)))
    every = {one.text for one in (*asked.any_of, *asked.none_of, *(one for group in asked.all_of for one in group))}
    parts = [len(re.findall(r"[^\W_]+", phrase)) for phrase in every]
    assert max(parts) <= MOST_PARTS
    assert sum(count for count in parts if count > 2) <= 2 * PARTS_IN_ALL
    assert every, "something is looked for"


def test_a_query_says_that_a_long_phrase_was_cut_and_ordinary_ones_are_whole() -> None:
    sentence = " ".join(f"word{number}" for number in range(MOST_PARTS))
    assert parse(f'"{sentence}"', NOW).any_of[0].text == sentence
    assert not parse(f'"{sentence}"', NOW).notes
    cut = parse(f'"{sentence} more"', NOW)
    assert cut.any_of[0].text == sentence
    assert cut.notes == (f"Of a very long phrase the first {MOST_PARTS} parts were looked for.",)
    hindi = " ".join(["क्षत्रिय"] * 3 + [f"विद्यार्थी{number}" for number in range(50)])
    assert not parse(hindi, NOW).notes, "a vowel sign divides no word"
    dotted = "src/herma/search/query.py tests/pure/test_query.py 3f2a9b8c-12de-4c1f-9a77-0b1c2d3e4f50"
    assert [term.text for term in parse(dotted, NOW).any_of] == dotted.split()


def test_what_frames_a_question_is_not_looked_for() -> None:
    asked = "Can you list the order in which I brought up different aspects of the boiler across our conversations?"
    found = read(asked)
    assert [str(term) for term in found.any_of] == ["boiler"]
    assert "conversations" in found.ignored
    assert words("a summary of our conversations") != [], "there is nothing else in it"
    assert "order" in words("list the order of the order numbers"), "in the frame and in the question"
    assert words("in order to mount the tent") == ["order", "mount", "tent"]
