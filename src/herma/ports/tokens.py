"""Counting tokens."""

from __future__ import annotations

from typing import Protocol


class TokenCounter(Protocol):
    """How many tokens a text takes for one model, with its vocabulary or by estimate."""

    @property
    def name(self) -> str:
        """What counts: a vocabulary, or "estimate for …"."""

    @property
    def exact(self) -> bool:
        """Whether this is the model's own count; an estimate is rather too high than too low."""

    def count(self, text: str) -> int: ...
