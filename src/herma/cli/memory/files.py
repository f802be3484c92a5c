"""`herma memory adopt` and `reset`: changes of a whole file, asked for first and backed up."""

from __future__ import annotations

import click

from herma.cli.frame import yes_option
from herma.cli.memory.desk import TARGET, Desk, memory, with_memory
from herma.cli.memory.report import outcome_json, refuse, success
from herma.cli.memory.wording import preview, rules
from herma.types import TARGETS, Applied, MemoryOutcome, StoreStatus, Target
from herma.wording.sessions import Json, count


@memory.command(short_help="Turn a file that was written otherwise into entries")
@click.option("--target", type=TARGET, help="Only this file; without it, every file that is not in order.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show the entries it would make.")
@with_memory
def adopt(desk: Desk, target: Target | None, dry_run: bool) -> None:
    """Turn a file that was written otherwise into entries: Markdown, another encoding, one long text.

    A list becomes one entry per bullet, with its heading in front. The file as it was is kept beside it.

    \b
    Examples:
      herma memory adopt --dry-run
      herma memory adopt --target user --yes
    """
    desk.for_people_under_approval("adopting a file")
    plans: list[tuple[StoreStatus, list[str]]] = []
    for status in desk.statuses(target):
        if desk.enabled(status.target) or target:
            entries = desk.store.adoption(status.target, scope=desk.scope)
            if status.trouble and not entries and not dry_run:
                refuse(desk, desk.store.adopt(status.target, scope=desk.scope))
            if status.trouble or entries != desk.store.entries(status.target, scope=desk.scope):
                plans.append((status, entries))
    if not desk.context.json:
        for status, entries in plans:
            _show_plan(desk, status, entries)
    if not plans:
        desk.context.line("Nothing to adopt: every entry is in order already.")
    if dry_run or not plans:
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": dry_run, "files": [_plan_json(*plan) for plan in plans]})
        elif plans:
            desk.context.line("Nothing was changed.")
        return
    names = " and ".join(desk.name(status.target) for status, _ in plans)
    if not desk.context.confirm(f"Write {names} that way? A copy of the file as it is now will be kept."):
        _declined(desk)
    _finish(desk, [desk.store.adopt(status.target, scope=desk.scope) for status, _ in plans])


def _show_plan(desk: Desk, status: StoreStatus, entries: list[str]) -> None:
    from herma.safety.scan import scan

    if status.trouble:
        desk.context.line(f"{status.trouble}.")
    if not entries:
        return
    total = sum(map(len, entries)) + 3 * (len(entries) - 1)
    over = f", {total - status.limit:,} over its limit" if total > status.limit else ""
    desk.context.line(
        f"{desk.name(status.target)} would have {count(len(entries), 'entry')}: "
        f"{total:,}/{status.limit:,} characters{over}"
    )
    for number, entry in enumerate(entries, 1):
        desk.context.line(f"{number:>3}  {preview(entry, 100)}  ({count(len(entry), 'character')})")
        if findings := scan(entry):
            desk.context.line(f"     ! The scanner will withhold it from the model: {rules(findings)}.")


def _plan_json(status: StoreStatus, entries: list[str]) -> Json:
    return {
        "target": status.target,
        "path": status.path,
        "trouble": status.trouble,
        "entries": [{"number": n, "text": text, "size": len(text)} for n, text in enumerate(entries, 1)],
        "used": sum(map(len, entries)) + 3 * max(0, len(entries) - 1),
        "limit": status.limit,
    }


@memory.command(short_help="Empty the files, with a copy kept")
@click.option(
    "--target",
    type=click.Choice((*TARGETS, "all"), case_sensitive=False),
    default="all",
    show_default=True,
    help="Which file to empty.",
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_memory
def reset(desk: Desk, target: str, dry_run: bool) -> None:
    """Empty the files. It asks first, keeps a copy, and can be undone.

    \b
    Examples:
      herma memory reset --dry-run
      herma memory reset --target user
    """
    desk.for_people_under_approval("emptying a file")
    files = [
        item for item in desk.statuses() if target == item.target or (target == "all" and desk.enabled(item.target))
    ]
    full = [item for item in files if item.entry_count or item.trouble]
    if not dry_run and full:
        what = " and ".join(f"{desk.name(item.target)} ({count(item.entry_count, 'entry')})" for item in full)
        if not desk.context.confirm(f"Empty {what}? A copy will be kept."):
            _declined(desk)
    if full and not dry_run:
        _finish(desk, [desk.store.reset(item.target, scope=desk.scope) for item in full])
        return
    if desk.context.json:
        listed = [{"target": item.target, "path": item.path, "entry_count": item.entry_count} for item in full]
        desk.context.print_json({"ok": True, "dry_run": dry_run, "files": listed})
    if not full:
        desk.context.line("Nothing to remove: it is empty already.")
    for item in full:
        desk.context.line(f"Would empty {desk.name(item.target)}: {count(item.entry_count, 'entry')} at {item.path}")


def _declined(desk: Desk) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was changed."})
    desk.context.line("Nothing was changed.")
    desk.context.exit(1)


def _finish(desk: Desk, outcomes: list[MemoryOutcome]) -> None:
    """Say what was done to each file, and where its copy is."""
    refused = [outcome for outcome in outcomes if not outcome.ok]
    if desk.context.json:
        desk.context.print_json({"ok": not refused, "files": [outcome_json(outcome) for outcome in outcomes]})
        if refused:
            desk.context.exit(1)
    for outcome in outcomes:
        if outcome.ok:
            desk.context.line(success(desk, outcome))
        if isinstance(outcome, Applied) and outcome.backup:
            desk.context.line(f"  The file as it was: {outcome.backup}")
    if refused:
        refuse(desk, refused[0])
