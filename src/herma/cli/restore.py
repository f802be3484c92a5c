"""`herma restore`: what is known for a task, for any agent to go on with."""

from __future__ import annotations

import click

from herma.cli.episodes import episode_json, state_json
from herma.cli.frame import HermaCommand
from herma.cli.sessions.desk import Desk, with_sessions
from herma.types import Restored


@click.command(cls=HermaCommand)
@click.argument("task", nargs=-1, required=True)
@click.option("--project", metavar="NAME", help="The project that the task is in.")
@click.option("--user", metavar="ID", help="Whose task it is.")
@click.option(
    "--budget",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="Tokens; without it, a window's share for memory.",
)
@with_sessions
def restore(desk: Desk, task: tuple[str, ...], project: str | None, user: str | None, budget: int | None) -> None:
    """Put together what is known for a task: where the work was left, memory, skills that fit, earlier work.

    The text is for a model to read: give it to any agent. When the budget is small, earlier work goes first, then
    skills; curated memory is never cut.

    \b
    Examples:
      herma restore fix the login bug
      herma restore "write the importer" --project shop --budget 2000
      herma restore "write the importer" --json
    """
    done = desk.h.restore(" ".join(task), project=project, user=user, budget_tokens=budget)
    if desk.context.json:
        desk.context.print_json(_as_json(done))
        return
    for line in done.text.splitlines():
        desk.context.line(line)
    for note in done.notes:
        desk.context.warn(note)


def _as_json(done: Restored) -> dict[str, object]:
    return {
        "ok": True,
        "task": done.task,
        "text": done.text,
        "tokens": done.tokens,
        "budget_tokens": done.budget_tokens,
        "blocks": [
            {"kind": one.kind, "text": one.text, "tokens": one.tokens, "shown": one.shown, "left_out": one.left_out}
            for one in done.blocks
        ],
        "skills": list(done.skills),
        "episodes": [{**episode_json(hit.episode), "similarity": hit.similarity} for hit in done.episodes],
        "state": state_json(done.state),
        "notes": list(done.notes),
    }
