"""Documents on disk and their rows: read, swap, settle."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import apsw

from herma.errors import StoreBusy, StoreChanged, StoreError, UsageError
from herma.memory.archive import follow_change, follow_void
from herma.memory.entries import Document, NewChange, Place
from herma.store.database import Database, insert_returning_id, parsed, queries, refuse_foreign
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
from herma.types import Add, Author, Change, Entry, MemoryOp, Origin, Pending, Remove, Replace, Scope, Who

# ---------- store.places
#
# Where each curated document lies under the home.

FILES = {"memory": "MEMORY.md", "user": "USER.md"}


@lru_cache(maxsize=256)
def path_of(home: Path, place: Place) -> Path:
    """`memories/MEMORY.md`, `memories/projects/<folder>/MEMORY.md`, `memories/users/<folder>/USER.md`."""
    folder = home / "memories"
    if place.project:
        folder = folder / "projects" / folder_name(place.project)
    elif place.user:
        folder = folder / "users" / folder_name(place.user)
    return folder / FILES[place.target]


def folder_name(key: str) -> str:
    """A readable name for any key (a path, an address, any script), unique by 8 hex digits of its hash."""
    last = re.split(r"[/\\]", key.rstrip("/\\"))[-1]
    plain = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].rstrip("-")
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest


# ---------- store.sqlite.curated
#
# Rows about curated memory in `herma.db`: history, what is known about entries, and the inbox.

_PLACE = ("profile", "project", "user", "target")


@dataclass(frozen=True, slots=True)
class LastChange:
    """The newest change of a document, as far as settling needs it."""

    id: int
    before_hash: str
    after_hash: str
    after_text: str
    open: bool


class CuratedRows:
    """History and notes.

    Implements `CuratedHistory`; `intend` and `settle_…` are for the adapter that writes the files.
    """

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("curated")

    # ── writing ──

    def identity(self) -> object:
        """Which database this is: another file may get the same name."""
        return self._db.identity()

    def refuse_foreign(self) -> None:
        """Raise when the database is not one of ours, before anything is made beside it."""
        refuse_foreign(self._db.path)

    def last(self, place: Place) -> LastChange | None:
        for change_id, before_hash, after_hash, after, state in self._db.rows(self._sql["last_change"], _key(place)):
            return LastChange(change_id, before_hash, after_hash, after, state == "open")
        return None

    def intend(
        self, place: Place, change: NewChange, at: float, before_hash: str, after: str, *, done: bool = False
    ) -> int:
        """Make a change durable in the history before (or, for a hand edit, after) its text is in the file.

        → its id.
        """

        bindings = {
            **_key(place),
            **author_columns(change.author),
            "at": at,
            "action": change.action,
            "reason": change.reason,
            "undoes": change.undoes,
            "before_hash": before_hash,
            "after_hash": hash_of(after),
            "after_text": after,
            "state": "done" if done else "open",
        }

        def work(connection: apsw.Connection) -> int:
            change_id = insert_returning_id(connection, self._sql["insert_change"], bindings)
            self._upsert(connection, place, list((change.notes or {}).values()), change_id)
            follow_change(connection, place, change_id, at, after, change.moved, undo=change.undoes is not None)
            return change_id

        return self._db.write(work)

    def settle_void(self, change_id: int) -> None:
        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["settle_void"], {"id": change_id})
            connection.execute(self._sql["forget_void"], {"id": change_id})
            follow_void(connection, change_id)

        self._db.write(work)

    # ── reading ──

    def changes(self, place: Place | None = None, *, limit: int | None = None) -> list[Change]:
        how_many = {"limit": -1 if limit is None else limit}
        if place is None:
            return self._changes(self._db.rows(self._sql["all_changes"], how_many))
        return self._changes(self._db.rows(self._sql["changes_of"], {**_key(place), **how_many}))

    def change(self, change_id: int) -> Change | None:
        found = self._changes([(change_id,)])
        return found[0] if found else None

    def text_at(self, place: Place, version: str) -> str | None:
        for (text,) in self._db.rows(self._sql["text_at"], {**_key(place), "version": version}) if version else ():
            return str(text)
        return None

    def notes(self, place: Place, texts: Sequence[str]) -> dict[str, Entry]:
        by_hash = {hash_of(text): text for text in texts}
        rows = self._db.rows(self._sql["notes"], {**_key(place), "hashes": json.dumps(list(by_hash))})
        return {by_hash[row[0]]: _entry(by_hash[row[0]], row) for row in rows}

    def annotate(self, place: Place, entries: Sequence[Entry]) -> None:
        self._db.write(lambda c: self._upsert(c, place, entries, None))

    def _changes(self, ids: Sequence[tuple[Any, ...]]) -> list[Change]:
        rows = self._db.rows(self._sql["changes"], {"ids": json.dumps([id_ for (id_,) in ids])}) if ids else []
        undone_by = _undone(self._db.rows(self._sql["undos"])) if rows else {}
        return [_change(row, undone_by) for row in rows]

    def _upsert(
        self, connection: apsw.Connection, place: Place, entries: Sequence[Entry], change_id: int | None
    ) -> None:
        for entry in entries:
            bindings = {
                **_key(place),
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
            connection.execute(self._sql["upsert_note"], bindings)


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def author_columns(author: Author) -> dict[str, Any]:
    """An author as the columns that every table uses for one."""
    return {"who": author.who, "origin": author.origin, "session": author.session, "message": author.message}


def _key(place: Place) -> dict[str, str]:
    return {name: getattr(place, name) for name in _PLACE}


def _entry(text: str, row: Sequence[Any]) -> Entry:
    _, category, tags, origin, vouched, created, changed, confirmed, change_id = row
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
    )


def _undone(undos: Sequence[tuple[Any, ...]]) -> dict[int, int]:
    """Change → the undo that took it back, as far as that undo still stands.

    An undo is always newer than what it undoes.
    """
    standing: dict[int, int] = {}
    for change_id, undo_id in reversed(undos):
        if undo_id not in standing:
            standing.setdefault(change_id, undo_id)
    return standing


def _change(row: Sequence[Any], undone_by: Mapping[int, int]) -> Change:
    (id_, at, profile, project, user, target, who, origin, session, message) = row[:10]
    action, reason, undoes, after, before = row[10:]
    return Change(
        id=id_,
        at=at,
        scope=Scope(profile, project, user),
        target=target,
        author=Author(Who(who), Origin(origin), session, message),
        action=action,
        before=before,
        after=after,
        reason=reason,
        undoes=undoes,
        undone_by=undone_by.get(id_),
    )


# ---------- store.files
#
# Curated memory as files under the home, with their history in `herma.db`.
#
# The file is what people edit and the model is shown; the row is what makes every change undoable. To change both in
# one step, under the lock: make the new text durable in a temporary file, commit the intent (a row with the text
# after), rename. Whoever takes the lock next settles: the file holds the text after (the change is done), or the
# temporary file is still there (it never happened), or a person edited the file since (which becomes a row of its own).

_HAND = Author(Who.HAND_EDIT, Origin.USER_SAID)
_MOST_BYTES = 64 * 2**20
"""A larger file is not memory; it is not read at all."""


class CuratedFiles:
    """Implements `CuratedDocuments`."""

    def __init__(
        self,
        home: Path,
        rows: CuratedRows,
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
        """What we put where, so that the history need not be asked whether the file is as we left it."""
        self._mutexes: dict[Place, threading.Lock] = {}

    def where(self, place: Place) -> str:
        return str(path_of(self._home, place))

    def read(self, place: Place) -> Document:
        return read_document(path_of(self._home, place))

    def stamp(self, place: Place) -> object:
        try:
            status = os.stat(path_of(self._home, place))  # noqa: PTH116  every turn asks
        except FileNotFoundError:
            return "missing"
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    @contextmanager
    def hold(self, place: Place) -> Iterator[Document]:
        path = _where_it_lies(path_of(self._home, place))
        lock = path.with_name(path.name + ".lock")
        if not lock.exists():  # nothing is made in a home whose database is not ours
            self._rows.refuse_foreign()
            _make_folder(path.parent)
        with self._one_thread(place, lock), exclusive(lock, self._lock_timeout) as alone:
            document = self._settle(place, path, alone=alone)
            self._held[place] = (path, alone)
            try:
                yield document
            finally:
                del self._held[place]

    def swap(self, place: Place, version: str, text: str, change: NewChange) -> int:
        if place not in self._held:
            raise UsageError("A curated document must be held while it is changed.")
        path, alone = self._held[place]
        data = text.encode()
        temporary = prepare(path, data, alone=alone)
        try:
            change_id = self._rows.intend(place, change, self._clock(), version, text)
            if read_document(path).version != version:  # looked at as late as can be: editors take no lock
                self._rows.settle_void(change_id)
                discard(temporary)
                raise StoreChanged(
                    f"{path} was changed by another program at this very moment; nothing was written.",
                    hint="Try again.",
                )
            install(temporary, path, data)
            self._installed[place] = (hash_of(text), _marks(path), self._rows.identity())
        except BaseException:
            with suppress(StoreError):  # else whoever takes the lock next does it
                self._settle_open(place, path, alone=alone)
            raise
        return change_id

    def back_up(self, place: Place, document: Document) -> str:
        path = _where_it_lies(path_of(self._home, place))
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

    def _settle(self, place: Place, path: Path, *, alone: bool) -> Document:
        """Bring the history into line with the file."""
        self._settle_open(place, path, alone=alone)
        document = read_document(path)
        if document.trouble or self._installed.get(place) == (document.version, _marks(path), self._rows.identity()):
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
        """Finish or void a change whose temporary file is still there: nobody was told that it succeeded."""
        temporary = temporary_of(path, alone=alone)
        meant = unfinished(temporary)
        if meant is None:
            return
        last = self._rows.last(place)
        if last and last.open and meant == last.after_text.encode() and last.after_hash != _version(path):
            if _is_torn(path, last, meant):
                install(temporary, path, meant)
                return
            self._rows.settle_void(last.id)
        discard(temporary)

    def _record_hand_edit(
        self, place: Place, before_hash: str, before: str, document: Document, action: str
    ) -> Document:
        self._rows.intend(place, NewChange(_HAND, action), self._clock(), before_hash, document.text, done=True)
        return replace(document, edited_from=before)


def read_document(path: Path) -> Document:
    """Read a file once, whole; a problem is described, not raised."""
    try:
        raw = _read_regular(path)
    except FileNotFoundError:
        return Document("", "")
    except _Unusable as exc:
        return Document("", "", trouble=f"{path} {exc}")
    except OSError as exc:
        reason = "permission denied" if exc.errno in (errno.EACCES, errno.EPERM) else exc.strerror or str(exc)
        return Document("", "", trouble=f"{path} cannot be read: {reason}")
    version = sha256(raw).hexdigest()
    try:
        return Document(raw.decode("utf-8"), version)
    except UnicodeDecodeError as exc:
        return Document("", version, trouble=f"{path} is not UTF-8 text (byte {exc.start})", raw=raw)


class _Unusable(Exception):
    """What is at the path is there, but no file that could be memory."""


def _read_regular(path: Path) -> bytes:
    """The bytes of an ordinary file. A pipe or a device could keep us waiting for ever."""
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
    """A linked file is locked and replaced at its target: the link survives, homes that share it share the lock."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _marks(path: Path) -> tuple[int, ...] | None:
    """What no other program leaves as it was when it writes the file, or puts another in its place."""
    try:
        status = os.stat(path)  # noqa: PTH116  at every write
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _version(path: Path) -> str:
    return read_document(path).version


def _is_torn(path: Path, last: LastChange, meant: bytes) -> bool:
    """An overwrite in place (see `atomic`) that was cut off: the file is the beginning of what was meant."""
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


# ---------- store.sqlite.inbox
#
# The inbox in `herma.db`: staged writes that wait for a person.

_KINDS: dict[str, type[Add | Replace | Remove]] = {"add": Add, "replace": Replace, "remove": Remove}


class SqliteInbox:
    """Implements `Inbox`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("curated")

    def put(self, pending: Pending) -> Pending:
        operations = _encode(pending.operations)
        scope = pending.scope
        place = {"profile": scope.profile, "project": scope.project, "user": scope.user, "target": pending.target}
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

        def work(connection: apsw.Connection) -> Pending:
            known = {"fingerprint": fingerprint, "now": pending.at}
            for same in connection.execute(self._sql["same_proposal"], known).fetchall():
                return _pending(same)
            return replace(pending, id=insert_returning_id(connection, self._sql["insert_pending"], bindings))

        return self._db.write(work)

    def list(self, now: float) -> Sequence[Pending]:
        return [_pending(row) for row in self._db.rows(self._sql["waiting"], {"now": now, "id": None})]

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        def work(connection: apsw.Connection) -> bool:
            waiting = connection.execute(self._sql["waiting"], {"now": now, "id": pending_id}).fetchall()
            if waiting:
                connection.execute(self._sql["decide"], {"decision": decision, "now": now, "id": pending_id})
            return bool(waiting)

        return self._db.write(work)


def _encode(operations: Sequence[MemoryOp]) -> str:
    return json.dumps([{"action": type(op).__name__.lower(), **_fields(op)} for op in operations], ensure_ascii=False)


def _fields(op: MemoryOp) -> dict[str, Any]:
    """What is not said is left out, so that a proposal from before it could be said is still the same proposal."""
    return {name: value for name, value in asdict(op).items() if value or name not in ("kept", "reworded")}


def _decode(text: str) -> tuple[MemoryOp, ...]:
    operations: list[MemoryOp] = []
    for fields in parsed(text):
        kind = _KINDS[fields.pop("action")]
        if "tags" in fields:
            fields["tags"] = tuple(fields["tags"])
        operations.append(kind(**fields))
    return tuple(operations)


def _pending(row: Sequence[Any]) -> Pending:
    (
        id_,
        at,
        expires,
        profile,
        project,
        user,
        target,
        who,
        origin,
        session,
        message,
        reason,
        operations,
        decision,
    ) = row
    return Pending(
        id=id_,
        at=at,
        expires=expires,
        scope=Scope(profile, project, user),
        target=target,
        author=Author(Who(who), Origin(origin), session, message),
        operations=_decode(operations),
        reason=reason,
        decision=decision,
    )
