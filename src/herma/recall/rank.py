"""Ordering candidates: what the index says of each, plus evidence from the turns beside it and from its conversation.

A turn rarely says everything: the question names the thing, the answer next to it has the fact. So a message is also
worth part of what its neighbours are worth, and a little for every term that occurs anywhere in its conversation.
The index scores a message as a whole; what each term is worth follows from these scores (`rarities`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from herma.recall.match import Unit

BESIDE = 0.5
"""Weight of a neighbouring turn. 0.4–0.5 is best on LoCoMo and BEAM, and neutral where there are no neighbours."""
NEAR = 0.2
"""Weight of the turn after the next: one more point on LoCoMo, none lost elsewhere."""
CONVERSATION = 0.3
"""Weight of terms that occur elsewhere in the conversation; from 0.5 on, long conversations swallow the list."""
NAMED_DATE, NAMED_PERIOD = 0.8, 0.4
"""What a message gains by being from the day or month that the query names; from "last month", which is more often the
time of what is told than that of telling it. 2.5 points on LoCoMo, 20 on questions by date, none lost elsewhere."""
COVERAGE = 0.05
"""What having all of the words adds to having one: neutral on every set up to here, harmful from 0.2 on."""
SPEAKER = {"user": 0.15, "tool": -0.1}
"""Facts are mostly told by the user and repeated by the assistant at length: 4 to 6 points on BEAM, none lost."""
_SATURATION, _LENGTH = 1.2, 0.75
_RIDGE = 0.05
_MOST_TIMES = 12
"""More occurrences of a word add next to nothing."""


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
    text: str = ""
    cut: bool = False
    """Whether there is more text than ranking reads."""
    times: dict[str, int] | None = None
    """How often each unit occurs in it, once that was counted."""
    weights: dict[str, float] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    told: float = 0.0
    """The sum of `values`."""
    own: float = 0.0
    beside: float = 0.0
    around: float = 0.0
    meaning: float = 0.0
    score: float = 0.0


def rank(candidates: Sequence[Candidate], units: Sequence[Unit]) -> list[Candidate]:
    """Score every candidate; best first, newest first among equals. Scores are relative: the best match alone is 1."""
    if not candidates:
        return []
    weigh(candidates, units)
    worth = rarities(candidates)
    for one in candidates:
        if one.weights:
            one.values = {name: weight * worth[name] for name, weight in one.weights.items()}
            one.told = sum(one.values.values())
        one.own = one.found or one.told
    by_id = {one.id: one for one in candidates}
    around = _conversations(candidates)
    best = max(one.own for one in candidates) or 1.0
    for one in candidates:
        before, after = by_id.get(one.before or 0), by_id.get(one.after or 0)
        if before or after:
            further = by_id.get(before.before or 0) if before else None, by_id.get(after.after or 0) if after else None
            one.beside = (BESIDE * _both(before, after) + NEAR * _both(*further)) / best
        one.around = CONVERSATION * around[one.group] / best
        covered = COVERAGE * len(one.weights) / len(units) if one.weights else 0.0
        one.score = one.own / best + one.beside + one.around + covered + one.bonus
    return sorted(candidates, key=lambda one: (-one.score, -one.timestamp, -one.id))


def look_for(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """How often each unit occurs in each candidate, where that is not known yet."""
    for one in candidates:
        if one.times is None:
            folded = one.folded
            one.times = {
                unit.name: times
                for unit in units
                if unit.part in folded and (times := len(unit.find(folded, _MOST_TIMES)))
            }


def weigh(candidates: Sequence[Candidate], units: Sequence[Unit]) -> None:
    """BM25's weight of each unit in each candidate, without its rarity."""
    look_for(candidates, units)
    average = max(1.0, sum(len(one.folded) for one in candidates) / len(candidates))
    for one in candidates:
        if one.times:
            norm = _SATURATION * (1 - _LENGTH + _LENGTH * len(one.folded) / average)
            for name, times in one.times.items():
                one.weights[name] = times * (_SATURATION + 1) / (times + norm)


def rarities(candidates: Sequence[Candidate]) -> dict[str, float]:
    """What each unit is worth, so that weights times worth come nearest to the scores of the index (least squares).

    The ridge draws units that occur in few candidates towards the common mean.
    """
    scored = [one for one in candidates if one.found > 0 and one.weights]
    names = sorted({name for one in candidates for name in one.weights})
    if not scored:
        return dict.fromkeys(names, 1.0)
    total = sum(sum(one.weights.values()) for one in scored)
    mean = sum(one.found for one in scored) / total
    place = {name: at for at, name in enumerate(names)}
    matrix = [[0.0] * len(names) for _ in names]
    right = [_RIDGE * mean] * len(names)
    for at in range(len(names)):
        matrix[at][at] = _RIDGE
    for one in scored:
        items = [(place[name], weight) for name, weight in one.weights.items()]
        for row, weight in items:
            right[row] += weight * one.found
            line = matrix[row]
            for column, other in items:
                line[column] += weight * other
    return {name: max(value, 0.05 * mean) for name, value in zip(names, _solve(matrix, right), strict=True)}


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gauss, without pivoting: the matrix is symmetric and positive definite."""
    size = len(right)
    for at in range(size):
        line = matrix[at]
        for row in range(at + 1, size):
            factor = matrix[row][at] / line[at]
            if factor:
                below = matrix[row]
                for column in range(at, size):
                    below[column] -= factor * line[column]
                right[row] -= factor * right[at]
    solution = [0.0] * size
    for at in range(size - 1, -1, -1):
        rest = sum(matrix[at][column] * solution[column] for column in range(at + 1, size))
        solution[at] = (right[at] - rest) / matrix[at][at]
    return solution


def _conversations(candidates: Sequence[Candidate]) -> dict[str, float]:
    """For each conversation: its best match, and for every unit what others of its messages have beyond that."""
    members: dict[str, list[Candidate]] = defaultdict(list)
    for one in candidates:
        members[one.group].append(one)
    around = {}
    for group, ones in members.items():
        best = ones[0] if len(ones) == 1 else max(ones, key=lambda one: one.own)
        around[group] = best.own + _together(ones) - best.told
    return around


def _both(one: Candidate | None, other: Candidate | None) -> float:
    """`_together` of two that may not be there: mostly at most one of them has any of the units."""
    if one is None or not one.values:
        return other.told if other is not None else 0.0
    if other is None or not other.values:
        return one.told
    return _together((one, other))


def _together(ones: Sequence[Candidate]) -> float:
    """The sum over units of the most that each is worth in any of these."""
    if len(ones) < 2:
        return ones[0].told if ones else 0.0
    most = dict(ones[0].values)
    for one in ones[1:]:
        for name, value in one.values.items():
            if value > most.get(name, 0.0):
                most[name] = value
    return sum(most.values())
