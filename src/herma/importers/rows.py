"""Write imported sessions and messages, a few thousand in one transaction, and remember what was imported."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

from herma.errors import UsageError
from herma.importers.base import ImportedSession, mapping
from herma.store.database import Database, DatabaseConnection
from herma.transcript.log import base_of, next_title
from herma.transcript.messages import preview_of
from herma.transcript.rows import MessageRows, SessionRows, payload, stored_row, texts
from herma.types import Message, SessionInfo, Usage

if TYPE_CHECKING:
    from herma.app import Herma


class ImportBatch(NamedTuple):
    """One import, as the log shows it."""

    id: int
    at: float
    source: str
    sessions: int
    messages: int
    undone: float | None = None


class FileState(NamedTuple):
    """The position up to which a file was imported."""

    size: int
    modified: int
    position: int
    lines: int
    mark: bytes


class NewMessage(NamedTuple):
    """A message that may be new: the ids that it has in the other program, and the one that it answers."""

    message: Message
    keys: Sequence[int]
    after: int | None = None
    rewinds: bool = False
    edition: int | None = None
    """Its text, for programs that rewrite messages: a new edition replaces the earlier one."""


@dataclass
class Step:
    """The rows that one transaction writes."""

    facts: dict[str, ImportedSession] = field(default_factory=dict)
    """Known facts of every session here, by our id."""
    messages: dict[str, list[NewMessage]] = field(default_factory=dict)
    usage: dict[str, list[tuple[int, Usage]]] = field(default_factory=dict)
    totals: dict[str, Usage] = field(default_factory=dict)
    """Costs of whole sessions so far."""
    files: list[tuple[str, str, FileState]] = field(default_factory=list)
    """Path, source and state of each file that is finished with this step."""
    count: int = 0


class Written(NamedTuple):
    """The rows that a step added, and its sessions that are skipped because a person deleted them here."""

    sessions: tuple[str, ...] = ()
    messages: int = 0
    known: int = 0
    deleted: tuple[str, ...] = ()


def key_of(text: str) -> int:
    """Return the 64-bit number under which an id of the other program is kept."""
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)


def _keys_of(given: Sequence[NewMessage]) -> list[int]:
    return [key for new in given for key in (*new.keys, new.after, new.edition) if key is not None]


def _is_new(new: NewMessage, known: Container[int]) -> bool:
    """Return whether a message, or this edition of it, is not among what is known."""
    return not any(key in known for key in new.keys) if new.edition is None else new.edition not in known


def undo_import(app: Herma, number: int) -> int:
    """Hide what an import added. → how many sessions. They can be brought back as long as deleted ones can."""
    rows = ImportRows(app.db)
    batch = rows.batch(number)
    if batch is None:
        raise UsageError(f"There is no import {number}.", hint="`herma log` lists them.")
    sessions = rows.undo(number, app.clock(), batch.source.split(", "))
    if sessions:
        app.transcripts.delete(sessions, whole=False)
    return len(sessions)


class ImportRows:
    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("importers.rows")
        self._titles = database.queries("transcript.sessions")["titles"]
        self._sessions = SessionRows(database)
        self._messages = MessageRows(database)

    # ── batches ──

    def begin(self, at: float, source: str) -> int:
        return self._db.insert(self._sql["begin"], {"at": at, "source": source})

    def record(self, at: float, source: str, sessions: Sequence[str], messages: int) -> int:
        """Keep sessions that were imported in another way as a batch. → its number."""

        def work(connection: DatabaseConnection) -> int:
            batch = connection.insert(self._sql["begin"], {"at": at, "source": source})
            connection.run_many(
                self._sql["remember_session"], [{"id": session, "import": batch} for session in sessions]
            )
            connection.run(self._sql["count"], {"id": batch, "sessions": len(sessions), "messages": messages})
            return batch

        return self._db.write(work)

    def forget_empty(self, batch: int) -> None:
        """Remove a batch that added nothing."""
        self._db.run(self._sql["forget_empty"], {"id": batch})

    def batches(self, limit: int) -> list[ImportBatch]:
        """Newest first."""
        return [ImportBatch(*row) for row in self._db.rows(self._sql["list"], {"limit": limit})]

    def batch(self, number: int) -> ImportBatch | None:
        found = self._db.row(self._sql["get"], {"id": number})
        return ImportBatch(*found) if found else None

    def undo(self, batch: int, at: float, sources: Iterable[str]) -> list[str]:
        """Hide what a batch added; a later import adds it again. → the sessions that it had created."""

        def work(connection: DatabaseConnection) -> list[str]:
            if not connection.run(self._sql["undo"], {"id": batch, "at": at}):
                return []
            for session, first, last in connection.rows(self._sql["parts_of"], {"import": batch}):
                if first < 0:  # what the import took back
                    self._messages.hide_in(connection, session, -first, -last, "rewound", "")
                else:
                    self._messages.hide_in(connection, session, first, last, "", "rewound")
                    connection.run(self._sql["drop_keys"], {"session": session, "first": first, "last": last})
                connection.run(self._sql["drop_part"], {"import": batch, "first": first})
            connection.run(self._sql["forget_files"], {"sources": list(sources)})
            return [row[0] for row in connection.rows(self._sql["sessions_of"], {"import": batch})]

        return self._db.write(work)

    def undone_sessions(self) -> set[str]:
        """The sessions of imports that were undone."""
        return {row[0] for row in self._db.rows(self._sql["undone_sessions"])}

    # ── files ──

    def file(self, path: str, source: str) -> FileState | None:
        found = self._db.row(self._sql["file"], {"path": path, "source": source})
        return FileState(*found) if found else None

    def calls(self, session: str) -> dict[str, str]:
        """Return the names of the newest tools that a session called, by call."""

        def work(connection: DatabaseConnection) -> dict[str, str]:
            rows = connection.rows(self._sql["calls"], {"id": session})
            text = texts(connection, [row[0] for row in rows])
            made = [call for row in reversed(rows) for call in json.loads(text(row[0]) or "[]")]
            return {call.get("id", ""): mapping(call.get("function")).get("name", "") for call in map(mapping, made)}

        nothing: dict[str, str] = {}
        return self._db.read(work, nothing)

    # ── steps ──

    def plan(self, step: Step, sessions: Sequence[SessionInfo]) -> Written:
        """Tell what a step would add, and write nothing."""
        return self._db.read(
            lambda connection: self._run(connection, step, sessions, None),
            Written(
                tuple(step.messages.keys() | step.usage.keys() | step.totals.keys()),
                sum(self._count(None, 0, given) for given in step.messages.values()),
            ),
        )

    def write(self, step: Step, sessions: Sequence[SessionInfo], batch: int) -> Written:
        """Write a step in one transaction."""
        rows = {session: [stored_row(new.message) for new in messages] for session, messages in step.messages.items()}

        def work(connection: DatabaseConnection) -> Written:
            written = self._run(connection, step, sessions, (batch, rows))
            totals = {"id": batch, "sessions": len(written.sessions), "messages": written.messages}
            connection.run(self._sql["count"], totals)
            for path, source, state in step.files:
                connection.run(self._sql["file_done"], {"path": path, "source": source, **state._asdict()})
            return written

        return self._db.write(work)

    def _run(
        self,
        connection: DatabaseConnection,
        step: Step,
        sessions: Sequence[SessionInfo],
        writing: tuple[int, dict[str, list[list[object]]]] | None,
    ) -> Written:
        created: list[str] = []
        deleted: list[str] = []
        messages = known = 0
        for info in sessions:
            session = info.id
            key, is_deleted, imported, undone = connection.rows(self._sql["session"], {"id": session})[0]
            if imported and not undone and (key is None or is_deleted):
                deleted.append(session)
                continue
            given = step.messages.get(session, [])
            if (key is None or is_deleted) and not (given or session in step.usage or session in step.totals):
                continue  # nothing was said yet
            if key is None or is_deleted:
                created.append(session)
            if writing is None:
                fresh = self._count(connection, key, given)
                messages, known = messages + fresh, known + len(given) - fresh
                continue
            batch, rows = writing
            key = self._ready(
                connection, key, info, batch, (bool(is_deleted), bool(imported)), step.facts[session].prompt
            )
            added = self._add(connection, key, given, rows.get(session, []), batch)
            self._spend(connection, key, session, step.usage.get(session, ()))
            if session in step.totals:
                connection.run(self._sql["set_usage"], {"key": key, **asdict(step.totals[session])})
            self._describe(connection, key, info, generated=step.facts[session].generated, fresh=bool(is_deleted))
            messages, known = messages + added, known + len(given) - added
        return Written(tuple(created), messages, known, tuple(deleted))

    def _count(self, connection: DatabaseConnection | None, key: int | None, given: Sequence[NewMessage]) -> int:
        """Return how many messages are new."""
        seen: dict[int, int] = self._known(connection, key, _keys_of(given)) if connection and key else {}
        fresh = 0
        for new in given:
            if _is_new(new, seen):
                fresh += 1
                seen.update(dict.fromkeys((*new.keys, new.edition or 0), 0))
        return fresh

    def _describe(
        self, connection: DatabaseConnection, key: int, info: SessionInfo, *, generated: bool, fresh: bool
    ) -> None:
        """Complete what is known of a session. A title that another session has gets the next number; one that was
        imported is replaced by a newer one that a person gave; one that was given or taken away here stays so.
        """
        about = {"model": info.model, "folder": info.folder, "branch": info.branch}
        connection.run(self._sql["describe"], {"key": key, **about})
        title, (before,) = info.title, connection.rows(self._sql["title"], {"key": key})[0]
        if title is None or (before and (generated or base_of(before) == base_of(title))):
            return
        mark = key_of(f"title {title}")
        ours = self._known(connection, key, [key_of(f"title {before}"), mark])
        if (before and not ours) or (mark in ours and not fresh):
            return
        scope = {"profile": info.scope.profile, "user": info.scope.user}
        taken = [row[0] for row in connection.rows(self._titles, {"base": base_of(title), **scope})]
        title = next_title(title, taken) if title in taken else title
        connection.run(self._sql["rename"], {"key": key, "title": title})
        marks = {mark, key_of(f"title {title}")}
        connection.run_many(self._sql["add_key"], [(key, one, 0) for one in marks])

    def _ready(
        self,
        connection: DatabaseConnection,
        key: int | None,
        info: SessionInfo,
        batch: int,
        state: tuple[bool, bool],
        prompt: str,
    ) -> int:
        """Return the key of a session, which is created, or brought back after its import was undone."""
        is_deleted, imported = state
        if key is not None and not is_deleted and imported:
            return key
        connection.run(self._sql["remember_session"], {"id": info.id, "import": batch})
        if key is None:
            self._sessions.insert_in(connection, replace(info, title=None), payload(prompt) if prompt else None)
            return int(connection.rows(self._sql["session"], {"id": info.id})[0][0])
        if is_deleted:
            connection.run(self._sql["bring_back"], {"key": key})
        return key

    def _known(self, connection: DatabaseConnection, session: int, keys: Sequence[int]) -> dict[int, int]:
        bindings = {"session": session, "keys": list(keys)}
        return dict(connection.rows(self._sql["known_keys"], bindings)) if keys else {}

    def _add(
        self,
        connection: DatabaseConnection,
        session: int,
        given: Sequence[NewMessage],
        rows: Sequence[list[object]],
        batch: int,
    ) -> int:
        """Append what is not known, and take back what a later message goes back behind or takes the place of."""
        known = self._known(connection, session, _keys_of(given))
        fresh: list[int] = []
        places: dict[int, int] = {}  # of keys in this step: the place in `fresh`
        hidden: set[int] = set()
        moved: list[tuple[int, int]] = []
        for number, new in enumerate(given):
            if not _is_new(new, known) or not _is_new(new, places):
                continue
            for key in new.keys:  # an earlier edition
                if key in places:
                    hidden.add(places[key])
                elif key in known:
                    self._hide(connection, session, batch, known[key], known[key])
                    moved.append((len(fresh), key))
            if new.after in places or known.get(new.after or 0):
                later = [
                    place for place in range(places.get(new.after or 0, -1) + 1, len(fresh)) if place not in hidden
                ]
                if new.rewinds or any(given[fresh[place]].message.role == "user" for place in later):
                    hidden.update(later)
                if new.after not in places:
                    behind = {"session": session, "message": known[new.after or 0], "rewinds": new.rewinds}
                    if (last := connection.rows(self._sql["asked_again"], behind)) and last[0][0]:
                        self._hide(connection, session, batch, behind["message"] + 1, last[0][0])
            places |= dict.fromkeys((*new.keys, *([new.edition] if new.edition else [])), len(fresh))
            fresh.append(number)
        if not fresh:
            return 0
        messages = [given[number].message for number in fresh]
        chosen = [list(rows[number]) for number in fresh]
        for place in hidden:
            messages[place] = replace(messages[place], hidden="rewound")
            chosen[place] = stored_row(messages[place])
        ids = self._messages.append_in(connection, session, messages, chosen, preview_of(messages))
        part = {"import": batch, "session": session, "first": ids[0], "last": ids[-1]}
        connection.run(self._sql["add_part"], part)
        connection.run_many(self._sql["add_key"], [(session, key, ids[place]) for key, place in places.items()])
        connection.run_many(self._sql["move_key"], [(ids[place], session, key) for place, key in moved])
        return len(fresh)

    def _hide(self, connection: DatabaseConnection, session: int, batch: int, first: int, last: int) -> None:
        """Take back messages, and note each run of them, so that undoing the import shows them again."""
        ids = [
            row[0] for row in connection.rows(self._sql["shown"], {"session": session, "first": first, "last": last})
        ]
        starts = [one for number, one in enumerate(ids) if not number or ids[number - 1] != one - 1]
        ends = [one for number, one in enumerate(ids) if number + 1 == len(ids) or ids[number + 1] != one + 1]
        for begin, end in zip(starts, ends, strict=True):
            part = {"import": batch, "session": session, "first": -begin, "last": -end}
            connection.run(self._sql["add_part"], part)
        self._messages.hide_in(connection, session, first, last, "", "rewound")

    def _spend(
        self, connection: DatabaseConnection, key: int, session: str, usage: Iterable[tuple[int, Usage]]
    ) -> None:
        calls = dict(usage)
        for known in self._known(connection, key, list(calls)):
            del calls[known]
        if calls:
            self._sessions.spend_in(connection, session, sum(calls.values(), Usage()))
            connection.run_many(self._sql["add_key"], [(key, call, 0) for call in calls])
