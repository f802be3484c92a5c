"""Writes to skills that wait for a person: proposals under write approval, and text that came from outside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from herma.errors import UsageError
from herma.ports.skills import SkillInbox
from herma.skills.writer import SkillWriter
from herma.types import Author, SkillOp, SkillOutcome, SkillPending, SkillRefused, SkillStaged, Who

_DAY = 86_400.0


class SkillApprovals:
    """What is waiting, and the decisions on it. Only a person decides: no tool reaches `approve`."""

    def __init__(self, inbox: SkillInbox, writer: SkillWriter, *, days: float, clock: Callable[[], float]) -> None:
        self._inbox = inbox
        self._writer = writer
        self._days = days
        self._clock = clock

    def stage(self, op: SkillOp, author: Author, reason: str) -> SkillOutcome:
        """Keep a write for later if it could be made now; the same proposal is kept once, and not again after it was
        rejected.
        """
        refused = self._writer.rehearse(op, author)
        if refused is not None:
            return refused
        now = self._clock()
        kept = self._inbox.put(SkillPending(0, now, now + self._days * _DAY, author, op, reason))
        if kept.decision == "rejected":
            day = time.strftime("%Y-%m-%d", time.localtime(kept.at))
            message = f"A person rejected this proposal of {day}; it is not proposed again."
            return SkillRefused(name=op.name, kind="rejected", message=message)
        why = "it needs a person's approval" if author.origin.trusted else f"it comes from outside ({author.origin})"
        return SkillStaged(name=op.name, message=f"Kept in the inbox as {kept.id}: {why}.", pending=kept.id)

    def list(self) -> Sequence[SkillPending]:
        return self._inbox.list(self._clock())

    def approve(self, pending_id: int, *, by: Author) -> SkillOutcome:
        """Write what was proposed; it leaves the inbox when it is on disk, and stays there when it no longer fits."""
        pending = self._waiting(pending_id, by)
        reason = f"approved proposal {pending_id}" + (f": {pending.reason}" if pending.reason else "")
        outcome = self._writer.write(pending.operation, pending.author, reason)
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author) -> SkillPending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._clock())
        return pending

    def _waiting(self, pending_id: int, by: Author) -> SkillPending:
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self.list():
            if pending.id == pending_id:
                return pending
        raise UsageError(
            f"Nothing with the number {pending_id} is waiting.", hint="`herma skills pending` lists what is waiting."
        )
