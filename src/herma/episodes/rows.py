"""Keep the rows of episodes and session states, and read transcripts within bounds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple, TypeAlias

from herma.errors import StoreChanged
from herma.store.database import Database, DatabaseConnection, parsed
from herma.transcript.rows import SessionRows, texts
from herma.types import Message, Scope, SessionInfo

Outcome: TypeAlias = Literal["successful", "resolved", "failed", "interrupted", "unclear"]
"""The outcome of a conversation. "resolved": successful after an error with a known remedy. "interrupted": it broke
off, or
left work open. "unclear": nothing shows how it ended."""
BuiltBy: TypeAlias = Literal["rules", "model"]
LONGEST_RESULT = 200
SOURCES_WITHOUT = ("subagent", "review", "background_review")
"""Sources whose sessions make no episodes: they are steps of another session, or review it."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One conversation with content: what was asked, what was done, how it ended.

    `why` is the reason for `outcome`. `built_by` is "rules" if no model took part. Times are seconds since 1970. An
    `archived` episode is part of the digest of its month; it can be taken out of the archive again.
    """

    conversation: str
    session_id: str
    scope: Scope
    task: str
    outcome: Outcome
    started: float
    ended: float
    id: int = 0
    category: str = "other"
    steps: tuple[str, ...] = ()
    tools: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    result: str = ""
    error: str = ""
    remedy: str = ""
    skills_applied: tuple[str, ...] = ()
    skills_created: tuple[str, ...] = ()
    source: str = ""
    first_message: int = 0
    last_message: int = 0
    built_by: BuiltBy = "rules"
    updated: float = 0.0
    uses: int = 0
    last_used: float | None = None
    superseded_by: int | None = None
    archived: float | None = None

    @property
    def duration(self) -> float:
        """Seconds from the first message to the last."""
        return max(0.0, self.ended - self.started)

    @property
    def success(self) -> bool | None:
        """Return whether the task was done; None if that is unclear."""
        return None if self.outcome == "unclear" else self.outcome in ("successful", "resolved")


class EpisodeHit(NamedTuple):
    """An episode found for a task: how similar it is, how much it is worth, and why it was found.

    `words` is the share of the task's words that it has; `meaning` is the cosine, if there is an embedder.
    """

    episode: Episode
    similarity: float
    value: float
    why: tuple[str, ...] = ()
    words: float = 0.0
    meaning: float | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """The archived episodes of one month in a few lines."""

    month: str
    count: int
    text: str
    episodes: tuple[int, ...] = ()


class Forgotten(NamedTuple):
    """Episodes that were archived, or would be."""

    episodes: tuple[Episode, ...]
    digests: tuple[Digest, ...]
    kept: int
    dry_run: bool = False


class Rebuilt(NamedTuple):
    """The numbers of conversations read, of episodes made, and of conversations without content."""

    looked_at: int = 0
    made: int = 0
    empty: int = 0


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of the work when a session ended.

    `finished`: the last request was answered. `ended`: the conversation was ended; otherwise it broke off, or is still
    open in another program.
    """

    conversation: str
    session_id: str
    scope: Scope
    at: float
    folder: str = ""
    branch: str = ""
    open_tasks: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    next_step: str = ""
    last_request: str = ""
    finished: bool = True
    built_by: BuiltBy = "rules"
    ended: bool = True

    @property
    def unfinished(self) -> bool:
        """Return whether there is something to continue."""
        return bool(self.open_tasks or self.next_step or not self.finished)


class RestoredBlock(NamedTuple):
    """One part of the text for a task. `shown` counts what fits the budget, `left_out` the rest."""

    kind: Literal["state", "memory", "skills", "episodes"]
    text: str
    tokens: int
    shown: int = 0
    left_out: int = 0


class Restored(NamedTuple):
    """The knowledge for a task, within a budget: as text for a model, and as blocks for a program."""

    task: str
    text: str
    blocks: tuple[RestoredBlock, ...]
    tokens: int
    budget_tokens: int
    episodes: tuple[EpisodeHit, ...] = ()
    skills: tuple[str, ...] = ()
    state: SessionState | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """A filter for episodes; None means any. `user` is that of the scope."""

    profile: str | None = None
    user: str | None = None
    project: str | None = None
    outcome: Outcome | None = None
    category: str | None = None
    archived: bool | None = False
    superseded: bool | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """The fields of an episode that decide its value."""

    id: int
    ended: float
    outcome: Outcome
    has_remedy: bool
    uses: int
    last_used: float | None
    superseded: bool


_EPISODE = """
id conversation session_id source profile project user started ended task category steps tools outcome why result error
remedy skills_applied skills_created first_message last_message built_by updated uses last_used superseded_by archived
"""
_STATE = """
conversation session_id profile project user at folder branch open_tasks files next_step last_request finished built_by
"""
"""Columns in the order in which the queries name them; each is a field, or one of the scope."""


class EpisodeRows:
    """Rows of the tables `episodes` and `session_states`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        found = database.queries("episodes.rows")
        visible = " ".join(line for line in found["visible"].splitlines() if not line.startswith("--"))
        self._sql = {name: sql.replace("{visible}", visible) for name, sql in found.items()}

    # ── episodes ──

    def put(self, episode: Episode, task_key: str, terms: Sequence[str]) -> Episode:
        """Store the episode of a conversation with its terms; it supersedes earlier ones of the same task and scope.

        Return it with its id. Raise `StoreChanged` if its conversation was deleted meanwhile.
        """
        bindings = {**_columns(episode), "task_key": task_key}

        def work(connection: DatabaseConnection) -> int:
            there: Any = connection.row(self._sql["conversation_there"], bindings)
            if not there[0] or there[1]:
                raise StoreChanged(f"The conversation {episode.conversation} was deleted meanwhile.")
            number = connection.insert(self._sql["put"], bindings)
            self._find_by(connection, number, terms)
            keyed = {**bindings, "id": number}
            connection.run(self._sql["release"], keyed)
            later: Any = connection.row(self._sql["superseder"], keyed)
            connection.run(self._sql["superseded_by"], {"id": number, "by": later[0] if later else None})
            if later is None:
                connection.run(self._sql["supersede"], keyed)
            return number

        number = self._db.write(work)
        return self.get([number]).get(number, episode)

    def get(self, ids: Sequence[int]) -> dict[int, Episode]:
        return {one.id: one for one in self._episodes("get", ids=list(ids))}

    def visible(self, ids: Sequence[int], scope: Scope, not_of: str) -> set[int]:
        """Return which of these a user may see: not archived, not of another user, nor of this conversation."""
        where = {"profile": scope.profile, "user": scope.user, "not_of": not_of}
        return {number for (number,) in self._db.rows(self._sql["visible_of"], {"ids": list(ids), **where})}

    def of_conversation(self, conversation: str) -> Episode | None:
        """Return the episode of a conversation, by its id or by that of any of its sessions."""
        found = self._episodes("of_conversation", conversation=conversation)
        return found[0] if found else None

    def select(self, which: EpisodeFilter, limit: int, offset: int = 0) -> list[Episode]:
        """Return the episodes that pass the filter, newest first."""
        conditions, bindings = _conditions(which)
        sql = f"{self._sql['columns']} {self._sql['select'].replace('{conditions}', conditions)}"
        return [episode_of(row) for row in self._db.rows(sql, {**bindings, "limit": limit, "offset": offset})]

    def mark_used(self, ids: Sequence[int], at: float) -> None:
        self._db.run(self._sql["used"], {"ids": list(ids), "at": at})

    def archive(self, ids: Sequence[int], at: float) -> None:
        """Archive episodes; they are no longer found by their terms."""

        def work(connection: DatabaseConnection) -> None:
            wanted = {"ids": list(ids), "at": at}
            connection.run(self._sql["drop_terms"], wanted)
            connection.run(self._sql["archive"], wanted)

        self._db.write(work)

    def unarchive(self, terms: Mapping[int, Sequence[str]], at: float) -> None:
        """Take episodes out of the archive; they count as used now, so that they are not archived again at once."""

        def work(connection: DatabaseConnection) -> None:
            connection.run(self._sql["unarchive"], {"ids": list(terms), "at": at})
            for number, words in terms.items():
                self._find_by(connection, number, words)

        self._db.write(work)

    def remove(self, conversation: str) -> None:
        """Delete the episode of a conversation that has no content any more."""

        def work(connection: DatabaseConnection) -> None:
            gone: list[Any] = connection.rows(self._sql["remove"], {"conversation": conversation})
            for (number,) in gone:
                connection.run(self._sql["release"], {"id": number})
                self._find_by(connection, number, ())

        self._db.write(work)

    def with_terms(self, terms: Sequence[str], most: int) -> list[list[int]]:
        """Return the newest `most` episodes of each term, of all users, without archived ones."""

        def work(connection: DatabaseConnection) -> list[list[int]]:
            bindings = [{"term": term, "most": most} for term in terms]
            return [[row[0] for row in connection.rows(self._sql["with_term"], each)] for each in bindings]

        return self._db.read(work, [[] for _ in terms])

    def weights(self) -> list[Weight]:
        """Return the weights of all episodes that are not archived, of all users."""
        return [
            Weight(id_, ended, outcome, bool(remedy), uses, last_used, bool(superseded))
            for id_, ended, outcome, remedy, uses, last_used, superseded in self._db.rows(self._sql["weights"])
        ]

    def live_count(self) -> int:
        rows = self._db.rows(self._sql["live_count"])
        return int(rows[0][0]) if rows else 0

    def version(self) -> str:
        """Return a text that differs whenever an episode was changed."""
        rows = self._db.rows(self._sql["version"])
        return "/".join(map(str, rows[0])) if rows else "0/0/0"

    # ── states ──

    def put_state(self, state: SessionState) -> None:
        bindings = _columns(state)

        def work(connection: DatabaseConnection) -> None:
            there: Any = connection.row(self._sql["conversation_there"], bindings)
            if there[0] and not there[1]:  # else it was deleted meanwhile
                connection.run(self._sql["put_state"], bindings)

        self._db.write(work)

    def state_of(self, conversation: str) -> SessionState | None:
        """Return the state of a conversation, by its id or by that of any of its sessions."""
        return self._state("state_of", conversation=conversation)

    def newest_state(self, scope: Scope, *, not_of: str = "") -> SessionState | None:
        """Return the newest state of exactly this profile, project and user, except that of one conversation."""
        return self._state("newest_state", profile=scope.profile, user=scope.user, project=scope.project, not_of=not_of)

    # ── inside ──

    def _find_by(self, connection: DatabaseConnection, number: int, terms: Sequence[str]) -> None:
        connection.run(self._sql["drop_terms"], {"ids": [number]})
        connection.run_many(self._sql["add_term"], [(term, number) for term in terms])

    def _episodes(self, name: str, **bindings: Any) -> list[Episode]:
        return [episode_of(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]

    def _state(self, name: str, **bindings: Any) -> SessionState | None:
        rows = self._db.rows(f"{self._sql['state_columns']} {self._sql[name]}", bindings)
        known = _fields(_STATE, rows[0]) if rows else None
        return SessionState(**{**known, "finished": bool(known["finished"])}) if known else None


def _conditions(which: EpisodeFilter) -> tuple[str, dict[str, Any]]:
    """Return the conditions that are set, as SQL, so that the planner can choose an index; and their bindings."""
    named = {name: getattr(which, name) for name in ("profile", "user", "project", "outcome", "category")}
    asked = {name: value for name, value in named.items() if value is not None}
    conditions = [f"e.{name} = :{name}" for name in asked]
    for column, wanted in (("archived", which.archived), ("superseded_by", which.superseded)):
        if wanted is not None:
            conditions.append(f"e.{column} IS {'NOT ' if wanted else ''}NULL")
    return " AND ".join(conditions) or "1", asked


def _columns(value: Episode | SessionState) -> dict[str, Any]:
    """Return a value as columns: its scope is three of them, lists and maps are JSON."""
    found = {field.name: getattr(value, field.name) for field in fields(value) if field.name != "scope"}
    listed = {
        name: json.dumps(list(one) if isinstance(one, tuple) else dict(one), ensure_ascii=False)
        for name, one in found.items()
        if isinstance(one, tuple | Mapping)
    }
    return {**found, **listed, "profile": value.scope.profile, "project": value.scope.project, "user": value.scope.user}


def _fields(names: str, row: Sequence[Any]) -> dict[str, Any]:
    """Return the fields of a value that `_columns` stored."""
    found = dict(zip(names.split(), row, strict=True))
    scope = Scope(found.pop("profile"), found.pop("project"), found.pop("user"))
    lists = {"steps", "skills_applied", "skills_created", "open_tasks", "files"} & found.keys()
    return {**found, "scope": scope, **{name: tuple(parsed(found[name])) for name in lists}}


def episode_of(row: Sequence[Any]) -> Episode:
    found = _fields(_EPISODE, row)
    return Episode(**{**found, "tools": parsed(found["tools"])})


_LARGEST_CALLS = 256 * 1024
"""Characters of the tool calls of a message; larger ones are left out."""
_LOOKED_AT = 500
"""Last active sessions among which one that was not ended is searched."""
_TEXTS = (3, 4, 5)  # content, parts and tool calls in a row


class TranscriptExcerpts:
    """Read the sessions of a conversation, and excerpts of their messages."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SessionRows(database)
        self._sql = database.queries("episodes.rows")

    def sessions(self, conversation: str) -> list[SessionInfo]:
        """Return the sessions of a conversation, oldest first, by its id or by that of a session; none if one of them
        is deleted.
        """
        ids = [row[0] for row in self._db.rows(self._sql["sessions"], {"conversation": conversation})]
        known = self._sessions.get(ids) if ids else {}
        return [known[id_] for id_ in ids] if len(known) == len(ids) else []

    def excerpt(self, conversation: str, first: int, last: int, at_most: int) -> list[Message]:
        """Return the first and the last messages without rewound ones; long texts are cut in the middle."""

        def work(connection: DatabaseConnection) -> list[Message]:
            keys: list[Any] = connection.rows(self._sql["keys"], {"conversation": conversation})
            found = []
            for session_id, row in self._chosen(connection, keys, first, last):  # one at a time: some are very large
                whole = texts(connection, [row[at] for at in _TEXTS], base64=False)
                found.append(_message(session_id, row, whole, at_most))
            return found

        return self._db.read(work, [])

    def unended(self, scope: Scope, since: float, not_of: Sequence[str]) -> str | None:
        """Return the conversation of exactly this profile, project and user that was last active since a time and was
        not ended, except these.
        """
        bindings = {
            "profile": scope.profile,
            "project": scope.project,
            "user": scope.user,
            "since": since,
            "not_of": list(not_of),
            "others": list(SOURCES_WITHOUT),
            "looked_at": _LOOKED_AT,
        }
        rows = self._db.rows(self._sql["unended"], bindings)
        return str(rows[0][0]) if rows else None

    def without_episode(self, limit: int, after: str, everything: bool) -> list[str]:
        """Return conversations without a state, or active after it was stored, by id; or, with `everything`, all that
        make episodes.
        """
        others = list(SOURCES_WITHOUT)
        bindings = {"limit": limit, "after": after, "everything": everything, "others": others}
        rows = self._db.rows(self._sql["without_episode"], bindings)
        return [row[0] for row in rows]

    def _chosen(
        self, connection: DatabaseConnection, keys: Sequence[tuple[int, str]], first: int, last: int
    ) -> list[tuple[str, Any]]:
        """Return rows with the ids of their sessions, in the order of the conversation."""
        head: list[tuple[str, Any]] = []
        for key, session_id in keys:
            if len(head) >= first:
                break
            rows: Any = connection.rows(self._sql["first_messages"], {"key": key, "limit": first - len(head)})
            head += [(session_id, row) for row in rows]
        seen = {row[0] for _, row in head}
        tail: list[tuple[str, Any]] = []
        for key, session_id in reversed(keys):
            if len(tail) >= last:
                break
            after = max((row[0] for id_, row in head if id_ == session_id), default=-1)
            more: Any = connection.rows(
                self._sql["last_messages"], {"key": key, "after": after, "limit": last - len(tail)}
            )
            tail += [(session_id, row) for row in more if row[0] not in seen]
        return head + tail[::-1]


def _message(session_id: str, row: Sequence[Any], whole: Any, at_most: int) -> Message:
    id_, role, timestamp, content, parts, calls, call_id, tool_name, finish_reason = row
    said: Any = whole(content)
    if said is None and parts is not None:
        read = [part for part in json.loads(whole(parts)) if isinstance(part.get("text"), str)]
        said = [{"type": "text", "text": _cut(part["text"], at_most)} for part in read]
    else:
        said = _cut(said, at_most)
    called = whole(calls)
    return Message(
        role=role,
        content=said,
        id=id_,
        session_id=session_id,
        timestamp=timestamp,
        tool_calls=tuple(json.loads(called)) if called and len(called) <= _LARGEST_CALLS else (),
        tool_call_id=call_id,
        tool_name=tool_name,
        finish_reason=finish_reason,
    )


def _cut(text: str | None, at_most: int) -> str | None:
    if text is None or len(text) <= at_most:
        return text
    return f"{text[: at_most * 2 // 3]}\n…\n{text[-(at_most // 3) :]}"
