"""`herma cost`: what calls to models took, what a cache could reuse of them, and why not more."""

from __future__ import annotations

import click

from herma.cli.cost_background import write_background
from herma.cli.frame import HermaCommand
from herma.cli.sessions.desk import Desk, read_moment, with_sessions
from herma.cli.sessions.wording import count, one_line, when
from herma.ports import Call
from herma.turn.cost import CostReport, SessionCost, Tally, where, why
from herma.wording.cost import background_json, background_of, call_json, cost_json, money, share

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
