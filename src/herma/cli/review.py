"""`herma review`: what was learnt from conversations by looking back at them."""

from __future__ import annotations

from collections.abc import Sequence

import click

from herma.cli.frame import HermaGroup
from herma.cli.sessions.desk import Desk, dry_run_option, with_sessions
from herma.cli.sessions.lines import write_fields, write_lines
from herma.cli.sessions.wording import Json, count, iso, short_when, when
from herma.errors import UsageError
from herma.reflect.reviews import ReviewStatus
from herma.types import Review, ReviewAction


class ReviewGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "status log show undo run"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=ReviewGroup)
def review() -> None:
    """See what was learnt from conversations by looking back at them, and take it back.

    With a model, Herma looks back at conversations in the background: after some turns, at the end of a session, and
    where a long chat takes a turn. What it keeps is marked, and can be undone. What you ask to be remembered is kept
    without a model too.

    \b
    Examples:
      herma review status
      herma review log
      herma review show 3
      herma review undo 3 --dry-run
    """


@review.command(short_help="How learning stands")
@with_sessions
def status(desk: Desk) -> None:
    """Show whether conversations are looked back at, with which model, and what waits.

    \b
    Examples:
      herma review status
      herma review status --json
    """
    found = desk.h.reviews.status()
    memory, skills = _waiting(desk)
    if desk.context.json:
        desk.context.print_json({"ok": True, **_status_json(found), "pending_memory": memory, "pending_skills": skills})
        return
    policy = found.policy
    spent = desk.h.models.spending().spent_today
    today = sum(spent[name].tokens for name in ("review", "memory_update") if name in spent)
    lines = [
        ("looking back", "on" if found.enabled else "off (review.enabled)"),
        ("model", found.model or "none"),
        ("memory", _policy(policy.writes, policy.memory_every, "turns of the user")),
        ("skills", _policy(policy.skill_writes, policy.skills_every, "steps with tools")),
        ("at the end", f"of sessions with {policy.min_turns} turns or more" if policy.at_end else "no"),
        ("long chats", f"divided by {', '.join(policy.boundaries)}" if policy.boundaries else "not divided"),
        ("not done yet", count(found.owed, "look back", "looks back") if found.owed else ""),
        ("today", f"{today:,} tokens" if today else ""),
        ("last", f"{_line(found.last)}" if found.last else "never"),
    ]
    write_fields(desk.context, lines, 14)
    if found.without:
        desk.context.line(f"\n{found.without}")
        desk.context.line("What you ask to be remembered is kept all the same, in your own words.")
    for what, number in (("memory", memory), ("skills", skills)):
        if number:
            desk.context.line(f"{count(number, 'proposal')} for you: {desk.command(what, 'pending')}")


@review.command(short_help="What was looked back at")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
@click.option("--session", metavar="ID", help="Only of this conversation.")
@with_sessions
def log(desk: Desk, limit: int, session: str | None) -> None:
    """List what was looked back at, the newest first: when, why, and what came of it.

    \b
    Examples:
      herma review log
      herma review log --session 20261231_2359
      herma review log --json
    """
    conversation = desk.find(session).conversation if session else None
    found = desk.h.reviews.log(limit, conversation=conversation)
    if desk.context.json:
        desk.context.print_json({"ok": True, "reviews": [_as_json(one) for one in found]})
        return
    if not found:
        desk.context.line(f"Nothing was looked back at yet. {desk.command('review', 'status')} says how that stands.")
        return
    rows = [(one.id, short_when(one.at), _KINDS[one.kind], one.why, one.state, _came_of(one)) for one in found]
    write_lines(desk.context, ["id", "when", "what", "why", "state", "came of it"], rows)


@review.command(short_help="One look back in full")
@click.argument("number", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@with_sessions
def show(desk: Desk, number: int) -> None:
    """Show one look back: what it kept, what it did not keep and why, and what it took.

    \b
    Examples:
      herma review show 3
    """
    one = _find(desk, number)
    if desk.context.json:
        desk.context.print_json({"ok": True, "review": _as_json(one)})
        return
    taken = one.usage.input + one.usage.output + one.usage.cache_read + one.usage.cache_write
    cost = f", {one.usd:.4f} USD" if one.usd is not None else ""
    lines = [
        ("what", f"{_KINDS[one.kind]} ({one.why})"),
        ("state", one.state + (f", tried {one.tries} times" if one.tries > 1 else "")),
        ("when", when(one.begun or one.at)),
        ("session", f"{one.session_id}, messages {one.first_message} to {one.last_message}"),
        ("model", one.model),
        (
            "took",
            f"{count(one.steps, 'step')}, {taken:,} tokens ({one.usage.cache_read:,} from the cache){cost}"
            if one.steps
            else "",
        ),
        ("notice", one.notice),
    ]
    write_fields(desk.context, lines, 10)
    for action in one.actions:
        desk.context.line()
        desk.context.line(f"{action.result}: {action.what}" + (f" ({action.target})" if action.target else ""))
        for text in (action.text, action.said):
            if text:
                desk.context.line(f"  {text}")
        if action.pending is not None:
            group = "skills" if action.target == "skill" else "memory"
            desk.context.line(f"  → {desk.command(group, 'approve', str(action.pending))}")
    if any(action.change is not None for action in one.actions):
        desk.context.line()
        desk.context.line(f"To take all of it back: {desk.command('review', 'undo', str(one.id))}")


@review.command(short_help="Take back what one look back wrote")
@click.argument("number", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@dry_run_option
@with_sessions
def undo(desk: Desk, number: int, dry_run: bool) -> None:
    """Take back everything that one look back wrote to memory and skills. Proposals are left to you.

    \b
    Examples:
      herma review undo 3 --dry-run
      herma review undo 3
    """
    one = _find(desk, number)
    changes = list(dict.fromkeys(_change_of(action) for action in one.actions if action.change is not None))
    done: list[Json] = []
    for skill, change in reversed(changes):
        known = desk.h.skills.change(change) if skill else desk.h.memory.change(change)
        standing = known is not None and known.undone_by is None
        message = "would be taken back" if standing else "is undone already"
        ok = standing
        if standing and not dry_run:
            outcome = desk.h.skills.undo(change) if skill else desk.h.memory.undo(change)
            message, ok = outcome.message, outcome.ok
        done.append({"kind": "skill" if skill else "memory", "change": change, "ok": ok, "message": message})
    if desk.context.json:
        desk.context.print_json({"ok": True, "dry_run": dry_run, "changes": done})
        return
    if not done:
        desk.context.line(f"Look back {number} wrote nothing.")
    for each in done:
        desk.context.line(f"{each['kind']} change {each['change']}: {each['message']}")
    if done and not dry_run:
        desk.context.line(f"To take that back in turn: {desk.command('memory', 'log')}")


@review.command(short_help="Look back at a session now")
@click.argument("session", metavar="SESSION")
@with_sessions
def run(desk: Desk, session: str) -> None:
    """Look back at a session now, as at its end, and wait for it. It counts against the daily limit of spending.

    \b
    Examples:
      herma review run 20261231_2359
    """
    found = desk.find(session)
    with desk.context.progress("Looking back"):
        one = desk.h.reviews.run(found.id)
    if desk.context.json:
        desk.context.print_json({"ok": one.state == "done", "review": _as_json(one)})
    else:
        desk.context.line(_line(one))
        desk.context.line(f"More: {desk.command('review', 'show', str(one.id))}")
    if one.state != "done":
        desk.context.exit(1)


# ── words ──

_KINDS = {
    "turn": "after a reply",
    "remember": "asked to remember",
    "boundary": "part of a chat",
    "end": "whole session",
}


def _find(desk: Desk, number: int) -> Review:
    one = desk.h.reviews.get(number)
    if one is None:
        raise UsageError(f"There is no look back {number}.", hint=f"`{desk.command('review', 'log')}` has the ids.")
    return one


def _change_of(action: ReviewAction) -> tuple[bool, int]:
    return action.target == "skill", action.change or 0


def _waiting(desk: Desk) -> tuple[int, int]:
    return len(desk.h.memory.pending()), len(desk.h.skills.pending())


def _policy(writes: str, every: int, of: str) -> str:
    what = "kept at once" if writes == "apply" else "proposed, and wait for you"
    return f"{what}; looked for every {every} {of}" if every else f"{what}; not looked for between"


def _came_of(one: Review) -> str:
    kept = sum(action.result == "applied" for action in one.actions)
    staged = sum(action.result == "staged" for action in one.actions)
    refused = sum(one.refusals.values())
    said = [
        f"{number} {word}"
        for number, word in ((kept, "written"), (staged, "proposed"), (refused, "not kept"))
        if number
    ]
    return ", ".join(said) or ("nothing" if one.state == "done" else one.notice[:60] or "-")


def _line(one: Review) -> str:
    return f"{_KINDS[one.kind]}, {when(one.at)}: {one.state}, {_came_of(one)}"


def _status_json(found: ReviewStatus) -> Json:
    policy = found.policy
    return {
        "enabled": found.enabled,
        "model": found.model or None,
        "without": found.without or None,
        "writes": policy.writes,
        "skill_writes": policy.skill_writes,
        "memory_every": policy.memory_every,
        "skills_every": policy.skills_every,
        "at_end": policy.at_end,
        "boundaries": list(policy.boundaries),
        "owed": found.owed,
        "last": _as_json(found.last) if found.last else None,
    }


def _as_json(one: Review) -> Json:
    return {
        "id": one.id,
        "conversation": one.conversation,
        "session": one.session_id,
        "kind": one.kind,
        "why": one.why,
        "state": one.state,
        "tries": one.tries,
        "at": iso(one.at),
        "begun": iso(one.begun),
        "ended": iso(one.ended),
        "first_message": one.first_message,
        "last_message": one.last_message,
        "model": one.model or None,
        "steps": one.steps,
        "tokens": {name: getattr(one.usage, name) for name in ("input", "output", "cache_read", "cache_write")},
        "usd": one.usd,
        "refusals": one.refusals,
        "actions": _actions_json(one.actions),
        "notice": one.notice or None,
    }


def _actions_json(actions: Sequence[ReviewAction]) -> list[Json]:
    names = ("what", "result", "text", "target", "why", "said", "change", "pending")
    return [{name: getattr(action, name) for name in names} for action in actions]
