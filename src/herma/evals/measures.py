"""Measures of ranked answers. Pure."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

DEPTH = 10
"""How far down an answer is looked at."""
RESAMPLES = 2_000
FEW_GROUPS = 5
"""With fewer groups than this, single questions are drawn instead."""
NAMES = ("hit@1", "hit@5", "hit@10", "recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")


@dataclass(frozen=True, slots=True)
class Answered:
    """One question: the places (from 1) at which right documents came, how many are right, and how long it took."""

    id: str
    group: str
    type: str
    places: tuple[int, ...]
    gold: int
    took_ms: float = 0.0

    def measure(self, name: str) -> float:
        kind, _, cut = name.partition("@")
        k = int(cut or DEPTH)
        within = [place for place in self.places if place <= k]
        if kind == "hit":
            return float(bool(within))
        if kind == "recall":
            return len(within) / self.gold
        if kind == "mrr":
            return 1 / within[0] if within else 0.0
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(self.gold, k) + 1))
        return sum(1 / math.log2(place + 1) for place in within) / ideal


def answered(id_: str, group: str, type_: str, found: Sequence[str], gold: Sequence[str], took_ms: float) -> Answered:
    right, places = set(gold), []
    for place, name in enumerate(found[:DEPTH], 1):
        if name in right:
            right.discard(name)  # found twice counts once
            places.append(place)
    return Answered(id_, group, type_, tuple(places), len(set(gold)), round(took_ms, 3))


def figures(answers: Sequence[Answered]) -> dict[str, float]:
    """Means of every measure, and the middle and the slow end of the times."""
    if not answers:
        return {"questions": 0}
    took = sorted(one.took_ms for one in answers)
    return {
        "questions": len(answers),
        **{name: round(fmean(one.measure(name) for one in answers), 4) for name in NAMES},
        "p50_ms": round(percentile(took, 0.5), 2),
        "p95_ms": round(percentile(took, 0.95), 2),
    }


def by_type(answers: Sequence[Answered]) -> dict[str, dict[str, float]]:
    kinds: dict[str, list[Answered]] = defaultdict(list)
    for one in answers:
        kinds[one.type].append(one)
    return {kind: figures(kinds[kind]) for kind in sorted(kinds)} if len(kinds) > 1 else {}


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of them does not exceed."""
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better the second is, with the interval that 95 % of resamples fall into."""

    measure: str
    first: float
    second: float
    low: float
    high: float
    pairs: int
    drawn: str

    @property
    def change(self) -> float:
        return self.second - self.first

    @property
    def sure(self) -> bool:
        """Whether the interval leaves no doubt that there is a difference."""
        return self.low > 0 or self.high < 0


def difference(first: Sequence[Answered], second: Sequence[Answered], measure: str, seed: int = 0) -> Difference | None:
    """The same questions in two runs; None when there are none. Whole groups are drawn where there are enough: the
    questions of one conversation are no independent witnesses.
    """
    known = {(one.group, one.id): one for one in first}
    pairs = [(known[one.group, one.id], one) for one in second if (one.group, one.id) in known]
    if not pairs:
        return None
    groups: Mapping[object, list[float]] = defaultdict(list)
    changes = [after.measure(measure) - before.measure(measure) for before, after in pairs]
    grouped = len({one.group for _, one in pairs}) >= FEW_GROUPS
    for at, ((_, one), change) in enumerate(zip(pairs, changes, strict=True)):
        groups[one.group if grouped else at].append(change)
    low, high = _interval(list(groups.values()), seed)
    return Difference(
        measure=measure,
        first=fmean(one.measure(measure) for one, _ in pairs),
        second=fmean(one.measure(measure) for _, one in pairs),
        low=low,
        high=high,
        pairs=len(pairs),
        drawn="groups" if grouped else "questions",
    )


def _interval(groups: Sequence[Sequence[float]], seed: int) -> tuple[float, float]:
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same interval every time
    sums = [(sum(one), len(one)) for one in groups]
    means = []
    for _ in range(RESAMPLES):
        picked = draw.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in picked) / sum(count for _, count in picked))
    means.sort()
    return percentile(means, 0.025), percentile(means, 0.975)
