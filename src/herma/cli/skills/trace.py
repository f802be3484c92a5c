"""`herma skills log`, `diff` and `undo`: what happened, and how to take it back."""

from __future__ import annotations

import sys
from difflib import unified_diff

import click

from herma.cli import output
from herma.cli.memory.wording import by, preview
from herma.cli.skills.desk import Desk, Json, dry_run_option, skills, with_skills
from herma.errors import UsageError
from herma.types import SkillChange
from herma.wording.sessions import iso, when

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


@skills.command(short_help="List the changes, newest first")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many.")
@with_skills
def log(desk: Desk, name: str | None, limit: int) -> None:
    """List the changes, newest first: of all skills, or of one. Edits made by hand are among them.

    \b
    Examples:
      herma skills log
      herma skills log release --limit 5
    """
    changes = list(desk.library.history(_plain(name), limit=limit + 1))
    more, changes = len(changes) > limit, changes[:limit]
    if desk.context.json:
        desk.context.print_json({"ok": True, "changes": [change_json(each) for each in changes], "more": more})
        return
    if not changes:
        desk.context.line("Nothing has changed yet.")
        return
    desk.context.table(["change", "when", "skill", "what", "file", "who", "reason"], [_row(each) for each in changes])
    if more:
        words = ["log", *([name] if name else []), "--limit", str(limit * 5)]
        desk.context.line(f"There are more: {desk.command(*words)}")


def _plain(name: str | None) -> str | None:
    return name.rpartition("/")[2] if name else None


def _row(change: SkillChange) -> tuple[object, ...]:
    what = change.action + (f" of {change.undoes}" if change.undoes else "")
    if change.undone_by:
        what += f" (undone by {change.undone_by})"
    where = change.file or f"{change.moved_from} → {change.moved_to}".removeprefix(" ")
    return (change.id, when(change.at), change.skill, what, where, by(change.author), preview(change.reason, 50))


def change_json(change: SkillChange) -> Json:
    return {
        "id": change.id,
        "at": iso(change.at),
        "skill": change.skill,
        "path": change.path,
        "file": change.file,
        "action": change.action,
        "who": change.author.who,
        "origin": change.author.origin,
        "session": change.author.session,
        "message": change.author.message,
        "reason": change.reason,
        "moved_from": change.moved_from,
        "moved_to": change.moved_to,
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


@skills.command(short_help="Show what a change did")
@click.argument("change", required=False, type=click.IntRange(1))
@with_skills
def diff(desk: Desk, change: int | None) -> None:
    """Show what a change did, line by line; without a number, the newest one.

    \b
    Examples:
      herma skills diff
      herma skills diff 12
    """
    found = _change(desk, change)
    if desk.context.json:
        value = {**change_json(found), "before": _text(found.before), "after": _text(found.after)}
        desk.context.print_json({"ok": True, **value})
        return
    desk.context.line(f"Change {found.id} of {found.skill}: {found.action} by {by(found.author)}, {when(found.at)}")
    if found.reason:
        desk.context.line(f"Reason: {found.reason}")
    if not found.file:
        desk.context.line(f"{found.moved_from or 'from outside'} → {found.moved_to}")
        return
    before, after = (_text(side) or "" for side in (found.before, found.after))
    colours = output.colours(sys.stdout)
    for line in unified_diff(before.splitlines(), after.splitlines(), found.file, found.file, lineterm=""):
        colour = {"+": _GREEN, "-": _RED}.get(line[:1]) if colours else None
        text = output.visible(line)
        sys.stdout.write(f"{colour}{text}{_PLAIN}\n" if colour else f"{text}\n")


def _change(desk: Desk, number: int | None) -> SkillChange:
    newest = desk.library.history(limit=1)
    found = desk.library.change(number) if number is not None else (newest[0] if newest else None)
    if found is None:
        what = "Nothing has changed yet." if number is None else f"There is no change {number}."
        raise UsageError(what, hint=f"`{desk.command('log')}` lists the changes.")
    return found


def _text(content: str | bytes | None) -> str | None:
    return f"[{len(content):,} bytes that are not text]" if isinstance(content, bytes) else content


@skills.command(short_help="Take a change back")
@click.argument("change", required=False, type=click.IntRange(1))
@click.option("--skill", "name", help="The newest change of this skill.")
@dry_run_option
@with_skills
def undo(desk: Desk, change: int | None, name: str | None, dry_run: bool) -> None:
    """Take back the newest change that still stands, or the one given. An undo can be undone too.

    \b
    Examples:
      herma skills undo
      herma skills undo 12
      herma skills undo --skill release
    """
    desk.for_people_under_approval("taking changes back")
    if dry_run:
        found = desk.library.undoable(change, name=_plain(name))
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": True, "change": change_json(found)})
        where = found.file or found.moved_to
        desk.context.line(f"Change {found.id} ({found.action} of {where}, {found.skill}) would be taken back.")
        return
    desk.report(desk.library.undo(change, name=_plain(name), author=desk.author))
