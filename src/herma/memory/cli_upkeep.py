"""Herma memory pending, approve, reject, tidy, tail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from herma.cli.frame import HermaGroup, for_people_only, yes_option
from herma.cli.output import Json, count, iso, scope_json
from herma.errors import UsageError
from herma.memory.archive import TailEntry
from herma.memory.cli import (
    Desk,
    TextCommand,
    advice,
    by,
    day,
    either_target_option,
    memory,
    operation,
    operation_json,
    outcome_json,
    pending_json,
    preview,
    print_diff,
    refuse,
    report,
    span,
    success,
    text_argument,
    with_memory,
)
from herma.memory.tidy import Proposal, Tidied, TidyReport
from herma.types import Pending, Scope, Target

if TYPE_CHECKING:
    from herma.cli.frame import Context


# ---------- cli.deciding
#
# What `pending`, `approve` and `reject` share, whatever it is that waits: choosing by number, and the telling.

Command = Callable[..., str]
"""Words to a command line that works on the same home."""


class Numbered(Protocol):
    @property
    def id(self) -> int: ...


N = TypeVar("N", bound=Numbered)


def tell_how_to_decide(context: Context, waiting: Sequence[Numbered], many: str, command: Command) -> None:
    context.line()
    context.line(f"{many} waiting. Decide with:")
    number = str(waiting[0].id)
    for words in (("approve", number), ("reject", number), ("approve", "all")):
        context.line(f"  {command(*words)}")


def chosen(waiting: Sequence[N], ids: Sequence[str], command: Command) -> list[N]:
    """The proposals meant. An unknown number is said before anything is decided."""
    if [word.lower() for word in ids] == ["all"]:
        return list(waiting)
    known = {str(item.id): item for item in waiting}
    wanted = dict.fromkeys(ids)
    unknown = [word for word in wanted if word not in known]
    if unknown:
        raise UsageError(
            f"Nothing with the number {unknown[0]} is waiting; nothing was decided.",
            hint=f"`{command('pending')}` lists what is waiting.",
        )
    return [known[word] for word in wanted]


def tell_approved(context: Context, results: Sequence[dict[str, Any]]) -> None:
    """The end of an approval; a refusal among the results makes the exit code 1."""
    refused = any(not result["ok"] for result in results)
    if context.json:
        context.print_json({"ok": not refused, "results": results})
    if not results:
        context.line("Nothing is waiting.")
    if refused:
        context.exit(1)


def tell_rejected(context: Context, rejected: Sequence[N], as_json: Callable[[N], dict[str, Any]]) -> None:
    if context.json:
        context.print_json({"ok": True, "rejected": [as_json(item) for item in rejected]})
    for item in rejected:
        context.line(f"{item.id}: rejected, and not proposed again.")
    if not rejected:
        context.line("Nothing is waiting.")


# ---------- cli.memory.decide
#
# `herma memory pending`, `approve` and `reject`: the inbox, and a person's decisions on it.


@memory.command(short_help="List the writes that wait for a person")
@either_target_option
@with_memory
def pending(desk: Desk, target: Target | None) -> None:
    """List the writes that wait for a person, oldest first.

    What came from the web, from tools or from imports waits here, and with memory.write_approval on, everything that
    agents write.

    \b
    Examples:
      herma memory pending
      herma memory pending --json
    """
    waiting = [item for item in _waiting(desk) if target in (None, item.target)]
    if desk.context.json:
        desk.context.print_json({"ok": True, "pending": [pending_json(item) for item in waiting]})
        return
    if not waiting:
        desk.context.line("Nothing is waiting.")
        return
    now = time.time()
    for item in waiting:
        _decide_show(desk, item, now)
    tell_how_to_decide(desk.context, waiting, count(len(waiting), "write"), desk.command)


def _decide_show(desk: Desk, item: Pending, now: float) -> None:
    session = f" in session {item.author.session}" if item.author.session else ""
    desk.context.line(
        f"{item.id:>3}  {desk.name(item.target, item.scope)}, proposed by {by(item.author)}{session}, "
        f"{span(now - item.at)} ago; expires in {span(item.expires - now)}"
    )
    if item.reason:
        desk.context.line(f"     reason: {item.reason}")
    for op in item.operations:
        first, *rest = operation(op).split("\n")
        desk.context.line(f"     {first}")
        for line in rest:
            desk.context.line(f"       {line}")


@memory.command(short_help="Store what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_memory
def approve(desk: Desk, ids: Sequence[str]) -> None:
    """Store what was proposed. Only a person may: it is refused inside an agent.

    \b
    Examples:
      herma memory approve 3
      herma memory approve 3 5
      herma memory approve all
    """
    for_people_only("Approving what an agent wrote")
    results = []
    for item in chosen(_waiting(desk), ids, desk.command):
        outcome = desk.store.approve(item.id)
        results.append({"id": item.id, **outcome_json(outcome)})
        if outcome.ok:
            desk.context.line(f"{item.id}: {success(desk, outcome, item.scope)}")
        else:
            desk.context.warn(f"{item.id} stays in the inbox: {outcome.message}")
            for line in advice(desk, outcome):
                desk.context.line(f"    {line}")
    tell_approved(desk.context, results)


@memory.command(short_help="Drop what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_memory
def reject(desk: Desk, ids: Sequence[str]) -> None:
    """Drop what was proposed, for good: the same proposal is not shown again.

    \b
    Examples:
      herma memory reject 3
      herma memory reject all
    """
    for_people_only("Rejecting what an agent wrote")
    rejected = [desk.store.reject(item.id) for item in chosen(_waiting(desk), ids, desk.command)]
    tell_rejected(desk.context, rejected, pending_json)


def _waiting(desk: Desk) -> list[Pending]:
    """What waits in every scope, or in the scope asked for."""
    scope = desk.scope
    everything = desk.store.pending()
    if scope == Scope():
        return everything
    return [
        item
        for item in everything
        if (scope.project and item.scope.project == scope.project) or (scope.user and item.scope.user == scope.user)
    ]


# ---------- cli.memory.tidy
#
# `herma memory tidy`: put the files in order, shown first and asked for.

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
            _tidy_show(desk, one)
    if dry_run or not busy:
        if not dry_run:
            planned = tidying.apply(planned, author=desk.author)
        if desk.context.json:
            desk.context.print_json(
                {"ok": True, "dry_run": dry_run, "files": [_tidy_as_json(one) for one in planned.files]}
            )
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
        desk.context.print_json(
            {"ok": not refused, "dry_run": False, "files": [_tidy_as_json(one) for one in report.files]}
        )
        if refused:
            desk.context.exit(1)
        return
    for outcome in outcomes:
        if outcome.ok:
            desk.context.line(success(desk, outcome))
    if refused:
        refuse(desk, refused[0])


def _tidy_show(desk: Desk, file: Tidied) -> None:
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


def _tidy_as_json(file: Tidied) -> Json:
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


# ---------- cli.memory.tail
#
# `herma memory tail`: what was taken out of the files and is still kept.

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
        desk.context.print_json(
            {"ok": True, "total": len(found), "entries": [_tail_as_json(one) for one in found[:limit]]}
        )
        return
    if not found:
        desk.context.line("Nothing was forgotten." if forgotten else "The long tail is empty.")
        return
    for one in found[:limit]:
        _tail_show(desk, one)
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
        found = [{**_tail_as_json(hit.entry), "score": round(hit.score, 3), "found_by": list(hit.why)} for hit in hits]
        desk.context.print_json({"ok": True, "entries": found})
        return
    if not hits:
        desk.context.line(f"Nothing in the long tail has to do with that. {desk.command('tail list')} shows all of it.")
    for hit in hits:
        _tail_show(desk, hit.entry, f"{hit.score:.2f}: {'; '.join(hit.why)}")


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
        desk.context.print_json({"ok": True, "dry_run": dry_run, "entries": [_tail_as_json(one) for one in found]})
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
        desk.context.print_json({"ok": True, "entries": [_tail_as_json(one) for one in found]})
    for one in found:
        desk.context.line(f"Back in the long tail: {one.id}  {preview(one.text, 90)}")
    if not found:
        desk.context.line("Nothing to bring back: it was not forgotten.")


def _tail_show(desk: Desk, one: TailEntry, found: str = "") -> None:
    first, *rest = one.text.split("\n")
    desk.context.line(f"{one.id:>3}  {first}")
    for line in rest:
        desk.context.line(f"     {line}")
    recalled = f", recalled in {count(one.uses, 'conversation')}" if one.uses else ""
    name = desk.name(one.target, one.scope)
    desk.context.line(f"     left {name} on {day(one.left)} {_WHY[one.why]}{recalled}; change {one.change}")
    if found:
        desk.context.line(f"     {found}")


def _tail_as_json(one: TailEntry) -> Json:
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
