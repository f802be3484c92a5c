"""`herma memory log`, `diff`, `blame` and `undo`: what happened, and how to take it back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import SequenceMatcher

import click

from herma.cli import output
from herma.cli.frame import Context
from herma.cli.memory.desk import Desk, change_argument, either_target_option, memory, with_memory
from herma.cli.memory.report import refuse, report
from herma.cli.memory.wording import by, change_json, entry_json, preview, usage
from herma.curated.entries import parse, unique, used
from herma.errors import UsageError
from herma.types import Applied, Change, NoMatch, OverBudget, Target
from herma.wording.sessions import count, when

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


@memory.command(short_help="List the changes, newest first")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many, newest first."
)
@either_target_option
@with_memory
def log(desk: Desk, limit: int, target: Target | None) -> None:
    """List the changes, newest first. Edits made by hand are among them.

    \b
    Examples:
      herma memory log
      herma memory log --limit 5 --target user
    """
    changes = desk.store.history(target, scope=desk.scope, limit=limit + 1)
    more, changes = len(changes) > limit, changes[:limit]
    if desk.context.json:
        listed = [
            change_json(change) | {"removed": removed, "added": added}
            for change in changes
            for removed, added in [difference(change)]
        ]
        desk.context.print_json({"ok": True, "changes": listed, "more": more})
        return
    if not changes:
        desk.context.line("Nothing has changed yet.")
        return
    columns, rows = ["change", "when", "file", "what", "who", "text"], [_row(change) for change in changes]
    reasons = [preview(change.reason, 60) if change.undoes is None else "" for change in changes]
    if any(reasons):
        columns.append("reason")
        rows = [(*row, reason) for row, reason in zip(rows, reasons, strict=True)]
    desk.context.table(columns, rows)
    if more:
        desk.context.line(f"There are more: {desk.command('log', '--limit', str(limit * 5), scoped=True)}")


def _row(change: Change) -> tuple[object, ...]:
    what = change.action + (f" of {change.undoes}" if change.undoes else "")
    if change.undone_by:
        what += f" (undone by {change.undone_by})"
    removed, added = difference(change)
    texts = [f"- {preview(removed[0], 48)}"] if removed else []
    texts += [f"+ {preview(added[0], 48)}"] if added else []
    left = max(0, len(removed) - 1) + max(0, len(added) - 1)
    text = " ".join([*texts, *([f"and {left:,} more"] if left else [])])
    name = "MEMORY.md" if change.target == "memory" else "USER.md"
    return (change.id, when(change.at), name, what, by(change.author), text)


def difference(change: Change) -> tuple[list[str], list[str]]:
    """The entries that a change removed, and those it added."""
    before, after = unique(parse(change.before)), unique(parse(change.after))
    old, new = set(before), set(after)
    return [entry for entry in before if entry not in new], [entry for entry in after if entry not in old]


# ── diff ──


@memory.command(short_help="Show what a change did")
@change_argument
@with_memory
def diff(desk: Desk, change: int | None) -> None:
    """Show what a change did, entry by entry; without a number, the newest one.

    \b
    Examples:
      herma memory diff
      herma memory diff 12
    """
    found = _change(desk, change)
    if found is None:
        if desk.context.json:
            desk.context.print_json({"ok": True, "change": None})
        desk.context.line("Nothing has changed yet.")
        return
    before, after = unique(parse(found.before)), unique(parse(found.after))
    if desk.context.json:
        removed, added = difference(found)
        texts = {"removed": removed, "added": added, "before": before, "after": after}
        desk.context.print_json({"ok": True, **change_json(found), **texts})
        return
    session = f", session {found.author.session}" if found.author.session else ""
    name = desk.name(found.target, found.scope)
    desk.context.line(f"Change {found.id} of {name}: {found.action} by {by(found.author)}{session}, {when(found.at)}")
    if found.reason:
        desk.context.line(f"Reason: {found.reason}")
    if found.undone_by:
        desk.context.line(f"Undone by change {found.undone_by}.")
    print_diff(desk.context, before, after)


def _change(desk: Desk, number: int | None) -> Change | None:
    """One change by its number, or the newest of the scope."""
    newest = desk.store.history(scope=desk.scope, limit=1)
    if number is None:
        return newest[0] if newest else None
    found = desk.store.change(number)
    if found is None:
        raise UsageError(f"There is no change {number}.", hint=f"`{desk.command('log')}` lists the changes.")
    return found


def print_diff(context: Context, before: Sequence[str], after: Sequence[str]) -> None:
    """Entries that go with a minus, entries that come with a plus, what stays as a count."""
    if context.json:
        return
    if list(before) == list(after):
        context.line("  The entries are the same.")
        return
    for tag, from_, to, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            context.line(f"  … {count(to - from_, 'entry')} as before")
            continue
        for entry in before[from_:to]:
            _signed("-", _RED, entry)
        for entry in after[start:end]:
            _signed("+", _GREEN, entry)


def _signed(sign: str, colour: str, entry: str) -> None:
    for line in entry.split("\n"):
        text = output.visible(f"{sign} {line}")
        sys.stdout.write(f"{colour}{text}{_PLAIN}\n" if output.colours(sys.stdout) else f"{text}\n")


# ── blame ──


@memory.command(short_help="Say which change brought each entry")
@either_target_option
@with_memory
def blame(desk: Desk, target: Target | None) -> None:
    """Say of each entry which change brought it: when, by whom, in which session.

    \b
    Examples:
      herma memory blame
      herma memory blame --target user --json
    """
    rows: list[tuple[object, ...]] = []
    listed = []
    for status in desk.statuses(target):
        if not desk.enabled(status.target):
            continue
        brought = _brought(desk.store.history(status.target, scope=desk.scope))
        for number, entry in enumerate(desk.store.describe(status.target, scope=desk.scope), 1):
            change = brought.get(entry.text)
            listed.append(
                {
                    "target": status.target,
                    **entry_json(number, entry),
                    "brought_by": change_json(change) if change else None,
                }
            )
            name = "MEMORY.md" if status.target == "memory" else "USER.md"
            origin = entry.origin or (change.author.origin if change else "-")
            made = (
                (change.id, when(change.at), by(change.author), origin, change.author.session or "-")
                if change
                else ("-", "-", "-", origin, "-")
            )
            rows.append((f"{name} {number}", *made, preview(entry.text, 60)))
    if desk.context.json:
        desk.context.print_json({"ok": True, "entries": listed})
        return
    if not rows:
        desk.context.line("There are no entries.")
        return
    desk.context.table(("entry", "change", "when", "who", "origin", "session", "text"), rows)


def _brought(changes: Sequence[Change]) -> dict[str, Change]:
    """Entry → the change that brought it last. An undo only brings back, so what it restored keeps its first cause."""
    brought: dict[str, Change] = {}
    for change in reversed(changes):
        for entry in difference(change)[1]:
            if change.undoes is None or entry not in brought:
                brought[entry] = change
    return brought


# ── undo ──


@memory.command(short_help="Take back a change")
@change_argument
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@with_memory
def undo(desk: Desk, change: int | None, dry_run: bool) -> None:
    """Take back a change; without a number, the newest that still stands.

    Repeated, it walks back. An undo is a change itself, so it can be undone by its number.

    \b
    Examples:
      herma memory undo
      herma memory undo 12 --dry-run
    """
    desk.for_people_under_approval("undoing a change")
    if dry_run:
        _rehearse(desk, change)
        return
    outcome = desk.store.undo(change, scope=desk.scope, author=desk.author)
    undone = desk.store.change(outcome.change) if isinstance(outcome, Applied) else None
    report(desk, outcome, scope=undone.scope if undone else None)


def _rehearse(desk: Desk, number: int | None) -> None:
    """Show what an undo would do. Nothing is written."""
    from herma.curated.apply import sizes
    from herma.curated.entries import join
    from herma.curated.revert import Overtaken, revert

    history = desk.store.history(scope=desk.scope)
    standing = (item for item in history if item.undoes is None and item.undone_by is None)
    found = next(standing, None) if number is None else _change(desk, number)
    if found is None or found.undone_by:
        what = "There is nothing to undo." if found is None else f"Change {found.id} is undone already."
        raise UsageError(what, hint=f"`{desk.command('log')}` lists the changes.")
    (status,) = (item for item in desk.store.status(scope=found.scope) if item.target == found.target)
    before = desk.store.entries(found.target, scope=found.scope)
    reverted = revert(join(before), found)
    if isinstance(reverted, Overtaken):
        message = f"Change {found.id} cannot be undone alone: what it wrote was changed again since."
        size = sizes(before, status.limit, found.target)
        refuse(desk, NoMatch(message=message, entries=tuple(before), **size))
    after = unique(parse(reverted.text))
    if not reverted.exact and used(after) > max(status.limit, used(before)):
        message = f"Undoing change {found.id} needs {used(after):,} of {status.limit:,} characters. Make room first."
        size = sizes(before, status.limit, found.target)
        refuse(desk, OverBudget(message=message, entries=tuple(before), needed=used(after), **size))
    if desk.context.json:
        removed = [entry for entry in before if entry not in after]
        added = [entry for entry in after if entry not in before]
        value = {"ok": True, "dry_run": True, **change_json(found), "removed": removed, "added": added}
        desk.context.print_json(value)
    desk.context.line(f"Undoing change {found.id} ({found.action}, {when(found.at)}) would do this:")
    print_diff(desk.context, before, after)
    would = Applied(message="", **sizes(after, status.limit, found.target))
    desk.context.line(f"Nothing was changed. It would make {desk.name(found.target, found.scope)}: {usage(would)}.")
