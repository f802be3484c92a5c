"""A clock that goes when it is told to."""

from __future__ import annotations


class FixedClock:
    """Call it for the time in seconds since 1970; it stands still until `advance`."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> float:
        """Let time pass. → the new time."""
        self.now += seconds
        return self.now
