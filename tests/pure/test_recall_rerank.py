"""A second opinion: taken when it comes in time and makes sense, and told about when it does not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from herma.search.rank import READS, opinion


class Scripted:
    """Answers what it is told to."""

    def __init__(self, answer: Callable[[str, Sequence[str]], Sequence[float]]) -> None:
        self._answer = answer
        self.seen: list[tuple[str, list[str]]] = []

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        self.seen.append((question, list(texts)))
        return self._answer(question, texts)


def test_its_order_is_taken_and_equals_stay_as_they_were() -> None:
    reranker = Scripted(lambda _, texts: [1.0 if "right" in text else 0.0 for text in texts])
    assert opinion(reranker, "which", ["a", "b", "the right one", "d"], 5.0) == ([2, 0, 1, 3], "")


def test_long_texts_are_cut() -> None:
    reranker = Scripted(lambda _, texts: [0.0] * len(texts))
    opinion(reranker, "which", ["x" * (READS + 9)], 5.0)
    assert len(reranker.seen[0][1][0]) == READS


@pytest.mark.parametrize("answer", [[], [1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_nonsense_leaves_the_order_and_is_told(answer: list[float]) -> None:
    order, note = opinion(Scripted(lambda *_: answer), "which", ["a", "b"], 5.0)
    assert order == []
    assert "one number for each text" in note


def test_a_failure_leaves_the_order_and_is_told() -> None:
    def fail(*_: object) -> Sequence[float]:
        raise RuntimeError("out of memory")

    order, note = opinion(Scripted(fail), "which", ["a"], 5.0)
    assert order == []
    assert "out of memory" in note


def test_who_is_too_slow_is_not_waited_for() -> None:
    go = threading.Event()

    def wait(_: str, texts: Sequence[str]) -> Sequence[float]:
        go.wait(30)
        return [0.0] * len(texts)

    _, note = opinion(Scripted(wait), "which", ["a"], 0.01)
    go.set()
    assert "no answer within 0.01 s" in note
