"""Spending on background work in `herma.db`: implements `SpendRows`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import apsw

from herma.ports import Reservation, Spent, SpentCall
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.queries import queries
from herma.types import Usage


class SqliteSpend:
    """Rows of the table `spending`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("spend")

    def reserve(self, wish: Reservation, allows: Callable[[Mapping[str, Spent]], bool]) -> int | None:
        def work(connection: apsw.Connection) -> int | None:
            that_day = {"first": wish.day, "last": wish.day}
            if not allows(_sums(connection.execute(self._sql["by_purpose"], that_day))):
                return None
            return insert_returning_id(connection, self._sql["reserve"], asdict(wish))

        return self._db.write(work)

    def settle(self, number: int, tokens: int, usd: float | None, usage: Usage) -> None:
        taken = {name: value for name, value in asdict(usage).items() if name != "cost_usd"}
        bindings = {"id": number, "tokens": tokens, "usd": usd, **taken}
        self._db.write(lambda connection: connection.execute(self._sql["settle"], bindings) and None)

    def by_purpose(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        return _sums(self._db.rows(self._sql["by_purpose"], {"first": first_day, "last": last_day}))

    def by_day(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        return _sums(self._db.rows(self._sql["by_day"], {"first": first_day, "last": last_day}))

    def newest(self, limit: int) -> list[SpentCall]:
        return [_call(row) for row in self._db.rows(self._sql["newest"], {"limit": limit})]

    def days(self) -> list[str]:
        return [day for (day,) in self._db.rows(self._sql["days"])]


def _sums(rows: Iterable[Any]) -> dict[str, Spent]:
    """By purpose, or by day: whatever stands first."""
    return {name: Spent(*numbers) for name, *numbers in rows}


def _call(row: Sequence[Any]) -> SpentCall:
    at, purpose, model, settled, tokens, usd, *taken = row
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    return SpentCall(at, purpose, model, bool(settled), tokens, usd, Usage(**dict(zip(names, taken, strict=True))))
