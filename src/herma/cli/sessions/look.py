"""`herma sessions list`: one line per conversation."""

from __future__ import annotations

import shutil
import sys

import click

from herma.cli.sessions.desk import Desk, limit_option, sessions, with_sessions
from herma.cli.sessions.lines import write_lines
from herma.cli.sessions.wording import count, marked_name, name_of, session_json, short_when, when
from herma.types import SessionFilter, SessionInfo

_WIDE = 100
"""Cells of a terminal from which on there is room for whole dates and for projects."""
_NARROW = 72
"""Cells below which there is room for an id and a title only."""


@sessions.command("list")
@limit_option
@click.option("--source", metavar="NAME", help="Only sessions from there: cli, telegram, cron, …")
@click.option("--project", metavar="NAME", help="Only sessions of this project, or below this folder.")
@click.option("--search", metavar="TEXT", help="Only those with this in their title or id.")
@click.option("--archived", is_flag=True, help="Only those that were archived.")
@click.option("--deleted", is_flag=True, help="Those that were deleted and can still be brought back.")
@click.option("--all", "everything", is_flag=True, help="Archived ones and those of subagents too.")
@with_sessions
def list_(
    desk: Desk,
    limit: int,
    source: str | None,
    project: str | None,
    search: str | None,
    archived: bool,
    deleted: bool,
    everything: bool,
) -> None:
    """List conversations, the last active first. What was said is found by `herma search`.

    \b
    Examples:
      herma sessions list
      herma sessions list --source cli --limit 50
      herma sessions list --search login
      herma sessions list --deleted
    """
    if deleted:
        _deleted(desk)
        return
    which = SessionFilter(
        source=source,
        project=project,
        search=search,
        archived=True if archived else None if everything else False,
        delegated=None if everything or archived else False,
    )
    found = desk.transcripts.list(which, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if desk.context.json:
        desk.context.print_json({"ok": True, "sessions": [session_json(one) for one in found], "more": more})
        return
    table(desk, found)
    if not found:
        _nothing(desk, filtered=which != SessionFilter(archived=False, delegated=False))
    if more:
        chosen = (("--source", source), ("--project", project), ("--search", search))
        words = [word for name, value in chosen if value for word in (name, value)]
        flags = [name for name, given in (("--archived", archived), ("--all", everything)) if given]
        again = desk.command("sessions", "list", *words, *flags, "--limit", str(limit * 5))
        desk.context.line(f"There are more: {again}")


def table(desk: Desk, found: list[SessionInfo]) -> None:
    """Conversations or sessions, one line each; columns that say nothing are left out."""
    if not found:
        return
    wide = _is_at_least(_WIDE)
    most = max(4, *(len(f"{one.message_count:,}") for one in found))
    columns = ["id", "last active", "source", "msgs"]
    moment = when if wide else short_when
    rows = [[one.id, moment(one.last_active), one.source, f"{one.message_count:>{most},}"] for one in found]
    if not _is_at_least(_NARROW):
        columns, rows = columns[:1], [row[:1] for row in rows]
    if wide and any(one.scope.project for one in found):
        columns.append("project")
        rows = [[*row, _project(one)] for row, one in zip(rows, found, strict=True)]
    columns.append("title or first words")
    write_lines(desk.context, columns, [[*row, marked_name(one)] for row, one in zip(rows, found, strict=True)])


def _is_at_least(cells: int) -> bool:
    """Whether a line may be so long; elsewhere than on a terminal it may."""
    return not sys.stdout.isatty() or shutil.get_terminal_size().columns >= cells


def _project(session: SessionInfo) -> str:
    """A project as people call it: the last folder of a path."""
    return session.scope.project.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def _nothing(desk: Desk, *, filtered: bool) -> None:
    stats = desk.transcripts.stats()
    if not stats.sessions:
        desk.context.line("No sessions yet. They appear here when an agent works with this home.")
    elif filtered:
        desk.context.line(f"None of the {count(stats.conversations, 'conversation')} fits what you asked for.")
    if stats.sessions and not filtered:
        every = desk.command("sessions", "list", "--all")
        desk.context.line(f"All {count(stats.conversations, 'conversation')} are archived or a subagent's: {every}")


def _deleted(desk: Desk) -> None:
    """What waits to be purged, with the day until which it can be brought back."""
    found = desk.deleted()
    if desk.context.json:
        listed = [session_json(one) for one in found]
        desk.context.print_json({"ok": True, "sessions": listed, "more": False})
        return
    if not found:
        desk.context.line("Nothing is deleted.")
        return
    moment = when if _is_at_least(_WIDE) else short_when
    columns = ["id", "deleted", "gone for good", "msgs", "title or first words"]
    rows = [
        [one.id, moment(one.deleted), moment((one.deleted or 0) + desk.grace), one.message_count, name_of(one)]
        for one in found
    ]
    if not _is_at_least(_NARROW):
        columns, rows = [columns[0], columns[-1]], [[row[0], row[-1]] for row in rows]
    write_lines(desk.context, columns, rows)
    desk.context.line(f"To bring one back: {desk.command('sessions', 'undelete', found[0].id)}")
    if len({one.conversation for one in found}) > 1:
        desk.context.line(f"All of them: {desk.command('sessions', 'undelete', '--all')}")
