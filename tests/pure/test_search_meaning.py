"""Asking the index of vectors: what is asked, how far the answer is trusted, and what is said when there is none."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from herma.errors import StoreError
from herma.index import MESSAGE, Near, Nearest, VectorState
from herma.index.vectors import Vectors
from herma.search.candidates import Filters
from herma.search.query import parse
from herma.search.rank import FOREIGN, KEYWORDS, NEAREST, ONE_THING
from herma.search.search import AT_ONCE, FILTERED, Asker

if TYPE_CHECKING:
    from herma.index import Vector


class Scripted(Vectors):
    """An index of vectors that answers what it is told to."""

    def __init__(self, state: VectorState | None = None) -> None:
        self._state = state or VectorState(model="scripted", vectors=1, is_multilingual=False)
        self.asked: list[tuple[object, int]] = []
        self.go = threading.Event()
        self.go.set()
        self.trouble: StoreError | None = None

    def apart(self, query: str | Vector, k: int, share: float) -> Nearest:
        self.asked.append((query, k))
        if self.trouble is not None:
            raise self.trouble
        return Nearest((Near(MESSAGE, "1", 0.9),), ("vectors: a note.",))

    def scores(self, query: str | Vector, message_ids: Sequence[int]) -> Mapping[int, float]:
        self.go.wait(30)
        return {}

    def state(self) -> VectorState:
        return self._state


@pytest.mark.parametrize(
    ("text", "trust"),
    [
        ("what did the plumber say about the boiler", 1.0),
        ("plumber boiler basement", KEYWORDS),
        ("boiler", ONE_THING),
        ("was hat der Klempner über den Kessel gesagt", FOREIGN),
        ("the boiler 锅炉 in the basement", FOREIGN),
    ],
)
def test_how_far_meaning_is_trusted(text: str, trust: float) -> None:
    found = Asker(Scripted(), deadline=5.0).begin(parse(text, 0.0), Filters()).result()
    assert (found.trust, len(found.near), found.notes) == (trust, 1, ("vectors: a note.",))
    vectors = Scripted(VectorState(model="m", vectors=1, is_multilingual=True))
    if "Klempner" in text:
        assert Asker(vectors, deadline=5.0).begin(parse(text, 0.0), Filters()).result().trust == 1.0


def test_operators_and_filters_are_not_embedded_and_filters_ask_for_more() -> None:
    vectors = Scripted()
    query = parse('what about the "old boiler" role:user -staging since:2026-01', 0.0)
    Asker(vectors, deadline=5.0).begin(query, Filters(query)).result()
    assert vectors.asked == [("what about the old boiler", FILTERED)]
    assert FILTERED > NEAREST


def test_without_an_embedder_or_words_nothing_is_asked_and_what_breaks_is_told() -> None:
    vectors = Scripted(VectorState(trouble="the model's folder is gone"))
    found = Asker(vectors, deadline=5.0).begin(parse("the boiler", 0.0), Filters()).result()
    assert (found.near, found.notes, vectors.asked) == ((), ("vectors: the model's folder is gone",), [])
    vectors = Scripted()
    assert Asker(vectors, deadline=5.0).begin(parse("since:2026-01", 0.0), Filters()).result().near == ()
    assert vectors.asked == []
    vectors.trouble = StoreError("The disk is gone.")
    found = Asker(vectors, deadline=5.0).begin(parse("the boiler", 0.0), Filters()).result()
    assert found.notes == ("vectors: The disk is gone.",)


def test_a_late_answer_is_not_waited_for_and_searches_do_not_push_each_other_out() -> None:
    vectors = Scripted()
    vectors.go.clear()
    asker = Asker(vectors, deadline=0.01)
    for question in ("the boiler", "the tractor"):  # no second question is asked meanwhile
        assert "did not answer within 0.01 s" in asker.begin(parse(question, 0.0), Filters()).result().notes[0]
    asker = Asker(vectors, deadline=30.0)
    pending = [asker.begin(parse(f"the boiler {number}", 0.0), Filters()) for number in range(AT_ONCE)]
    crowded = asker.begin(parse("the tractor", 0.0), Filters())
    vectors.go.set()
    assert [len(one.result().near) for one in pending] == [1] * AT_ONCE
    told = f"vectors: {AT_ONCE} other searches are using the embedder; words alone were searched."
    assert crowded.result().notes == (told,)
    assert len(asker.begin(parse("the tractor", 0.0), Filters()).result().near) == 1
