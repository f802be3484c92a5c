"""Keyed facts: exact answers to exact questions. `keeper` is the page to read first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herma.facts.keeper import Facts

__all__ = ["Facts"]


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: search needs only what attributes are called."""
    if name == "Facts":
        from herma.facts.keeper import Facts

        return Facts
    raise AttributeError(name)
