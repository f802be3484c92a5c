"""Examine a home: each check in order, on its own, so that one that fails hides no other."""

from __future__ import annotations

import glob
import importlib.util
import os
import shlex
import shutil
import stat
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from herma import config
from herma.compression.engine import NEEDED, engine_class, is_own
from herma.episodes.rows import EpisodeRows, TranscriptExcerpts
from herma.errors import ConfigError, StoreError, install_command
from herma.index import IndexUnusable
from herma.index.file import IndexFiles
from herma.index.vector_store import VectorStore
from herma.memory.entries import MemoryDocument, parse, used
from herma.memory.files import read_document
from herma.models.embedder import Choice, make_embedder
from herma.models.endpoints import Endpoint, Role, endpoint_of
from herma.models.models import Pauses
from herma.providers.manager import Providers
from herma.safety.scan import scan
from herma.skills.files import CuratorFiles, SkillFiles, external_folders
from herma.skills.guard import inspect
from herma.skills.rows import ARCHIVE, SkillHistory, SkillInbox, SkillUsageRows
from herma.store import archive, open_database
from herma.store.backup import abandoned
from herma.store.checkup import Examination, examine, sqlite_version, state_of
from herma.store.database import VERSION
from herma.store.files import kind_of, real_path, unsuited_mount
from herma.store.replace import copies_of, cut_off_restores, repaired_copy
from herma.text import count, size
from herma.worker import Guard, TroubleLog, last_worked

if TYPE_CHECKING:
    from herma.config import McpServer, Settings

State: TypeAlias = Literal["ok", "note", "warning", "problem"]
REPAIR = "herma doctor --repair"


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its result in one sentence, and a command that helps, if there is one."""

    name: str
    state: State
    sentence: str
    next: str = ""


def some(items: list[str], at_most: int = 3) -> str:
    """Return the first few of a list, and how many more there are."""
    rest = len(items) - at_most
    return "; ".join(items[:at_most]) + (f"; and {rest} more" if rest > 0 else "")


# `index.db.vectors`: whole, in step with `herma.db`, and does its embedder answer?

_NAME = "index.db.vectors"
_EMBED = "herma index embed"


def check_embedder(choice: Choice) -> Iterator[Check]:
    """Report an embedder that is set and cannot be created. It is not called: failed calls are in the log."""
    if choice.embedder is None and choice.wanted:
        yield Check("embedder", "warning", f"{choice.reason}; words alone are searched.", "herma models list")


def check_vectors(home: Path, found: Examination, now: float, embedder: str) -> Iterator[Check]:
    """Say nothing where nothing was ever embedded: search is good without. Only what the embedder that is set up
    here has not read yet is something to do.
    """
    store = VectorStore(home)
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
        yield Check(_NAME, "note", "It belongs to another state of herma.db; the vectors are checked again.", _EMBED)
        return
    for model in file.models:
        if model.name == embedder:
            left = max(0, file.appended - model.reach.walked)
            rest = f"{count(left, 'message')} to be embedded" if left else "up to date"
            what = f"{model.vectors:,} vectors by {model.name}, {rest}, {size(file.size)} in all."
            yield Check(_NAME, "note" if left else "ok", what, _EMBED if left else "")
        else:
            what = f"{model.vectors:,} vectors by {model.name}, which is not installed; they will be removed."
            yield Check(_NAME, "ok", what)
    if embedder and file.models and all(model.name != embedder for model in file.models):
        wait = f"{count(file.appended, 'message')} to be embedded"
        yield Check(_NAME, "note", f"None are by {embedder} yet: {wait}; words are searched meanwhile.", _EMBED)
    if file.trouble.message:
        until = datetime.fromtimestamp(file.trouble.retry_at).astimezone().strftime("%H:%M:%S")
        rest = f"it is not retried before {until}" if file.trouble.retry_at > now else "it is retried when needed"
        times = f"{file.trouble.failures} times in a row" if file.trouble.failures > 1 else "once"
        sentence = (
            f"{file.trouble.model} failed {times} ({file.trouble.message}); {rest}. Words are searched meanwhile."
        )
        yield Check("embedder", "warning", sentence, _EMBED)


# `herma.db` and `index.db`: whole, ours, and in step with each other?

_LARGE_LOG = 64 * 2**20
_SOON = 3 * 86400


def check_database(home: Path, *, now: float, full: bool, busy_timeout: float, embedder: str = "") -> Iterator[Check]:
    path = home / "herma.db"
    found = examine(path, now=now, full=full, busy_timeout=busy_timeout)
    match found.state:
        case "missing" | "empty":
            yield Check("herma.db", "note", "No database yet; the first write creates it.")
        case "damaged":
            kept = "" if path.exists() else " Delete nothing beside it."
            yield Check("herma.db", "problem", f"It is damaged: {found.why}.{kept or ' Do not delete it.'}", REPAIR)
        case "foreign":
            sentence = "The file of this name is not a Herma database; it is left as it is."
            if path.exists() and not path.is_file():
                sentence = f"It is {kind_of(path.stat())}, not an ordinary file; it is left as it is."
            yield Check(
                "herma.db", "problem", sentence, f"mv {shlex.quote(str(path))} elsewhere, or use another --home"
            )
        case "newer":
            sentence = "It was written by a newer Herma; it is left as it is."
            yield Check("herma.db", "problem", sentence, install_command())
        case "unreadable":
            yield Check("herma.db", "problem", f"It cannot be read: {found.why}", f"ls -l {shlex.quote(str(path))}*")
        case "ours":
            yield from _content(found, full)
            yield from _journal(path, found)
            yield from _index(home, found)
            yield from check_vectors(home, found, now, embedder)
            yield from _inbox(found, now)


def check_server(settings: Settings) -> Iterator[Check]:
    """Yield whether the server of `store.url` answers, has our tables, and keeps tenants apart."""
    from herma.store.postgres import status

    found = status(settings.store.url)
    if found["trouble"]:
        yield Check("database", "problem", f"{found['url']}: {found['trouble']}", found["remedy"])
        return
    yield Check("database", "ok", f"{found['url']}, PostgreSQL {found['server']}, format {found['format']}.")
    if found["share_vectors"]:
        sentence = "The server has no tables of vectors (pgvector): each host makes and compares its own."
        yield Check("vectors", "note", sentence, found["share_vectors"])
    yield Check(
        "backups", "note", "The memory is on a server; `herma backup` copies none of it.", "pg_dump --schema=herma"
    )


def needs_salvage(found: Examination) -> bool:
    """Return whether rows have to be brought over into a new file."""
    if found.state == "damaged":
        return True
    lacking = [line for line in found.schema if "not ours" not in line]
    wrong = found.behind or found.trouble or found.orphans or found.payloads or found.feed or lacking
    return found.state == "ours" and bool(wrong)


def _content(found: Examination, full: bool) -> Iterator[Check]:
    if found.trouble:
        sentence = f"It is damaged: {some([line.splitlines()[-1] for line in found.trouble])}. Do not delete it."
        yield Check("herma.db", "problem", sentence, REPAIR)
    else:
        what = f"{count(found.sessions, 'session')}, {count(found.messages, 'message')}"
        yield Check("herma.db", "ok", f"{what}; the integrity check found nothing.")
    if found.behind:
        yield Check("changes", "problem", f"{found.behind} Do not delete index.db.", REPAIR)
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
        yield Check("schema", "warning", f"It has additions: {some(found.schema)}.")
    if found.feed:
        yield Check("change feed", "problem", f"It has gaps: {some(found.feed)}.", REPAIR)
    if found.payloads:
        yield Check("stored texts", "problem", f"{some(found.payloads)}.", REPAIR)
    elif found.payloads_seen:
        which = "all" if full else "the newest"
        more = "" if full else "herma doctor --full"
        yield Check("stored texts", "ok", f"{found.payloads_seen} checked ({which}), none has changed.", more)
    if found.lost_parents or found.cycles:
        lost = count(found.lost_parents, "session names", "sessions name")
        sentence = f"{lost} a parent that is not here; {count(found.cycles, 'circle')}. It does no harm."
        yield Check("conversations", "note", sentence)
    if found.pages > 1000 and found.free_pages > found.pages // 2:
        sentence = f"{size(found.free_pages * found.page_size)} of the file free, to be used again."
        yield Check("free pages", "note", sentence)


def _journal(path: Path, found: Examination) -> Iterator[Check]:
    mount = unsuited_mount(path)
    if mount and found.journal_mode == "wal":
        sentence = f"It has a write-ahead log, but is on {mount}, where that is not safe."
        yield Check(
            "journal", "problem", sentence, "Stop every other program that uses it, then run any herma command."
        )
    elif mount:
        yield Check("journal", "note", f"It is on {mount}; a folder on a local disk is faster.")
    real = real_path(path)
    log = real.with_name(real.name + "-wal")
    length = log.stat().st_size if log.exists() else 0
    if length > _LARGE_LOG:
        sentence = f"The write-ahead log has {size(length)}: some program has been reading for very long."
        yield Check("log", "warning", sentence, "Stop programs that use this home and do nothing.")


def _index(home: Path, found: Examination) -> Iterator[Check]:
    if not found.seq:
        return
    by_itself = "the next search builds it."
    if not os.access(home, os.W_OK):
        by_itself = "none can be built, as the home cannot be written: searches see the newest messages only."
    files = IndexFiles(home)
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
    elif found.behind:
        yield Check("index.db", "note", "It has seen more than herma.db has; it is left alone until that is repaired.")
    else:
        late = max(0, found.seq - position.seq)
        behind = f"{count(late, 'change')} behind" if late else "up to date"
        yield Check("index.db", "ok", f"{count(state.messages, 'message')}, {size(state.size)}, {behind}.")


def _inbox(found: Examination, now: float) -> Iterator[Check]:
    if not found.waiting:
        return
    soon = found.next_expiry is not None and found.next_expiry - now < _SOON
    ending = "; the first expires within three days" if soon else ""
    waiting = count(found.waiting, "proposed memory waits", "proposed memories wait")
    sentence = f"{waiting} for you{ending}."
    yield Check("inbox", "warning" if soon else "note", sentence, "herma inbox")


def check_sqlite() -> Iterator[Check]:
    yield Check("SQLite", "ok", f"SQLite {sqlite_version()}.")


# Episodes: every conversation that ended needs one.

_MANY = 1_000


def check_episodes(home: Path, settings: Settings) -> Iterator[Check]:
    """Yield how many there are, and how many conversations went on or ended without getting one."""
    if not settings.store.url and state_of(home / "herma.db")[0] != "ours":
        return
    with closing(open_database(settings)) as database:
        live = EpisodeRows(database).live_count()
        without = len(TranscriptExcerpts(database).without_episode(_MANY, "", everything=False))
    if not without:
        yield Check("episodes", "ok", f"{live:,} episodes; all conversations processed.")
        return
    which = count(without, "conversation has", "conversations have")
    many = f"at least {which}" if without == _MANY else which
    said = f"{live:,} episodes; {many} none yet or continued since (open or interrupted)."
    yield Check("episodes", "note", said, "herma index rebuild --episodes")


# The home and its files: can they be used, are they private, is there anything odd among them?

_TIGHT = 200 * 2**20
_FULL = 20 * 2**20
_OURS = (
    "herma.db*",
    "index.db*",
    "config.yaml",
    ".env",
    "web.token",
    "SOUL.md",
    "memories",
    "memories/**/*",
    "backups",
    "backups/*",
)
_OLD_BACKUP = 30 * 86400
_HOUR = 3600


def closed(home: Path) -> bool:
    """Return whether it is there, and we may not look into it."""
    return home.is_dir() and not os.access(home, os.R_OK | os.X_OK)


def check_home(home: Path) -> Iterator[Check]:
    if not home.exists():
        yield Check("home", "note", f"{home} does not exist yet; the first write creates it.")
    elif not home.is_dir():
        yield Check("home", "problem", f"{home} is not a folder.", "Choose another with --home or HERMA_HOME.")
    elif closed(home):
        yield Check("home", "problem", f"{home} cannot be read.", f"chmod u+rwx {shlex.quote(str(home))}")
    elif not os.access(home, os.W_OK) or _read_only(home):
        yield Check("home", "warning", f"{home} cannot be written: nothing new will be remembered.")
    else:
        yield Check("home", "ok", f"{home} can be read and written.")


def _read_only(home: Path) -> bool:
    return hasattr(os, "statvfs") and bool(os.statvfs(home).f_flag & os.ST_RDONLY)


def loose(home: Path) -> list[Path]:
    """Return what others than the owner may get at. Behind a private folder nothing is."""
    if os.name == "nt" or not home.is_dir():
        return []
    if not home.stat().st_mode & 0o077:
        return []
    found = [path for pattern in _OURS for path in home.glob(pattern) if not path.is_symlink()]
    return sorted(path for path in set(found) if not path.name.endswith(".lock") and path.stat().st_mode & 0o077)


def check_permissions(home: Path) -> Iterator[Check]:
    exposed = loose(home)
    if exposed:
        names = some([str(path.relative_to(home)) for path in exposed])
        sentence = f"Others on this machine may read or change {len(exposed)} of the home's files ({names})."
        yield Check("permissions", "warning", sentence, f"chmod -R go-rwx {shlex.quote(str(home))}")
    elif home.is_dir():
        yield Check("permissions", "ok", "Only you can read what is kept here.")


def check_config(settings: Settings) -> Iterator[Check]:
    problems = [str(problem) for problem in settings.problems if problem.pressing]
    foreign = len(settings.problems) - len(problems)
    if problems:
        yield Check("configuration", "warning", some(problems), "herma config show")
    elif foreign:
        sentence = f"{count(foreign, 'key is', 'keys are')} not Herma's, and ignored."
        yield Check("configuration", "note", sentence, "herma config show")
    else:
        yield Check("configuration", "ok", "All keys are known.")


def curated_files(home: Path) -> list[Path]:
    folder = home / "memories"
    names = ("MEMORY.md", "USER.md")
    found = [folder / name for name in names]
    found += [path for name in names for path in sorted(folder.glob(f"*/*/{name}"))]
    return [path for path in found if os.path.lexists(path)]


def _remedy(path: Path, document: MemoryDocument) -> str:
    """Return what `adopt` cannot read it cannot adopt."""
    return "herma memory adopt" if document.raw is not None else f"ls -l {shlex.quote(str(path))}"


def check_curated(home: Path, settings: Settings) -> Iterator[Check]:
    limits = {"MEMORY.md": settings.memory.memory_char_limit, "USER.md": settings.memory.user_char_limit}
    fine, seen = 0, curated_files(home)
    for path in seen:
        where = path.relative_to(home).as_posix()
        document = read_document(path)
        if document.trouble:
            yield Check(where, "problem", f"{document.trouble}.", _remedy(path, document))
            continue
        entries = parse(document.text)
        objections = sum(bool(scan(entry)) for entry in entries)
        limit = limits[path.name]
        if used(entries) > limit:
            sentence = f"{used(entries):,} characters, {limit:,} fit: the model is not shown all of it."
            yield Check(where, "warning", sentence, "herma memory list")
        if objections:
            which = count(objections, "entry", "entries")
            sentence = f"The scanner objects to {which}; the model is shown those you vouched for only."
            yield Check(where, "warning", sentence, "herma memory list")
        fine += not objections and used(entries) <= limit
    if not seen or fine == len(seen):
        sentence = f"{count(len(seen), 'file')}, nothing wrong." if seen else "No files yet."
        yield Check("curated memory", "ok", sentence)


def leftovers(home: Path) -> list[Path]:
    """Return unneeded files that interrupted work left behind. Unfinished changes of curated files are not among it:
    the next write settles those.
    """
    patterns = ("backups/.*.tmp", "backups/.*.tmp.part")
    found = [path for pattern in patterns for path in home.glob(pattern)]
    database = real_path(home / "herma.db")
    for what in ("repaired", "moved"):
        found += database.parent.glob(f".{glob.escape(database.name)}.{what}.tmp*")
    return sorted([*found, *abandoned(home), *_given_up(home)])


def _given_up(home: Path) -> list[Path]:
    """Return an unfinished index beside the one in use, if no process builds it: it stopped changing.
    It holds words of messages that may be gone for good by now.
    """
    if not (home / "index.db").is_file():
        return []
    return [path for path in home.glob("index.db.new*") if time.time() - path.stat().st_mtime > _HOUR]


def check_leftovers(home: Path) -> Iterator[Check]:
    for stage in cut_off_restores(home):
        where = some([str(path) for path in copies_of(stage)]) or str(stage / "old")
        sentence = f"A restore was cut off before its end ({stage.name}); what was there before is in {where}."
        yield Check("restore", "problem", f"{sentence} Whatever opens the home next finishes it.", REPAIR)
    if repaired_copy(home / "herma.db").exists():
        yield Check("repair", "problem", "A repair was cut off before its end.", REPAIR)
    if (home / ".forget.json").exists():
        yield Check("forget", "warning", "A `herma forget` was cut off before its end.", "herma forget")
    if useless := leftovers(home):
        which = some([path.name for path in useless])
        sentence = f"Interrupted work left {count(len(useless), 'file')} ({which})."
        yield Check("leftovers", "note", sentence, REPAIR)
    open_changes = list((home / "memories").rglob(".*.tmp"))
    if open_changes:
        yield Check("unfinished change", "note", "A change to a memory file was cut off; the next write settles it.")
    kept = list((home / "memories").rglob("*.bak.*"))
    if kept:
        total = sum(path.stat().st_size for path in kept)
        copies = count(len(kept), "copy", "copies")
        yield Check("copies", "note", f"{copies} of earlier memory files, {size(total)}, kept in memories/.")
    folders = sorted(path.name for path in (home / "backups").glob("*") if path.is_dir() and path.name[0] != ".")
    if folders:
        what = f"Files that a restore or a repair replaced are kept in backups/: {some(folders)}."
        yield Check("kept", "note", what)


def check_space(home: Path) -> Iterator[Check]:
    if not home.exists():
        return
    free = shutil.disk_usage(home).free
    database = home / "herma.db"
    wanted = max(_TIGHT, 2 * database.stat().st_size if database.exists() else 0)
    if free < _FULL:
        yield Check("disk", "problem", f"The disk is full: {size(free)} free.", "Free some space.")
    elif free < wanted:
        sentence = f"{size(free)} free; a backup or a repair may need {size(wanted)}."
        yield Check("disk", "warning", sentence, "Free some space.")
    else:
        yield Check("disk", "ok", f"{size(free)} free.")


def check_backups(home: Path, now: float) -> Iterator[Check]:
    all_of_them = archive.listing(home)
    known = [each for each in all_of_them if each.manifest]
    if broken := [each.name for each in all_of_them if not each.manifest or each.manifest.damage]:
        yield Check("backups", "warning", f"Cannot be restored: {some(broken)}.", "herma backup list")
    if not known or known[0].manifest is None:
        if (home / "herma.db").exists():
            yield Check("backups", "note", "There is no backup yet.", "herma backup create")
        return
    age = now - known[0].manifest.created
    when = time.strftime("%Y-%m-%d", time.localtime(known[0].manifest.created))
    old = age > _OLD_BACKUP
    yield Check(
        "backups", "note" if old else "ok", f"{len(known)}, the newest of {when}.", "herma backup create" if old else ""
    )


def check_neighbours(home: Path) -> Iterator[Check]:
    other = home / "state.db"
    if other.is_file():
        sentence = f"Hermes Agent's database is in this folder, too (state.db, {size(other.stat().st_size)})."
        yield Check("Hermes Agent", "note", f"{sentence} It is never touched.")
    strange = [path.name for path in home.glob("herma.db*") if not stat.S_ISREG(path.lstat().st_mode)]
    if strange:
        yield Check("herma.db", "warning", f"Not regular files: {some(strange)}.")


# The external memory: is it there, can it work, and what went wrong with it lately?

_LATELY = 7 * 86_400


class PluginFailures(NamedTuple):
    """The failures of a provider, model, server or observer in the last week, with the last one."""

    name: str
    times: int
    at: float
    what: str
    why: str


def check_provider(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Load the configured provider and ask whether it is available, within its deadline."""
    name = settings.memory.provider.strip()
    if name:
        status = Providers(home, settings).status()
        if status.found is None:
            yield Check("provider", "problem", status.why, "herma providers status")
        elif not status.available:
            why = f": {status.why.rstrip('.')}" if status.why else ""
            sentence = f"The memory provider {name} is not available{why}. Sessions go on without it."
            yield Check("provider", "warning", sentence, "herma providers status")
        else:
            yield Check("provider", "ok", f"The memory provider {name} is available.")
    for one in failures(home, now):
        how_often = "once" if one.times == 1 else f"{one.times:,} times"
        why = one.why.rstrip(".")
        sentence = f"{one.name} failed {how_often} in the last week, most recently at {one.what}: {why}."
        yield Check("plugins", "warning", sentence)


def failures(home: Path, now: float) -> tuple[PluginFailures, ...]:
    """Return the plugins that failed in the last week, in any program, those that failed most often first."""
    noted = list(TroubleLog(home).since(now - _LATELY))
    last = {one.name: one for one in noted}
    times = Counter(one.name for one in noted).most_common()
    return tuple(PluginFailures(name, many, last[name].at, last[name].what, last[name].why) for name, many in times)


# Whether the language models of the settings could be asked. `herma models check` asks them.


def check_models(settings: Settings) -> Iterator[Check]:
    """Yield one line per server; nothing where no model is set."""
    seen: set[tuple[str, str]] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file of keys that others may read is another check's matter
        for role in get_args(Role):
            try:
                where = endpoint_of(settings, role)
            except ConfigError as exc:
                yield Check("model", "problem", str(exc), exc.hint)
                return
            if where is not None and (where.url, where.name) not in seen:
                seen.add((where.url, where.name))
                yield _check_endpoint(where, role)


def check_pauses(home: Path, now: float) -> Iterator[Check]:
    """Report background work that rests, because a model's answers could not be used."""
    for one in Pauses(home, lambda: now).list():
        yield Check("model", "warning", one.notice, one.hint)


def _check_endpoint(where: Endpoint, role: str) -> Check:
    name = f"The {role} model, {where.name} at {where.host}"
    if importlib.util.find_spec(where.kind) is None:
        install = install_command(where.kind)
        return Check(
            "model", "warning", f"{name}, cannot be asked: the {where.kind} library is not installed.", install
        )
    if where.key_variable and not where.key:
        sentence = (
            f"{name}, has no key: the variable {where.key_variable} is set neither in the environment nor in .env."
        )
        return Check("model", "warning", sentence, "")
    return Check("model", "ok", f"{name}, is set; herma models check asks it.")


# How skills are kept in shape: when that was last done, when it will be, and what it left behind.


def check_curator(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Report the last and the next run of the curator, if there were skills yet."""
    files = CuratorFiles(home)
    memory = files.memory()
    last = next(iter(files.reports(1)), None)
    if last is not None and last.state in ("interrupted", "failed", "running"):
        said = {"running": "is at work, or was cut off", "interrupted": "was cut off", "failed": "failed in part"}
        yield Check("curator", "note", f"The run {last.id} {said[last.state]}.", "herma skills tidy --report")
    if memory.seen is None and memory.last_run is None:
        return
    try:
        archived = sum(1 for each in (home / "skills" / ARCHIVE).iterdir() if each.is_dir())
    except OSError:
        archived = 0
    ran = f"last run {_day(memory.last_run)}" if memory.last_run is not None else "no run yet"
    since = memory.last_run if memory.last_run is not None else memory.seen or now
    due = since + settings.curator.interval_hours * _HOUR
    then = "next when the home is idle" if due <= now else f"next from {_day(due)} on"
    if not settings.curator.enabled:
        then = "switched off"
    yield Check("curator", "ok", f"{ran}, {then}; {count(archived, 'skill')} in the archive.")


def _day(at: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def check_engine(settings: Settings) -> Iterator[Check]:
    """Load an engine that is not our own, and make none."""
    name = settings.context.engine
    if is_own(name):
        return
    hint = "herma config unset context.engine takes Herma's own; docs/how-to/replace-the-context-engine.md has more."
    guard = Guard(f"the context engine {name}")
    found = guard.ask("loading it", lambda: engine_class(name), None)
    if found is None:
        why = guard.health.last.why if guard.health.last else "it is none"
        yield Check("context engine", "warning", f"{name} cannot be used ({why}); nothing is compressed.", hint)
    elif missing := [part for part in NEEDED if part != "name" and not hasattr(found, part)]:
        said = f"{name} has no {', '.join(missing)}; nothing is compressed."
        yield Check("context engine", "warning", said, hint)
    else:
        yield Check("context engine", "ok", f"{name} can be loaded.")


# Whether the MCP servers of the settings could be used. Starts none of them: `/tools` in the chat says more.


def check_servers(home: Path, settings: Settings) -> Iterator[Check]:
    """Yield one line each; nothing where none is set."""
    wanted = [server for server in settings.mcp_servers if server.enabled]
    if wanted and importlib.util.find_spec("mcp") is None:
        sentence = "MCP servers cannot be used: the mcp library is not installed."
        yield Check("mcp servers", "warning", sentence, install_command("chat"))
        return
    for server in wanted:
        yield _check_server(home, server)


def _check_server(home: Path, server: McpServer) -> Check:
    missing = ""
    if server.command and shutil.which(server.command) is None and "${" not in server.command:
        missing = f"program {server.command}"
    elif server.cwd and not Path(server.cwd).expanduser().is_dir():
        missing = f"folder {server.cwd}"
    if missing:
        sentence = f"The MCP server {server.name} cannot be started: there is no {missing}."
        return Check("mcp servers", "warning", sentence, "herma config show --path")
    worked = last_worked(home, server.name)
    when = "not used yet" if worked is None else time.strftime("last worked %Y-%m-%d %H:%M", time.localtime(worked))
    return Check("mcp servers", "ok", f"The MCP server {server.name}, {server.place}: {when}.")


# The skills on disk: refused files with reasons, dangerous ones, and those that wait for a person.


def check_skills(home: Path, settings: Settings, *, now: float, full: bool) -> Iterator[Check]:
    """Count skills and those refused. With `full`, scan every file of every skill too."""
    external = external_folders(home, settings.skills.external_dirs)
    if not external and not (home / "skills").is_dir():
        return
    vouched: set[str] = set()
    waiting = 0
    with closing(open_database(settings)) as database:
        files = SkillFiles(home, SkillHistory(database, settings.profile), external)
        found_skills = files.look()
        if settings.store.url or state_of(home / "herma.db")[0] == "ours":
            vouched = {each.vouched for each in SkillUsageRows(database, settings.profile).all().values()}
            waiting = len(SkillInbox(database, settings.profile).list(now))
        scanned = [skill for skill in found_skills.skills if full and skill.hash not in vouched]
        dangerous = [skill.path for skill in scanned if inspect(files.files(skill)).verdict == "dangerous"]
    if dangerous:
        called = f"{count(len(dangerous), 'skill')} dangerous ({some(dangerous)})"
        sentence = f"The scanner calls {called}; agents are not shown what is dangerous."
        yield Check("skills", "warning", sentence, "herma skills scan NAME")
    if found_skills.refused:
        listed = some([f"{each.path or each.root}: {each.reason}" for each in found_skills.refused])
        sentence = f"{count(len(found_skills.skills), 'skill')}; refused: {len(found_skills.refused)} ({listed})."
        yield Check("skills", "note", sentence, "herma skills list --all")
    elif not dangerous:
        yield Check("skills", "ok", f"{count(len(found_skills.skills), 'skill')}, nothing wrong.")
    if waiting:
        writes = count(waiting, "write to a skill waits", "writes to skills wait")
        yield Check("skills", "note", f"{writes} for a person.", "herma inbox")


Progress = Callable[[int, int], None]


class Diagnosis(NamedTuple):
    """The result of all checks. Healthy means that there is no problem; warnings are for later."""

    home: Path
    checks: tuple[Check, ...]
    failures: tuple[PluginFailures, ...] = ()
    """Plugins that failed in the last week; each has a check, too."""

    @property
    def healthy(self) -> bool:
        return not any(check.state == "problem" for check in self.checks)

    def of(self, state: State) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state == state)


def diagnose(
    home: Path,
    settings: config.Settings | None = None,
    *,
    full: bool = False,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Diagnosis:
    """Look at everything under `home`. Without settings, its configuration is read here, and may be broken."""
    checks: list[Check] = []
    trouble: list[Check] = []
    if settings is None:
        settings, trouble = read_settings(home)
    now = clock()
    chosen = make_embedder(settings.embedding, home=home)
    embedder = chosen.embedder.name if chosen.embedder is not None else ""
    rounds: list[Callable[[], Iterator[Check]]] = [
        lambda: check_home(home),
        lambda: check_permissions(home),
        lambda: iter(trouble) if trouble else check_config(settings),
        lambda: iter(()) if settings.store.url else check_curated(home, settings),
        lambda: check_skills(home, settings, now=now, full=full),
        lambda: check_curator(home, settings, now),
        lambda: check_leftovers(home),
        lambda: (
            check_server(settings)
            if settings.store.url
            else check_database(home, now=now, full=full, busy_timeout=settings.memory.lock_timeout, embedder=embedder)
        ),
        lambda: check_embedder(chosen),
        lambda: check_episodes(home, settings),
        lambda: check_provider(home, settings, now),
        lambda: check_models(settings),
        lambda: check_pauses(home, now),
        lambda: check_engine(settings),
        lambda: check_servers(home, settings),
        lambda: check_space(home),
        lambda: iter(()) if settings.store.url else check_backups(home, now),
        lambda: check_neighbours(home),
        check_sqlite,
    ]
    if closed(home):  # everything else would only say so again
        rounds = [lambda: check_home(home), check_sqlite]
    elif cut_off_restores(home):  # files differ in state; the next process that opens the database finishes it
        rounds = [*rounds[:3], lambda: check_leftovers(home), lambda: check_space(home)]
    for done, look in enumerate(rounds, 1):
        try:
            checks += look()
        except (StoreError, OSError) as exc:
            checks.append(Check("doctor", "problem", str(exc), getattr(exc, "hint", "")))
        if progress:
            progress(done, len(rounds))
    return Diagnosis(home, tuple(checks), failures(home, now))


def read_settings(home: Path) -> tuple[config.Settings, list[Check]]:
    """Return the settings of this home, or the defaults and what is wrong with the file."""
    try:
        return config.load(home=home), []
    except ConfigError as exc:
        return config.Settings(home=home), [Check("configuration", "problem", str(exc), exc.hint)]
