"""What a look at one thing comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "note", "warning", "problem"]
REPAIR = "herma doctor --repair"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found in one sentence, and what to type next where that helps."""

    name: str
    state: State
    sentence: str
    next: str = ""


def size(count: float) -> str:
    """1,234,567 → 1.2 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some(items: list[str], at_most: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    rest = len(items) - at_most
    return "; ".join(items[:at_most]) + (f"; and {rest} more" if rest > 0 else "")
