"""The prefix ledger in `herma.db`: implements `CallRows`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import apsw

from herma.ports import WHOLE, Call, CallSum
from herma.store.sqlite.database import Database
from herma.store.sqlite.queries import queries
from herma.types import Usage

_COLUMNS = [field.name for field in fields(Call) if field.name != "id"]


class SqliteCalls:
    """Rows of the table `calls`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("calls")
        self._spend = queries("sessions")["spend"]

    def add(self, call: Call, usage: Usage | None = None) -> None:
        bindings = {name: getattr(call, name) for name in _COLUMNS}
        spent = None if usage is None else {"id": call.session, **asdict(usage)}

        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["insert"], bindings)
            if spent is not None:
                connection.execute(self._spend, spent)

        self._db.write(work)

    def last(self, sessions: Sequence[str]) -> Call | None:
        found = self._calls("last", sessions=json.dumps(list(sessions)))
        return found[0] if found else None

    def sums(self, sessions: Sequence[str] | None, since: float) -> list[CallSum]:
        name, which = ("sums", {}) if sessions is None else ("sums_of", {"sessions": json.dumps(list(sessions))})
        found = [_sum(row) for row in self._db.rows(self._sql[name], {"since": since, **which})]
        newest: dict[str, float] = {}
        for one in found:
            newest[one.session] = max(one.last, newest.get(one.session, one.last))
        return sorted(found, key=lambda one: (-newest[one.session], one.session, one.first))

    def newest(self, sessions: Sequence[str] | None, since: float, limit: int, *, breaks: bool = False) -> list[Call]:
        which: dict[str, Any] = {"since": since, "limit": limit, "breaks": breaks, "whole": json.dumps(WHOLE)}
        if sessions is None:
            return self._calls("newest", **which)[::-1]
        return self._calls("newest_of", sessions=json.dumps(list(sessions)), **which)[::-1]

    def _calls(self, name: str, **bindings: Any) -> list[Call]:
        return [_call(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


def _call(row: Sequence[Any]) -> Call:
    return Call(*row)


def _sum(row: Sequence[Any]) -> CallSum:
    session, model, reason, counts, paid, *numbers = row
    return CallSum(session, model, reason, counts, bool(paid), *numbers)
