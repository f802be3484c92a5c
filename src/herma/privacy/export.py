"""Write everything of a home into one archive, and read it back.

An archive is a zip file with `manifest.json`, the files of the home under `files/`, and the rows of every table of
`herma.db` under `tables/`, one JSON object a line (docs/how-to/move-everything.md describes the format). Credentials,
deleted sessions and what is made again from the rows (index, copies of long texts) are left out.

Reading it back into a home without rows gives the same home: the same ids, times and history. A home that has rows
keeps them: it gets the sessions that it does not have, the skills whose names are free, and the entries of memory as
proposals in the inbox.
"""

from __future__ import annotations

import io
import json
import tempfile
import time
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import click

import herma
from herma.cli.context import CommandContext, HermaCommand, dry_run_option, for_people_only, with_home
from herma.cli.output import count, size
from herma.errors import StoreError, UsageError
from herma.importers.migration import PROVIDERS, masked
from herma.importers.rows import ImportRows
from herma.memory.entries import parse
from herma.memory.files import write_documents
from herma.skills.rows import SkillRefused
from herma.store import backup
from herma.store.archive import FOLDERS
from herma.store.database import VERSION as DATABASE_VERSION
from herma.store.database import Blob, DatabaseConnection
from herma.store.files import make_folder, replace_file, sync_file
from herma.store.sqlite import our_schema
from herma.transcript.cli import index_imported
from herma.transcript.rows import cell, payload, payload_id, stored_value, texts
from herma.transcript.transfer import FORMAT as TRANSCRIPTS
from herma.transcript.transfer import VERSION as TRANSCRIPTS_VERSION
from herma.transcript.transfer import Importer
from herma.types import Add, Author, Origin, Scope, SessionMetadata, Staged, Who

if TYPE_CHECKING:
    from herma.app import Herma

FORMAT, VERSION = "everything", 1
MANIFEST = "manifest.json"
LEFT_OUT = frozenset(("meta", "payloads", "payload_uses", "changes"))
"""Tables that are not written: the identity of a database, and what is made again from the other rows."""
LARGEST_LINE = 256 << 20
LARGEST = 4 * LARGEST_LINE
"""Bytes of all files of an archive."""
_SLICE = 500
SHOWN = 40
_MUCH = 20_000
"""Rows from which on a bar is shown."""
_LISTED = ("sessions", "messages", "episodes", "facts", "curated_changes", "skill_changes")
_CONFIG = "config.yaml"
_JOINED = ("content", "parts", "tool_calls", "reasoning", "sent", "sent_parts", "extra")
"""Columns of messages whose long texts the database keeps apart."""
_THERE = "session IN (SELECT key FROM sessions WHERE deleted IS NULL)"
_TALK = "conversation NOT IN (SELECT conversation FROM sessions WHERE deleted IS NOT NULL)"
_ONLY = {
    "sessions": "deleted IS NULL",
    **dict.fromkeys(("messages", "import_keys", "import_parts"), _THERE),
    **dict.fromkeys(("episodes", "session_states", "reviews", "compression_tries"), _TALK),
    "episode_terms": f"episode IN (SELECT id FROM episodes WHERE {_TALK})",
}
"""Conditions for the rows that are written: nothing of deleted sessions."""

Progress = Callable[[int, int], None]


class ExportedTable(NamedTuple):
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    either: frozenset[str] = frozenset()
    """Columns that hold text or bytes."""


@cache
def tables() -> dict[str, ExportedTable]:
    """Return every table of herma.db that an archive holds, in the order in which rows may refer to earlier ones."""
    found: dict[str, ExportedTable] = {}
    with closing(our_schema()) as schema:
        listed = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
        for (name,) in schema.rows(listed):
            columns = schema.rows("SELECT name, pk, type FROM pragma_table_info(?)", (name,))
            keys = tuple(column for column, pk, _ in sorted(columns, key=lambda one: one[1]) if pk)
            either = frozenset(column for column, _, kind in columns if kind == "ANY")
            if name not in LEFT_OUT:
                found[name] = ExportedTable(tuple(column for column, _, _ in columns), keys, either)
    return found


@dataclass
class Exported:
    """The contents of an archive."""

    path: Path
    size: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


# ── writing ──


def write_export(app: Herma, target: Path, *, dry_run: bool = False, progress: Progress | None = None) -> Exported:
    """Write an archive of the whole home to a new file, or count what it would hold. All of it is of one moment."""
    done = Exported(target)
    if target.exists():
        raise UsageError(f"{target} exists already; nothing was written.", hint="Choose another name.")
    app.skills.listing()  # fetches what other hosts have changed
    app.memory.changes(limit=1)  # records what was edited by hand, so that files and history agree
    with ExitStack() as stack:
        with backup.files_held(app.home, app.settings.memory.lock_timeout):
            stack.enter_context(app.db.snapshot())
            for name in tables():
                rows = app.db.row(f"SELECT count(*) FROM {name} WHERE {_ONLY.get(name, 'true')}")
                done.rows[name] = int(rows[0]) if rows else 0
            files = dict(_files(app.home, done.left_out))
            if app.settings.store.url:  # the documents are rows
                with TemporaryDirectory() as folder:
                    write_documents(app.db, Path(folder))
                    files |= dict(_files(Path(folder), []))
        done.files = sorted(files)
        deleted = app.db.row("SELECT count(*) FROM sessions WHERE deleted IS NOT NULL")
        if deleted and deleted[0]:
            done.left_out.append(f"deleted sessions ({deleted[0]})")
        if not done.files and not any(done.rows.values()):
            raise UsageError(f"There is nothing in {app.home} to export.", hint="Is it the right home?")
        if dry_run:
            return done
        partial = target.with_name(f".{target.name}.part")
        try:
            with backup.failing(target), zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
                partial.chmod(0o600)
                _fill(app, archive, done, files, progress)
            sync_file(partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)
    done.size = target.stat().st_size
    return done


def _fill(
    app: Herma, archive: zipfile.ZipFile, done: Exported, files: Mapping[str, bytes], progress: Progress | None
) -> None:
    about = {"type": "herma", "format": FORMAT, "version": VERSION, "database": DATABASE_VERSION}
    about |= {"herma": herma.__version__, "created": app.clock(), "profile": app.settings.profile}
    about |= {"rows": done.rows, "files": done.files, "left_out": done.left_out}
    archive.writestr(MANIFEST, json.dumps(about, ensure_ascii=False, indent=1))
    for name, data in sorted(files.items()):
        entry = zipfile.ZipInfo(f"files/{name}", time.localtime(app.clock())[:6])
        runs = (app.home / name).exists() and (app.home / name).stat().st_mode & 0o100
        entry.external_attr, entry.compress_type = (0o700 if runs else 0o600) << 16, zipfile.ZIP_DEFLATED
        archive.writestr(entry, data)
    total, written = sum(done.rows.values()), 0
    for name in tables():
        with archive.open(f"tables/{name}.jsonl", "w", force_zip64=True) as member:
            for line in rows_as_lines(app, name):
                member.write(line)
                written += 1
                if progress and not written % _SLICE:
                    progress(written, total)


def rows_as_lines(app: Herma, name: str) -> Iterator[bytes]:
    """Yield the rows of a table as JSON. Long texts that the database keeps apart stand in their place."""
    table = tables()[name]
    keys, only = ", ".join(table.keys), _ONLY.get(name, "true")
    columns = ", ".join(dict.fromkeys((*table.keys, *table.columns)))
    joined = [column for column in _JOINED if name == "messages"]
    last: tuple[Any, ...] = ()
    while True:

        def some(db: DatabaseConnection, after: tuple[Any, ...] = last, name: str = name) -> list[dict[str, Any]]:
            behind = f" AND ({keys}) > ({', '.join('?' * len(after))})" if after else ""
            sql = f"SELECT {columns} FROM {name} WHERE {only}{behind} ORDER BY {keys} LIMIT ?"
            rows = db.rows(sql, (*after, _SLICE))
            found = [dict(zip(columns.split(", "), row, strict=True)) for row in rows]
            text = texts(db, [row[column] for row in found for column in joined])
            return [row | {column: text(row[column]) for column in joined} for row in found]

        nothing: list[dict[str, Any]] = []
        for value in (rows := app.db.read(some, nothing)):
            if name == "sessions" and value["prompt"] is not None:
                value["prompt"] = app.transcripts.system_prompt(value["id"])
            yield _line({key: int(one) if isinstance(one := value[key], bool) else one for key in table.columns})
        if len(rows) < _SLICE:
            return
        last = tuple(rows[-1][key] for key in table.keys)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, default=_odd, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _odd(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    raise TypeError(type(value).__name__)


def _files(home: Path, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a home by name: memory, skills, persona, settings and providers' settings without secrets."""
    for folder in FOLDERS:
        for file in sorted((home / folder).rglob("*")):
            if file.is_symlink() or not file.is_file() or file.suffix in (".lock", ".tmp"):
                left_out += [f"{file.relative_to(home)} (a link)"] if file.is_symlink() else []
            else:
                yield file.relative_to(home).as_posix(), file.read_bytes()
    for name in ("SOUL.md", _CONFIG, *(f"{provider}.json" for provider in PROVIDERS)):
        if (home / name).is_file():
            data = (home / name).read_bytes()
            yield name, data if name == "SOUL.md" else _without_secrets(name, data, left_out)
    left_out += [f"{name} (secrets)" for name in (".env",) if (home / name).exists()]
    left_out += [f"{name}/" for name in ("backups", "plugins", "migration") if (home / name).is_dir()]


def _without_secrets(name: str, data: bytes, left_out: list[str]) -> bytes:
    """Return settings without values that are secret by their name or their shape; comments stay."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()  # JSON is YAML
    try:
        root = json.loads(data) if name.endswith(".json") else yaml.load(data.decode("utf-8"))
    except (ValueError, YAMLError):
        left_out.append(f"{name} (it cannot be read)")
        return b""
    gone: list[str] = []

    def drop(value: Any, path: str) -> None:
        for key, inner in list(value.items()) if isinstance(value, dict) else enumerate(value):
            here = f"{path}.{key}" if path else str(key)
            if isinstance(inner, dict | list):
                drop(inner, here)
            elif masked(inner, str(key) if isinstance(value, dict) else path.rpartition(".")[2]) != inner:
                gone.append(here)
                value[key] = None
        for key in [key for key in value if value[key] is None] if isinstance(value, dict) else ():
            del value[key]

    if isinstance(root, dict | list):
        drop(root, "")
    left_out += [f"{name}: {path} (secret)" for path in gone]
    if not gone:
        return data
    if name.endswith(".json"):
        return json.dumps(root, indent=2, ensure_ascii=False).encode()
    made = io.BytesIO()
    yaml.dump(root, made)
    return made.getvalue()


# ── reading back ──


@dataclass
class ReadBack:
    """The rows and files read back from an archive. `exact`: the home had no rows, and is now what the archive says."""

    exact: bool
    rows: dict[str, int] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    sessions: int = 0
    messages: int = 0
    skills: int = 0
    proposals: int = 0
    kept: list[str] = field(default_factory=list)
    """Parts that exist already and were not replaced."""
    left_out: list[str] = field(default_factory=list)
    batch: int = 0
    """The number of the import in the log; 0 for an exact one."""


def is_export(path: Path) -> bool:
    """Return whether a file is an archive that `export` wrote, of any version."""
    if not path.is_file() or not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MANIFEST) as member:
            about = json.loads(member.read(1 << 24))
        return isinstance(about, dict) and (about.get("type"), about.get("format")) == ("herma", FORMAT)
    except (KeyError, ValueError, OSError, zipfile.BadZipFile):
        return False


def read_back(app: Herma, path: Path, *, dry_run: bool = False, progress: Progress | None = None) -> ReadBack:
    """Read an archive into this home: exactly into one without rows, else beside what is there."""
    with zipfile.ZipFile(path) as archive:
        about = _checked(archive, path)
        names = [one.filename for one in archive.infolist() if _is_file(one, path)]
        if sum(archive.getinfo(name).file_size for name in names) > LARGEST:
            raise UsageError(f"{path}: its files are larger than {size(LARGEST)} together; nothing was imported.")
        files = {name.removeprefix("files/"): archive.read(name) for name in names}
        differing = [name for name, data in files.items() if _differs(app.home / name, data)]
        exact = not _any_rows(app) and not any(name.startswith(tuple(FOLDERS)) for name in differing)
        done = ReadBack(exact, rows=about["rows"], left_out=list(about["left_out"]))
        if exact:
            done.kept = differing
            done.files = [name for name in files if name not in differing]
            done.sessions, done.messages = about["rows"].get("sessions", 0), about["rows"].get("messages", 0)
            if not dry_run:
                _restore(app, archive, path, about, {name: files[name] for name in done.files}, progress)
                app.index.written(done.messages)
            return done
        with tempfile.TemporaryDirectory(prefix="herma-") as folder:
            _merge(app, archive, files, Path(folder), done, path, dry_run=dry_run)
        return done


def _checked(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    """Return the manifest, after every line was read and counted; `UsageError` says what is wrong with which."""
    with archive.open(MANIFEST) as member:
        about: dict[str, Any] = json.loads(member.read(1 << 24))
    if not isinstance(version := about.get("version"), int) or not isinstance(about.get("rows"), dict):
        raise UsageError(f"{path}: its manifest is damaged; nothing was imported.")
    if version > VERSION or int(about.get("database", 0)) > DATABASE_VERSION:
        raise UsageError(
            f"{path} was written by a newer Herma ({about.get('herma')}); nothing was imported.", hint="Upgrade first."
        )
    for name, number in about["rows"].items():
        found = sum(1 for _ in _records(archive, name, path)) if name in tables() else number
        if found != number:
            raise UsageError(f"{path}: {name} has {found:,} rows, not {number:,}; nothing was imported.")
    return {"left_out": [], "profile": "", **about}


def _records(archive: zipfile.ZipFile, name: str, path: Path | str = "") -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, one at a time."""
    try:
        with archive.open(f"tables/{name}.jsonl") as member:
            for number, line in enumerate(iter(lambda: member.readline(LARGEST_LINE), b""), 1):
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    raise UsageError(f"{path}: line {number:,} of {name} is not an object; nothing was imported.")
                yield {
                    key: b64decode(one["base64"]) if isinstance(one, dict) and set(one) == {"base64"} else one
                    for key, one in row.items()
                }
    except (KeyError, zipfile.BadZipFile, EOFError, OSError) as exc:
        raise UsageError(f"{path}: {name} cannot be read ({exc}); nothing was imported.") from exc


def _is_file(member: zipfile.ZipInfo, path: Path) -> bool:
    """Return whether a member is a file of the home; refuse what would be written elsewhere, or is far too large."""
    name = member.filename
    if not name.startswith("files/") or name.endswith("/"):
        return False
    inner = PurePosixPath(name.removeprefix("files/"))
    alone = inner.name in ("SOUL.md", _CONFIG, *(f"{provider}.json" for provider in PROVIDERS))
    safe = str(inner) == name.removeprefix("files/") and not {"..", ""} & set(inner.parts) and not inner.is_absolute()
    safe = safe and member.file_size <= LARGEST_LINE
    if not safe or "\\" in name or ":" in name or not (inner.parts[0] in FOLDERS or (len(inner.parts) == 1 and alone)):
        raise UsageError(f"{path}: {name!r} is not a file of a home; nothing was imported.")
    return True


def _differs(file: Path, data: bytes) -> bool:
    return file.exists() and (not file.is_file() or file.read_bytes() != data)


def _any_rows(app: Herma) -> bool:
    return any(app.db.row(f"SELECT 1 FROM {name} LIMIT 1") for name in tables())


def _restore(
    app: Herma,
    archive: zipfile.ZipFile,
    path: Path,
    about: Mapping[str, Any],
    files: Mapping[str, bytes],
    progress: Progress | None,
) -> None:
    """Write files, then all rows in one transaction: cut off in between, the next import finds the same files."""
    made = [name for name in files if not (app.home / name).exists()]
    try:
        for name, data in files.items():
            make_folder((app.home / name).parent)
            replace_file(app.home / name, data)
            if archive.getinfo(f"files/{name}").external_attr >> 16 & 0o100:
                (app.home / name).chmod(0o700)
        app.db.write(lambda connection: _restore_rows(connection, archive, about, app, progress))
    except (StoreError, KeyError, TypeError, ValueError) as exc:
        for name in made:
            (app.home / name).unlink(missing_ok=True)
        raise UsageError(f"{path} is damaged ({exc}); nothing was imported.") from exc


def _restore_rows(
    connection: DatabaseConnection,
    archive: zipfile.ZipFile,
    about: Mapping[str, Any],
    app: Herma,
    progress: Progress | None,
) -> None:
    """Insert every row with its own id, in one transaction."""
    total, done = sum(about["rows"].values()), 0
    for name, table in tables().items():
        if not about["rows"].get(name):
            continue
        profiles = {about["profile"]: app.settings.profile}
        batch: list[dict[str, Any]] = []
        highest = 0
        for row in _records(archive, name):
            values = {column: row[column] for column in table.columns if column in row}
            if "profile" in values:  # what belongs to the home's own profile belongs to that of this home
                values["profile"] = profiles.get(values["profile"], values["profile"])
            for column in table.either & values.keys():
                values[column] = Blob(one) if isinstance(one := values[column], bytes) else one
            if name == "sessions" and values.get("prompt") is not None:
                values["prompt"] = payload_id(connection, payload(values["prompt"]))
            if batch and (batch[0].keys() != values.keys() or len(batch) >= _SLICE):
                _insert(connection, name, batch)
                batch = []
            batch.append(values)
            done += 1
            if progress and not done % _SLICE:
                progress(done, total)
            if isinstance(newest := values.get(table.keys[0]), int) and len(table.keys) == 1:
                highest = max(highest, newest)
        _insert(connection, name, batch)
        if highest and (counted := connection.queries("privacy.export").get("counted")):
            connection.run(counted, {"name": name, "last": highest})


def _insert(connection: DatabaseConnection, name: str, rows: Sequence[dict[str, Any]]) -> None:
    uses: list[tuple[int, int]] = []
    for row in rows if name == "messages" else ():
        used: set[int] = set()
        for column in _JOINED:
            if row.get(column) is not None:
                row[column] = stored_value(connection, cell(row[column]), used)
        uses += [(one, row["id"]) for one in sorted(used)]
    columns = list(rows[0])
    places = ", ".join(f":{column}" for column in columns)
    connection.run_many(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({places})", rows)
    if name == "messages":
        connection.run_many(connection.queries("transcript.messages")["use"], uses)
        added = connection.queries("transcript.messages")["change"]
        first = previous = rows[0]["id"]
        for number in [*(row["id"] for row in rows[1:]), None]:
            if number != previous + 1:
                connection.run(added, {"first": first, "count": previous - first + 1})
                first = number
            previous = number


# ── beside what is there ──


def _merge(
    app: Herma,
    archive: zipfile.ZipFile,
    files: Mapping[str, bytes],
    folder: Path,
    done: ReadBack,
    path: Path,
    *,
    dry_run: bool,
) -> None:
    lines = folder / "transcripts.jsonl"
    with lines.open("w+b") as file:
        _write_transcripts(archive, file)
        report = Importer(app.transcripts, clock=app.clock).run(file, path.name, dry_run=dry_run)
    done.sessions, done.messages = len(report.imported), report.messages
    done.kept += [f"session {one.id}{' (deleted)' * one.deleted}" for one in report.skipped]
    if report.imported and not dry_run:
        done.batch = ImportRows(app.db).record(app.clock(), "herma", report.imported, report.messages)
        app.index.written(report.messages)
    _merge_skills(app, files, folder, done, dry_run=dry_run)
    newest = {
        (row["target"], row["project"], row["user"]): row["after_text"]
        for row in _records(archive, "curated_changes")
        if row["state"] != "void"
    }
    author = Author(Who.IMPORT, Origin.IMPORT)
    waiting = {pending.id for pending in app.memory.pending()}
    for (target, project, user), text in newest.items():
        scope = Scope(project=project, user=user)
        known = set(app.memory.entries(target, scope=scope))
        for entry in parse(text):
            if entry in known:
                continue
            if dry_run:
                done.proposals += 1
                continue
            outcome = app.memory.propose(
                target, Add(entry), scope=scope, author=author, reason=f"from {path}", although_full=True
            )
            done.proposals += isinstance(outcome, Staged) and outcome.pending not in waiting
    done.kept += [name for name, data in files.items() if "/" not in name and _differs(app.home / name, data)]
    done.left_out += ["histories, facts, costs and decisions of the other home; episodes are built again"]


def _merge_skills(app: Herma, files: Mapping[str, bytes], folder: Path, done: ReadBack, *, dry_run: bool) -> None:
    for name, data in files.items():
        if name.startswith("skills/"):
            make_folder((folder / name).parent)
            (folder / name).write_bytes(data)
    for document in sorted((folder / "skills").rglob("SKILL.md")):
        place = document.parent.relative_to(folder / "skills")
        if any(part.startswith(".") for part in place.parts) or _differs(app.home / "skills" / place / "SKILL.md", b""):
            done.kept += [] if place.parts[0].startswith(".") else [f"skill {place.name}"]
            continue
        category = place.parent.as_posix() if len(place.parts) > 1 else ""
        outcomes = [one.outcome for one in app.skills.install(document.parent, category=category, rehearsal=dry_run)]
        installed = not any(isinstance(outcome, SkillRefused) for outcome in outcomes)
        done.skills += installed
        done.kept += [] if installed else [f"skill {place.name}: {getattr(outcomes[0], 'message', '')}"]


def _write_transcripts(archive: zipfile.ZipFile, file: BinaryIO) -> None:
    """Write the sessions and messages of an archive as `herma sessions export` writes them."""

    def put(value: Mapping[str, Any]) -> None:
        kept = {name: one for name, one in value.items() if one is not None and one != ""}
        file.write(json.dumps(kept, ensure_ascii=False).encode() + b"\n")

    put({"type": "herma", "format": TRANSCRIPTS, "version": TRANSCRIPTS_VERSION})
    ids: dict[int, str] = {}
    plain = ("id", "source", "started", "reason", "parent", "title", "model", "ended", "end_reason")
    for row in _records(archive, "sessions"):
        ids[row["key"]] = row["id"]
        usage = {name: row[f"{name}_tokens"] for name in ("input", "output", "cache_read", "cache_write", "reasoning")}
        value = {
            "type": "session",
            **{name: row[name] for name in plain},
            "usage": usage | {"cost_usd": row["cost_usd"]},
        }
        value |= {name: row[name] for name in ("project", "user", "chat", *SessionMetadata.__annotations__)}
        put({**value, "archived": bool(row["archived"]), "system_prompt": row["prompt"]})
    for row in _records(archive, "messages"):
        value = {"type": "message", "session": ids[row["session"]], "role": row["role"], "timestamp": row["timestamp"]}
        value |= {name: row[name] for name in ("tool_call_id", "tool_name", "reasoning", "told", "tokens")}
        value |= {"finish_reason": row["finish_reason"], "hidden": row["hidden"]}
        for name, parts in (("content", "parts"), ("sent", "sent_parts")):
            value[name] = row[name] if row[parts] is None else json.loads(row[parts])
        value |= {name: json.loads(row[name]) for name in ("tool_calls", "extra") if row[name]}
        put(value)


def default_name(now: float) -> str:
    return time.strftime("herma-export-%Y%m%d-%H%M%S.zip", time.localtime(now))


# ── commands ──


@contextmanager
def bar(context: CommandContext, label: str, *, least: int = _MUCH, unit: int = 1) -> Iterator[Progress]:
    """Show a bar, counted in units, once it is known that there is much to do."""
    shown: list[Callable[[int], None]] = []

    def report(done: int, total: int) -> None:
        if not shown and total >= least:
            shown.append(stack.enter_context(context.progress(label, total // unit)))
        for one in shown:
            one(done // unit)

    with ExitStack() as stack:
        yield report


@click.command("export", cls=HermaCommand)
@click.argument("file", required=False, type=click.Path(path_type=Path))
@dry_run_option
@with_home
def export_(context: CommandContext, file: Path | None, dry_run: bool) -> None:
    """Write everything into one zip file: memory and its history, sessions, episodes, facts, skills and settings.

    `herma import FILE` reads it back: exactly into an empty home, beside what is there into any other. Credentials,
    deleted sessions and the search index are left out. Without FILE, the file is named after the time.

    \b
    Examples:
      herma export
      herma export ~/herma.zip --dry-run
    """
    for_people_only("Exporting everything")
    target = (file or Path(default_name(time.time()))).expanduser().absolute()
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent}; nothing was written.", hint="Make the folder first.")
    with bar(context, "Exporting rows") as report:
        done = write_export(context.h, target, dry_run=dry_run, progress=report)
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, **asdict(done), "path": str(target)})
    held = [f"{done.rows[name]:,} {name.replace('_', ' ')}" for name in _LISTED if done.rows.get(name)]
    held.append(count(len(done.files), "file"))
    context.line(f"{'Would write' if dry_run else 'Wrote'} {target}" + (f" ({size(done.size)})." if done.size else "."))
    context.line(f"It has {', '.join(held)}.".replace("It has", "It would have" if dry_run else "It has"))
    for name in done.left_out:
        context.line(f"  left out: {name}")


def read_everything(context: CommandContext, path: Path, *, dry_run: bool) -> None:
    """Read an archive of `herma export` for `herma import`."""
    with bar(context, "Importing rows") as report:
        done = read_back(context.h, path, dry_run=dry_run, progress=report)
    if not dry_run:
        index_imported(context)
    undo = f"i{done.batch}" if done.batch else None
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, **asdict(done), "undo": undo})
    verb = "would read" if dry_run else "read"
    if done.exact:
        files = count(len(done.files), "file")
        context.line(f"{path}: {verb} everything into this home: {sum(done.rows.values()):,} rows and {files}.")
    else:
        context.line(
            f"{path}: {verb} {count(done.messages, 'message')} in {count(done.sessions, 'new session')}, "
            f"{count(done.skills, 'skill')}; {count(done.proposals, 'entry')} of memory for the inbox."
        )
        context.line("  This home has rows already, so its own history stays.")
    for names, text in ((done.kept, "is here already, kept as it is"), (done.left_out, "not in the archive")):
        for name in names[:SHOWN]:
            context.line(f"  {text}: {name}")
        if len(names) > SHOWN:
            context.line(f"  and {len(names) - SHOWN:,} more (--json lists all)")
    if undo:
        context.line(f"To undo the sessions: {context.command('undo', undo)}")
