"""Writes each call of a session into the ledger: begun when the request is made, finished when the reply is stored."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from herma.errors import HermaWarning, StoreError
from herma.ports import Call, CallRows
from herma.turn.account import Account, with_usage
from herma.types import Message, Usage

KEPT_BACK = 1_000
"""Calls that wait at most to be written, when the store cannot be written for a while."""


class Meter:
    """One per session. A ledger that cannot be written never fails a turn: what it lacks is written later."""

    def __init__(self, account: Account, rows: CallRows) -> None:
        self.account = account
        self._rows = rows
        self._made: Call | None = None
        self._waiting: list[tuple[Call, Usage | None]] = []
        self._warned = False

    def called(self, history: Sequence[Message], now: float, lifetime: float | None = None) -> None:
        """A request was made. One that got no reply counts all the same: it was sent."""
        self.answered(())
        self._made = self.account.call(history, now, lifetime)

    def answered(self, replies: Sequence[Message], usage: Usage | None = None) -> bool:
        """What came back was stored. → whether it belongs to a request; a second reply to the same one does not."""
        if self._made is None:
            return False
        output = sum(message.tokens or 0 for message in replies if message.role == "assistant")
        self._waiting.append((with_usage(self._made, output, usage), usage))
        self._made = None
        self._write()
        return True

    def _write(self) -> None:
        while self._waiting:
            try:
                self._rows.add(*self._waiting[0])
            except StoreError as exc:
                del self._waiting[:-KEPT_BACK]
                if not self._warned:
                    self._warned = True
                    warnings.warn(f"What the session costs could not be written down yet: {exc}", HermaWarning, 2)
                return
            del self._waiting[0]
