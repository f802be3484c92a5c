"""Keyed facts in `herma.db`: implements `FactRows`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import apsw

from herma.ports.curated import Place
from herma.ports.facts import FactStep
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.queries import queries
from herma.types import Fact, Scope


class SqliteFacts:
    """Rows of the table `facts`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("facts")

    def position(self, place: Place) -> int:
        rows = self._db.rows(self._sql["position"], _key(place))
        return int(rows[0][0]) if rows else 0

    def follow(self, place: Place, since: int, steps: Sequence[FactStep], until: int) -> bool:
        key = _key(place)

        def work(connection: apsw.Connection) -> bool:
            found: Any = connection.execute(self._sql["position"], key).fetchone()
            if (found[0] if found else 0) != since:
                return False  # another process was quicker, and has done it
            for step in steps:
                if step.gone:
                    connection.execute(self._sql["gone"], {**key, "at": step.at, "texts": json.dumps(step.gone)})
                for text in step.brought_back:
                    connection.execute(self._sql["back"], {**key, "text": text})
                for fact in step.new:
                    self._insert(connection, fact, place.target)
            connection.execute(self._sql["move"], {**key, "until": until})
            return True

        return self._db.write(work)

    def add(self, fact: Fact) -> Fact:
        number = self._db.write(lambda connection: self._insert(connection, fact, ""))
        return next(one for one in self.select([fact.scope], subject=fact.subject) if one.id == number)

    def select(
        self, scopes: Sequence[Scope] | None, *, subject: str | None = None, attribute: str | None = None
    ) -> list[Fact]:
        wanted = {"subject": subject, "attribute": attribute}
        if scopes is None:
            return self._facts("everything", wanted)
        found = []
        for scope in dict.fromkeys(Scope(one.profile, one.project, one.user) for one in scopes):
            place = {"profile": scope.profile, "project": scope.project, "user": scope.user}
            found += self._facts("of_key", {**wanted, **place})
        return sorted(found, key=lambda fact: (fact.valid_from, fact.id))

    def forget(self, ids: Sequence[int], at: float | None) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["forget"], {"ids": json.dumps(list(ids)), "at": at})
            return int(connection.changes())

        return self._db.write(work)

    def clear(self, place: Place | None) -> int:
        key = {**_key(place or Place("memory")), "everywhere": place is None}

        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["clear"], key)
            gone = int(connection.changes())
            connection.execute(self._sql["clear_forgotten"], key)
            connection.execute(self._sql["unread"], key)
            return gone

        return self._db.write(work)

    def _insert(self, connection: apsw.Connection, fact: Fact, target: str) -> int:
        bindings = {
            "profile": fact.scope.profile,
            "project": fact.scope.project,
            "user": fact.scope.user,
            "subject": fact.subject,
            "attribute": fact.attribute,
            "value": fact.value,
            "valid_from": fact.valid_from,
            "until": fact.until,
            "source": fact.source,
            "text": fact.text,
            "target": target,
            "change": fact.change,
            "session": fact.session,
            "message": fact.message,
        }
        unwanted: Any = None
        if fact.source == "curated":
            unwanted = connection.execute(self._sql["unwanted"], bindings).fetchone()
        forgotten = unwanted[0] if unwanted else fact.forgotten
        return insert_returning_id(connection, self._sql["insert"], {**bindings, "forgotten": forgotten})

    def _facts(self, name: str, bindings: dict[str, Any]) -> list[Fact]:
        return [_fact(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


def _key(place: Place) -> dict[str, str]:
    return {"profile": place.profile, "project": place.project, "user": place.user, "target": place.target}


def _fact(row: Sequence[Any]) -> Fact:
    (id_, profile, project, user, subject, attribute, value, valid_from, until, source) = row[:10]
    text, target, change, session, message, forgotten = row[10:]
    return Fact(
        subject=subject,
        attribute=attribute,
        value=value,
        valid_from=valid_from,
        scope=Scope(profile, project, user),
        id=id_,
        until=until,
        source=source,
        text=text,
        target=target or None,
        change=change,
        session=session,
        message=message,
        forgotten=forgotten,
    )
