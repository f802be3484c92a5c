"""Herma episodes, herma restore."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import get_args

import click

from herma.cli.frame import HermaCommand, HermaGroup, yes_option
from herma.cli.output import Json, count, iso, one_line, short_when, when
from herma.episodes.episodes import label
from herma.episodes.types import Digest, Episode, Forgotten, Outcome, Restored, SessionState
from herma.errors import UsageError
from herma.transcript.cli import Desk, dry_run_option, limit_option, with_sessions, write_fields, write_lines
from herma.types import Scope

# ---------- cli.episodes
#
# `herma episodes`: what was done before, how it ended, and what helped.

_SHOWN = 20
"""Episodes that are listed before a question."""


class EpisodesGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list show search digests forget restore rebuild"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=EpisodesGroup)
def episodes() -> None:
    """See what was done before: one episode per conversation, made at its end without a model.

    An episode has the task, how it ended and why that is thought, what came of it, and the error that was met with what
    helped. An ID is its number, or the id of its session or the beginning of one.

    \b
    Examples:
      herma episodes list
      herma episodes search "deploy the shop"
      herma episodes show 12
      herma episodes forget --keep 1000 --dry-run

    \b
    With --json a list prints ok and episodes; a change prints ok and what it did. Times are ISO 8601 in UTC.
    """


@episodes.command("list")
@limit_option
@click.option("--project", metavar="NAME", help="Only those of this project.")
@click.option("--user", metavar="ID", help="Only those of this user.")
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="Only those that ended so.")
@click.option("--category", metavar="NAME", help="Only this kind of work: coding, debugging, writing, …")
@click.option("--archived", is_flag=True, help="Those that were put away.")
@with_sessions
def list_(
    desk: Desk,
    limit: int,
    project: str | None,
    user: str | None,
    outcome: Outcome | None,
    category: str | None,
    archived: bool,
) -> None:
    """List episodes, the newest first.

    \b
    Examples:
      herma episodes list
      herma episodes list --project shop --outcome resolved
      herma episodes list --archived
    """
    scope = Scope(user=user) if user else None
    found = desk.h.episodes.list(
        scope=scope, project=project, outcome=outcome, category=category, archived=archived, limit=limit + 1
    )
    more, found = len(found) > limit, found[:limit]
    if desk.context.json:
        desk.context.print_json({"ok": True, "episodes": [episode_json(one) for one in found], "more": more})
        return
    if not found:
        desk.context.line(_none(archived=archived, narrowed=any((project, user, outcome, category))))
        return
    _table(desk, found)
    if more:
        desk.context.line(f"There are more: --limit {limit * 5}")


@episodes.command(short_help="Read one episode, and where the work stood")
@click.argument("episode", metavar="ID")
@with_sessions
def show(desk: Desk, episode: str) -> None:
    """Read one episode, what its outcome rests on, and where the work stood when the session ended.

    \b
    Examples:
      herma episodes show 12
      herma episodes show 20261231_2359
    """
    one = _find(desk, episode)
    state = desk.h.episodes.state(one.conversation)
    if desk.context.json:
        desk.context.print_json({"ok": True, "episode": episode_json(one), "state": state_json(state)})
        return
    facts = [
        ("task", one.task),
        ("ended", f"{label(one)}: {one.why}"),
        ("result", one.result),
        ("error", one.error),
        ("helped", one.remedy),
        ("kind", one.category),
        ("when", f"{when(one.started)} – {when(one.ended)}"),
        ("project", one.scope.project),
        ("user", one.scope.user),
        ("tools", ", ".join(f"{name} ×{times}" for name, times in one.tools.items())),
        ("skills", ", ".join([*one.skills_applied, *(f"{name} (made)" for name in one.skills_created)])),
        ("session", f"{one.session_id}, messages {one.first_message}–{one.last_message}"),
        ("used", f"{count(one.uses, 'time')}, last {when(one.last_used)}" if one.uses else ""),
        ("made by", "rules, without a model" if one.built_by == "rules" else "a model"),
        ("replaced by", str(one.superseded_by) if one.superseded_by else ""),
        ("put away", when(one.archived) if one.archived else ""),
    ]
    write_fields(desk.context, facts, 12)
    for step in one.steps:
        desk.context.line(f"{'':12}· {step}")
    if state is not None:
        desk.context.line()
        for line in desk.h.episodes.describe(state).splitlines():
            desk.context.line(line)
    desk.context.line()
    desk.context.line(f"The conversation: {desk.command('sessions', 'show', one.session_id)}")


@episodes.command(short_help="Find earlier work on the like of a task")
@click.argument("task", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many at most.")
@click.option("--user", metavar="ID", help="Whose work.")
@with_sessions
def search(desk: Desk, task: tuple[str, ...], limit: int, user: str | None) -> None:
    """Find earlier work on the like of a task: by words and, with an embedder, by meaning.

    \b
    Examples:
      herma episodes search deploy the shop
      herma episodes search "登录超时" --limit 3
    """
    hits = desk.h.episodes.search_similar(" ".join(task), limit, scope=Scope(user=user or ""))
    if desk.context.json:
        found = [{**episode_json(hit.episode), "similarity": hit.similarity, "why": list(hit.why)} for hit in hits]
        desk.context.print_json({"ok": True, "episodes": found})
        return
    if not hits:
        desk.context.line(f"Nothing like it. What was said is found by: {desk.command('search', *task)}")
        return
    rows = [
        (hit.episode.id, short_when(hit.episode.ended), label(hit.episode), ", ".join(hit.why), hit.episode.task)
        for hit in hits
    ]
    write_lines(desk.context, ["id", "ended", "how", "found by", "task"], rows)


@episodes.command(short_help="What was put away, month by month")
@click.option("--user", metavar="ID", help="Only what is this user's.")
@with_sessions
def digests(desk: Desk, user: str | None) -> None:
    """Show what was put away, a few lines per month.

    \b
    Examples:
      herma episodes digests
    """
    found = desk.h.episodes.digests(user=user)
    if desk.context.json:
        desk.context.print_json({"ok": True, "digests": [_digest_json(one) for one in found]})
        return
    if not found:
        desk.context.line("Nothing was put away.")
    for one in found:
        for line in one.text.splitlines():
            desk.context.line(line)
        desk.context.line()


@episodes.command(short_help="Put the least valuable away, or some")
@click.argument("episode", metavar="[ID]…", nargs=-1)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="How many stay at hand; without it, episodes.max.")
@yes_option
@dry_run_option
@with_sessions
def forget(desk: Desk, episode: tuple[str, ...], keep: int | None, dry_run: bool) -> None:
    """Put the least valuable episodes away, or those with these IDs. Nothing is deleted.

    Least valuable are old ones that nobody used, that a later one replaces, or that failed without a remedy. They leave
    search and prompts, stay in the digest of their month, and come back with `herma episodes restore`.

    \b
    Examples:
      herma episodes forget --dry-run
      herma episodes forget --keep 1000
      herma episodes forget 12 13
    """
    if episode and keep is not None:
        raise UsageError("IDs and --keep contradict.", hint="Give one of them.")
    ids = [_find(desk, text).id for text in episode] or None
    shown = desk.h.episodes.forget(most=keep, ids=ids, dry_run=True)
    if dry_run or not shown.episodes:
        _forgotten(desk, shown)
        return
    if not desk.context.json:
        _table(desk, shown.episodes[:_SHOWN])
    if not desk.context.confirm(f"Put {count(len(shown.episodes), 'episode')} away?"):
        desk.context.line("Nothing was put away.")
        desk.context.exit(1)
    _forgotten(desk, desk.h.episodes.forget(ids=[one.id for one in shown.episodes]))


@episodes.command(short_help="Take episodes out of the archive")
@click.argument("episode", metavar="ID…", nargs=-1, required=True)
@with_sessions
def restore(desk: Desk, episode: tuple[str, ...]) -> None:
    """Take episodes out of the archive again.

    \b
    Examples:
      herma episodes list --archived
      herma episodes restore 12
    """
    ids = [_find(desk, text).id for text in episode]
    back = desk.h.episodes.restore(ids)
    if desk.context.json:
        desk.context.print_json({"ok": True, "episodes": [episode_json(one) for one in back]})
        return
    for one in back:
        desk.context.line(f"Back again: {one.id}  {one.task}")
    if not back:
        desk.context.line("None of them was put away.")


@episodes.command(short_help="Make episodes of sessions that have none")
@click.argument("session", metavar="[SESSION]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All sessions, also those that have one.")
@with_sessions
def rebuild(desk: Desk, session: tuple[str, ...], everything: bool) -> None:
    """Make episodes of sessions that have none yet, or went on since: after an import or a crash, say.

    \b
    Examples:
      herma episodes rebuild
      herma episodes rebuild 20261231_2359
      herma episodes rebuild --all
    """
    wanted = [one.conversation for one in desk.find_all(session)] if session else None
    with desk.context.progress("Reading sessions") as report:
        done = desk.h.episodes.rebuild(wanted, everything=everything, progress=report)
    if desk.context.json:
        desk.context.print_json({"ok": True, **asdict(done)})
        return
    looked = count(done.looked_at, "conversation")
    desk.context.line(f"Looked at {looked}: {count(done.made, 'episode')}, {done.empty:,} with nothing in them.")


# ── words ──


def _find(desk: Desk, text: str) -> Episode:
    """The episode meant by its number, or by its session."""
    one = desk.h.episodes.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if one is None:
        try:
            one = desk.h.episodes.get(desk.find(text).conversation)
        except UsageError:
            if not text.isdigit():
                raise
    if one is None:
        raise UsageError(f"There is no episode {text!r}.", hint=f"`{desk.command('episodes', 'list')}` has the ids.")
    return one


def _none(*, archived: bool, narrowed: bool) -> str:
    if narrowed:
        return "None of those that are put away is like that." if archived else "No episode is like that."
    return "None is put away." if archived else "No episodes yet; sessions make them when they end."


def _table(desk: Desk, found: Sequence[Episode]) -> None:
    rows = [
        (one.id, short_when(one.ended), label(one), one.category, one.scope.project or "-", one_line(one.task, 120))
        for one in found
    ]
    write_lines(desk.context, ["id", "ended", "how", "kind", "project", "task"], rows)


def _forgotten(desk: Desk, done: Forgotten) -> None:
    if desk.context.json:
        desk.context.print_json(
            {
                "ok": True,
                "dry_run": done.dry_run,
                "episodes": [episode_json(one) for one in done.episodes],
                "digests": [_digest_json(one) for one in done.digests],
                "kept": done.kept,
            }
        )
        return
    if not done.episodes:
        desk.context.line(f"Nothing to put away; {count(done.kept, 'episode')} at hand.")
        return
    if done.dry_run:
        _table(desk, done.episodes[:_SHOWN])
        desk.context.line(f"{count(len(done.episodes), 'episode')} would be put away. Nothing was done.")
        return
    months = ", ".join(one.month for one in done.digests)
    desk.context.line(
        f"Put away: {count(len(done.episodes), 'episode')}, in the digest of {months}. {done.kept:,} left."
    )
    desk.context.line(f"To bring one back: {desk.command('episodes', 'restore', str(done.episodes[0].id))}")


def episode_json(one: Episode) -> Json:
    return {
        "id": one.id,
        "conversation": one.conversation,
        "session": one.session_id,
        "source": one.source,
        "project": one.scope.project or None,
        "user": one.scope.user or None,
        "task": one.task,
        "category": one.category,
        "outcome": one.outcome,
        "success": one.success,
        "why": one.why,
        "result": one.result,
        "error": one.error,
        "remedy": one.remedy,
        "steps": list(one.steps),
        "tools": dict(one.tools),
        "skills_applied": list(one.skills_applied),
        "skills_created": list(one.skills_created),
        "started": iso(one.started),
        "ended": iso(one.ended),
        "duration": one.duration,
        "first_message": one.first_message,
        "last_message": one.last_message,
        "built_by": one.built_by,
        "uses": one.uses,
        "last_used": iso(one.last_used),
        "superseded_by": one.superseded_by,
        "archived": iso(one.archived),
    }


def state_json(state: SessionState | None) -> Json | None:
    if state is None:
        return None
    return {
        "session": state.session_id,
        "at": iso(state.at),
        "folder": state.folder or None,
        "branch": state.branch or None,
        "open_tasks": list(state.open_tasks),
        "files": list(state.files),
        "next_step": state.next_step,
        "last_request": state.last_request,
        "finished": state.finished,
        "built_by": state.built_by,
    }


def _digest_json(one: Digest) -> Json:
    return {"month": one.month, "count": one.count, "text": one.text, "episodes": list(one.episodes)}


# ---------- cli.restore
#
# `herma restore`: what is known for a task, for any agent to go on with.


@click.command("restore", cls=HermaCommand)
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
def restore_restore(
    desk: Desk, task: tuple[str, ...], project: str | None, user: str | None, budget: int | None
) -> None:
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
