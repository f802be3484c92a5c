"""Episodes and states of sessions in `herma.db`: implements `EpisodeRows`, `EpisodeLookup` and `StateRows`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from herma.errors import StoreChanged
from herma.ports.episodes import EpisodeFilter, Weight
from herma.store.sqlite.database import Database, insert_returning_id
from herma.store.sqlite.errors import parsed
from herma.store.sqlite.queries import queries
from herma.types import Episode, Scope, SessionState

_PLAIN = (
    *("conversation", "session_id", "source", "started", "ended", "task", "category", "outcome", "why", "result"),
    *("error", "remedy", "first_message", "last_message", "built_by", "updated", "uses", "last_used"),
)
"""Columns that hold what the episode has under the same name."""


class SqliteEpisodes:
    """Rows of the tables `episodes` and `session_states`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        found = queries("episodes")
        self._sql = {name: sql.replace("{visible}", _statement(found["visible"])) for name, sql in found.items()}

    # ── episodes ──

    def put(self, episode: Episode, task_key: str, terms: Sequence[str]) -> Episode:
        bindings = {**_bindings(episode), "task_key": task_key}

        def work(connection: apsw.Connection) -> int:
            there: Any = connection.execute(self._sql["conversation_there"], bindings).fetchone()
            if not there[0] or there[1]:
                raise StoreChanged(f"The conversation {episode.conversation} was deleted meanwhile.")
            number = insert_returning_id(connection, self._sql["put"], bindings)
            self._find_by(connection, number, terms)
            keyed = {**bindings, "id": number}
            connection.execute(self._sql["release"], keyed)
            later: Any = connection.execute(self._sql["superseder"], keyed).fetchone()
            connection.execute(self._sql["superseded_by"], {"id": number, "by": later[0] if later else None})
            if later is None:
                connection.execute(self._sql["supersede"], keyed)
            return number

        number = self._db.write(work)
        return self.get([number]).get(number, episode)

    def get(self, ids: Sequence[int]) -> dict[int, Episode]:
        return {one.id: one for one in self._episodes("get", ids=json.dumps(list(ids)))}

    def of_conversation(self, conversation: str) -> Episode | None:
        found = self._episodes("of_conversation", conversation=conversation)
        return found[0] if found else None

    def select(self, which: EpisodeFilter, limit: int, offset: int = 0) -> list[Episode]:
        conditions, bindings = _conditions(which)
        sql = f"{self._sql['columns']} {self._sql['select'].replace('{conditions}', conditions)}"
        return [episode_of(row) for row in self._db.rows(sql, {**bindings, "limit": limit, "offset": offset})]

    def mark(self, ids: Sequence[int], *, used: float | None = None, archived: float | None = None) -> int:
        if used is not None:
            return self._change("used", ids=json.dumps(list(ids)), at=used)
        if archived is None:
            return 0

        def work(connection: apsw.Connection) -> int:
            wanted = {"ids": json.dumps(list(ids)), "at": archived}
            connection.execute(self._sql["drop_terms"], wanted)
            connection.execute(self._sql["archive"], wanted)
            return int(connection.changes())

        return self._db.write(work)

    def unarchive(self, terms: Mapping[int, Sequence[str]], at: float) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["unarchive"], {"ids": json.dumps(list(terms)), "at": at})
            changed = int(connection.changes())
            for number, words in terms.items():
                self._find_by(connection, number, words)
            return changed

        return self._db.write(work)

    def remove(self, conversation: str) -> bool:
        def work(connection: apsw.Connection) -> bool:
            gone: list[Any] = connection.execute(self._sql["remove"], {"conversation": conversation}).fetchall()
            for (number,) in gone:
                connection.execute(self._sql["release"], {"id": number})
                self._find_by(connection, number, ())
            return bool(gone)

        return self._db.write(work)

    # ── looking through ──

    def with_terms(self, terms: Sequence[str], most: int) -> list[list[int]]:
        sql = self._sql["with_term"]

        def work(connection: apsw.Connection) -> list[list[int]]:
            found = []
            for term in terms:
                rows: Any = connection.execute(sql, {"term": term, "most": most}).fetchall()
                found.append([row[0] for row in rows])
            return found

        return self._db.read(work, [[] for _ in terms])

    def weights(self) -> list[Weight]:
        return [
            Weight(id_, ended, outcome, bool(remedy), uses, last_used, bool(superseded))
            for id_, ended, outcome, remedy, uses, last_used, superseded in self._db.rows(self._sql["weights"])
        ]

    def months(self, profile: str, user: str | None) -> list[tuple[str, int]]:
        return [(str(m), int(n)) for m, n in self._db.rows(self._sql["months"], {"profile": profile, "user": user})]

    def archived_in(self, month: str, profile: str, user: str | None) -> list[Episode]:
        return self._episodes("archived_in", month=month, profile=profile, user=user)

    def live_count(self) -> int:
        rows = self._db.rows(self._sql["live_count"])
        return int(rows[0][0]) if rows else 0

    def version(self) -> str:
        rows = self._db.rows(self._sql["version"])
        return "/".join(map(str, rows[0])) if rows else "0/0/0"

    # ── states ──

    def put_state(self, state: SessionState) -> None:
        bindings = {
            "conversation": state.conversation,
            "session_id": state.session_id,
            "profile": state.scope.profile,
            "project": state.scope.project,
            "user": state.scope.user,
            "at": state.at,
            "folder": state.folder,
            "branch": state.branch,
            "open_tasks": _array(state.open_tasks),
            "files": _array(state.files),
            "next_step": state.next_step,
            "last_request": state.last_request,
            "finished": state.finished,
            "built_by": state.built_by,
        }

        def work(connection: apsw.Connection) -> None:
            there: Any = connection.execute(self._sql["conversation_there"], bindings).fetchone()
            if there[0] and not there[1]:  # what is deleted meanwhile needs no state
                connection.execute(self._sql["put_state"], bindings)

        self._db.write(work)

    def state_of(self, conversation: str) -> SessionState | None:
        return self._state("state_of", conversation=conversation)

    def newest_state(self, scope: Scope, *, not_of: str = "") -> SessionState | None:
        return self._state("newest_state", profile=scope.profile, user=scope.user, project=scope.project, not_of=not_of)

    # ── inside ──

    def _find_by(self, connection: apsw.Connection, number: int, terms: Sequence[str]) -> None:
        connection.execute(self._sql["drop_terms"], {"ids": json.dumps([number])})
        connection.executemany(self._sql["add_term"], [(term, number) for term in terms])

    def _episodes(self, name: str, **bindings: Any) -> list[Episode]:
        return [episode_of(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]

    def _state(self, name: str, **bindings: Any) -> SessionState | None:
        rows = self._db.rows(f"{self._sql['state_columns']} {self._sql[name]}", bindings)
        return _session_state(rows[0]) if rows else None

    def _change(self, name: str, **bindings: Any) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql[name], bindings)
            return int(connection.changes())

        return self._db.write(work)


def _conditions(which: EpisodeFilter) -> tuple[str, dict[str, Any]]:
    """What is asked for, in SQL: only that, so that the planner sees which index fits."""
    named = {name: getattr(which, name) for name in ("profile", "user", "project", "outcome", "category")}
    asked = {name: value for name, value in named.items() if value is not None}
    conditions = [f"e.{name} = :{name}" for name in asked]
    for column, wanted in (("archived", which.archived), ("superseded_by", which.superseded)):
        if wanted is not None:
            conditions.append(f"e.{column} IS {'NOT ' if wanted else ''}NULL")
    return " AND ".join(conditions) or "1", asked


def _statement(sql: str) -> str:
    """A piece of SQL without its comment, to be put into others."""
    return " ".join(line for line in sql.splitlines() if not line.startswith("--"))


def _array(texts: Sequence[str]) -> str:
    return json.dumps(list(texts), ensure_ascii=False)


def _bindings(episode: Episode) -> dict[str, Any]:
    return {
        **{name: getattr(episode, name) for name in _PLAIN},
        "profile": episode.scope.profile,
        "project": episode.scope.project,
        "user": episode.scope.user,
        "steps": _array(episode.steps),
        "tools": json.dumps(dict(episode.tools), ensure_ascii=False),
        "skills_applied": _array(episode.skills_applied),
        "skills_created": _array(episode.skills_created),
    }


def episode_of(row: Sequence[Any]) -> Episode:
    (id_, conversation, session_id, source, profile, project, user, started, ended, task, category) = row[:11]
    (steps, tools, outcome, why, result, error, remedy, applied, created) = row[11:20]
    (first, last, built_by, updated, uses, last_used, superseded_by, archived) = row[20:]
    return Episode(
        id=id_,
        conversation=conversation,
        session_id=session_id,
        source=source,
        scope=Scope(profile, project, user),
        started=started,
        ended=ended,
        task=task,
        category=category,
        steps=tuple(parsed(steps)),
        tools=parsed(tools),
        outcome=outcome,
        why=why,
        result=result,
        error=error,
        remedy=remedy,
        skills_applied=tuple(parsed(applied)),
        skills_created=tuple(parsed(created)),
        first_message=first,
        last_message=last,
        built_by=built_by,
        updated=updated,
        uses=uses,
        last_used=last_used,
        superseded_by=superseded_by,
        archived=archived,
    )


def _session_state(row: Sequence[Any]) -> SessionState:
    (conversation, session_id, profile, project, user, at, folder, branch, tasks, files) = row[:10]
    (next_step, last_request, finished, built_by) = row[10:]
    return SessionState(
        conversation=conversation,
        session_id=session_id,
        scope=Scope(profile, project, user),
        at=at,
        folder=folder,
        branch=branch,
        open_tasks=tuple(parsed(tasks)),
        files=tuple(parsed(files)),
        next_step=next_step,
        last_request=last_request,
        finished=bool(finished),
        built_by=built_by,
    )
