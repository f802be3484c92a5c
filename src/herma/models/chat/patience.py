"""When to ask again: back-off with jitter, the server's own wish, and never beyond the deadline. Pure."""

from __future__ import annotations

from herma.models.chat.faults import Fault

FIRST = 0.5
"""Seconds before the second attempt."""
LONGEST = 20.0


def pause(fault: Fault, attempt: int, retries: int, left: float, chance: float) -> float | None:
    """Seconds to wait before the next attempt; `None`: do not ask again.

    `attempt` counts from 1; `left` is what remains until the deadline; `chance` is a random number from 0 to 1, so
    that many who were refused at once do not come back at once. What the server asks for is never cut short.
    """
    if not fault.again or attempt > retries:
        return None
    usual = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 16)) * (0.5 + chance / 2)
    wanted = usual if fault.after is None else max(fault.after, FIRST * chance)
    return wanted if wanted < left else None
