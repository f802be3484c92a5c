"""`herma sessions`: list, read, rename, archive, delete, export and import conversations."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from herma.cli import output
from herma.cli.context import (
    CommandContext,
    HermaGroup,
    completing,
    dry_run_option,
    limit_option,
    with_home,
    yes_option,
)
from herma.cli.encode import Json, iso, message_json, session_json, stats_json
from herma.cli.output import count, databases, marked_name, name_of, one_line, short_when, size, when
from herma.compression.summary import ranges
from herma.errors import HermaError, StoreError, UsageError
from herma.transcript import transfer
from herma.transcript.log import DAY, Keeping
from herma.transcript.messages import called, words_of
from herma.transcript.transfer import UNFINISHED, ImportReport
from herma.types import Deletion, Message, SessionFilter, SessionInfo

if TYPE_CHECKING:
    from herma.transcript.transfer import Redactor

F = TypeVar("F", bound=Callable[..., Any])
MANY = 5_000
"""Progress is shown from this many messages on."""
_CANDIDATES = 8
"""Sessions that an error, or a report, names at most."""
_SPANS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0, "m": 30.0, "y": 365.0}


@click.group(cls=HermaGroup, order="list show rename archive delete export import")
def sessions() -> None:
    """List, read, export and delete past sessions.

    Sessions that continue one another are one conversation, and one line of the list. An ID may be shortened; a title,
    or the beginning of one, works too. To search what was said, use `herma search`; to continue a conversation, `herma
    chat --resume ID`.

    \b
    Examples:
      herma sessions list
      herma sessions show 20261231_2359
      herma sessions export --all -o sessions.jsonl

    \b
    With --json a list prints ok and sessions or messages; a change prints ok and what it did.
    Times are ISO 8601 in UTC.
    """


# ── find a session ───────────────────────────────────────────────────────────────────────────────────────────────────


def find_session(context: CommandContext, text: str) -> SessionInfo:
    """Return the session with this id or title, or the beginning of either, or this number in the last search.

    `UsageError` lists the candidates if there are several.
    """
    if not text.strip():
        raise UsageError("The id is empty.", hint=f"`{context.command('sessions', 'list')}` lists the ids.")
    transcripts = context.h.transcripts
    text = context.listed("search", text) or text
    try:
        found = transcripts.resolve(text)
    except UsageError:
        raise _ambiguous(text, _similar(context, text)) from None
    session = transcripts.get(found) if found else None
    if session is not None:
        return session
    similar = _similar(context, text)
    titled = [one for one in similar if (one.title or "").casefold().startswith(text.casefold())]
    titled = [one for one in titled if (one.title or "").casefold() == text.casefold()] or titled
    if len(titled) == 1:
        return titled[0]
    raise _ambiguous(text, titled) if titled else _unknown(context, text, similar)


def find_sessions(context: CommandContext, texts: Sequence[str]) -> list[SessionInfo]:
    """Return each of these sessions once; all are found before anything is done to one of them."""
    return list({one.id: one for one in (find_session(context, text) for text in texts)}.values())


def _complete_session(context: CommandContext, typed: str) -> list[tuple[str, str]]:
    """Return the ids of conversations whose id or title contains what was typed."""
    return [(one.id, name_of(one, 60)) for one in _similar(context, typed)[:20]]


complete_session = completing(_complete_session)


def session_argument(metavar: str, **attributes: Any) -> Callable[[F], F]:
    """Declare the argument `session`, which the shell completes."""
    return click.argument("session", metavar=metavar, shell_complete=complete_session, **attributes)


def _similar(context: CommandContext, text: str) -> list[SessionInfo]:
    return context.h.transcripts.list(SessionFilter(search=text or None), limit=50)


def _ambiguous(text: str, found: Sequence[SessionInfo]) -> UsageError:
    return UsageError(f"Several sessions begin with {text!r}.", hint=_listed(_TYPE_MORE, found), code="ambiguous")


def _unknown(context: CommandContext, text: str, similar: Sequence[SessionInfo]) -> UsageError:
    sentence = f"There is no session {text!r}."
    if similar:
        return UsageError(sentence, hint=_listed("These have it in their title or id:", similar), code="not_found")
    deleted = [one for one in deleted_sessions(context) if one.id.startswith(text) or one.title == text]
    if deleted:
        undelete = context.command("sessions", "delete", "--undo", deleted[0].id)
        return UsageError(f"Session {deleted[0].id} is deleted.", hint=f"To restore it: {undelete}", code="deleted")
    lists, search = context.command("sessions", "list"), context.command("search", text)
    return UsageError(sentence, hint=f"`{lists}` lists them; `{search}` searches them.", code="not_found")


_TYPE_MORE = "Type more of the one you mean:"


def _listed(title: str, found: Sequence[SessionInfo]) -> str:
    lines = [f"{one.id}  {when(one.last_active)}  {name_of(one, 60)}" for one in found[:_CANDIDATES]]
    if len(found) > _CANDIDATES:
        lines.append(f"and {len(found) - _CANDIDATES:,} more")
    return "\n      ".join([title, *lines])


def grace(context: CommandContext) -> float:
    """Return the seconds in which a deletion can be undone."""
    return context.h.settings.retention.grace_days * DAY


def deleted_sessions(context: CommandContext) -> list[SessionInfo]:
    """Return the deleted sessions that can be restored; not unfinished imports or sessions about to be purged."""
    expired = time.time() - grace(context)
    waiting = context.h.transcripts.deleted()
    return [one for one in waiting if one.end_reason != UNFINISHED and (one.deleted or 0.0) >= expired]


def read_moment(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Parse a time as in a query (`2026-03-05`, `7d`, `yesterday`, `last week`): the beginning of what is named."""
    if value is None:
        return None
    from herma.search.dates import read_value

    span = read_value(value, time.time())
    if span is None or span.since is None:
        raise click.BadParameter(
            f"{value[:40]!r} is not a time. Try 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return span.start


def _read_days(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Parse a length of time in days: `90d`, `12h`, `6mo`, `90`."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*(h|d|w|mo|m|y)?", value.strip().lower())
    if found is None:
        raise click.BadParameter(
            f"{value[:40]!r} is not a length of time. Try 90d, 12h, 6w, 3mo or 1y.", param=parameter
        )
    return float(found[1]) * _SPANS[found[2] or "d"]


# ── list ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@sessions.command("list", short_help="List conversations, the last active first")
@limit_option
@click.option("--source", metavar="NAME", help="Only sessions from there: cli, telegram, cron, …")
@click.option("--project", metavar="NAME", help="Only sessions of this project, or below this folder.")
@click.option("--search", metavar="TEXT", help="Only those with this in their title (or first words) or id.")
@click.option("--archived", is_flag=True, help="Only archived ones.")
@click.option("--deleted", is_flag=True, help="Deleted ones that can still be restored.")
@click.option("--all", "everything", is_flag=True, help="Archived ones and those of subagents too.")
@click.option("--stats", is_flag=True, help="Count sessions and messages instead, and measure the files.")
@with_home
def list_(
    context: CommandContext,
    limit: int,
    source: str | None,
    project: str | None,
    search: str | None,
    archived: bool,
    deleted: bool,
    everything: bool,
    stats: bool,
) -> None:
    """List conversations, the last active first. To search what was said, use `herma search`.

    \b
    Examples:
      herma sessions list
      herma sessions list --source cli --limit 50
      herma sessions list --search login
      herma sessions list --deleted
      herma sessions list --stats
    """
    if stats:
        _stats(context)
        return
    if deleted:
        _list_deleted(context)
        return
    which = SessionFilter(
        source=source,
        project=project,
        search=search,
        archived=True if archived else None if everything else False,
        delegated=None if everything or archived else False,
    )
    found = context.h.transcripts.list(which, limit=limit + 1)
    more, found = len(found) > limit, found[:limit]
    if context.json:
        context.print_json({"ok": True, "sessions": [session_json(one) for one in found], "more": more})
        return
    _table(context, found)
    if not found:
        _nothing_listed(context, filtered=which != SessionFilter(archived=False, delegated=False))
    if more:
        chosen = (("--source", source), ("--project", project), ("--search", search))
        words = [word for name, value in chosen if value for word in (name, value)]
        flags = [name for name, given in (("--archived", archived), ("--all", everything)) if given]
        again = context.command("sessions", "list", *words, *flags, "--limit", str(limit * 5))
        context.line(f"There are more: {again}")


def _table(context: CommandContext, found: Sequence[SessionInfo]) -> None:
    """Print sessions, one line each."""
    if not found:
        return
    most = max(4, *(len(f"{one.message_count:,}") for one in found))
    columns = ["id", "last active", "source", "msgs", "project", "title or first words"]
    rows = [
        [one.id, _moment(one.last_active), one.source, f"{one.message_count:>{most},}", _project(one), marked_name(one)]
        for one in found
    ]
    if not any(row[4] for row in rows):
        columns, rows = [*columns[:4], columns[5]], [[*row[:4], row[5]] for row in rows]
    context.table(columns, rows, drop=("project", "source", "msgs", "last active"), cut=True)


def _moment(at: float | None) -> str:
    """Return a time; without the year, or the hour, where lines are short."""
    return when(at) if (output.line_width() or 100) >= 100 else short_when(at)


def _project(session: SessionInfo) -> str:
    """Return a project as people call it: the last folder of a path."""
    return session.scope.project.rstrip("/\\").replace("\\", "/").rpartition("/")[2]


def _nothing_listed(context: CommandContext, *, filtered: bool) -> None:
    stats = context.h.transcripts.stats()
    if not stats.sessions:
        context.line("No sessions yet. They appear here when an agent works with this home.")
    elif filtered:
        context.line(f"No conversation matches (of {stats.conversations:,}).")
    else:
        every = context.command("sessions", "list", "--all")
        context.line(f"All {count(stats.conversations, 'conversation')} are archived or a subagent's: {every}")


def _list_deleted(context: CommandContext) -> None:
    """List what waits to be purged, with the day until which it can be restored."""
    found = deleted_sessions(context)
    if context.json:
        context.print_json({"ok": True, "sessions": [session_json(one) for one in found], "more": False})
        return
    if not found:
        context.line("Nothing is deleted.")
        return
    until = [(one.deleted or 0) + grace(context) for one in found]
    rows = [
        [one.id, _moment(one.deleted), _moment(end), one.message_count, name_of(one)]
        for one, end in zip(found, until, strict=True)
    ]
    columns = ["id", "deleted", "purged", "msgs", "title or first words"]
    context.table(columns, rows, drop=("msgs", "deleted", "purged"), cut=True)
    context.line(f"To restore one: {context.command('sessions', 'delete', '--undo', found[0].id)}")
    if len({one.conversation for one in found}) > 1:
        context.line(f"To restore all: {context.command('sessions', 'delete', '--undo', '--all')}")


# ── show ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

LONGEST_TEXT = 2_000
LONGEST_RESULT = 400
"""Characters of a message, and of a tool result, that are shown without --full."""
_MOST_LINES = 6
_FIRST, _LAST = 10, 40
"""Messages of a long conversation that are shown without --full."""
_ARGUMENTS = 160
_INDENT = "     "
_COLOURS = {"user": "\x1b[1;34m", "assistant": "\x1b[1;32m"}
_ANCHOR, _OTHER, _PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[0m"
Part = tuple[SessionInfo, Sequence[Message]]
"""A session of a conversation, with those of its messages that are shown."""


@sessions.command(short_help="Read a conversation, a message in it, or what a summary stands for")
@session_argument("[ID]", required=False)
@click.option(
    "--around", metavar="MESSAGE", type=click.IntRange(1, 2**63 - 1), help="Only this message and its neighbours."
)
@click.option("--window", type=click.IntRange(0, 1000), default=5, show_default=True, help="Neighbours on each side.")
@click.option(
    "--summary-line", metavar="LINE", help='Only the messages behind a line of a summary: "#12-18", or its text.'
)
@click.option("--full", is_flag=True, help="Every message in full.")
@click.option("--hidden", is_flag=True, help="Also messages that were rewound, or replaced by a summary.")
@with_home
def show(
    context: CommandContext,
    session: str | None,
    around: int | None,
    window: int,
    summary_line: str | None,
    full: bool,
    hidden: bool,
) -> None:
    """Read a conversation. Long texts and the middle of long conversations are cut; --full shows all.

    The number before each message is what --around takes. When a conversation no longer fits, a summary replaces its
    earlier part; each line of it ends with the numbers of the messages that it was made from, which --summary-line
    reads: give the line, its numbers, or with an ID some words of it.

    \b
    Examples:
      herma sessions show 20261231_2359
      herma sessions show "Login bug" --full
      herma sessions show --around 1234 --window 10
      herma sessions show --summary-line "#12-18"
      herma sessions show 20261231_2359 --summary-line "fixed the login"
    """
    found = find_session(context, session) if session is not None else None
    if summary_line is not None:
        _show_summarized(context, found, summary_line, full)
        return
    if around is not None:
        parts = [_place(context, found, around, window, hidden=hidden)]
        found = found or parts[0][0]
    elif found is not None:
        members = context.h.transcripts.conversation(found.id)
        parts = [(one, context.h.transcripts.messages(one.id, include_hidden=hidden)) for one in members]
    else:
        raise UsageError("Which session?", hint=f"`{context.command('sessions', 'list')}` lists their ids.")
    if context.json:
        _show_as_json(context, found, parts, around)
        return
    _heading(context, found, parts, around)
    if around is None and not full:
        _show_ends(context, found, parts)
    else:
        for at, part in enumerate(parts):
            _show_part(context, part, first=at == 0, anchor=around, full=full)
    if around is not None:
        context.line(f"\nThe whole conversation: {context.command('sessions', 'show', found.id)}")
    elif not any(messages for _, messages in parts):
        context.line("No messages." if hidden else "No messages to show. To see hidden ones, add --hidden.")


def _show_summarized(context: CommandContext, found: SessionInfo | None, line: str, full: bool) -> None:
    """Show the messages that a line of a summary was made from."""
    behind = context.h.expand(line.removeprefix("- "), session=found.id if found is not None else None)
    if context.json:
        listed = [message_json(message) for message in behind.messages]
        context.print_json({"ok": True, "line": behind.line, "messages": listed, "missing": list(behind.missing)})
        return
    context.line(behind.line)
    for message in behind.messages:
        _write_message(message, full=full)
    context.line()
    if behind.missing:
        context.line(f"{count(len(behind.missing), 'message')} not there any more: {ranges(behind.missing)}")
    first = behind.messages[0]
    near = context.command("sessions", "show", first.session_id, "--around", str(first.id), "--hidden")
    context.line(f"The messages around them: {near}")


def _place(context: CommandContext, found: SessionInfo | None, message: int, window: int, *, hidden: bool) -> Part:
    """Return a message with its neighbours, and the session that it belongs to. A rewound one needs its session."""
    transcripts = context.h.transcripts
    near = transcripts.around(message, window)
    home = (transcripts.get(near[0].session_id) if near else None) or found
    if home is not None and found is not None and home.conversation != found.conversation:
        raise UsageError(
            f"Message {message} is not in the conversation {found.id}.",
            hint=f"It is here: {context.command('sessions', 'show', home.id, '--around', str(message))}",
        )
    if home is not None and near and not hidden:
        return home, near
    for one in transcripts.conversation(home.id) if home is not None and hidden else ():
        messages = transcripts.messages(one.id, include_hidden=True)
        if (at := next((number for number, this in enumerate(messages) if this.id == message), None)) is not None:
            return one, messages[max(0, at - window) : at + window + 1]
    raise UsageError(
        f"There is no message {message}, or it was rewound.", hint="With its session's ID, --hidden shows rewound ones."
    )


def _heading(context: CommandContext, found: SessionInfo, parts: Sequence[Part], around: int | None) -> None:
    context.heading(name_of(found))
    first, last = parts[0][0], parts[-1][0]
    until = f" – {when(last.last_active)}" if when(last.last_active) != when(first.started) else ""
    facts = [
        found.id,
        found.source,
        f"{when(first.started)}{until}",
        "" if around is not None else count(sum(session.message_count for session, _ in parts), "message"),
        found.model or "",
        f"by {found.provider}" if found.provider else "",
        f"project {found.scope.project}" if found.scope.project else "",
        f"user {found.scope.user}" if found.scope.user else "",
        found.chat_type and f"{found.chat_type} chat",
        f"in {found.folder}" if found.folder and found.folder != found.scope.project else "",
        f"branch {found.branch}" if found.branch else "",
        "archived" if found.archived else "",
        f"ended: {last.end_reason}" if last.end_reason else "",
    ]
    context.line(" · ".join(fact for fact in facts if fact))


def _show_ends(context: CommandContext, found: SessionInfo, parts: Sequence[Part]) -> None:
    """Show the beginning and the end of a conversation; all of a short one."""
    total = sum(len(messages) for _, messages in parts)
    gap = range(_FIRST, max(_FIRST, total - _LAST))
    at = 0
    for number, (session, messages) in enumerate(parts):
        before = messages[: max(0, gap.start - at)] if gap else messages
        after = messages[max(0, gap.stop - at) :] if gap else ()
        has_gap = bool(gap) and at <= gap.start < at + len(messages)
        if before or not gap:
            _show_part(context, (session, before), first=number == 0)
        if has_gap:
            whole = context.command("sessions", "show", found.id, "--full")
            context.line(f"\n     … {count(len(gap), 'message')} in between; all of them: {whole}")
        if after:
            _show_part(context, (session, after), first=number == 0 or has_gap)
        at += len(messages)


def _show_part(
    context: CommandContext, part: Part, *, first: bool, anchor: int | None = None, full: bool = False
) -> None:
    session, messages = part
    if not first:
        why = {"compression": "after a compression"}.get(session.reason, session.reason)
        context.line(f"\n── continues in {session.id} ({why}), {when(session.started)} ──")
    for message in messages:
        _write_message(message, anchor=message.id == anchor, full=full)


def _write_message(message: Message, *, anchor: bool = False, full: bool = False) -> None:
    """Print who, when, what was said, and tool calls and results in brief; nothing in it can steer the terminal."""
    is_result = message.role in ("tool", "function")
    who = f"← {message.tool_name or message.role}" if is_result else message.role
    hidden = f" · {message.hidden}" if message.hidden else ""
    line = output.visible(f"{'▶' if anchor else ' '}{message.id:>4} {who}{hidden} · {when(message.timestamp)}")
    if output.colours(sys.stdout):
        line = f"{_ANCHOR if anchor else _COLOURS.get(message.role, _OTHER)}{line}{_PLAIN}"
    sys.stdout.write("\n" + line.replace("\n", " ") + "\n")
    if message.reasoning and full:
        _write_body(f"(thinking) {message.reasoning}")
    text = words_of(message.content)
    _write_body(text, longest=0 if full else LONGEST_RESULT if is_result else LONGEST_TEXT, is_result=is_result)
    for call in message.tool_calls:
        name, arguments = called(call)
        shown = arguments if full else one_line(arguments, _ARGUMENTS)
        output.write(f"{_INDENT}→ {name} {shown}".rstrip())


def _write_body(text: str, *, longest: int = 0, is_result: bool = False) -> None:
    """Print text, indented; with `longest`, cut where it is long, naming what is missing."""
    shown = text = text.strip("\n").rstrip()
    if longest and is_result:
        shown = "\n".join(text.split("\n", _MOST_LINES)[:_MOST_LINES])
    if longest and len(shown) > longest + longest // 4:  # a shorter cut would spare the reader nothing
        shown = shown[:longest]
    shown = shown.rstrip()
    for line in shown.splitlines():
        output.write(f"{_INDENT}{line}".rstrip())
    if len(shown) < len(text):
        output.write(f"{_INDENT}… {count(len(text) - len(shown), 'more character')}; --full shows all")


def _show_as_json(context: CommandContext, found: SessionInfo, parts: Sequence[Part], around: int | None) -> None:
    """Print everything in full: nothing is cut for programs."""
    listed = [message_json(message) for _, messages in parts for message in messages]
    for message in listed:
        if message["id"] == around:
            message["anchor"] = True
    context.print_json(
        {
            "ok": True,
            "session": session_json(found),
            "system_prompt": context.h.transcripts.system_prompt(found.id),
            "sessions": [session_json(session) for session, _ in parts],
            "messages": listed,
        }
    )


# ── rename, archive ──────────────────────────────────────────────────────────────────────────────────────────────────


@sessions.command(short_help="Give a conversation a title")
@session_argument("ID")
@click.argument("title", nargs=-1)
@click.option("--clear", is_flag=True, help="Remove the title.")
@with_home
def rename(context: CommandContext, session: str, title: tuple[str, ...], clear: bool) -> None:
    """Give a conversation a title that no other has.

    \b
    Examples:
      herma sessions rename 20261231_2359 "Login bug on Safari"
      herma sessions rename 20261231_2359 --clear
    """
    wanted = " ".join(title).strip()
    if bool(wanted) == clear:
        raise UsageError("Give either a title, or --clear to remove it.", hint="Nothing was changed.")
    found = find_session(context, session)
    kept = context.h.transcripts.rename(found.id, wanted or None)
    if context.json:
        context.print_json({"ok": True, "id": found.id, "title": kept, "before": found.title})
    before = f" It was {found.title!r}." if found.title and found.title != kept else ""
    context.line(f"{found.id} is now called {kept!r}.{before}" if kept else f"{found.id} has no title now.{before}")


@sessions.command(short_help="Hide conversations from lists and searches, or show them again")
@session_argument("ID…", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Show them again.")
@with_home
def archive(context: CommandContext, session: tuple[str, ...], undo: bool) -> None:
    """Hide whole conversations from lists and searches. Nothing is deleted.

    \b
    Examples:
      herma sessions archive 20261231_2359
      herma sessions archive "Login bug" --undo
      herma sessions list --archived
    """
    found = {one.conversation: one for one in find_sessions(context, session)}
    changed = {one.id: context.h.transcripts.archive(one.id, not undo) for one in found.values()}
    if context.json:
        listed = [{"id": one.id, "title": one.title, "sessions": changed[one.id]} for one in found.values()]
        context.print_json({"ok": True, "archived": not undo, "conversations": listed})
        return
    for one in found.values():
        parts = f" ({count(changed[one.id], 'session')})" if changed[one.id] > 1 else ""
        context.line(f"{'No longer archived' if undo else 'Archived'}: {one.id}  {name_of(one)}{parts}")
    if not undo:
        words = ["sessions", "archive", *(one.id for one in found.values()), "--undo"]
        context.line(f"To undo: {context.command(*words)}")


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────

_SHOWN = 20
"""Sessions that are listed before the question."""
_UNDONE = 5
"""Conversations that the command to restore them names one by one."""


def _read_folder(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """Return a folder as sessions record it: `.` is the current one. It need not exist any more."""
    return value if value is None or not value.strip() else os.path.abspath(Path(value).expanduser())  # noqa: PTH100


_TEXT_FILTERS = {
    "--source": ("NAME", "Only sessions from there."),
    "--title search": ("TEXT", "Only those with this in their title or id."),
    "--model": ("TEXT", "Only those with this in the name of their model."),
    "--provider": ("NAME", "Only those whose model this provider ran."),
    "--project": ("NAME", "Only those of this project, or below this folder."),
    "--user": ("ID", "Only those of this user."),
    "--chat-type": ("KIND", "Only those in such a chat: direct, group, channel, …"),
    "--folder": ("PATH", "Only those in or below this folder."),
    "--branch": ("TEXT", "Only those with this in the name of their git branch."),
    "--before started_before": ("TIME", "Begun before (2026-03-05, 2026-03, 7d, yesterday)."),
    "--after started_after": ("TIME", "Begun after (2026-03-05, 2026-03, 7d, yesterday)."),
}
"""Options of `delete`, each with the field of `SessionFilter` that it sets if the names differ."""
_READ = {"PATH": _read_folder, "TIME": read_moment}


def _filter_options(function: Any) -> Any:
    """Add options that select sessions; bounds are inclusive."""
    for bound in ("max", "min"):
        many = f"Only those with at {'most' if bound == 'max' else 'least'} N messages."
        function = click.option(f"--{bound}-messages", type=click.IntRange(0), metavar="N", help=many)(function)
    flag = click.option("--archived/--not-archived", default=None, help="Only archived ones, or none of them.")
    function = flag(function)
    for names, (metavar, text) in reversed(_TEXT_FILTERS.items()):
        option = click.option(*names.split(), metavar=metavar, callback=_READ.get(metavar), help=text)
        function = option(function)
    return function


@sessions.command(short_help="Delete conversations, or restore deleted ones")
@session_argument("ID…", nargs=-1)
@click.option("--undo", is_flag=True, help="Restore deleted conversations.")
@click.option("--all", "everything", is_flag=True, help="With --undo: all that can still be restored.")
@click.option(
    "--older-than",
    metavar="TIME",
    callback=_read_days,
    help="Without an ID: those inactive for at least so long: 90d (the default), 12h, 6w, 3mo, 1y.",
)
@_filter_options
@click.option("--open", "also_open", is_flag=True, help="Also sessions that never ended.")
@click.option("--retention", is_flag=True, help="Those that retention.days and retention.by_source expire.")
@yes_option
@dry_run_option
@with_home
def delete(
    context: CommandContext,
    /,
    session: tuple[str, ...],
    undo: bool,
    everything: bool,
    older_than: float | None,
    also_open: bool,
    retention: bool,
    dry_run: bool,
    **filters: Any,
) -> None:
    """Delete whole conversations, with those delegated from them. They can be restored for some days.

    Without an ID, filters select them: a conversation goes if one of its sessions matches, none was active lately or
    is still open, and all of it together keeps within the limits given. It shows them, and asks.

    \b
    Examples:
      herma sessions delete "Login bug" 20261231_2359 --dry-run
      herma sessions delete --undo 20261231_2359
      herma sessions delete --older-than 30d --source cron --max-messages 4
      herma sessions delete --retention --yes
    """
    which = SessionFilter(**filters)
    selecting = older_than is not None or also_open or retention or which != SessionFilter()
    if selecting and (session or undo or everything):
        raise UsageError("Filters select the sessions to delete; IDs, --undo and --all do not go with them.")
    if undo:
        _undelete(context, session, everything)
    elif selecting:
        _delete_matching(context, which, 90.0 if older_than is None else older_than, also_open, retention, dry_run)
    elif not session or everything:
        raise UsageError("Which sessions?", hint=f"`{context.command('sessions', 'list')}` lists their ids.")
    else:
        found = {one.conversation: one for one in find_sessions(context, session)}
        would = context.h.transcripts.delete([one.id for one in found.values()], dry_run=True)
        if not dry_run:
            _preview(context, would.sessions)
            _confirm_deletion(context, count(len(found), "conversation") if len(found) > 1 else "this conversation")
            would = context.h.transcripts.delete([one.id for one in found.values()])
        _report_deletion(context, would)


def _delete_matching(
    context: CommandContext, which: SessionFilter, older_than: float, also_open: bool, retention: bool, dry_run: bool
) -> None:
    """Delete the old conversations that a filter selects, after showing them and asking."""
    keeping = _keeping(context, which) if retention else None

    def candidates() -> Deletion:
        if keeping is not None:
            return context.h.transcripts.expire(keeping, dry_run=True)
        return context.h.transcripts.prune(which, older_than_days=older_than, ended_only=not also_open, dry_run=True)

    found = candidates()
    if dry_run or not found.sessions:
        open_ones = "" if also_open else " Open sessions were left out; --open includes them."
        nothing = f"No matching conversation has been inactive since {when(time.time() - older_than * DAY)}.{open_ones}"
        _report_deletion(context, found, nothing="" if keeping else nothing)
        return
    _preview(context, found.sessions)
    _confirm_deletion(context, count(len(found.sessions), "session"))
    shown = {one.id for one in found.sessions}
    still = [one.id for one in candidates().sessions if one.id in shown]  # only what was shown, and is inactive still
    _report_deletion(context, context.h.transcripts.delete(still, whole=False))


def _undelete(context: CommandContext, session: tuple[str, ...], everything: bool) -> None:
    if bool(session) == everything:
        hint = f"`{context.command('sessions', 'list', '--deleted')}` lists those that can be restored."
        raise UsageError("Give the IDs of deleted sessions, or --all.", hint=hint)
    waiting = deleted_sessions(context)
    wanted = [one.id for one in waiting] if everything else [_find_deleted(context, text, waiting) for text in session]
    back = context.h.transcripts.undelete(wanted) if wanted else []
    if context.json:
        context.print_json({"ok": True, "sessions": [session_json(one) for one in back]})
        return
    if not back:
        context.line("Nothing is deleted.")
    for one in back:
        context.line(f"Restored: {one.id}  {count(one.message_count, 'message')}  {name_of(one)}")


def _find_deleted(context: CommandContext, text: str, waiting: Sequence[SessionInfo]) -> str:
    """Return the deleted session with this id or title, or whose id begins so."""
    exact = [one for one in waiting if text in (one.id, one.title)]
    found = exact or [one for one in waiting if one.id.startswith(text)]
    if len({one.conversation for one in found}) == 1:
        return found[0].id
    if found:
        raise UsageError(f"Several deleted sessions begin with {text!r}.", hint=_listed(_TYPE_MORE, found))
    if context.h.transcripts.get(text) is not None:
        raise UsageError(f"Session {text} is not deleted.", hint=context.command("sessions", "show", text))
    hint = f"`{context.command('sessions', 'list', '--deleted')}` lists those that can be restored."
    raise UsageError(f"There is no deleted session {text!r}.", hint=hint, code="not_found")


def _keeping(context: CommandContext, which: SessionFilter) -> Keeping:
    """Return the retention of the configuration, which takes no other filters."""
    if which != SessionFilter():
        raise UsageError("--retention uses the configuration only.", hint="Leave the filters out.")
    options = context.h.settings.retention
    keeping = Keeping.read(options.days, options.by_source)
    if not keeping.days and not any(keeping.by_source.values()):
        hint = f"For example: {context.command('config', 'set', 'retention.by_source', 'cron=30, subagent=7')}"
        raise UsageError("The configuration keeps every session.", hint=hint)
    return keeping


def _preview(context: CommandContext, members: Sequence[SessionInfo]) -> None:
    if context.json:
        return
    _table(context, members[:_SHOWN])
    if len(members) > _SHOWN:
        context.line(f"and {count(len(members) - _SHOWN, 'more session')}")
    messages = sum(one.message_count for one in members)
    context.line(f"{count(len(members), 'session')} with {count(messages, 'message')}.")


def _confirm_deletion(context: CommandContext, what: str) -> None:
    if not context.confirm(f"Delete {what}?"):
        context.declined("Nothing was deleted.")


def _report_deletion(context: CommandContext, done: Deletion, nothing: str = "") -> None:
    """Report a deletion or its rehearsal; after a deletion, purge what was deleted long ago."""
    purged = () if done.dry_run else context.h.transcripts.purge_expired()
    if context.json:
        listed = [session_json(one) for one in done.sessions]
        until = None if done.dry_run else iso(done.until)
        messages = {"messages": done.messages, "until": until}
        context.print_json({"ok": True, "dry_run": done.dry_run, "sessions": listed, **messages})
        return
    if done.dry_run:
        _preview(context, done.sessions) if done.sessions else context.line(nothing or "Nothing to delete.")
        context.line("Nothing was deleted.")
        return
    context.line(f"Deleted {count(len(done.sessions), 'session')} with {count(done.messages, 'message')}.")
    first: dict[str, str] = {}
    for one in sorted(done.sessions, key=lambda one: one.reason == "delegation"):
        if one.reason != "delegation" or one.parent not in {other.id for other in done.sessions}:
            first.setdefault(one.conversation, one.id)
    words = ["sessions", "delete", "--undo", *first.values()]
    if len(first) > _UNDONE:
        only_these = {one.id for one in deleted_sessions(context)} == {one.id for one in done.sessions}
        words = ["sessions", "delete", "--undo", "--all"] if only_these else ["sessions", "list", "--deleted"]
    context.line(f"Until {when(done.until)} you can restore it: {context.command(*words)}")
    if purged:
        context.line(f"Purged, because deleted longer ago: {count(len(purged), 'session')}.")


# ── export ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@sessions.command(short_help="Write conversations to a file: JSON lines, Markdown, a web page")
@session_argument("[ID]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every session: archived ones and those of subagents too.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("jsonl", "md", "html")),
    help="The format; the default is the file's extension, else jsonl.",
)
@click.option("-o", "--output", "target", metavar="FILE", default="-", help="The file; - is standard output.")
@click.option("--redact", is_flag=True, help="Replace passwords, keys and tokens by a marker.")
@yes_option
@with_home
def export(
    context: CommandContext, session: tuple[str, ...], everything: bool, kind: str | None, target: str, redact: bool
) -> None:
    """Write whole conversations to a file, with those delegated from them.

    JSON lines hold everything and can be imported again; Markdown and HTML are for reading. Deleted sessions are left
    out.

    \b
    Examples:
      herma sessions export --all -o sessions.jsonl
      herma sessions export "Login bug" -o login.html --redact
      herma sessions export 20261231_2359 --format md
    """
    if bool(session) == everything:
        raise UsageError("Which sessions? Give either their IDs, or --all.", hint="Nothing was written.")
    if target == "-" and context.json:
        raise UsageError("With --json the export needs a file.", hint="Add -o FILE; --json then reports the export.")
    kind = kind or {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}.get(Path(target).suffix.lower())
    wanted = [one.id for one in find_sessions(context, session)]
    transcripts = context.h.transcripts
    found = transfer.everything(transcripts) if everything else transfer.chosen(transcripts, wanted)
    redactor = transfer.Redactor() if redact else None
    written = _write(context, target, _pieces(context, found, kind or "jsonl", redactor))
    conversations = len({one.conversation for one in found})
    if context.json:
        value: Json = {"ok": True, "file": target, "bytes": written, "sessions": len(found)}
        value |= {"conversations": conversations, "redacted": dict(redactor.found) if redactor else None}
        context.print_json(value)
        return
    if target != "-":
        what = f"{count(conversations, 'conversation')} ({count(len(found), 'session')})"
        context.line(f"Wrote {what} to {target}: {size(written)}")
    if redactor is not None:
        kinds = ", ".join(f"{number:,} × {kind}" for kind, number in sorted(redactor.found.items()))
        said = f"Redacted: {kinds}." if kinds else "Nothing in it looked like a credential."
        output.write(said, sys.stderr if target == "-" else None)


def _pieces(context: CommandContext, found: list[SessionInfo], kind: str, redactor: Redactor | None) -> Iterator[str]:
    """Yield the pieces of the file, each made when its turn comes, and report progress."""
    total, done = sum(one.message_count for one in found), 0
    with context.progress("Exporting messages", total, least=MANY) as report:

        def counted(messages: Iterable[Message]) -> Iterator[Message]:
            nonlocal done
            for message in messages:
                yield message
                done += 1
                if done % 100 == 0:
                    report(min(done, total), total)

        every: Iterable[transfer.Conversation] = (
            (one, prompt, counted(said)) for one, prompt, said in transfer.conversations(context.h.transcripts, found)
        )
        if redactor is not None:
            every = map(redactor.conversation, every)
        if kind == "html":
            yield from transfer.web_page(every, _page_title(found, redactor))
        elif kind == "md":
            yield from transfer.markdown(every)
        else:
            for line in transfer.json_lines(every):
                if len(line) > transfer.LONGEST_LINE // 4 and len(line.encode()) > transfer.LONGEST_LINE:
                    context.warn("A message has more than 50 MB: an import will refuse this file.")
                yield line
        report(total, total)


def _page_title(found: list[SessionInfo], redactor: Redactor | None) -> str:
    conversations = {one.conversation: one for one in reversed(found)}
    if len(conversations) != 1:
        return count(len(conversations), "conversation")
    (one,) = conversations.values()
    return (redactor.text(one.title) if one.title else one.id) if redactor else name_of(one)


def _write(context: CommandContext, target: str, pieces: Iterable[str]) -> int:
    """Write to standard output, or to a file that takes its place only when it is complete. Return the bytes."""
    if target == "-":
        return sum(sys.stdout.buffer.write(piece.encode()) for piece in pieces)
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", hint="Give the name of a file.")
    if path.exists() and not context.confirm(f"{path} exists. Replace it?"):
        context.line("Nothing was written.")
        context.exit(1)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            partial.chmod(0o600)  # transcripts are private
            written = sum(file.write(piece.encode()) for piece in pieces)
        partial.replace(path)
    except OSError as exc:
        raise StoreError(f"{path} cannot be written: {exc.strerror}.", hint="Choose another place with -o.") from exc
    finally:
        with suppress(OSError):
            partial.unlink()
    return written


# ── import ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_USUAL_LINE = 300
"""Bytes of a line, to guess beforehand whether an import will take a while."""
_SPOOL = 8 * 1024 * 1024


@sessions.command("import", short_help="Import what was exported as JSON lines")
@click.argument("file", metavar="FILE…", nargs=-1, required=True)
@dry_run_option
@with_home
def import_(context: CommandContext, file: tuple[str, ...], dry_run: bool) -> None:
    """Import what `herma sessions export` wrote as JSON lines. FILE - reads standard input.

    A file is checked before anything is written, and imported as a whole or not at all. Sessions that exist already are
    not changed.

    \b
    Examples:
      herma sessions import sessions.jsonl --dry-run
      herma sessions import sessions.jsonl
      ssh laptop herma sessions export --all | herma sessions import -
    """
    reports: list[Json] = []
    failure: HermaError | None = None
    for name in file:
        try:
            report = _import(context, name, dry_run)
        except HermaError as exc:
            if len(file) == 1:
                raise
            failure = exc
            reports.append({"file": name, "ok": False, "error": str(exc), "hint": exc.hint})
            output.write(f"herma: {exc}", sys.stderr)
        else:
            reports.append({"ok": True, **report.as_json()})
            _report_import(context, report)
    if not dry_run:
        index_imported(context)
    if context.json:
        context.print_json({"ok": failure is None, "dry_run": dry_run, "files": reports})
    if failure is not None:
        context.exit(failure.exit_code)


def _import(context: CommandContext, name: str, dry_run: bool) -> ImportReport:
    importer = transfer.Importer(context.h.transcripts)
    with _opened(name) as file:
        lines = file.seek(0, os.SEEK_END) // _USUAL_LINE
        with context.progress("Importing, per cent", lines, least=MANY) as report:

            def checked(done: int, total: int) -> None:  # which takes as long as the rest
                report((100 if dry_run else 50) * done // (total or 1), 100)

            def written(done: int, total: int) -> None:
                report(50 + 50 * done // (total or 1), 100)

            shown = "standard input" if name == "-" else name
            return importer.run(file, shown, dry_run=dry_run, checking=checked, progress=written)


def index_imported(context: CommandContext) -> None:
    """Index what was imported, if that is more than the next search would do by itself."""
    from herma.index.sync import SEARCH_INDEXES

    status = context.h.index.status()
    if status.lag > SEARCH_INDEXES:
        with context.progress("Indexing messages", status.lag, least=MANY) as report:
            if status.messages:
                context.h.index.wait(embedding=False)
            else:
                context.h.index.rebuild(report, embedding=None)


def _opened(name: str) -> BinaryIO:
    """Open the file, or a copy of standard input or of a pipe, which can be read only once."""
    if name == "-" and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError("There is nothing on standard input.", hint="Give the name of a file, or use a pipe.")
    try:
        file = sys.stdin.buffer if name == "-" else Path(name).open("rb")  # noqa: SIM115 (the caller closes it)
        if name != "-" and file.seekable():
            return file
        with file:
            spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115
            shutil.copyfileobj(file, spool)
    except OSError as exc:
        raise UsageError(f"{name} cannot be read: {exc.strerror}.", hint="Is the name right? Is space left?") from exc
    return spool  # type: ignore[return-value]  # it is one in all but name


def _report_import(context: CommandContext, report: ImportReport) -> None:
    what = f"{count(len(report.imported), 'session')} with {count(report.messages, 'message')}"
    context.line(f"{report.file}: {'would import' if report.dry_run else 'imported'} {what}.")
    skipped = []
    for one in report.skipped:
        restore = context.command("sessions", "delete", "--undo", one.id)
        differs = f" (it has {one.here:,} messages here, {one.there:,} in the file)" if one.here != one.there else ""
        skipped.append(f"{one.id} (deleted here; to restore it: {restore})" if one.deleted else f"{one.id}{differs}")
    details = (
        ("skipped, because they exist already", skipped),
        ("detached from their parents", [f"{one.id} (from {one.parent}: {one.why})" for one in report.detached]),
        ("renamed, because their titles are taken", [f"{one.id}  {one.old} → {one.new}" for one in report.renamed]),
    )
    for title, lines in details:
        if lines:
            context.line(f"  {count(len(lines), 'session')} {title}:")
        for line in lines[:_CANDIDATES]:
            context.line(f"    {line}")
        if len(lines) > _CANDIDATES:
            context.line(f"    and {len(lines) - _CANDIDATES:,} more (--json lists all)")
    if report.dry_run:
        context.line("Nothing was imported.")


# ── stats ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_LARGEST = 5


def _stats(context: CommandContext) -> None:
    """Count sessions and messages, and compare the size of the files with the text in them."""
    total = context.h.transcripts.stats()
    files = databases(context.h.home)
    text, largest = context.h.transcripts.largest(_LARGEST)
    if context.json:
        named = [{"id": one.id, "title": one.title, "text_bytes": taken} for one, taken in largest]
        context.print_json({"ok": True, **stats_json(total), "text_bytes": text, "files": files, "largest": named})
        return
    since = f", {when(total.first)} to {when(total.last)}" if total.first is not None else ""
    conversations = count(total.conversations, "conversation")
    context.line(f"{conversations}, {count(total.sessions, 'session')}, {count(total.messages, 'message')}{since}")
    usage, deleted = total.usage, len(deleted_sessions(context))
    waiting = total.deleted_sessions - deleted
    special = [
        f"{count(total.archived_sessions, 'session')} archived" if total.archived_sessions else "",
        f"{count(deleted, 'session')} deleted" if deleted else "",
        f"{count(waiting, 'session')} waiting to be purged" if waiting > 0 else "",
        f"{count(total.hidden_messages, 'message')} hidden" if total.hidden_messages else "",
        f"{usage.input + usage.output:,} tokens" if usage.input + usage.output else "",
        f"${usage.cost_usd:,.2f}" if usage.cost_usd else "",
    ]
    if any(special):
        context.line(" · ".join(part for part in special if part))
    if total.sessions:
        by_messages = sorted(total.sources.items(), key=lambda item: (-item[1][1], item[0]))
        context.line()
        context.table(
            ["source", "sessions", "messages"], [(source, f"{n:,}", f"{m:,}") for source, (n, m) in by_messages]
        )
    _sizes(context, files, text)
    if largest:
        context.line()
        listed = [(one.id, size(taken), f"{one.message_count:,}", name_of(one)) for one, taken in largest]
        context.table(["largest", "text", "messages", "title or first words"], listed, drop=("messages",), cut=True)


def _sizes(context: CommandContext, files: Mapping[str, int], text: int | None) -> None:
    context.line()
    if text is not None:
        context.line(f"text      {size(text)}")
    for name, taken in files.items():
        if taken:
            times = f"  {taken / text:.1f} × the text" if text else ""
            context.line(f"{name:<9} {size(taken)}{times}")
    if not files["index.db"] and not context.settings().store.url:
        context.line("index.db  missing; the next search builds it")
