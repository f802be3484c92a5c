"""Ranking: the index's word counts, and so do the turns beside a match and the rest of its conversation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.search.match import units
from herma.search.query import parse
from herma.search.rank import Candidate, rank, rarities, weigh

LOOKED_FOR = units(parse("apple pear", 0.0))


def one(id_: int, text: str, found: float = 0.0, group: str = "", **more: int) -> Candidate:
    return Candidate(id_, group or f"g{id_}", text, found, **more)  # type: ignore[arg-type]


def order(*candidates: Candidate) -> list[int]:
    return [candidate.id for candidate in rank(candidates, LOOKED_FOR)]


def test_the_better_match_comes_first_and_of_equals_the_newest() -> None:
    assert order(one(1, "apple", 1.0), one(2, "apple pear", 2.0)) == [2, 1]
    assert order(Candidate(1, "a", "apple", 1.0, timestamp=5.0), Candidate(2, "b", "apple", 1.0, timestamp=9.0)) == [
        2,
        1,
    ]


def test_a_turn_beside_a_match_beats_one_far_from_any() -> None:
    alone, match = one(1, "apple", 1.0), one(2, "apple", 1.0, "g", before=3)
    beside = one(3, "nothing of that", 0.0, "g", after=2)
    ranked = rank([alone, match, beside], LOOKED_FOR)
    assert [candidate.id for candidate in ranked] == [2, 1, 3]
    assert ranked[-1].score > 0


def test_terms_elsewhere_in_the_conversation_count() -> None:
    here = [one(1, "apple", 1.0, "full"), one(2, "pear", 1.0, "full")]
    there = [one(3, "apple", 1.0, "half")]
    assert order(*here, *there)[-1] == 3


def test_rarity_follows_from_the_scores_of_the_index() -> None:
    candidates = [one(1, "apple", 4.0), one(2, "pear", 1.0), one(3, "apple pear", 5.0), one(4, "apple", 4.0)]
    weigh(candidates, LOOKED_FOR)
    worth = rarities(candidates)
    assert worth["appl"] > 2 * worth["pear"]


@given(st.lists(st.tuples(st.text("applear ", max_size=30), st.floats(0, 50)), max_size=30))
def test_any_candidates_can_be_ranked(given_: list[tuple[str, float]]) -> None:
    candidates = [
        Candidate(id_, f"g{id_ % 3}", text, found, before=id_ - 1, after=id_ + 1)
        for id_, (text, found) in enumerate(given_, 1)
    ]
    ranked = rank(candidates, LOOKED_FOR)
    assert sorted(candidate.id for candidate in ranked) == sorted(candidate.id for candidate in candidates)
    assert all(candidate.score >= 0 for candidate in ranked)
    assert [candidate.score for candidate in ranked] == sorted((c.score for c in ranked), reverse=True)
