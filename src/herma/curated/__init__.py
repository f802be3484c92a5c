"""L1, curated memory: two small files that are shown to the model whole. CANONICAL.

Read in this order: `entries` (text ↔ entries), `apply` (operations → outcome, pure), `store` (the one writer around
it).
"""

from herma.curated.store import MemoryStore

__all__ = ["MemoryStore"]
