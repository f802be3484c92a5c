"""Every check, in order."""

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
from pathlib import Path
from typing import get_args

from herma import config
from herma.compression.engine import engine_class, is_own
from herma.config import McpServer, Settings
from herma.doctor import database
from herma.doctor.database import REPAIR, Check, State, check_embedder, counted, embedder_name, size, some
from herma.episodes.rows import SqliteEpisodes, SqliteGlimpses
from herma.errors import ConfigError, StoreError
from herma.memory.entries import Document, parse, used
from herma.memory.files import read_document
from herma.models.endpoints import Endpoint, Role, endpoint_of
from herma.providers.guard import Guard, TroubleLog
from herma.providers.manager import Deadlines, Providers
from herma.review.spending import PauseFile, Pauses
from herma.safety.scan import scan
from herma.skills.document import read_skill
from herma.skills.files import ARCHIVE, CuratorFiles, SkillFiles, SkillSnapshotFiles, external_folders
from herma.skills.guard import inspect
from herma.skills.rows import SkillRows, SqliteSkillInbox, SqliteSkillUsage
from herma.skills.types import Skill
from herma.store import backup
from herma.store.checkup import state_of
from herma.store.database import Database, real_path
from herma.store.restore import abandoned, unfinished
from herma.store.salvage import repaired_copy

# ---------- doctor.distilled
#
# What was distilled of conversations: whether every one that ended has its episode.

_MANY = 1_000


def check_episodes(home: Path, *, busy_timeout: float) -> Iterator[Check]:
    """How many there are, and how many conversations went on or ended without getting one."""
    path = home / "herma.db"
    if state_of(path)[0] != "ours":
        return
    with closing(Database(path, busy_timeout=busy_timeout)) as database:
        live = SqliteEpisodes(database).live_count()
        without = len(SqliteGlimpses(database).without_episode(_MANY, "", everything=False))
    if not without:
        yield Check("episodes", "ok", f"{live:,} at hand; every conversation was looked at.")
        return
    which = counted(without, "conversation has", "conversations have")
    many = f"at least {which}" if without == _MANY else which
    said = f"{live:,} at hand; {many} none yet, or went on since: those that are open, or broke off."
    yield Check("episodes", "note", said, "herma episodes rebuild")


# ---------- doctor.files
#
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
_FILES_HOUR = 3600


def closed(home: Path) -> bool:
    """Whether it is there, and we may not look into it."""
    return home.is_dir() and not os.access(home, os.R_OK | os.X_OK)


def check_home(home: Path) -> Iterator[Check]:
    if not home.exists():
        yield Check("home", "note", f"{home} is not there yet; the first write makes it.")
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
    """What others than the owner may get at. Behind a private folder nothing is."""
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
        sentence = f"{counted(foreign, 'key is', 'keys are')} not Herma's, and ignored."
        yield Check("configuration", "note", sentence, "herma config show")
    else:
        yield Check("configuration", "ok", "Every key is known.")


def curated_files(home: Path) -> list[Path]:
    folder = home / "memories"
    names = ("MEMORY.md", "USER.md")
    found = [folder / name for name in names]
    found += [path for name in names for path in sorted(folder.glob(f"*/*/{name}"))]
    return [path for path in found if os.path.lexists(path)]


def _remedy(path: Path, document: Document) -> str:
    """What `adopt` cannot read it cannot adopt."""
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
            which = counted(objections, "entry", "entries")
            sentence = f"The scanner objects to {which}; the model is shown those you vouched for only."
            yield Check(where, "warning", sentence, "herma memory list")
        fine += not objections and used(entries) <= limit
    if not seen or fine == len(seen):
        sentence = f"{counted(len(seen), 'file')}, nothing wrong." if seen else "No files yet."
        yield Check("curated memory", "ok", sentence)


def leftovers(home: Path) -> list[Path]:
    """What interrupted work left behind and nobody needs. Unfinished changes of curated files are not among it: the
    next write settles those.
    """
    patterns = ("backups/.*.tmp", "backups/.*.tmp.part")
    found = [path for pattern in patterns for path in home.glob(pattern)]
    database = real_path(home / "herma.db")
    for what in ("repaired", "moved"):
        found += database.parent.glob(f".{glob.escape(database.name)}.{what}.tmp*")
    return sorted([*found, *abandoned(home), *_given_up(home)])


def _given_up(home: Path) -> list[Path]:
    """An index that somebody stopped building beside one that is in use; one that is being built changes all the time.
    It holds words of messages that may be gone for good by now.
    """
    if not (home / "index.db").is_file():
        return []
    return [path for path in home.glob("index.db.new*") if time.time() - path.stat().st_mtime > _FILES_HOUR]


def check_leftovers(home: Path) -> Iterator[Check]:
    for stage in unfinished(home):
        yield Check("restore", "problem", f"A restore was cut off before its end ({stage.name}).", REPAIR)
    if repaired_copy(home / "herma.db").exists():
        yield Check("repair", "problem", "A repair was cut off before its end.", REPAIR)
    if useless := leftovers(home):
        which = some([path.name for path in useless])
        sentence = f"Interrupted work left {counted(len(useless), 'file')} ({which})."
        yield Check("leftovers", "note", sentence, REPAIR)
    open_changes = list((home / "memories").rglob(".*.tmp"))
    if open_changes:
        yield Check("unfinished change", "note", "A change to a memory file was cut off; the next write settles it.")
    kept = list((home / "memories").rglob("*.bak.*"))
    if kept:
        total = sum(path.stat().st_size for path in kept)
        copies = counted(len(kept), "copy", "copies")
        yield Check("copies", "note", f"{copies} of earlier memory files, {size(total)}, kept in memories/.")


def check_space(home: Path) -> Iterator[Check]:
    if not home.exists():
        return
    free = shutil.disk_usage(home).free
    database = home / "herma.db"
    wanted = max(_TIGHT, 2 * database.stat().st_size if database.exists() else 0)
    if free < _FULL:
        yield Check("disk", "problem", f"The disk is full: {size(free)} are free.", "Free some space.")
    elif free < wanted:
        sentence = f"{size(free)} are free; a backup or a repair may need {size(wanted)}."
        yield Check("disk", "warning", sentence, "Free some space.")
    else:
        yield Check("disk", "ok", f"{size(free)} are free.")


def check_backups(home: Path, now: float) -> Iterator[Check]:
    all_of_them = backup.listing(home)
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
        sentence = f"The database of a Hermes Agent lies here too (state.db, {size(other.stat().st_size)})."
        yield Check("Hermes Agent", "note", f"{sentence} It is never touched.")
    strange = [path.name for path in home.glob("herma.db*") if not stat.S_ISREG(path.lstat().st_mode)]
    if strange:
        yield Check("herma.db", "warning", f"Not ordinary files: {some(strange)}.")


# ---------- doctor.guests
#
# The external memory: is it there, can it work, and what went wrong with it lately?

_LATELY = 7 * 86_400


@dataclass(frozen=True, slots=True)
class GuestFailures:
    """How often a guest (a provider, a model, a server, a part that follows sessions) failed in the last week, and
    the last time in words: at what, and why.
    """

    name: str
    times: int
    at: float
    what: str
    why: str


def check_provider(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Loads the configured provider and asks whether it is available, within its deadline."""
    name = settings.memory.provider.strip()
    if name:
        status = Providers(home, name, deadlines=Deadlines(settings.providers.timeout)).status()
        if status.found is None:
            yield Check("provider", "problem", status.why, "herma providers list")
        elif not status.available:
            why = f": {status.why.rstrip('.')}" if status.why else ""
            sentence = f"The memory provider {name} is not available{why}. Sessions go on without it."
            yield Check("provider", "warning", sentence, "herma providers status")
        else:
            yield Check("provider", "ok", f"The memory provider {name} is available.")
    for guest in failures(home, now):
        how_often = "once" if guest.times == 1 else f"{guest.times:,} times"
        why = guest.why.rstrip(".")
        yield Check(
            "guests", "warning", f"{guest.name} failed {how_often} in the last week, last at {guest.what}: {why}."
        )


def failures(home: Path, now: float) -> tuple[GuestFailures, ...]:
    """Who failed in the last week, in any program, whoever failed most often first."""
    noted = list(TroubleLog(home).since(now - _LATELY))
    last = {one.guest: one for one in noted}
    times = Counter(one.guest for one in noted).most_common()
    return tuple(GuestFailures(name, many, last[name].at, last[name].what, last[name].why) for name, many in times)


# ---------- doctor.models
#
# Whether the language models of the settings could be asked. Asks nobody: `herma models check` does.


def check_models(settings: Settings) -> Iterator[Check]:
    """One line per server; nothing where no model is set."""
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
                yield _models_check(where, role)


def check_pauses(home: Path, now: float) -> Iterator[Check]:
    """Background work that rests, because a model's answers could not be used."""
    for one in Pauses(PauseFile(home), lambda: now).list():
        yield Check("model", "warning", one.notice, one.hint)


def _models_check(where: Endpoint, role: str) -> Check:
    name = f"The {role} model, {where.name} at {where.host}"
    if importlib.util.find_spec(where.kind) is None:
        install = f"pip install 'herma[{where.kind}]'"
        return Check(
            "model", "warning", f"{name}, cannot be asked: the {where.kind} library is not installed.", install
        )
    if where.key_variable and not where.key:
        sentence = (
            f"{name}, has no key: the variable {where.key_variable} is set neither in the environment nor in .env."
        )
        return Check("model", "warning", sentence, "")
    return Check("model", "ok", f"{name}, is set; herma models check asks it.")


# ---------- doctor.curator
#
# How skills are kept in shape: when that was last done, when it will be, and what it left behind.

_CURATOR_HOUR = 3_600.0


def check_curator(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Nothing, where there were no skills yet."""
    book = CuratorFiles(home)
    memory = book.memory()
    snapshots = SkillSnapshotFiles(home).list()
    if broken := [each.id for each in snapshots if each.trouble]:
        yield Check("curator", "warning", f"Snapshots that cannot be used: {some(broken)}.", "herma curator run")
    last = next(iter(book.reports(1)), None)
    if last is not None and last.state in ("interrupted", "failed", "running"):
        said = {"running": "is at work, or was cut off", "interrupted": "was cut off", "failed": "failed in part"}
        yield Check("curator", "note", f"The run {last.id} {said[last.state]}.", "herma curator report")
    if memory.seen is None and memory.last_run is None:
        return
    try:
        archived = sum(1 for each in (home / "skills" / ARCHIVE).iterdir() if each.is_dir())
    except OSError:
        archived = 0
    ran = f"last run {_day(memory.last_run)}" if memory.last_run is not None else "no run yet"
    since = memory.last_run if memory.last_run is not None else memory.seen or now
    due = since + settings.curator.interval_hours * _CURATOR_HOUR
    then = "next when nobody is at work" if due <= now else f"next from {_day(due)} on"
    if not settings.curator.enabled:
        then = "switched off"
    kept = f"{counted(archived, 'skill')} in the archive, {counted(len(snapshots), 'snapshot')}"
    yield Check("curator", "ok", f"{ran}, {then}; {kept}.")


def _day(at: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


# ---------- doctor.engine
#
# The context engine that the settings name: can it be loaded?

_NEEDED = ("should_compress", "compress", "update_from_response", "on_session_start", "on_session_end", "on_reset")


def check_engine(home: Path, settings: Settings) -> Iterator[Check]:
    """Nothing, where it is our own. Loads a user's, and makes none."""
    name = settings.context.engine
    if is_own(name):
        return
    guard = Guard(f"the context engine {name}")
    found = guard.ask("loading it", lambda: engine_class(name, home), None)
    hint = "herma config unset context.engine takes Herma's own; docs/how-to/replace-the-context-engine.md has more."
    if found is None:
        why = guard.health.last.why if guard.health.last else "it is none"
        yield Check("context engine", "warning", f"{name} cannot be used ({why}); nothing is shortened.", hint)
        return
    missing = [part for part in _NEEDED if not hasattr(found, part)]
    if missing:
        said = f"{name} has no {', '.join(missing)}; nothing is shortened."
        yield Check("context engine", "warning", said, hint)
    else:
        yield Check("context engine", "ok", f"{name} can be loaded.")


# ---------- doctor.servers
#
# Whether the MCP servers of the settings could be used. Starts none of them: `/tools` in the chat says more.


def check_servers(settings: Settings) -> Iterator[Check]:
    """One line each; nothing where none is set."""
    wanted = [server for server in settings.mcp_servers if server.enabled]
    if wanted and importlib.util.find_spec("mcp") is None:
        sentence = "MCP servers cannot be used: the mcp library is not installed."
        yield Check("mcp servers", "warning", sentence, "pip install 'herma[chat]'")
        return
    for server in wanted:
        yield _servers_check(server)


def _servers_check(server: McpServer) -> Check:
    if not server.command:
        return Check("mcp servers", "ok", f"The MCP server {server.name} is at {server.url.partition('?')[0]}.")
    if shutil.which(server.command) is None and "${" not in server.command:
        sentence = f"The MCP server {server.name} cannot be started: there is no program {server.command}."
        return Check("mcp servers", "warning", sentence, "herma config path")
    if server.cwd and not Path(server.cwd).expanduser().is_dir():
        sentence = f"The MCP server {server.name} cannot be started: there is no folder {server.cwd}."
        return Check("mcp servers", "warning", sentence, "herma config path")
    return Check("mcp servers", "ok", f"The MCP server {server.name} is set: {server.command}.")


# ---------- doctor.skills
#
# The skills on disk: what is refused and why, what the scanner calls dangerous, and what waits for a person.


@dataclass(frozen=True, slots=True)
class _Rows:
    vouched: frozenset[str] = frozenset()
    waiting: int = 0


def check_skills(home: Path, settings: Settings, *, now: float, full: bool) -> Iterator[Check]:
    """Quickly: what is there and what is refused. With `full`, every file of every skill is scanned too."""
    external = external_folders(home, settings.skills.external_dirs)
    if not external and not (home / "skills").is_dir():
        return
    database = Database(home / "herma.db", busy_timeout=settings.memory.lock_timeout)
    with closing(database):
        files = SkillFiles(home, SkillRows(database, settings.profile), read_skill, external)
        shelf = files.look()
        rows = _rows(home, settings, database, now)
        dangerous = [skill.path for skill in shelf.skills if full and _is_dangerous(files, skill, rows)]
    if dangerous:
        called = f"{counted(len(dangerous), 'skill')} dangerous ({some(dangerous)})"
        sentence = f"The scanner calls {called}; agents are not shown what is dangerous."
        yield Check("skills", "warning", sentence, "herma skills scan NAME")
    if shelf.refused:
        listed = some([f"{each.path or each.root}: {each.reason}" for each in shelf.refused])
        sentence = f"{counted(len(shelf.skills), 'skill')}; refused: {len(shelf.refused)} ({listed})."
        yield Check("skills", "note", sentence, "herma skills list --all")
    elif not dangerous:
        yield Check("skills", "ok", f"{counted(len(shelf.skills), 'skill')}, nothing wrong.")
    if rows.waiting:
        waiting = counted(rows.waiting, "write to a skill waits", "writes to skills wait")
        yield Check("skills", "note", f"{waiting} for a person.", "herma skills pending")


def _rows(home: Path, settings: Settings, database: Database, now: float) -> _Rows:
    if state_of(home / "herma.db")[0] != "ours":
        return _Rows()
    usage = SqliteSkillUsage(database, settings.profile).all()
    waiting = SqliteSkillInbox(database, settings.profile).list(now)
    return _Rows(frozenset(each.vouched for each in usage.values() if each.vouched), len(waiting))


def _is_dangerous(files: SkillFiles, skill: Skill, rows: _Rows) -> bool:
    return skill.hash not in rows.vouched and inspect(files.files(skill)).verdict == "dangerous"


# ---------- doctor.diagnose
#
# The round: every check in order, each on its own, so that one that fails hides no other.

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was looked at. Healthy means that there is no problem; warnings are for later."""

    home: Path
    checks: tuple[Check, ...]
    guests: tuple[GuestFailures, ...] = ()
    """Who failed in the last week; also told by a check each."""

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
    rounds: list[Callable[[], Iterator[Check]]] = [
        lambda: check_home(home),
        lambda: check_permissions(home),
        lambda: iter(trouble) if trouble else check_config(settings),
        lambda: check_curated(home, settings),
        lambda: check_skills(home, settings, now=now, full=full),
        lambda: check_curator(home, settings, now),
        lambda: check_leftovers(home),
        lambda: database.check_database(
            home, now=now, full=full, busy_timeout=settings.memory.lock_timeout, embedder=embedder_name(settings)
        ),
        lambda: check_embedder(settings),
        lambda: check_episodes(home, busy_timeout=settings.memory.lock_timeout),
        lambda: check_provider(home, settings, now),
        lambda: check_models(settings),
        lambda: check_pauses(home, now),
        lambda: check_engine(home, settings),
        lambda: check_servers(settings),
        lambda: check_space(home),
        lambda: check_backups(home, now),
        lambda: check_neighbours(home),
        database.check_sqlite,
    ]
    if closed(home):  # everything else would only say so again
        rounds = [lambda: check_home(home), database.check_sqlite]
    for done, look in enumerate(rounds, 1):
        try:
            checks += look()
        except (StoreError, OSError) as exc:
            checks.append(Check("doctor", "problem", str(exc), getattr(exc, "hint", "")))
        if progress:
            progress(done, len(rounds))
    return Diagnosis(home, tuple(checks), failures(home, now))


def read_settings(home: Path) -> tuple[config.Settings, list[Check]]:
    """The settings of this home, or the defaults and what is wrong with the file."""
    try:
        return config.load(home=home), []
    except ConfigError as exc:
        return config.Settings(home=home), [Check("configuration", "problem", str(exc), exc.hint)]
