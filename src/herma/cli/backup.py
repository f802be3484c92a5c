"""`herma backup`: make, list, check and restore backups."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaGroup, pass_context, yes_option
from herma.cli.person import for_people_only
from herma.config import resolve_home
from herma.errors import UsageError
from herma.wording.sessions import count, iso, size

if TYPE_CHECKING:
    from herma.store.backup_archive import Backup


@click.group(cls=HermaGroup)
def backup() -> None:
    """Make, check and restore backups of everything.

    One file each, with the database, memories, skills and configuration. The search index is not in them; it is built
    anew. Secrets (.env) are not either, unless you say so.

    \b
    Examples:
      herma backup create
      herma backup list
      herma backup restore latest --dry-run

    \b
    With --json each command prints ok and the backup or backups it is about. Times are ISO 8601 in UTC.
    """


def _home(context: Context) -> Path:
    return resolve_home(context.home, context.profile)


@backup.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--name", default="", help="Give it a name. One with a name is never pruned.")
@click.option("--with-secrets", is_flag=True, help="Put .env in too.")
@click.option("--keep", type=click.IntRange(1), help="Then delete all but the newest KEEP backups without a name.")
@pass_context
def create(context: Context, path: Path | None, name: str, with_secrets: bool, keep: int | None) -> None:
    """Make a backup, also while other programs write. It goes to backups/, or to PATH (a folder, or a new file).

    --keep deletes in the folder that the new one goes to; in another folder than backups/ only backups of this home.

    \b
    Examples:
      herma backup create
      herma backup create --name before-upgrade
      herma backup create /mnt/usb --keep 7
    """
    from herma.store import backup as backups

    if keep and path is not None and not path.is_dir():
        raise UsageError(f"--keep goes with a folder, and {path} is none.", hint="Name a folder, or leave out --keep.")
    with context.progress("Copying") as report:
        made = backups.create(_home(context), path, name=name, with_secrets=with_secrets, progress=report)
    gone = backups.prune(_home(context), keep, beside=made if path else None) if keep else []
    if made.manifest and made.manifest.damage:
        context.warn(
            f"The database is damaged ({made.manifest.damage}), and so is its copy. "
            f"Run: {context.command('doctor', '--repair')}"
        )
    for skipped in made.manifest.skipped if made.manifest else ():
        context.warn(f"{skipped} is not in the backup: it is a link to a folder, or not an ordinary file.")
    if context.json:
        pruned = [each.name for each in gone]
        context.print_json({"ok": made.verified is not None, "backup": _json(made), "pruned": pruned})
    good = "read again and found to be good" if made.verified else "which cannot be restored as it is"
    context.line(f"{made.path} ({size(made.size)}; {_counts(made)}), {good}.")
    for each in gone:
        context.line(f"Deleted the old backup {each.name}.")
    context.exit(0 if made.verified else 1)


@backup.command("list")
@pass_context
def list_(context: Context) -> None:
    """List the backups, newest first.

    \b
    Examples:
      herma backup list
      herma backup list --json
    """
    from herma.store import backup as backups

    known = backups.listing(_home(context))
    if context.json:
        context.print_json({"ok": True, "backups": [_json(each) for each in known]})
        return
    if not known:
        context.line(f"There is no backup yet. Make one: {context.command('backup', 'create')}")
        return
    rows = [(each.name, _age(each), size(each.size), _counts(each), _trust(each)) for each in known]
    context.table(("name", "age", "size", "holds", "verified"), rows)


@backup.command()
@click.argument("name")
@pass_context
def verify(context: Context, name: str) -> None:
    """Read all of a backup: every file by its hash, the database by its own checks.

    NAME is as `herma backup list` shows it (the beginning is enough), the name it was given, "latest", or a file.

    \b
    Examples:
      herma backup verify latest
      herma backup verify /mnt/usb/20260101-120000.tar.zst
    """
    from herma.store import backup as backups

    with context.progress("Reading") as report:
        checked = backups.verify(backups.find(_home(context), name), report)
    if context.json:
        context.print_json({"ok": checked.ok, "backup": _json(checked.backup), "trouble": checked.trouble})
    elif checked.ok:
        context.line(f"{checked.backup.name} is good: {_counts(checked.backup)}.")
    for trouble in checked.trouble:
        context.line(f"{checked.backup.name} is not good: {trouble}.")
    context.exit(0 if checked.ok else 1)


@backup.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only check it and show what would be replaced.")
@yes_option
@pass_context
def restore(context: Context, name: str, dry_run: bool) -> None:
    """Put everything back to what a backup holds. It replaces, it never merges.

    What is there now is backed up first (before-restore). No other program may have the home open meanwhile.

    \b
    Examples:
      herma backup restore latest --dry-run
      herma backup restore before-upgrade
    """
    from herma.store import backup as backups
    from herma.store.backup_restore import restore as put_back

    home = _home(context)
    chosen = backups.find(home, name)
    if not dry_run:
        for_people_only("restoring a backup")
        if not context.confirm(f"Replace what is in {home} by {chosen.name} ({_counts(chosen)})?"):
            context.line("Nothing was changed.")
            if context.json:
                context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was changed."})
            context.exit(1)
    with context.progress("Reading") as report:
        made = put_back(home, chosen, dry_run=dry_run, progress=report)
    if context.json:
        context.print_json(
            {
                "ok": True,
                "dry_run": made.dry_run,
                "backup": _json(chosen),
                "replaced": made.replaced,
                "removed": made.removed,
                "safety": made.safety.name if made.safety else None,
                "kept": made.kept,
            }
        )
    would = "Would put back" if dry_run else "Put back"
    context.line(f"{would}: {', '.join(made.replaced)}")
    if made.removed:
        context.line(f"{'Would take' if dry_run else 'Took'} away, as the backup has none: {', '.join(made.removed)}")
    if made.safety:
        before = context.command("backup", "restore", made.safety.name)
        context.line(f"To go back to what was there before: {before}")
    if made.kept:
        context.line(f"The damaged database is kept: {made.kept}")


def _json(each: Backup) -> dict[str, Any]:
    manifest = each.manifest and {**dataclasses.asdict(each.manifest), "created": iso(each.manifest.created)}
    return {
        "name": each.name,
        "path": each.path,
        "size": each.size,
        "verified": iso(each.verified),
        "trouble": each.trouble,
        "manifest": manifest,
    }


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
