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
    virtual_successes: float = 1.0
    """Successes that a skill is thought to have had before its first use: it starts at 1.0, and its first failure makes
    it worth half, not nothing. benchmarks/skill_scores.py has the table."""


DEFAULT = Weights()
NEW = SkillUsage("")


def score(similarity: float, usage: SkillUsage = NEW, weights: Weights = DEFAULT) -> float:
    """Similarity is from 0 to 1. A skill of which nothing is known succeeds."""
    return similarity * success_rate(usage, weights) + bonus(usage, weights) - penalty(usage, weights)


def success_rate(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """How often it can be expected to work: 1.0 for a new one, and nearer to what was counted with every use."""
    before = max(weights.virtual_successes, 0.0)
    known = max(usage.successes, 0) + max(usage.failures, 0) + before
    return (max(usage.successes, 0) + before) / known if known else 1.0


def bonus(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For being used often."""
    return min(max(usage.uses, 0) / weights.uses_for_one, weights.most_bonus)


def penalty(usage: SkillUsage, weights: Weights = DEFAULT) -> float:
    """For a state that is not healthy."""
    return MappingProxyType(dict(weights.penalties)).get(usage.state, 0.0)
