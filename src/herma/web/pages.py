"""The pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from herma import __version__
from herma.cli.output import (
    Json,
    count,
    databases,
    diagnosis_json,
    iso,
    name_of,
    one_line,
    percent,
    session_json,
    size,
    stats_json,
    status_json,
    verdict,
    visible,
    when,
)
from herma.doctor.checks import Diagnosis
from herma.doctor.database import Check
from herma.prompt.ledger import CostReport, where, why
from herma.review.cli import (
    Background,
    background_json,
    background_of,
    cost_json,
    money,
    purpose_words,
    share,
    spent_json,
)
from herma.review.spending import Spent, SpentCall
from herma.types import SessionInfo, StoreStatus, TranscriptStats

if TYPE_CHECKING:
    from herma.web.app import House


# ---------- web.html
#
# HTML put together from values: text is always escaped, as only `Html` is taken for markup. Pure.

_EMPTY = frozenset({"meta", "link", "input", "br", "hr", "img"})
"""Elements that have no content and no end."""


class Html(str):
    """Markup. Plain strings are text, whatever they look like."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def text(value: str) -> Html:
    """Text as markup that shows it: nothing in it can act, and nothing can reorder what stands around it."""
    return value if isinstance(value, Html) else Html(escape(visible(value)))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; `None` and `False` leave an attribute out."""
    inside = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{inside}>")
    return Html(f"<{name}{inside}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """One after the other, with nothing between them."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return text(child)
    if isinstance(child, int):
        return str(child)
    return "".join(_child(one) for one in child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(visible(str(value)))}"'


def document(*children: Child) -> Html:
    return Html(f"<!doctype html>\n{tag('html', *children, lang='en')}\n")


# ---------- web.frame
#
# What every page has around it: head, navigation, foot. Pure.

REFRESH_SECONDS = 30
"""How often the script fetches a page anew while somebody looks at it."""


def page(
    title: str,
    body: Child,
    *,
    links: Sequence[tuple[str, str]] = (),
    here: str = "",
    api: str = "",
    head: Child = None,
) -> Html:
    """A whole page. `links` are (address, name) of the navigation; without them nobody is let in yet. `api` is where
    the same is as JSON.
    """
    return document(
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title} · Herma"),
            tag("link", rel="icon", href="/files/mark.svg", type="image/svg+xml"),
            tag("link", rel="stylesheet", href="/files/style.css"),
            tag("script", src="/files/page.js", defer=True) if links else None,
            head,
        ),
        tag(
            "body",
            tag("a", "To the content", href="#content", class_="skip"),
            tag("header", _brand(), _navigation(links, here), _leave() if links else None),
            tag("main", tag("h1", title), body, id="content", data_refresh=REFRESH_SECONDS if links else None),
            tag("footer", f"Herma {__version__}", _as_json(api) if api else None),
        ),
    )


def _brand() -> Html:
    return tag("a", tag("img", src="/files/mark.svg", alt="", width=24, height=24), "Herma", href="/", class_="brand")


def _navigation(links: Sequence[tuple[str, str]], here: str) -> Html | None:
    if not links:
        return None
    listed = [
        tag("li", tag("a", name, href=address, aria_current="page" if address == here else None))
        for address, name in links
    ]
    return tag("nav", tag("ul", listed), aria_label="Pages")


def _leave() -> Html:
    return tag("form", tag("button", "Sign out", type="submit"), method="post", action="/leave", class_="leave")


def _as_json(api: str) -> Html:
    return join(" · ", tag("a", "this page as JSON", href=api))


# ---------- web.chart
#
# A bar chart as SVG: no script, no inline style, readable in light and dark, and by a screen reader. Pure.

_WIDTH, _HEIGHT, _BELOW, _ABOVE = 720, 160, 24, 22


@dataclass(frozen=True, slots=True)
class Bar:
    """`day` stands below some of the bars; `words` are shown over each."""

    day: str
    value: float
    words: str


def chart(bars: Sequence[Bar], *, limit: float, label: str, unit: str) -> Html:
    """Bars from the left to the right. The limit is a line, where the highest bar comes near it."""
    top = scale(max((one.value for one in bars), default=0.0), limit)
    step = _WIDTH / max(1, len(bars))
    drawn = [_bar(one, at, step, top) for at, one in enumerate(bars)]
    days = [_day(one.day, at, step, last=at == len(bars) - 1) for at, one in enumerate(bars) if _named(at, len(bars))]
    floor = _HEIGHT - _BELOW
    lines = [tag("line", x1=0, x2=_WIDTH, y1=floor, y2=floor, class_="floor")]
    if 0 < limit <= top:
        y = _number(_y(limit, top))
        lines.append(tag("line", x1=0, x2=_WIDTH, y1=y, y2=y, class_="limit"))
        lines.append(tag("text", f"cap {limit:,g} {unit}", x=_WIDTH, y=_number(_y(limit, top) - 4), text_anchor="end"))
    else:
        lines.append(tag("text", f"{top:,.4g} {unit}", x=0, y=_ABOVE - 5))
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    return tag(
        "svg", tag("title", label), lines, drawn, days, role="img", aria_label=label, class_="chart", viewBox=box
    )


def scale(highest: float, limit: float) -> float:
    """What the full height stands for: the limit where bars come near it, else the highest bar."""
    if limit > 0 and highest >= limit / 4:
        return max(highest, limit)
    return highest if highest > 0 else 1.0


def _named(at: int, many: int) -> bool:
    """Every fifth day carries its name, counted from today."""
    return (many - 1 - at) % 5 == 0


def _day(day: str, at: int, step: float, *, last: bool) -> Html:
    x = _WIDTH if last else at * step + step / 2  # in the middle, the name of the last would stand out of the picture
    return tag("text", day[5:], x=_number(x), y=_HEIGHT - 6, text_anchor="end" if last else "middle")


def _bar(one: Bar, at: int, step: float, top: float) -> Html | None:
    if one.value <= 0:
        return None
    y = min(_y(one.value, top), _HEIGHT - _BELOW - 1.5)  # what was spent is seen, however little
    height = _HEIGHT - _BELOW - y
    shape = tag("title", one.words)
    return tag(
        "rect",
        shape,
        x=_number(at * step + step * 0.14),
        y=_number(y),
        width=_number(step * 0.72),
        height=_number(height),
        rx=2,
        class_="spent",
    )


def _y(value: float, top: float) -> float:
    return _ABOVE + (_HEIGHT - _BELOW - _ABOVE) * (1 - value / top)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


# ---------- web.pages.parts
#
# What several pages are made of. Pure.


def card(title: str, *children: Child, note: Child = None, wide: bool = False) -> Html:
    """A block with a heading."""
    heading = tag("h2", title, tag("small", note) if note else None)
    return tag("section", heading, *children, class_="card wide" if wide else "card")


def moment(at: float | None) -> Html:
    """A time for people, and exactly for programs."""
    return tag("time", when(at), datetime=iso(at))


def command(line: str) -> Html:
    """What to type; the script adds a button that copies it."""
    return tag("code", line, class_="command")


def table(columns: Sequence[str], rows: Iterable[Sequence[Child]], *, numbers: Sequence[int] = ()) -> Html:
    """Rows under headings; on a narrow screen each cell carries its heading. `numbers` are columns of figures."""
    head = tag("tr", [tag("th", name, scope="col", class_=_figure(at, numbers)) for at, name in enumerate(columns)])
    body = [
        tag(
            "tr",
            [
                tag("td", cell, data_heading=columns[at] or None, class_=_figure(at, numbers))
                for at, cell in enumerate(row)
            ],
        )
        for row in rows
    ]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body)), class_="scroll")


def _figure(at: int, numbers: Sequence[int]) -> str | None:
    return "figure" if at in numbers else None


def figures(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Names with what they come to."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs], class_="figures")


def bar(used: float, limit: float, label: str) -> Html:
    """How much of a limit is used, as a picture with words."""
    part = min(1.0, used / limit) if limit > 0 else 1.0
    level = "full" if part >= 1 else "high" if part >= 0.8 else "fine"
    width = f"{100 * part:.1f}%"
    track = tag("rect", width="100%", height=10, rx=5, class_="track")
    filled = tag("rect", width=width, height=10, rx=5, class_=f"filled {level}") if part else None
    return tag("svg", track, filled, role="img", aria_label=label, class_="bar", width="100%", height=10)


def state(name: str) -> Html:
    """A state as a coloured word: the word says it, the colour repeats it."""
    return tag("span", name, class_=f"state {name}")


def nothing(sentence: str) -> Html:
    return tag("p", sentence, class_="nothing")


# ---------- web.pages.health
#
# What the doctor found, with what to type, and how guests have been.

_ORDER = ("problem", "warning", "note", "ok")
_SECONDS = 5.0
"""Several tabs share one look."""
_TYPED = ("herma ", "chmod ", "ls ", "pip ")
"""How what can be typed begins; other next steps are sentences."""


def gather(house: House) -> Diagnosis:
    return house.doctor(at_most=_SECONDS)


def tell(found: Diagnosis) -> Json:
    return diagnosis_json(found)


def show(found: Diagnosis) -> Html:
    return join(
        tag("p", tag("strong", verdict(found)), " ", tag("code", str(found.home)), class_="lead"),
        card("What was looked at", checks(found.checks), wide=True),
        _guests(found),
    )


def checks(found: tuple[Check, ...]) -> Html:
    """The worst first, otherwise in the order of the round."""
    ordered = sorted(found, key=lambda check: _ORDER.index(check.state))
    rows = [(state(one.state), one.name, join(one.sentence, _next(one))) for one in ordered]
    return table(("state", "what", "found"), rows)


def _next(check: Check) -> Html | None:
    if not check.next or check.state == "ok":
        return None
    typed = check.next.startswith(_TYPED)
    return join(" ", command(check.next) if typed else tag("em", check.next))


def _guests(found: Diagnosis) -> Html:
    title, note = "Guests", "providers, models, servers and watchers that failed in the last week"
    if not found.guests:
        return card(title, nothing("None failed."), note=note, wide=True)
    rows = [(one.name, f"{one.times:,}", moment(one.at), one.what, one.why) for one in found.guests]
    return card(title, table(("guest", "failures", "last", "at what", "why"), rows, numbers=(1,)), note=note, wide=True)


# ---------- web.pages.overview
#
# The first page: what there is, how full it is, what was done last, and whether all is well.

_OVERVIEW_SESSIONS = 8
_HEALTH_SECONDS = 60.0
"""How old the doctor's words may be here; the page on health asks anew."""


@dataclass(frozen=True, slots=True)
class Overview:
    home: Path
    profile: str
    files: dict[str, int]
    memory: tuple[tuple[StoreStatus, bool], ...]
    """Each curated file, and whether sessions see it."""
    pending: int
    total: TranscriptStats
    sessions: tuple[SessionInfo, ...]
    episodes: int
    skills: int
    background: Background
    health: Diagnosis


def overview_gather(house: House) -> Overview:
    health = house.doctor(at_most=_HEALTH_SECONDS)
    with house.opened() as h:
        return Overview(
            home=h.home,
            profile=h.settings.profile,
            files=databases(h.home),
            memory=tuple((one, h.memory.is_enabled(one.target)) for one in h.memory.status()),
            pending=len(h.memory.pending()),
            total=h.transcripts.stats(),
            sessions=tuple(h.transcripts.list(limit=_OVERVIEW_SESSIONS)),
            episodes=h.episodes.count(),
            skills=len(h.skills.list()),
            background=background_of(h),
            health=health,
        )


def overview_tell(found: Overview) -> Json:
    return {
        "ok": True,
        "version": __version__,
        "home": found.home,
        "profile": found.profile,
        "files": found.files,
        "memory": [status_json(one, enabled=enabled) for one, enabled in found.memory],
        "pending": found.pending,
        "transcripts": stats_json(found.total),
        "newest_sessions": [session_json(one) for one in found.sessions],
        "episodes": found.episodes,
        "skills": found.skills,
        "spent_today": spent_json(found.background.spent.total_today),
        "health": diagnosis_json(found.health),
    }


def overview_show(found: Overview) -> Html:
    return join(
        tag("p", "Home ", tag("code", str(found.home)), f", profile {found.profile}", class_="lead"),
        tag("div", _health(found.health), _spending(found.background), _counts(found), class_="cards three"),
        _memory(found),
        _overview_sessions(found),
    )


def _health(health: Diagnosis) -> Html:
    worst = next((one for one in ("problem", "warning") if health.of(one)), "ok")
    telling = [*health.of("problem"), *health.of("warning")][:3]
    return card(
        "Health",
        tag("p", state(worst), " ", verdict(health)),
        tag("ul", [tag("li", one_line(one.sentence, 110)) for one in telling], class_="plain") if telling else None,
        tag("p", tag("a", "Everything that was looked at", href="/health")),
    )


def _spending(background: Background) -> Html:
    today, cap = background.spent.total_today, background.spent.caps.all
    if not background.has_model:
        said = [nothing("No model is set, so background work spends nothing.")]
    elif background.spent.caps.off:
        said = [nothing("Background work is switched off: its daily cap is 0.")]
    else:
        usd = f"{money(today.usd)} of {cap.usd or 0:.2f} USD"
        tokens = f"{today.tokens:,} of {cap.tokens or 0:,} tokens"
        said = [
            tag("p", usd),
            bar(today.usd, cap.usd or 0, usd),
            tag("p", tokens),
            bar(today.tokens, cap.tokens or 0, tokens),
        ]
    return card("Background work today", said, tag("p", tag("a", "By purpose, by day, by call", href="/spending")))


def _counts(found: Overview) -> Html:
    files = [(name, size(taken) if taken else "not there yet") for name, taken in found.files.items()]
    return card(
        "What is kept",
        figures(
            [
                ("conversations", f"{found.total.conversations:,}"),
                ("messages", f"{found.total.messages:,}"),
                ("episodes", f"{found.episodes:,}"),
                ("skills", f"{found.skills:,}"),
                *files,
            ]
        ),
    )


def _memory(found: Overview) -> Html:
    waiting = f"{count(found.pending, 'proposal')} waiting for a decision" if found.pending else ""
    return card("Curated memory", [_file(one, enabled) for one, enabled in found.memory], note=waiting, wide=True)


def _file(one: StoreStatus, enabled: bool) -> Html:
    name = "MEMORY.md" if one.target == "memory" else "USER.md"
    entries = count(one.entry_count, "entry", "entries")
    words = f"{percent(one.used, one.limit)} %, {one.used:,} of {one.limit:,} characters, {entries}"
    troubles = [
        "" if enabled else "Switched off: no session sees it.",
        f"{one.trouble}." if one.trouble else "",
        f"The scanner objects to {count(one.findings, 'entry', 'entries')}." if one.findings else "",
    ]
    said = [tag("p", state("warning"), " ", trouble) for trouble in troubles if trouble]
    heading = tag("p", tag("strong", name), " ", tag("span", words, class_="quiet"))
    return tag("div", heading, bar(one.used, one.limit, f"{name}: {words}"), said, class_="file")


def _overview_sessions(found: Overview) -> Html:
    if not found.sessions:
        return card(
            "Last conversations", nothing("None yet. They appear here when an agent opens a session."), wide=True
        )
    rows = [
        (
            moment(one.last_active),
            tag("span", name_of(one), dir="auto"),
            one.source,
            f"{one.message_count:,}",
            _id(one.id),
        )
        for one in found.sessions
    ]
    return card(
        "Last conversations", table(("last active", "about", "source", "messages", "id"), rows, numbers=(3,)), wide=True
    )


def _id(session: str) -> Html:
    return tag("code", session)


# ---------- web.pages.spending
#
# What models took: background work against its daily cap, and what a cache could reuse of conversations.

_SPENDING_SESSIONS = 10
_BREAKS = 8
_STOPPED = 5


@dataclass(frozen=True, slots=True)
class Spending:
    cost: CostReport
    background: Background


def spending_gather(house: House) -> Spending:
    with house.opened() as h:
        return Spending(h.cost(), background_of(h))


def spending_tell(found: Spending) -> Json:
    return {"ok": True, **cost_json(found.cost), "background": background_json(found.background)}


def spending_show(found: Spending) -> Html:
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
        _spending_sessions(found),
        _breaks(found),
        wide=True,
    )


def _spending_sessions(found: CostReport) -> Html:
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
        for one in found.sessions[:_SPENDING_SESSIONS]
    ]
    columns = ("last call", "about", "calls", "sent", "reusable", "breaks", "USD")
    left = len(found.sessions) - _SPENDING_SESSIONS
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


# ---------- web.pages
#
# One module a page: what it gathers, how it shows it, and the same as JSON.


@dataclass(frozen=True, slots=True)
class Page:
    """`gather` may take its time, and runs in a thread; `show` and `tell` are pure."""

    path: str
    name: str
    api: str
    gather: Callable[[House], Any]
    show: Callable[[Any], Html]
    tell: Callable[[Any], Json]


PAGES: tuple[Page, ...] = (
    Page("/", "Overview", "/api/overview", overview_gather, overview_show, overview_tell),
    Page("/spending", "Spending", "/api/spending", spending_gather, spending_show, spending_tell),
    Page("/health", "Health", "/api/health", gather, show, tell),
)
