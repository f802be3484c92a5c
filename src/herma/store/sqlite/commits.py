"""Many writers, one commit: whoever finds nobody writing writes for all who come meanwhile.

docs/decisions/0006-group-commit-without-a-thread.md says why there is no writer thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias, TypeVar

import apsw

from herma.errors import StoreError

T = TypeVar("T")
Work: TypeAlias = Callable[[apsw.Connection], T]
AT_MOST = 128
"""How many works share one transaction, so that nobody's wait grows without bound."""


class _Ticket:
    """One caller's work, and what came of it."""

    __slots__ = ("done", "error", "result", "since", "thread", "turn", "work")

    def __init__(self, work: Work[Any]) -> None:
        self.work = work
        self.thread = threading.get_ident()
        self.since = time.monotonic()
        self.turn = threading.Lock()  # held until this work is done, or its caller is to lead
        self.turn.acquire()
        self.done = False
        self.result: Any = None
        self.error: Exception | None = None

    def outcome(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.result


class GroupCommit:
    """Runs works one after the other; those that wait at the same time share a transaction and its flush to disk."""

    def __init__(
        self, connect: Callable[[], apsw.Connection], translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._connect = connect
        self._translated = translated
        self._gate = threading.Condition(threading.Lock())
        self._queue: deque[_Ticket] = deque()
        self._leader: _Ticket | None = None

    def run(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns. An error in it undoes this work only.

        A work may be run a second time, after a rollback, when the thread that ran it was interrupted.
        """
        ticket = _Ticket(work)
        try:  # an interrupt may come anywhere in here, and must not leave anybody waiting for this thread
            with self._gate:
                if self._leader is not None and self._leader.thread == ticket.thread:
                    raise StoreError(
                        "A write was begun inside another write.", hint="Use the connection that was given."
                    )
                leads = self._leader is None
                if leads:
                    self._leader = ticket
                else:
                    self._queue.append(ticket)
            if not leads:
                self._await(ticket)
            if not ticket.done:
                self._lead(ticket)
        finally:
            if self._leader is ticket or not ticket.done:
                self._step_down(ticket)
        result: T = ticket.outcome()
        return result

    def drain(self, timeout: float) -> bool:
        """Wait until nobody writes. → False when that took too long."""
        with self._gate:
            return self._gate.wait_for(lambda: self._leader is None, timeout)

    def _await(self, ticket: _Ticket) -> None:
        """Until the work is done or its caller is to lead. Leaders are bounded by the database's deadline."""
        ticket.turn.acquire()

    def _lead(self, own: _Ticket) -> None:
        batch = [own]
        connection: apsw.Connection | None = None
        committing = False
        try:
            try:
                with self._translated():
                    connection = self._connect()
                    self._begin(connection, batch)
                    self._run_all(connection, batch)
                    committing = True
                    connection.execute("COMMIT")
            except Exception as exc:  # noqa: BLE001  handed to every caller whose work it undid
                _roll_back(connection)
                for ticket in batch:
                    ticket.error = ticket.error or exc
        except BaseException:
            done = committing and connection is not None and not connection.in_transaction
            if not done:
                _roll_back(connection)
                with self._gate:
                    self._queue.extendleft(reversed(batch[1:]))
                raise
            _release(batch)
            raise
        _release(batch)

    def _begin(self, connection: apsw.Connection, batch: list[_Ticket]) -> None:
        """Wait for other processes. When that took too long, it did so for those who have waited half as long too."""
        began = time.monotonic()
        try:
            connection.execute("BEGIN IMMEDIATE")
        except apsw.BusyError:
            now = time.monotonic()
            with self._gate:
                while self._queue and now - self._queue[0].since >= (now - began) / 2:
                    batch.append(self._queue.popleft())
            raise

    def _run_all(self, connection: apsw.Connection, batch: list[_Ticket]) -> None:
        """The leader's work, then whatever was queued meanwhile. `batch` grows by what was taken from the queue."""
        at = 0
        while at < len(batch):
            self._run_one(connection, batch[at], first=not at)
            at += 1
            if at == len(batch) and at < AT_MOST and self._queue:
                with self._gate:
                    while self._queue and len(batch) < AT_MOST:
                        batch.append(self._queue.popleft())

    def _run_one(self, connection: apsw.Connection, ticket: _Ticket, *, first: bool) -> None:
        """Run a work so that it can be undone by itself; before the first there is nothing to keep."""
        if not first:
            connection.execute("SAVEPOINT work")
        ticket.error = None  # of a first run that was rolled back with everything else
        try:
            with self._translated():
                ticket.result = ticket.work(connection)
        except Exception as exc:
            ticket.error = exc
            if not connection.in_transaction:  # SQLite gave up the whole transaction: all of it has failed
                raise
            connection.execute("ROLLBACK; BEGIN IMMEDIATE" if first else "ROLLBACK TO work")
        if not first:
            connection.execute("RELEASE work")

    def _step_down(self, ticket: _Ticket) -> None:
        """Let the first who waits lead; nobody, when nobody waits. Who leaves without leading waits no longer."""
        with self._gate:
            if self._leader is not ticket:
                if ticket in self._queue:
                    self._queue.remove(ticket)
            elif self._queue:
                self._leader = self._queue.popleft()
                self._leader.turn.release()
            else:
                self._leader = None
                self._gate.notify_all()


def _roll_back(connection: apsw.Connection | None) -> None:
    if connection is not None and connection.in_transaction:
        connection.execute("ROLLBACK")


def _release(batch: list[_Ticket]) -> None:
    for ticket in batch:
        ticket.done = True
        if ticket is not batch[0]:
            ticket.turn.release()
