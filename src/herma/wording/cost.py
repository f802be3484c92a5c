"""What calls to models took, as JSON: `herma cost --json` and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from herma.turn.cost import CostReport, Tally, why
from herma.wording.sessions import Json, iso

if TYPE_CHECKING:
    from herma.ports import Call, Spent
    from herma.reflect.spend import SpendReport


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


def background_json(found: SpendReport, *, has_model: bool) -> Json:
    """What background work took and may take. Without a model the caps are 0: nothing may be spent."""
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
    }


def _by_purpose(spent: Mapping[str, Spent]) -> Json:
    return {purpose: spent_json(one) for purpose, one in spent.items()}


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
