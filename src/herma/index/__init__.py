"""The derived indexes, of words and of vectors: preparing text, following the change feed, answering searches."""

from herma.index.sync import Index, IndexStatus, Verified
from herma.index.vectors import Vectors

__all__ = ["Index", "IndexStatus", "Vectors", "Verified"]
