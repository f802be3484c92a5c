"""`herma memory tail`: what was taken out of the files and is still kept."""

from __future__ import annotations

from collections.abc import Sequence

import click

from herma.cli.frame import HermaGroup
from herma.cli.memory.desk import Desk, TextCommand, either_target_option, memory, text_argument, with_memory
from herma.cli.memory.report import report
from herma.cli.memory.wording import day, preview
from herma.types import TailEntry, Target
from herma.wording.memory import scope_json
from herma.wording.sessions import Json, count, iso

_WHY = {"room": "to make room", "expired": "its date has passed", "superseded": "a newer entry says otherwise"}
_NUMBER = click.IntRange(1, 2**63 - 1)


class TailGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list search restore forget unforget"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@memory.group("tail", cls=TailGroup, short_help="What was taken out of the files and is still kept")
def tail() -> None:
    """See what was taken out of MEMORY.md and USER.md and is still kept: the long tail.

    Tidying moves entries here to make room. A session recalls them where they help, and proposes those for the prompt
    again that several conversations needed. What you remove yourself does not come here.

    \b
    Examples:
      herma memory tail list
      herma memory tail search "staging database"
      herma memory tail restore 3
      herma memory tail forget 3
    """


@tail.command("list", short_help="List it, newest first")
@either_target_option
@click.option("--forgotten", is_flag=True, help="What was forgotten, instead.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=50, show_default=True, help="How many, newest first."
)
@with_memory
def list_(desk: Desk, target: Target | None, forgotten: bool, limit: int) -> None:
    """List the long tail, newest first: when and why each entry left, and in how many conversations it was recalled.

    \b
    Examples:
      herma memory tail list
      herma memory tail list --project shop --json
    """
    found = desk.store.tail.list(target, scope=desk.scope, forgotten=forgotten)
    if desk.context.json:
        desk.context.print_json({"ok": True, "total": len(found), "entries": [_as_json(one) for one in found[:limit]]})
        return
    if not found:
        desk.context.line("Nothing was forgotten." if forgotten else "The long tail is empty.")
        return
    for one in found[:limit]:
        _show(desk, one)
    if len(found) > limit:
        desk.context.line(f"and {len(found) - limit:,} more; --limit shows them.")


@tail.command(cls=TextCommand, short_help="Find entries by words and meaning")
@text_argument("text", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many at most.")
@with_memory
def search(desk: Desk, text: tuple[str, ...], limit: int) -> None:
    """Find entries of the long tail that a session of this scope could recall, best first.

    \b
    Examples:
      herma memory tail search staging database
      herma memory tail search "which port" --project shop --json
    """
    hits = desk.store.tail.search(" ".join(text), scope=desk.scope, limit=limit)
    if desk.context.json:
        found = [{**_as_json(hit.entry), "score": round(hit.score, 3), "found_by": list(hit.why)} for hit in hits]
        desk.context.print_json({"ok": True, "entries": found})
        return
    if not hits:
        desk.context.line(f"Nothing in the long tail has to do with that. {desk.command('tail list')} shows all of it.")
    for hit in hits:
        _show(desk, hit.entry, f"{hit.score:.2f}: {'; '.join(hit.why)}")


@tail.command(short_help="Put an entry back into its file")
@click.argument("number", metavar="ID", type=_NUMBER)
@with_memory
def restore(desk: Desk, number: int) -> None:
    """Put an entry back into its file, with what is known about it. `undo` takes it out again.

    \b
    Examples:
      herma memory tail restore 3
    """
    entry = desk.store.tail.get(number)
    outcome = desk.store.tail.restore(number, author=desk.author)
    report(desk, outcome, text=entry.text if entry else "", scope=entry.scope if entry else None)


@tail.command(short_help="Recall entries no more")
@click.argument("numbers", metavar="ID…", type=_NUMBER, nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Only show what would be forgotten.")
@with_memory
def forget(desk: Desk, numbers: Sequence[int], dry_run: bool) -> None:
    """Find and recall entries no more. `unforget` takes it back.

    \b
    Examples:
      herma memory tail forget 3
      herma memory tail forget 3 5 --dry-run
    """
    desk.for_people_under_approval("forgetting entries")
    if dry_run:
        found = [one for number in numbers if (one := desk.store.tail.get(number)) is not None]
        found = [one for one in found if one.forgotten is None]
    else:
        found = desk.store.tail.forget(numbers)
    if desk.context.json:
        desk.context.print_json({"ok": True, "dry_run": dry_run, "entries": [_as_json(one) for one in found]})
    for one in found:
        desk.context.line(f"{'Would forget' if dry_run else 'Forgotten'}: {one.id}  {preview(one.text, 90)}")
    if not found:
        desk.context.line("Nothing to forget: it was forgotten already.")
    elif not dry_run:
        back = desk.command("tail unforget", *(str(one.id) for one in found))
        desk.context.line(f"To take it back: {back}")


@tail.command(short_help="Take forgetting back")
@click.argument("numbers", metavar="ID…", type=_NUMBER, nargs=-1, required=True)
@with_memory
def unforget(desk: Desk, numbers: Sequence[int]) -> None:
    """Let entries be found and recalled again.

    \b
    Examples:
      herma memory tail unforget 3
    """
    desk.for_people_under_approval("bringing forgotten entries back")
    found = desk.store.tail.unforget(numbers)
    if desk.context.json:
        desk.context.print_json({"ok": True, "entries": [_as_json(one) for one in found]})
    for one in found:
        desk.context.line(f"Back in the long tail: {one.id}  {preview(one.text, 90)}")
    if not found:
        desk.context.line("Nothing to bring back: it was not forgotten.")


def _show(desk: Desk, one: TailEntry, found: str = "") -> None:
    first, *rest = one.text.split("\n")
    desk.context.line(f"{one.id:>3}  {first}")
    for line in rest:
        desk.context.line(f"     {line}")
    recalled = f", recalled in {count(one.uses, 'conversation')}" if one.uses else ""
    name = desk.name(one.target, one.scope)
    desk.context.line(f"     left {name} on {day(one.left)} {_WHY[one.why]}{recalled}; change {one.change}")
    if found:
        desk.context.line(f"     {found}")


def _as_json(one: TailEntry) -> Json:
    return {
        "id": one.id,
        "text": one.text,
        "target": one.target,
        **scope_json(one.scope),
        "left": iso(one.left),
        "why": one.why,
        "reason": one.reason,
        "change": one.change,
        "category": one.category,
        "tags": list(one.tags),
        "uses": one.uses,
        "last_used": iso(one.last_used),
        "proposed": iso(one.proposed),
        "forgotten": iso(one.forgotten),
    }
