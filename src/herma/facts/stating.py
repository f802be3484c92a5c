"""A fact as an entry states it, and what of a sentence is its value. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from herma.late import Late

USER = "user"
LONGEST_VALUE = 120
_NEGATED = Late(
    r"^(?:not|no|never|n/a|none|unknown|tbd|\?|undecided|still|being|going|about|for|to|that|because|"
    r"不|没|沒|未|无|無)(?!\w)|^(?:不|没|沒|未)",
    re.IGNORECASE,
)
_GOES_ON = Late(
    r"\s*(?:,?\s+(?:but|because|since|so that|although|though|while)\s|,?\s+and\s+(?:i|he|she|they|we|it|his|her"
    r"|their|the|also|"
    r"is|has|lives|works|prefers|likes|uses|wants|speaks|would)\s|,\s+(?:an?|who|which|where|so|not)\s|\s\(|，|；"
    r"|（)",
    re.IGNORECASE,
)
"""Where a sentence turns to something else."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact as an entry states it."""

    subject: str
    attribute: str
    value: str


def value_of(text: str, *, plain: bool = False) -> str:
    """The value without what surrounds it; "" when it says nothing. `plain`: it ends at a comma, too."""
    value = _GOES_ON.split(" ".join(text.split()), maxsplit=1)[0].strip(" .。;；,，")
    if plain:
        value = re.split(r",\s+(?![A-Z])", value)[0]
    value = value.strip("\"'`“”„«»「」 .")
    if not value or len(value) > LONGEST_VALUE or _NEGATED.match(value):
        return ""
    return value
