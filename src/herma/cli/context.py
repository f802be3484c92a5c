"""`herma context`: the model's window, and what is in it."""

from __future__ import annotations

import shutil
import sys

import click

from herma.cli.context_recall import recall, recalled
from herma.cli.frame import HermaGroup
from herma.cli.sessions.desk import Desk, with_sessions
from herma.cli.sessions.wording import count, name_of, when
from herma.prompt.budget import LABELS, Plan, draw
from herma.types import SessionFilter, SessionInfo

_WIDTH = 72


@click.group(cls=HermaGroup)
def context() -> None:
    """See what the model's window holds, and what is recalled into it.

    \b
    Examples:
      herma context show
      herma context recall "which hash did we choose?"
      herma context show 20261231_2359
    """


context.add_command(recall)
context.add_command(recalled)


@context.command()
@click.argument("session", required=False)
@click.option("--empty", is_flag=True, help="A session that would begin now, instead of the latest one.")
@with_sessions
def show(desk: Desk, session: str | None, empty: bool) -> None:
    """Draw the model's window: system prompt, memory, conversation, tool results, and what is kept for the reply.

    SESSION is an id, the beginning of one, or a title; without it, the latest session. Every part has a share of the
    window. What does not fit goes elsewhere, and where is said. The window's size comes from the model's name, or from
    context.window; how it is divided, from context.profile and the shares beside it.

    \b
    Examples:
      herma context show
      herma context show "login bug" --json
      herma context show --empty
    """
    if session is not None and empty:
        raise click.UsageError("A session that would begin now has no id.")
    info = desk.find(session) if session is not None else None if empty else _latest(desk)
    plan = desk.h.working_memory(info.id if info else None)
    if desk.context.json:
        desk.context.print_json({"ok": True, "session": info.id if info else None, **_as_json(plan)})
        return
    desk.context.line(_title(desk, info, plan))
    desk.context.line()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in draw(plan, min(width, 2 * _WIDTH)).splitlines():
        desk.context.line(line)


def _latest(desk: Desk) -> SessionInfo | None:
    found = desk.transcripts.list(SessionFilter(archived=None), limit=1)
    return desk.transcripts.get(found[0].id) if found else None


def _title(desk: Desk, info: SessionInfo | None, plan: Plan) -> str:
    size = f"a window of {plan.window:,} tokens"
    if info is None:
        model = desk.h.settings.model.name
        return f"A session that would begin now{f' with {model}' if model else ''}, {size}"
    facts = [info.id, count(info.message_count, "message"), when(info.last_active), info.model or ""]
    return f"{name_of(info, 50)} ({', '.join(filter(None, facts))}), {size}"


def _as_json(plan: Plan) -> dict[str, object]:
    return {
        "window": plan.window,
        "used": plan.used,
        "free": plan.free,
        "slots": {
            use.slot: {"name": LABELS[use.slot], "room": use.room, "used": use.used, "over": use.over}
            for use in plan.uses
        },
        "overflows": [{"slot": one.slot, "tokens": one.tokens, "where": one.where} for one in plan.overflows],
        "note": plan.note,
    }
