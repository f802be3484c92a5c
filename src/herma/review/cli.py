"""The commands `herma learned` and `herma cost`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from herma.cli.context import CommandContext, HermaCommand, HermaGroup, dry_run_option, limit_option, with_home
from herma.cli.encode import Json, encode
from herma.cli.output import count, one_line, short_when, when
from herma.errors import UsageError
from herma.prompt.ledger import Call, CostReport, Tally, where, why
from herma.transcript.cli import complete_session, find_session, read_moment, session_argument

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.models.models import Pause, SpendHistory, SpendReport, Spent, SpentCall
    from herma.review.review import ReviewStatus
    from herma.review.rows import Review

_session_option = click.option(
    "--session", metavar="ID", shell_complete=complete_session, help="Only this conversation: an id or a title."
)


@click.group(cls=HermaGroup, order="list show run")
def learned() -> None:
    """See what reviews of finished conversations learned, and undo it.

    With a model, Herma reviews conversations in the background: after some turns, at the end of a session, and where a
    long chat pauses or changes its topic. The writes of a review are marked and can be undone. Text that you ask to be
    remembered is stored without a model, too.

    \b
    Examples:
      herma learned list
      herma learned show 3
      herma learned show 3 --undo --dry-run
    """


@learned.command("list", short_help="Show the status of learning, and the latest reviews")
@limit_option
@_session_option
@with_home
def list_(context: CommandContext, limit: int, session: str | None) -> None:
    """Show whether reviews run, with which model, what waits for you, and the latest reviews.

    \b
    Examples:
      herma learned list
      herma learned list --session 20261231_2359
    """
    reviews = context.h.reviews
    conversation = find_session(context, session).conversation if session else None
    found, status = reviews.log(limit, conversation=conversation), reviews.status()
    memory, skills = len(context.h.memory.pending()), len(context.h.skills.pending())
    if context.json:
        about = {**_status_json(status), "pending_memory": memory, "pending_skills": skills}
        context.print_json({"ok": True, **about, "reviews": [review_json(one) for one in found]})
        return
    if session is None:
        _write_status(context, status)
        if memory + skills:
            context.line(f"{count(memory + skills, 'proposal')} waiting for you: {context.command('inbox', 'list')}")
        context.line()
    if not found:
        context.line("No reviews yet.")
        return
    rows = [(one.id, short_when(one.at), _KINDS[one.kind], one.why, one.state, _result_of(one)) for one in found]
    context.table(["id", "when", "what", "why", "state", "result"], rows, drop=("why", "what", "when"), cut=True)


def _write_status(context: CommandContext, found: ReviewStatus) -> None:
    settings = found.settings
    spent = context.h.models.spending().spent_today
    today = sum(spent[name].tokens for name in ("review", "memory_update") if name in spent)
    runs = f"after sessions of {count(settings.min_turns, 'turn')} or more" if settings.at_end else "off"
    lines = [
        ("learning", "on" if found.enabled else "off (review.enabled)"),
        ("model", found.model or "none"),
        ("memory", _policy(settings.writes, found.memory_every, "messages of the user")),
        ("skills", _policy(settings.skill_writes, settings.skill_interval, "steps with tools")),
        ("at the end", runs),
        ("long chats", f"split by {', '.join(found.boundaries)}" if found.boundaries else "not split"),
        ("waiting", count(found.owed, "review") if found.owed else ""),
        ("today", f"{today:,} tokens" if today else ""),
    ]
    context.fields(lines)
    if found.without:
        context.line(f"\n{found.without}")
        context.line("Text that you ask to be remembered is still stored, in your own words.")


@learned.command(short_help="Show one review in full")
@click.argument("number", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@click.option("--undo", is_flag=True, help="Undo what it wrote to memory and skills; its proposals stay in the inbox.")
@dry_run_option
@with_home
def show(context: CommandContext, number: int, undo: bool, dry_run: bool) -> None:
    """Show one review: what it kept, what it refused and why, and what it cost.

    \b
    Examples:
      herma learned show 3
      herma learned show 3 --undo --dry-run
    """
    one = _find(context, number)
    if undo:
        _undo(context, one, dry_run=dry_run)
        return
    if context.json:
        context.print_json({"ok": True, "review": review_json(one)})
        return
    tokens = one.usage.input + one.usage.output + one.usage.cache_read + one.usage.cache_write
    usd = f", {one.usd:.4f} USD" if one.usd is not None else ""
    cost = f"{count(one.steps, 'step')}, {tokens:,} tokens ({one.usage.cache_read:,} from the cache){usd}"
    lines = [
        ("what", f"{_KINDS[one.kind]} ({one.why})"),
        ("state", one.state + (f", tried {one.tries} times" if one.tries > 1 else "")),
        ("when", when(one.begun or one.at)),
        ("session", f"{one.session_id}, messages {one.first_message} to {one.last_message}"),
        ("model", one.model),
        ("cost", cost if one.steps else ""),
        ("notice", one.notice),
    ]
    context.fields(lines)
    for action in one.actions:
        context.line()
        context.line(f"{action.result}: {action.what}" + (f" ({action.target})" if action.target else ""))
        for text in (action.text, action.said):
            if text:
                context.line(f"  {text}")
        if action.pending is not None:
            number_ = f"{'s' if action.target == 'skill' else 'm'}{action.pending}"
            context.line(f"  → {context.command('inbox', 'approve', number_)}")
    if any(action.change is not None for action in one.actions):
        context.line()
        context.line(f"To undo all of it: {context.command('learned', 'undo', str(one.id))}")


def _undo(context: CommandContext, one: Review, *, dry_run: bool) -> None:
    """Undo everything that one review wrote to memory and skills. Its proposals stay in the inbox."""
    changes = dict.fromkeys((action.target == "skill", action.change) for action in one.actions if action.change)
    done: list[Json] = []
    for skill, change in reversed(changes):
        known = context.h.skills.change(change) if skill else context.h.memory.change(change)
        ok = known is not None and known.undone_by is None
        message = "would be undone" if ok else "is undone already"
        if ok and not dry_run:
            outcome = context.h.skills.undo(change) if skill else context.h.memory.undo(change)
            message, ok = outcome.message, outcome.ok
        done.append({"kind": "skill" if skill else "memory", "change": change, "ok": ok, "message": message})
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "changes": done})
        return
    if not done:
        context.line(f"Review {one.id} wrote nothing.")
    for each in done:
        context.line(f"{each['kind']} change {each['change']}: {each['message']}")


@learned.command(short_help="Review a session now")
@session_argument("SESSION")
@with_home
def run(context: CommandContext, session: str) -> None:
    """Review a session now, as at its end, and wait for the result. It counts against the daily spending cap.

    \b
    Examples:
      herma learned run 20261231_2359
    """
    found = find_session(context, session)
    with context.progress("Reviewing"):
        one = context.h.reviews.run(found.id)
    if context.json:
        context.print_json({"ok": one.state == "done", "review": review_json(one)})
    else:
        context.line(f"{_KINDS[one.kind]}, {when(one.at)}: {one.state}, {_result_of(one)}")
        context.line(f"More: {context.command('learned', 'show', str(one.id))}")
    if one.state != "done":
        context.exit(1)


_KINDS = {
    "turn": "after a reply",
    "remember": "asked to remember",
    "boundary": "part of a chat",
    "end": "whole session",
}


def _find(context: CommandContext, number: int) -> Review:
    one = context.h.reviews.get(number)
    if one is None:
        hint = f"`{context.command('learned', 'list')}` lists the ids."
        raise UsageError(f"There is no review {number}.", hint=hint, code="not_found")
    return one


def _policy(writes: str, every: int, of: str) -> str:
    what = "written at once" if writes == "apply" else "proposed in the inbox"
    return f"{what}; reviewed every {every} {of}" if every else f"{what}; reviewed at the end only"


def _result_of(one: Review) -> str:
    results = [action.result for action in one.actions]
    words = {"applied": "written", "staged": "proposed", "refused": "refused"}
    said = [f"{results.count(name)} {word}" for name, word in words.items() if name in results]
    return ", ".join(said) or ("nothing" if one.state == "done" else one.notice[:60] or "-")


def _status_json(found: ReviewStatus) -> Json:
    settings = found.settings
    return {
        "enabled": found.enabled,
        "model": found.model or None,
        "without": found.without or None,
        "writes": settings.writes,
        "skill_writes": settings.skill_writes,
        "memory_every": found.memory_every,
        "skills_every": settings.skill_interval,
        "at_end": settings.at_end,
        "boundaries": list(found.boundaries),
        "owed": found.owed,
        "last": review_json(found.last) if found.last else None,
    }


def review_json(one: Review) -> Json:
    tokens = {name: getattr(one.usage, name) for name in ("input", "output", "cache_read", "cache_write")}
    more = {"model": one.model or None, "notice": one.notice or None, "refusals": one.refusals, "tokens": tokens}
    return encode(one, rename={"session_id": "session"}, omit=["usage"], **more)


# ── herma cost ───────────────────────────────────────────────────────────────────────────────────────────────────────

_SESSIONS, _STOPPED = 20, 5
"""Sessions, and notices of the cap, that are listed at most."""


@click.command(cls=HermaCommand)
@_session_option
@click.option("--since", metavar="DATE", callback=read_moment, help="Only calls since then: 2026-03-05, 7d, yesterday.")
@click.option("--calls", is_flag=True, help="List each call.")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="With --calls: how many at most."
)
@with_home
def cost(context: CommandContext, session: str | None, since: float | None, calls: bool, limit: int) -> None:
    """See the tokens and money that model calls used, and how much a prompt cache could reuse.

    A provider charges about a tenth for the beginning of a request that it has just received. This lists how much of
    each request that was, where and why the beginning changed, and what it would have cost if memory were rewritten
    into the system prompt every turn, as many agents do. Below that: background work by purpose, and its daily cap
    (spend.daily_usd, spend.daily_tokens).

    \b
    Money needs the prices of your model, in US dollars per million tokens:
      herma config set prices.input 3
      herma config set prices.output 15

    \b
    Examples:
      herma cost
      herma cost --since 7d
      herma cost --session 20261231_2359 --calls
    """
    found = context.h.cost(_meant(context, session), since)
    listed = found.calls(limit) if calls else []
    background = background_of(context.h, since) if session is None else None
    if context.json:
        value = {"ok": True, **cost_json(found)}
        if background is not None:
            value["background"] = background_json(background)
        context.print_json({**value, "calls": [call_json(found, call) for call in listed]} if calls else value)
        return
    if not found.total.calls:
        context.line("No calls yet. They appear here when an agent calls a model in a session of this home.")
    elif calls:
        _write_calls(context, found, listed)
        _write_total(context, found)
    else:
        _write_sessions(context, found)
        _write_breaks(context, found)
        _write_total(context, found)
    if background is not None:
        _write_background(context, background)


def _meant(context: CommandContext, session: str | None) -> str | None:
    """Return the id of a session; the calls of a purged one are kept under its id."""
    if session is None or any(one.session == session for one in context.h.cost().sessions):
        return session
    return find_session(context, session).id


def _write_sessions(context: CommandContext, found: CostReport) -> None:
    priced = any(one.tally.cost is not None for one in found.sessions)
    columns = ["session", "last call", "calls", "sent", "reusable", "breaks", *(["USD"] if priced else []), "about"]
    rows = []
    for one in found.sessions[:_SESSIONS]:
        tally = one.tally
        numbers = [f"{tally.calls:,}", f"{tally.input:,}", share(tally.share), f"{tally.breaks:,}"]
        paid = [money(tally.cost)] if priced else []
        rows.append([one.session, when(one.last), *numbers, *paid, one_line(one.name, 40) or "(gone)"])
    context.table(columns, rows)
    if len(found.sessions) > _SESSIONS:
        left = len(found.sessions) - _SESSIONS
        context.line(f"and {count(left, 'more session', 'more sessions')}; --since or --json shows them.")
    context.line()


def _write_breaks(context: CommandContext, found: CostReport) -> None:
    if not found.breaks:
        context.line("The beginning never changed: every request began with the whole previous one.")
        return
    context.line(f"Changes of the beginning ({count(found.total.breaks, 'time')}), the newest last:")
    rows = [
        [call.session, when(call.at), where(call), f"{call.fresh:,}", why(call, found.lifetime)]
        for call in found.breaks
    ]
    context.table(["session", "when", "from", "new", "why"], rows)


def _write_calls(context: CommandContext, found: CostReport, listed: list[Call]) -> None:
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
    context.table(columns, rows)
    if len(listed) < found.total.calls:
        context.line(f"The newest {len(listed):,} of {found.total.calls:,}; --limit shows more.")


def _write_total(context: CommandContext, found: CostReport) -> None:
    total = found.total
    context.line()
    context.line(
        f"Total: {count(total.calls, 'call')}, {total.input:,} tokens sent, {total.reusable:,} of them reusable "
        f"({share(total.share)}), {total.output:,} received.{_sources(total)}"
    )
    if total.unanswered:
        tokens = "tokens and money" if total.cost is not None else "tokens"
        context.line(f"{count(total.unanswered, 'call')} without a complete reply: {tokens} are estimated.")
    if total.naive_fresh > total.fresh:
        context.line(
            f"With memory rewritten into the system prompt every turn: {share(total.naive_share)} reusable, "
            f"{total.saved_tokens:,} more new tokens sent."
        )
    else:
        context.line("Rewriting memory into the system prompt every turn would have cost the same here.")
    if total.cost is not None:
        saved = f"; with memory rewritten every turn {money(total.naive_cost)}" if total.naive_cost is not None else ""
        context.line(f"Money: {money(total.cost)} USD{saved}.")
    if total.saved is None:
        context.line("The prices of your model are not set. To set them, per million tokens:")
        for key in ("prices.input", "prices.output"):
            context.line(f"  {context.command('config', 'set', key, 'USD')}")


def _sources(total: Tally) -> str:
    """Say where the numbers come from."""
    if total.measured == total.calls:
        return " Measured by the provider."
    if total.measured + total.exact == total.calls:
        return " Counted exactly."
    estimated = total.calls - total.measured - total.exact
    return f" {'All' if estimated == total.calls else f'{estimated:,}'} estimated, erring on the high side."


def _write_background(context: CommandContext, background: SpendingSummary) -> None:
    """Write what background work spent; nothing at all if there never was a model."""
    found, has_model = background.spent, background.has_model
    since = found.total_since
    if not has_model and not since.calls:
        return
    today, cap = found.total_today, found.caps
    context.line()
    if not has_model:
        context.line("Background work: off, because no model is configured.")
    elif cap.off:
        context.line("Background work is switched off: its daily cap is 0.")
    else:
        tokens = f"{today.tokens:,} of {cap.tokens or 0:,} tokens"
        context.line(
            f"Background work today: {count(today.calls, 'call')}, {tokens}, "
            f"{today.usd:.4f} of {cap.usd or 0:.2f} USD. Your own conversations are listed above and are not capped."
        )
    if since.calls:
        rows = [
            [purpose, *_numbers(found.spent_today.get(purpose)), *_numbers(spent)]
            for purpose, spent in found.spent_since.items()
        ]
        context.table(["for", "calls today", "tokens", "USD", f"calls since {found.since}", "tokens", "USD"], rows)
    if since.open:
        context.line(f"{count(since.open, 'call')} running or cut off by a crash: counted with the largest cost.")
    if since.estimated:
        context.line(f"{count(since.estimated, 'call')} failed or reported no usage: estimated.")
    if since.unpriced:
        context.line(f"{count(since.unpriced, 'call')} without a known price: only the token limit applies.")
    for pause in background.resting:
        context.line(f"{pause.notice} {pause.hint}")
    for one in background.history.stopped[:_STOPPED]:
        context.line(f"{when(one.at)} {one.notice}")


def _numbers(spent: Spent | None) -> list[str]:
    if spent is None:
        return ["-", "-", "-"]
    return [f"{spent.calls:,}", f"{spent.tokens:,}", f"{spent.usd:.4f}" if spent.calls > spent.unpriced else "-"]


def money(amount: float | None) -> str:
    """Return US dollars, with more digits if they are few; `-` if unknown."""
    if amount is None:
        return "-"
    return f"{amount:,.2f}" if abs(amount) >= 1 else f"{amount:.4f}"


def share(part: float) -> str:
    return f"{100 * part:.1f} %"


# ── JSON of `herma cost --json` and the dashboard ────────────────────────────────────────────────────────────────────


def cost_json(found: CostReport) -> Json:
    return {
        "total": _tally_json(found.total),
        "sessions": [
            encode(one, rename={"name": "about"}, omit=["tally"], **_tally_json(one.tally)) for one in found.sessions
        ],
        "breaks": [call_json(found, call) for call in found.breaks],
        "prices": found.prices if found.total.saved is not None else None,
        "cache_seconds": found.lifetime,
    }


def _tally_json(tally: Tally) -> Json:
    naive = {
        "reusable": tally.naive_reusable,
        "new": tally.naive_fresh,
        "share_reusable": round(tally.naive_share, 6),
        "usd": tally.naive_cost,
    }
    return encode(
        tally,
        rename={"fresh": "new", "cost": "usd"},
        omit=["naive_reusable", "naive_fresh", "naive_cost"],
        share_reusable=round(tally.share, 6),
        breaks=tally.breaks,
        afresh_every_turn=naive,
        saved={"tokens": tally.saved_tokens, "usd": tally.saved},
    )


def call_json(found: CostReport, call: Call) -> Json:
    return encode(
        call,
        rename={"fresh": "new"},
        omit=["id", "tools", "prompt", "last_message", "cost_usd", "naive_reusable", "naive_fresh"],
        why=why(call, found.lifetime),
        usd=found.price(call),
        afresh_every_turn={"reusable": call.naive_reusable, "new": call.naive_fresh},
    )


class SpendingSummary(NamedTuple):
    """The spending of background work by day and by call, its cap, and the work that the cap stopped."""

    spent: SpendReport
    history: SpendHistory
    has_model: bool
    resting: tuple[Pause, ...] = ()
    """Purposes that are paused because a model's answers could not be used."""


def background_of(h: Herma, since: float | None = None) -> SpendingSummary:
    models = h.models
    has_model = models.endpoint("auxiliary") is not None
    return SpendingSummary(models.spending(since), models.spending_history(), has_model, models.pauses.list())


def background_json(background: SpendingSummary) -> Json:
    """Without a model the caps are 0: nothing may be spent."""
    found, history, has_model = background.spent, background.history, background.has_model
    return {
        "model_set": has_model,
        "today": found.today,
        "since": found.since,
        "daily_usd": found.caps.usd if has_model else 0.0,
        "daily_tokens": found.caps.tokens if has_model else 0,
        "spent_today": spent_json(found.total_today),
        "spent_since": spent_json(found.total_since),
        "by_purpose_today": {name: spent_json(one) for name, one in found.spent_today.items()},
        "by_purpose_since": {name: spent_json(one) for name, one in found.spent_since.items()},
        "days": [{"day": day, **spent_json(spent)} for day, spent in history.days],
        "resting": [encode(one, omit=["passes", "at", "why"], notice=one.notice) for one in background.resting],
        "newest_calls": [_spent_call_json(call) for call in history.calls],
        "stopped": [encode(one) for one in history.stopped],
    }


def _spent_call_json(call: SpentCall) -> Json:
    usage = {name: getattr(call.usage, name) for name in ("input", "output", "cache_read", "cache_write")}
    return encode(call, rename={"settled": "ended"}, omit=["usage"], why=purpose_words(call.purpose), **usage)


def spent_json(spent: Spent) -> Json:
    return encode(spent, rename={"unpriced": "unpriced_calls", "open": "open_calls", "estimated": "estimated_calls"})


PURPOSES: Mapping[str, str] = {
    "review": "reviewing a conversation after a reply",
    "memory_update": "reviewing a finished session",
    "compress": "summarising a conversation that fills the window",
    "episodes": "describing a finished session",
    "skills": "writing down a procedure",
    "tidy": "tidying curated memory",
    "boundary": "detecting a new topic",
    "title": "naming a conversation",
    "curate": "maintaining skills",
    "search_summary": "summarising search results",
    "query_expansion": "finding other words to search for",
    "eval": "an evaluation",
    "embedding": "embedding texts for search by meaning",
}
"""The purposes of background work."""


def purpose_words(purpose: str) -> str:
    return PURPOSES.get(purpose, purpose)
