"""Short forms of vectors: they name candidates, and what they leave out is not among the nearest."""

from __future__ import annotations

import threading
from math import erfc, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from herma.index import nearest as sketch
from herma.index.nearest import BLOCK, Asked, Shelf, Sketch, edge, learnt
from herma.index.vectors import packed

DIMENSION = 48
Floats = NDArray[np.float32]


def like_a_model(seed: int, count: int, *, falling: float = 0.08) -> Floats:
    """Vectors round a common centre that differ much along some axes and little along most, as a model's do."""
    chance = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((DIMENSION, DIMENSION)))[0]
    spread = np.exp(-falling * np.arange(DIMENSION))
    rows = chance.standard_normal((count, DIMENSION)) * spread @ turn + 1.5 * turn[0]
    return unit(rows)


def unit(rows: NDArray[np.float64] | Floats) -> Floats:
    found: Floats = (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)
    return found


def shelf_of(vectors: Floats) -> Shelf:
    shelf = Shelf(DIMENSION)
    put(shelf, 0, vectors)
    return shelf


def put(shelf: Shelf, first: int, vectors: Floats) -> None:
    rows = np.frombuffer(b"".join(packed(vectors)), dtype=np.int8).reshape(-1, DIMENSION)
    numbers = range(first, first + len(rows))
    shelf.add([n + 1 for n in numbers], numbers, [0] * len(rows), rows)


def outlined(vectors: Floats) -> Shelf:
    shelf = shelf_of(vectors)
    shelf.outline(threading.Lock())
    return shelf


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1_000), st.integers(1, 3 * BLOCK))
def test_an_estimate_along_all_axes_is_the_cosine(seed: int, rows: int) -> None:
    vectors, query = like_a_model(seed, rows), like_a_model(seed + 1, 1)[0]
    made = Sketch(learnt(like_a_model(5, 500)))
    made.add(vectors[: rows // 3])
    made.add(vectors[rows // 3 :])
    axes = made.axes
    along = query @ axes.directions
    every = Asked(np.arange(DIMENSION), along * axes.step, float(query @ axes.centre), 0.0)
    short = axes.shortened(vectors).astype(np.float32)
    wrong = np.abs(every.weights @ short + every.base - vectors @ query)
    assert wrong.mean() < 0.005
    assert wrong.max() < 0.1  # where a number is further out than short ones reach
    asked = axes.asked(query)
    assert len(asked.axes) == round(DIMENSION * sketch._LOOKED_AT)
    assert np.abs(made.estimates(asked) - asked.weights @ short[asked.axes]).max() < 1e-4


def test_doubt_is_what_estimates_are_wrong_by() -> None:
    vectors = like_a_model(2, 4_000)
    made = Sketch(learnt(vectors))
    made.add(vectors)
    for query in like_a_model(3, 20):
        asked = made.axes.asked(query)
        wrong = made.estimates(asked) + asked.base - vectors @ query
        assert asked.doubt == pytest.approx(float(wrong.std()), rel=0.15)


@given(st.floats(0, 6))
def test_the_chance_of_a_deviation_is_about_right(deviations: float) -> None:
    true = 0.5 * erfc(deviations / sqrt(2))
    found = float(sketch._beyond(np.array([deviations], dtype=np.float32))[0])
    assert 0.8 * true <= found <= 1.05 * true


@given(st.integers(0, 999), st.integers(1, 500), st.floats(-1, 1), st.floats(0, 0.5))
def test_what_is_left_out_has_hardly_a_chance(seed: int, count: int, least: float, doubt: float) -> None:
    estimates = np.random.default_rng(seed).uniform(-1, 1, count).astype(np.float32)
    asked = Asked(np.arange(1), np.zeros(1, dtype=np.float32), 0.25, doubt)
    lowest = edge(estimates, 16, least, asked)
    left_out = estimates[estimates < lowest]
    wide = max(doubt * sketch._NO_CHANCE, 1e-6)
    assert 16 * float(sketch._beyond((least - 0.25 - left_out) / np.float32(wide)).sum()) <= sketch._MISSED + 1e-3
    if lowest < np.inf:
        assert lowest in estimates


def test_the_same_are_found_with_fewer_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = like_a_model(7, 3 * BLOCK)
    plain, quick = shelf_of(vectors), outlined(vectors)
    compared: list[int] = []
    scores = quick.scores

    def counted(query: Floats, rows: NDArray[np.int64] | None = None) -> Floats:
        compared.append(len(vectors) if rows is None else len(rows))
        return scores(query, rows)

    monkeypatch.setattr(quick, "scores", counted)
    missing = 0
    for query in like_a_model(8, 50):
        every, some = plain.best(query, 30, None), quick.best(query, 30, None)
        assert [key for key, _, _ in some[:10]] == [key for key, _, _ in every[:10]]
        assert some[0][2] == pytest.approx(every[0][2], abs=1e-5)
        missing += len({key for key, _, _ in every} - {key for key, _, _ in some})
    assert missing <= 50 * 30 * 0.005
    assert sum(compared) < 50 * len(vectors) * 0.25


def test_it_follows_what_is_added_and_removed() -> None:
    vectors = like_a_model(9, 2 * BLOCK)
    quick, plain = outlined(vectors), shelf_of(vectors)
    gone = np.random.default_rng(1).choice(2 * BLOCK, 1_500, replace=False) + 1
    for shelf in (quick, plain):
        put(shelf, 2 * BLOCK, like_a_model(10, 700))
        shelf.remove(gone)
        put(shelf, 2 * BLOCK + 700, like_a_model(11, 5))
    assert quick._sketch is not None
    assert quick._sketch.rows == quick.rows
    kept = (quick._vectors[: quick.rows] / quick._lengths[: quick.rows, None]).astype(np.float32)
    every = Asked(np.arange(DIMENSION // 4), np.ones(DIMENSION // 4, dtype=np.float32), 0.0, 0.0)
    again = Sketch(quick._sketch.axes)
    again.add(kept)
    assert np.array_equal(quick._sketch.estimates(every), again.estimates(every))
    for query in like_a_model(12, 20):
        assert [key for key, _, _ in quick.best(query, 10, None)] == [key for key, _, _ in plain.best(query, 10, None)]


def test_vectors_without_main_axes_are_all_compared() -> None:
    chance = np.random.default_rng(3)
    vectors = unit(chance.standard_normal((2 * BLOCK, DIMENSION)))
    plain, quick = shelf_of(vectors), outlined(vectors)
    for query in unit(chance.standard_normal((10, DIMENSION))):
        assert quick.best(query, 60, None) == plain.best(query, 60, None)


def test_what_goes_while_short_forms_are_made_has_them_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.index.nearest.SKETCH_FROM", 100)
    shelf = shelf_of(like_a_model(1, 300))
    shelf._sketch = Sketch(learnt(like_a_model(1, 300)))  # none of the rows is in it yet
    shelf._learnt_of = 300
    assert not shelf.sketchy
    shelf.remove(np.array([5]))
    assert shelf.sketchy
    shelf.outline(threading.Lock())
    assert not shelf.sketchy
    put(shelf, 300, like_a_model(2, 400))
    assert shelf.sketchy  # more than twice as many as the axes were learnt of
