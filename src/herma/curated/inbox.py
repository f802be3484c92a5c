"""Writes that wait for a person: proposals under write approval, and text that came from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from herma.curated.writer import Writer
from herma.errors import UsageError
from herma.ports import Inbox, Place
from herma.types import (
    Applied,
    Author,
    Blocked,
    MemoryOp,
    MemoryOutcome,
    OverBudget,
    Pending,
    Staged,
    Who,
)

_DAY = 86_400.0


class ApprovalQueue:
    """What is waiting, and the decisions on it. Only a person decides: no tool reaches `approve`."""

    def __init__(self, inbox: Inbox, writer: Writer, *, days: float, clock: Callable[[], float] = time.time) -> None:
        self._inbox = inbox
        self._writer = writer
        self._days = days
        self._clock = clock

    def stage(
        self,
        place: Place,
        ops: Sequence[MemoryOp],
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome:
        """Keep a write for later if it could be made now; the same proposal is kept once, and not again after
        it was rejected. `although_full` keeps it where only room is missing, which a person can make.
        """
        rehearsed = self._writer.rehearse(place, ops)
        if not isinstance(rehearsed, Applied) and not (although_full and isinstance(rehearsed, OverBudget)):
            return rehearsed
        now = self._clock()
        kept = self._inbox.put(
            Pending(0, now, now + self._days * _DAY, place.scope, place.target, author, tuple(ops), reason)
        )
        sizes = self._writer.sizes(place)
        if kept.decision == "rejected":
            day = time.strftime("%Y-%m-%d", time.localtime(kept.at))
            return Blocked(message=f"A person rejected this proposal of {day}; it is not proposed again.", **sizes)
        why = "it needs a person's approval" if author.origin.trusted else f"it comes from outside ({author.origin})"
        if isinstance(rehearsed, OverBudget):
            why = f"there is no room for it ({rehearsed.needed:,} of {rehearsed.limit:,} characters)"
        return Staged(message=f"Kept in the inbox as {kept.id}: {why}.", pending=kept.id, **sizes)

    def list(self) -> Sequence[Pending]:
        """What is waiting, oldest first. What expired is no longer shown."""
        return self._inbox.list(self._clock())

    def approve(self, pending_id: int, *, by: Author) -> MemoryOutcome:
        """Write what was proposed; it leaves the inbox when it is on disk, and stays there when it no longer fits."""
        pending = self._waiting(pending_id, by)
        origin = pending.author
        author = Author(by.who, origin.origin, origin.session, origin.message)
        outcome = self._writer.write(
            Place.of(pending.target, pending.scope),
            pending.operations,
            author,
            f"approved proposal {pending_id}{_by(origin.who)}" + (f": {pending.reason}" if pending.reason else ""),
        )
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author) -> Pending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._clock())
        return pending

    def _waiting(self, pending_id: int, by: Author) -> Pending:
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self.list():
            if pending.id == pending_id:
                return pending
        raise UsageError(
            f"Nothing with the number {pending_id} is waiting.",
            hint="`herma memory pending` lists what is waiting.",
        )


def _by(who: Who) -> str:
    """Whose proposal it was, in words for the history; a person's own needs no name."""
    return {Who.TOOL: " of the agent", Who.USER: ""}.get(who, f" by {who.value}")
