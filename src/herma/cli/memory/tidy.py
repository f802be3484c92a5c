"""`herma memory tidy`: put the files in order, shown first and asked for."""

from __future__ import annotations

import click

from herma.cli.frame import yes_option
from herma.cli.memory.desk import Desk, either_target_option, memory, with_memory
from herma.cli.memory.report import outcome_json, refuse, success
from herma.cli.memory.trace import print_diff
from herma.cli.memory.wording import operation_json, preview
from herma.types import Proposal, Target, Tidied, TidyReport
from herma.wording.memory import scope_json
from herma.wording.sessions import Json, count

_TITLES = {
    "merge": "say once",
    "superseded": "overtaken by a newer entry, to the long tail",
    "expired": "over, to the long tail",
    "mark": "mark",
    "unmark": "take the mark off",
    "move": "to the long tail",
}


@memory.command(short_help="Put the files in order")
@either_target_option
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option("--no-model", is_flag=True, help="Do without a model's wording.")
@yes_option
@with_memory
def tidy(desk: Desk, target: Target | None, dry_run: bool, no_model: bool) -> None:
    """Put the files in order: say once what is said twice, let newer facts stand, let go of what is over, mark what a
    check cannot confirm, and above 80 % of the limit move the least valuable to the long tail.

    It shows what it would do and asks. Each file becomes one change, which `undo` takes back. Entries that are tagged
    `pinned`, or that you vouched for, are left alone; at most a quarter of a file changes in one pass. Nothing is
    deleted: what leaves a file is found by `herma memory tail`.

    \b
    Examples:
      herma memory tidy --dry-run
      herma memory tidy --target user --yes
      herma memory tidy --project shop
    """
    tidying = desk.h.tidy
    planned = tidying(target, scope=desk.scope, dry_run=True, model=not no_model)
    busy = [one for one in planned.files if one.proposals]
    if not desk.context.json:
        for one in planned.files:
            _show(desk, one)
    if dry_run or not busy:
        if not dry_run:
            planned = tidying.apply(planned, author=desk.author)
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": dry_run, "files": [_as_json(one) for one in planned.files]})
        elif not busy:
            desk.context.line("Everything is in order.")
        else:
            desk.context.line("Nothing was changed.")
        return
    names = " and ".join(desk.name(one.target) for one in busy)
    if not desk.context.confirm(f"Change {names} that way?"):
        if desk.context.json:
            desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was changed."})
        desk.context.line("Nothing was changed.")
        desk.context.exit(1)
    _finish(desk, tidying.apply(planned, author=desk.author))


def _finish(desk: Desk, report: TidyReport) -> None:
    outcomes = [one.outcome for one in report.files if one.outcome is not None]
    refused = [outcome for outcome in outcomes if not outcome.ok]
    if desk.context.json:
        desk.context.print_json({"ok": not refused, "dry_run": False, "files": [_as_json(one) for one in report.files]})
        if refused:
            desk.context.exit(1)
        return
    for outcome in outcomes:
        if outcome.ok:
            desk.context.line(success(desk, outcome))
    if refused:
        refuse(desk, refused[0])


def _show(desk: Desk, file: Tidied) -> None:
    """What is proposed for one file, step by step, and the difference it makes."""
    for note in file.notes:
        desk.context.warn(note)
    if not file.proposals and not file.held:
        return
    name = desk.name(file.target)
    room = f"{file.used:,} → {file.used_after:,} of {file.limit:,} characters"
    desk.context.line(f"{name}: {count(len(file.proposals), 'proposal')}, {room}")
    for number, one in enumerate(file.proposals, 1):
        _show_proposal(desk, number, one)
    if file.proposals:
        desk.context.line()
        print_diff(desk.context, file.before, file.after)
    for one, why in file.held[:5]:
        desk.context.line(f"  Left for another pass: {_TITLES[one.kind]} “{preview(one.entries[0], 60)}”. {why}")
    desk.context.line()


def _show_proposal(desk: Desk, number: int, one: Proposal) -> None:
    size = f"frees {one.frees:,}" if one.frees >= 0 else f"adds {-one.frees:,}"
    by = ", in a model's words" if one.by_model else ""
    desk.context.line(f"{number:>3}  {_TITLES[one.kind]}: {one.reason} ({size}, {one.confidence:.0%} certain{by})")
    for text in one.entries:
        desk.context.line(f"       {preview(text, 100)}")


def _as_json(file: Tidied) -> Json:
    return {
        "target": file.target,
        **scope_json(file.scope),
        "used": file.used,
        "used_after": file.used_after,
        "limit": file.limit,
        "proposals": [_proposal_json(one) for one in file.proposals],
        "held": [{**_proposal_json(one), "why": why} for one, why in file.held],
        "before": list(file.before),
        "after": list(file.after),
        "outcome": None if file.outcome is None else outcome_json(file.outcome),
        "staged": list(file.staged),
        "notes": list(file.notes),
    }


def _proposal_json(one: Proposal) -> Json:
    return {
        "kind": one.kind,
        "entries": list(one.entries),
        "result": one.result or None,
        "reason": one.reason,
        "frees": one.frees,
        "confidence": one.confidence,
        "by_model": one.by_model,
        "operations": [operation_json(op) for op in one.operations],
    }
