"""What the long tail has for a turn: what helps, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.archive import archive_terms, helps, says_something, weigh

ENTRY = "The staging database listens on port 5433 and is reset every night."


def recalls(question: str, entry: str = ENTRY, cosine: float | None = None) -> bool:
    asked, said = archive_terms(question), archive_terms(entry)
    return helps(weigh(asked, said, cosine), asked, dict.fromkeys(said, 1), 1)


@pytest.mark.parametrize(
    "question",
    [
        "which port does the staging database have?",
        "staging database",
        "Please connect to the database on staging and count the orders",
        "port 5433",
    ],
)
def test_what_is_asked_for_is_recalled(question: str) -> None:
    assert recalls(question)
    assert recalls("测试数据库的端口是多少？", "测试数据库的端口是 5433。")


@pytest.mark.parametrize(
    "question",
    [
        *("hi", "thanks, that works great!", "hello, how are you today?", "ok, let's go on", "", "👍", "你好"),
        "write a poem about the sea at night",
        "rename the function and add a docstring to it, then run the linter over the whole module",
    ],
)
def test_small_talk_and_other_matters_recall_nothing(question: str) -> None:
    assert not recalls(question)
    assert not recalls(question, "测试数据库的端口是 5433。")


def test_meaning_decides_where_words_do_not() -> None:
    assert recalls("where do our trial records live?", cosine=0.88)
    assert not recalls("where do our trial records live?", cosine=0.76)
    asked, said = archive_terms("where do our trial records live?"), archive_terms(ENTRY)
    assert helps(weigh(asked, said, 0.78, margin=0.04), asked, {}, 1), "it stands out"
    assert not helps(weigh(asked, said, 0.78, margin=0.01), asked, {}, 1)
    assert not recalls("thanks!", cosine=0.95), "there is nothing in it to look for"


@given(st.text(max_size=200), st.text(max_size=200), st.none() | st.floats(-1, 1))
def test_a_score_is_between_nothing_and_all(question: str, entry: str, cosine: float | None) -> None:
    asked = archive_terms(question)
    found = weigh(asked, archive_terms(entry), cosine)
    assert 0.0 <= found.score <= 1.0
    if not says_something(asked):
        assert not helps(found, asked, {}, 0)
