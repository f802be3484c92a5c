"""The nearest vectors, as looking at all of them one by one finds them; after any additions and removals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from herma.index import MESSAGE
from herma.index.nearest import Neighbours, VectorMatrix, _top
from herma.index.vector_store import EmbeddingStep, VectorRow, VectorStore, VectorTarget
from herma.index.vectors import packed
from herma.transcript.rows import Position

DIMENSION = 16
SCOPES = ("home", "project")


@contextmanager
def store() -> Iterator[VectorStore]:
    with TemporaryDirectory() as folder:
        made = VectorStore(Path(folder))
        made.notice(0, Position("s", "e", 1), 0, ())
        yield made
        made.close()


def some(seed: int, count: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((count, DIMENSION)).astype(np.float32)


def cosine(row: bytes, query: NDArray[np.float32]) -> float:
    vector = np.frombuffer(row, dtype=np.int8).astype(np.float64)
    length = float(np.linalg.norm(vector) * np.linalg.norm(query))
    return float(vector @ query.astype(np.float64)) / length if length else 0.0


class Reference:
    """(kind, key) → its parts, scope; compared one by one."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, int | str], tuple[list[bytes], str]] = {}

    def near(self, query: NDArray[np.float32], kinds: set[str], allowed: set[object] | None) -> dict[str, float]:
        return {
            f"{kind}:{key}": max(cosine(part, query) for part in parts)
            for (kind, key), (parts, _) in self.kept.items()
            if kind in kinds and (allowed is None or key in allowed)
        }


KEYS = st.sampled_from([(MESSAGE, 1), (MESSAGE, 2), (MESSAGE, 300), (MESSAGE, 4), ("entry", "a"), ("skill", "b")])
MOVES = st.lists(st.tuples(KEYS, st.integers(0, 3), st.integers(0, 99)), min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(MOVES, st.integers(0, 99), st.integers(1, 5))
def test_near_is_what_brute_force_finds(
    moves: list[tuple[tuple[str, int | str], int, int]], asked: int, k: int
) -> None:
    reference, query = Reference(), some(asked, 1)[0]
    with store() as tables:
        model = tables.model("m", DIMENSION, 0.0)
        neighbours = Neighbours(tables, "m", DIMENSION)
        for (kind, key), count, seed in moves:  # every move replaces a key, or removes it; asked after each
            rows = packed(some(seed, count)) if count else []
            scope = SCOPES[seed % 2]
            step = EmbeddingStep(
                [VectorRow(VectorTarget(kind, key, n, "s", scope), seed, row) for n, row in enumerate(rows)],
                kind,
                stale=[key],
            )
            tables.put(model, step)
            reference.kept.pop((kind, key), None)
            if rows:
                reference.kept[kind, key] = (rows, scope)
            for kinds, allowed in (
                ({MESSAGE}, None),
                ({MESSAGE}, {1, 300}),
                ({"entry", "skill"}, None),
                ({"entry", "skill"}, {"b"}),
                ({MESSAGE, "entry"}, None),
            ):
                expected = reference.near(query, kinds, allowed)  # type: ignore[arg-type]
                found = neighbours.near(query, k, kinds, allowed, None)
                assert len(found) == min(k, len(expected))
                best = sorted(expected.values(), reverse=True)[:k]
                assert [hit.score for hit in found] == pytest.approx(best, abs=1e-4)
                assert {f"{hit.kind}:{hit.key}" for hit in found} <= expected.keys()
        numbers = reference.near(query, {MESSAGE}, None)
        scores = neighbours.scores(query, [1, 2, 300, 5])
        assert scores == pytest.approx(
            {int(key.partition(":")[2]): value for key, value in numbers.items() if not key.endswith(":4")}, abs=1e-4
        )
        fresh = Neighbours(tables, "m", DIMENSION)  # reading it all at once is the same
        again = fresh.near(query, 9, {MESSAGE, "entry", "skill"}, None, None)
        assert {(hit.kind, hit.key, round(hit.score, 4)) for hit in again} == {
            (hit.kind, hit.key, round(hit.score, 4))
            for hit in neighbours.near(query, 9, {MESSAGE, "entry", "skill"}, None, None)
        }


def test_many_parts_of_one_message_are_found_once() -> None:
    matrix = VectorMatrix(DIMENSION)
    rows = np.frombuffer(b"".join(packed(some(1, 400))), dtype=np.int8).reshape(400, DIMENSION)
    matrix.add(range(1, 401), [7] * 390 + list(range(10)), [0] * 400, rows)
    query = some(2, 1)[0]
    assert len(matrix.best(query, 5, None)) == 5
    assert len({key for key, *_ in matrix.best(query, 50, None)}) == 10


def test_blocks_make_no_difference_and_nothing_is_a_direction() -> None:
    matrix = VectorMatrix(DIMENSION)
    matrix._block = 7
    rows = np.frombuffer(b"".join(packed(some(1, 100))), dtype=np.int8).reshape(100, DIMENSION).copy()
    assert all(cosine(row, vector) > 0.999 for row, vector in zip(packed(some(1, 100)), some(1, 100), strict=True))
    rows[3] = 0
    matrix.add(range(1, 101), range(100), [0] * 100, rows)
    query = some(2, 1)[0]
    query /= np.linalg.norm(query)
    expected = [cosine(row.tobytes(), query) for row in rows]
    assert matrix.scores(query).tolist() == pytest.approx(expected, abs=1e-5)
    assert matrix.scores(query)[3] == 0
    matrix.remove(np.array([1, 100, 50, 777]))
    assert {key for key, *_ in matrix.best(query, 200, None)} == set(range(100)) - {0, 99, 49}
    assert {key: round(score, 4) for key, _, score, _ in matrix.best(query, 200, None)} == {
        n: round(expected[n], 4) for n in range(100) if n not in (0, 99, 49)
    }


def test_so_many_removals_that_nobody_remembers_them_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.index.vector_store._REMOVALS_KEPT", 3)
    with store() as tables:
        model = tables.model("m", DIMENSION, 0.0)
        rows = packed(some(1, 20))
        tables.put(
            model, EmbeddingStep([VectorRow(VectorTarget(MESSAGE, n + 1), n, row) for n, row in enumerate(rows)])
        )
        neighbours = Neighbours(tables, "m", DIMENSION)
        query = some(2, 1)[0]
        assert len(neighbours.near(query, 50, [MESSAGE], None, None)) == 20
        for number in range(1, 11):
            tables.put(model, EmbeddingStep(stale=[number]))
        found = neighbours.near(query, 50, [MESSAGE], None, None)
        assert {hit.message_id for hit in found} == set(range(11, 21))


@given(st.integers(0, 50), st.integers(1, 3_000), st.integers(1, 200), st.integers(2, 1_000))
def test_the_highest_are_picked_however_many_are_alike(seed: int, rows: int, count: int, different: int) -> None:
    scores = np.random.default_rng(seed).integers(0, different, rows).astype(np.float32)
    assert scores[_top(scores, count)].tolist() == sorted(scores.tolist(), reverse=True)[:count]
