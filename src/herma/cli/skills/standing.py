"""`herma skills archive`, `restore`, `pin`, `unpin`, `trust`, `state`, `record` and `usage`: how skills stand."""

from __future__ import annotations

from dataclasses import asdict

import click

from herma.cli.person import for_people_only
from herma.cli.skills.desk import Desk, dry_run_option, name_argument, reason_option, skills, with_skills
from herma.errors import UsageError
from herma.types import SKILL_STATES, SkillState, SkillUsage
from herma.wording.sessions import iso, when


@skills.command(short_help="Move a skill to the archive")
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="List what is in the archive.")
@reason_option
@dry_run_option
@with_skills
def archive(desk: Desk, name: str | None, listing: bool, reason: str, dry_run: bool) -> None:
    """Move a skill to the archive, from where `restore` brings it back; or list what is there.

    \b
    Examples:
      herma skills archive old-release
      herma skills archive --list
    """
    if listing:
        kept = desk.library.archived()
        if desk.context.json:
            listed = [{"name": k.name, "folder": k.folder, "path": k.path, "at": iso(k.at)} for k in kept]
            desk.context.print_json({"ok": True, "archived": listed})
            return
        if kept:
            desk.context.table(
                ["skill", "since", "was at", "is at"], [(k.name, when(k.at), k.path, k.folder) for k in kept]
            )
        else:
            desk.context.line("The archive is empty.")
        return
    if not name:
        raise UsageError("Which skill?", hint="`herma skills list` shows them; --list shows the archive.")
    desk.for_people_under_approval("archiving skills")
    if dry_run:
        desk.would_archive(name)
        return
    desk.report(desk.library.archive(name, author=desk.author, reason=reason))


@skills.command(short_help="Bring a skill back from the archive")
@name_argument
@reason_option
@with_skills
def restore(desk: Desk, name: str, reason: str) -> None:
    """Bring a skill back from the archive, to where it was. Of several with its name, the one archived last; an earlier
    one by where it is now.

    \b
    Examples:
      herma skills restore old-release
      herma skills restore .archive/old-release
    """
    desk.for_people_under_approval("restoring skills")
    desk.report(desk.library.restore(name, author=desk.author, reason=reason))


@skills.command(short_help="Protect a skill from agents and the curator")
@name_argument
@with_skills
def pin(desk: Desk, name: str) -> None:
    """Protect a skill: agents cannot change it, and the curator leaves it where it is.

    \b
    Examples:
      herma skills pin release
    """
    _say(desk, desk.library.pin(name), f"{name} is pinned.")


@skills.command(short_help="Lift the protection of a skill")
@name_argument
@with_skills
def unpin(desk: Desk, name: str) -> None:
    """Lift the protection of a skill.

    \b
    Examples:
      herma skills unpin release
    """
    for_people_only("Lifting the protection of a skill")
    _say(desk, desk.library.unpin(name), f"{name} is no longer pinned.")


@skills.command(short_help="Vouch for a skill that the scanner calls dangerous")
@name_argument
@with_skills
def trust(desk: Desk, name: str) -> None:
    """Vouch for a skill as it is now, although the scanner calls it dangerous; any change ends that.

    \b
    Examples:
      herma skills scan release
      herma skills trust release
    """
    for_people_only("Vouching for a skill")
    _say(desk, desk.library.vouch(name), f"{name} is trusted as it is now.")


@skills.command(short_help="Say how healthy a skill is")
@name_argument
@click.argument("state", type=click.Choice([each for each in SKILL_STATES if each != "archived"]))
@dry_run_option
@with_skills
def state(desk: Desk, name: str, state: SkillState, dry_run: bool) -> None:
    """Say how healthy a skill is. A deprecated one is found last and named with its state; what you said before is
    taken back by saying it again.

    \b
    Examples:
      herma skills state old-release deprecated
      herma skills state old-release active
    """
    desk.for_people_under_approval("saying how healthy a skill is")
    before = next(iter(desk.library.usage(name).values())).state
    if dry_run:
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": True, "name": name, "before": before, "state": state})
        desk.context.line(f"{name} is {before} and would be {state}. Nothing was changed.")
        return
    back = desk.command("state", name, before) if before not in (state, "archived") else ""
    _say(
        desk, desk.library.set_state(name, state), f"{name} is {state}." + (f" To take it back: {back}" if back else "")
    )


@skills.command(short_help="Say how the work with a skill went")
@name_argument
@click.argument("outcome", type=click.Choice(("success", "failure", "unknown")))
@with_skills
def record(desk: Desk, name: str, outcome: str) -> None:
    """Count a use of a skill outside a session, and how it went. Inside sessions that is counted by itself.

    \b
    Examples:
      herma skills record release success
      herma skills record release failure --json
    """
    success = {"success": True, "failure": False}.get(outcome)
    usage = desk.library.record(name, success)
    counts = f"{usage.uses} uses, {usage.successes} successes, {usage.failures} failures"
    _say(desk, usage, f"{usage.name}: {counts}.")


def _say(desk: Desk, usage: SkillUsage, sentence: str) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(sentence)


@skills.command(short_help="See how skills are used and how they did")
@click.argument("name", required=False)
@with_skills
def usage(desk: Desk, name: str | None) -> None:
    """See how skills are used and how they did: of all that were, or of one.

    \b
    Examples:
      herma skills usage
      herma skills usage release --json
    """
    known = sorted(desk.library.usage(name).values(), key=lambda each: (-each.uses, each.name))
    if desk.context.json:
        desk.context.print_json({"ok": True, "usage": [usage_json(each) for each in known]})
        return
    if not known:
        desk.context.line("No skill was used yet.")
        return
    columns = ["skill", "state", "uses", "views", "successes", "failures", "patches", "last used", "made by"]
    rows = [
        (
            each.name,
            each.state + (", pinned" if each.pinned else ""),
            each.uses,
            each.views,
            each.successes,
            each.failures,
            each.patches,
            when(each.last_used),
            each.origin,
        )
        for each in known
    ]
    desk.context.table(columns, rows)


def usage_json(usage: SkillUsage) -> dict[str, object]:
    times = ("created", "last_used", "last_viewed", "last_patched", "archived_at")
    value = asdict(usage) | {name: iso(getattr(usage, name)) for name in times}
    return value | {"success_rate": round(usage.success_rate, 4)}
