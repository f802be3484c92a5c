"""Which skills nearly repeat each other: candidates for a merge that a person may want. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from herma.skills.similar import alike
from herma.types import Skill
from herma.types.curator import MergeCandidate

MOST = 50
"""Pairs that are named; whoever has more begins with these."""
COMPARED = 1_500
"""Skills that are compared with each other: the work grows with the square."""
_WORD = re.compile(r"[^\W_]{3,}")
_SAID = 0.3
_BODY = 0.8
_MOST_BODY = 40_000


def merge_candidates(skills: Sequence[Skill], most: int = MOST) -> tuple[MergeCandidate, ...]:
    """Pairs that say nearly the same, the nearest first."""
    ordered = sorted(skills, key=lambda skill: (skill.name, skill.path))[:COMPARED]
    found: dict[tuple[str, str], MergeCandidate] = {}
    for one, other in _worth_comparing(ordered):
        pair = (one.name, other.name)
        for each in alike(one, [other]) if pair[0] != pair[1] else ():
            found.setdefault(pair, MergeCandidate(pair, each.why, round(each.degree, 3)))
    return tuple(sorted(found.values(), key=lambda one: (-one.degree, one.skills)))[:most]


def _worth_comparing(skills: Sequence[Skill]) -> Iterator[tuple[Skill, Skill]]:
    """Pairs that share words enough: whatever `alike` finds, it finds among these. Words are read once per skill."""
    said = [_words(skill.description) for skill in skills]
    body = [_words(skill.body[:_MOST_BODY]) for skill in skills]
    for at, skill in enumerate(skills):
        for other in range(at + 1, len(skills)):
            if _share(said[at], said[other], _SAID) or _share(body[at], body[other], _BODY):
                yield skill, skills[other]


def _share(one: frozenset[str], other: frozenset[str], part: float) -> bool:
    """Whether they have at least this part of their words in common. Sizes alone often say that they cannot."""
    small, large = sorted((len(one), len(other)))
    if not small or small < part * large:
        return False
    common = len(one & other)
    return common >= part * (small + large - common)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
