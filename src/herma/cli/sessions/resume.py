"""`herma sessions resume`: go on with a conversation, in the terminal."""

from __future__ import annotations

import click

from herma.cli.sessions.desk import Desk, sessions, with_sessions
from herma.errors import UsageError


@sessions.command()
@click.argument("session", metavar="WHAT")
@click.option("-p", "--prompt", metavar="TEXT", help="Ask this, print the answer, and leave.")
@with_sessions
def resume(desk: Desk, session: str, prompt: str | None) -> None:
    """Go on with a conversation: the same as herma chat --resume.

    WHAT is an id, the beginning of one, or a title or the beginning of one.

    \b
    Examples:
      herma sessions resume "login bug"
      herma sessions resume 20261231_2359 -p "What was left to do?"
    """
    from herma.cli.chat.command import start
    from herma.cli.chat.talk import Wanted

    if desk.context.json and prompt is None:
        raise UsageError("--json is for one question.", hint='Add it: -p "…"')
    start(desk.context, desk.h, Wanted(resume=desk.find(session).id), prompt)
