"""Doubles and suites for tests of Herma and of what is built on it.

`FixedClock` is a clock that stands still. `HashEmbedder` embeds without a model. `herma.testing.store_contract` (needs
pytest) is what every store must keep.
"""

from herma.testing.clock import FixedClock
from herma.testing.hash_embedder import HashEmbedder

__all__ = ["FixedClock", "HashEmbedder"]
