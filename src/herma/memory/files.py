"""MEMORY.md and USER.md on disk, and their history, metadata and inbox in `herma.db`.

The file is what people edit and the model is shown; the row makes every change undoable. To change both in one step,
under the lock: make the new text durable in a temporary file, commit the intent (a row with the text after), rename.
The next process that takes the lock settles: the file holds the text after (the change is done), or the temporary file
is still there (it never happened), or a person edited the file since (which becomes a row of its own).
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import threading
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from functools import lru_cache
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from herma.errors import StoreBusy, StoreChanged, StoreError, UsageError
from herma.memory.archive import follow_change, follow_void, standing_undos
from herma.memory.entries import MemoryDocument, NewChange, Place, hash_of, parse, unique, used
from herma.prompt.assemble import placeholder, render_block, within
from herma.safety.scan import scan
from herma.store.database import Database, DatabaseConnection, parsed
from herma.store.files import (
    discard,
    exclusive,
    flags,
    install,
    make_folder,
    prepare,
    replace_file,
    temporary_of,
    unfinished,
)
from herma.types import (
    Add,
    Author,
    Block,
    Change,
    Entry,
    MemoryOp,
    Origin,
    Pending,
    Remove,
    Replace,
    Scope,
    Snapshot,
    Target,
    Who,
)

if TYPE_CHECKING:
    from herma.app import Herma

FILES = {"memory": "MEMORY.md", "user": "USER.md"}


KEY_FILE = ".key"
"""Beside the document of a project or a user: its full key, because two keys can have the same folder name."""


@lru_cache(maxsize=256)
def path_of(home: Path, place: Place, *, digits: int = 8) -> Path:
    """`memories/MEMORY.md`, `memories/projects/<folder>/MEMORY.md`, `memories/users/<folder>/USER.md`."""
    folder = home / "memories"
    if place.project:
        folder = folder / "projects" / folder_name(place.project, digits)
    elif place.user:
        folder = folder / "users" / folder_name(place.user, digits)
    return folder / FILES[place.target]


def folder_name(key: str, digits: int = 8) -> str:
    """Return a readable name for any key (a path, an address, any script), with hex digits of its hash."""
    last = re.split(r"[/\\]", key.rstrip("/\\"))[-1]
    plain = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].rstrip("-")
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return f"{slug}-{digest}" if slug else digest


class LastChange(NamedTuple):
    """The newest change of a document, as settling needs it."""

    id: int
    before_hash: str
    after_hash: str
    after_text: str
    open: bool


class MemoryRows:
    """The history of documents, and the metadata of entries."""

    def __init__(self, database: Database) -> None:
        self.db = database
        self._sql = database.queries("memory.files")

    def last(self, place: Place) -> LastChange | None:
        row = self.db.row(self._sql["last_change"], place.key)
        return None if row is None else LastChange(row[0], row[1], row[2], row[3], row[4] == "open")

    def intend(
        self, place: Place, change: NewChange, at: float, before_hash: str, after: str, *, done: bool = False
    ) -> int:
        """Make a change durable in the history before (for a hand edit: after) its text is in the file. → its id."""
        bindings = self._bound(place, change, at, before_hash, after, "done" if done else "open")
        return self.db.write(lambda connection: self._insert(connection, place, change, bindings))

    def swap(self, place: Place, change: NewChange, at: float, version: str, after: str) -> int:
        """Make the change if the document is still at `version`, else raise `StoreChanged`. → its id."""
        bindings = self._bound(place, change, at, version, after, "done")

        def work(connection: DatabaseConnection) -> int:
            last = connection.row(self._sql["last_change"], place.key)
            if (last[2] if last else "") != version:
                raise StoreChanged(
                    f"{FILES[place.target]} was changed by another program at this very moment; nothing was written.",
                    hint="Try again.",
                )
            return self._insert(connection, place, change, bindings)

        return self.db.write(work)

    def _bound(
        self, place: Place, change: NewChange, at: float, before_hash: str, after: str, state: str
    ) -> dict[str, Any]:
        return {
            **place.key,
            **author_columns(change.author),
            "at": at,
            "action": change.action,
            "reason": change.reason,
            "undoes": change.undoes,
            "before_hash": before_hash,
            "after_hash": hash_of(after),
            "after_text": after,
            "state": state,
        }

    def _insert(
        self, connection: DatabaseConnection, place: Place, change: NewChange, bindings: Mapping[str, Any]
    ) -> int:
        change_id = connection.insert(self._sql["insert_change"], bindings)
        self._upsert(connection, place, list((change.notes or {}).values()), change_id)
        undo = change.undoes is not None
        follow_change(connection, place, change_id, bindings["at"], bindings["after_text"], change.moved, undo=undo)
        return change_id

    def settle_void(self, change_id: int) -> None:
        def work(connection: DatabaseConnection) -> None:
            connection.run(self._sql["settle_void"], {"id": change_id})
            connection.run(self._sql["forget_void"], {"id": change_id})
            follow_void(connection, change_id)

        self.db.write(work)

    def changes(self, place: Place | None = None, *, limit: int | None = None) -> list[Change]:
        """Return the changes of one document, or of all, newest first."""
        name, key = ("all_changes", {}) if place is None else ("changes_of", place.key)
        return self._changes(self.db.rows(self._sql[name], {**key, "limit": -1 if limit is None else limit}))

    def change(self, change_id: int) -> Change | None:
        found = self._changes([(change_id,)])
        return found[0] if found else None

    def keys(self, kind: Literal["project", "user"]) -> list[str]:
        """Return every project or user whose memory was ever changed, the oldest first."""
        return [str(key) for (key,) in self.db.rows(self._sql[f"{kind}_keys"])]

    def text_at(self, place: Place, version: str) -> str | None:
        """Return the text whose version begins like this, if the document ever had it."""
        row = self.db.row(self._sql["text_at"], {**place.key, "version": version}) if version else None
        return None if row is None else str(row[0])

    def notes(self, place: Place, texts: Sequence[str]) -> dict[str, Entry]:
        """Return what is known about these entries; unknown ones are left out."""
        by_hash = {hash_of(text): text for text in texts}
        rows = self.db.rows(self._sql["notes"], {**place.key, "hashes": list(by_hash)})
        return {by_hash[row[0]]: _entry(by_hash[row[0]], row) for row in rows}

    def annotate(self, place: Place, entries: Sequence[Entry]) -> None:
        """Store what is known about entries, replacing what was known."""
        self.db.write(lambda c: self._upsert(c, place, entries, None))

    def _changes(self, ids: Sequence[tuple[Any, ...]]) -> list[Change]:
        rows = self.db.rows(self._sql["changes"], {"ids": [id_ for (id_,) in ids]}) if ids else []
        undone_by = standing_undos(self.db) if rows else {}
        return [_change(row, undone_by) for row in rows]

    def _upsert(
        self, connection: DatabaseConnection, place: Place, entries: Sequence[Entry], change_id: int | None
    ) -> None:
        for entry in entries:
            bindings = {
                **place.key,
                "hash": hash_of(entry.text),
                "category": entry.category,
                "tags": json.dumps(entry.tags),
                "origin": entry.origin,
                "vouched": entry.vouched,
                "created": entry.created,
                "changed": entry.changed,
                "confirmed": entry.confirmed,
                "change": change_id if entry.change is None else entry.change,
            }
            connection.run(self._sql["upsert_note"], bindings)


def author_columns(author: Author) -> dict[str, Any]:
    """Return the columns that every table uses for an author."""
    return {"who": author.who, "origin": author.origin, "session": author.session, "message": author.message}


def _entry(text: str, row: Sequence[Any]) -> Entry:
    _, category, tags, origin, vouched, created, changed, confirmed, change_id, by = row
    return Entry(
        text=text,
        category=category,
        tags=tuple(parsed(tags)),
        origin=Origin(origin) if origin else None,
        vouched=bool(vouched),
        created=created,
        changed=changed,
        confirmed=confirmed,
        change=change_id,
        by=Who(by) if by else None,
    )


def _change(row: Sequence[Any], undone_by: Mapping[int, int]) -> Change:
    id_, at, profile, project, user, target, who, origin, session, message, action, reason, undoes, after, before = row
    scope, author = Scope(profile, project, user), Author(Who(who), Origin(origin), session, message)
    return Change(id_, at, scope, target, author, action, before, after, reason, undoes, undone_by.get(id_))


_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_LOCK_PAUSE = 0.02
_MOST_BYTES = 64 * 2**20
"""A larger file is not memory; it is not read at all."""


class MemoryFiles:
    """The documents of one home on disk."""

    def __init__(
        self,
        home: Path,
        rows: MemoryRows,
        *,
        lock_timeout: float = 10.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._home = home
        self._rows = rows
        self._lock_timeout = lock_timeout
        self._clock = clock
        self._held: dict[Place, tuple[Path, bool]] = {}
        self._installed: dict[Place, tuple[object, ...]] = {}
        """The files as we left them, so that settling need not read the history."""
        self._mutexes: dict[Place, threading.Lock] = {}

    def where(self, place: Place) -> str:
        """Return the path of a document."""
        return str(self._path(place))

    def read(self, place: Place) -> MemoryDocument:
        """Read a document without a lock. A missing or unreadable file is described, not raised."""
        return read_document(self._path(place))

    def stamp(self, place: Place) -> object:
        """Return a value that changes whenever the document may have, with one stat; None if that is unknown."""
        try:
            status = os.stat(self._path(place))  # noqa: PTH116  every turn asks
        except FileNotFoundError:
            return "missing"
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    @contextmanager
    def hold(self, place: Place) -> Iterator[MemoryDocument]:
        """Hold a document exclusively, with earlier writes settled, hand edits recorded, and the text read again.

        Raise `StoreBusy` after the deadline.
        """
        path = self._path(place)
        if key := place.project or place.user:
            path = self._claimed(place, path, key)
        path = _where_it_lies(path)
        lock = path.with_name(path.name + ".lock")
        if not lock.exists():  # nothing is made in a home whose database is not ours
            self._rows.db.refuse_foreign()
            _make_folder(path.parent)
        with self._one_thread(place, lock), exclusive(lock, self._lock_timeout) as alone:
            document = self._settle(place, path, alone=alone)
            self._held[place] = (path, alone)
            try:
                yield document
            finally:
                del self._held[place]

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        """Replace the text if it is still at `version` (else `StoreChanged`), durably. → the id of the change."""
        if place not in self._held:
            raise UsageError("A curated document must be held while it is changed.")
        path, alone = self._held[place]
        data = text.encode()
        temporary = prepare(path, data, alone=alone)
        try:
            change_id = self._rows.intend(place, change, self._clock(), version, text)
            if read_document(path).version != version:  # as late as possible: editors take no lock
                self._rows.settle_void(change_id)
                discard(temporary)
                raise StoreChanged(
                    f"{path} was changed by another program at this very moment; nothing was written.",
                    hint="Try again.",
                )
            install(temporary, path, data)
            self._installed[place] = (hash_of(text), _marks(path), self._rows.db.identity())
        except BaseException:
            with suppress(StoreError):  # else the next holder of the lock does it
                self._settle_open(place, path, alone=alone)
            raise
        return change_id

    def back_up(self, place: Place, document: MemoryDocument) -> str:
        """Keep a copy of the document. → its name."""
        path = _where_it_lies(self._path(place))
        data = document.raw if document.raw is not None else document.text.encode()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(self._clock()))
        try:
            for earlier in path.parent.glob(f"{escape(path.name)}.bak.*"):
                if earlier.stat().st_size == len(data) and earlier.read_bytes() == data:
                    return str(earlier)
            for number in range(1000):
                backup = path.with_name(f"{path.name}.bak.{stamp}" + (f".{number}" if number else ""))
                if not backup.exists():
                    replace_file(backup, data)
                    return str(backup)
        except OSError as exc:
            raise StoreError(f"{path} could not be backed up: {exc.strerror}.") from exc
        raise StoreError(f"Too many backups of {path} within one second.", hint="Try again.")

    # ── folders of projects and users ──

    def _path(self, place: Place) -> Path:
        """Return the file of a place. Its folder has a short name, or the whole hash if another key has that name."""
        path = path_of(self._home, place)
        key = place.project or place.user
        if not key or self._owner(path.parent, place) in (None, key):
            return path
        return path_of(self._home, place, digits=64)

    def _owner(self, folder: Path, place: Place) -> str | None:
        """Return the key of a folder: the stored one, else that of the first writer; None if there was none."""
        try:
            return (folder / KEY_FILE).read_bytes().decode("utf-8", "surrogateescape")
        except FileNotFoundError:
            pass
        except OSError as exc:
            raise StoreError(
                f"{folder / KEY_FILE} cannot be read: {exc.strerror}.", hint="Check its permissions."
            ) from exc
        if not folder.is_dir():
            return None
        keys = self._rows.keys("project" if place.project else "user")
        return next((key for key in keys if folder_name(key) == folder.name), None)

    def _claimed(self, place: Place, path: Path, key: str) -> Path:
        """Store the key in a folder without one. → the file of the place, in another folder if that has another key."""
        if (path.parent / KEY_FILE).exists():
            return path
        self._rows.db.refuse_foreign()
        _make_folder(path.parent)
        with exclusive(path.with_name(f"{KEY_FILE}.lock"), self._lock_timeout):
            if self._owner(path.parent, place) in (None, key):
                replace_file(path.parent / KEY_FILE, key.encode("utf-8", "surrogateescape"))
                return path
        return self._claimed(place, self._path(place), key)

    @contextmanager
    def _one_thread(self, place: Place, lock: Path) -> Iterator[None]:
        """Threads of this process take turns, also where the file system has no locks."""
        mutex = self._mutexes.setdefault(place, threading.Lock())
        if not mutex.acquire(timeout=self._lock_timeout):
            raise StoreBusy(
                f"Another thread has held {lock} for more than {self._lock_timeout:g} seconds.", hint="Try again."
            )
        try:
            yield
        finally:
            mutex.release()

    # ── settling ──

    def _settle(self, place: Place, path: Path, *, alone: bool) -> MemoryDocument:
        """Bring the history into line with the file."""
        self._settle_open(place, path, alone=alone)
        document = read_document(path)
        if document.trouble or self._installed.get(place) == (document.version, _marks(path), self._rows.db.identity()):
            return document
        last = self._rows.last(place)
        if last is None:
            return self._record_hand_edit(place, "", "", document, "found") if document.text else document
        if document.version == last.after_hash:
            return document
        if not document.text and not last.after_text:
            return document  # missing and empty are the same to us
        return self._record_hand_edit(place, last.after_hash, last.after_text, document, "edited by hand")

    def _settle_open(self, place: Place, path: Path, *, alone: bool) -> None:
        """Finish or void a change whose temporary file is still there: it was not acknowledged."""
        temporary = temporary_of(path, alone=alone)
        meant = unfinished(temporary)
        if meant is None:
            return
        last = self._rows.last(place)
        if last and last.open and meant == last.after_text.encode() and last.after_hash != read_document(path).version:
            if _is_torn(path, last, meant):
                install(temporary, path, meant)
                return
            self._rows.settle_void(last.id)
        discard(temporary)

    def _record_hand_edit(
        self, place: Place, before_hash: str, before: str, document: MemoryDocument, action: str
    ) -> MemoryDocument:
        self._rows.intend(place, NewChange(_HAND, action), self._clock(), before_hash, document.text, done=True)
        return replace(document, edited_from=before)


class MemoryDocuments(MemoryFiles):
    """The documents of a tenant on a server: the newest row of the history is the document.

    A change is compared and written in one transaction, so that no host overwrites what another has just written.
    """

    def where(self, place: Place) -> str:
        folder = path_of(Path("memories"), place).relative_to("memories")
        return f"{self._rows.db.shown}/{folder}"

    def read(self, place: Place) -> MemoryDocument:
        last = self._rows.last(place)
        return MemoryDocument(last.after_text, last.after_hash) if last else MemoryDocument("", "")

    def stamp(self, place: Place) -> object:
        last = self._rows.last(place)
        return last.id if last else 0

    @contextmanager
    def hold(self, place: Place) -> Iterator[MemoryDocument]:
        deadline = time.monotonic() + self._lock_timeout
        name = json.dumps(["document", *place.key.values()])
        while True:
            with self._rows.db.lock(name) as free:
                if free:
                    yield self.read(place)
                    return
            if time.monotonic() > deadline:
                raise StoreBusy(f"Another process has held {self.where(place)} for too long.", hint="Try again.")
            time.sleep(_LOCK_PAUSE)

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        return self._rows.swap(place, change, self._clock(), version, text)

    def back_up(self, place: Place, document: MemoryDocument) -> str:  # noqa: ARG002  the history has it
        return f"the history of {self.where(place)}"


def write_documents(database: Database, home: Path) -> None:
    """Write the documents of a tenant to a home, or another folder, that has none yet."""
    history = MemoryRows(database)
    for target, *scope in database.rows("SELECT DISTINCT target, profile, project, user FROM curated_changes"):
        place = Place(target, *scope)
        if not (last := history.last(place)) or not last.after_text:
            continue
        path = path_of(home, place)
        if key := place.project or place.user:
            if (path.parent / KEY_FILE).exists():  # of another key with that name
                path = path_of(home, place, digits=64)
            _make_folder(path.parent)
            replace_file(path.parent / KEY_FILE, key.encode("utf-8", "surrogateescape"))
        _make_folder(path.parent)
        replace_file(path, last.after_text.encode())


def documents_of(app: Herma) -> MemoryFiles:
    """Return the documents of a home: files, or rows on a server."""
    kind = MemoryDocuments if app.settings.store.url else MemoryFiles
    return kind(app.home, MemoryRows(app.db), lock_timeout=app.settings.memory.lock_timeout, clock=app.clock)


def read_document(path: Path) -> MemoryDocument:
    """Read a file once, whole; a problem is described, not raised."""
    try:
        raw = _read_regular(path)
    except FileNotFoundError:
        return MemoryDocument("", "")
    except _Unusable as exc:
        return MemoryDocument("", "", trouble=f"{path} {exc}")
    except OSError as exc:
        reason = "permission denied" if exc.errno in (errno.EACCES, errno.EPERM) else exc.strerror or str(exc)
        return MemoryDocument("", "", trouble=f"{path} cannot be read: {reason}")
    version = sha256(raw).hexdigest()
    try:
        return MemoryDocument(raw.decode("utf-8"), version)
    except UnicodeDecodeError as exc:
        return MemoryDocument("", version, trouble=f"{path} is not UTF-8 text (byte {exc.start})", raw=raw)


class _Unusable(Exception):
    """The path exists, but is not a file that could be memory."""


def _read_regular(path: Path) -> bytes:
    """Return the bytes of an ordinary file. A pipe or a device could block forever."""
    handle = os.open(path, flags("O_RDONLY", "O_NONBLOCK"))
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise _Unusable("is a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise _Unusable("is not an ordinary file")
        if status.st_size > _MOST_BYTES:
            raise _Unusable(f"has {status.st_size:,} bytes; a memory file may have {_MOST_BYTES:,}")
        parts = [os.read(handle, status.st_size + 1)]
        while parts[-1]:
            parts.append(os.read(handle, 2**20))
        return b"".join(parts)
    finally:
        os.close(handle)


def _where_it_lies(path: Path) -> Path:
    """Return the target of a link: the link survives, and homes that share the file share the lock."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _marks(path: Path) -> tuple[int, ...] | None:
    """Return a value that changes when another program writes or replaces the file."""
    try:
        status = os.stat(path)  # noqa: PTH116  at every write
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _is_torn(path: Path, last: LastChange, meant: bytes) -> bool:
    """Return whether an overwrite in place was cut off: the file is the beginning of what was meant."""
    document = read_document(path)
    found = document.raw if document.raw is not None else document.text.encode()
    unread = document.trouble and document.raw is None
    return not unread and document.version not in ("", last.before_hash) and meant.startswith(found)


def _make_folder(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be created: {exc.strerror}.",
            hint="Check the permissions of the home, or choose another with --home.",
        ) from exc


_KINDS: dict[str, type[Add | Replace | Remove]] = {"add": Add, "replace": Replace, "remove": Remove}


class InboxRows:
    """Proposals that wait for a person, and decided ones."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("memory.files")

    def put(self, pending: Pending) -> Pending:
        """Store a proposal; return an identical one that is waiting, or that a person rejected, instead."""
        operations = _encode(pending.operations)
        place = Place.of(pending.target, pending.scope).key
        fingerprint = sha256(json.dumps([*place.values(), operations]).encode()).hexdigest()
        bindings = {
            **place,
            **author_columns(pending.author),
            "at": pending.at,
            "expires": pending.expires,
            "reason": pending.reason,
            "operations": operations,
            "fingerprint": fingerprint,
        }

        def work(connection: DatabaseConnection) -> Pending:
            known = {"fingerprint": fingerprint, "now": pending.at}
            for same in connection.rows(self._sql["same_proposal"], known):
                return _pending(same)
            return replace(pending, id=connection.insert(self._sql["insert_pending"], bindings))

        return self._db.write(work)

    def list(self, now: float) -> Sequence[Pending]:
        """Return the proposals that wait and have not expired, oldest first."""
        return [_pending(row) for row in self._db.rows(self._sql["waiting"], {"now": now, "id": None})]

    def rejected(self, scope: Scope, target: Target) -> Sequence[Pending]:
        """Return the newest proposals that a person rejected for this user, in any project."""
        place = {"profile": scope.profile, "user": scope.user, "target": target}
        return [_pending(row) for row in self._db.rows(self._sql["rejected"], place)]

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        """Record a decision. → whether the proposal was still waiting."""

        def work(connection: DatabaseConnection) -> bool:
            waiting = connection.rows(self._sql["waiting"], {"now": now, "id": pending_id})
            if waiting:
                connection.run(self._sql["decide"], {"decision": decision, "now": now, "id": pending_id})
            return bool(waiting)

        return self._db.write(work)


def _encode(operations: Sequence[MemoryOp]) -> str:
    """Encode operations. Newer fields are left out if empty, so that an older proposal stays the same proposal."""
    listed = [{"action": type(op).__name__.lower(), **asdict(op)} for op in operations]
    compact = [{k: value for k, value in one.items() if value or k not in ("kept", "reworded")} for one in listed]
    return json.dumps(compact, ensure_ascii=False)


def _decode(text: str) -> tuple[MemoryOp, ...]:
    operations: list[MemoryOp] = []
    for fields in parsed(text):
        kind = _KINDS[fields.pop("action")]
        if "tags" in fields:
            fields["tags"] = tuple(fields["tags"])
        operations.append(kind(**fields))
    return tuple(operations)


def _pending(row: Sequence[Any]) -> Pending:
    id_, at, expires, profile, project, user, target, who, origin, session, message, reason, operations, decision = row
    scope, author = Scope(profile, project, user), Author(Who(who), Origin(origin), session, message)
    return Pending(id_, at, expires, scope, target, author, _decode(operations), reason, decision)


# ── memory in a running session ──────────────────────────────────────────────────────────────────────────────────────
#
# The prompt of a session is frozen, so a change by anybody is announced in the next user message, once. Noticing one
# costs a stat per file and turn; a file is read only when that differs.

_SHORT = 16
"""Hex digits of a version that are stored: enough to distinguish the texts of one document."""


class _Known:
    """One document as the model knows it."""

    def __init__(self, text: str, version: str, stamp: object) -> None:
        self.text = text
        self.version = version
        self.stamp = stamp
        self.prompt: str | None = None
        """The text in a prompt that is newer than `text`, until an update has covered it."""


class Presenter:
    """Turn documents into blocks of the prompt. A document that cannot be shown becomes a warning for people."""

    def __init__(self, documents: MemoryFiles, history: MemoryRows, limits: Mapping[Target, int]) -> None:
        self._documents = documents
        self._history = history
        self._limits = limits

    def snapshot(self, shown: Sequence[tuple[Place, MemoryDocument]]) -> Snapshot:
        """Return the blocks of these documents, in order."""
        blocks: list[Block] = []
        warnings: list[str] = []
        for place, document in shown:
            where = self._documents.where(place)
            if document.trouble:
                warnings.append(f"{document.trouble}; the session starts without it.")
            entries = unique(parse(document.text))
            limit = self._limits[place.target]
            if used(entries) > limit:
                warnings.append(f"{where} is over its limit of {limit:,} characters; only its beginning is shown.")
            entries = self._presentable(place, entries, warnings)
            if text := render_block(place.target, place.scope, entries, limit):
                blocks.append(Block(place.target, where, text))
        return Snapshot(tuple(blocks), tuple(warnings))

    def entries(self, place: Place, text: str) -> list[str]:
        """Return the entries of a text, as a block would show them."""
        entries = self._presentable(place, unique(parse(text)), [])
        return within(entries, self._limits[place.target])[0] if entries else []

    def _presentable(self, place: Place, entries: list[str], warnings: list[str]) -> list[str]:
        """Replace entries that the scanner objects to by a placeholder, unless a person trusts them.

        What is beyond the limit is not shown, so it is not scanned: a file may be of any length.
        """
        limit, where = self._limits[place.target], self._documents.where(place)
        name = where.replace("\\", "/").rsplit("/", 1)[-1]
        shown: list[str] = []
        withheld = size = 0
        for text in entries:
            if size > limit:
                break
            findings = scan(text[:limit])
            if findings and not self._vouched(place, text, warnings):
                withheld += 1
                shown.append(placeholder(name, findings))
            else:
                shown.append(text)
            size += len(shown[-1])
        if withheld:
            warnings.append(f"{withheld} of {len(entries)} entries in {where} are withheld by the scanner.")
        return [*shown, *entries[len(shown) :]]

    def _vouched(self, place: Place, text: str, warnings: list[str]) -> bool:
        """Return whether a person trusts this text; False if that cannot be read."""
        try:
            known = self._history.notes(place, [text])
        except StoreError as exc:
            warning = f"{exc} Entries that the scanner objects to are withheld."
            if warning not in warnings:
                warnings.append(warning)
            return False
        return text in known and known[text].vouched


class LiveMemory:
    """The documents that one session sees, and what the model knows of each."""

    def __init__(
        self,
        places: Sequence[Place],
        documents: MemoryFiles,
        history: MemoryRows,
        presenter: Presenter,
        *,
        settle: Callable[[Place], None],
        archived: Callable[[Place, Collection[str]], set[str]],
    ) -> None:
        """`archived` returns the entries that only moved to the archive: they hold as before and are not announced."""
        self._documents = documents
        self._history = history
        self._presenter = presenter
        self._settle = settle
        self._archived = archived
        self._known: dict[Place, _Known] = {}
        found = []
        for place in places:
            stamp = documents.stamp(place)  # before reading: a change in between is noticed later, not lost
            document = documents.read(place)
            found.append((place, document))
            self._known[place] = _Known(document.text, document.version, stamp)
        self.snapshot: Snapshot = presenter.snapshot(found)

    @property
    def memory_version(self) -> str:
        """Return what the model knows now, as a reference for `recall`: the version of each document."""
        return json.dumps({_key_of(place): known.version[:_SHORT] for place, known in self._known.items()})

    def ensure_recorded(self) -> None:
        """Make sure that the history has the texts that `memory_version` refers to."""
        for place, known in self._known.items():
            if known.text:
                self._record(place)

    def recall(self, memory_version: str, *, prompt: str = "") -> None:
        """Go back to what the model knew: the next update is the difference to the files.

        `prompt` is the version of a prompt that is newer than the message: the update covers what it shows, too.
        """
        versions, shown = _versions(memory_version), _versions(prompt)
        for place, known in self._known.items():
            version = versions.get(_key_of(place), "")
            also = shown.get(_key_of(place), version)
            known.prompt = None if also == version else self._history.text_at(place, also) or ""
            known.stamp = known.stamp if known.prompt is None else None
            if version != known.version[:_SHORT]:
                known.text = self._history.text_at(place, version) or ""
                known.version = version
                known.stamp = None

    def update(self) -> str:
        """Return what the model does not know yet, as text for it, or "". From now on it counts as known."""
        said = [lines for place, known in self._known.items() if (lines := self._changes(place, known))]
        return "\n\n".join(said)

    def _changes(self, place: Place, known: _Known) -> str:
        stamp = self._documents.stamp(place)
        if stamp is not None and stamp == known.stamp:
            return ""
        document = self._documents.read(place)
        if document.trouble:
            return ""  # announced when it can be read again
        known.stamp = stamp
        same = document.version[: len(known.version)] == known.version and document.text == known.text
        if same and known.prompt is None:
            return ""
        self._record(place)
        before, after = (self._presenter.entries(place, text) for text in (known.text, document.text))
        shown = before if known.prompt is None else self._presenter.entries(place, known.prompt)
        known.text, known.version, known.prompt = document.text, document.version, None
        gone = [entry for entry in dict.fromkeys([*before, *shown]) if entry not in after]
        new = [entry for entry in after if entry not in before or entry not in shown]
        if gone:
            moved = self._archived(place, gone)
            gone = [entry for entry in gone if entry not in moved]
        if not gone and not new:
            return ""
        title = {"memory": "MEMORY", "project": "PROJECT MEMORY", "user": "USER PROFILE"}[_key_of(place)]
        lines = [*(f"- (no longer) {entry}" for entry in gone), *(f"+ {entry}" for entry in new)]
        return "\n".join([f"{title}:", *(line.replace("\n", "\n  ") for line in lines)])

    def _record(self, place: Place) -> None:
        try:
            self._settle(place)
        except StoreError:
            return  # a home that cannot be written has nothing to record; the session goes on


def with_prompt(memory_version: str, prompt: str, *, announced: bool) -> str:
    """Add the version that the session's prompt shows, unless it is certain to be the same."""
    known, shown = _versions(memory_version), _versions(prompt)
    return json.dumps({**known, "prompt": shown} if announced or known != shown else known)


def shown_by_prompt(memory_version: str, *, announced: bool) -> str:
    """Return the version of memory that a session's prompt shows, by that of its first message.

    Earlier releases did not record it: there it is that of the message, unless the message `announced` a change.
    """
    try:
        value = json.loads(memory_version)
    except (ValueError, RecursionError):
        return "{}"
    if isinstance(value, dict) and "prompt" in value:
        return json.dumps(value["prompt"])
    return "{}" if announced else memory_version


def _versions(memory_version: str) -> dict[str, str]:
    """Parse a memory version. An imported message may have any text here; then the model knows nothing."""
    try:
        versions = json.loads(memory_version)
    except (ValueError, RecursionError):
        return {}
    named = versions.items() if isinstance(versions, dict) else ()
    return {name: version for name, version in named if isinstance(version, str) and version.isascii()}


def _key_of(place: Place) -> str:
    return "project" if place.project else place.target
