"""What a rule is: a name, a reason, and the patterns that betray it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from herma.safety.phrase import Pattern, read_phrases

Severity = Literal["high", "medium"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in folded text (`fold.py`): by phrases, one a line, or by regular expressions.

    A pattern is tried only if one of its triggers occurs, and compiled when it is first tried, so ordinary notes cost
    little more than a set intersection. A trigger of a-z is a whole word; any other is a piece of text.
    """

    id: str
    why: str
    phrases: str = ""
    patterns: tuple[Pattern, ...] = ()
    severity: Severity = "high"

    def all_patterns(self) -> tuple[Pattern, ...]:
        return read_phrases(self.phrases) + self.patterns


def pattern(triggers: str, *expression: str) -> Pattern:
    """A pattern in regular expressions, joined as alternatives, with its triggers separated by spaces."""
    return Pattern(tuple(triggers.split()), "|".join(expression))


@cache
def compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)
