"""Words and meaning together: what each adds, and that neither can drown the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.rank import (
    CROWDED,
    FREE,
    LEAST_SPREAD,
    MEANING,
    NEARER,
    NEAREST,
    Candidate,
    by_cosine,
    fuse,
    near_enough,
    shares,
    spread_out,
)

COSINES = st.lists(st.floats(-1, 1, allow_nan=False), max_size=100)


def candidate(id_: int, score: float = 0.0, group: str = "a", **more: int | None) -> Candidate:
    return Candidate(id=id_, group=group, folded="", score=score, **more)  # type: ignore[arg-type]


def test_the_nearest_is_worth_one_and_the_last_nothing() -> None:
    assert shares([(1, 0.9), (2, 0.8), (3, 0.7)]) == {1: 1.0, 2: pytest.approx(0.5), 3: 0.0}
    assert shares([(1, 0.80), (2, 0.79)])[2] == pytest.approx(1 - 0.01 / LEAST_SPREAD), "close together"
    assert len(shares([(number, 1 - number / 1000) for number in range(200)])) == NEAREST


@given(COSINES)
def test_shares_lie_between_nothing_and_one_in_the_order_of_the_cosines(cosines: list[float]) -> None:
    ordered = sorted(cosines, reverse=True)
    found = list(shares(list(enumerate(ordered))).values())
    assert all(0.0 <= share <= 1.0 for share in found)
    assert found == sorted(found, reverse=True)


def test_what_words_and_meaning_add() -> None:
    ranked = fuse([candidate(1, 0.3, "a"), candidate(2, 0.0, "b")], {2: 1.0})
    assert [one.id for one in ranked] == [2, 1], "a message without the words can come first"
    assert ranked[0].meaning == pytest.approx(MEANING * 1.15)
    words = [candidate(1, 0.3), candidate(2, 0.2)]
    assert fuse(words, {}) == words
    one, two, three = candidate(1, 0.5, "a", after=2), candidate(2, 0.5, "b"), candidate(3, 0.5, "c")
    found = {one.id: one.meaning for one in fuse([one, two, three], {2: 1.0})}
    assert found[2] > found[1] > found[3] == 0.0, "standing beside what is near is worth a little"
    alone = by_cosine([candidate(1, 9.0), candidate(2, 0.1), candidate(3, 5.0)], {1: 0.7, 2: 0.9})
    assert [(one.id, one.score) for one in alone] == [(2, 0.9), (1, 0.7)], "by meaning alone words do not count"


@given(st.floats(0, 1), st.floats(0, 1))
def test_less_trust_never_adds(near: float, trust: float) -> None:
    full = fuse([candidate(1, 0.5)], {1: near})[0].score
    less = fuse([candidate(1, 0.5)], {1: near}, trust)[0].score
    assert 0.5 <= less <= full


def test_one_conversation_does_not_fill_the_list_where_another_is_as_good() -> None:
    crowd = [candidate(number, 1.0, "long") for number in range(FREE + 2)]
    other = candidate(99, 1.0 - CROWDED / 2, "other")
    found = spread_out([*crowd, other], FREE + 1)
    assert other in found[: FREE + 1]


@given(st.lists(st.tuples(st.floats(0, 2), st.sampled_from("abc")), max_size=30), st.integers(1, 12))
def test_spreading_loses_nobody(scored: list[tuple[float, str]], limit: int) -> None:
    ranked = sorted(
        (candidate(at, score, group) for at, (score, group) in enumerate(scored)), key=lambda one: -one.score
    )
    found = spread_out(ranked, limit)
    assert sorted(one.id for one in found) == sorted(one.id for one in ranked)
    if ranked:
        assert found[0] is ranked[0]


def test_without_words_more_nearness_is_asked_for_and_the_more_the_larger_the_home() -> None:
    few, many = near_enough(8, alone=True), near_enough(2_000, alone=True)
    assert few < many
    assert near_enough(2_000, alone=False) == NEARER < many
    assert near_enough(2, alone=False) == near_enough(2, alone=True) < NEARER
