"""What a rule is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for in folded text (`fold.py`).

    A rule runs only if one of its triggers occurs, so ordinary notes cost a set intersection. A trigger is a whole
    word if it consists of a-z, else any piece of text.
    """

    id: str
    why: str
    triggers: str
    pattern: str
    severity: Literal["high", "medium"] = "high"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile when first needed: most rules are never tried."""
    return re.compile(pattern)
