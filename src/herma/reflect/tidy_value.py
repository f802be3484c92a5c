"""What an entry is worth to the prompt, compared with the others of its file. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from herma.types import Entry, Origin

FULL = 0.8
"""Part of its limit above which a file is too full."""
SURE = 0.8
"""Confidence from which a proposal is carried out without asking, where the settings say so."""
_KINDS = {"identity": 3.0, "preference": 2.0, "lesson": 1.5, "convention": 1.5, "environment": 1.0}
_HALF_LIFE = 120.0
_DAY = 86_400.0


def value(entry: Entry, now: float) -> float:
    """Who somebody is counts most, what they want next; what a person said more than what an agent concluded; and half
    of it fades with the time since it was last written or confirmed.
    """
    kind = _KINDS.get(entry.category or "", 1.0)
    source = 1.0 if entry.origin is Origin.AGENT_CONCLUDED else 1.4
    days = max(0.0, now - touched(entry)) / _DAY
    return float(kind * source * (0.5 + 0.5 * 0.5 ** (days / _HALF_LIFE)))


def touched(entry: Entry) -> float:
    """When it was last written or confirmed; an entry of which nobody knows is as old as can be."""
    return max(entry.changed or 0.0, entry.confirmed or 0.0, entry.created or 0.0)


def least_valuable(entries: Sequence[Entry], now: float) -> list[Entry]:
    """The least valuable first; among equals the older, then the longer, which frees more."""
    return sorted(entries, key=lambda one: (value(one, now), touched(one), -len(one.text), one.text))
