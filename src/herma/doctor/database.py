"""Examining herma.db and index.db."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeAlias

from herma.config import Settings
from herma.errors import StoreError
from herma.index.file import SqliteIndexFiles
from herma.index.types import IndexUnusable
from herma.index.vectors import SqliteVectors
from herma.store import database as journal
from herma.store.checkup import Examination, examine, sqlite_version
from herma.store.database import VERSION, real_path

# ---------- doctor.check
#
# What a look at one thing comes to.

State: TypeAlias = Literal["ok", "note", "warning", "problem"]
REPAIR = "herma doctor --repair"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at, what was found in one sentence, and what to type next where that helps."""

    name: str
    state: State
    sentence: str
    next: str = ""


def size(count: float) -> str:
    """1,234,567 → 1.2 MB."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} bytes" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def counted(number: int, one: str, many: str = "") -> str:
    """`1 file`, `2 files`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some(items: list[str], at_most: int = 3) -> str:
    """The first few of a list, and how many more there are."""
    rest = len(items) - at_most
    return "; ".join(items[:at_most]) + (f"; and {rest} more" if rest > 0 else "")


# ---------- doctor.vectors
#
# `index.db.vectors`: whole, in step with `herma.db`, and does its embedder answer?

_NAME = "index.db.vectors"
_EMBED = "herma index embed"


def check_embedder(settings: Settings) -> Iterator[Check]:
    """Nothing is said where none was asked for, and nobody is asked: what fails when asked is in the file."""
    from herma.models.embedder import make_embedder

    choice = make_embedder(settings.embedding, home=settings.home)
    if choice.embedder is None and choice.wanted:
        yield Check("embedder", "warning", f"{choice.reason}; words alone are searched.", "herma models list")


def embedder_name(settings: Settings) -> str:
    """What is set up here, by the name that its vectors have; empty where there is nothing."""
    from herma.models.embedder import make_embedder

    chosen = make_embedder(settings.embedding, home=settings.home).embedder
    return chosen.name if chosen is not None else ""


def check_vectors(home: Path, found: Examination, now: float, embedder: str) -> Iterator[Check]:
    """Nothing is said where nothing was ever embedded: search is good without. Only what the embedder that is set up
    here has not read yet is something to do.
    """
    store = SqliteVectors(home)
    if not store.path.exists():
        return
    try:
        file = store.file()
    except IndexUnusable:
        yield Check(_NAME, "note", "It is damaged; vectors are made again in the background.", _EMBED)
        return
    except StoreError as exc:
        yield Check(_NAME, "note", str(exc))
        return
    finally:
        store.close()
    if (file.noticed.store_id, file.noticed.epoch) != (found.store_id, found.epoch):
        yield Check(_NAME, "note", "It belongs to another state of herma.db; vectors are compared anew.", _EMBED)
        return
    for model in file.models:
        if model.name == embedder:
            left = max(0, file.appended - model.reach.walked)
            rest = f"{counted(left, 'message')} to be embedded" if left else "up to date"
            what = f"{model.vectors:,} vectors by {model.name}, {rest}, {size(file.size)} in all."
            yield Check(_NAME, "note" if left else "ok", what, _EMBED if left else "")
        else:
            what = f"{model.vectors:,} vectors by {model.name}, which is not set up here; unused ones go by themselves."
            yield Check(_NAME, "ok", what)
    if embedder and file.models and all(model.name != embedder for model in file.models):
        wait = f"{counted(file.appended, 'message')} to be embedded"
        yield Check(_NAME, "note", f"None are by {embedder} yet: {wait}; words are searched meanwhile.", _EMBED)
    if file.trouble.message:
        until = datetime.fromtimestamp(file.trouble.retry_at).astimezone().strftime("%H:%M:%S")
        rest = f"it is left alone until {until}" if file.trouble.retry_at > now else "it is asked again when needed"
        times = f"{file.trouble.failures} times in a row" if file.trouble.failures > 1 else "once"
        sentence = (
            f"{file.trouble.model} failed {times} ({file.trouble.message}); {rest}. Words are searched meanwhile."
        )
        yield Check("embedder", "warning", sentence, _EMBED)


# ---------- doctor.database
#
# `herma.db` and `index.db`: whole, ours, and in step with each other?

_LARGE_LOG = 64 * 2**20
_SOON = 3 * 86400


def check_database(home: Path, *, now: float, full: bool, busy_timeout: float, embedder: str = "") -> Iterator[Check]:
    path = home / "herma.db"
    found = examine(path, now=now, full=full, busy_timeout=busy_timeout)
    match found.state:
        case "missing" | "empty":
            yield Check("herma.db", "note", "There is no database yet; the first write makes it.")
        case "damaged":
            yield Check("herma.db", "problem", f"It is damaged: {found.why}. Do not delete it.", REPAIR)
        case "foreign":
            sentence = "The file of this name is not a Herma database; it is left as it is."
            yield Check(
                "herma.db", "problem", sentence, f"mv {shlex.quote(str(path))} elsewhere, or use another --home"
            )
        case "newer":
            sentence = "It was written by a newer Herma; it is left as it is."
            yield Check("herma.db", "problem", sentence, "pip install --upgrade herma")
        case "unreadable":
            yield Check("herma.db", "problem", f"It cannot be read: {found.why}", f"ls -l {shlex.quote(str(path))}")
        case "ours":
            yield from _content(found, full)
            yield from _journal(path, found)
            yield from _index(home, found)
            yield from check_vectors(home, found, now, embedder)
            yield from _inbox(found, now)


def needs_salvage(found: Examination) -> bool:
    """Whether rows have to be brought over into a new file."""
    if found.state == "damaged":
        return True
    lacking = [line for line in found.schema if "not ours" not in line]
    return found.state == "ours" and bool(found.trouble or found.orphans or found.payloads or found.feed or lacking)


def _content(found: Examination, full: bool) -> Iterator[Check]:
    if found.trouble:
        sentence = f"It is damaged: {some([line.splitlines()[-1] for line in found.trouble])}. Do not delete it."
        yield Check("herma.db", "problem", sentence, REPAIR)
    else:
        what = f"{counted(found.sessions, 'session')}, {counted(found.messages, 'message')}"
        yield Check("herma.db", "ok", f"{what}; the integrity check found nothing.")
    if found.without_log:
        sentence = "Its newest changes are in a log that cannot be read in a read-only folder; they were not checked."
        yield Check("log", "warning", sentence)
    if found.orphans:
        yield Check("references", "problem", f"Rows refer to others that are not there: {some(found.orphans)}.", REPAIR)
    if found.version < VERSION:
        sentence = f"Format {found.version}; the next write brings it to {VERSION}."
        yield Check("format", "note", sentence)
    lacking = [line for line in found.schema if "not ours" not in line]
    if lacking:
        yield Check("schema", "problem", f"{some(lacking)}.", REPAIR)
    elif found.schema:
        yield Check("schema", "warning", f"Somebody added to it: {some(found.schema)}.")
    if found.feed:
        yield Check("change feed", "problem", f"It has gaps: {some(found.feed)}.", REPAIR)
    if found.payloads:
        yield Check("stored texts", "problem", f"{some(found.payloads)}.", REPAIR)
    elif found.payloads_seen:
        which = "all" if full else "the newest"
        more = "" if full else "herma doctor --full"
        yield Check("stored texts", "ok", f"{found.payloads_seen} checked ({which}), none has changed.", more)
    if found.lost_parents or found.cycles:
        lost = counted(found.lost_parents, "session names", "sessions name")
        sentence = f"{lost} a parent that is not here; {counted(found.cycles, 'circle')}. It does no harm."
        yield Check("conversations", "note", sentence)
    if found.pages > 1000 and found.free_pages > found.pages // 2:
        sentence = f"{size(found.free_pages * found.page_size)} of the file are free, to be used again."
        yield Check("free pages", "note", sentence)


def _journal(path: Path, found: Examination) -> Iterator[Check]:
    mount = journal.unsuited_mount(path)
    if mount and found.journal_mode == "wal":
        sentence = f"It has a write-ahead log, but lies on {mount}, where that is not safe."
        yield Check(
            "journal", "problem", sentence, "Stop every other program that uses it, then run any herma command."
        )
    elif mount:
        yield Check("journal", "note", f"It lies on {mount}; a folder on a local disk is faster.")
    real = real_path(path)
    log = real.with_name(real.name + "-wal")
    length = log.stat().st_size if log.exists() else 0
    if length > _LARGE_LOG:
        sentence = f"The write-ahead log has {size(length)}: some program has been reading for very long."
        yield Check("log", "warning", sentence, "Stop programs that use this home and do nothing.")


def _index(home: Path, found: Examination) -> Iterator[Check]:
    if not found.seq:
        return
    by_itself = "it is built by itself when you search."
    if not os.access(home, os.W_OK):
        by_itself = "none can be built, as the home cannot be written: searches see the newest messages only."
    files = SqliteIndexFiles(home)
    try:
        state = files.current().state()
    except IndexUnusable:
        if in_the_way := files.obstacle():
            yield Check("index.db", "warning", in_the_way, f"mv {home / 'index.db'} {home / 'index.db.old'}")
            return
        there = (home / "index.db").exists()
        yield Check("index.db", "note", f"It is {'damaged' if there else 'not there'}; {by_itself}")
        return
    except StoreError as exc:
        yield Check("index.db", "note", str(exc))
        return
    finally:
        files.close()
    position = state.position
    if position is None or (position.store_id, position.epoch) != (found.store_id, found.epoch):
        yield Check("index.db", "note", f"It belongs to another state of herma.db; {by_itself}")
    elif position.seq > found.seq:
        yield Check("index.db", "note", f"It is ahead of herma.db; {by_itself}")
    else:
        late = found.seq - position.seq
        behind = f"{counted(late, 'change')} behind" if late else "up to date"
        yield Check("index.db", "ok", f"{counted(state.messages, 'message')}, {size(state.size)}, {behind}.")


def _inbox(found: Examination, now: float) -> Iterator[Check]:
    if not found.waiting:
        return
    soon = found.next_expiry is not None and found.next_expiry - now < _SOON
    ending = "; the first expires within three days" if soon else ""
    waiting = counted(found.waiting, "proposed memory waits", "proposed memories wait")
    sentence = f"{waiting} for you{ending}."
    yield Check("inbox", "warning" if soon else "note", sentence, "herma memory pending")


def check_sqlite() -> Iterator[Check]:
    yield Check("SQLite", "ok", f"Version {sqlite_version()}.")
