"""`herma memory pending`, `approve` and `reject`: the inbox, and a person's decisions on it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from herma.cli.deciding import chosen, tell_approved, tell_how_to_decide, tell_rejected
from herma.cli.memory.desk import Desk, either_target_option, memory, with_memory
from herma.cli.memory.report import advice, outcome_json, success
from herma.cli.memory.wording import by, operation, pending_json, span
from herma.cli.person import for_people_only
from herma.types import Pending, Scope, Target
from herma.wording.sessions import count


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
        _show(desk, item, now)
    tell_how_to_decide(desk.context, waiting, count(len(waiting), "write"), desk.command)


def _show(desk: Desk, item: Pending, now: float) -> None:
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
