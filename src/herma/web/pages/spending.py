"""What models took: background work against its daily cap, and what a cache could reuse of conversations."""

from __future__ import annotations

from dataclasses import dataclass

from herma.ports import Spent, SpentCall
from herma.turn.cost import CostReport, where, why
from herma.web.chart import Bar, chart
from herma.web.house import House
from herma.web.html import Child, Html, join, tag
from herma.web.pages.parts import bar, card, command, figures, moment, nothing, state, table
from herma.wording.cost import (
    Background,
    background_json,
    background_of,
    cost_json,
    money,
    purpose_words,
    share,
)
from herma.wording.sessions import Json, count, one_line

_SESSIONS = 10
_BREAKS = 8
_STOPPED = 5


@dataclass(frozen=True, slots=True)
class Spending:
    cost: CostReport
    background: Background


def gather(house: House) -> Spending:
    with house.opened() as h:
        return Spending(h.cost(), background_of(h))


def tell(found: Spending) -> Json:
    return {"ok": True, **cost_json(found.cost), "background": background_json(found.background)}


def show(found: Spending) -> Html:
    return join(
        tag("p", "What nobody asked for has a hard cap per day; what you asked for is listed below it.", class_="lead"),
        _undone(found.background),
        tag("div", _today(found.background), _purposes(found.background), class_="cards two"),
        _days(found.background),
        _calls(found.background),
        _conversations(found.cost),
    )


# ── work that nobody asked for ──


def _undone(background: Background) -> Html | None:
    """Notices stand first: the cap stopped something, or it rests because a model's answers could not be used."""
    said = [tag("li", one.notice, " ", one.hint) for one in background.resting]
    for one in background.history.stopped[:_STOPPED]:
        often = f" ({one.times:,} times)" if one.times > 1 else ""
        said.append(tag("li", moment(one.at), " ", one.notice, often))
    if not said:
        return None
    return tag("section", tag("h2", "Left undone"), tag("ul", said), class_="card wide notice", role="status")


def _today(background: Background) -> Html:
    spent, cap = background.spent.total_today, background.spent.caps.all
    if not background.has_model:
        return card(
            "Background work today",
            nothing("No model is set, so it may spend nothing."),
            tag("p", "To set one: ", command("herma config set model.url ollama")),
        )
    if background.spent.caps.off:
        return card("Background work today", nothing("Switched off: its daily cap is 0."))
    tokens = f"{spent.tokens:,} of {cap.tokens or 0:,} tokens"
    usd = f"{money(spent.usd)} of {cap.usd or 0:.2f} USD"
    remarks = [
        f"{count(spent.open, 'call')} not ended, or cut off by a crash: counted with the most that they may take."
        if spent.open
        else "",
        f"The price of {count(spent.unpriced, 'call')} is not known: for such, the limit in tokens alone holds."
        if spent.unpriced
        else "",
    ]
    return card(
        "Background work today",
        tag("p", tag("strong", usd)),
        bar(spent.usd, cap.usd or 0, usd),
        tag("p", tag("strong", tokens)),
        bar(spent.tokens, cap.tokens or 0, tokens),
        [tag("p", one, class_="quiet") for one in remarks if one],
        note=count(spent.calls, "call"),
    )


def _purposes(background: Background) -> Html:
    found = background.spent
    if not found.spent_since:
        return card("By purpose", nothing("No calls yet."))
    rows = [
        (tag("span", purpose, title=purpose_words(purpose)), *_numbers(found.spent_today.get(purpose)), *_numbers(ever))
        for purpose, ever in found.spent_since.items()
    ]
    columns = ("for", "calls today", "tokens today", "USD today", "calls", "tokens", "USD")
    return card("By purpose", table(columns, rows, numbers=range(1, 7)), note=f"today, and since {found.since}")


def _numbers(spent: Spent | None) -> tuple[str, str, str]:
    if spent is None:
        return "-", "-", "-"
    return f"{spent.calls:,}", f"{spent.tokens:,}", money(spent.usd) if spent.calls > spent.unpriced else "-"


def _days(background: Background) -> Html:
    days = background.history.days
    if not any(spent.calls for _, spent in days):
        return card("The last 30 days", nothing("Nothing was spent in the background."), wide=True)
    in_money = any(spent.usd for _, spent in days)
    cap = background.spent.caps.all
    unit = "USD" if in_money else "tokens"
    bars = [Bar(day, spent.usd if in_money else spent.tokens, f"{day}: {_words(spent)}") for day, spent in days]
    limit = (cap.usd if in_money else cap.tokens) or 0
    drawn = chart(bars, limit=limit, label=f"{unit} spent in the background, day by day", unit=unit)
    rows = [(day, *_numbers(spent)) for day, spent in reversed(days) if spent.calls]
    listed = tag(
        "details", tag("summary", "As a table"), table(("day", "calls", "tokens", "USD"), rows, numbers=(1, 2, 3))
    )
    return card("The last 30 days", drawn, listed, note=f"{unit} a day", wide=True)


def _words(spent: Spent) -> str:
    usd = f", {money(spent.usd)} USD" if spent.calls > spent.unpriced else ""
    return f"{count(spent.calls, 'call')}, {spent.tokens:,} tokens{usd}"


def _calls(background: Background) -> Html:
    calls = background.history.calls
    if not calls:
        return card("Newest background calls", nothing("None yet."), wide=True)
    return card(
        "Newest background calls",
        table(("when", "for", "why", "model", "tokens", "USD"), [_call(one) for one in calls], numbers=(4, 5)),
        wide=True,
    )


def _call(one: SpentCall) -> tuple[Child, ...]:
    open_ = None if one.settled else join(" ", state("open"))
    return (
        moment(one.at),
        one.purpose,
        join(purpose_words(one.purpose), open_),
        tag("code", one.model),
        f"{one.tokens:,}",
        money(one.usd),
    )


# ── what somebody asked for ──


def _conversations(found: CostReport) -> Html:
    total = found.total
    if not total.calls:
        return card("Conversations", nothing("No calls yet. They appear here when an agent asks a model."), wide=True)
    numbers = figures(
        [
            ("calls", f"{total.calls:,}"),
            ("tokens sent", f"{total.input:,}"),
            ("of them reusable", f"{total.reusable:,} ({share(total.share)})"),
            ("received", f"{total.output:,}"),
            ("the other way", f"{share(total.naive_share)} reusable"),
            ("tokens saved", f"{max(0, total.saved_tokens):,}"),
            *([("USD", money(total.cost))] if total.cost is not None else []),
            *([("USD the other way", money(total.naive_cost))] if total.naive_cost is not None else []),
        ]
    )
    other_way = "The other way: memory written into the system prompt afresh every turn, as is often done."
    unpriced = tag("p", "Money needs the prices of your model: ", command("herma config set prices.input USD"))
    return card(
        "Conversations: what a cache could reuse",
        numbers,
        tag("p", other_way, class_="quiet"),
        unpriced if total.saved is None else None,
        _sessions(found),
        _breaks(found),
        wide=True,
    )


def _sessions(found: CostReport) -> Html:
    rows = [
        (
            moment(one.last),
            tag("span", one_line(one.name, 60) or "(gone)", dir="auto"),
            f"{one.tally.calls:,}",
            f"{one.tally.input:,}",
            share(one.tally.share),
            f"{one.tally.breaks:,}",
            money(one.tally.cost),
        )
        for one in found.sessions[:_SESSIONS]
    ]
    columns = ("last call", "about", "calls", "sent", "reusable", "breaks", "USD")
    left = len(found.sessions) - _SESSIONS
    more = tag("p", f"and {count(left, 'more session')}; herma cost shows them.", class_="quiet") if left > 0 else None
    return join(table(columns, rows, numbers=range(2, 7)), more)


def _breaks(found: CostReport) -> Html | None:
    newest = list(reversed(found.breaks))[:_BREAKS]
    if not newest:
        return tag("p", "The beginning never changed: every request began with the whole of the one before.")
    rows = [(moment(call.at), where(call), f"{call.fresh:,}", why(call, found.lifetime)) for call in newest]
    return join(
        tag("h3", f"Where the beginning changed ({count(found.total.breaks, 'time')})"),
        table(("when", "from where on", "new tokens", "why"), rows, numbers=(2,)),
    )
