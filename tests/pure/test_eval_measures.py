"""Measures of ranked answers, against what they are by definition."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.evals.data import NAMES, Answered, answered, by_type, difference, figures, percentile


def one(places: tuple[int, ...], gold: int = 1, *, id_: str = "q", group: str = "g", type_: str = "t") -> Answered:
    return Answered(id_, group, type_, places, gold, 1.0)


def test_a_right_document_at_the_second_place() -> None:
    found = answered("q", "g", "t", ["a", "b", "c"], ["b", "z"], 2.0)
    assert found.places == (2,)
    assert [found.measure(name) for name in ("hit@1", "hit@5", "recall@5", "mrr")] == [0.0, 1.0, 0.5, 0.5]


def test_ndcg_is_normalised_over_all_that_is_right_found_or_not() -> None:
    ideal = 1 + 1 / math.log2(3)
    assert one((1,), gold=2).measure("ndcg@10") == pytest.approx(1 / ideal)
    assert one((1, 2), gold=2).measure("ndcg@10") == pytest.approx(1.0)


def test_what_is_found_twice_counts_once() -> None:
    assert answered("q", "g", "t", ["a", "a"], ["a"], 0.0).places == (1,)


def test_beyond_the_tenth_place_nothing_counts() -> None:
    assert answered("q", "g", "t", [*"bcdefghijk", "a"], ["a"], 0.0).places == ()


@given(st.lists(st.integers(1, 10), unique=True, max_size=10), st.integers(1, 12))
def test_every_measure_is_a_share(places: list[int], more: int) -> None:
    answer = one(tuple(sorted(places)), gold=len(places) + more)
    for name in NAMES:
        assert 0.0 <= answer.measure(name) <= 1.0


@given(st.lists(st.integers(1, 10), unique=True, min_size=1, max_size=10))
def test_a_better_place_is_never_worse(places: list[int]) -> None:
    first = one(tuple(sorted(places)), gold=10)
    better = one((1, *sorted(places)[1:]), gold=10)
    for name in NAMES:
        assert better.measure(name) >= first.measure(name)


def test_figures_say_how_many_and_how_long() -> None:
    found = figures([one((1,)), one(())])
    assert found["questions"] == 2
    assert found["hit@1"] == 0.5
    assert found["p95_ms"] == 1.0
    assert figures([]) == {"questions": 0}


def test_types_stand_alone_when_there_are_several() -> None:
    assert by_type([one((1,))]) == {}
    found = by_type([one((1,), type_="a"), one((), type_="b")])
    assert (found["a"]["hit@1"], found["b"]["hit@1"]) == (1.0, 0.0)


def test_percentile_takes_one_of_the_values() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.95) == 4.0


def test_a_difference_that_every_question_shows_is_sure() -> None:
    first = [one((), id_=str(number)) for number in range(30)]
    second = [one((1,), id_=str(number)) for number in range(30)]
    found = difference(first, second, "hit@1")
    assert found is not None
    assert (found.change, found.low, found.high, found.sure, found.drawn) == (1.0, 1.0, 1.0, True, "questions")


def test_a_difference_in_one_of_many_is_not_sure_and_the_same_every_time() -> None:
    first = [one((1,), id_=str(number), group=str(number % 6)) for number in range(60)]
    second = [one(() if number == 3 else (1,), id_=str(number), group=str(number % 6)) for number in range(60)]
    found = difference(first, second, "hit@1")
    assert found is not None
    assert not found.sure
    assert found.drawn == "groups"
    assert found == difference(first, second, "hit@1")


def test_runs_without_a_common_question_have_no_difference() -> None:
    assert difference([one((1,), id_="a")], [one((1,), id_="b")], "hit@1") is None
