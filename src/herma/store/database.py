"""Name what the rows of a feature may ask of a database, and load the statements in their `.sql` files.

A feature's rows are one class over `Database`, with named statements in the `.sql` file beside it:

    class Notes:
        def __init__(self, database: Database) -> None:
            self._db = database
            self._sql = database.queries("notes.rows")  # notes/rows.sql

        def of(self, topic: str) -> list[Note]:
            return [Note(*row) for row in self._db.rows(self._sql["of"], {"topic": topic})]

        def replace(self, old: int, note: Note) -> int:
            def work(connection: DatabaseConnection) -> int:  # one transaction
                connection.run(self._sql["remove"], {"id": old})
                return connection.insert(self._sql["add"], asdict(note))

            return self._db.write(work)

`store/sqlite.py` is the engine for SQLite. Another engine subclasses `Database` and `DatabaseConnection`:

- A statement uses `?` or `:name` for its values. A value may be a list, for `= ANY(:ids)` and `<> ALL(:ids)`.
- Where engines need different SQL, the `.sql` file has the statement once for each: `-- name [sqlite] --` and
  `-- name [postgres] --`. One under `-- name --` serves every engine that has none of its own.
- `write` is durable when it returns, and runs works one after the other as if each were alone (serialisable). It
  retries a work that lost against another process, within the deadline; then it raises `StoreBusy`.
- `read` and `snapshot` see one committed state and never wait for a writer.
- The change feed (`transcript/rows.py`) is a table like the others: an append and its row in `changes` are written by
  the same work. Other processes learn of a change by reading; nothing is pushed to them.
- `lock` excludes every process that uses the same data, and is free again when its holder dies.
- Errors are `StoreError`: `NotUnique` if a value that must be unique is taken, `StoreBusy` after the deadline.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from herma.errors import StoreBusy, StoreError, UsageError

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]
Bindings: TypeAlias = Sequence[Any] | Mapping[str, Any]

VERSION = 4
"""The format of the rows: `schema.sql`, and the newest script in `migrations/`."""
MIGRATIONS = Path(__file__).with_name("migrations")
_HEADING = re.compile(r"^-- (\w+)(?: \[(\w+)\])? --$", re.MULTILINE)
_ARRAY = re.compile(r"(= ANY|<> ALL) ?\((:\w+)\)")
_OF_SQLITE = {"= ANY": "IN", "<> ALL": "NOT IN"}


@cache
def queries(name: str, engine: str = "sqlite") -> dict[str, str]:
    """Return an engine's statements of a `.sql` file by name; `"memory.files"` is `memory/files.sql`.

    A line `-- name --` or `-- name [engine] --` starts a statement, which runs to the next such line.
    """
    path = Path(__file__).parents[1].joinpath(*name.split(".")).with_suffix(".sql")
    parts = _HEADING.split(path.read_text(encoding="utf-8"))
    found = list(zip(parts[1::3], parts[2::3], parts[3::3], strict=True))
    chosen = {key: sql.strip() for mark in (None, engine) for key, owner, sql in found if owner == mark}
    if engine != "sqlite":
        return chosen
    # SQLite has no arrays: it reads a list as JSON.
    return {
        key: _ARRAY.sub(lambda match: f"{_OF_SQLITE[match[1]]} (SELECT value FROM json_each({match[2]}))", sql)
        for key, sql in chosen.items()
    }


def migrations(folder: Path = MIGRATIONS) -> list[tuple[int, Path]]:
    """Return the scripts with the format that each leads to, in order."""
    return sorted((int(script.name[:4]), script) for script in folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))


class Blob(bytes):
    """Bytes for a column that may hold text as well (`ANY`)."""

    MARK = "\x01"
    """No text in such a column begins with it: an engine without such columns may put it before bytes."""


class _Engine:
    """An engine has a name, by which `.sql` files mark its own statements."""

    engine = ""

    def queries(self, name: str) -> dict[str, str]:
        """Return this engine's statements of a `.sql` file."""
        return queries(name, self.engine)


class DatabaseConnection(_Engine):
    """The statements that a work may call inside a transaction."""

    def stream(self, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
        """Run a statement and yield its rows; the caller may stop early."""
        raise NotImplementedError

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        """Run an INSERT, UPDATE or DELETE and return how many rows it changed."""
        raise NotImplementedError

    def run_many(self, sql: str, bindings: Iterable[Bindings]) -> None:
        """Run a statement once for each of the bindings."""
        raise NotImplementedError

    @property
    def in_transaction(self) -> bool:
        raise NotImplementedError

    def begin(self) -> None:
        """Begin a transaction as the only writer; wait for others. Raise `StoreBusy` after the deadline."""
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    def roll_back(self) -> None:
        raise NotImplementedError

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """Run a statement and return all rows."""
        return list(self.stream(sql, bindings))

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """Run a statement and return its first row, or None."""
        return next(self.stream(sql, bindings), None)

    def insert(self, sql: str, bindings: Bindings = ()) -> int:
        """Run an `INSERT … RETURNING id` and return the id."""
        return int(self.rows(sql, bindings)[0][0])


Work: TypeAlias = Callable[[DatabaseConnection], T]


class Database(_Engine):
    """The rows of one home. Reading never creates a database: without one there are no rows."""

    def __init__(self) -> None:
        self.shown = ""  # the address of a server, for people
        self._process = os.getpid()
        self._closed = False

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns.

        Works of other threads may share the transaction; an error in one undoes only that one. A work may be run
        again after a rollback, so it uses nothing but the connection that it is given.
        """
        raise NotImplementedError

    def read(self, work: Work[T], otherwise: T) -> T:
        """Run `work` on one consistent state of what is committed; return `otherwise` without a database."""
        raise NotImplementedError

    def read_one(self, work: Work[T], otherwise: T) -> T:
        """Run `work` without a transaction: for one statement, or where a change in between does no harm."""
        raise NotImplementedError

    def snapshot(self) -> AbstractContextManager[None]:
        """Let this thread read one consistent state during the block."""
        raise NotImplementedError

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Run something that only reads, in a snapshot perhaps; again if the connection to a server was lost."""
        return attempt()

    def lock(self, name: str) -> AbstractContextManager[bool]:
        """Hold a name across all processes during the block; yield whether it was free. Never wait for it."""
        raise NotImplementedError

    def identity(self) -> object:
        """Return a value that changes when another database takes the place of this one."""
        raise NotImplementedError

    def refuse_foreign(self) -> None:
        """Raise `ForeignStore` if what is stored here is not Herma's, or of a newer version."""
        raise NotImplementedError

    def delete_everything(self) -> None:
        """Delete all rows of a tenant. The rows of a home go with its folder."""
        raise NotImplementedError

    def close(self) -> None:
        """Finish the writes that were begun and release the database. Closing twice does no harm."""
        raise NotImplementedError

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        """Run a query on what is committed and return all rows."""
        return self.read_one(lambda connection: connection.rows(sql, bindings), [])

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        """Run a query on what is committed and return its first row, or None."""
        return self.read_one(lambda connection: connection.row(sql, bindings), None)

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        """Run an INSERT, UPDATE or DELETE in its own transaction and return how many rows it changed."""
        return self.write(lambda connection: connection.run(sql, bindings))

    def insert(self, sql: str, bindings: Bindings = ()) -> int:
        """Run an `INSERT … RETURNING id` in its own transaction and return the id."""
        return self.write(lambda connection: connection.insert(sql, bindings))

    def _check(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.",
                hint="Open it again in the child: Herma.open().",
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")


# Group commit: the first waiting caller commits the work queued by the others.
# docs/decisions/0006-group-commit-without-a-thread.md says why there is no writer thread.

AT_MOST = 128
"""Maximum writes in one transaction, so that no wait grows without bound."""


class _Ticket:
    """One caller's work, and its outcome."""

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
    """Run works one after the other; those that wait at the same time share a transaction and its flush to disk."""

    def __init__(
        self, connect: Callable[[], DatabaseConnection], translated: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._connect = connect
        self._translated = translated
        self._changed = threading.Condition(threading.Lock())
        self._queue: deque[_Ticket] = deque()
        self._leader: _Ticket | None = None

    def run(self, work: Work[T]) -> T:
        """Run `work` in a transaction that is durable when this returns. An error in it undoes this work only.

        A work may be run a second time, after a rollback, when the thread that ran it was interrupted.
        """
        ticket = _Ticket(work)
        try:  # an interrupt may come anywhere here, and must not leave others waiting for this thread
            with self._changed:
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
        """Wait until no thread writes. Return False if that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: self._leader is None, timeout)

    def _await(self, ticket: _Ticket) -> None:
        """Wait until the work is done or its caller is to lead. The database's deadline bounds leaders."""
        ticket.turn.acquire()

    def _lead(self, own: _Ticket) -> None:
        batch = [own]
        connection: DatabaseConnection | None = None
        committing = False
        try:
            try:
                with self._translated():
                    connection = self._connect()
                    self._begin(connection, batch)
                    self._run_all(connection, batch)
                    committing = True
                    connection.commit()
            except Exception as exc:  # noqa: BLE001  handed to every caller whose work it undid
                _roll_back(connection)
                for ticket in batch:
                    ticket.error = ticket.error or exc
        except BaseException:
            done = committing and connection is not None and not connection.in_transaction
            if not done:
                _roll_back(connection)
                with self._changed:
                    self._queue.extendleft(reversed(batch[1:]))
                raise
            _release(batch)
            raise
        _release(batch)

    def _begin(self, connection: DatabaseConnection, batch: list[_Ticket]) -> None:
        """Wait for other processes. If that takes too long, fail for callers who have waited half as long, too."""
        began = time.monotonic()
        try:
            connection.begin()
        except StoreBusy:
            now = time.monotonic()
            with self._changed:
                while self._queue and now - self._queue[0].since >= (now - began) / 2:
                    batch.append(self._queue.popleft())
            raise

    def _run_all(self, connection: DatabaseConnection, batch: list[_Ticket]) -> None:
        """Run the leader's work, then what was queued meanwhile; add that to `batch`."""
        at = 0
        while at < len(batch):
            self._run_one(connection, batch[at], first=not at)
            at += 1
            if at == len(batch) and at < AT_MOST and self._queue:
                with self._changed:
                    while self._queue and len(batch) < AT_MOST:
                        batch.append(self._queue.popleft())

    def _run_one(self, connection: DatabaseConnection, ticket: _Ticket, *, first: bool) -> None:
        """Run a work so that it can be undone by itself. Before the first one there is nothing to keep."""
        if not first:
            connection.run("SAVEPOINT work")
        ticket.error = None  # of a first run that was rolled back with everything else
        try:
            with self._translated():
                ticket.result = ticket.work(connection)
        except Exception as exc:
            ticket.error = exc
            if not connection.in_transaction:  # the engine gave up the whole transaction: all of it has failed
                raise
            if first:
                connection.roll_back()
                connection.begin()
            else:
                connection.run("ROLLBACK TO SAVEPOINT work")
        if not first:
            connection.run("RELEASE SAVEPOINT work")

    def _step_down(self, ticket: _Ticket) -> None:
        """Let the first waiting caller lead, if any. Remove a caller that leaves without having led."""
        with self._changed:
            if self._leader is not ticket:
                if ticket in self._queue:
                    self._queue.remove(ticket)
            elif self._queue:
                self._leader = self._queue.popleft()
                self._leader.turn.release()
            else:
                self._leader = None
                self._changed.notify_all()


def _roll_back(connection: DatabaseConnection | None) -> None:
    if connection is not None and connection.in_transaction:
        connection.roll_back()


def _release(batch: list[_Ticket]) -> None:
    for ticket in batch:
        ticket.done = True
        if ticket is not batch[0]:
            ticket.turn.release()


class NotUnique(StoreError):
    """A value that must be unique is taken by another row."""


def parsed(text: str) -> Any:
    """Return the JSON that was stored as a value of a row."""
    try:
        return json.loads(text)
    except ValueError as exc:
        raise damaged("A value in herma.db", exc) from exc


def damaged(path: Path | str, why: object) -> StoreError:
    """Return the error for a file whose content is not what was written."""
    return StoreError(
        f"{path} is damaged ({why}).",
        hint="`herma doctor --repair` brings back every readable row; `herma backup list` shows the backups.",
    )
