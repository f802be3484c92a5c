"""Rows of transcripts in herma.db: sessions, messages, large texts, the change feed, and what search reads of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar
from weakref import WeakKeyDictionary

from herma.errors import StoreChanged, StoreError
from herma.store.database import Blob, NotUnique, damaged, parsed
from herma.transcript.messages import searchable_text
from herma.types import (
    Content,
    Hidden,
    Message,
    Origin,
    OutsideSpan,
    Scope,
    SessionFilter,
    SessionInfo,
    TranscriptStats,
    Usage,
)

if TYPE_CHECKING:
    from herma.store.database import Database, DatabaseConnection, Work

T = TypeVar("T")
PLACE = ("provider", "chat_type", "folder", "branch")
PURGE_SLICE = 2_000
"""Messages that one transaction purges, so that other writers wait briefly."""
_DISTILLED = ("episode_terms", "episode", "state", "facts", "reviews", "tries", "import_keys", "import_parts")
_NEVER = 2**62
"""Larger than the id of any message."""


class SessionChange(TypedDict, total=False):
    """Columns of a session that may change by themselves."""

    title: str | None
    ended: float | None
    end_reason: str | None
    archived: bool
    deleted: float | None
    preview: str
    model: str | None
    provider: str
    chat_type: str
    folder: str
    branch: str


class SessionHead(NamedTuple):
    """Read the state of a session in one row: for a program that has it open, and may not be the only one."""

    visible: int
    """Its messages that are not hidden."""
    newest: int
    """The last of them; 0 where there is none."""
    follower: str = ""
    """A session that goes on with the conversation from here, if there is one that says something."""
    reason: str = ""
    """Why it follows: `resume` or `compression`."""


@dataclass(frozen=True, slots=True)
class Position:
    """A position in a change feed. Another store, or another epoch of it, makes the number meaningless."""

    store_id: str
    epoch: str
    seq: int


class FeedChange(NamedTuple):
    """One row of the change feed: these messages were appended to a session, or are gone from it."""

    seq: int
    kind: Literal["append", "purge"]
    message_ids: tuple[int, ...]


class Searchable(NamedTuple):
    """The searchable text of one message: prose, and the names and arguments of the tools it calls."""

    id: int
    session_id: str
    role: str
    timestamp: float
    text: str


class Head(NamedTuple):
    """A message without its text: as much as it takes to decide whether it may be shown.

    A search looks at hundreds of messages and shows ten: the time to make a dataclass counts here.
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


class MessageSpot(NamedTuple):
    """A message, and the sessions in which its conversation begins and ends."""

    message_id: int
    first: str
    last: str


class ShownMessage(NamedTuple):
    """As much of a message as a model is shown of what was found: neither reasoning nor what was sent instead."""

    id: int
    role: str
    timestamp: float
    content: Content
    tool_calls: tuple[dict[str, Any], ...] = ()
    tool_call_id: str | None = None
    tool_name: str | None = None


@dataclass(frozen=True, slots=True)
class MessageSurroundings:
    """A message with its neighbours, and what user and assistant said first and last outside of these."""

    messages: Sequence[ShownMessage] = ()
    start: Sequence[ShownMessage] = ()
    end: Sequence[ShownMessage] = ()


class Admitted(NamedTuple):
    """Select the messages to search: those of sessions that `wanted` admits by source, scope (not the chat) and whether
    they are archived, of these sessions or conversations, in this time, by these roles (none named: all).
    """

    wanted: Callable[[str, Scope, bool], bool]
    sessions: Sequence[str] = ()
    since: float = float("-inf")
    before: float = float("inf")
    roles: Sequence[str] = ()


class SessionRows:
    """Rows of the table `sessions`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("transcript.sessions")

    def add(
        self,
        sessions: Sequence[SessionInfo],
        prompts: Mapping[str, str],
        outside: Mapping[str, Sequence[OutsideSpan]] | None = None,
    ) -> list[SessionInfo]:
        """Keep new sessions, all or none; `prompts` has the system prompts by id, `outside` the parts of them that came
        from outside. Return them with their conversations.

        `StoreChanged` when an id or a title is taken.
        """
        ready = {session_id: payload(text) for session_id, text in prompts.items()}
        spans = {session_id: _json(spans_json(given)) for session_id, given in (outside or {}).items()}

        def work(connection: DatabaseConnection) -> list[SessionInfo]:
            return [
                self.insert_in(connection, session, ready.get(session.id), spans.get(session.id))
                for session in sessions
            ]

        return self._unless_taken(work) if sessions else []

    def get(self, session_ids: Sequence[str], *, deleted: bool = False) -> dict[str, SessionInfo]:
        """Return these sessions, as far as they are there; with `deleted`, those that wait to be purged too."""
        found = self._sessions("get", ids=list(session_ids), deleted=deleted)
        return {session.id: session for session in found}

    def head(self, session_id: str) -> SessionHead | None:
        """Return how it stands; None when it is not there."""
        found = self._db.row(self._sql["head"], {"id": session_id})
        return SessionHead(*found) if found else None

    def others_spoken(self, conversation: str) -> bool:
        """Return whether there is anything that was said in other conversations."""
        found = self._db.row(self._sql["others_spoken"], {"conversation": conversation})
        return bool(found and found[0])

    def update(self, session_ids: Sequence[str], change: SessionChange) -> int:
        """Change all of them or none, deleted ones too. Return how many. `StoreChanged` when a title is taken.

        A title that another session of the same conversation has is taken from that one.
        """
        unknown = set(change) - SessionChange.__annotations__.keys()
        if unknown:
            raise KeyError(*unknown)
        columns = ", ".join(f"{name} = :{name}" for name in change)

        def work(connection: DatabaseConnection) -> int:
            changed = 0
            for session_id in session_ids:
                bindings = {**change, "id": session_id}
                if change.get("title") is not None:
                    connection.run(self._sql["free_title"], bindings)
                changed += connection.run(f"UPDATE sessions SET {columns} WHERE id = :id", bindings)
            return changed

        return self._unless_taken(work)

    def end(self, session_id: str, at: float, reason: str) -> bool:
        """End it, unless it has ended: the first reason stands. Return whether this call ended it."""
        return self._db.run(self._sql["end"], {"id": session_id, "at": at, "reason": reason}) > 0

    def spend(self, session_id: str, usage: Usage) -> bool:
        """Add to what a session cost. Return whether it is there."""
        return self._db.write(lambda connection: self.spend_in(connection, session_id, usage))

    def spend_in(self, connection: DatabaseConnection, session_id: str, usage: Usage) -> bool:
        return connection.run(self._sql["spend"], {"id": session_id, **asdict(usage)}) > 0

    def system_prompt(self, session_id: str) -> str | None:
        found = self._db.row(self._sql["system_prompt"], {"id": session_id})
        return unpack(*found) if found else None

    def prompt_outside(self, session_id: str) -> tuple[OutsideSpan, ...] | None:
        """Return the parts of the system prompt that came from outside; None if they were not recorded."""
        found = self._db.row(self._sql["prompt_outside"], {"id": session_id})
        return spans_of(found[0]) if found else None

    def purge(self, session_id: str) -> int:
        """Remove a deleted session and its messages for good, and say so in the feed. Return how many messages."""
        gone = 0
        while (count := self._db.write(lambda connection: self._purge_slice(connection, session_id))) is not None:
            gone += count
        return gone

    def with_prefix(self, prefix: str, limit: int, user: str | None = None) -> list[str]:
        """Return ids that begin with `prefix`, newest first: of all sessions, or of one user's."""
        bindings = {"prefix": prefix, "beyond": f"{prefix}\U0010ffff", "limit": limit, "user": user}
        return [row[0] for row in self._db.rows(self._sql["with_prefix"], bindings)]

    def titles(self, base: str, scope: Scope) -> list[tuple[str, str]]:
        """Return (title, id) of sessions of this profile and user called `base`, or beginning with `base #`."""
        bindings = {"base": base, "profile": scope.profile, "user": scope.user}
        return [(title, session_id) for title, session_id in self._db.rows(self._sql["titles"], bindings)]

    def of_conversations(self, conversations: Sequence[str]) -> list[SessionInfo]:
        """Return all sessions of these conversations."""
        return self._sessions("of_conversations", conversations=list(conversations))

    def members(self, conversations: Iterable[str]) -> dict[str, list[SessionInfo]]:
        """Return the sessions of each of these conversations that is there, oldest first."""
        found: dict[str, list[SessionInfo]] = {conversation: [] for conversation in conversations}
        for session in sorted(self.of_conversations(list(found)), key=lambda session: (session.started, session.id)):
            found[session.conversation].append(session)
        return {conversation: sessions for conversation, sessions in found.items() if sessions}

    def children(self, parents: Sequence[str]) -> list[SessionInfo]:
        return self._sessions("children", parents=list(parents))

    def recent(self, which: SessionFilter, limit: int, offset: int) -> list[str]:
        """Return conversations of which at least one session matches, the most recently active first."""
        if limit <= 0:
            return []
        matches, bindings = self._conditions(which, "m")
        sql = self._sql["recent"].replace("{matches}", matches)

        def work(connection: DatabaseConnection) -> list[str]:
            seen: dict[str, None] = {}
            for (conversation,) in connection.stream(sql, bindings):
                seen[conversation] = None
                if len(seen) >= offset + limit:
                    break
            return list(seen)[offset:]

        return self._db.read(work, [])

    def matching(self, which: SessionFilter) -> list[SessionInfo]:
        """Return every single session that matches, oldest first."""
        matches, bindings = self._conditions(which, "s")
        sql = f"{self._sql['columns']} WHERE s.deleted IS NULL{matches} ORDER BY s.started, s.key"
        return [_session(row) for row in self._db.rows(sql, bindings)]

    def deleted(self, before: float) -> list[SessionInfo]:
        """Return sessions that were deleted before this time, oldest first."""
        return self._sessions("deleted", before=before)

    def insert_in(
        self,
        connection: DatabaseConnection,
        session: SessionInfo,
        prompt: Payload | None = None,
        outside: str | None = None,
    ) -> SessionInfo:
        """Insert one new session inside a transaction. Return it with its conversation."""
        key = None if prompt is None else payload_id(connection, prompt)
        bindings = {**_bindings(session), "prompt": key, "prompt_outside": outside}
        ((conversation,),) = connection.rows(self._sql["insert"], bindings)
        return replace(session, conversation=conversation)

    def _conditions(self, which: SessionFilter, table: str) -> tuple[str, dict[str, Any]]:
        """Return conditions to add to a WHERE that has one already, and what they bind."""
        sql, bindings = "", {}
        for name in (item.name for item in fields(which)):
            value = getattr(which, name)
            if value is None or value == () or (name == "search" and not value):
                continue
            lines = self._sql[f"where_{name}"].split("\n")
            sql += "\n   AND " + " ".join(line for line in lines if not line.startswith("--")).replace("{t}", table)
            if name in ("project", "folder"):  # a shell that completes a path puts a slash behind it
                value = value.rstrip("/\\") or value
            bindings[name] = (
                list(map(_lower, value)) if isinstance(value, tuple) else _lower(value) if name == "project" else value
            )
        return sql, bindings

    def _sessions(self, name: str, **bindings: Any) -> list[SessionInfo]:
        return [_session(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]

    def _unless_taken(self, work: Work[T]) -> T:
        try:
            return self._db.write(work)
        except NotUnique as exc:
            raise StoreChanged("That title or id belongs to another session.") from exc

    def _purge_slice(self, connection: DatabaseConnection, session_id: str) -> int | None:
        """Return one step of purging: some messages, or, when none are left, the session; None if there are none."""
        found = connection.row(self._sql["key_of_deleted"], {"id": session_id})
        if found is None:
            return None
        (key,) = found
        for distilled in _DISTILLED:
            connection.run(self._sql[f"purge_{distilled}"], {"key": key, "id": session_id})
        ids = [row[0] for row in connection.rows(self._sql["purge_slice"], {"key": key, "limit": PURGE_SLICE})]
        if ids:
            freed = connection.rows(self._sql["purge_uses"], {"ids": list(ids)})
            connection.run(self._sql["purge_messages"], {"ids": list(ids)})
            connection.run_many(self._sql["purge_change"], _runs(ids))
        else:
            freed = connection.rows(self._sql["purge_session"], {"key": key})
        connection.run(self._sql["purge_payloads"], {"ids": [row[0] for row in freed]})
        return len(ids)


def _runs(ids: Sequence[int]) -> Iterator[dict[str, int]]:
    """Yield increasing ids as runs without gaps."""
    first = previous = ids[0]
    for message_id in [*ids[1:], None]:
        if message_id != previous + 1:
            yield {"first": first, "count": previous - first + 1}
            first = message_id or 0
        previous = message_id or 0


_AS_NAMED = (
    *("id", "source", "model", "title", "parent", "reason", "started", "ended", "end_reason", "archived", "deleted"),
    *("preview", "imported", *PLACE),
)
"""Columns of a session that have the name of what they hold."""


def _bindings(session: SessionInfo) -> dict[str, Any]:
    named = {name: getattr(session, name) for name in _AS_NAMED}
    return {
        **named,
        **asdict(session.scope),
        **asdict(session.usage),
        "last_active": session.last_active or session.started,
    }


def _session(row: Sequence[Any]) -> SessionInfo:
    values = dict(zip(_COLUMNS, (*row[6:17], *row[23:]), strict=True))
    values["archived"] = bool(values["archived"])
    return SessionInfo(id=row[0], source=row[1], scope=Scope(*row[2:6]), usage=Usage(*row[17:23]), **values)


_COLUMNS = (
    *("started", "conversation", "title", "model", "parent", "reason", "ended", "end_reason", "archived"),
    *("message_count", "tool_call_count", "last_active", "preview", "deleted", *PLACE, "imported"),
)
"""Fields of a session in the order of its columns, without its id, source, scope and usage."""


class MessageRows:
    """Rows of the table `messages`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("transcript.messages")

    def append(
        self,
        session_id: str,
        messages: Sequence[Message],
        *,
        preview: str = "",
        staged: bool = False,
        compacts: int | None = None,
    ) -> list[int]:
        """Add all or none, in one durable step. Return their ids, increasing. `KeyError` when there is no such session.

        `preview` is kept when the session has none yet. `staged`: also to a session that is hidden as deleted, so that
        an import becomes visible as a whole. `compacts`: in the same step, visible messages up to this one are hidden
        as compacted.
        """
        rows = [stored_row(message) for message in messages]

        def work(connection: DatabaseConnection) -> list[int]:
            key = self._key(connection, session_id, deleted=staged)
            ids = self.append_in(connection, key, messages, rows, preview)
            if compacts is not None:
                self.hide_in(connection, key, 0, compacts, "", "compacted")
            return ids

        return self._db.write(work) if rows else []

    def append_in(
        self,
        connection: DatabaseConnection,
        key: int,
        messages: Sequence[Message],
        rows: Sequence[list[Any]],
        preview: str = "",
    ) -> list[int]:
        """Append to the session with this key, inside a transaction; `rows` are the `stored_row` of each message."""
        ids = [_insert(connection, self._sql["insert"], key, row) for row in rows]
        times = [message.timestamp for message in messages]
        totals = {
            "messages": sum(not message.hidden for message in messages),
            "calls": sum(len(message.tool_calls) for message in messages),
        }
        at = {"key": key, "first": ids[0], "oldest": min(times), "newest": max(times)}
        connection.run(self._sql["count_in"], {**totals, **at, "preview": preview})
        connection.run(self._sql["change"], {"first": ids[0], "count": len(ids)})
        return ids

    def of_session(
        self, session_id: str, *, hidden: bool, after: int | None = None, limit: int | None = None
    ) -> list[Message]:
        """Return messages in order; with `hidden`, hidden ones too; those after a message, at most so many."""
        return self._messages(
            "of_session",
            id=session_id,
            hidden=hidden,
            after=-1 if after is None else after,
            limit=-1 if limit is None else limit,
        )

    def by_ids(self, message_ids: Sequence[int]) -> dict[int, Message]:
        """Return these messages as far as they are there, hidden or not."""
        found = self._messages("by_ids", ids=list(message_ids))
        return {message.id: message for message in found}

    def around(self, message_id: int, window: int) -> list[Message]:
        """Return a message and up to `window` before and after it in its session, without rewound ones."""

        def work(connection: DatabaseConnection) -> list[Message]:
            found = connection.row(self._sql["session_of"], {"id": message_id})
            if found is None:
                return []
            at = {"key": found[0], "id": message_id}
            before = self._load(connection, "before", {**at, "limit": window})
            return before[::-1] + self._load(connection, "from", {**at, "limit": window + 1})

        return self._db.read(work, [])

    def edges(
        self, session_id: str, count: int, outside: tuple[int, int] | None, roles: Sequence[str]
    ) -> tuple[list[Message], list[Message]]:
        """Return the first and the last messages with text in these roles, outside the ids `outside`; not rewound."""
        first, last = outside or (_NEVER, -1)
        which = {"id": session_id, "count": count, "roles": list(roles)}

        def work(connection: DatabaseConnection) -> tuple[list[Message], list[Message]]:
            start = self._load(connection, "first_ones", {**which, "before": first})
            after = max(last, start[-1].id) if start and outside is None else last
            end = self._load(connection, "last_ones", {**which, "after": after})
            return start, end[::-1]

        nothing: tuple[list[Message], list[Message]] = ([], [])
        return self._db.read(work, nothing)

    def hide(self, session_id: str, first: int, last: int, old: Hidden, new: Hidden) -> int:
        """Give messages first … last of a session another flag, where they have the old one. Return how many."""

        def work(connection: DatabaseConnection) -> int:
            return self.hide_in(connection, self._key(connection, session_id), first, last, old, new)

        return self._db.write(work)

    def stats(self) -> TranscriptStats:
        def work(connection: DatabaseConnection) -> TranscriptStats:
            rows = {name: connection.rows(self._sql[name]) for name in _STATS}
            (totals,), (payloads,) = rows["totals"], rows["payload_totals"]
            return TranscriptStats(
                sessions=totals[0],
                conversations=totals[1],
                messages=totals[2],
                hidden_messages=rows["hidden_messages"][0][0],
                archived_sessions=totals[3],
                deleted_sessions=rows["waiting"][0][0],
                sources={source: (sessions, messages) for source, sessions, messages in rows["by_source"]},
                usage=Usage(*totals[4:10]),
                first=totals[10],
                last=totals[11],
                payloads=payloads[0],
                payload_bytes=payloads[1],
                payload_text_bytes=payloads[2],
                file_bytes=rows["file_bytes"][0][0],
            )

        return self._db.read(work, TranscriptStats())

    def largest(self, limit: int) -> tuple[int, dict[str, int]]:
        """Return bytes of text of all conversations, and of the largest ones."""
        size = self._sql["bytes"]
        measured = " + ".join(size.replace("{column}", f"m.{name}") for name in _TEXTS)
        rows = self._db.rows(self._sql["largest"].replace("{bytes}", measured), {"limit": limit})
        return int(rows[0][2]) if rows else 0, {row[0]: int(row[1]) for row in rows}

    def _key(self, connection: DatabaseConnection, session_id: str, *, deleted: bool = False) -> int:
        found = connection.row(self._sql["key"], {"id": session_id, "deleted": deleted})
        if found is None:
            raise KeyError(session_id)
        return int(found[0])

    def hide_in(self, connection: DatabaseConnection, key: int, first: int, last: int, old: Hidden, new: Hidden) -> int:
        """Give messages of the session with this key another flag, inside a transaction. Return how many."""
        bindings = {"key": key, "first": first, "last": last, "old": old, "new": new}
        changed = connection.run(self._sql["hide"], bindings)
        connection.run(self._sql["recount"], {"key": key})
        return changed

    def _messages(self, name: str, **bindings: Any) -> list[Message]:
        return self._db.read(lambda connection: self._load(connection, name, bindings), [])

    def _load(self, connection: DatabaseConnection, name: str, bindings: dict[str, Any]) -> list[Message]:
        rows = connection.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)
        text = texts(connection, [row[at] for row in rows for at in (4, 5, 6, 9, 10, 11, 16)])
        return [_message(row, text) for row in rows]


_TEXTS = ("content", "parts", "tool_calls", "reasoning")
_STATS = ("totals", "payload_totals", "hidden_messages", "waiting", "by_source", "file_bytes")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def stored_row(message: Message) -> list[Any]:
    """Return the columns after `session`, in order; large values are taken apart before the transaction."""
    content, parts = _content_cells(message.content)
    sent, sent_parts = _content_cells(message.sent)
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
        message.memory_version,
        message.tokens,
        message.finish_reason,
        message.hidden,
        cell(_json(message.extra)) if message.extra else None,
        None if message.outside is None else _json(spans_json(message.outside)),
    ]


def spans_json(spans: Iterable[OutsideSpan]) -> list[list[int | str]]:
    return [[span.start, span.end, span.origin.value] for span in spans]


def spans_of(value: str | None) -> tuple[OutsideSpan, ...] | None:
    """Return the spans of a stored JSON array; None where none were recorded."""
    if value is None:
        return None
    return tuple(OutsideSpan(start, end, Origin(origin)) for start, end, origin in parsed(value))


def _content_cells(content: Content) -> tuple[Cell, Cell]:
    return (cell(content), None) if content is None or isinstance(content, str) else (None, cell(_json(content)))


def _insert(connection: DatabaseConnection, sql: str, key: int, row: list[Any]) -> int:
    used: set[int] = set()
    if any(type(value) is list for value in row):
        row = [stored_value(connection, value, used) for value in row]
    message_id = connection.insert(sql, (key, *row))
    if used:
        connection.run_many(
            connection.queries("transcript.messages")["use"], [(one, message_id) for one in sorted(used)]
        )
    return message_id


def _message(row: Sequence[Any], text: Callable[[Stored], str | None]) -> Message:
    return Message(
        id=row[0],
        session_id=row[1],
        role=row[2],
        timestamp=row[3],
        content=text(row[4]) if row[5] is None else json.loads(text(row[5]) or ""),
        tool_calls=tuple(json.loads(calls)) if (calls := text(row[6])) else (),
        tool_call_id=row[7],
        tool_name=row[8],
        reasoning=text(row[9]),
        sent=text(row[10]) if row[11] is None else json.loads(text(row[11]) or ""),
        memory_version=row[12],
        tokens=row[13],
        finish_reason=row[14],
        hidden=row[15],
        extra=json.loads(extra) if (extra := text(row[16])) else {},
        outside=spans_of(row[17]),
    )


class ChangeFeed:
    """Messages of deleted sessions are still in the feed: they may come back, and are gone from it when purged."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("transcript.feed")

    def position(self) -> Position:
        """Return where the feed ends now."""
        return Position(*(self._db.row(self._sql["identity"]) or ("", "", 0)))

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        """Return the next changes after `seq`, at most `limit` of them."""
        rows = self._db.rows(self._sql["since"], {"seq": seq, "limit": limit})
        return [
            FeedChange(number, "purge" if gone else "append", tuple(range(first, first + count)))
            for number, gone, first, count in rows
        ]

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        """Return these messages as far as they still exist, large payloads included."""

        def work(connection: DatabaseConnection) -> list[Searchable]:
            bindings = {"ids": list(message_ids)}
            rows = connection.rows(self._sql["searchable"], bindings)
            whole = texts(connection, [value for row in rows for value in row[4:7]], base64=False)
            return [
                Searchable(row[0], row[1], row[2], row[3], _searchable([*map(whole, row[4:7]), row[7]])) for row in rows
            ]

        return self._db.read(work, [])

    def longer_than(self, characters: int) -> int:
        """Return how many messages have more text than this. Only those are read that have so many bytes."""
        large = [row[0] for row in self._db.rows(self._sql["large"], {"bytes": characters})]
        return sum(len(each.text) > characters for one in large for each in self.searchable([one]))

    def message_count(self) -> int:
        found = self._db.row(self._sql["message_count"])
        return int(found[0]) if found else 0


_SHOWN = ("following", "first_ones", "last_ones")


class TranscriptReader:
    """Reads only; it creates nothing where there is no database yet."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sessions = SessionRows(database)
        self._sql = database.queries("transcript.reader")
        self._counted: WeakKeyDictionary[DatabaseConnection, tuple[int, int]] = WeakKeyDictionary()
        self._asked = {name: f"{self._sql['shown']} {self._sql[name]}" for name in _SHOWN}

    def snapshot(self) -> AbstractContextManager[None]:
        """Return what is read in the block, by the thread that is in it, is of one moment."""
        return self._db.snapshot()

    def texts(self, message_ids: Sequence[int], at_most: int) -> dict[int, str]:
        """Return what is searchable of these messages, each cut to so many characters."""
        rows = self._stored("texts", message_ids, 1)
        return {row[0]: _searchable(row[1:], at_most) for row in rows}

    def turns(self, message_ids: Sequence[int], at_most: int = 0) -> Turns:
        """Return everything about these messages at once. `at_most`: characters of each text; 0 for none."""
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
        """Return the messages before and after each in its session, rewound ones passed over."""
        return {id_: (before, after) for id_, before, after in self._rows("neighbours", message_ids)}

    def surroundings(self, spots: Sequence[MessageSpot], window: int, ends: int) -> list[MessageSurroundings]:
        """For each message so many on either side of it, and so many at both ends of its conversation, in order.

        Rewound messages and deleted sessions are left out.
        """
        return self._db.read(
            lambda connection: [self._around(connection, spot, window, ends) for spot in spots],
            [MessageSurroundings() for _ in spots],
        )

    def members(self, conversations: Sequence[str]) -> dict[str, list[SessionInfo]]:
        """Return the sessions of each conversation that are not deleted, oldest first."""
        return {one: [] for one in conversations} | self._sessions.members(conversations)

    def newest(self, limit: int, admitted: Admitted | None = None) -> list[int]:
        """Return the messages that came last, newest first; with `admitted`, of those, in the sessions last active."""
        if admitted is None:
            return [row[0] for row in self._db.rows(self._sql["newest"], {"limit": limit})]
        return self._db.read(lambda connection: self._newest_of(connection, limit, admitted), [])

    def _newest_of(self, connection: DatabaseConnection, limit: int, admitted: Admitted) -> list[int]:
        """Return sessions are gone through from the one last active on, until they have enough messages. There are many
        of them, and few places they come from: those are chosen here, and the database does the rest.
        """
        kinds = [
            kind
            for kind in connection.rows(self._sql["kinds"])
            if admitted.wanted(kind[0], Scope(*kind[1:4]), bool(kind[4]))
        ]
        if not kinds:
            return []
        times = {"since": admitted.since, "before": admitted.before}
        asked = {**times, "kinds": kinds, "sessions": [*admitted.sessions], "any_session": not admitted.sessions}
        keys, messages = list[int](), 0
        for key, count in connection.stream(self._sql["of_kinds"], asked):
            keys.append(key)
            messages += count
            if messages >= limit:
                break
        of_these = {**times, "keys": keys, "roles": [*admitted.roles], "any_role": not admitted.roles, "limit": limit}
        return [row[0] for row in connection.rows(self._sql["newest_of"], of_these)]

    def sessions(self, session_ids: Sequence[str]) -> dict[str, SessionInfo]:
        return self._sessions.get(session_ids, deleted=True)

    def titled(
        self, words: Sequence[str], limit: int, *, exactly: bool = False
    ) -> list[tuple[SessionInfo, int | None]]:
        """Return sessions whose title contains all of these words (`exactly`: is one of them), last active first, each
        with its first message.
        """
        words = list(words) if exactly else [word.lower() for word in words]
        longest = max(words, key=len, default="")
        named = {"word": longest, "name": longest.replace("-", "").replace("_", "") or longest}
        if not words or not (exactly or self._db.rows(self._sql["any_titled"], named)):
            return []
        bindings = {"words": words, "limit": limit}
        first: dict[str, int | None] = dict(self._db.rows(self._sql["entitled" if exactly else "titled"], bindings))
        known = self._sessions.get(list(first)) if first else {}
        return [(known[id_], message) for id_, message in first.items() if id_ in known]

    def size(self) -> int:
        """Return how many sessions there are."""
        return self._db.read_one(self._count, 0)

    def _count(self, connection: DatabaseConnection) -> int:
        """Count sessions again only after something was written, as it visits all of them."""
        version = int(connection.rows(self._sql["version"])[0][0])
        counted = self._counted.get(connection)
        if counted is None or counted[0] != version:
            counted = self._counted[connection] = (version, int(connection.rows(self._sql["size"])[0][0]))
        return counted[1]

    def _around(self, connection: DatabaseConnection, spot: MessageSpot, window: int, ends: int) -> MessageSurroundings:
        """Four short statements take a third of the time of one for all messages, with its temporary tables. Where the
        window reaches an end of the session, there is nothing beyond it to ask for.
        """
        rows = connection.rows(self._sql["until"], (spot.message_id, window + 1))
        if not rows:
            return MessageSurroundings()
        key, here = rows[0][8:]
        messages = self._messages(connection, rows[::-1])
        messages += self._shown(connection, "following", (key, spot.message_id, window))
        start: list[ShownMessage] = []
        end: list[ShownMessage] = []
        if spot.first != here or len(rows) > window:
            first = key if spot.first == here else self._key(connection, spot.first)
            before = messages[0].id if spot.first == here else _NEVER
            start = self._shown(connection, "first_ones", (first, before, ends))
        if spot.last != here or len(messages) == len(rows) + window:
            last = key if spot.last == here else self._key(connection, spot.last)
            after = messages[-1].id if spot.last == here else -1
            end = self._shown(connection, "last_ones", (last, after, ends))
        return MessageSurroundings(messages, start, end[::-1])

    def _key(self, connection: DatabaseConnection, session_id: str) -> int | None:
        return next((row[0] for row in connection.rows(self._sql["key"], (session_id,))), None)

    def _shown(self, connection: DatabaseConnection, name: str, bindings: Sequence[Any]) -> list[ShownMessage]:
        return self._messages(connection, connection.rows(self._asked[name], bindings))

    def _messages(self, connection: DatabaseConnection, rows: Sequence[Any]) -> list[ShownMessage]:
        if _apart(rows, 3):
            whole = texts(connection, [value for row in rows for value in row[3:6]])
            rows = [(*row[:3], *map(whole, row[3:6]), *row[6:]) for row in rows]
        return [_shown(row) for row in rows]

    def _stored(self, name: str, ids: Sequence[int], first: int) -> list[Any]:
        """Return rows in which three columns from `first` on may refer to text that is kept elsewhere."""
        if not _apart(rows := self._rows(name, ids), first):
            return rows

        def work(connection: DatabaseConnection) -> list[Any]:
            rows = connection.rows(self._sql[name], {"ids": list(ids)})
            whole = texts(connection, _apart(rows, first), base64=False)
            return [(*row[:first], *map(whole, row[first : first + 3]), *row[first + 3 :]) for row in rows]

        return self._db.read(work, [])

    def _rows(self, name: str, ids: Sequence[int]) -> list[Any]:
        return self._db.rows(self._sql[name], {"ids": list(ids)})


def _apart(rows: Sequence[Any], first: int) -> list[bytes]:
    return [value for row in rows for value in row[first : first + 3] if isinstance(value, bytes)]


def _searchable(stored: Sequence[str | None], at_most: int | None = None) -> str:
    """Return the text for a search. Plain prose is taken as it is."""
    content, parts, calls, tool = stored
    if at_most is not None and content is not None and calls is None and tool is None and "\x1b" not in content:
        return content[:at_most]
    said = content if parts is None else json.loads(parts)
    return searchable_text(said, json.loads(calls) if calls else (), tool)[:at_most]


def _shown(row: Sequence[Any]) -> ShownMessage:
    id_, role, timestamp, content, parts, calls, call_id, tool_name = row[:8]
    if parts is None and not calls:
        return ShownMessage(id_, role, timestamp, content, (), call_id, tool_name)
    said = content if parts is None else json.loads(parts)
    return ShownMessage(id_, role, timestamp, said, tuple(json.loads(calls)) if calls else (), call_id, tool_name)


LARGE = 16 * 1024
"""Text longer than this leaves the row."""
LONG_RUN = 2048
"""A run of base64 longer than this leaves the row, whatever is around it."""
_RUN = re.compile(rf"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{{LONG_RUN},}}+={{0,2}}")


class Payload(NamedTuple):
    """A large text, ready to be stored."""

    hash: bytes
    size: int
    kind: str
    codec: str
    data: bytes


Cell: TypeAlias = str | list[str | Payload] | None
"""Value for a column: text, pieces, or nothing."""
Stored: TypeAlias = str | bytes | None
"""Stored value of a column."""


def cell(text: str | None) -> Cell:
    """Take apart a value that is large, or that SQL could not hold as text."""
    if text is None or (len(text) < LONG_RUN and not _unfit(text)):
        return text
    pieces: list[str | Payload] = []
    end = 0
    for run in _RUN.finditer(text):
        pieces += _plain(text[end : run.start()])
        pieces.append(payload(run[0], "base64"))
        end = run.end()
    if not end and len(text) <= LARGE and not _unfit(text):
        return text
    return pieces + _plain(text[end:])


def _unfit(text: str) -> bool:
    """Return whether a column cannot hold this as text."""
    return "\0" in text or text.startswith(Blob.MARK)


def payload(text: str, kind: str = "text") -> Payload:
    import zstandard

    raw = text.encode()
    packed = zstandard.compress(raw, 3)
    codec, data = ("zstd", packed) if len(packed) < len(raw) else ("plain", raw)
    return Payload(sha256(raw).digest(), len(raw), kind, codec, data)


def payload_id(connection: DatabaseConnection, new: Payload) -> int:
    """Store a payload unless the same text is stored already; return its id."""
    sql = connection.queries("transcript.messages")
    found = connection.row(sql["find_payload"], (new.hash,))
    if found:
        return int(found[0])
    return connection.insert(sql["add_payload"], (new.hash, new.size, new.kind, new.codec, new.data))


def stored_value(connection: DatabaseConnection, value: Cell, used: set[int]) -> Stored:
    """Return the value as its column takes it; ids of payloads it needs are added to `used`."""
    if not isinstance(value, list):
        return value
    pieces = [piece if isinstance(piece, str) else payload_id(connection, piece) for piece in value]
    used.update(piece for piece in pieces if isinstance(piece, int))
    return Blob(json.dumps(pieces, ensure_ascii=False).encode())


def texts(
    connection: DatabaseConnection, values: Sequence[Stored], *, base64: bool = True
) -> Callable[[Stored], str | None]:
    """Fetch what these column values refer to. Return a function that gives the whole text of any of them.

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


def _fetch(connection: DatabaseConnection, ids: Sequence[int], base64: bool) -> Iterator[tuple[int, str]]:
    if not ids:
        return
    sql = connection.queries("transcript.messages")["payloads" if base64 else "payloads_of_prose"]
    for payload_id, codec, data, digest in connection.rows(sql, {"ids": list(ids)}):
        text = unpack(codec, data)
        if digest is not None and sha256(text.encode()).digest() != digest:
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


def _lower(text: str) -> str:
    """Return the text as SQL's lower() does: only ASCII letters change."""
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)
