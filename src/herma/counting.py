"""The best way to count a model's tokens: exactly, where its vocabulary is at hand, else by the calibrated estimate."""

from __future__ import annotations

from functools import cache

from herma.models.tokens import exact_counter
from herma.ports import TokenCounter
from herma.prompt.families import family_of
from herma.prompt.tokens import Estimate


def counter_for(model: str | None) -> TokenCounter:
    """The counter for a model, by its name; an unknown one is estimated on the safe side."""
    return counter_for_family(family_of(model or ""))


@cache
def counter_for_family(family: str) -> TokenCounter:
    """The counter for a family of tokenizers. Looks for the optional packages once."""
    return exact_counter(family) or Estimate(family)
