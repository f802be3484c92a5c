"""Episodic memory: what was done before, how it ended, and where the work stood. `keeper` is the page to read first."""

from herma.episodes.keeper import Episodes

__all__ = ["Episodes"]
