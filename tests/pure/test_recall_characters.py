"""Single Chinese characters beside pairs: what is looked for, and what it moves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.query import parse
from herma.search.rank import Candidate, character_boost, characters_of


def said(*texts: str, own: float = 1.0) -> list[Candidate]:
    return [Candidate(id_, "c", text, own=own) for id_, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    ("question", "characters"),
    [
        ("流れる物体", ["流", "物", "体"]),
        ("王位を継承した", ["王", "位", "継", "承"]),
        ("王位", []),
        ("どこですか", []),
        ("the plumber", []),
    ],
)
def test_the_characters_of_a_question(question: str, characters: list[str]) -> None:
    assert characters_of(parse(question, 0.0))[: len(characters) or None] == characters


def test_what_says_the_same_with_other_endings_comes_first() -> None:
    flowing, falling = said("流体の位置を水頭という", "落下するものを表している")
    found = character_boost(["流", "物", "体"], [flowing, falling])
    assert found[flowing.id] > found[falling.id]
    rare, *rest = said("水流", "水車", "水道", "水門")
    found = character_boost(["水", "流"], [rare, *rest])
    assert all(found[rare.id] > found[one.id] for one in rest)
    first, second = said("流体", "固体")
    first.own, second.own = 4.0, 2.0
    found = character_boost(["流", "体"], [first, second])
    assert first.own / 4.0 + found[first.id] == pytest.approx(1.0), "the best by words is one again"
    for characters, texts in (([], said("流体")), (["流", "体"], []), (["流", "体"], said("流体", own=0.0))):
        assert character_boost(characters, texts) == {}


@given(st.text(max_size=60), st.lists(st.text(max_size=60), max_size=6))
def test_no_text_breaks_it(question: str, texts: list[str]) -> None:
    candidates = said(*texts)
    found = character_boost(characters_of(parse(question, 0.0)), candidates)
    assert all(-1.0 <= gain <= 1.0 for gain in found.values())
