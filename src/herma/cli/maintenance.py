"""Herma doctor, backup, serve."""

from __future__ import annotations

import dataclasses
import importlib.util
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, HermaGroup, for_people_only, pass_context, yes_option
from herma.cli.output import count, diagnosis_json, iso, size, verdict
from herma.config import Settings, resolve_home
from herma.errors import ConfigError, UsageError

if TYPE_CHECKING:
    import socket

    from herma.doctor.checks import Diagnosis
    from herma.doctor.database import Check
    from herma.doctor.repair import Fix, Mended
    from herma.store.backup import Backup
    from herma.store.salvage import Salvaged
    from herma.web.access import Rules


# ---------- cli.doctor
#
# `herma doctor`: what is wrong and what to type; `--repair` mends it.

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
@click.option("--repair", is_flag=True, help="Mend what can be mended, after asking.")
@click.option("--dry-run", is_flag=True, help="With --repair: only show what would be done.")
@yes_option
@pass_context
def doctor(context: Context, full: bool, repair: bool, dry_run: bool) -> None:
    """Look whether everything is all right, and repair what is not.

    Every line says what was found and, where something is wrong, what to type. Looking changes nothing.

    --repair brings every row that can be read from a damaged herma.db into a new one, keeps the damaged file, says
    exactly what could not be read, and sees to permissions and to what interrupted work left. No other program may
    have the home open meanwhile.

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


def _settings(context: Context) -> Settings | None:
    """A broken configuration is one of the things that a doctor is asked about."""
    try:
        return context.settings(warn=False)
    except ConfigError:
        return None


def _show(context: Context, diagnosis: Diagnosis) -> None:
    if context.json:
        context.print_json(diagnosis_json(diagnosis))
        return
    context.table(
        ("", "what", "found"),
        [(_SIGNS[check.state], check.name, _with_next(context, check)) for check in diagnosis.checks],
    )
    context.line()
    context.line(verdict(diagnosis))


def _with_next(context: Context, check: Check) -> str:
    return f"{check.sentence} → {context.here(check.next)}" if check.next and check.state != "ok" else check.sentence


def _repair(context: Context, home: Path, settings: Settings | None, *, full: bool, dry_run: bool) -> None:
    from herma.doctor.checks import diagnose
    from herma.doctor.repair import mend, plan

    timeout = settings.memory.lock_timeout if settings else 10.0
    done: list[Mended] = []
    fixes = plan(home, full=full)
    if fixes and not dry_run:
        _doctor_announce(context, fixes)
        if not context.confirm("Do all of this?"):
            context.line("Nothing was changed.")
            if context.json:
                context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was changed."})
            context.exit(1)
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
        _doctor_announce(context, fixes)
        context.line("Nothing was changed.")
    elif not fixes:
        context.line("There is nothing to repair." if diagnosis.healthy else "Nothing here can be repaired by itself.")
    for check in () if dry_run else diagnosis.of("problem"):
        context.line(f"Still a problem: {check.name}: {_with_next(context, check)}")
    context.exit(0 if diagnosis.healthy or dry_run else 1)


def _doctor_announce(context: Context, fixes: list[Fix]) -> None:
    for number, fix in enumerate(fixes, 1):
        context.line(f"{number}. {fix.sentence}")


def _tell(context: Context, mended: Mended) -> None:
    context.line(mended.sentence)
    if mended.kept:
        context.line(f"  The damaged file is kept: {mended.kept}")
    if mended.salvaged is not None:
        _tell_losses(context, mended.salvaged)


def _tell_losses(context: Context, salvaged: Salvaged) -> None:
    """Exactly what could not be read, as far as anything in the file tells."""
    for table in salvaged.tables:
        if table.lost:
            where = f" (rows {_ranges(table.missing)})" if table.missing else ""
            context.line(f"  {table.table}: {table.kept:,} kept, {table.lost:,} lost{where}")
        if table.mended:
            context.line(
                f"  {table.table}: a part of the text is missing or was mended in rows {_ranges(table.mended)}"
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
        "salvaged": None if salvaged is None else {"complete": salvaged.complete, **dataclasses.asdict(salvaged)},
    }


# ---------- cli.backup
#
# `herma backup`: make, list, check and restore backups.


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
    from herma.store.restore import restore as put_back

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


# ---------- cli.serve
#
# `herma serve`: the dashboard in a browser, and the same values as JSON.

PORT = 8765


@click.command(cls=HermaCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser.")
@click.option(
    "--allow-host", "names", metavar="NAME", multiple=True, help="Another name that it may be called by; repeatable."
)
@click.option("--new-token", is_flag=True, help="Make a new token: links and browsers of before are not let in.")
@pass_context
def serve(context: Context, host: str, port: int, open_it: bool, names: tuple[str, ...], new_token: bool) -> None:
    """Show the dashboard in a browser: what is kept, what it costs, whether all is well. Ctrl-C ends it.

    It prints a link with the home's token in it; whoever has the link can look, and a browser that came in with it
    stays in for a week. Only this machine can reach the server unless you give another --host. Nothing can be changed
    through it.

    \b
    Programs get the same values as JSON, with the token that is kept in the home:
      curl -H "Authorization: Bearer $(cat ~/.herma/web.token)" http://127.0.0.1:8765/api/spending

    \b
    From another machine, without opening it to the network:
      ssh -L 8765:127.0.0.1:8765 that-machine

    \b
    Examples:
      herma serve --open
      herma serve --port 0 --json
      herma serve --host 0.0.0.0 --allow-host workstation.local
    """
    _check_installed()
    from herma.web.access import Codes, Rules, home_token, host_name
    from herma.web.app import House, listen, make_app, run

    home = resolve_home(context.home, context.profile)
    listening = listen(host, port)
    with listening:
        token = home_token(home, renew=new_token)
        if token.note:
            context.warn(token.note)
        rules = Rules(token.value, listening.getsockname()[1], host, frozenset(map(host_name, names)))
        house, codes = House(home, context.open), Codes()
        address = _address(host, listening)

        def ready() -> None:
            _serve_announce(context, rules, address)
            if open_it:
                _open(f"{address}/enter?code={codes.make()}", context.warn)

        try:
            run(make_app(house, rules, codes), listening, ready=ready, tell=context.warn, debug=context.debug)
        finally:
            house.close()
    context.line("Ended.")


def _check_installed() -> None:
    for library in ("starlette", "uvicorn"):
        if importlib.util.find_spec(library) is None:
            raise UsageError(
                f"The dashboard needs the {library} library, which is not installed.",
                hint="Type: pip install 'herma[web]'",
            )


def _address(host: str, listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    name, port = listening.getsockname()[:2]
    if name in ("0.0.0.0", "::"):  # noqa: S104  every address: this is one of them
        name = "127.0.0.1" if name == "0.0.0.0" else "::1"  # noqa: S104
    elif host == "localhost":
        name = host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _serve_announce(context: Context, rules: Rules, address: str) -> None:
    from herma.web.access import is_loopback

    link = f"{address}/enter?token={rules.token}"
    if context.json:
        home = resolve_home(context.home, context.profile)
        context.print_json(
            {"ok": True, "url": address, "link": link, "token": rules.token, "port": rules.port, "home": home}
        )
    context.line(f"The dashboard is at {address}; this link lets you in:")
    context.line(f"  {link}")
    if not is_loopback(rules.bound_to):
        context.warn(
            "Other machines can reach this server, and what it sends is not encrypted. Use it only in a network "
            "that you trust, or keep it to this machine and use ssh -L."
        )
    context.line("Ctrl-C ends it.")
    _flush()


def _flush() -> None:
    import sys

    sys.stdout.flush()  # a program that reads the link must not wait for the end


def _open(address: str, tell: Callable[[str], None]) -> None:
    """In a thread: some browsers run in the terminal, and come back when they are closed."""
    import webbrowser

    def work() -> None:
        if not webbrowser.open(address):
            tell("No browser could be started; open the link yourself.")

    threading.Thread(target=work, name="herma: browser", daemon=True).start()
