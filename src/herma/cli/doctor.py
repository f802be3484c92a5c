"""`herma doctor`: what is wrong and what to type; `--repair` mends it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, pass_context, yes_option
from herma.config import Settings, resolve_home
from herma.errors import ConfigError
from herma.wording.health import diagnosis_json, verdict
from herma.wording.sessions import count

if TYPE_CHECKING:
    from herma.doctor import Check, Diagnosis, Fix, Mended
    from herma.store.sqlite.salvage import Salvaged

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
    from herma.doctor import diagnose

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
    from herma.doctor import diagnose, mend, plan

    timeout = settings.memory.lock_timeout if settings else 10.0
    done: list[Mended] = []
    fixes = plan(home, full=full)
    if fixes and not dry_run:
        _announce(context, fixes)
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
        _announce(context, fixes)
        context.line("Nothing was changed.")
    elif not fixes:
        context.line("There is nothing to repair." if diagnosis.healthy else "Nothing here can be repaired by itself.")
    for check in () if dry_run else diagnosis.of("problem"):
        context.line(f"Still a problem: {check.name}: {_with_next(context, check)}")
    context.exit(0 if diagnosis.healthy or dry_run else 1)


def _announce(context: Context, fixes: list[Fix]) -> None:
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
