"""`herma sessions search`, also `herma search`: what was said, how the query was read, and what was left out."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import asdict, replace

import click

from herma.cli import output
from herma.cli.frame import HermaCommand
from herma.cli.sessions.desk import Desk, sessions, with_sessions
from herma.cli.sessions.wording import Json, count, iso, name_of, session_json, when
from herma.recall.asked import Mode
from herma.recall.gather import SCANS
from herma.types import Dropped, Hit, SearchReport

_DASHED = "\ue000"
_MATCH = re.compile(r">>>((?:(?!>>>|<<<).)+)<<<")
_MARKED, _BOLD, _DIM, _PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
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
    from herma.recall.dates import read_value

    if value is not None and read_value(value, time.time()) is None:
        raise click.BadParameter(
            f"{value[:40]!r} is no time; say 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return value


def _read_roles(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    from herma.recall.asked import no_roles

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
        desk.context.print_json(_as_json(report))
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
        title, facts = f"{_BOLD}{title}{_PLAIN}", f"{_DIM}{facts}{_PLAIN}"
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
    return _MATCH.sub(rf"{_MARKED}\1{_PLAIN}", line) if output.colours(sys.stdout) else line


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


def _as_json(report: SearchReport) -> Json:
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
