"""The part of `herma cost` about work that nobody asked for: what it took, by purpose, and what it may take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herma.cli.sessions.wording import count, when

if TYPE_CHECKING:
    from herma.cli.frame import Context
    from herma.ports import Spent
    from herma.wording.cost import Background

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
