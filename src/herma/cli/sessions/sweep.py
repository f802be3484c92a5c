"""`herma sessions delete`, `undelete` and `prune`: shown first, asked for, and undoable for some days."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from herma.cli.frame import yes_option
from herma.cli.sessions.desk import Desk, dry_run_option, read_days, read_moment, sessions, with_sessions
from herma.cli.sessions.look import table
from herma.cli.sessions.wording import count, iso, name_of, session_json, when
from herma.errors import UsageError
from herma.transcript.retention import Keeping
from herma.types import Deletion, SessionFilter, SessionInfo

_SHOWN = 20
"""Sessions that are listed before the question."""
_NAMED = 5
"""Conversations that are named one by one in what brings them back."""


@sessions.command(short_help="Delete conversations; undoable for some days")
@click.argument("session", metavar="ID…", nargs=-1, required=True)
@yes_option
@dry_run_option
@with_sessions
def delete(desk: Desk, session: tuple[str, ...], dry_run: bool) -> None:
    """Delete whole conversations, with what was delegated from them. They can be brought back for some days.

    \b
    Examples:
      herma sessions delete 20261231_2359 --dry-run
      herma sessions delete "Login bug" "Old notes" --yes
      herma sessions undelete 20261231_2359
    """
    found = {one.conversation: one for one in desk.find_all(session)}
    would = desk.transcripts.delete([one.id for one in found.values()], dry_run=True)
    if dry_run:
        _report(desk, would)
        return
    _preview(desk, would.sessions)
    what = count(len(found), "conversation")
    if not desk.context.confirm(f"Delete {what if len(found) > 1 else 'this conversation'}?"):
        _declined(desk)
    _report(desk, desk.transcripts.delete([one.id for one in found.values()]))
    _purge(desk)


@sessions.command(short_help="Bring deleted conversations back")
@click.argument("session", metavar="ID…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that can still be brought back.")
@with_sessions
def undelete(desk: Desk, session: tuple[str, ...], everything: bool) -> None:
    """Bring deleted conversations back, with what was delegated from them.

    \b
    Examples:
      herma sessions list --deleted
      herma sessions undelete 20261231_2359
      herma sessions undelete --all
    """
    if bool(session) == everything:
        hint = f"`{desk.command('sessions', 'list', '--deleted')}` shows what can be brought back."
        raise UsageError("Which sessions?" if not session else "IDs and --all contradict.", hint=hint)
    waiting = desk.deleted()
    wanted = [one.id for one in waiting] if everything else [_deleted(desk, text, waiting).id for text in session]
    back = desk.transcripts.undelete(wanted) if wanted else []
    if desk.context.json:
        desk.context.print_json({"ok": True, "sessions": [session_json(one) for one in back]})
        return
    if not back:
        desk.context.line("Nothing is deleted.")
    for one in back:
        desk.context.line(f"Back again: {one.id}  {count(one.message_count, 'message')}  {name_of(one)}")


def _deleted(desk: Desk, text: str, waiting: Sequence[SessionInfo]) -> SessionInfo:
    """The deleted session meant by an id, its beginning, or a title."""
    exact = [one for one in waiting if text in (one.id, one.title)]
    found = exact or [one for one in waiting if one.id.startswith(text)]
    if text and len({one.conversation for one in found}) == 1:
        return found[0]
    if text and found:
        hint = "\n      ".join(["Say more of the one you mean:", *(f"{one.id}  {name_of(one)}" for one in found[:8])])
        raise UsageError(f"Several deleted sessions begin with {text!r}.", hint=hint)
    if text and desk.transcripts.get(text) is not None:
        raise UsageError(f"Session {text} is not deleted.", hint=f"{desk.command('sessions', 'show', text)}")
    raise UsageError(
        f"There is no deleted session {text!r}.",
        hint=f"`{desk.command('sessions', 'list', '--deleted')}` shows what can be brought back.",
    )


# ── prune ──


_THEN = "then: 2026-03-05, 2026-03, 7d, yesterday."


def _read_folder(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """As sessions keep it: `.` is where one is now. It need not be there any more."""
    return value if value is None or not value.strip() else os.path.abspath(Path(value).expanduser())  # noqa: PTH100


def _filter_options(function: Any) -> Any:
    """Which sessions are meant; bounds are inclusive."""
    for option in reversed(
        (
            click.option("--source", metavar="NAME", help="Only sessions from there."),
            click.option("--exclude-source", "exclude_sources", metavar="NAME", multiple=True, help="None from there."),
            click.option("--title", "search", metavar="TEXT", help="Only those with this in their title or id."),
            click.option("--end-reason", metavar="REASON", help="Only those that ended so: closed, reset, error, …"),
            click.option("--model", metavar="TEXT", help="Only those with this in the name of their model."),
            click.option("--project", metavar="NAME", help="Only those of this project, or below this folder."),
            click.option("--user", metavar="ID", help="Only those of this user."),
            click.option("--chat", metavar="ID", help="Only those of this chat."),
            click.option("--chat-type", metavar="KIND", help="Only those in such a chat: direct, group, channel, …"),
            click.option("--provider", metavar="NAME", help="Only those whose model this provider ran."),
            click.option(
                "--folder", metavar="PATH", callback=_read_folder, help="Only those in this folder, or below it."
            ),
            click.option("--branch", metavar="TEXT", help="Only those with this in the name of their git branch."),
            click.option(
                "--before", "started_before", metavar="TIME", callback=read_moment, help=f"Begun before {_THEN}"
            ),
            click.option("--after", "started_after", metavar="TIME", callback=read_moment, help=f"Begun after {_THEN}"),
            click.option("--archived/--not-archived", default=None, help="Only archived ones, or none of them."),
            *_bounds("messages", "messages", click.IntRange(0)),
            *_bounds("tool-calls", "tool calls", click.IntRange(0)),
            *_bounds("tokens", "tokens", click.IntRange(0)),
            *_bounds("cost", "dollars", click.FloatRange(0)),
        )
    ):
        function = option(function)
    return function


def _bounds(name: str, what: str, kind: click.ParamType[Any]) -> list[Any]:
    return [
        click.option(f"--min-{name}", type=kind, metavar="N", help=f"Only those with at least N {what}."),
        click.option(f"--max-{name}", type=kind, metavar="N", help=f"Only those with at most N {what}."),
    ]


@sessions.command(short_help="Delete old conversations, by what they have in common")
@click.option(
    "--older-than",
    metavar="TIME",
    default="90d",
    show_default=True,
    callback=read_days,
    help="Quiet for at least so long: 90d, 12h, 6w, 3mo, 1y.",
)
@_filter_options
@click.option("--open", "also_open", is_flag=True, help="Also sessions that never ended.")
@click.option("--retention", is_flag=True, help="Instead: what retention.days and retention.by_source keep no longer.")
@yes_option
@dry_run_option
@with_sessions
def prune(desk: Desk, /, older_than: float, also_open: bool, retention: bool, dry_run: bool, **filters: Any) -> None:
    """Delete old conversations. It shows what it would take, and asks; they can be brought back for some days.

    A conversation goes as a whole: when one of its sessions matches, none was active lately or is still open, and all
    of it together is no more than what you allow.

    \b
    Examples:
      herma sessions prune --dry-run
      herma sessions prune --older-than 30d --source cron --max-messages 4
      herma sessions prune --older-than 1y --yes
      herma sessions prune --branch feature/ --chat-type group --dry-run
      herma sessions prune --retention --yes
    """
    which = SessionFilter(**filters)
    keeping = _keeping(desk, which) if retention else None

    def candidates() -> Deletion:
        if keeping is not None:
            return desk.transcripts.expire(keeping, dry_run=True)
        return desk.transcripts.prune(which, older_than_days=older_than, ended_only=not also_open, dry_run=True)

    found = candidates()
    if dry_run or not found.sessions:
        _report(desk, found, since=None if keeping else time.time() - older_than * 86_400, also_open=also_open)
        return
    _preview(desk, found.sessions)
    if not desk.context.confirm(f"Delete {count(len(found.sessions), 'session')}?"):
        _declined(desk)
    shown = {one.id for one in found.sessions}
    still = [one.id for one in candidates().sessions if one.id in shown]  # only what was shown, and is quiet still
    _report(desk, desk.transcripts.delete(still, whole=False))
    _purge(desk)


def _keeping(desk: Desk, which: SessionFilter) -> Keeping:
    """What the configuration says; it has no use for filters besides."""
    if which != SessionFilter(exclude_sources=()):
        raise UsageError("--retention goes by the configuration only.", hint="Leave the filters out.")
    options = desk.h.settings.retention
    keeping = Keeping.read(options.days, options.by_source)
    if not keeping.days and not any(keeping.by_source.values()):
        hint = f"For example: {desk.command('config', 'set', 'retention.by_source', 'cron=30, subagent=7')}"
        raise UsageError("The configuration keeps everything for ever.", hint=hint)
    return keeping


# ── what came of it ──


def _preview(desk: Desk, members: Sequence[SessionInfo]) -> None:
    if desk.context.json:
        return
    table(desk, list(members[:_SHOWN]))
    if len(members) > _SHOWN:
        desk.context.line(f"and {count(len(members) - _SHOWN, 'more session')}")
    messages = sum(one.message_count for one in members)
    desk.context.line(f"{count(len(members), 'session')} with {count(messages, 'message')}.")


def _report(desk: Desk, done: Deletion, since: float | None = None, also_open: bool = False) -> None:
    if desk.context.json:
        desk.context.print_json(
            {
                "ok": True,
                "dry_run": done.dry_run,
                "sessions": [session_json(one) for one in done.sessions],
                "messages": done.messages,
                "until": None if done.dry_run else iso(done.until),
            }
        )
        return
    if done.dry_run:
        _preview(desk, done.sessions) if done.sessions else _nothing(desk, since, also_open)
        desk.context.line("Nothing was deleted.")
        return
    what = f"{count(len(done.sessions), 'session')} with {count(done.messages, 'message')}"
    desk.context.line(f"Deleted {what}.")
    first: dict[str, str] = {}
    for one in sorted(done.sessions, key=lambda one: one.reason == "delegation"):
        if one.reason != "delegation" or one.parent not in {other.id for other in done.sessions}:
            first.setdefault(one.conversation, one.id)
    words = ["sessions", "undelete", *first.values()]
    if len(first) > _NAMED:
        only_these = {one.id for one in desk.deleted()} == {one.id for one in done.sessions}
        words = ["sessions", "undelete", "--all"] if only_these else ["sessions", "list", "--deleted"]
    whom = "it" if len(done.sessions) == 1 else "they"
    desk.context.line(f"Until {when(done.until)} {whom} can be brought back: {desk.command(*words)}")


def _purge(desk: Desk) -> None:
    """Whoever clears out also takes out what was deleted long ago."""
    gone = desk.transcripts.purge_expired()
    if gone:
        desk.context.line(f"Gone for good, because deleted longer ago: {count(len(gone), 'session')}.")


def _nothing(desk: Desk, since: float | None, also_open: bool) -> None:
    if since is None:
        desk.context.line("Nothing to delete.")
        return
    open_ones = "" if also_open else " Sessions that have not ended are left alone, unless you add --open."
    desk.context.line(f"No conversation that fits has been quiet since {when(since)}.{open_ones}")


def _declined(desk: Desk) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was deleted."})
    desk.context.line("Nothing was deleted.")
    desk.context.exit(1)
