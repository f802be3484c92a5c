"""`herma sessions expand`: the original messages behind a line of a summary."""

from __future__ import annotations

import click

from herma.cli.frame import HermaCommand
from herma.cli.sessions.conversation import write_message
from herma.cli.sessions.desk import Desk, sessions, with_sessions
from herma.cli.sessions.wording import count, message_json
from herma.reflect.compress.summary import ranges


class _TakesLines(HermaCommand):
    """A line of a summary begins with a dash and a space; that is no option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [arg.removeprefix("- ") for arg in args if arg != "-"])


@sessions.command(cls=_TakesLines, short_help="Read the messages behind a line of a summary")
@click.argument("line", metavar="SUMMARY_LINE", nargs=-1, required=True)
@click.option("--session", metavar="ID", help="The conversation that is meant; needed where the line has no numbers.")
@click.option("--full", is_flag=True, help="Each message whole.")
@with_sessions
def expand(desk: Desk, line: tuple[str, ...], session: str | None, full: bool) -> None:
    """Read the original messages behind a line of a summary.

    When a conversation no longer fits, a summary takes the place of its earlier part, and each line of it ends with the
    numbers of the messages that it was made from. Give the line as it stands, its numbers, or, with --session, some
    words of it.

    \b
    Examples:
      herma sessions expand "#12-18"
      herma sessions expand "- Fixed the login in src/login.py [#12-18]"
      herma sessions expand "fixed the login" --session 20261231_2359
    """
    found = desk.h.expand(" ".join(line), session=desk.find(session).id if session is not None else None)
    if desk.context.json:
        listed = [message_json(message) for message in found.messages]
        desk.context.print_json({"ok": True, "line": found.line, "messages": listed, "missing": list(found.missing)})
        return
    desk.context.line(found.line)
    for message in found.messages:
        write_message(message, full=full)
    desk.context.line()
    if found.missing:
        desk.context.line(f"{count(len(found.missing), 'message')} not there any more: {ranges(found.missing)}")
    first = found.messages[0]
    near = desk.command("sessions", "show", first.session_id, "--around", str(first.id), "--hidden")
    desk.context.line(f"What was said around them: {near}")
