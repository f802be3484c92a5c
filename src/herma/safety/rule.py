"""What a rule is: a name, a reason, and the patterns that betray it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Pattern:
    """Regular expressions, and what must occur before they are worth trying: a trigger, and one of `also` if given."""

    triggers: frozenset[str]
    expressions: tuple[str, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in folded text (`fold.py`): by phrases, one a line (`phrase.py`), or by patterns."""

    id: str
    why: str
    phrases: str = ""
    patterns: tuple[Pattern, ...] = ()
    severity: Literal["high", "medium"] = "high"


def pattern(triggers: str, *expressions: str, also: str = "") -> Pattern:
    """Make a pattern. Triggers are separated by spaces: whole words of a-z, or pieces of text in other scripts."""
    return Pattern(frozenset(triggers.split()), expressions, tuple(also.split()))
