"""Sessions, messages, payloads, change feed in herma.db."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypedDict, TypeVar
from weakref import WeakKeyDictionary

import apsw

from herma.errors import StoreChanged, StoreError
from herma.index.postings import fetch
from herma.store.database import Database, Work, damaged, queries
from herma.transcript.messages import searchable_text
from herma.types import Content, Hidden, Message, Scope, SessionFilter, SessionInfo, TranscriptStats, Usage

# ---------- ports.transcript
#
# Where transcripts are kept: sessions, messages, and the feed that derived indexes follow.


class SessionChange(TypedDict, total=False):
    """Columns of a session that may change by themselves."""

    title: str | None
    ended: float | None
    end_reason: str | None
    archived: bool
    deleted: float | None
    preview: str
    model: str | None


class SessionRows(Protocol):
    """Sessions, one by one. Those that wait to be purged are not there, unless they are asked for."""

    def add(self, sessions: Sequence[SessionInfo], prompts: Mapping[str, str]) -> Sequence[SessionInfo]:
        """Keep new sessions, all or none; `prompts` has the system prompts by id. → them with their conversations.

        `StoreChanged` when an id or a title is taken.
        """
        ...

    def get(self, session_ids: Sequence[str], *, deleted: bool = False) -> dict[str, SessionInfo]:
        """These sessions, as far as they are there; with `deleted`, those that wait to be purged too."""
        ...

    def update(self, session_ids: Sequence[str], change: SessionChange) -> int:
        """Change all of them or none, deleted ones too. → how many. `StoreChanged` when a title is taken.

        A title that another session of the same conversation has is taken from that one.
        """
        ...

    def end(self, session_id: str, at: float, reason: str) -> bool:
        """End it, unless it has ended: the first reason stands. → whether this call ended it."""
        ...

    def spend(self, session_id: str, usage: Usage) -> bool:
        """Add to what a session cost. → whether it is there."""
        ...

    def system_prompt(self, session_id: str) -> str | None: ...

    def purge(self, session_id: str) -> int:
        """Remove a deleted session and its messages for good, and say so in the feed. → how many messages."""
        ...


class SessionQueries(Protocol):
    """Finding sessions. Those that wait to be purged are found by `deleted` only."""

    def with_prefix(self, prefix: str, limit: int, user: str | None = None) -> Sequence[str]:
        """Ids that begin with `prefix`, newest first: of all sessions, or of one user's."""
        ...

    def titles(self, base: str, scope: Scope) -> Sequence[tuple[str, str]]:
        """(title, id) of sessions of this profile and user that are called `base`, or begin with `base #`."""
        ...

    def of_conversations(self, conversations: Sequence[str]) -> Sequence[SessionInfo]:
        """All sessions of these conversations."""
        ...

    def children(self, parents: Sequence[str]) -> Sequence[SessionInfo]: ...

    def recent(self, which: SessionFilter, limit: int, offset: int) -> Sequence[str]:
        """Conversations of which at least one session matches, the most recently active first."""
        ...

    def matching(self, which: SessionFilter) -> Sequence[SessionInfo]:
        """Every single session that matches, oldest first."""
        ...

    def deleted(self, before: float) -> Sequence[SessionInfo]:
        """Sessions that were deleted before this time, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class SessionNews:
    """How a session stands in the store, in one row: for a program that has it open, and may not be the only one."""

    visible: int
    """Its messages that are not hidden."""
    newest: int
    """The last of them; 0 where there is none."""
    follower: str = ""
    """A session that goes on with the conversation from here, if there is one that says something."""
    reason: str = ""
    """Why it follows: `resume` or `compression`."""


class MessageRows(Protocol):
    """Messages: added whole, never changed, sometimes hidden. Those of deleted sessions are not there."""

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        preview: str = "",
        staged: bool = False,
        compacts: int | None = None,
    ) -> Sequence[int]:
        """Add all or none, in one durable step. → their ids, increasing. `KeyError` when there is no such session.

        `preview` is kept when the session has none yet. `staged`: also to a session that is hidden as deleted, so that
        an import becomes visible as a whole. `compacts`: in the same step, what is visible up to this message is hidden
        as compacted.
        """
        ...

    def of_session(
        self, session_id: str, *, hidden: bool, after: int | None = None, limit: int | None = None
    ) -> Sequence[Message]:
        """In order; with `hidden`, hidden ones too; those after a message, at most so many."""
        ...

    def by_ids(self, message_ids: Sequence[int]) -> dict[int, Message]:
        """These messages as far as they are there, hidden or not."""
        ...

    def around(self, message_id: int, window: int) -> Sequence[Message]:
        """A message and up to `window` before and after it in its session; rewound ones are not there."""
        ...

    def edges(
        self, session_id: str, count: int, outside: tuple[int, int] | None, roles: Sequence[str]
    ) -> tuple[Sequence[Message], Sequence[Message]]:
        """The first and the last messages with text in these roles, before and after the ids `outside`; not rewound."""
        ...

    def hide(self, session_id: str, first: int, last: int, old: Hidden, new: Hidden) -> int:
        """Give messages first … last of a session another flag, where they have the old one. → how many."""
        ...

    def stats(self) -> TranscriptStats: ...


@dataclass(frozen=True, slots=True)
class Position:
    """How far a change feed was read. Another store, or another epoch of it, makes the number meaningless."""

    store_id: str
    epoch: str
    seq: int


@dataclass(frozen=True, slots=True)
class FeedChange:
    """One row of the change feed: these messages were appended to a session, or are gone from it."""

    seq: int
    kind: Literal["append", "purge"]
    message_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Searchable:
    """What the index needs of one message: prose, and the names and arguments of the tools it calls."""

    id: int
    session_id: str
    role: str
    timestamp: float
    text: str


class ChangeFeed(Protocol):
    """What a derived index follows. Consumers never guess from ids: a larger id need not become visible later."""

    def position(self) -> Position:
        """Where the feed ends now."""
        ...

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        """The next changes after `seq`, at most `limit` of them."""
        ...

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        """These messages as far as they still exist, large payloads included."""
        ...

    def message_count(self) -> int: ...


# ---------- store.sqlite.filters
#
# A `SessionFilter` as SQL: fixed conditions, every value bound.

_TOKENS = (
    "({t}.input_tokens + {t}.output_tokens + {t}.cache_read_tokens + {t}.cache_write_tokens + {t}.reasoning_tokens)"
)
_CONDITIONS = {
    "source": "{t}.source = :source",
    "exclude_sources": "{t}.source NOT IN (SELECT value FROM json_each(:exclude_sources))",
    "profile": "{t}.profile = :profile",
    "project": "(rtrim({t}.project, '/\\') = :project"
    " OR substr({t}.project, 1, length(:project) + 1) IN (:project || '/', :project || '\\')"
    " OR (NOT instr(:project, '/') AND NOT instr(:project, '\\')"
    " AND substr(rtrim({t}.project, '/\\'), -length(:project) - 1) IN ('/' || :project, '\\' || :project)))",
    "user": "{t}.user = :user",
    "chat": "{t}.chat = :chat",
    "archived": "{t}.archived = :archived",
    "delegated": "((SELECT r.reason FROM sessions r WHERE r.id = {t}.conversation) IS 'delegation') = :delegated",
    "search": "(instr(lower(coalesce({t}.title, '')), lower(:search)) OR instr(lower({t}.id), lower(:search)))",
    "model": "instr(lower(coalesce({t}.model, '')), lower(:model))",
    "provider": "{t}.provider = :provider",
    "chat_type": "{t}.chat_type = :chat_type",
    "folder": "({t}.folder = :folder"
    " OR substr({t}.folder, 1, length(:folder) + 1) IN (:folder || '/', :folder || '\\'))",
    "branch": "instr(lower({t}.branch), lower(:branch))",
    "end_reason": "{t}.end_reason = :end_reason",
    "started_after": "{t}.started >= :started_after",
    "started_before": "{t}.started <= :started_before",
    "active_before": "{t}.last_active <= :active_before",
    "min_messages": "{t}.message_count >= :min_messages",
    "max_messages": "{t}.message_count <= :max_messages",
    "min_tool_calls": "{t}.tool_call_count >= :min_tool_calls",
    "max_tool_calls": "{t}.tool_call_count <= :max_tool_calls",
    "min_tokens": _TOKENS + " >= :min_tokens",
    "max_tokens": _TOKENS + " <= :max_tokens",
    "min_cost": "{t}.cost_usd >= :min_cost",
    "max_cost": "{t}.cost_usd <= :max_cost",
}


def conditions(which: SessionFilter, table: str) -> tuple[str, dict[str, Any]]:
    """Conditions to add to a WHERE that has one already, and what they bind."""
    sql, bindings = "", {}
    for name, condition in _CONDITIONS.items():
        value = getattr(which, name)
        if value is None or value == () or (name == "search" and not value):
            continue
        sql += "\n   AND " + condition.format(t=table)
        if name in ("project", "folder"):  # a shell that completes a path puts a slash behind it
            value = value.rstrip("/\\") or value
        bindings[name] = json.dumps(value) if isinstance(value, tuple) else value
    return sql, bindings


# ---------- store.sqlite.payloads
#
# Large values outside the hot table: cut out of a message when it is written, put back when it is read.
#
# A value stays text while it is small. Otherwise it becomes a list of pieces: text that stays in the row, and payloads
# that are stored once however often they occur. Text with NUL characters becomes a piece too, because SQL ends there.

LARGE = 16 * 1024
"""Text longer than this leaves the row."""
LONG_RUN = 2048
"""A run of base64 longer than this leaves the row, whatever is around it."""
_RUN = re.compile(rf"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{{LONG_RUN},}}+={{0,2}}")
_BOUND_VARIABLES = 500

_FIND = "SELECT id FROM payloads WHERE hash = ?"
_ADD = "INSERT INTO payloads (hash, size, kind, codec, data) VALUES (?, ?, ?, ?, ?)"
_USE = "INSERT OR IGNORE INTO payload_uses (payload, message) VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Payload:
    """A large text, ready to be stored."""

    hash: bytes
    size: int
    kind: str
    codec: str
    data: bytes


Cell: TypeAlias = str | list[str | Payload] | None
"""What a column will hold: text, pieces, or nothing."""
Stored: TypeAlias = str | bytes | None
"""What a column holds."""


def cell(text: str | None) -> Cell:
    """Take apart a value that is large, or that SQL could not hold as text."""
    if text is None or (len(text) < LONG_RUN and "\0" not in text):
        return text
    pieces: list[str | Payload] = []
    end = 0
    for run in _RUN.finditer(text):
        pieces += _plain(text[end : run.start()])
        pieces.append(payload(run[0], "base64"))
        end = run.end()
    if not end and len(text) <= LARGE and "\0" not in text:
        return text
    return pieces + _plain(text[end:])


def payload(text: str, kind: str = "text") -> Payload:
    import zstandard

    raw = text.encode()
    packed = zstandard.compress(raw, 3)
    codec, data = ("zstd", packed) if len(packed) < len(raw) else ("plain", raw)
    return Payload(sha256(raw).digest(), len(raw), kind, codec, data)


def store(connection: apsw.Connection, new: Payload) -> int:
    """Keep a payload unless it is there already. → its id."""
    found: Any = connection.execute(_FIND, (new.hash,)).fetchone()
    if found:
        return int(found[0])
    connection.execute(_ADD, (new.hash, new.size, new.kind, new.codec, new.data))
    return connection.last_insert_rowid()


def stored(connection: apsw.Connection, value: Cell, used: set[int]) -> Stored:
    """The value as its column takes it; ids of payloads it needs are added to `used`."""
    if not isinstance(value, list):
        return value
    pieces = [piece if isinstance(piece, str) else store(connection, piece) for piece in value]
    used.update(piece for piece in pieces if isinstance(piece, int))
    return json.dumps(pieces, ensure_ascii=False).encode()


def use(connection: apsw.Connection, message_id: int, used: set[int]) -> None:
    connection.executemany(_USE, [(payload_id, message_id) for payload_id in sorted(used)])


def texts(
    connection: apsw.Connection, values: Sequence[Stored], *, base64: bool = True
) -> Callable[[Stored], str | None]:
    """Fetch what these column values refer to. → a function that gives the whole text of any of them.

    Without `base64`, a space stands for what no one would search in.
    """
    wanted = {piece for value in values if isinstance(value, bytes) for piece in json.loads(value)}
    found = dict(_fetch(connection, sorted(piece for piece in wanted if isinstance(piece, int)), base64))
    return lambda value: _whole(value, found)


def unpack(codec: str, data: bytes) -> str:
    if codec == "zstd":
        import zstandard

        try:
            data = zstandard.decompress(data)
        except (zstandard.ZstdError, MemoryError) as exc:  # a damaged length asks for any amount of memory
            raise damaged("A stored text in herma.db", exc) from exc
    return data.decode()


def _plain(text: str) -> list[str | Payload]:
    if not text:
        return []
    return [payload(text) if len(text) > LARGE else text]


def _fetch(connection: apsw.Connection, ids: Sequence[int], base64: bool) -> Iterator[tuple[int, str]]:
    for at in range(0, len(ids), _BOUND_VARIABLES):
        some = ids[at : at + _BOUND_VARIABLES]
        marks = ",".join("?" * len(some))
        data = "data" if base64 else "iif(kind = 'base64', x'20', data)"
        codec = "codec" if base64 else "iif(kind = 'base64', 'plain', codec)"
        digest = "hash" if base64 else "iif(kind = 'base64', NULL, hash)"
        rows: Any = connection.execute(
            f"SELECT id, {codec}, {data}, {digest} FROM payloads WHERE id IN ({marks})", some
        )
        for payload_id, how, packed, known in rows:
            text = unpack(how, packed)
            if known is not None and sha256(text.encode()).digest() != known:
                raise damaged("A stored text in herma.db", "it is not what was written")
            yield payload_id, text


def _whole(value: Stored, found: Mapping[int, str]) -> str | None:
    if not isinstance(value, bytes):
        return value
    try:
        return "".join(piece if isinstance(piece, str) else found[piece] for piece in json.loads(value))
    except KeyError as exc:
        raise StoreError(
            f"A stored text refers to piece {exc} of the database, which is gone.", hint="Run: herma doctor"
        ) from exc


# ---------- store.sqlite.sessions
#
# Sessions in `herma.db`: implements `SessionRows` and `SessionQueries`.

T = TypeVar("T")
CHANGEABLE = frozenset(SessionChange.__annotations__)
PLACE = ("provider", "chat_type", "folder", "branch")
_DISTILLED = ("episode_terms", "episode", "state", "facts", "reviews", "tries")
PURGE_SLICE = 2_000
"""Messages that one transaction purges, so that nobody waits long behind it."""


class SqliteSessions:
    """Rows of the table `sessions`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("sessions")

    # ── one by one ──

    def add(self, sessions: Sequence[SessionInfo], prompts: Mapping[str, str]) -> list[SessionInfo]:
        ready = {session_id: payload(text) for session_id, text in prompts.items()}

        def work(connection: apsw.Connection) -> list[SessionInfo]:
            return [self._insert(connection, session, ready.get(session.id)) for session in sessions]

        return self._unless_taken(work) if sessions else []

    def get(self, session_ids: Sequence[str], *, deleted: bool = False) -> dict[str, SessionInfo]:
        found = self._sessions("get", ids=json.dumps(list(session_ids)), deleted=deleted)
        return {session.id: session for session in found}

    def news(self, session_id: str) -> SessionNews | None:
        """How it stands; None when it is not there."""
        found = self._db.rows(self._sql["news"], {"id": session_id})
        return SessionNews(*found[0]) if found else None

    def others_spoken(self, conversation: str) -> bool:
        """Whether there is anything that was said in other conversations."""
        found = self._db.rows(self._sql["others_spoken"], {"conversation": conversation})
        return bool(found and found[0][0])

    def update(self, session_ids: Sequence[str], change: SessionChange) -> int:
        unknown = set(change) - CHANGEABLE
        if unknown:
            raise KeyError(*unknown)
        columns = ", ".join(f"{name} = :{name}" for name in change)

        def work(connection: apsw.Connection) -> int:
            changed = 0
            for session_id in session_ids:
                bindings = {**change, "id": session_id}
                if change.get("title") is not None:
                    connection.execute(self._sql["free_title"], bindings)
                connection.execute(f"UPDATE sessions SET {columns} WHERE id = :id", bindings)
                changed += connection.changes()
            return changed

        return self._unless_taken(work)

    def end(self, session_id: str, at: float, reason: str) -> bool:
        return self._changes_one("end", id=session_id, at=at, reason=reason)

    def spend(self, session_id: str, usage: Usage) -> bool:
        return self._changes_one("spend", id=session_id, **_usage_bindings(usage))

    def system_prompt(self, session_id: str) -> str | None:
        for codec, data in self._db.rows(self._sql["system_prompt"], {"id": session_id}):
            return unpack(codec, data)
        return None

    def purge(self, session_id: str) -> int:
        gone = 0
        while (count := self._db.write(lambda connection: self._purge_slice(connection, session_id))) is not None:
            gone += count
        return gone

    # ── finding ──

    def with_prefix(self, prefix: str, limit: int, user: str | None = None) -> list[str]:
        bindings = {"prefix": prefix, "limit": limit, "user": user}
        return [row[0] for row in self._db.rows(self._sql["with_prefix"], bindings)]

    def titles(self, base: str, scope: Scope) -> list[tuple[str, str]]:
        bindings = {"base": base, "profile": scope.profile, "user": scope.user}
        return [(title, session_id) for title, session_id in self._db.rows(self._sql["titles"], bindings)]

    def of_conversations(self, conversations: Sequence[str]) -> list[SessionInfo]:
        return self._sessions("of_conversations", conversations=json.dumps(list(conversations)))

    def children(self, parents: Sequence[str]) -> list[SessionInfo]:
        return self._sessions("children", parents=json.dumps(list(parents)))

    def recent(self, which: SessionFilter, limit: int, offset: int) -> list[str]:
        if limit <= 0:
            return []
        matches, bindings = conditions(which, "m")
        sql = self._sql["recent"].replace("{matches}", matches)

        def work(connection: apsw.Connection) -> list[str]:
            seen: dict[str, None] = {}
            rows: Any = connection.execute(sql, bindings)
            for (conversation,) in rows:
                seen[conversation] = None
                if len(seen) >= offset + limit:
                    rows.close(True)
                    break
            return list(seen)[offset:]

        return self._db.read(work, [])

    def matching(self, which: SessionFilter) -> list[SessionInfo]:
        matches, bindings = conditions(which, "s")
        sql = f"{self._sql['columns']} WHERE s.deleted IS NULL{matches} ORDER BY s.started, s.key"
        return [_session(row) for row in self._db.rows(sql, bindings)]

    def deleted(self, before: float) -> list[SessionInfo]:
        return self._sessions("deleted", before=before)

    # ── inside ──

    def _insert(self, connection: apsw.Connection, session: SessionInfo, prompt: Payload | None) -> SessionInfo:
        bindings = {**_bindings(session), "prompt": None if prompt is None else store(connection, prompt)}
        ((conversation,),) = _all(connection, self._sql["insert"], bindings)
        return replace(session, conversation=conversation)

    def _sessions(self, name: str, **bindings: Any) -> list[SessionInfo]:
        return [_session(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]

    def _changes_one(self, name: str, **bindings: Any) -> bool:
        def work(connection: apsw.Connection) -> bool:
            connection.execute(self._sql[name], bindings)
            return connection.changes() > 0

        return self._db.write(work)

    def _unless_taken(self, work: Work[T]) -> T:
        def guarded(connection: apsw.Connection) -> T:
            try:
                return work(connection)
            except apsw.ConstraintError as exc:
                if getattr(exc, "extendedresult", 0) != apsw.SQLITE_CONSTRAINT_UNIQUE:
                    raise
                raise StoreChanged("That title or id belongs to another session.") from exc

        return self._db.write(guarded)

    def _purge_slice(self, connection: apsw.Connection, session_id: str) -> int | None:
        """One step of purging: some messages, or, when none are left, the session. → None when there was nothing."""
        key: Any = connection.execute(self._sql["key_of_deleted"], {"id": session_id}).fetchone()
        if key is None:
            return None
        for distilled in _DISTILLED:
            connection.execute(self._sql[f"purge_{distilled}"], {"key": key[0], "id": session_id})
        where = {"key": key[0], "limit": PURGE_SLICE}
        ids = [row[0] for row in _all(connection, self._sql["purge_slice"], where)]
        if ids:
            freed = [row[0] for row in _all(connection, self._sql["purge_uses"], {"ids": json.dumps(ids)})]
            connection.execute(self._sql["purge_messages"], {"ids": json.dumps(ids)})
            connection.executemany(self._sql["purge_change"], list(_runs(ids)))
        else:
            freed = [row[0] for row in _all(connection, self._sql["purge_session"], {"key": key[0]})]
        connection.execute(self._sql["purge_payloads"], {"ids": json.dumps(freed)})
        return len(ids)


def _all(connection: apsw.Connection, sql: str, bindings: dict[str, Any]) -> list[Any]:
    return connection.execute(sql, bindings).fetchall()


def _runs(ids: Sequence[int]) -> Iterator[dict[str, int]]:
    """Increasing ids as runs without gaps."""
    first = previous = ids[0]
    for message_id in [*ids[1:], None]:
        if message_id != previous + 1:
            yield {"first": first, "count": previous - first + 1}
            first = message_id or 0
        previous = message_id or 0


def _usage_bindings(usage: Usage) -> dict[str, Any]:
    return {
        "input": usage.input,
        "output": usage.output,
        "cache_read": usage.cache_read,
        "cache_write": usage.cache_write,
        "reasoning": usage.reasoning,
        "cost_usd": usage.cost_usd,
    }


def _bindings(session: SessionInfo) -> dict[str, Any]:
    return {
        "id": session.id,
        "source": session.source,
        "profile": session.scope.profile,
        "project": session.scope.project,
        "user": session.scope.user,
        "chat": session.scope.chat,
        "model": session.model,
        "title": session.title,
        "parent": session.parent,
        "reason": session.reason,
        "started": session.started,
        "ended": session.ended,
        "end_reason": session.end_reason,
        "archived": session.archived,
        "deleted": session.deleted,
        "last_active": session.last_active or session.started,
        "preview": session.preview,
        **{name: getattr(session, name) for name in PLACE},
        **_usage_bindings(session.usage),
    }


def _session(row: Sequence[Any]) -> SessionInfo:
    (id_, source, profile, project, user, chat, started, conversation, title, model, parent, reason) = row[:12]
    (ended, end_reason, archived, message_count, tool_call_count) = row[12:17]
    (last_active, preview, deleted) = row[23:26]
    return SessionInfo(
        id=id_,
        source=source,
        scope=Scope(profile, project, user, chat),
        started=started,
        conversation=conversation,
        title=title,
        model=model,
        parent=parent,
        reason=reason,
        ended=ended,
        end_reason=end_reason,
        archived=bool(archived),
        message_count=message_count,
        tool_call_count=tool_call_count,
        usage=Usage(*row[17:23]),
        last_active=last_active,
        preview=preview,
        deleted=deleted,
        **dict(zip(PLACE, row[26:], strict=True)),
    )


# ---------- store.sqlite.messages
#
# Messages in `herma.db`: implements `MessageRows`.

_LARGE = (
    2,
    3,
    4,
    7,
    8,
    9,
    14,
)  # where a row to be written may hold pieces: content, parts, calls, reasoning, sent, extra
_MESSAGES_NEVER = 2**62


class SqliteMessages:
    """Rows of the table `messages`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("messages")

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        preview: str = "",
        staged: bool = False,
        compacts: int | None = None,
    ) -> list[int]:
        rows = [_row(message) for message in messages]
        times = [message.timestamp for message in messages]
        visible = sum(not message.hidden for message in messages)
        totals = {"messages": visible, "calls": sum(len(message.tool_calls) for message in messages)}

        def work(connection: apsw.Connection) -> list[int]:
            found: Any = connection.execute(self._sql["key"], {"id": session_id, "deleted": staged}).fetchone()
            if found is None:
                raise KeyError(session_id)
            key = int(found[0])
            ids = [_insert(connection, self._sql["insert"], key, row) for row in rows]
            at = {"key": key, "first": ids[0], "oldest": min(times), "newest": max(times)}
            connection.execute(self._sql["count_in"], {**totals, **at, "preview": preview})
            connection.execute(self._sql["change"], {"first": ids[0], "count": len(ids)})
            if compacts is not None:
                hidden = {"key": key, "first": 0, "last": compacts, "old": "", "new": "compacted"}
                connection.execute(self._sql["hide"], hidden)
                connection.execute(self._sql["recount"], {"key": key})
            return ids

        return self._db.write(work) if rows else []

    def of_session(
        self, session_id: str, *, hidden: bool, after: int | None = None, limit: int | None = None
    ) -> list[Message]:
        return self._messages(
            "of_session",
            id=session_id,
            hidden=hidden,
            after=-1 if after is None else after,
            limit=-1 if limit is None else limit,
        )

    def by_ids(self, message_ids: Sequence[int]) -> dict[int, Message]:
        found = self._messages("by_ids", ids=json.dumps(list(message_ids)))
        return {message.id: message for message in found}

    def around(self, message_id: int, window: int) -> list[Message]:
        def work(connection: apsw.Connection) -> list[Message]:
            found: Any = connection.execute(self._sql["session_of"], {"id": message_id}).fetchone()
            if found is None:
                return []
            at = {"key": found[0], "id": message_id}
            before = self._load(connection, "before", {**at, "limit": window})
            return before[::-1] + self._load(connection, "from", {**at, "limit": window + 1})

        return self._db.read(work, [])

    def edges(
        self, session_id: str, count: int, outside: tuple[int, int] | None, roles: Sequence[str]
    ) -> tuple[list[Message], list[Message]]:
        first, last = outside or (_MESSAGES_NEVER, -1)
        which = {"id": session_id, "count": count, "roles": json.dumps(list(roles))}

        def work(connection: apsw.Connection) -> tuple[list[Message], list[Message]]:
            start = self._load(connection, "first_ones", {**which, "before": first})
            after = max(last, start[-1].id) if start and outside is None else last
            end = self._load(connection, "last_ones", {**which, "after": after})
            return start, end[::-1]

        nothing: tuple[list[Message], list[Message]] = ([], [])
        return self._db.read(work, nothing)

    def hide(self, session_id: str, first: int, last: int, old: Hidden, new: Hidden) -> int:
        def work(connection: apsw.Connection) -> int:
            found: Any = connection.execute(self._sql["key"], {"id": session_id, "deleted": False}).fetchone()
            if found is None:
                raise KeyError(session_id)
            bindings = {"key": found[0], "first": first, "last": last, "old": old, "new": new}
            connection.execute(self._sql["hide"], bindings)
            changed = connection.changes()
            connection.execute(self._sql["recount"], {"key": found[0]})
            return changed

        return self._db.write(work)

    def stats(self) -> TranscriptStats:
        def work(connection: apsw.Connection) -> TranscriptStats:
            def all_of(name: str) -> list[Any]:
                return connection.execute(self._sql[name]).fetchall()

            (totals,) = all_of("totals")
            (payloads,) = all_of("payload_totals")
            return TranscriptStats(
                sessions=totals[0],
                conversations=totals[1],
                messages=totals[2],
                hidden_messages=all_of("hidden_messages")[0][0],
                archived_sessions=totals[3],
                deleted_sessions=all_of("waiting")[0][0],
                sources={source: (sessions, messages) for source, sessions, messages in all_of("by_source")},
                usage=Usage(*totals[4:10]),
                first=totals[10],
                last=totals[11],
                payloads=payloads[0],
                payload_bytes=payloads[1],
                payload_text_bytes=payloads[2],
                file_bytes=int(str(connection.pragma("page_count"))) * int(str(connection.pragma("page_size"))),
            )

        return self._db.read(work, TranscriptStats())

    def _messages(self, name: str, **bindings: Any) -> list[Message]:
        return self._db.read(lambda connection: self._load(connection, name, bindings), [])

    def _load(self, connection: apsw.Connection, name: str, bindings: dict[str, Any]) -> list[Message]:
        rows: list[Any] = connection.execute(f"{self._sql['columns']} {self._sql[name]}", bindings).fetchall()
        text = texts(connection, [row[at] for row in rows for at in (4, 5, 6, 9, 10, 11, 16)])
        return [_message(row, text) for row in rows]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _row(message: Message) -> list[Any]:
    """The columns after `session`, in order; large values are taken apart before anybody waits for the database."""
    content, parts = _columns(message.content)
    sent, sent_parts = _columns(message.sent)
    return [
        message.role,
        message.timestamp,
        content,
        parts,
        cell(_json(message.tool_calls)) if message.tool_calls else None,
        message.tool_call_id,
        message.tool_name,
        cell(message.reasoning),
        sent,
        sent_parts,
        message.told,
        message.tokens,
        message.finish_reason,
        message.hidden,
        cell(_json(message.extra)) if message.extra else None,
    ]


def _columns(content: Content) -> tuple[Cell, Cell]:
    return (cell(content), None) if content is None or isinstance(content, str) else (None, cell(_json(content)))


def _insert(connection: apsw.Connection, sql: str, key: int, row: list[Any]) -> int:
    used: set[int] = set()
    if any(isinstance(row[at], list) for at in _LARGE):
        row = [stored(connection, value, used) if at in _LARGE else value for at, value in enumerate(row)]
    connection.execute(sql, (key, *row))
    message_id = connection.last_insert_rowid()
    if used:
        use(connection, message_id, used)
    return message_id


def _message(row: Sequence[Any], text: Callable[[Stored], str | None]) -> Message:
    return Message(
        id=row[0],
        session_id=row[1],
        role=row[2],
        timestamp=row[3],
        content=_content(text(row[4]), text(row[5])),
        tool_calls=tuple(json.loads(calls)) if (calls := text(row[6])) else (),
        tool_call_id=row[7],
        tool_name=row[8],
        reasoning=text(row[9]),
        sent=_content(text(row[10]), text(row[11])),
        told=row[12],
        tokens=row[13],
        finish_reason=row[14],
        hidden=row[15],
        extra=json.loads(extra) if (extra := text(row[16])) else {},
    )


def _content(content: str | None, parts: str | None) -> Content:
    return content if parts is None else json.loads(parts)


# ---------- store.sqlite.feed
#
# The change feed of `herma.db`: implements `ChangeFeed`.


class SqliteFeed:
    """Messages of deleted sessions are still in the feed: they may come back, and are gone from it when purged."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("feed")

    def position(self) -> Position:
        for store_id, epoch, seq in self._db.rows(self._sql["identity"]):
            return Position(store_id, epoch, seq)
        return Position("", "", 0)

    def since(self, seq: int, limit: int) -> list[FeedChange]:
        rows = self._db.rows(self._sql["since"], {"seq": seq, "limit": limit})
        return [
            FeedChange(number, "purge" if gone else "append", tuple(range(first, first + count)))
            for number, gone, first, count in rows
        ]

    def searchable(self, message_ids: Sequence[int]) -> list[Searchable]:
        def work(connection: apsw.Connection) -> list[Searchable]:
            bindings = {"ids": json.dumps(list(message_ids))}
            rows: list[Any] = connection.execute(self._sql["searchable"], bindings).fetchall()
            whole = texts(connection, [value for row in rows for value in row[4:7]], base64=False)
            return [
                Searchable(id_, session_id, role, timestamp, _text(whole(content), whole(parts), whole(calls), tool))
                for id_, session_id, role, timestamp, content, parts, calls, tool in rows
            ]

        return self._db.read(work, [])

    def message_count(self) -> int:
        rows = self._db.rows(self._sql["message_count"])
        return int(rows[0][0]) if rows else 0


def _text(content: str | None, parts: str | None, calls: str | None, tool_name: str | None) -> str:
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool_name)


# ---------- ports.search
#
# What search reads of transcripts.


class Head(NamedTuple):
    """A message without its text: as much as it takes to decide whether it may be shown.

    A search looks at hundreds of messages and shows ten: what a dataclass takes to be made counts here.
    """

    id: int
    session_id: str
    role: str
    timestamp: float
    hidden: Hidden = ""


class Standing(NamedTuple):
    """As much of a session as it takes to decide whether its messages may be shown, and where they belong."""

    id: str
    source: str
    scope: Scope
    conversation: str
    archived: bool = False
    deleted: float | None = None


class Turns(NamedTuple):
    """Messages, the sessions they are in, and their texts where these were asked for."""

    heads: Sequence[Head] = ()
    sessions: Mapping[str, Standing] = {}
    texts: Mapping[int, str] = {}


@dataclass(frozen=True, slots=True)
class Spot:
    """A message, and the sessions in which its conversation begins and ends."""

    message_id: int
    first: str
    last: str


class Shown(NamedTuple):
    """As much of a message as a model is shown of what was found: neither reasoning nor what was sent instead."""

    id: int
    role: str
    timestamp: float
    content: Content
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A message with its neighbours, and what user and assistant said first and last outside of these."""

    messages: Sequence[Shown] = ()
    start: Sequence[Shown] = ()
    end: Sequence[Shown] = ()


@dataclass(frozen=True, slots=True)
class Admitted:
    """Which messages may be meant: those of sessions that `wanted` admits by source, scope (not the chat) and whether
    they are archived, of these sessions or conversations, in this time, by these roles (none named: all).
    """

    wanted: Callable[[str, Scope, bool], bool]
    sessions: Sequence[str] = ()
    since: float = float("-inf")
    before: float = float("inf")
    roles: Sequence[str] = ()


class TranscriptReader(Protocol):
    """Messages and sessions for ranking, in batches: never one query per hit. What is gone is left out.

    Deleted sessions and their messages are still there, so that search can say what it leaves out.
    """

    def steady(self) -> AbstractContextManager[None]:
        """What is read in the block, by the thread that is in it, is of one moment."""
        ...

    def texts(self, message_ids: Sequence[int], at_most: int) -> Mapping[int, str]:
        """What is searchable of these messages, each cut to so many characters."""
        ...

    def turns(self, message_ids: Sequence[int], at_most: int = 0) -> Turns:
        """Everything about these messages at once. `at_most`: characters of each text; 0 for none."""
        ...

    def neighbours(self, message_ids: Sequence[int]) -> Mapping[int, tuple[int | None, int | None]]:
        """The messages before and after each in its session, rewound ones passed over."""
        ...

    def surroundings(self, spots: Sequence[Spot], window: int, ends: int) -> Sequence[Surroundings]:
        """For each message so many on either side of it, and so many at both ends of its conversation, in order.

        Rewound messages and deleted sessions are left out.
        """
        ...

    def members(self, conversations: Sequence[str]) -> Mapping[str, Sequence[SessionInfo]]:
        """The sessions of each conversation that are not deleted, oldest first."""
        ...

    def newest(self, limit: int, admitted: Admitted | None = None) -> Sequence[int]:
        """The messages that came last, newest first; with `admitted`, of those, in the sessions last active."""
        ...

    def sessions(self, session_ids: Sequence[str]) -> Mapping[str, SessionInfo]: ...

    def titled(
        self, words: Sequence[str], limit: int, *, exactly: bool = False
    ) -> Sequence[tuple[SessionInfo, int | None]]:
        """Sessions whose title contains all of these words (`exactly`: is one of them), last active first, each with
        its first message.
        """
        ...

    def size(self) -> int:
        """How many sessions there are."""
        ...


# ---------- store.sqlite.reader
#
# What search reads of `herma.db`: implements `TranscriptReader`, one query per batch.

_SHOWN = ("following", "first_ones", "last_ones")
_READER_NEVER = 2**62


class SqliteReader:
    """Reads only; it creates nothing where there is no database yet."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SqliteSessions(database)
        self._sql = queries("reader")
        self._counted: WeakKeyDictionary[apsw.Connection, tuple[int, int]] = WeakKeyDictionary()
        self._asked = {name: f"{self._sql['shown']} {self._sql[name]}" for name in _SHOWN}

    def steady(self) -> AbstractContextManager[None]:
        return self._db.steady()

    def texts(self, message_ids: Sequence[int], at_most: int) -> dict[int, str]:
        rows = self._stored("texts", message_ids, 1)
        return {row[0]: _searchable(row[1:], at_most) for row in rows}

    def turns(self, message_ids: Sequence[int], at_most: int = 0) -> Turns:
        rows = self._stored("turns", message_ids, 13) if at_most else self._rows("heads", message_ids)
        heads, sessions = [], {}
        scopes: dict[tuple[str, ...], Scope] = {}
        for row in rows:
            heads.append(Head._make(row[:5]))
            if (session := row[1]) not in sessions:
                scope = scopes.get(key := row[6:10]) or scopes.setdefault(key, Scope(*key))
                sessions[session] = Standing(session, row[5], scope, row[10], bool(row[11]), row[12])
        return Turns(heads, sessions, {row[0]: _searchable(row[13:], at_most) for row in rows} if at_most else {})

    def neighbours(self, message_ids: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
        return {id_: (before, after) for id_, before, after in self._rows("neighbours", message_ids)}

    def surroundings(self, spots: Sequence[Spot], window: int, ends: int) -> list[Surroundings]:
        return self._db.read(
            lambda connection: [self._around(connection, spot, window, ends) for spot in spots],
            [Surroundings() for _ in spots],
        )

    def members(self, conversations: Sequence[str]) -> dict[str, list[SessionInfo]]:
        found: dict[str, list[SessionInfo]] = {conversation: [] for conversation in conversations}
        sessions = self._sessions.of_conversations(list(found))
        for session in sorted(sessions, key=lambda session: (session.started, session.id)):
            found[session.conversation].append(session)
        return found

    def newest(self, limit: int, admitted: Admitted | None = None) -> list[int]:
        if admitted is None:
            return [row[0] for row in self._db.rows(self._sql["newest"], {"limit": limit})]
        return self._db.read(lambda connection: self._newest_of(connection, limit, admitted), [])

    def _newest_of(self, connection: apsw.Connection, limit: int, admitted: Admitted) -> list[int]:
        """Sessions are gone through from the one last active on, until they have enough messages. There are many of
        them, and few places they come from: those are chosen here, and SQLite does the rest.
        """
        kinds = [
            kind
            for kind in fetch(connection, self._sql["kinds"])
            if admitted.wanted(kind[0], Scope(*kind[1:4]), bool(kind[4]))
        ]
        if not kinds:
            return []
        times = {"since": admitted.since, "before": admitted.before}
        asked = {**times, "kinds": json.dumps(kinds), "sessions": json.dumps([*admitted.sessions])}
        keys, messages = list[int](), 0
        for key, count in connection.execute(self._sql["of_kinds"], asked):
            keys.append(key)
            messages += count
            if messages >= limit:
                break
        of_these = {**times, "keys": json.dumps(keys), "roles": json.dumps([*admitted.roles]), "limit": limit}
        return [row[0] for row in fetch(connection, self._sql["newest_of"], of_these)]

    def sessions(self, session_ids: Sequence[str]) -> dict[str, SessionInfo]:
        return self._sessions.get(session_ids, deleted=True)

    def titled(
        self, words: Sequence[str], limit: int, *, exactly: bool = False
    ) -> list[tuple[SessionInfo, int | None]]:
        words = list(words) if exactly else [word.lower() for word in words]
        if not words or not (exactly or self._db.rows(self._sql["any_titled"], {"word": max(words, key=len)})):
            return []
        bindings = {"words": json.dumps(words), "limit": limit}
        first = dict(self._db.rows(self._sql["entitled" if exactly else "titled"], bindings))
        known = self._sessions.get(list(first)) if first else {}
        return [(known[id_], message) for id_, message in first.items() if id_ in known]

    def size(self) -> int:
        return self._db.glance(self._count, 0)

    def _count(self, connection: apsw.Connection) -> int:
        """Counting visits every session: it is done again only after something was written."""
        version = int(fetch(connection, "PRAGMA data_version")[0][0])
        counted = self._counted.get(connection)
        if counted is None or counted[0] != version:
            counted = self._counted[connection] = (version, int(fetch(connection, self._sql["size"])[0][0]))
        return counted[1]

    def _around(self, connection: apsw.Connection, spot: Spot, window: int, ends: int) -> Surroundings:
        """Four short statements take a third of the time of one for all messages, with its temporary tables. Where the
        window reaches an end of the session, there is nothing beyond it to ask for.
        """
        rows = fetch(connection, self._sql["until"], (spot.message_id, window + 1))
        if not rows:
            return Surroundings()
        key, here = rows[0][8:]
        messages = self._messages(connection, rows[::-1])
        messages += self._shown(connection, "following", (key, spot.message_id, window))
        start: list[Shown] = []
        end: list[Shown] = []
        if spot.first != here or len(rows) > window:
            first = key if spot.first == here else self._key(connection, spot.first)
            before = messages[0].id if spot.first == here else _READER_NEVER
            start = self._shown(connection, "first_ones", (first, before, ends))
        if spot.last != here or len(messages) == len(rows) + window:
            last = key if spot.last == here else self._key(connection, spot.last)
            after = messages[-1].id if spot.last == here else -1
            end = self._shown(connection, "last_ones", (last, after, ends))
        return Surroundings(messages, start, end[::-1])

    def _key(self, connection: apsw.Connection, session_id: str) -> int | None:
        return next((row[0] for row in fetch(connection, self._sql["key"], (session_id,))), None)

    def _shown(self, connection: apsw.Connection, name: str, bindings: Sequence[Any]) -> list[Shown]:
        return self._messages(connection, fetch(connection, self._asked[name], bindings))

    def _messages(self, connection: apsw.Connection, rows: Sequence[Any]) -> list[Shown]:
        if _apart(rows, 3):
            whole = texts(connection, [value for row in rows for value in row[3:6]])
            rows = [(*row[:3], *map(whole, row[3:6]), *row[6:]) for row in rows]
        return [_shown(row) for row in rows]

    def _stored(self, name: str, ids: Sequence[int], first: int) -> list[Any]:
        """Rows in which three columns from `first` on may refer to text that is kept elsewhere; mostly none does."""
        if not _apart(rows := self._rows(name, ids), first):
            return rows

        def work(connection: apsw.Connection) -> list[Any]:
            rows = fetch(connection, self._sql[name], {"ids": _array(ids)})
            whole = texts(connection, _apart(rows, first), base64=False)
            return [(*row[:first], *map(whole, row[first : first + 3]), *row[first + 3 :]) for row in rows]

        return self._db.read(work, [])

    def _rows(self, name: str, ids: Sequence[int]) -> list[Any]:
        return self._db.rows(self._sql[name], {"ids": _array(ids)})


def _apart(rows: Sequence[Any], first: int) -> list[bytes]:
    return [value for row in rows for value in row[first : first + 3] if type(value) is bytes]


def _searchable(stored: Sequence[str | None], at_most: int) -> str:
    """Plain prose is what it is; what was taken out of it as noise is not what a query looks for."""
    content, parts, calls, tool = stored
    if content is not None and calls is None and tool is None and "\x1b" not in content:
        return content[:at_most]
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool)[:at_most]


def _shown(row: Sequence[Any]) -> Shown:
    id_, role, timestamp, content, parts, calls, call_id, tool_name = row[:8]
    if parts is None and not calls:
        return Shown(id_, role, timestamp, content, (), call_id, tool_name)
    said = content if parts is None else json.loads(parts)
    return Shown(id_, role, timestamp, said, tuple(json.loads(calls)) if calls else (), call_id, tool_name)


def _array(ids: Sequence[int]) -> str:
    """JSON, as `json.dumps` would write it in ten times the time."""
    return f"[{','.join(map(str, ids))}]"
