"""The derived text index: preparing text, following the change feed, answering searches."""

from herma.index.sync import Index, IndexStatus, Verified

__all__ = ["Index", "IndexStatus", "Verified"]
