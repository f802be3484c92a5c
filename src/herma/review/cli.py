"""Herma review, herma cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from herma.cli.frame import HermaCommand, HermaGroup
from herma.cli.output import Json, count, iso, one_line, short_when, when
from herma.errors import UsageError
from herma.prompt.ledger import Call, CostReport, SessionCost, Tally, where, why
from herma.review.review import ReviewStatus
from herma.review.rows import Review, ReviewAction
from herma.transcript.cli import Desk, dry_run_option, read_moment, with_sessions, write_fields, write_lines

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.cli.frame import Context
    from herma.review.spending import Pause, SpendHistory, SpendReport, Spent, SpentCall


# ---------- cli.review
#
# `herma review`: what was learnt from conversations by looking back at them.


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


# ---------- cli.cost_background
#
# The part of `herma cost` about work that nobody asked for: what it took, by purpose, and what it may take.

_STOPPED = 5
"""Notices of what the cap stopped that are shown at most."""


def write_background(context: Context, background: Background) -> None:
    """Say it for people; nothing at all where there is no model and never was one."""
    found, has_model = background.spent, background.has_model
    if not has_model and not found.total_since.calls:
        return
    today, cap = found.total_today, found.caps.all
    context.line()
    if not has_model:
        context.line("Background work: no model is set, so it may spend nothing.")
    elif found.caps.off:
        context.line("Background work is switched off: its daily cap is 0.")
    else:
        tokens = f"{today.tokens:,} of {cap.tokens or 0:,} tokens"
        money = f"{today.usd:.4f} of {cap.usd or 0:.2f} USD"
        context.line(f"Background work today: {count(today.calls, 'call')}, {tokens}, {money}.")
    if found.total_since.calls:
        rows = [
            [purpose, *_numbers(found.spent_today.get(purpose)), *_numbers(spent)]
            for purpose, spent in found.spent_since.items()
        ]
        since = f"since {found.since}"
        context.table(["for", "calls today", "tokens", "USD", f"calls {since}", "tokens", "USD"], rows)
    if found.total_since.open:
        many = count(found.total_since.open, "call")
        context.line(f"{many} not ended, or cut off by a crash: counted with the most that they may have taken.")
    if found.total_since.unpriced:
        many = count(found.total_since.unpriced, "call")
        context.line(f"The price of {many} is not known: for such, the limit in tokens alone holds.")
    for rests in background.resting:
        context.line(f"{rests.notice} {rests.hint}")
    for one in background.history.stopped[:_STOPPED]:
        context.line(f"{when(one.at)} {one.notice}")


def _numbers(spent: Spent | None) -> list[str]:
    if spent is None:
        return ["-", "-", "-"]
    known = spent.calls > spent.unpriced
    return [f"{spent.calls:,}", f"{spent.tokens:,}", f"{spent.usd:.4f}" if known else "-"]


# ---------- wording.cost
#
# What calls to models took, as JSON: `herma cost --json` and the dashboard.


def cost_json(found: CostReport) -> Json:
    return {
        "total": tally_json(found.total),
        "sessions": [
            {
                "session": one.session,
                "about": one.name or None,
                "first": iso(one.first),
                "last": iso(one.last),
                **tally_json(one.tally),
            }
            for one in found.sessions
        ],
        "breaks": [call_json(found, call) for call in found.breaks],
        "prices": found.prices if found.total.saved is not None else None,
        "cache_seconds": found.lifetime,
    }


def tally_json(tally: Tally) -> Json:
    return {
        "calls": tally.calls,
        "reusable": tally.reusable,
        "new": tally.fresh,
        "output": tally.output,
        "share_reusable": round(tally.share, 6),
        "breaks": tally.breaks,
        "reasons": tally.reasons,
        "measured": tally.measured,
        "exact": tally.exact,
        "usd": tally.cost,
        "afresh_every_turn": {
            "reusable": tally.naive_reusable,
            "new": tally.naive_fresh,
            "share_reusable": round(tally.naive_share, 6),
            "usd": tally.naive_cost,
        },
        "saved": {"tokens": tally.saved_tokens, "usd": tally.saved},
    }


def call_json(found: CostReport, call: Call) -> Json:
    return {
        "at": iso(call.at),
        "session": call.session,
        "model": call.model or None,
        "messages": call.messages,
        "reusable": call.reusable,
        "new": call.fresh,
        "output": call.output,
        "reason": call.reason,
        "why": why(call, found.lifetime),
        "at_message": call.at_message,
        "idle": None if call.idle is None else round(call.idle, 3),
        "counts": call.counts,
        "usd": found.price(call),
        "afresh_every_turn": {"reusable": call.naive_reusable, "new": call.naive_fresh},
    }


# ── work that nobody asked for ──


@dataclass(frozen=True, slots=True)
class Background:
    """What background work took and may take, day by day and call by call, and what its cap stopped."""

    spent: SpendReport
    history: SpendHistory
    has_model: bool
    resting: tuple[Pause, ...] = ()
    """What is not asked for now, because a model's answers could not be used."""


def background_of(h: Herma, since: float | None = None) -> Background:
    models = h.models
    has_model = models.endpoint("auxiliary") is not None
    return Background(models.spending(since), models.spending_history(), has_model, models.pauses.list())


def background_json(background: Background) -> Json:
    """Without a model the caps are 0: nothing may be spent."""
    found, history, has_model = background.spent, background.history, background.has_model
    cap = found.caps.all
    return {
        "model_set": has_model,
        "today": found.today,
        "since": found.since,
        "daily_usd": cap.usd if has_model else 0.0,
        "daily_tokens": cap.tokens if has_model else 0,
        "spent_today": spent_json(found.total_today),
        "spent_since": spent_json(found.total_since),
        "by_purpose_today": _by_purpose(found.spent_today),
        "by_purpose_since": _by_purpose(found.spent_since),
        "days": [{"day": day, **spent_json(spent)} for day, spent in history.days],
        "resting": [
            {"purpose": one.purpose, "model": one.model, "until": iso(one.missed.until), "notice": one.notice}
            for one in background.resting
        ],
        "newest_calls": [spent_call_json(call) for call in history.calls],
        "stopped": [
            {"at": iso(one.at), "purpose": one.purpose, "notice": one.notice, "times": one.times}
            for one in history.stopped
        ],
    }


def _by_purpose(spent: Mapping[str, Spent]) -> Json:
    return {purpose: spent_json(one) for purpose, one in spent.items()}


def spent_call_json(call: SpentCall) -> Json:
    return {
        "at": iso(call.at),
        "purpose": call.purpose,
        "why": purpose_words(call.purpose),
        "model": call.model,
        "ended": call.settled,
        "tokens": call.tokens,
        "usd": call.usd,
        "input": call.usage.input,
        "output": call.usage.output,
        "cache_read": call.usage.cache_read,
        "cache_write": call.usage.cache_write,
    }


PURPOSES: Mapping[str, str] = {
    "review": "looking back at a conversation for what is worth remembering",
    "memory_update": "proposing changes of memory at a session's end",
    "compress": "summing up a conversation that fills the window",
    "episodes": "putting into words what a session was about",
    "skills": "writing down how something was done",
    "tidy": "keeping curated memory in order",
    "boundary": "seeing whether the topic changed",
    "title": "naming a conversation",
    "curate": "keeping skills in shape",
    "search_summary": "summing up what a search found",
    "query_expansion": "finding other words to search for",
    "eval": "a measurement",
    "embedding": "embedding texts, to find them by meaning",
}
"""What each purpose of background work is, in words."""


def purpose_words(purpose: str) -> str:
    return PURPOSES.get(purpose, purpose)


def spent_json(spent: Spent) -> Json:
    return {
        "calls": spent.calls,
        "tokens": spent.tokens,
        "usd": spent.usd,
        "unpriced_calls": spent.unpriced,
        "open_calls": spent.open,
    }


def money(amount: float | None) -> str:
    """US dollars, as exact as they are small; `-` where nobody knows."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def share(part: float) -> str:
    return f"{100 * part:.1f} %"


# ---------- cli.cost
#
# `herma cost`: what calls to models took, what a cache could reuse of them, and why not more.

_SESSIONS = 20
"""Sessions that are listed at most."""


@click.command(cls=HermaCommand)
@click.option("--session", metavar="ID", help="Only this conversation: an id, the beginning of one, or a title.")
@click.option("--since", metavar="DATE", callback=read_moment, help="Only calls since then: 2026-03-05, 7d, yesterday.")
@click.option("--calls", is_flag=True, help="List each call.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="With --calls: how many at most."
)
@with_sessions
def cost(desk: Desk, session: str | None, since: float | None, calls: bool, limit: int) -> None:
    """See what calls to models took, and what a cache could reuse of them.

    A provider charges about a tenth for the beginning of a request that it has just seen. Here is how much of each
    request that was, where and why the beginning changed, and what it had been if memory was written into the system
    prompt afresh every turn, as is often done. Below it: what work took that nobody asked for, by purpose, today and
    since then, and what it may take (spend.daily_usd, spend.daily_tokens).

    \b
    Money needs the prices of your model, in US dollars per million tokens:
      herma config set prices.input 3
      herma config set prices.output 15

    \b
    Examples:
      herma cost
      herma cost --since 7d
      herma cost --session 20261231_2359 --calls
      herma cost --json
    """
    found = desk.h.cost(_meant(desk, session), since)
    listed = found.calls(limit) if calls else []
    background = background_of(desk.h, since) if session is None else None
    if desk.context.json:
        value = {"ok": True, **cost_json(found)}
        if background is not None:
            value["background"] = background_json(background)
        desk.context.print_json({**value, "calls": [call_json(found, call) for call in listed]} if calls else value)
        return
    if not found.total.calls:
        desk.context.line("No calls yet. They appear here when an agent asks a model with a session of this home.")
    elif calls:
        _write_calls(desk, found, listed)
        _write_total(desk, found)
    else:
        _write_sessions(desk, found)
        _write_breaks(desk, found)
        _write_total(desk, found)
    if background is not None:
        write_background(desk.context, background)


def _meant(desk: Desk, session: str | None) -> str | None:
    """The session that is meant; one that was purged has its calls left, under its id."""
    if session is None or any(one.session == session for one in desk.h.cost().sessions):
        return session
    return desk.find(session).id


# ── for people ──


def _write_sessions(desk: Desk, found: CostReport) -> None:
    priced = any(one.tally.cost is not None for one in found.sessions)
    columns = ["session", "last call", "calls", "sent", "reusable", "breaks", *(["USD"] if priced else []), "about"]
    rows = [_session_row(one, priced=priced) for one in found.sessions[:_SESSIONS]]
    desk.context.table(columns, rows)
    if len(found.sessions) > _SESSIONS:
        left = len(found.sessions) - _SESSIONS
        desk.context.line(f"and {count(left, 'more session', 'more sessions')}; --since or --json shows them.")
    desk.context.line()


def _session_row(one: SessionCost, *, priced: bool) -> list[str]:
    tally = one.tally
    paid = [money(tally.cost)] if priced else []
    about = one_line(one.name, 40) or "(gone)"
    numbers = [f"{tally.calls:,}", f"{tally.input:,}", share(tally.share), f"{tally.breaks:,}"]
    return [one.session, when(one.last), *numbers, *paid, about]


def _write_breaks(desk: Desk, found: CostReport) -> None:
    if not found.breaks:
        desk.context.line("The beginning never changed: every request began with the whole of the one before.")
        return
    desk.context.line(f"Where the beginning changed ({count(found.total.breaks, 'time')}), the newest last:")
    rows = [
        [call.session, when(call.at), where(call), f"{call.fresh:,}", why(call, found.lifetime)]
        for call in found.breaks
    ]
    desk.context.table(["session", "when", "from where on", "new", "why"], rows)


def _write_calls(desk: Desk, found: CostReport, listed: list[Call]) -> None:
    priced = any(found.price(call) is not None for call in listed)
    columns = ["when", "session", "reusable", "new", "reply", *(["USD"] if priced else []), "why"]
    rows = []
    for call in listed:
        reason = why(call, found.lifetime)
        if call.at_message is not None:
            reason += f", from {where(call)} on"
        paid = [money(found.price(call))] if priced else []
        numbers = [f"{call.reusable:,}", f"{call.fresh:,}", f"{call.output:,}"]
        rows.append([when(call.at), call.session, *numbers, *paid, reason])
    desk.context.table(columns, rows)
    if len(listed) < found.total.calls:
        desk.context.line(f"The newest {len(listed):,} of {found.total.calls:,}; --limit shows more.")


def _write_total(desk: Desk, found: CostReport) -> None:
    total = found.total
    desk.context.line()
    desk.context.line(
        f"In sum: {count(total.calls, 'call')}, {total.input:,} tokens sent, {total.reusable:,} of them reusable "
        f"({share(total.share)}), {total.output:,} received.{_sources(total)}"
    )
    if total.naive_fresh > total.fresh:
        desk.context.line(
            f"With memory written into the system prompt every turn: {share(total.naive_share)} reusable, "
            f"{total.saved_tokens:,} more tokens sent anew."
        )
    else:
        desk.context.line(
            "With memory written into the system prompt every turn it had been the same: nothing changed."
        )
    if total.cost is not None:
        saved = f"; the other way {money(total.naive_cost)}" if total.naive_cost is not None else ""
        desk.context.line(f"Money: {money(total.cost)} USD{saved}.")
    if total.saved is None:
        desk.context.line("The prices of your model are not known. To set them, per million tokens:")
        for key in ("prices.input", "prices.output"):
            desk.context.line(f"  {desk.command('config', 'set', key, 'USD')}")


def _sources(total: Tally) -> str:
    """Where the numbers come from, if not all of them from the provider."""
    if total.measured == total.calls:
        return " Measured by the provider."
    if total.measured + total.exact == total.calls:
        return " Counted exactly."
    estimated = total.calls - total.measured - total.exact
    return f" {'All' if estimated == total.calls else f'{estimated:,}'} estimated, rather too high than too low."
