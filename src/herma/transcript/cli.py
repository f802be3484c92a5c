"""Herma sessions …, herma search."""

from __future__ import annotations

import functools
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from herma.cli import output
from herma.cli.frame import Context, HermaCommand, HermaGroup, pass_context
from herma.cli.output import (
    Json,
    count,
    databases,
    iso,
    marked_name,
    message_json,
    name_of,
    one_line,
    session_json,
    short_when,
    size,
    stats_json,
    when,
)
from herma.compression.summary import ranges
from herma.errors import UsageError
from herma.search.candidates import SCANS
from herma.search.query import Dropped, Hit, Mode, SearchReport
from herma.transcript.log import DAY
from herma.transcript.messages import called, text_of, words_of
from herma.transcript.transfer import UNFINISHED
from herma.types import Message, SessionFilter, SessionInfo, TranscriptStats

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.transcript.log import Transcripts


# ---------- cli.sessions.conversation
#
# How one message is shown to a person: who, when, what was said, and tool calls and results in brief.

LONGEST_TEXT = 2_000
LONGEST_RESULT = 400
MOST_LINES = {"tool": 6, "function": 6}
_ARGUMENTS = 160
_INDENT = "     "
_COLOURS = {"user": "\x1b[1;34m", "assistant": "\x1b[1;32m"}
_ANCHOR, _OTHER, _CONVERSATION_PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[0m"


def write_message(message: Message, *, anchor: bool = False, full: bool = False) -> None:
    """Print one message; nothing in it can steer the terminal."""
    output.write("")
    _header(message, anchor)
    if message.reasoning and full:
        _body(f"(thinking) {message.reasoning}", whole=True, role="assistant")
    _body(words_of(message.content), whole=full, role=message.role)
    for call in message.tool_calls:
        name, arguments = called(call)
        shown = arguments if full else one_line(arguments, _ARGUMENTS)
        output.write(f"{_INDENT}→ {name} {shown}".rstrip())


def _header(message: Message, anchor: bool) -> None:
    who = message.role
    if message.role in ("tool", "function"):
        who = f"← {message.tool_name or message.role}"
    hidden = f" · {message.hidden}" if message.hidden else ""
    line = output.visible(f"{'▶' if anchor else ' '}{message.id:>4} {who}{hidden} · {when(message.timestamp)}")
    if output.colours(sys.stdout):
        colour = _ANCHOR if anchor else _COLOURS.get(message.role, _OTHER)
        line = f"{colour}{line}{_CONVERSATION_PLAIN}"
    sys.stdout.write(line.replace("\n", " ") + "\n")


def _body(text: str, *, whole: bool, role: str) -> None:
    """The text, indented; cut where it is long, with what is missing."""
    text = text.strip("\n").rstrip()
    if not text:
        return
    shown = text if whole else _beginning(text, role)
    for line in shown.splitlines():
        output.write(f"{_INDENT}{line}".rstrip())
    if len(shown) < len(text):
        output.write(f"{_INDENT}… {count(len(text) - len(shown), 'more character')}; --full shows all")


def _beginning(text: str, role: str) -> str:
    longest = LONGEST_RESULT if role in MOST_LINES else LONGEST_TEXT
    shown = text
    if role in MOST_LINES:
        shown = "\n".join(text.split("\n", MOST_LINES[role])[: MOST_LINES[role]])
    if len(shown) > longest + longest // 4:  # a cut that spares the reader nothing is no use
        shown = shown[:longest]
    return shown.rstrip()


# ---------- cli.sessions.desk
#
# What the commands on sessions share: the group, finding a session by what a person remembers of it, next steps.

P = ParamSpec("P")
PATHS = ("target", "file")
"""Parameters that are names of files, which may be any bytes."""
_MANY = 5_000
"""Messages from which on it takes a while."""
_CANDIDATES = 8
"""Sessions that a refusal names at most."""
_SPANS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0, "m": 30.0, "y": 365.0}


class SessionsGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list show search resume expand rename archive export import delete undelete prune stats"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=SessionsGroup)
def sessions() -> None:
    """See, find, move and clear out past sessions.

    Sessions that go on from one another are one conversation, and one line. An ID may be shortened to a beginning that
    only one session has; a title, or the beginning of one, does as well.

    \b
    Examples:
      herma sessions list
      herma sessions show 20261231_2359
      herma sessions search "login bug" since:last-week
      herma sessions export --all -o sessions.jsonl

    \b
    With --json a list prints ok and sessions or messages; a change prints ok and what it did.
    Times are ISO 8601 in UTC.
    """


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with: the frame's context and the opened memory."""

    context: Context
    h: Herma

    @property
    def transcripts(self) -> Transcripts:
        return self.h.transcripts

    def command(self, *words: str) -> str:
        """A command line to type next, on the same home."""
        return self.context.command(*words)

    def progress(self, label: str, total: int) -> AbstractContextManager[output.Report]:
        """How far work on so many messages is; nothing is said about work that is done at once."""
        return self.context.progress(label, total) if total > _MANY else nullcontext(_silent)

    @property
    def grace(self) -> float:
        """Seconds in which a deletion can be undone."""
        return self.h.settings.retention.grace_days * DAY

    def deleted(self) -> list[SessionInfo]:
        """What a person deleted and can bring back; not what an import is still writing, or what waits to be purged."""
        expired = time.time() - self.grace
        waiting = self.transcripts.deleted()
        return [one for one in waiting if one.end_reason != UNFINISHED and (one.deleted or 0.0) >= expired]

    def find(self, text: str) -> SessionInfo:
        """The session meant by an id, a title, or the beginning of either. `UsageError` that lists them if several.

        A whole title counts before those that only begin so, in capitals or not.
        """
        if not text.strip():
            raise UsageError("The id is empty.", hint=f"`{self.command('sessions', 'list')}` has the ids.")
        try:
            found = self.transcripts.resolve(text)
        except UsageError:
            raise self._ambiguous(text, self._like(text)) from None
        session = self.transcripts.get(found) if found else None
        if session is not None:
            return session
        like = self._like(text)
        titled = [one for one in like if (one.title or "").casefold().startswith(text.casefold())]
        titled = [one for one in titled if (one.title or "").casefold() == text.casefold()] or titled
        if len(titled) == 1:
            return titled[0]
        if titled:
            raise self._ambiguous(text, titled)
        raise self._unknown(text, like)

    def find_all(self, texts: Sequence[str]) -> list[SessionInfo]:
        """Each of them once, all found before anything is done to any of them."""
        return list({session.id: session for session in map(self.find, texts)}.values())

    def _like(self, text: str) -> list[SessionInfo]:
        return self.transcripts.list(SessionFilter(search=text), limit=50)

    def _ambiguous(self, text: str, sessions: Sequence[SessionInfo]) -> UsageError:
        return UsageError(
            f"Several sessions begin with {text!r}.", hint=_listed("Say more of the one you mean:", sessions)
        )

    def _unknown(self, text: str, like: Sequence[SessionInfo]) -> UsageError:
        if like:
            return UsageError(
                f"There is no session {text!r}.", hint=_listed("These have it in their title or id:", like)
            )
        deleted = [one for one in self.deleted() if one.id.startswith(text) or one.title == text]
        if deleted:
            undelete = self.command("sessions", "undelete", deleted[0].id)
            return UsageError(f"Session {deleted[0].id} is deleted.", hint=f"To bring it back: {undelete}")
        search = self.command("search", text)
        lists = self.command("sessions", "list")
        return UsageError(f"There is no session {text!r}.", hint=f"`{lists}` shows them; `{search}` looks into them.")


def _silent(done: int, total: int | None = None) -> None:
    """Nobody waits."""


def _listed(title: str, sessions: Sequence[SessionInfo]) -> str:
    lines = [f"{one.id}  {when(one.last_active)}  {name_of(one, 60)}" for one in sessions[:_CANDIDATES]]
    if len(sessions) > _CANDIDATES:
        lines.append(f"and {len(sessions) - _CANDIDATES:,} more")
    return "\n      ".join([title, *lines])


def with_sessions(function: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Open the memory for a command, once what was typed makes sense."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, **options: Any) -> None:
        for parameter in click.get_current_context().command.params:
            _check_typed(parameter, options.get(parameter.name or ""))
        with context.open() as opened:
            function(Desk(context, opened), **options)  # type: ignore[call-arg]  # click hands over what is declared

    return run


def _check_typed(parameter: click.Parameter, value: object) -> None:
    """Refuse bytes that are not text, except in names of files, and options that are empty (an unset variable, say)."""
    for word in value if isinstance(value, tuple) else (value,):
        if not isinstance(word, str) or parameter.name in PATHS:
            continue
        if isinstance(parameter, click.Option) and not word.strip(" ,"):
            raise UsageError(f"{parameter.opts[-1]} is empty.", hint="Give a value, or leave the option out.")
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise UsageError(
                f"{parameter.human_readable_name} has bytes in it that are not text.",
                hint="Is this terminal set to UTF-8? If not, begin the line with: LC_ALL=C.UTF-8",
            )


def emphasised(context: Context, text: str) -> None:
    """A heading: bold where the terminal can."""
    if context.json:
        return
    if output.colours(sys.stdout):
        sys.stdout.write(f"\x1b[1m{output.visible(text)}\x1b[0m\n")
    else:
        output.write(text)


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_moment(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time as in a query: `2026-03-05`, `7d`, `yesterday`, `last week`. The beginning of what is named."""
    if value is None:
        return None
    from herma.search.dates import read_value

    span = read_value(value, time.time())
    if span is None or span.since is None:
        raise click.BadParameter(
            f"{value[:40]!r} is no time; say 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return span.since


def read_days(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A length of time in days: `90d`, `12h`, `6mo`, `90`."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*(h|d|w|mo|m|y)?", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"{value[:40]!r} is no length of time; say 90d, 12h, 6w, 3mo or 1y.", param=parameter)
    return float(found[1]) * _SPANS[found[2] or "d"]


limit_option = click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many at most."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


# ---------- cli.sessions.expand
#
# `herma sessions expand`: the original messages behind a line of a summary.


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


# ---------- cli.sessions.find
#
# `herma sessions search`, also `herma search`: what was said, how the query was read, and what was left out.

_DASHED = "\ue000"
_MATCH = re.compile(r">>>((?:(?!>>>|<<<).)+)<<<")
_MARKED, _BOLD, _DIM, _FIND_PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_REMEDIES = {
    "archived": "Add --all.",
    "date": "Leave out the date, or name a longer time.",
    "role": "Leave out --role or role:.",
    "source": "Leave out --source or source:.",
    "project": "Leave out --project or project:.",
}
"""What to type here, where the library names its own arguments."""


class SearchCommand(HermaCommand):
    """Takes `-staging` for what must not occur: no option of it has a single dash."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for parameter in self.get_params(ctx)
            if isinstance(parameter, click.Option) and not parameter.is_flag
            for name in parameter.opts
        }
        end = args.index("--") if "--" in args else len(args)
        words = [
            _DASHED + word if _is_text(word) and not (at and args[at - 1] in takes_value) else word
            for at, word in enumerate(args[:end])
        ]
        return super().parse_args(ctx, [*words, *args[end:]])


def _is_text(word: str) -> bool:
    return word.startswith("-") and (not word.startswith("--") or any(char.isspace() for char in word))


def _read_text(_: click.Context, __: click.Parameter, words: tuple[str, ...]) -> str:
    return " ".join(word.removeprefix(_DASHED) for word in words)


def _read_time(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse what the search would ignore."""
    from herma.search.dates import read_value

    if value is not None and read_value(value, time.time()) is None:
        raise click.BadParameter(
            f"{value[:40]!r} is no time; say 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return value


def _read_roles(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from herma.search.query import no_roles

    if value is not None and no_roles(value):
        raise click.BadParameter(f"{value[:40]!r} is no role; say user, assistant, tool or system.", param=parameter)
    return value


@sessions.command(cls=SearchCommand)
@click.argument("text", nargs=-1, required=True, callback=_read_text)
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="How many at most.")
@click.option(
    "--level",
    type=click.Choice(("session", "message")),
    default="session",
    show_default=True,
    help="One hit for each conversation, or the best messages.",
)
@click.option(
    "--role", metavar="NAMES", callback=_read_roles, help="Only what these said: user, assistant, tool, system."
)
@click.option("--source", metavar="NAMES", help="Only sessions from there: cli, telegram, subagent, …")
@click.option("--project", metavar="NAME", help="Only sessions of this project, or below this folder.")
@click.option("--since", metavar="TIME", callback=_read_time, help="From then on: 2026-03-05, 7d, yesterday.")
@click.option("--before", metavar="TIME", callback=_read_time, help="Until then.")
@click.option("--sort", type=click.Choice(("newest", "oldest")), help="By time instead of by relevance.")
@click.option("--all", "everything", is_flag=True, help="Archived conversations too.")
@click.option(
    "--mode",
    type=click.Choice(("hybrid", "words", "vectors")),
    help="By words and by meaning, or by one of them; the default is search.mode.",
)
@click.option("--expand", is_flag=True, help="With a model: search for other words too, which it proposes.")
@click.option("--summarize", is_flag=True, help="With a model: sum up what the first conversations say about it.")
@click.option("--explain", is_flag=True, help="Say why each hit is there.")
@with_sessions
def search(
    desk: Desk,
    text: str,
    limit: int,
    level: str,
    role: str | None,
    source: str | None,
    project: str | None,
    since: str | None,
    before: str | None,
    sort: str | None,
    everything: bool,
    mode: Mode | None,
    expand: bool,
    summarize: bool,
    explain: bool,
) -> None:
    """Find what was said in past sessions, in any language. Exit code 1 when nothing is found as asked.

    Any text is a query: words (more and rarer ones rank higher), "exact phrases", AND, OR, -without, begin*, role:user,
    source:cli, project:shop, since:2026-03, before:7d, and times like "last week".

    \b
    Examples:
      herma search login bug
      herma search '"connection reset"' -staging --since 30d
      herma search 登录 --level message
      herma search deploy role:user --sort newest --json
      herma search "why did the rollout fail" --expand --summarize
    """
    report = desk.h.search(
        text,
        limit=limit,
        level="message" if level == "message" else "session",
        role=role,
        source=source,
        project=project,
        since=since,
        before=before,
        sort="newest" if sort == "newest" else "oldest" if sort == "oldest" else None,
        include_archived=everything,
        explain=explain,
        mode=mode,
        expand=expand,
        summarize=summarize,
    )
    report = _with_mode(desk, report, mode)
    if desk.context.json:
        desk.context.print_json(_find_as_json(report))
    else:
        _write(desk, report, explain=explain)
    if not report.hits or report.widened:
        desk.context.exit(1)


def _with_mode(desk: Desk, report: SearchReport, asked: Mode | None) -> SearchReport:
    """Whoever asks for meaning by name is told when there is no model to go by."""
    if asked in (None, "words") or report.mode != "words" or desk.h.index.status().vectors.wanted:
        return report
    if any(note.startswith("vectors:") for note in report.notes):
        return report
    install = desk.command("models", "install", "e5-small")
    note = f"Words alone were searched: there is no embedding model. To have one: {install}"
    return replace(report, notes=(*report.notes, note))


# ── for people ──


def _write(desk: Desk, report: SearchReport, *, explain: bool) -> None:
    """The hits, then an account of the search; what is not as asked is said before the hits."""
    notes = _notes(report)
    if not report.hits or report.widened:
        desk.context.line("Nothing found." if not report.hits else "Nothing found as you asked; a wider search found:")
    if report.widened:
        for note in notes:
            desk.context.line(note)
        desk.context.line()
    for number, hit in enumerate(report.hits, 1):
        _write_hit(desk, number, hit, explain=explain)
        _write_summary(desk, hit, report)
    _write_account(desk, report, [] if report.widened else notes)


def _write_hit(desk: Desk, number: int, hit: Hit, *, explain: bool) -> None:
    """Which conversation, when, what matched, and the command that shows it."""
    session = hit.session
    name = name_of(session) if session else hit.session_id
    project = f" · {session.scope.project}" if session and session.scope.project else ""
    source = f" · {session.source}" if session else ""
    archived = " · archived" if session and session.archived else ""
    who = "title" if hit.role == "session_title" else hit.role
    facts = output.visible(f"{when(hit.timestamp)}{source}{project}{archived} · {who}")
    title = output.visible(f"{number}  {name}").replace("\n", " ")
    if output.colours(sys.stdout):
        title, facts = f"{_BOLD}{title}{_FIND_PLAIN}", f"{_DIM}{facts}{_FIND_PLAIN}"
    sys.stdout.write(f"{title}\n   {facts}\n")
    snippet = output.visible(hit.snippet).replace("\n", " ")
    sys.stdout.write(f"   {_highlighted(snippet)}\n")
    if hit.outdated_by is not None:
        desk.context.line(f"   possibly outdated: message {hit.outdated_by} says otherwise, later")
    if explain:
        desk.context.line(f"   why: {'; '.join(hit.why)}; score {hit.score:g}")
    place = ["--around", str(hit.message_id)] if hit.message_id else []
    desk.context.line(f"   {desk.command('sessions', 'show', hit.session_id, *place)}")
    desk.context.line()


def _write_summary(desk: Desk, hit: Hit, report: SearchReport) -> None:
    """What a model says about the conversation of a hit; under its first hit only."""
    first = next(one for one in report.hits if one.conversation == hit.conversation)
    made = next((one for one in report.summaries if one.conversation == hit.conversation and one.text), None)
    if made is None or first is not hit:
        return
    desk.context.line(f"   Summed up by {made.model}:")
    for line in output.visible(made.text).splitlines():
        desk.context.line(f"   {line}")
    if made.note:
        desk.context.line(f"   ({made.note})")
    desk.context.line()


def _highlighted(line: str) -> str:
    """Matches in colour on a terminal; elsewhere their marks stay."""
    return _MATCH.sub(rf"{_MARKED}\1{_FIND_PLAIN}", line) if output.colours(sys.stdout) else line


def _write_account(desk: Desk, report: SearchReport, notes: list[str]) -> None:
    """How the query was read, what was searched, what was left out and how to get it."""
    for note in notes:
        desk.context.line(note)
    read = report.understood[:1].lower() + report.understood[1:].rstrip(".")
    searched = "" if any(report.searched.rstrip(".") in note for note in notes) else report.searched
    desk.context.line(f"Read as: {read or 'nothing to look for'}. {searched}".rstrip())
    for one in report.dropped:
        if not any(f"“{one.rule}”" in note and _remedy(one) in note for note in _notes(report)):
            matches = count(one.count, "match", "matches")
            desk.context.line(f"Left out by the rule “{one.rule}”: {matches}. {_remedy(one)}".rstrip())
    if report.lag:
        were, are = ("was", "is") if report.lag == 1 else ("were", "are")
        seen = (
            f"{were} read one by one"
            if report.lag <= SCANS
            else f"{are} not indexed yet: this search saw only a part of them"
        )
        possible = not desk.h.index.status().trouble
        now = f" To index them now: {desk.command('index', 'rebuild')}" if possible else ""
        desk.context.line(f"{count(report.lag, 'message')} {seen}.{now}")


def _notes(report: SearchReport) -> list[str]:
    """What the search has to say, in the words of this command."""
    notes = list(report.notes)
    for one in report.dropped:
        if one.remedy:
            notes = [note.replace(one.remedy, _remedy(one)) for note in notes]
    return notes


def _remedy(dropped: Dropped) -> str:
    return _REMEDIES.get(dropped.rule, dropped.remedy)


# ── for programs ──


def _find_as_json(report: SearchReport) -> Json:
    return {
        "ok": bool(report.hits) and not report.widened,
        "widened": report.widened,
        "query": report.query,
        "understood": report.understood,
        "searched": report.searched,
        "hits": [
            {
                "session_id": hit.session_id,
                "message_id": hit.message_id or None,
                "role": hit.role,
                "timestamp": iso(hit.timestamp),
                "snippet": hit.snippet,
                "score": hit.score,
                "why": list(hit.why),
                "outdated_by": hit.outdated_by,
                "conversation": hit.conversation,
                "session": session_json(hit.session) if hit.session else None,
            }
            for hit in report.hits
        ],
        "dropped": [{"rule": one.rule, "count": one.count, "remedy": _remedy(one)} for one in report.dropped],
        "notes": _notes(report),
        "lag": report.lag,
        "mode": report.mode,
        "embedding_ms": report.embedding_ms,
        "took_ms": report.took_ms,
        "also": list(report.also),
        "summaries": [asdict(one) for one in report.summaries],
    }


# ---------- cli.sessions.lines
#
# One line per row, whatever the terminal is wide: the last column is cut to what is left, nothing is folded.

_LEAST = 12
"""Cells that the last column gets on the narrowest terminal."""


def write_lines(context: Context, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under their headings. Elsewhere than on a terminal nothing is cut."""
    if context.json:
        return
    if not sys.stdout.isatty():
        context.table(columns, rows)
        return
    from rich.cells import cell_len

    cells = [list(columns), *([_flat(value) for value in row] for row in rows)]
    widths = [max(cell_len(row[at]) for row in cells) for at in range(len(columns) - 1)]
    room = max(_LEAST, shutil.get_terminal_size().columns - sum(widths) - 2 * len(widths) - 1)
    for number, row in enumerate(cells):
        padded = [text + " " * (width - cell_len(text)) for text, width in zip(row, widths, strict=False)]
        line = "  ".join([*padded, cut(row[-1], room)]).rstrip()
        bold = number == 0 and output.colours(sys.stdout)
        sys.stdout.write(f"\x1b[1m{line}\x1b[0m\n" if bold else f"{line}\n")


def write_fields(context: Context, fields: Iterable[tuple[str, str]], width: int) -> None:
    """A line for each field that says something, its name in a column of this width."""
    for name, text in fields:
        if text:
            context.line(f"{name:{width}}{text}")


def cut(text: str, room: int) -> str:
    """As much of a text as fits into so many cells; some characters take two."""
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else set_cell_size(text, room - 1).rstrip() + "…"


def _flat(value: object) -> str:
    return output.visible(str(value)).replace("\t", " ").replace("\n", " ")


# ---------- cli.sessions.look
#
# `herma sessions list`: one line per conversation.

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


# ---------- cli.sessions.numbers
#
# `herma sessions stats`: how much there is, where it came from, and what it takes on disk.

_LARGEST = 5


@sessions.command(short_help="How much there is, and what it takes on disk")
@click.option("--quick", is_flag=True, help="Do not read every message to measure the text.")
@with_sessions
def stats(desk: Desk, quick: bool) -> None:
    """Count sessions and messages, and compare the files with the text that is in them.

    \b
    Examples:
      herma sessions stats
      herma sessions stats --quick --json
    """
    total = desk.transcripts.stats()
    files = databases(desk.h.home)
    lines = [] if quick else desk.transcripts.list(SessionFilter(), limit=2**31)
    texts = _measured(desk, lines, total.messages)
    largest = sorted(lines, key=lambda one: texts[one.id], reverse=True)[:_LARGEST]
    if desk.context.json:
        desk.context.print_json(_numbers_as_json(total, files, texts, largest, quick=quick))
        return
    _counts(desk, total)
    if total.sessions:
        rows = [(source, f"{n:,}", f"{m:,}") for source, (n, m) in sorted(total.sources.items(), key=_by_messages)]
        desk.context.line()
        desk.context.table(["source", "sessions", "messages"], rows)
    _sizes(desk, files, None if quick else sum(texts.values()))
    if largest:
        desk.context.line()
        listed = [(one.id, size(texts[one.id]), f"{one.message_count:,}", name_of(one)) for one in largest]
        write_lines(desk.context, ["largest", "text", "messages", "title or first words"], listed)


def _measured(desk: Desk, lines: list[SessionInfo], total: int) -> dict[str, int]:
    """Bytes of text of each conversation: what was said, tool calls and results, reasoning."""
    found: dict[str, int] = {}
    done = 0
    if not lines:
        return found
    with desk.progress("Measuring messages", total) as report:
        for line in lines:
            found[line.id] = 0
            for member in desk.transcripts.conversation(line.id):
                after: int | None = None
                while some := desk.transcripts.messages(member.id, include_hidden=True, after=after, limit=500):
                    found[line.id] += sum(map(_text_bytes, some))
                    after = some[-1].id
                    done += len(some)
                    report(min(done, total), total)
    return found


def _text_bytes(message: Message) -> int:
    calls = json.dumps(message.tool_calls, ensure_ascii=False) if message.tool_calls else ""
    content = message.content
    said = text_of(content) if not isinstance(content, list) else json.dumps(content, ensure_ascii=False)
    return len(said.encode()) + len(calls.encode()) + len((message.reasoning or "").encode())


def _by_messages(item: tuple[str, tuple[int, int]]) -> tuple[int, str]:
    return -item[1][1], item[0]


def _counts(desk: Desk, total: TranscriptStats) -> None:
    desk.context.line(
        f"{count(total.conversations, 'conversation')}, {count(total.sessions, 'session')}, "
        f"{count(total.messages, 'message')}"
        + (f", {when(total.first)} to {when(total.last)}" if total.first is not None else "")
    )
    usage, deleted = total.usage, len(desk.deleted())
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
        desk.context.line(" · ".join(part for part in special if part))


def _sizes(desk: Desk, files: dict[str, int], text: int | None) -> None:
    desk.context.line()
    if text is not None:
        desk.context.line(f"text      {size(text)}")
    for name, taken in files.items():
        if taken:
            times = f"  {taken / text:.1f} × the text" if text else ""
            desk.context.line(f"{name:<9} {size(taken)}{times}")
    if not files["index.db"]:
        desk.context.line("index.db  not there; the next search builds it")


def _numbers_as_json(
    total: TranscriptStats, files: dict[str, int], texts: dict[str, int], largest: list[SessionInfo], *, quick: bool
) -> Json:
    return {
        "ok": True,
        **stats_json(total),
        "text_bytes": None if quick else sum(texts.values()),
        "files": files,
        "largest": [{"id": one.id, "title": one.title, "text_bytes": texts[one.id]} for one in largest],
    }


# ---------- cli.sessions.resume
#
# `herma sessions resume`: go on with a conversation, in the terminal.


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
    from herma.agent.chat import Wanted, start

    if desk.context.json and prompt is None:
        raise UsageError("--json is for one question.", hint='Add it: -p "…"')
    start(desk.context, desk.h, Wanted(resume=desk.find(session).id), prompt)


# ---------- cli.sessions.show
#
# `herma sessions show`: a conversation to read, or the place of one message in it.

_FIRST, _LAST = 10, 40
"""Messages of a long conversation that are shown without --full."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A session of the conversation, with those of its messages that are to be shown."""

    session: SessionInfo
    messages: Sequence[Message]


@sessions.command(short_help="Read a conversation, or the place of a message")
@click.argument("session", metavar="[ID]", required=False)
@click.option(
    "--around", metavar="MESSAGE", type=click.IntRange(1, 2**63 - 1), help="Only this message and its neighbours."
)
@click.option(
    "--window", type=click.IntRange(0, 1000), default=5, show_default=True, help="How many neighbours on each side."
)
@click.option("--full", is_flag=True, help="Every message, and each of them whole.")
@click.option("--hidden", is_flag=True, help="Also what was rewound, or replaced by a summary.")
@with_sessions
def show(desk: Desk, session: str | None, around: int | None, window: int, full: bool, hidden: bool) -> None:
    """Read a conversation. Long texts and the middle of long conversations are cut; --full shows all.

    The number before each message is what --around takes; it is the same wherever the message is shown.

    \b
    Examples:
      herma sessions show 20261231_2359
      herma sessions show "Login bug" --full
      herma sessions show --around 1234 --window 10
    """
    if session is None and around is None:
        raise UsageError("Which session?", hint=f"`{desk.command('sessions', 'list')}` has their ids.")
    found = desk.find(session) if session is not None else None
    if around is not None:
        parts = [_place(desk, found, around, window, hidden=hidden)]
        found = found or parts[0].session
    else:
        assert found is not None
        members = desk.transcripts.conversation(found.id)
        parts = [_Part(one, desk.transcripts.messages(one.id, include_hidden=hidden)) for one in members]
    if desk.context.json:
        _show_as_json(desk, found, parts, around)
        return
    _heading(desk, found, parts, around)
    if around is None and not full:
        _cut(desk, found, parts)
    else:
        for at, part in enumerate(parts):
            _messages(desk, part, first=at == 0, anchor=around, full=full)
    _ending(desk, found, parts, around, hidden=hidden)


# ── which messages ──


def _place(desk: Desk, found: SessionInfo | None, message: int, window: int, *, hidden: bool) -> _Part:
    """The surroundings of a message, in the session that it belongs to."""
    near = desk.transcripts.around(message, window)
    home = desk.transcripts.get(near[0].session_id) if near else None
    if home is not None and found is not None and home.conversation != found.conversation:
        raise UsageError(
            f"Message {message} is not in the conversation {found.id}.",
            hint=f"It is here: {desk.command('sessions', 'show', home.id, '--around', str(message))}",
        )
    if home is not None and not hidden:
        return _Part(home, near)
    if found is None and home is None:
        raise UsageError(
            f"There is no message {message}, or it was taken back.",
            hint="If you know its session, give the ID as well, with --hidden.",
        )
    return _among_hidden(desk, home or found, message, window, hidden=hidden)


def _among_hidden(desk: Desk, start: SessionInfo | None, message: int, window: int, *, hidden: bool) -> _Part:
    """The same, hidden messages included."""
    assert start is not None
    for one in desk.transcripts.conversation(start.id):
        messages = desk.transcripts.messages(one.id, include_hidden=True)
        at = next((number for number, this in enumerate(messages) if this.id == message), None)
        if at is None:
            continue
        if not hidden:
            raise UsageError(f"Message {message} was taken back.", hint="Add --hidden to see it.")
        return _Part(one, messages[max(0, at - window) : at + window + 1])
    raise UsageError(
        f"There is no message {message} in the conversation {start.id}.",
        hint=f"`{desk.command('sessions', 'show', start.id)}` has the numbers.",
    )


# ── for people ──


def _heading(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None) -> None:
    emphasised(desk.context, name_of(found))
    first, last = parts[0].session, parts[-1].session
    total = sum(part.session.message_count for part in parts)
    until = f" – {when(last.last_active)}" if when(last.last_active) != when(first.started) else ""
    facts = [
        found.id,
        found.source,
        f"{when(first.started)}{until}",
        "" if around is not None else count(total, "message"),
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
    desk.context.line(" · ".join(fact for fact in facts if fact))


def _cut(desk: Desk, found: SessionInfo, parts: Sequence[_Part]) -> None:
    """The beginning and the end of a conversation; all of a short one."""
    total = sum(len(part.messages) for part in parts)
    gap = range(_FIRST, max(_FIRST, total - _LAST))
    at = 0
    for number, part in enumerate(parts):
        session, messages = part.session, part.messages
        before = messages[: max(0, gap.start - at)] if gap else messages
        after = messages[max(0, gap.stop - at) :] if gap else ()
        has_gap = bool(gap) and at <= gap.start < at + len(messages)
        if before or not gap:
            _messages(desk, _Part(session, before), first=number == 0)
        if has_gap:
            whole = desk.command("sessions", "show", found.id, "--full")
            desk.context.line()
            desk.context.line(f"     … {count(len(gap), 'message')} in between; all of them: {whole}")
        if after:
            _messages(desk, _Part(session, after), first=number == 0 or has_gap)
        at += len(messages)


def _messages(desk: Desk, part: _Part, *, first: bool, anchor: int | None = None, full: bool = False) -> None:
    if not first:
        desk.context.line()
        why = {"compression": "after a compression"}.get(part.session.reason, part.session.reason)
        desk.context.line(f"── goes on in {part.session.id} ({why}), {when(part.session.started)} ──")
    for message in part.messages:
        write_message(message, anchor=message.id == anchor, full=full)


def _ending(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None, *, hidden: bool) -> None:
    if around is not None:
        desk.context.line()
        desk.context.line(f"The whole conversation: {desk.command('sessions', 'show', found.id)}")
    elif not any(part.messages for part in parts):
        desk.context.line("No messages." if hidden else "No messages to show; perhaps all of them are hidden: --hidden")


def _show_as_json(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None) -> None:
    """Everything, whole: what is cut for people is not cut for programs."""
    listed = [message_json(message) for part in parts for message in part.messages]
    for message in listed:
        if message["id"] == around:
            message["anchor"] = True
    desk.context.print_json(
        {
            "ok": True,
            "session": session_json(found),
            "system_prompt": desk.transcripts.system_prompt(found.id),
            "sessions": [session_json(part.session) for part in parts],
            "messages": listed,
        }
    )


# ---------- cli.sessions.mark
#
# `herma sessions rename` and `archive`: what people change about sessions.


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


import herma.transcript.cli_transfer  # noqa: E402, F401  adds its commands
