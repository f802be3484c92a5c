"""`herma skills pending`, `approve` and `reject`: the inbox, and a person's decisions on it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click

from herma.cli.deciding import chosen, tell_approved, tell_how_to_decide, tell_rejected
from herma.cli.memory.wording import by, preview, span
from herma.cli.person import for_people_only
from herma.cli.skills.desk import Desk, Json, outcome_json, skills, with_skills
from herma.types import (
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    RemoveSkillFile,
    SkillOp,
    SkillPending,
    WriteSkillFile,
)
from herma.wording.sessions import count, iso


@skills.command(short_help="List the writes that wait for a person")
@with_skills
def pending(desk: Desk) -> None:
    """List the writes that wait for a person, oldest first.

    With skills.write_approval on, everything that agents write waits here; what repeats text from outside always does.

    \b
    Examples:
      herma skills pending
      herma skills pending --json
    """
    waiting = desk.library.pending()
    if desk.context.json:
        desk.context.print_json({"ok": True, "pending": [pending_json(item) for item in waiting]})
        return
    if not waiting:
        desk.context.line("Nothing is waiting.")
        return
    now = time.time()
    for item in waiting:
        desk.context.line(
            f"{item.id:>3}  {item.operation.name}, proposed by {by(item.author)}, {span(now - item.at)} ago; "
            f"expires in {span(item.expires - now)}"
        )
        for line in _described(item.operation):
            desk.context.line(f"     {line}")
    tell_how_to_decide(desk.context, waiting, count(len(waiting), "write"), desk.command)


@skills.command(short_help="Carry out what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_skills
def approve(desk: Desk, ids: Sequence[str]) -> None:
    """Carry out what was proposed. Only a person may: it is refused inside an agent.

    \b
    Examples:
      herma skills approve 3
      herma skills approve all
    """
    for_people_only("Approving what an agent wrote")
    results: list[Json] = []
    for item in chosen(desk.library.pending(), ids, desk.command):
        outcome = desk.library.approve(item.id)
        results.append({"id": item.id, **outcome_json(outcome)})
        if outcome.ok:
            desk.context.line(f"{item.id}: {outcome.message}")
        else:
            desk.context.warn(f"{item.id} stays in the inbox: {outcome.message}")
    tell_approved(desk.context, results)


@skills.command(short_help="Drop what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_skills
def reject(desk: Desk, ids: Sequence[str]) -> None:
    """Drop what was proposed, for good: the same proposal is not shown again.

    \b
    Examples:
      herma skills reject 3
      herma skills reject all
    """
    for_people_only("Rejecting what an agent wrote")
    rejected = [desk.library.reject(item.id) for item in chosen(desk.library.pending(), ids, desk.command)]
    tell_rejected(desk.context, rejected, pending_json)


def pending_json(item: SkillPending) -> Json:
    return {
        "id": item.id,
        "at": iso(item.at),
        "expires": iso(item.expires),
        "who": item.author.who,
        "origin": item.author.origin,
        "session": item.author.session,
        "action": type(item.operation).__name__,
        "operation": item.operation,
        "reason": item.reason,
    }


def _described(op: SkillOp) -> list[str]:
    match op:
        case CreateSkill() | EditSkill():
            verb = "create" if isinstance(op, CreateSkill) else "replace by"
            return [f"{verb}:", *(f"  {line}" for line in op.content.split("\n")[:12])]
        case PatchSkill():
            return [f"in {op.file}:", f"  - {preview(op.old, 90)}", f"  + {preview(op.new, 90)}"]
        case DeleteSkill():
            return ["archive it" + (f", absorbed into {op.absorbed_into}" if op.absorbed_into else "")]
        case WriteSkillFile():
            return [f"write {op.file}: {preview(op.content, 80)}"]
        case RemoveSkillFile():
            return [f"remove {op.file}"]
