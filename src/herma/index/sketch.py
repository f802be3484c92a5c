"""Short forms of vectors: by a few of their main axes most are seen to be too far, and need not be compared in full.

Turned so that each axis has what the axes before it lack, vectors of a model differ along few of them, and a question
has its own few that matter: a quarter of them says nearly all. What the others may add to such an estimate is known as
a chance, so that it follows how many have to be compared in full for next to none of the nearest to be missed. Scores
never come from here, only candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.ports.vectors import Vector

SKETCH_FROM = 30_000
"""Vectors of a kind from which on it pays: fewer are compared in two milliseconds."""
SAMPLE = 8_000
"""Vectors that the axes are learnt from."""
BLOCK = 4_096
"""Vectors whose short numbers lie together, axis by axis; with a quarter of 384 axes few enough for a BLAS to multiply
them without threads."""
_TOGETHER = 4
"""Blocks that are handed to numpy at a time: other threads of Python run meanwhile, and each return waits for them."""
_LOOKED_AT = 1 / 4
"""Share of the axes that a question looks at. All are kept: questions have much of what passages hardly differ in."""
_WIDE = 4.5
"""Short numbers reach so many standard deviations; what is further out is drawn in."""
_MISSED = 0.3
"""So many of the nearest may be expected among what is left out."""
_NO_CHANCE = 1.4
"""How much more the other axes may add than chance would: what is near along some axes tends to be near along all."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question to short forms: their numbers along these `axes`, times `weights`, plus `base` are the estimate of a
    cosine; `doubt` is the standard deviation of what it lacks.
    """

    axes: NDArray[np.int64]
    weights: Vector
    base: float
    doubt: float


@dataclass(frozen=True, slots=True, eq=False)
class Axes:
    """Where vectors lie (`centre`), and the directions in which they differ, the one with the most `spread` first."""

    centre: Vector
    directions: Vector
    spread: Vector
    step: Vector
    """What one of a short number stands for, along each axis."""

    def shortened(self, units: Vector) -> NDArray[np.int8]:
        """(vectors, dimension) → (axes, vectors)."""
        import numpy as np

        along = self.directions.T @ (units - self.centre).T
        along /= self.step[:, None]
        np.rint(along, out=along)
        np.clip(along, -127, 127, out=along)
        return along.astype(np.int8)

    def asked(self, query: Vector) -> Asked:
        import numpy as np

        along = query @ self.directions
        matters = self.spread * np.square(along)
        count = max(1, round(len(along) * _LOOKED_AT))
        axes = np.sort(np.argsort(-matters, kind="stable")[:count])
        weights = along[axes] * self.step[axes]
        rounding = float(np.dot(weights, weights)) / 12
        rest = max(0.0, float(matters.sum() - matters[axes].sum()))
        return Asked(axes, weights, float(query @ self.centre), (rest + rounding) ** 0.5)


class Sketch:
    """The short forms of all vectors of a shelf, in the order of its rows."""

    def __init__(self, axes: Axes) -> None:
        import numpy as np

        self.axes = axes
        self.rows = 0
        self._blocks: NDArray[np.int8] = np.zeros((0, len(axes.step), BLOCK), dtype=np.int8)
        looked_at = (_TOGETHER, round(len(axes.step) * _LOOKED_AT) or 1, BLOCK)
        self._short: NDArray[np.int8] = np.empty(looked_at, dtype=np.int8)
        self._floats: Vector = np.empty(looked_at, dtype=np.float32)

    def add(self, units: Vector) -> None:
        """Vectors with a length of 1, after those that are there."""
        import numpy as np

        end = self.rows + len(units)
        if end > len(self._blocks) * BLOCK:
            blocks = np.zeros((-(-end * 9 // (8 * BLOCK)), *self._blocks.shape[1:]), dtype=np.int8)
            blocks[: len(self._blocks)] = self._blocks
            self._blocks = blocks
        short = self.axes.shortened(units)
        while self.rows < end:
            block, place = divmod(self.rows, BLOCK)
            count = min(BLOCK - place, end - self.rows)
            at = short.shape[1] - (end - self.rows)
            self._blocks[block, :, place : place + count] = short[:, at : at + count]
            self.rows += count

    def remove(self, holes: NDArray[np.int64], movers: NDArray[np.int64], left: int) -> None:
        """The rows `movers` take the places `holes`; then what is after the first `left` is gone."""
        self._blocks[holes // BLOCK, :, holes % BLOCK] = self._blocks[movers // BLOCK, :, movers % BLOCK]
        self.rows = left

    def estimates(self, asked: Asked) -> Vector:
        """For each row, how near it may be; without `base`."""
        import numpy as np

        count = -(-self.rows // BLOCK)
        found: Vector = np.empty((count, BLOCK), dtype=np.float32)
        for start in range(0, count, _TOGETHER):
            end = min(count, start + _TOGETHER)
            some, wide = self._short[: end - start], self._floats[: end - start]
            np.take(self._blocks[start:end], asked.axes, axis=1, out=some, mode="clip")
            np.copyto(wide, some)
            np.matmul(asked.weights, wide, out=found[start:end])
        return found.reshape(-1)[: self.rows]


def learnt(sample: Vector) -> Axes:
    """The axes of these vectors, which have a length of 1."""
    import numpy as np

    centre = sample.mean(axis=0)
    away = sample - centre
    spread, directions = np.linalg.eigh(away.T @ away / np.float32(len(sample)))
    spread = np.maximum(spread[::-1], 0).astype(np.float32)
    step = np.maximum(np.sqrt(spread) * np.float32(_WIDE / 127), np.float32(1e-9))
    return Axes(centre, np.ascontiguousarray(directions[:, ::-1], dtype=np.float32), spread, step)


def edge(estimates: Vector, share: int, least: float, asked: Asked) -> float:
    """The estimate from which on vectors have to be compared, where a cosine of `least` would be among the nearest.

    `estimates` are one in `share` of all.
    """
    import numpy as np

    rising = np.sort(estimates)
    short = (np.float32(least - asked.base) - rising) / np.float32(max(asked.doubt * _NO_CHANCE, 1e-6))
    expected = np.cumsum(_beyond(short), dtype=np.float64) * share
    place = int(np.searchsorted(expected, _MISSED, side="right"))
    return float(rising[place]) if place < len(rising) else float("inf")


def _beyond(deviations: Vector) -> Vector:
    """About how likely something is to be so many standard deviations above its mean: a sixth too low at most, up to
    six; half for all that is below.
    """
    import numpy as np

    above = np.maximum(deviations, np.float32(0))
    found: Vector = np.exp(np.square(above) * np.float32(-0.5)) / (np.float32(2) + np.float32(2.5) * above)
    return found
