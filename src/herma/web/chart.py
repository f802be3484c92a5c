"""A bar chart as SVG: no script, no inline style, readable in light and dark, and by a screen reader. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from herma.web.html import Html, tag

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
