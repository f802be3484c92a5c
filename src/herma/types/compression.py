"""What comes of shortening a conversation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from herma.types.transcript import Message

How: TypeAlias = Literal["pruned", "model", "extract"]
"""Only tool results were shortened; a model wrote the summary; it was made of the conversation's own words."""


@dataclass(frozen=True, slots=True)
class Condensed:
    """Messages that stand for a conversation, and how they came about."""

    messages: tuple[Message, ...]
    how: How
    tokens_before: int
    tokens_after: int
    replaced: int = 0
    """How many messages the summary stands for."""
    kept: Mapping[str, float] = field(default_factory=dict)
    """The share of paths, identifiers, numbers and open tasks that the summary still names."""
    notes: tuple[str, ...] = ()
    """For people: what failed on the way, what was put in its place."""
    model: str = ""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nothing was changed, and why."""

    reason: str
    notes: tuple[str, ...] = ()


Compression: TypeAlias = Condensed | LeftAlone


@dataclass(frozen=True, slots=True)
class Expansion:
    """A line of a summary, and the original messages that it was made from."""

    line: str
    messages: tuple[Message, ...]
    missing: tuple[int, ...] = ()
    """Numbers that it names and that are not there: deleted since, or of another conversation."""
