"""Herma search: find what was said in past sessions."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from herma.cli import output
from herma.cli.context import CommandContext, HermaCommand, with_home
from herma.cli.encode import Json, encode, session_json
from herma.cli.output import count, name_of, when
from herma.search.candidates import SCANS
from herma.search.dates import read_value
from herma.search.match import fold
from herma.search.query import no_roles

if TYPE_CHECKING:
    from herma.search.query import Dropped, Hit, Mode, SearchReport
    from herma.types import Target

_DASHED = "\ue000"
_MATCH = re.compile(r">>>((?:(?!>>>|<<<).)+)<<<")
_MARKED, _BOLD, _DIM, _PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
_REMEDIES = {
    "archived": "Add --all.",
    "date": "Remove the date, or give a longer period.",
    "role": "Remove --role or role: to see them.",
    "source": "Remove --source or source: to see them.",
    "project": "Remove --project or project: to see them.",
}
"""Options of this command for the library's arguments."""


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
    if value is not None and read_value(value, time.time()) is None:
        raise click.BadParameter(
            f"{value[:40]!r} is not a time. Try 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return value


def _read_roles(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None and no_roles(value):
        raise click.BadParameter(f"{value[:40]!r} is not a role. Use user, assistant, tool or system.", param=parameter)
    return value


@click.command(cls=SearchCommand)
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
@click.option("--explain", is_flag=True, help="Say how the query was read, and why each hit is there.")
@click.option("--mark", is_flag=True, help="Without a terminal: put the matched words in [brackets].")
@with_home
def search(
    context: CommandContext,
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
    mark: bool,
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
    report = context.h.search(
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
    report = _with_mode(context, report, mode)
    if context.json:
        context.print_json(report_json(report))
    else:
        _write(context, report, explain=explain, mark=mark)
    if not report.hits or report.widened:
        context.exit(1)


def _with_mode(context: CommandContext, report: SearchReport, asked: Mode | None) -> SearchReport:
    """Add a note if meaning was asked for by name, and there is no model."""
    if asked in (None, "words") or report.mode != "words" or context.h.index.status().vectors.wanted:
        return report
    if any(note.startswith("vectors:") for note in report.notes):
        return report
    install = context.command("models", "install", "e5-small")
    note = f"Only words were searched: no embedding model is installed. To install one: {install}"
    return replace(report, notes=(*report.notes, note))


# ── for people ──


def _write(context: CommandContext, report: SearchReport, *, explain: bool, mark: bool) -> None:
    """Print the notes if the search was widened, then the hits, then an account of the search."""
    notes = _notes(report)
    if not report.hits or report.widened:
        context.line("Nothing found." if not report.hits else "No exact match. Similar results:")
    if report.widened:
        for note in notes:
            context.line(note)
        context.line()
    for number, hit in enumerate(report.hits, 1):
        _write_hit(context, number, hit, explain=explain, mark=mark)
        _write_summary(context, hit, report)
    context.number_list("search", [hit.session_id for hit in report.hits], plain=True)
    _write_account(context, report, [] if report.widened else notes, explain=explain)
    if not report.hits or report.widened:
        _write_memory(context, report.query)


def _write_memory(context: CommandContext, query: str) -> None:
    """Print the entries of memory that have a word of the query: a person may have added it without a conversation."""
    looked_for = context.h.searcher.looked_for(query)
    targets: tuple[Target, ...] = ("memory", "user")
    for target in targets:
        for entry in context.h.memory.entries(target):
            folded = fold(entry)
            if any(unit.find(folded, 1) for unit in looked_for):
                context.line(f"{target.upper()}.md has: {output.visible(entry)}".replace("\n", " "))


def _write_hit(context: CommandContext, number: int, hit: Hit, *, explain: bool, mark: bool) -> None:
    """Print the conversation, the time, the match, and the command that shows it."""
    session = hit.session
    name = name_of(session) if session else hit.session_id
    project = f" · {session.scope.project}" if session and session.scope.project else ""
    source = f" · {session.source}" if session else ""
    archived = " · archived" if session and session.archived else ""
    who = "title" if hit.role == "session_title" else hit.role
    facts = output.visible(f"{when(hit.timestamp)}{source}{project}{archived} · {who}")
    title = output.visible(f"{number}  {name}").replace("\n", " ")
    if output.colours(sys.stdout):
        title, facts = f"{_BOLD}{title}{_PLAIN}", f"{_DIM}{facts}{_PLAIN}"
    sys.stdout.write(f"{title}\n   {facts}\n")
    snippet = output.visible(hit.snippet).replace("\n", " ")
    sys.stdout.write(f"   {_highlighted(snippet, mark=mark)}\n")
    if hit.outdated_by is not None:
        context.line(f"   possibly outdated: message {hit.outdated_by} says otherwise later")
    if explain:
        context.line(f"   why: {'; '.join(hit.why)}; score {hit.score:g}")
    place = ["--around", str(hit.message_id)] if hit.message_id else []
    context.line(f"   {context.command('sessions', 'show', hit.session_id, *place)}")
    context.line()


def _write_summary(context: CommandContext, hit: Hit, report: SearchReport) -> None:
    """Print a model's summary of the conversation of a hit, under its first hit only."""
    first = next(one for one in report.hits if one.conversation == hit.conversation)
    made = next((one for one in report.summaries if one.conversation == hit.conversation and one.text), None)
    if made is None or first is not hit:
        return
    context.line(f"   Summed up by {made.model}:")
    for line in output.visible(made.text).splitlines():
        context.line(f"   {line}")
    if made.note:
        context.line(f"   ({made.note})")
    context.line()


def _highlighted(line: str, *, mark: bool) -> str:
    """Return the line with matches in colour on a terminal; elsewhere plain, or in brackets with `mark`."""
    coloured = rf"{_MARKED}\1{_PLAIN}"
    return _MATCH.sub(coloured if output.colours(sys.stdout) else r"[\1]" if mark else r"\1", line)


def _write_account(context: CommandContext, report: SearchReport, notes: list[str], *, explain: bool) -> None:
    """Print what was left out and how to get it, and with `explain` or if something was, how the query was read."""
    for note in notes:
        context.line(note)
    if not (explain or report.widened or report.dropped or report.lag) and report.hits:
        return
    read = report.understood[:1].lower() + report.understood[1:].rstrip(".")
    searched = "" if any(report.searched.rstrip(".") in note for note in notes) else report.searched
    context.line(f"Read as: {read or 'nothing to look for'}. {searched}".rstrip())
    for one in report.dropped:
        if not any(f"“{one.rule}”" in note and _remedy(one) in note for note in _notes(report)):
            matches = count(one.count, "match", "matches")
            context.line(f"{matches} hidden by the rule “{one.rule}”. {_remedy(one)}".rstrip())
    if report.lag:
        were, are = ("was", "is") if report.lag == 1 else ("were", "are")
        seen = (
            f"{were} read one by one"
            if report.lag <= SCANS
            else f"{are} not indexed yet: this search saw only a part of them"
        )
        possible = not context.h.index.status().trouble
        now = f" To index them now: {context.command('index', 'rebuild')}" if possible else ""
        context.line(f"{count(report.lag, 'message')} {seen}.{now}")


def _notes(report: SearchReport) -> list[str]:
    """Return what the search has to say, in the words of this command."""
    notes = list(report.notes)
    for one in report.dropped:
        if one.remedy:
            notes = [note.replace(one.remedy, _remedy(one)) for note in notes]
    return notes


def _remedy(dropped: Dropped) -> str:
    return _REMEDIES.get(dropped.rule, dropped.remedy)


# ── for programs ──


def report_json(report: SearchReport) -> Json:
    hits = [
        encode(hit, message_id=hit.message_id or None, session=session_json(hit.session) if hit.session else None)
        for hit in report.hits
    ]
    dropped = [encode(one, remedy=_remedy(one)) for one in report.dropped]
    named = encode(report, omit=["sessions", "hits", "dropped", "notes"])
    return {"ok": True, **named, "hits": hits, "dropped": dropped, "notes": _notes(report)}
