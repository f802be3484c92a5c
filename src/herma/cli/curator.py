"""`herma curator`: skills kept in shape, what was done and why, and the way back."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from herma.cli import output
from herma.cli.frame import Context, HermaGroup, pass_context
from herma.cli.person import for_people_only
from herma.cli.skills.desk import Desk, dry_run_option, name_argument, reason_option
from herma.cli.skills.standing import usage_json
from herma.wording.sessions import iso, when

if TYPE_CHECKING:
    from herma.reflect.curator import Curator
    from herma.types.curator import CuratorReport

P = ParamSpec("P")
Json = dict[str, Any]
_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


class CuratorGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "status run report rollback list-archived restore archive pin unpin"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=CuratorGroup)
def curator() -> None:
    """Keep skills in shape: what nobody uses becomes stale and later goes to the archive, what fails is marked.

    Nothing is deleted. Every run makes a snapshot first and a report afterwards; it comes by itself once a week
    (curator.interval_hours), or when you say so. Pinned skills, and those that no agent made, stay where they are.

    \b
    Examples:
      herma curator status
      herma curator run --dry-run
      herma curator rollback
    """


def with_curator(function: Callable[Concatenate[Desk, Curator, P], None]) -> Callable[..., None]:
    """Open the curator for a command."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, **options: Any) -> None:
        with context.open() as opened:
            desk = Desk(context, opened.skills, opened.settings)
            function(desk, opened.curator, **options)  # type: ignore[call-arg]

    return run


@curator.command(short_help="See when it ran, when it will, and what is due")
@with_curator
def status(desk: Desk, made: Curator) -> None:
    """See when the curator ran and will run, how skills stand, and what a run would do now. Changes nothing.

    \b
    Examples:
      herma curator status
      herma curator status --json
    """
    found = made.status()
    context = desk.context
    if context.json:
        value = {
            "enabled": found.enabled,
            "last_run": iso(found.last_run),
            "next_run": iso(found.next_run),
            "runs": found.runs,
            "states": dict(found.states),
            "pinned": found.pinned,
            "archived": found.archived,
            "snapshots": found.snapshots,
            "last": report_json(found.last) if found.last else None,
            "due": [asdict(move) for move in found.plan.moves],
            "kept": dict(found.plan.kept),
        }
        context.print_json({"ok": True, **value})
        return
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items()) or "none"
    context.line(f"Skills: {counts}; {found.pinned} pinned, {found.archived} in the archive.")
    context.line(f"Last run: {when(found.last_run) if found.last_run else 'never'} ({found.runs} in all).")
    if not found.enabled:
        context.line(f"By itself it does not run: {context.command('config', 'set', 'curator.enabled', 'true')}")
    elif found.next_run is None:
        context.line("Next run: a while after it has first seen a skill at the end of a session.")
    else:
        context.line(f"Next run: {when(found.next_run)} or later, when nobody is at work.")
    context.line(f"Snapshots: {found.snapshots}.")
    if found.last and found.last.state in ("running", "interrupted", "failed"):
        context.line(f"The last run was {found.last.state}: {context.command('curator', 'report')}")
    _moves_table(context, found.plan.moves, "A run would do this now:", "A run would do nothing now.")
    for name, why in sorted(found.plan.kept.items()):
        context.line(f"  {name} stays: {why}.")


@curator.command(short_help="Look at every skill now, and do what is due")
@dry_run_option
@with_curator
def run(desk: Desk, made: Curator, dry_run: bool) -> None:
    """Look at every skill now, do what is due, and say what was done. A snapshot is made first.

    \b
    Examples:
      herma curator run --dry-run
      herma curator run
    """
    if dry_run:
        _tell(desk, made.run(dry_run=True))
        return
    desk.for_people_under_approval("putting skills away")
    with desk.context.progress("Skills") as progress:
        found = made.run(progress=lambda done, _: progress(done))
    _tell(desk, found)
    if found.state == "failed":
        desk.context.exit(1)


@curator.command(short_help="See what a run did, and why")
@click.argument("run", required=False, metavar="[ID]")
@click.option("--list", "listing", is_flag=True, help="List the runs.")
@with_curator
def report(desk: Desk, made: Curator, run: str | None, listing: bool) -> None:
    """See what a run did, and why: the newest one, or the one given.

    \b
    Examples:
      herma curator report
      herma curator report --list
      herma curator report 20260102-030405
    """
    if not listing:
        _tell(desk, made.report(run))
        return
    from herma.reflect.curator_words import summary

    found = made.reports()
    if desk.context.json:
        desk.context.print_json({"ok": True, "runs": [report_json(each) for each in found]})
    elif found:
        rows = [(each.id, when(each.begun), each.why, each.state, summary(each)) for each in found]
        desk.context.table(["run", "when", "why", "state", "what"], rows)
    else:
        desk.context.line("There was no run yet.")


@curator.command(short_help="Bring skills back as they were before a run")
@click.argument("snapshot", required=False, metavar="[ID]")
@click.option("--exact", is_flag=True, help="Also what was changed or made since; that goes to the archive first.")
@click.option("--list", "listing", is_flag=True, help="List the snapshots.")
@dry_run_option
@with_curator
def rollback(desk: Desk, made: Curator, snapshot: str | None, exact: bool, listing: bool, dry_run: bool) -> None:
    """Bring skills back as they were before a run: the newest that did anything, or the one given.

    Skills that were changed or made since stay as they are, unless you say --exact. A snapshot of how things are now
    is made first, and every step is in the history of skills.

    \b
    Examples:
      herma curator rollback --list
      herma curator rollback --dry-run
      herma curator rollback 20260102-030405
    """
    context = desk.context
    if listing:
        found = made.snapshots()
        if context.json:
            listed = [{**asdict(each), "at": iso(each.at) if each.at else None} for each in found]
            context.print_json({"ok": True, "snapshots": listed})
        elif found:
            rows = [(each.id, when(each.at), each.skills, each.size, each.trouble or each.why) for each in found]
            context.table(["snapshot", "when", "skills", "bytes", "why"], rows)
        else:
            context.line("There is no snapshot yet.")
        return
    if not dry_run:
        desk.for_people_under_approval("bringing skills back")
    done = made.rollback(snapshot, exact=exact, dry_run=dry_run, author=desk.author)
    if context.json:
        context.print_json({**asdict(done), "ok": done.ok})
    would = "would be " if dry_run else ""
    for path, what in done.done:
        context.line(f"{path}: {would}{what}")
    for path, why in done.left:
        context.line(f"{path} stays as it is: {why}.")
    if not done.done and not done.failed:
        context.line(f"Everything that {done.snapshot} has is in its place already.")
    elif done.before:
        context.line(f"As it was before: {context.command('curator', 'rollback', done.before, '--exact')}")
    for path, why in done.failed:
        output.write(f"herma: {path} could not be brought back: {why}", sys.stderr)
    if not done.ok:
        context.exit(1)


@curator.command("list-archived", short_help="List what is in the archive")
@with_curator
def list_archived(desk: Desk, made: Curator) -> None:
    """List the skills in the archive, since when they are there, and where they were.

    \b
    Examples:
      herma curator list-archived
    """
    kept = made.archived()
    if desk.context.json:
        listed = [{"name": k.name, "folder": k.folder, "path": k.path, "at": iso(k.at)} for k in kept]
        desk.context.print_json({"ok": True, "archived": listed})
    elif kept:
        desk.context.table(["skill", "since", "was at"], [(k.name, when(k.at), k.path) for k in kept])
        desk.context.line(f"To bring one back: {desk.context.command('curator', 'restore', 'NAME')}")
    else:
        desk.context.line("The archive is empty.")


@curator.command(short_help="Bring a skill back from the archive")
@name_argument
@reason_option
@with_curator
def restore(desk: Desk, made: Curator, name: str, reason: str) -> None:
    """Bring a skill back from the archive, to where it was. Its age counts from now on.

    \b
    Examples:
      herma curator restore old-release
    """
    desk.for_people_under_approval("restoring skills")
    desk.report(made.restore(name, author=desk.author, reason=reason))


@curator.command(short_help="Move a skill to the archive now")
@name_argument
@reason_option
@dry_run_option
@with_curator
def archive(desk: Desk, made: Curator, name: str, reason: str, dry_run: bool) -> None:
    """Move a skill to the archive now, whatever its age.

    \b
    Examples:
      herma curator archive old-release
    """
    if dry_run:
        desk.would_archive(name)
        return
    desk.for_people_under_approval("archiving skills")
    desk.report(made.archive(name, author=desk.author, reason=reason))


@curator.command(short_help="Leave a skill as it is, whatever happens")
@name_argument
@with_curator
def pin(desk: Desk, made: Curator, name: str) -> None:
    """Leave a skill as it is: the curator does not touch it, and agents cannot change it.

    \b
    Examples:
      herma curator pin release
    """
    usage = made.pin(name)
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(f"{usage.name} is pinned.")


@curator.command(short_help="Let a skill be looked after again")
@name_argument
@with_curator
def unpin(desk: Desk, made: Curator, name: str) -> None:
    """Let a skill be looked after again.

    \b
    Examples:
      herma curator unpin release
    """
    for_people_only("Lifting the protection of a skill")
    usage = made.unpin(name)
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(f"{usage.name} is no longer pinned.")


# ── how it is told ──


def _tell(desk: Desk, found: CuratorReport) -> None:
    from herma.reflect.curator_words import summary

    context = desk.context
    if context.json:
        context.print_json({"ok": found.state != "failed", **report_json(found)})
        return
    state = "" if found.state == "done" else f" ({found.state})"
    context.line(f"{'Dry run' if found.dry_run else f'Run {found.id}'}{state}: {summary(found)}")
    _moves_table(context, found.moves, "", "")
    colours = output.colours(sys.stdout)
    for line in found.diff.splitlines():
        colour = {"+": _GREEN, "-": _RED}.get(line[:1]) if colours else None
        text = output.visible(line)
        sys.stdout.write(f"{colour}{text}{_PLAIN}\n" if colour else f"{text}\n")
    for name, why in sorted(found.kept.items()):
        context.line(f"{name} stays: {why}.")
    for pair in found.merges:
        inbox = f" Proposed in the inbox: {', '.join(map(str, pair.pending))}." if pair.pending else ""
        context.line(f"{pair.skills[0]} and {pair.skills[1]}: {pair.why}.{inbox} {pair.said}".rstrip())
    for note in found.notes:
        context.line(note)
    if found.dry_run:
        context.line("Nothing was changed.")
    elif found.snapshot and found.done:
        context.line(f"To take it back: {context.command('curator', 'rollback', found.snapshot)}")


def _moves_table(context: Context, moves: Any, before: str, nothing: str) -> None:
    if not moves:
        if nothing:
            context.line(nothing)
        return
    if before:
        context.line(before)
    rows = [(m.skill, m.before, m.after, m.reason, m.result + (f": {m.said}" if m.said else "")) for m in moves]
    context.table(["skill", "was", "is", "why", ""], rows)


def report_json(found: CuratorReport) -> Json:
    """A report with everything in it, times as text."""
    return {**asdict(found), "begun": iso(found.begun), "ended": iso(found.ended)}
