"""What an embedder says of a task and of skills, on a scale from 0 to 1. Pure, over cosines as values.

A skill is embedded as a whole and sentence by sentence: a task is often about one of the things that a description
lists. docs/explanation/skills.md has the measurements behind the constants.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from herma.types import Skill

_KNOWN_MODEL, _KNOWN_SCALE = "e5-small", (0.77, 0.92)
_ENOUGH = 20
_SPREADS = (0.0, 10.0)
"""How far above the middle of a shelf the nearest of it lies when it means nothing, and when it means the same."""
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")
_LEAST, _MOST_SENTENCES = 16, 12
_PART = "\n"
"""Between the path of a skill and the number of a sentence: no path has a line end."""


@dataclass(frozen=True)
class Meanings:
    """Cosines of one task with skills, by path: all that are known, or the nearest."""

    cosines: Mapping[str, float]
    notes: tuple[str, ...] = ()
    model: str = ""

    @cached_property
    def scale(self) -> tuple[float, float] | None:
        """Which cosine means nothing, and which means the same. Models differ: those of e5 are known; of another model
        it is seen from how this task's cosines spread over the shelf, if that is long enough to tell."""
        if self.model.startswith(_KNOWN_MODEL):
            return _KNOWN_SCALE
        values = list(self.cosines.values())
        if len(values) < _ENOUGH:
            return None
        middle = sum(values) / len(values)
        spread = math.sqrt(sum((value - middle) ** 2 for value in values) / len(values))
        return (middle + _SPREADS[0] * spread, middle + _SPREADS[1] * spread) if spread > 0 else None

    def nearest(self, count: int) -> list[str]:
        return sorted(self.cosines, key=lambda path: (-self.cosines[path], path))[:count]

    def of(self, path: str) -> float | None:
        """How near a skill is, from 0 to 1; None where nobody can say, and words decide."""
        cosine = self.cosines.get(path)
        if cosine is None or self.scale is None:
            return None
        unrelated, same = self.scale
        return min(1.0, max(0.0, (cosine - unrelated) / (same - unrelated)))


def opening(description: str) -> str:
    """The first sentence: it says what the skill is."""
    return _SENTENCE.split(description, maxsplit=1)[0]


def texts_for_meaning(skill: Skill) -> dict[str, str]:
    """What of a skill is embedded, by key: its name, what it is for and when to use it; and each sentence of that."""
    triggers = "; ".join(skill.triggers[:20])
    name = skill.name.replace("-", " ").replace("_", " ")
    whole = f"{name}: {skill.description}" + (f"\nUse it for: {triggers}" if triggers else "")
    sentences = [part for part in _SENTENCE.split(skill.description) if len(part) >= _LEAST]
    if len(sentences) < 2 and not triggers:
        return {skill.path: whole}
    parts = {f"{skill.path}{_PART}{n}": f"{name}: {part}" for n, part in enumerate(sentences[:_MOST_SENTENCES])}
    return {skill.path: whole, **parts}


def by_path(cosines: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Cosines of texts → of skills: half the whole, half the sentence that comes nearest."""
    whole: dict[str, float] = {}
    best: dict[str, float] = {}
    for key, cosine in cosines:
        path, _, sentence = key.partition(_PART)
        if sentence:
            best[path] = max(cosine, best.get(path, -1.0))
        else:
            whole[path] = cosine
    return {path: (cosine + best.get(path, cosine)) / 2 for path, cosine in whole.items()}
