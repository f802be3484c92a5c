"""Their tables, and bounded reading of transcripts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from herma.episodes.types import SOURCES_WITHOUT, Episode, EpisodeFilter, SessionState, Weight
from herma.errors import StoreChanged
from herma.store.database import Database, insert_returning_id, parsed, queries
from herma.transcript.rows import SqliteSessions, texts
from herma.types import Message, Scope, SessionInfo

# ---------- store.sqlite.episodes
#
# Episodes and states of sessions in `herma.db`: implements `EpisodeRows`, `EpisodeLookup` and `StateRows`.

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


# ---------- store.sqlite.glimpses
#
# Transcripts as episodes are made from them: implements `Glimpses`. However long a conversation is, little is read.

LARGEST = 256 * 1024
"""Bytes of a stored text beyond which only its beginning is read."""
_BEGINNING = 192 * 1024
"""Bytes that are read of it, as they are stored: more than one block of what is compressed, which has up to 128 KiB."""
_LOOKED_AT = 500
"""Sessions among which the one that was broken off is looked for, the last active first."""
_TEXT = re.compile(r'"text":\s?"((?:[^"\\]|\\.)*)', re.DOTALL)
_UNESCAPED = re.compile(r"\\+\Z")
_TEXTS = (3, 4, 5)  # where a row holds content, parts and calls


class SqliteGlimpses:
    """Reads only."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("episodes")

    def sessions(self, conversation: str) -> list[SessionInfo]:
        ids = [row[0] for row in self._db.rows(self._sql["sessions"], {"conversation": conversation})]
        known = self._sessions.get(ids) if ids else {}
        return [known[id_] for id_ in ids] if len(known) == len(ids) else []

    def glimpse(self, conversation: str, first: int, last: int, at_most: int) -> list[Message]:
        def work(connection: apsw.Connection) -> list[Message]:
            keys: list[Any] = connection.execute(self._sql["keys"], {"conversation": conversation}).fetchall()
            rows = self._chosen(connection, keys, first, last)
            return _messages(connection, rows, at_most, self._sql["payload_sizes"], self._sql["payload_beginnings"])

        return self._db.read(work, [])

    def unended(self, scope: Scope, since: float, not_of: Sequence[str]) -> str | None:
        bindings = {
            "profile": scope.profile,
            "project": scope.project,
            "user": scope.user,
            "since": since,
            "not_of": json.dumps(list(not_of)),
            "others": json.dumps(SOURCES_WITHOUT),
            "looked_at": _LOOKED_AT,
        }
        rows = self._db.rows(self._sql["unended"], bindings)
        return str(rows[0][0]) if rows else None

    def without_episode(self, limit: int, after: str, everything: bool) -> list[str]:
        others = json.dumps(SOURCES_WITHOUT)
        bindings = {"limit": limit, "after": after, "everything": everything, "others": others}
        rows = self._db.rows(self._sql["without_episode"], bindings)
        return [row[0] for row in rows]

    def _chosen(
        self, connection: apsw.Connection, keys: Sequence[tuple[int, str]], first: int, last: int
    ) -> list[tuple[str, Any]]:
        """Rows with the ids of their sessions, in the order of the conversation."""
        head: list[tuple[str, Any]] = []
        for key, session_id in keys:
            if len(head) >= first:
                break
            rows: Any = connection.execute(self._sql["first_messages"], {"key": key, "limit": first - len(head)})
            head += [(session_id, row) for row in rows]
        seen = {row[0] for _, row in head}
        tail: list[tuple[str, Any]] = []
        for key, session_id in reversed(keys):
            if len(tail) >= last:
                break
            after = max((row[0] for id_, row in head if id_ == session_id), default=-1)
            more: Any = connection.execute(
                self._sql["last_messages"], {"key": key, "after": after, "limit": last - len(tail)}
            )
            tail += [(session_id, row) for row in more if row[0] not in seen]
        return head + tail[::-1]


def _messages(
    connection: apsw.Connection, rows: Sequence[tuple[str, Any]], at_most: int, sizes: str, beginnings: str
) -> list[Message]:
    cells = [row[at] for _, row in rows for at in _TEXTS]
    wanted = {piece for cell in cells if isinstance(cell, bytes) for piece in json.loads(cell)}
    numbers = json.dumps([piece for piece in wanted if isinstance(piece, int)])
    small = {row[0] for row in connection.execute(sizes, {"ids": numbers, "largest": LARGEST})} if wanted else set()
    large = json.dumps([piece for piece in wanted if isinstance(piece, int) and piece not in small])
    read: Any = connection.execute(beginnings, {"ids": large, "most": _BEGINNING}) if large != "[]" else ()
    begun = {number: _beginning(codec, data, at_most) for number, codec, data in read}

    def shrunk(cell: Any) -> Any:
        """The cell with the beginnings of what is too large to be read."""
        if not isinstance(cell, bytes):
            return cell
        return json.dumps(
            [p if isinstance(p, str) or p in small else begun.get(p, " ") for p in json.loads(cell)]
        ).encode()

    light = [[shrunk(value) if at in _TEXTS else value for at, value in enumerate(row)] for _, row in rows]
    whole = texts(connection, [row[at] for row in light for at in _TEXTS], base64=False)
    return [_message(session_id, row, whole, at_most) for (session_id, _), row in zip(rows, light, strict=True)]


def _message(session_id: str, row: Sequence[Any], whole: Any, at_most: int) -> Message:
    id_, role, timestamp, content, parts, calls, call_id, tool_name, finish_reason = row
    said: Any = whole(content)
    if said is None and parts is not None:
        read = _json(whole(parts))
        said = [
            {"type": "text", "text": _cut(part["text"], at_most)}
            for part in (read if isinstance(read, list) else _begun(whole(parts) or ""))
            if isinstance(part, dict) and isinstance(part.get("text"), str)
        ]
    else:
        said = _cut(said, at_most)
    called = _json(whole(calls)) if calls is not None else None
    return Message(
        role=role,
        content=said,
        id=id_,
        session_id=session_id,
        timestamp=timestamp,
        tool_calls=tuple(one for one in called if isinstance(one, dict)) if isinstance(called, list) else (),
        tool_call_id=call_id,
        tool_name=tool_name,
        finish_reason=finish_reason,
    )


def _beginning(codec: str, data: bytes, at_most: int) -> str:
    """The first characters of a text of which the first stored bytes are given."""
    if codec == "zstd":
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(data) as stream:
            data = stream.read(4 * at_most)
    return data[: 4 * at_most].decode(errors="ignore")[:at_most]


def _begun(parts: str) -> list[dict[str, str]]:
    """The first text of parts that are cut in its middle; without its end, where a sign may be cut."""
    found = _TEXT.search(parts)
    said = _json(f'"{found[1]}"') or _json(f'"{_UNESCAPED.sub("", found[1][:-8])}"') if found else None
    return [{"type": "text", "text": said}] if isinstance(said, str) else []


def _json(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):  # a piece of it was too large to be read
        return None


def _cut(text: str | None, at_most: int) -> str | None:
    if text is None or len(text) <= at_most:
        return text
    return f"{text[: at_most * 2 // 3]}\n…\n{text[-(at_most // 3) :]}"
