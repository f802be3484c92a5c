"""How much a skill is worth for a task: similarity × success rate + bounded frequency bonus − health penalty. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from herma.types import SkillState, SkillUsage


@dataclass(frozen=True, slots=True)
class Weights:
    """The defaults; docs/explanation/skills.md says why."""

    uses_for_one: float = 100.0
    """Uses that would make a bonus of 1, if it were not bounded."""
    most_bonus: float = 0.2
    penalties: tuple[tuple[SkillState, float], ...] = (("deprecated", 0.3),)


DEFAULT = Weights()
NEW = SkillUsage("")


def score(similarity: float, usage: SkillUsage = NEW, weights: Weights = DEFAULT) -> float:
    """Similarity is from 0 to 1. A skill of which nothing is known succeeds."""
    return similarity * usage.success_rate + bonus(usage, weights) - penalty(usage, weights)


def bonus(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For being used often."""
    return min(max(usage.uses, 0) / weights.uses_for_one, weights.most_bonus)


def penalty(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For a state that is not healthy."""
    return MappingProxyType(dict(weights.penalties)).get(usage.state, 0.0)
