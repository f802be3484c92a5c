"""Whether a new skill says again what another says already. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from herma.types import Skill

_WORD = re.compile(r"[^\W_]{3,}")
_NAME_ALIKE = 88.0
_DESCRIPTION_ALIKE = 90.0
_WORDS_SHARED = 0.6
_BODY_SHARED = 0.8
_MOST_BODY = 40_000


@dataclass(frozen=True, slots=True)
class Alike:
    """A skill that is nearly the same, and in what."""

    skill: Skill
    why: str
    degree: float


def alike(new: Skill, known: Iterable[Skill]) -> list[Alike]:
    """The skills that `new` nearly repeats, the nearest first."""
    from rapidfuzz import fuzz

    said, body = _words(new.description), _words(new.body[:_MOST_BODY])
    found = []
    for other in known:
        name = fuzz.ratio(_plain(new.name), _plain(other.name))
        shared = _overlap(said, _words(other.description))
        described = fuzz.token_sort_ratio(new.description, other.description) if shared >= 0.3 else 0.0
        if described >= _DESCRIPTION_ALIKE:
            found.append(Alike(other, "its description says nearly the same", described / 100))
        elif name >= _NAME_ALIKE and shared >= _WORDS_SHARED / 2:
            found.append(Alike(other, "its name and description are nearly the same", name / 100))
        elif len(body) >= 20 and _overlap(body, _words(other.body[:_MOST_BODY])) >= _BODY_SHARED:
            found.append(Alike(other, "its body says nearly the same", _BODY_SHARED))
        elif len(said) >= 6 and shared >= _WORDS_SHARED and name >= 60:
            found.append(Alike(other, "its name and description share most words", shared))
    return sorted(found, key=lambda each: (-each.degree, each.skill.path))


def _overlap(one: set[str], other: set[str]) -> float:
    return len(one & other) / len(one | other) if one and other else 0.0


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", " ", name)
