"""Other words for what is asked: they move up what has them, less than the words themselves do."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.match import fold, units
from herma.search.query import parse
from herma.search.rank import Candidate, rank, similar_word_boost


def gained(question: str, *texts: str) -> list[float]:
    query = parse(question, 0.0)
    candidates = [Candidate(id_, f"g{id_}", fold(text), 0.0) for id_, text in enumerate(texts, 1)]
    for one in candidates:
        one.found = float(any(unit.find(one.folded, 1) for unit in units(query)))
    found = similar_word_boost(query, rank(candidates, units(query)))
    return [found.get(one.id, 0.0) for one in candidates]


def test_another_word_for_it_counts_and_less_than_the_word_itself() -> None:
    same, other, neither = gained(
        "Which museum did the kids like?",
        "The kids went to the museum",
        "The children went to the museum",
        "The neighbours went to the museum",
    )
    assert same == neither == 0.0
    assert 0.0 < other < 1.0


@pytest.mark.parametrize(
    ("question", "texts", "moved"),
    [
        ("How much did I spend on fruit?", ["I spent 20 on fruit", "I saw 20 on fruit"], [True, False]),
        ("Which bike did I buy?", ["the bike I bought", "the bike I saw"], [True, False]),
        ("Which museum did the kids like?", ["museum", "a childlike museum, unspent"], [False, False]),
        ("Who came on monday to the three talks?", ["talks", "on tuesday four talks"], [False, False]),
        ("Did Grocery come to the talks?", ["talks", "the supermarket of the talks"], [False, False]),
    ],
)
def test_forms_that_share_no_stem_are_alike_and_names_stand_for_themselves(
    question: str, texts: list[str], moved: list[bool]
) -> None:
    assert [gain > 0.0 for gain in gained(question, *texts)] == moved


@given(st.text(max_size=200), st.lists(st.text(max_size=200), max_size=5))
def test_any_text_may_be_asked(question: str, texts: list[str]) -> None:
    assert all(math.isfinite(gain) and gain >= 0.0 for gain in gained(question, *texts))
