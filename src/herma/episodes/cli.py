"""The commands `herma episodes` and `herma brief`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import click

from herma.cli.context import (
    CommandContext,
    HermaCommand,
    HermaGroup,
    dry_run_option,
    with_home,
    yes_option,
)
from herma.cli.encode import Json, encode
from herma.cli.output import count, one_line, short_when, when
from herma.episodes.episodes import label
from herma.episodes.rows import Episode, Forgotten, Outcome, SessionState
from herma.errors import UsageError
from herma.transcript.cli import complete_session, find_session
from herma.types import Scope

_SHOWN = 20
"""Episodes that are listed before a confirmation."""


@click.group(cls=HermaGroup, order="list show archive")
def episodes() -> None:
    """See earlier work: one episode per conversation, made at its end without a model.

    An episode has the task, how it ended and why Herma thinks so, the result, and the error that occurred with its
    remedy. ID is its number, or the id or title of its session.

    \b
    Examples:
      herma episodes list
      herma episodes list deploy the shop
      herma episodes show 12

    \b
    With --json a list prints ok and episodes; a change prints ok and what it did. Times are ISO 8601 in UTC.
    """


_episode_ids = click.argument("episode", metavar="[ID]…", nargs=-1, shell_complete=complete_session)


@episodes.command("list", short_help="List episodes, or find those similar to a task")
@click.argument("task", nargs=-1)
@click.option("--limit", type=click.IntRange(1, 1_000_000), help="Show at most this many; 20, or 5 for a TASK.")
@click.option("--project", metavar="NAME", help="Only episodes of this project.")
@click.option("--user", metavar="ID", help="Only episodes of this user.")
@click.option("--outcome", type=click.Choice(get_args(Outcome)), help="Only episodes with this outcome.")
@click.option("--category", metavar="NAME", help="Only this kind of work: coding, debugging, writing, …")
@click.option("--archived", is_flag=True, help="Only archived episodes.")
@click.option("--by-month", is_flag=True, help="Summarise archived episodes, a few lines per month.")
@with_home
def list_(
    context: CommandContext,
    task: tuple[str, ...],
    limit: int | None,
    project: str | None,
    user: str | None,
    outcome: Outcome | None,
    category: str | None,
    archived: bool,
    by_month: bool,
) -> None:
    """List episodes, the newest first, or those of work similar to a TASK: by words and, with a model, by meaning.

    \b
    Examples:
      herma episodes list deploy the shop
      herma episodes list --project shop --outcome resolved
      herma episodes list --archived
      herma episodes list --by-month
    """
    if task:
        _search(context, task, limit or 5, user)
        return
    if by_month:
        _write_months(context, user)
        return
    limit = limit or 20
    scope = Scope(user=user) if user else None
    found = context.h.episodes.list(
        scope=scope, project=project, outcome=outcome, category=category, archived=archived, limit=limit + 1
    )
    more, found = len(found) > limit, found[:limit]
    if context.json:
        context.print_json({"ok": True, "episodes": [episode_json(one) for one in found], "more": more})
    elif found:
        _table(context, found)
        if more:
            context.line(f"There are more: --limit {limit * 5}")
    elif any((project, user, outcome, category)):
        context.line("No matching episodes.")
    else:
        context.line("No archived episodes." if archived else "No episodes yet. Each session makes one when it ends.")


def _write_months(context: CommandContext, user: str | None) -> None:
    months = context.h.episodes.digests(user=user)
    if context.json:
        context.print_json({"ok": True, "digests": [encode(one) for one in months]})
        return
    if not months:
        context.line("No archived episodes.")
    for one in months:
        for line in one.text.splitlines():
            context.line(line)
        context.line()


@episodes.command(short_help="Show one episode, and where the work stood")
@click.argument("episode", metavar="ID", shell_complete=complete_session)
@with_home
def show(context: CommandContext, episode: str) -> None:
    """Show one episode, the reason for its outcome, and where the work stood when the session ended.

    \b
    Examples:
      herma episodes show 12
      herma episodes show 20261231_2359
    """
    one = _find(context, episode)
    state = context.h.episodes.state(one.conversation)
    if context.json:
        context.print_json({"ok": True, "episode": episode_json(one), "state": state_json(state)})
        return
    facts = [
        ("task", one.task),
        ("outcome", f"{label(one)}: {one.why}"),
        ("result", one.result),
        ("error", one.error),
        ("remedy", one.remedy),
        ("kind", one.category),
        ("when", f"{when(one.started)} – {when(one.ended)}"),
        ("project", one.scope.project),
        ("user", one.scope.user),
        ("tools", ", ".join(f"{name} ×{times}" for name, times in one.tools.items())),
        ("skills", ", ".join([*one.skills_applied, *(f"{name} (created)" for name in one.skills_created)])),
        ("session", f"{one.session_id}, messages {one.first_message}–{one.last_message}"),
        ("used", f"{count(one.uses, 'time')}, last {when(one.last_used)}" if one.uses else ""),
        ("made by", "rules, without a model" if one.built_by == "rules" else "a model"),
        ("replaced by", str(one.superseded_by) if one.superseded_by else ""),
        ("archived", when(one.archived) if one.archived else ""),
    ]
    context.fields(facts)
    for step in one.steps:
        context.line(f"{'':12}· {step}")
    if state is not None:
        context.line()
        for line in context.h.episodes.describe(state).splitlines():
            context.line(line)
    context.line()
    context.line(f"The conversation: {context.command('sessions', 'show', one.session_id)}")


def _search(context: CommandContext, task: tuple[str, ...], limit: int, user: str | None) -> None:
    """Find earlier work similar to a task: by words and, with an embedding model, by meaning."""
    hits = context.h.episodes.search_similar(" ".join(task), limit, scope=Scope(user=user or ""))
    if context.json:
        found = [episode_json(hit.episode) | {"similarity": hit.similarity, "why": list(hit.why)} for hit in hits]
        context.print_json({"ok": True, "episodes": found})
        return
    if not hits:
        context.line(f"No similar episodes. To search all messages: {context.command('search', *task)}")
        return
    rows = [
        (hit.episode.id, short_when(hit.episode.ended), label(hit.episode), ", ".join(hit.why), hit.episode.task)
        for hit in hits
    ]
    names = ["id", "ended", "outcome", "found by", "task"]
    context.table(names, rows, drop=("found by", "outcome", "ended"), cut=True)


@episodes.command(short_help="Archive episodes, or take them out of the archive")
@_episode_ids
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Keep this many; default: episodes.max.")
@click.option("--undo", is_flag=True, help="Take the episodes with these IDs out of the archive.")
@yes_option
@dry_run_option
@with_home
def archive(context: CommandContext, episode: tuple[str, ...], keep: int | None, undo: bool, dry_run: bool) -> None:
    """Archive the episodes with these IDs; without IDs, the least valuable ones. Nothing is deleted.

    Least valuable are episodes that are old and unused, that a later one replaces, or that failed without a remedy.
    Archived episodes appear neither in search nor in prompts.

    \b
    Examples:
      herma episodes archive --keep 1000 --dry-run
      herma episodes archive 12 13
      herma episodes archive --undo 12
    """
    if episode and keep is not None:
        raise UsageError("IDs and --keep contradict each other.", hint="Give one of them. Nothing was changed.")
    if undo and not episode:
        raise UsageError("--undo needs the IDs.", hint=context.command("episodes", "list", "--archived"))
    ids = [_find(context, text).id for text in episode] or None
    if undo and ids:
        _restore(context, ids, dry_run=dry_run)
        return
    shown = context.h.episodes.forget(most=keep, ids=ids, dry_run=True)
    if dry_run or not shown.episodes:
        _write_archived(context, shown)
        return
    if not context.json:
        _table(context, shown.episodes[:_SHOWN])
    if not context.confirm(f"Archive {count(len(shown.episodes), 'episode')}?"):
        context.line("Nothing was archived.")
        context.exit(1)
    _write_archived(context, context.h.episodes.forget(ids=[one.id for one in shown.episodes]))


def _restore(context: CommandContext, ids: Sequence[int], *, dry_run: bool) -> None:
    found = [context.h.episodes.get(number) for number in ids] if dry_run else context.h.episodes.restore(ids)
    back = [one for one in found if one is not None and (one.archived is not None or not dry_run)]
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "episodes": [episode_json(one) for one in back]})
        return
    for one in back:
        context.line(f"{'Would be restored' if dry_run else 'Restored'}: {one.id}  {one.task}")
    if not back:
        context.line("None of these episodes is archived.")


def _write_archived(context: CommandContext, done: Forgotten) -> None:
    if context.json:
        context.print_json({"ok": True, **encode(done, episodes=[episode_json(one) for one in done.episodes])})
    elif not done.episodes:
        context.line(f"Nothing to archive; {count(done.kept, 'episode')} kept.")
    elif done.dry_run:
        _table(context, done.episodes[:_SHOWN])
        context.line(f"{count(len(done.episodes), 'episode')} would be archived. Nothing was changed.")
    else:
        context.line(f"Archived {count(len(done.episodes), 'episode')}; {done.kept:,} kept.")
        undo = context.command("episodes", "archive", "--undo", str(done.episodes[0].id))
        context.line(f"To restore one: {undo}")


@click.command(cls=HermaCommand)
@click.argument("task", nargs=-1, required=True)
@click.option("--project", metavar="NAME", help="The project that the task belongs to.")
@click.option("--user", metavar="ID", help="The user who does the task.")
@click.option(
    "--budget",
    type=click.IntRange(1, 100_000_000),
    metavar="N",
    help="Use at most this many tokens; default: the share of the model's window for memory.",
)
@with_home
def brief(
    context: CommandContext, task: tuple[str, ...], project: str | None, user: str | None, budget: int | None
) -> None:
    """Collect what is known for a task: where the work stopped, memory, matching skills, earlier work.

    Give the text to any agent. If the budget is too small, earlier work is left out first, then skills; curated memory
    is never shortened.

    \b
    Examples:
      herma brief fix the login bug
      herma brief "write the importer" --project shop --budget 2000
      herma brief "write the importer" --json
    """
    done = context.h.restore(" ".join(task), project=project, user=user, budget_tokens=budget)
    if context.json:
        found = [episode_json(hit.episode) | {"similarity": hit.similarity} for hit in done.episodes]
        context.print_json({"ok": True, **encode(done, episodes=found, state=state_json(done.state))})
        return
    for line in done.text.splitlines():
        context.line(line)
    for note in done.notes:
        context.warn(note)


def episode_json(one: Episode) -> Json:
    return encode(one, rename={"session_id": "session"}, omit=["updated"], success=one.success, duration=one.duration)


def state_json(state: SessionState | None) -> Json | None:
    if state is None:
        return None
    return encode(state, rename={"session_id": "session"}, omit=["conversation", "scope", "ended"])


def _find(context: CommandContext, text: str) -> Episode:
    """Return the episode with this number, or of this session."""
    one = context.h.episodes.get(int(text)) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if one is None:
        try:
            one = context.h.episodes.get(find_session(context, text).conversation)
        except UsageError:
            if not text.isdigit():
                raise
    if one is None:
        hint = f"`{context.command('episodes', 'list')}` lists the ids. Nothing was changed."
        raise UsageError(f"There is no episode {text!r}.", hint=hint, code="not_found")
    return one


def _table(context: CommandContext, found: Sequence[Episode]) -> None:
    rows = [
        (one.id, short_when(one.ended), label(one), one.category, one.scope.project or "-", one_line(one.task, 120))
        for one in found
    ]
    names = ["id", "ended", "outcome", "kind", "project", "task"]
    context.table(names, rows, drop=("project", "kind", "outcome", "ended"), cut=True)
