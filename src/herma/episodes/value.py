"""What an episode is worth: as one pure function, used for showing the best and for putting away the least."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from herma.ports.episodes import Weight
from herma.types import Episode, Outcome

DAY = 86_400.0
HALF_LIFE_DAYS = 90.0
"""Days after which what nobody used counts for three quarters; it never counts for less than half."""
_ENDED: dict[Outcome, float] = {
    "resolved": 1.0,
    "successful": 0.9,
    "unclear": 0.4,
    "interrupted": 0.35,
    "failed": 0.15,
}
_FAILED_WITH_REMEDY = 0.8
_SUPERSEDED = 0.3
_MOST_USES = 20


def weight_of(episode: Episode) -> Weight:
    return Weight(
        episode.id,
        episode.ended,
        episode.outcome,
        bool(episode.remedy),
        episode.uses,
        episode.last_used,
        episode.superseded_by is not None,
    )


def value(weight: Weight, now: float, similarity: float = 1.0) -> float:
    """How it ended × how lately it was of use × how often × how near it is to what is wanted. Between 0 and 1.5."""
    ended = _ENDED[weight.outcome]
    if weight.has_remedy and weight.outcome in ("failed", "interrupted", "unclear"):
        ended = max(ended, _FAILED_WITH_REMEDY)
    age = max(0.0, now - max(weight.ended, weight.last_used or 0.0)) / DAY
    recency = 0.5 + 0.5 * math.exp2(-min(age, 36_500.0) / HALF_LIFE_DAYS)
    used = 1.0 + min(max(weight.uses, 0), _MOST_USES) / (2.0 * _MOST_USES)
    stands = _SUPERSEDED if weight.superseded else 1.0
    return min(max(similarity, 0.0), 1.0) * ended * recency * used * stands


def is_worth_showing(episode: Episode) -> bool:
    """Successful, or failed with a known remedy; not outdated by a later one, and not from outside."""
    helpful = episode.outcome in ("successful", "resolved") or bool(episode.remedy)
    return helpful and episode.superseded_by is None and episode.archived is None and not from_outside(episode)


def from_outside(episode: Episode) -> bool:
    """Whether its conversation was imported: then its text is a candidate, and reaches no prompt by itself."""
    return episode.source.startswith("import")


def least_valuable(weights: Sequence[Weight], most: int, now: float) -> list[int]:
    """Which to put away so that `most` are left, the least valuable first; among equals the oldest."""
    excess = len(weights) - most
    if excess <= 0:
        return []
    ranked = sorted(weights, key=lambda one: (value(one, now), one.ended, one.id))
    return [one.id for one in ranked[:excess]]


def best(episodes: Iterable[Episode], project: str, now: float) -> list[Episode]:
    """Those worth showing where nobody has said yet what is wanted: of the same project first, then by value."""
    shown = [one for one in episodes if is_worth_showing(one)]
    return sorted(
        shown, key=lambda one: (one.scope.project != project, -value(weight_of(one), now), -one.ended, -one.id)
    )
