"""Looking back at conversations in `herma.db`: implements `ReviewRows`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import apsw

from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.errors import parsed
from herma.store.sqlite.queries import queries
from herma.types import Review, ReviewAction, Usage


class SqliteReviews:
    """Rows of the table `reviews`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("reviews")

    def claim(self, review: Review, now: float, lease: float) -> Review | None:
        known = {name: getattr(review, name) for name in ("id", "conversation", "kind", "last_message")}

        def work(connection: apsw.Connection) -> Review | None:
            if connection.execute(self._sql["running"], {**known, "now": now}).fetchone() is not None:
                return None
            if connection.execute(self._sql["looked_at"], known).fetchone() is not None:
                if review.id:  # nobody needs to try it again
                    connection.execute(self._sql["overtaken"], {"id": review.id, "now": now})
                return None
            if review.id:
                begun: Any = connection.execute(
                    self._sql["begin"], {"id": review.id, "now": now, "lease": now + lease}
                ).fetchall()
                return replace(review, state="running", tries=begun[0][0], begun=now) if begun else None
            claimed = replace(review, state="running", tries=1, begun=now)
            number = insert_returning_id(connection, self._sql["insert"], _bindings(claimed, now + lease))
            return replace(claimed, id=number)

        return self._db.write(work)

    def owe(self, review: Review) -> Review:
        def work(connection: apsw.Connection) -> Review:
            bindings = _bindings(replace(review, state="due"), 0.0)
            known: Any = connection.execute(self._sql["due_of"], bindings).fetchone()
            if known is not None:
                connection.execute(self._sql["extend"], {**bindings, "id": known[0]})
                return replace(review, id=known[0], state="due")
            return replace(review, id=insert_returning_id(connection, self._sql["insert"], bindings), state="due")

        return self._db.write(work)

    def proposed_skills(self, profile: str, now: float) -> int:
        """How many changes of skills reviews have proposed that wait for a person."""
        counted = self._db.rows(self._sql["proposed_skills"], {"profile": profile, "now": now})
        return int(counted[0][0]) if counted else 0  # there is no database yet

    def end(self, review: Review) -> None:
        bindings = {
            "id": review.id,
            "state": review.state,
            "ended": review.ended,
            "model": review.model,
            "steps": review.steps,
            "usd": review.usd,
            "notice": review.notice,
            "actions": json.dumps([asdict(action) for action in review.actions], ensure_ascii=True),
            **{name: value for name, value in asdict(review.usage).items() if name != "cost_usd"},
        }
        self._db.write(lambda connection: connection.execute(self._sql["end"], bindings) and None)

    def owed(self, now: float, most_tries: int, limit: int) -> Sequence[Review]:
        if not self._db.rows(self._sql["owed"], {"now": now, "limit": 1}):
            return []  # as a rule: no write only to look
        self._db.write(
            lambda connection: connection.execute(self._sql["give_up"], {"now": now, "most": most_tries}) and None
        )
        return self._read(self._db.rows(self._sql["owed"], {"now": now, "limit": limit}))

    def prune(self, before: float) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["prune"], {"before": before})
            return connection.changes()

        return self._db.write(work)

    def covered(self, conversation: str) -> int:
        rows = self._db.rows(self._sql["covered"], {"conversation": conversation})
        return int(rows[0][0]) if rows else 0

    def log(self, limit: int, conversation: str | None = None) -> Sequence[Review]:
        query = "newest" if conversation is None else "newest_of"
        return self._read(self._db.rows(self._sql[query], {"limit": limit, "conversation": conversation}))[::-1]

    def get(self, number: int) -> Review | None:
        found = self._read([(number,)])
        return found[0] if found else None

    def _read(self, ids: Sequence[tuple[Any, ...]]) -> list[Review]:
        if not ids:
            return []
        return [_review(row) for row in self._db.rows(self._sql["by_id"], {"ids": json.dumps([one for (one,) in ids])})]


def _bindings(review: Review, lease: float) -> dict[str, Any]:
    names = (
        *("conversation", "session_id", "kind", "why", "first_message", "last_message", "at", "state", "tries"),
        "begun",
    )
    return {**{name: getattr(review, name) for name in names}, "lease": lease}


def _review(row: Sequence[Any]) -> Review:
    (id_, conversation, session, kind, why, first, last, at, state, tries, begun, ended, model, steps) = row[:14]
    *taken, usd, actions, notice = row[14:]
    return Review(
        id=id_,
        conversation=conversation,
        session_id=session,
        kind=kind,
        why=why,
        first_message=first,
        last_message=last,
        at=at,
        state=state,
        tries=tries,
        begun=begun,
        ended=ended,
        model=model,
        steps=steps,
        usage=Usage(*taken),
        usd=usd,
        actions=tuple(ReviewAction(**action) for action in parsed(actions)),
        notice=notice,
    )
