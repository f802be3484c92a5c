"""Ordering candidates: what the index says of each, plus evidence from the turns beside it and from its conversation.

A turn rarely says everything: the question names the thing, the answer next to it has the fact. So a message is also
worth part of what its neighbours are worth, and a little for every term that occurs anywhere in its conversation.
The index scores a message as a whole; what each term is worth follows from these scores (`rarities`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from herma.recall.match import Unit

BESIDE = 0.5
"""Weight of a neighbouring turn. 0.4–0.5 is best on LoCoMo and BEAM, and neutral where there are no neighbours."""
NEAR = 0.2
"""Weight of the turn after the next: one more point on LoCoMo, none lost elsewhere."""
CONVERSATION = 0.3
"""Weight of terms that occur elsewhere in the conversation; from 0.5 on, long conversations swallow the list."""
PREFERRED_DATE = 0.15
"""What a message gains by lying in a time that the query only suggests."""
SPEAKER = {"user": 0.1, "tool": -0.1}
"""Facts are mostly told by the user, and repeated by the assistant at length: one to two points on BEAM."""
_SATURATION, _LENGTH = 1.2, 0.75
_RIDGE = 0.3


@dataclass(slots=True)
class Candidate:
    """A message that may be shown, with what ranking needs of it. `found` is the index's score, 0 beside a match."""

    id: int
    group: str
    folded: str
    found: float = 0.0
    timestamp: float = 0.0
    bonus: float = 0.0
    before: int | None = None
    after: int | None = None
    shown: bool = True
    cut: bool = False
    """Whether there is more text than ranking reads."""
    weights: dict[str, float] = field(default_factory=dict)
    beside: float = 0.0
    around: float = 0.0
    score: float = 0.0


def rank(candidates: Sequence[Candidate], units: Sequence[Unit]) -> list[Candidate]:
    """Score every candidate; best first, newest first among equals. Scores are relative: the best match alone is 1."""
    if not candidates:
        return []
    weigh(candidates, units)
    worth = rarities(candidates)
    by_id = {candidate.id: candidate for candidate in candidates}
    around = _conversations(candidates, worth)
    own = {one.id: one.found or _sum(one.weights, worth) for one in candidates}
    best = max(own.values()) or 1.0
    for one in candidates:
        beside, near = _sides(one, by_id)
        one.beside = (BESIDE * _sum(beside, worth) + NEAR * _sum(near, worth)) / best
        one.around = CONVERSATION * around[one.group] / best
        one.score = own[one.id] / best + one.beside + one.around + one.bonus
    return sorted(candidates, key=lambda candidate: (-candidate.score, -candidate.timestamp, -candidate.id))


def weigh(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """BM25's weight of each unit in each candidate, without its rarity."""
    average = max(1.0, sum(len(candidate.folded) for candidate in candidates) / len(candidates))
    for candidate in candidates:
        folded = candidate.folded
        norm = _SATURATION * (1 - _LENGTH + _LENGTH * len(folded) / average)
        for unit in units:
            if unit.part in folded and (times := len(unit.find(folded))):
                candidate.weights[unit.name] = times * (_SATURATION + 1) / (times + norm)


def rarities(candidates: Sequence[Candidate]) -> dict[str, float]:
    """What each unit is worth, so that weights times worth come nearest to the scores of the index (least squares).

    The ridge draws units that occur in few candidates towards the common mean.
    """
    scored = [candidate for candidate in candidates if candidate.found > 0 and candidate.weights]
    names = sorted({name for candidate in candidates for name in candidate.weights})
    if not scored:
        return dict.fromkeys(names, 1.0)
    total = sum(sum(candidate.weights.values()) for candidate in scored)
    mean = sum(candidate.found for candidate in scored) / total
    place = {name: at for at, name in enumerate(names)}
    matrix = [[0.0] * len(names) for _ in names]
    right = [_RIDGE * mean] * len(names)
    for at in range(len(names)):
        matrix[at][at] = _RIDGE
    for candidate in scored:
        items = [(place[name], weight) for name, weight in candidate.weights.items()]
        for row, weight in items:
            right[row] += weight * candidate.found
            for column, other in items:
                matrix[row][column] += weight * other
    return {name: max(value, 0.05 * mean) for name, value in zip(names, _solve(matrix, right), strict=True)}


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss, without pivoting: the matrix is symmetric and positive definite."""
    size = len(right)
    for at in range(size):
        for row in range(at + 1, size):
            factor = matrix[row][at] / matrix[at][at]
            if factor:
                for column in range(at, size):
                    matrix[row][column] -= factor * matrix[at][column]
                right[row] -= factor * right[at]
    solution = [0.0] * size
    for at in range(size - 1, -1, -1):
        rest = sum(matrix[at][column] * solution[column] for column in range(at + 1, size))
        solution[at] = (right[at] - rest) / matrix[at][at]
    return solution


def _conversations(candidates: Sequence[Candidate], worth: Mapping[str, float]) -> dict[str, float]:
    """For each conversation: its best match, and for every unit what others of its messages have beyond that."""
    best: dict[str, Candidate] = {}
    most: dict[str, dict[str, float]] = defaultdict(dict)
    for candidate in candidates:
        _keep_most(most[candidate.group], candidate.weights)
        if candidate.group not in best or candidate.found > best[candidate.group].found:
            best[candidate.group] = candidate
    return {
        group: candidate.found + _sum(most[group], worth) - _sum(candidate.weights, worth)
        for group, candidate in best.items()
    }


def _sides(candidate: Candidate, by_id: Mapping[int, Candidate]) -> tuple[dict[str, float], dict[str, float]]:
    """The best weights of each unit in the turns beside, and in those one further on."""
    beside: dict[str, float] = {}
    near: dict[str, float] = {}
    for side in ("before", "after"):
        first = by_id.get(getattr(candidate, side) or 0)
        if first is None:
            continue
        _keep_most(beside, first.weights)
        second = by_id.get(getattr(first, side) or 0)
        if second is not None:
            _keep_most(near, second.weights)
    return beside, near


def _keep_most(most: dict[str, float], weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        if weight > most.get(name, 0.0):
            most[name] = weight


def _sum(weights: Mapping[str, float], worth: Mapping[str, float]) -> float:
    return sum(weight * worth[name] for name, weight in weights.items())
