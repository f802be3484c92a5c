"""What several pages are made of. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from herma.web.html import Child, Html, tag
from herma.wording.sessions import iso, when


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
