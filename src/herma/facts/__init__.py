"""Keyed facts: exact answers to exact questions. `keeper` is the page to read first."""

from herma.facts.keeper import Facts

__all__ = ["Facts"]
