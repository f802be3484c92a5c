"""What calls to models took, as JSON: `herma cost --json` and the dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herma.turn.cost import CostReport, Tally, why
from herma.wording.sessions import Json, iso

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.ports import Call, Spent, SpentCall
    from herma.reflect.pauses import Pause
    from herma.reflect.spend import SpendReport
    from herma.reflect.spend_history import SpendHistory


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
