"""`herma sessions rename` and `archive`: what people change about sessions."""

from __future__ import annotations

import click

from herma.cli.sessions.desk import Desk, sessions, with_sessions
from herma.cli.sessions.wording import count, name_of
from herma.errors import UsageError


@sessions.command(short_help="Give a conversation a title")
@click.argument("session", metavar="ID")
@click.argument("title", nargs=-1)
@click.option("--clear", is_flag=True, help="Take the title away.")
@with_sessions
def rename(desk: Desk, session: str, title: tuple[str, ...], clear: bool) -> None:
    """Give a conversation a title that no other has.

    \b
    Examples:
      herma sessions rename 20261231_2359 "Login bug on Safari"
      herma sessions rename "Login bug" Sign-in problems
      herma sessions rename 20261231_2359 --clear
    """
    wanted = " ".join(title).strip()
    if bool(wanted) == clear:
        hint = "Give a title, or --clear to take it away." if not clear else "Give either a title or --clear."
        raise UsageError("There is no title to give." if not clear else "A title and --clear contradict.", hint=hint)
    found = desk.find(session)
    kept = desk.transcripts.rename(found.id, wanted or None)
    if desk.context.json:
        desk.context.print_json({"ok": True, "id": found.id, "title": kept, "before": found.title})
    before = f" It was {found.title!r}." if found.title and found.title != kept else ""
    desk.context.line(
        f"{found.id} is now called {kept!r}.{before}" if kept else f"{found.id} has no title now.{before}"
    )


@sessions.command(short_help="Put conversations away, or take them out again")
@click.argument("session", metavar="ID…", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Take them out again.")
@with_sessions
def archive(desk: Desk, session: tuple[str, ...], undo: bool) -> None:
    """Put whole conversations away: lists and searches leave them out, nothing is deleted.

    \b
    Examples:
      herma sessions archive 20261231_2359
      herma sessions archive "Login bug" --undo
      herma sessions list --archived
    """
    found = {one.conversation: one for one in desk.find_all(session)}
    changed = {one.id: desk.transcripts.archive(one.id, not undo) for one in found.values()}
    if desk.context.json:
        listed = [{"id": one.id, "title": one.title, "sessions": changed[one.id]} for one in found.values()]
        desk.context.print_json({"ok": True, "archived": not undo, "conversations": listed})
        return
    for one in found.values():
        parts = f" ({count(changed[one.id], 'session')})" if changed[one.id] > 1 else ""
        desk.context.line(f"{'Taken out again' if undo else 'Archived'}: {one.id}  {name_of(one)}{parts}")
    if not undo:
        words = ["sessions", "archive", *(one.id for one in found.values()), "--undo"]
        desk.context.line(f"To take it back: {desk.command(*words)}")
