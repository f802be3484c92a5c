"""`herma doctor`, `herma backup` and `herma db`: check, repair, back up, and copy to a PostgreSQL server."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from herma.app import Herma
from herma.cli.context import (
    CommandContext,
    HermaCommand,
    HermaGroup,
    completing,
    for_people_only,
    pass_context,
    yes_option,
)
from herma.cli.encode import diagnosis_json, encode, iso
from herma.cli.output import count, size, verdict
from herma.config import Settings, resolve_home
from herma.errors import ConfigError, StoreError, UsageError
from herma.memory.entries import Place
from herma.memory.files import documents_of, write_documents
from herma.skills.rows import SharedSkills
from herma.store import open_database
from herma.store.archive import DATABASE
from herma.store.database import Blob, Database, DatabaseConnection, Row
from herma.store.files import make_folder, sync_file
from herma.store.sqlite import SqliteConnection, SqliteDatabase, our_schema

if TYPE_CHECKING:
    from herma.doctor.checks import Check, Diagnosis
    from herma.doctor.repair import Fix, Mended
    from herma.store.archive import Backup
    from herma.store.salvage import Salvaged


# ── doctor ──

_SIGNS = {"ok": "ok", "note": "note", "warning": "warning", "problem": "PROBLEM"}
_AT_MOST = 20
_DOING = {
    "restore": "Restoring",
    "repair": "Repairing",
    "database": "Salvaging",
    "permissions": "Permissions",
    "leftovers": "Tidying",
    "index": "Indexing",
}


@click.command(cls=HermaCommand)
@click.option("--full", is_flag=True, help="Check every stored text, not only the newest.")
@click.option("--repair", is_flag=True, help="Repair what can be repaired, after a confirmation.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what would be done.")
@yes_option
@pass_context
def doctor(context: CommandContext, full: bool, repair: bool, dry_run: bool) -> None:
    """Check that everything works, and repair what does not.

    Every line says what was found and, if something is wrong, what to type. Checking changes nothing.

    --repair copies every readable row of a damaged herma.db into a new one, keeps the damaged file, lists what could
    not be read, corrects permissions and removes what interrupted work left. No other program may have the home open
    meanwhile.

    Exit code 0 means healthy, 1 that there are problems.

    \b
    Examples:
      herma doctor
      herma doctor --full --json
      herma doctor --repair --dry-run
      herma doctor --repair
    """
    from herma.doctor.checks import diagnose

    home = resolve_home(context.home, context.profile)
    settings = _settings(context)
    if not repair:
        diagnosis = diagnose(home, settings, full=full)
        _show(context, diagnosis)
        context.exit(0 if diagnosis.healthy else 1)
    _repair(context, home, settings, full=full, dry_run=dry_run)


def _settings(context: CommandContext) -> Settings | None:
    """Return the settings; `None` if the configuration is broken, which is one of the checks."""
    try:
        return context.settings(warn=False)
    except ConfigError:
        return None


def _show(context: CommandContext, diagnosis: Diagnosis) -> None:
    if context.json:
        context.print_json(diagnosis_json(diagnosis))
        return
    context.table(
        ("", "what", "found"),
        [(_SIGNS[check.state], check.name, _with_next(context, check)) for check in diagnosis.checks],
    )
    context.line()
    context.line(verdict(diagnosis))


def _with_next(context: CommandContext, check: Check) -> str:
    return f"{check.sentence} → {context.here(check.next)}" if check.next and check.state != "ok" else check.sentence


def _repair(context: CommandContext, home: Path, settings: Settings | None, *, full: bool, dry_run: bool) -> None:
    from herma.doctor.checks import diagnose
    from herma.doctor.repair import mend, plan

    timeout = settings.memory.lock_timeout if settings else 10.0
    done: list[Mended] = []
    fixes = plan(home, full=full)
    if fixes and not dry_run:
        _print_plan(context, fixes)
        if not context.confirm("Do all of this?"):
            context.declined()
        for fix in fixes:
            with context.progress(_DOING[fix.kind]) as report:
                done.append(mend(home, fix, lock_timeout=timeout, progress=report))
            _tell(context, done[-1])
    diagnosis = diagnose(home, settings, full=full)
    if context.json:
        context.print_json(
            {
                "ok": diagnosis.healthy or dry_run,
                "dry_run": dry_run,
                "plan": [{"kind": fix.kind, "what": fix.sentence, "paths": fix.paths} for fix in fixes],
                "done": [_mended_json(each) for each in done],
                "healthy": diagnosis.healthy,
                "problems": [dataclasses.asdict(check) for check in diagnosis.of("problem")],
            }
        )
    elif dry_run and fixes:
        _print_plan(context, fixes)
        context.line("Nothing was changed.")
    elif not fixes:
        context.line("There is nothing to repair." if diagnosis.healthy else "Nothing can be repaired automatically.")
    for check in () if dry_run else diagnosis.of("problem"):
        context.line(f"Still a problem: {check.name}: {_with_next(context, check)}")
    context.exit(0 if diagnosis.healthy or dry_run else 1)


def _print_plan(context: CommandContext, fixes: list[Fix]) -> None:
    for number, fix in enumerate(fixes, 1):
        context.line(f"{number}. {fix.sentence}")


def _tell(context: CommandContext, mended: Mended) -> None:
    context.line(mended.sentence)
    if mended.kept:
        context.line(f"  The damaged file is kept: {mended.kept}")
    if mended.salvaged is not None:
        _tell_losses(context, mended.salvaged)


def _tell_losses(context: CommandContext, salvaged: Salvaged) -> None:
    """List what could not be read, as far as the file shows it."""
    for table in salvaged.tables:
        if table.lost:
            where = f" (rows {_ranges(table.missing)})" if table.missing else ""
            context.line(f"  {table.table}: {table.kept:,} kept, {table.lost:,} lost{where}")
        if table.mended:
            context.line(
                f"  {table.table}: a part of the text is missing or was repaired in rows {_ranges(table.mended)}"
            )
    for loss in salvaged.sessions[:_AT_MOST]:
        what = f"{count(loss.missing, 'message')} missing" + (f" ({_ranges(loss.messages)})" if loss.messages else "")
        context.line(f"  session {loss.session_id}: {what}" + ("; its own row is gone" if loss.stand_in else ""))
    if len(salvaged.sessions) > _AT_MOST:
        context.line(f"  and {len(salvaged.sessions) - _AT_MOST} more sessions; --json lists them all")
    for note in salvaged.notes:
        context.line(f"  {note}")


def _ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    shown = ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in ranges[:_AT_MOST])
    return shown + (", …" if len(ranges) > _AT_MOST else "")


def _mended_json(mended: Mended) -> dict[str, Any]:
    salvaged = mended.salvaged
    return {
        "kind": mended.fix.kind,
        "what": mended.sentence,
        "kept": mended.kept,
        "salvaged": None if salvaged is None else encode(salvaged, complete=salvaged.complete),
    }


# ── backup ──


@click.group(cls=HermaGroup)
def backup() -> None:
    """Create, verify and restore backups of everything.

    Each is one file with the database, memories, skills and configuration. It does not contain the search index, which
    is rebuilt, nor secrets (.env), unless you add --with-secrets.

    \b
    Examples:
      herma backup create
      herma backup list
      herma backup restore latest --dry-run

    \b
    With --json each command prints ok and the backup or backups it is about. Times are ISO 8601 in UTC.
    """


def _complete_backup(context: CommandContext, typed: str) -> list[tuple[str, str]]:
    from herma.store import archive

    return [
        (one.name, _age(one))
        for one in archive.listing(context.settings(warn=False).home)
        if one.name.startswith(typed)
    ]


backup_argument = click.argument("name", shell_complete=completing(_complete_backup))


def _home(context: CommandContext) -> Path:
    if context.settings(warn=False).store.url:
        raise UsageError(
            "The memory of this home is on a PostgreSQL server, which `herma backup` does not copy.",
            hint="Copy the server with pg_dump --schema=herma, or into a SQLite home with: herma db copy",
        )
    return resolve_home(context.home, context.profile)


@backup.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--name", default="", help="Name of the backup. One with a name is never deleted by --keep.")
@click.option("--with-secrets", is_flag=True, help="Include .env.")
@click.option("--keep", type=click.IntRange(1), help="Then delete all but the newest KEEP backups without a name.")
@pass_context
def create(context: CommandContext, path: Path | None, name: str, with_secrets: bool, keep: int | None) -> None:
    """Create a backup, also while other programs write, in backups/ or at PATH (a folder, or a new file).

    --keep deletes in the folder that the new one goes to; in another folder than backups/ only backups of this home.

    \b
    Examples:
      herma backup create
      herma backup create --name before-upgrade
      herma backup create /mnt/usb --keep 7
    """
    from herma.store import backup as backups

    if keep and path is not None and not path.is_dir():
        raise UsageError(f"--keep needs a folder, and {path} is not one.", hint="Name a folder, or leave out --keep.")
    with context.progress("Copying") as report:
        made = backups.create(_home(context), path, name=name, with_secrets=with_secrets, progress=report)
    gone = backups.prune(_home(context), keep, beside=made if path else None) if keep else []
    if made.manifest and made.manifest.damage:
        context.warn(
            f"The database is damaged ({made.manifest.damage}), and so is its copy. "
            f"Run: {context.command('doctor', '--repair')}"
        )
    for skipped in made.manifest.skipped if made.manifest else ():
        context.warn(f"{skipped} is not in the backup: it is a link to a folder, not an ordinary file, or damaged.")
    with context.open() as h:
        for outside in h.providers.outside():
            context.warn(f"{outside} belongs to {h.providers.active} and is outside of the home: not in the backup.")
    if context.json:
        pruned = [each.name for each in gone]
        context.print_json({"ok": made.verified is not None, "backup": _json(made), "pruned": pruned})
    good = "verified" if made.verified else "which cannot be restored as it is"
    context.line(f"{made.path} ({size(made.size)}; {_counts(made)}), {good}.")
    for each in gone:
        context.line(f"Deleted the old backup {each.name}.")
    context.exit(0 if made.verified else 1)


@backup.command("list")
@pass_context
def list_(context: CommandContext) -> None:
    """List the backups, newest first.

    \b
    Examples:
      herma backup list
      herma backup list --json
    """
    from herma.store import archive

    known = archive.listing(_home(context))
    if context.json:
        context.print_json({"ok": True, "backups": [_json(each) for each in known]})
        return
    if not known:
        context.line(f"There is no backup yet. To create one: {context.command('backup', 'create')}")
        return
    rows = [(each.name, _age(each), size(each.size), _counts(each), _trust(each)) for each in known]
    context.table(("name", "age", "size", "holds", "verified"), rows)


@backup.command()
@backup_argument
@pass_context
def verify(context: CommandContext, name: str) -> None:
    """Verify a backup: the hash of every file, and the database's own checks.

    NAME is an entry of `herma backup list` (or its beginning), its --name, "latest", or a file.

    \b
    Examples:
      herma backup verify latest
      herma backup verify /mnt/usb/20260101-120000.tar.zst
    """
    from herma.store import backup as backups

    with context.progress("Reading") as report:
        chosen = backups.find(_home(context), name)
        trouble = backups.verify(chosen, report)
    if context.json:
        context.print_json({"ok": not trouble, "backup": _json(chosen), "trouble": trouble})
    elif not trouble:
        context.line(f"{chosen.name} is good: {_counts(chosen)}.")
    for each in trouble:
        context.line(f"{chosen.name} is not good: {each}.")
    context.exit(1 if trouble else 0)


@backup.command()
@backup_argument
@click.option("--dry-run", is_flag=True, help="Only check it and show what would be replaced.")
@yes_option
@pass_context
def restore(context: CommandContext, name: str, dry_run: bool) -> None:
    """Restore a backup. It replaces everything and never merges.

    The present state is backed up first (before-restore). No other program may have the home open meanwhile.

    \b
    Examples:
      herma backup restore latest --dry-run
      herma backup restore before-upgrade
    """
    from herma.store import backup as backups
    from herma.store.backup import restore as put_back

    home = _home(context)
    chosen = backups.find(home, name)
    if not dry_run:
        for_people_only("restoring a backup")
        if not context.confirm(f"Replace everything in {home} with {chosen.name} ({_counts(chosen)})?"):
            context.declined()
    with context.progress("Reading") as report:
        made = put_back(home, chosen, dry_run=dry_run, progress=report)
    if context.json:
        safety = made.safety.name if made.safety else None
        context.print_json(encode(made, ok=True, backup=_json(chosen), safety=safety))
    would = "Would restore" if dry_run else "Restored"
    context.line(f"{would}: {', '.join(made.replaced)}")
    if made.removed:
        context.line(
            f"{'Would remove' if dry_run else 'Removed'}, as the backup does not have it: {', '.join(made.removed)}"
        )
    if made.safety:
        before = context.command("backup", "restore", made.safety.name)
        context.line(f"To undo the restore: {before}")
    if made.kept:
        context.line(f"The damaged database is kept: {made.kept}")


def _json(each: Backup) -> dict[str, Any]:
    return encode(each, name=each.name, verified=iso(each.verified))


def _age(each: Backup) -> str:
    if each.manifest is None:
        return "?"
    seconds = max(0.0, time.time() - each.manifest.created)
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= length:
            return count(int(seconds // length), unit)
    return "now"


def _counts(each: Backup) -> str:
    if each.manifest is None:
        return each.trouble
    counts = each.manifest.counts
    if not counts:
        return count(len(each.manifest.files), "file")
    return f"{count(counts.get('sessions', 0), 'session')}, {count(counts.get('messages', 0), 'message')}"


def _trust(each: Backup) -> str:
    if each.manifest is None:
        return "cannot be read"
    if each.manifest.damage:
        return "holds a damaged database"
    return time.strftime("%Y-%m-%d", time.localtime(each.verified)) if each.verified else "not yet"


# ── db ──


@click.group(cls=HermaGroup)
def db() -> None:
    """Keep the memory of many hosts on one PostgreSQL server.

    \b
    Examples:
      herma db migrate postgresql://herma@db.example/herma
      herma config set store.url postgresql://herma@db.example/herma
      herma db status
    """


def _address(context: CommandContext, url: str | None) -> str:
    url = url or context.settings().store.url
    if not url:
        raise UsageError(
            "store.url is empty: this memory is in a SQLite file of the home, which needs none of this.",
            hint="Give an address: postgresql://role@host/database",
        )
    return url


@db.command()
@click.argument("url", required=False)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@yes_option
@pass_context
def migrate(context: CommandContext, url: str | None, dry_run: bool) -> None:
    """Create the tables on a server, or bring them to the format of this version.

    The role needs the right to create a schema in its database, and must not be a superuser. Programs of the previous
    release keep running during an upgrade.

    \b
    Examples:
      herma db migrate postgresql://herma@db.example/herma
      herma db migrate --dry-run                         # the server of store.url
    """
    from herma.store.postgres import initialise, status
    from herma.store.postgres import migrate as apply

    url = _address(context, url)
    found = status(url)
    now, needed, made = found["format"], found["needed"], False
    if found["trouble"] and found["remedy"] != "herma db migrate":
        raise UsageError(f"{found['url']}: {found['trouble']}", hint=found["remedy"])
    due = [] if now is None or now >= needed else list(range(now + 1, needed + 1))
    if now is None and not dry_run:
        made, found = initialise(url), status(url)
    elif (found["trouble"] or found["share_vectors"] == "herma db migrate") and not due and not dry_run:
        apply(url)  # of the same format, without the tables of the search index or of vectors
        made, found = True, status(url)
    elif due and not dry_run:
        if not context.confirm(f"Bring {found['url']} from format {now} to {needed}?"):
            context.declined()
        due = apply(url)
    if context.json:
        outcome = {"dry_run": dry_run, "made": made, "before": now, "steps": due}
        context.print_json({"ok": True, **found, **outcome})
    if now is None or made or (found["trouble"] and not due):
        would = "Would create" if dry_run else "Created"
        context.line(f"{would} the tables of Herma in {found['url']}.")
    elif not due:
        context.line(f"Nothing to do: {found['url']} has format {now}.")
    elif dry_run:
        context.line(f"Would bring {found['url']} from format {now} to {needed}. Nothing was changed.")
    else:
        context.line(f"{found['url']} has format {needed} now.")
    if not context.settings().store.url:
        context.line(f"To use them: {context.command('config', 'set', 'store.url', '<the same address>')}")


@db.command()
@click.argument("url", required=False)
@pass_context
def status(context: CommandContext, url: str | None) -> None:
    """Show the server, and whether its tables fit this version.

    \b
    Examples:
      herma db status
      herma db status postgresql://herma@db.example/herma --json
    """
    from herma.store.postgres import status as read

    found = read(_address(context, url))
    if context.json:
        context.print_json({"ok": not found["trouble"], **found})
    context.fields(
        [
            ("address", found["url"]),
            ("server", f"PostgreSQL {found['server']}"),
            ("format", f"{found['format']} of {found['needed']}" if found["format"] else "no tables yet"),
            ("size", f"{size(found['bytes'])}, of all tenants"),
            ("tenant", context.settings().tenant or "none named"),
            (
                "vectors",
                f"on each host; to share them: {found['share_vectors']}" if found["share_vectors"] else "shared",
            ),
        ]
    )
    if found["trouble"]:
        context.line(f"! {found['trouble']} → {found['remedy']}")
        context.exit(1)


@db.command()
@click.argument("source")
@click.argument("target")
@click.option("--dry-run", is_flag=True, help="Only show what would be copied.")
@yes_option
@pass_context
def copy(context: CommandContext, source: str, target: str, dry_run: bool) -> None:
    """Copy a memory from a home to a server, or from a server to a new home, and check every row.

    SOURCE and TARGET are the folder of a home or the address of a server; store.tenant names the tenant. The target
    must be empty. A copy that is interrupted goes on when the command runs again. The source stays as it is.

    \b
    Examples:
      herma db copy ~/.herma postgresql://herma@db.example/herma --dry-run
      herma db copy ~/.herma postgresql://herma@db.example/herma
      herma db copy postgresql://herma@db.example/herma ./home-of-its-own
    """
    ends = [_End(context, place) for place in (source, target)]
    if (ends[0].url == ends[1].url) and (ends[0].url or ends[0].home == ends[1].home):
        raise UsageError("Source and target are the same.", hint="herma db copy ~/.herma postgresql://…")
    with ExitStack() as until:
        database = until.enter_context(ends[0].opened())
        copying = Copying(database, ends[0], ends[1])
        total = copying.count()
        if dry_run:
            if context.json:
                context.print_json({"ok": True, "dry_run": True, "rows": total, "tables": copying.counts})
            context.line(f"Would copy {total:,} rows from {ends[0].shown} to {ends[1].shown}. Nothing was changed.")
            return
        if not context.confirm(f"Copy {total:,} rows from {ends[0].shown} to {ends[1].shown}?"):
            context.declined()
        with context.progress("Copying and checking rows", 2 * total) as report:
            copied = copying.run(report)
    if context.json:
        context.print_json({"ok": True, "rows": total, "written": copied, "tables": copying.counts})
    context.line(
        f"{total:,} rows are in {ends[1].shown}, each compared with its original; {copied:,} were written now."
    )


class _End:
    """A home or a tenant on a server, as the source or the target of a copy."""

    def __init__(self, context: CommandContext, place: str) -> None:
        self.settings = context.settings()
        self.url = place if "://" in place else ""
        self.home = self.settings.home if self.url else Path(place).expanduser().absolute()
        if not self.url and not self.home.parent.is_dir():
            raise UsageError(f"{place} is neither a folder nor an address of a server.")
        store = replace(self.settings.store, url=self.url)
        self.settings = replace(self.settings, home=self.home, store=store)
        self.shown = str(self.home)
        if self.url:
            from herma.store.postgres import shown

            self.shown = (
                f"{shown(self.url)} (tenant {self.settings.tenant!r})" if self.settings.tenant else shown(self.url)
            )

    @contextmanager
    def opened(self) -> Iterator[Database]:
        """Open the source. In a home, edits by hand are recorded first: the rows are what is copied."""
        if self.url:
            with closing(open_database(self.settings)) as database:
                yield database
            return
        if not (self.home / DATABASE).exists():
            raise UsageError(f"There is no {DATABASE} in {self.home}.")
        with Herma(self.settings) as h:
            documents = documents_of(h)
            for row in h.db.rows(_PLACES):
                with documents.hold(Place(row[3], *row[:3])):
                    pass
            yield h.db


_PLACES = "SELECT DISTINCT profile, project, user, target FROM curated_changes"
_COPIES = "copying"
_BATCH = 500
_FIRST = ("payloads", "sessions", "messages", "imports")
"""Tables that others refer to."""


class Copying:
    """One copy. Rows are compared by key and written where they differ, so that running it again goes on."""

    def __init__(self, source: Database, start: _End, end: _End) -> None:
        self._source = source
        self._end = end
        self._start = start
        with closing(our_schema()) as schema:
            names = [
                row[0]
                for row in schema.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE%'")
            ]
            names = [name for name in names if not name.startswith("sqlite_")]
            self._tables = {name: _Table.read(schema, name) for name in sorted(names, key=_rank)}
        self.counts: dict[str, int] = {}

    def count(self) -> int:
        """Count the rows to copy."""
        for name in self._tables:
            ((self.counts[name],),) = self._source.rows(f"SELECT count(*) FROM {name}")
        return sum(self.counts.values())

    def run(self, report: Callable[[int, int], None]) -> int:
        """Copy, then compare every row. → how many were written."""
        self._report, self._done, self._written = report, 0, 0
        with self._source.snapshot(), self._target() as target:
            self._claim(target)
            self._copy_skills(target)
            for write in (True, False):
                for table in self._tables.values():
                    self._pass(target, table, write=write)
                if write:
                    self._number(target)
            target.run("DELETE FROM meta WHERE key = ?", (_COPIES,))
        if not self._end.url:
            with Herma(self._end.settings) as h:
                write_documents(h.db, h.home)
        return self._written

    @contextmanager
    def _target(self) -> Iterator[Database]:
        """Open the target. A new home gets its database under its name only when the copy is whole."""
        if self._end.url:
            from herma.store.postgres import PostgresDatabase

            with closing(PostgresDatabase(self._end.url, self._end.settings.tenant, unfinished=True)) as database:
                yield database
            return
        if (self._end.home / DATABASE).exists():
            raise UsageError(
                f"{self._end.home} has a {DATABASE} already; nothing was changed.", hint="Name a new folder."
            )
        make_folder(self._end.home)
        path = self._end.home / f".{DATABASE}.copy"
        with closing(SqliteDatabase(path)) as database:
            yield database
        path.replace(self._end.home / DATABASE)
        sync_file(self._end.home / DATABASE)

    def _claim(self, target: Database) -> None:
        """Mark the target as an unfinished copy of this source; refuse one that holds another memory."""
        ((store_id,),) = self._source.rows("SELECT value FROM meta WHERE key = 'store_id'")
        unfinished = target.row("SELECT value FROM meta WHERE key = ?", (_COPIES,))
        empty = not any(target.row(f"SELECT 1 FROM {name} LIMIT 1") for name in self._tables if name != "meta")
        if unfinished != (store_id,) and not empty:
            raise UsageError(
                f"{self._end.shown} holds another memory; nothing was changed.",
                hint="Choose another tenant: HERMA_STORE_TENANT=… herma db copy …",
            )
        target.run("INSERT INTO meta (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING", (_COPIES, store_id))

    def _pass(self, target: Database, table: _Table, *, write: bool) -> None:
        """Compare a table batch by batch; write what differs, or raise if anything does."""
        after: Row | None = None
        there_after: Row | None = None  # another one where the key has another name there
        while True:
            found = self._source.rows(*table.batch(after))
            rows = [row for row in (table.ready(row) for row in found) if not table.own(row)]
            last = len(found) < _BATCH
            between = table.between(there_after, None if last else table.ready(found[-1]))
            there = {table.key_of(row): row for row in map(table.plain, target.rows(*between)) if not table.own(row)}
            different = [row for row in rows if there.get(table.key_of(row)) != table.plain(row)]
            extra = there.keys() - {table.key_of(row) for row in rows}
            if write and (different or extra):
                target.write(partial(table.put, rows=different, extra=extra, there=set(there)))
                self._written += len(different)
            elif different or extra:
                key = table.key_of(different[0]) if different else next(iter(extra))
                raise StoreError(f"The copy differs from its source in {table.name} {key}.", hint="Run it again.")
            self._done += len(found)
            self._report(self._done, 2 * sum(self.counts.values()))
            if last:
                return
            after, there_after = found[-1], table.ready(found[-1])

    def _number(self, target: Database) -> None:
        """Go on with the numbers of the source, so that none is given twice."""
        last = (
            "SELECT name, last FROM counters"
            if self._source.engine == "postgres"
            else "SELECT name, seq FROM sqlite_sequence"
        )
        given: dict[str, int] = dict(self._source.rows(last))
        for name, table in self._tables.items():
            if not table.number:
                continue
            ((highest,),) = self._source.rows(f"SELECT coalesce(max({table.number}), 0) FROM {name}")
            number = max(highest, given.get(name, 0))
            if target.engine == "postgres":
                target.run("DELETE FROM counters WHERE name = ?", (name,))
                target.run("INSERT INTO counters (name, last) VALUES (?, ?)", (name, number))
            elif name in given and target.run("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, name)) == 0:
                target.run("INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)", (number, name))

    def _copy_skills(self, target: Database) -> None:
        """Send the files of skills to a server, or write them to a new home."""
        with TemporaryDirectory() as folder:
            home = self._end.home if not self._end.url else self._start.home if not self._start.url else Path(folder)
            for url, database in ((self._start.url, self._source), (self._end.url, target)):
                if url:
                    SharedSkills(database, home / "skills", remember=False).compare()


_ALL = "1 = 1"


@dataclass(frozen=True)
class _Table:
    """A table, its columns, and the statements that read it in the order of its key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    mixed: frozenset[int]
    """Columns of text or bytes."""
    number: str
    """The column that is numbered, if there is one."""

    @classmethod
    def read(cls, schema: SqliteConnection, name: str) -> _Table:
        rows = schema.rows("SELECT name, type, pk FROM pragma_table_info(?) ORDER BY cid", (name,))
        key = [
            at for at, _ in sorted(((at, row[2]) for at, row in enumerate(rows) if row[2]), key=lambda pair: pair[1])
        ]
        numbered = rows[key[0]][0] if len(key) == 1 and rows[key[0]][1] == "INTEGER" else ""
        mixed = frozenset(at for at, row in enumerate(rows) if row[1] == "ANY")
        return cls(name, tuple(row[0] for row in rows), tuple(key), mixed, numbered)

    def batch(self, after: Row | None) -> tuple[str, dict[str, Any]]:
        sql = f"SELECT {', '.join(self.columns)} FROM {self.name}"
        sql += f" WHERE {self._past(after)} ORDER BY {self._named()} LIMIT {_BATCH}"
        return sql, self._keys("a", after)

    def between(self, after: Row | None, last: Row | None) -> tuple[str, dict[str, Any]]:
        until = f"({self._named()}) <= ({self._values('z')})" if last else _ALL
        sql = f"SELECT {', '.join(self.columns)} FROM {self.name} WHERE {self._past(after)} AND {until}"
        return sql, {**self._keys("a", after), **self._keys("z", last)}

    def put(
        self, connection: DatabaseConnection, rows: Sequence[Row], extra: Iterable[Row], there: Collection[Row]
    ) -> None:
        where = " AND ".join(f"{self.columns[at]} = ?" for at in self.key)
        rest = [at for at in range(len(self.columns)) if at not in self.key]
        new = [row for row in rows if self.key_of(row) not in there]
        marks = ", ".join("?" * len(self.columns))
        connection.run_many(f"DELETE FROM {self.name} WHERE {where}", list(extra))
        connection.run_many(f"INSERT INTO {self.name} ({', '.join(self.columns)}) VALUES ({marks})", new)
        changes = ", ".join(f"{self.columns[at]} = ?" for at in rest)
        old = [(*(row[at] for at in rest), *self.key_of(row)) for row in rows if self.key_of(row) in there]
        connection.run_many(f"UPDATE {self.name} SET {changes} WHERE {where}", old if rest else [])

    def ready(self, row: Row) -> Row:
        """Return a row as the target stores it."""
        values = list(row)
        for at in self.mixed:
            if isinstance(row[at], bytes):
                values[at] = Blob(row[at])
            elif isinstance(row[at], str) and row[at].startswith(Blob.MARK):
                values[at] = Blob(json.dumps([row[at]]).encode() if self.name == "messages" else row[at].encode())
        return tuple(values)

    def plain(self, row: Row) -> Row:
        """Return a row for a comparison: engines differ in the types for yes and no, and for bytes."""
        return tuple(int(value) if isinstance(value, bool) else value for value in row)

    def own(self, row: Row) -> bool:
        """Return whether a row belongs to the target itself."""
        return self.name == "meta" and row[0] == _COPIES

    def key_of(self, row: Row) -> Row:
        return tuple(row[at] for at in self.key)

    def _named(self) -> str:
        return ", ".join(self.columns[at] for at in self.key)

    def _values(self, prefix: str) -> str:
        return ", ".join(f":{prefix}{at}" for at in range(len(self.key)))

    def _past(self, after: Row | None) -> str:
        return f"({self._named()}) > ({self._values('a')})" if after else _ALL

    def _keys(self, prefix: str, row: Row | None) -> dict[str, Any]:
        return {f"{prefix}{at}": value for at, value in enumerate(self.key_of(row))} if row else {}


def _rank(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)
