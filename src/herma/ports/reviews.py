"""Where looking back is written down, for every process of a home."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from herma.types import Review


class ReviewRows(Protocol):
    """One row per review. A review that runs holds a lease: until it ends, no other of its conversation begins."""

    def claim(self, review: Review, now: float, lease: float) -> Review | None:
        """Begin a review: a new one, or one that is due (it has an id).

        → it, now running, with one more try. None where another of the same conversation runs and its lease still
        holds, or where one of the same kind has looked at these messages already. In one transaction.
        """
        ...

    def owe(self, review: Review) -> Review:
        """Note one that is due and not begun; one of the same kind that is due for the conversation is extended."""
        ...

    def end(self, review: Review) -> None:
        """Write down how it went; it runs no longer. One that is `due` again may be claimed once more."""
        ...

    def owed(self, now: float, most_tries: int, limit: int) -> Sequence[Review]:
        """What is due and does not run, oldest first; what was tried too often is given up on the way."""
        ...

    def prune(self, before: float) -> int:
        """Delete what ended before then, wrote nothing, and is not the last of its kind in its conversation.

        → how many. What can be taken back is never deleted.
        """
        ...

    def covered(self, conversation: str) -> int:
        """The last message that a boundary or an end has covered; 0 where there was none."""
        ...

    def log(self, limit: int, conversation: str | None = None) -> Sequence[Review]:
        """The newest first."""
        ...

    def get(self, number: int) -> Review | None: ...
