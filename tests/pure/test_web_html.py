"""Text can never become markup, and markup is what was asked for."""

from __future__ import annotations

from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.cli.output import visible
from herma.web.pages import Bar, Html, bar, chart, join, page, scale, table, tag, text

NASTY = [
    "<script>alert(1)</script>",
    "</td><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;script&gt;",
    "<!-- ",
    "]]>",
    "\x00\x1b[31m\u202egnp.exe",
    "\ud800",
]


class Seen(HTMLParser):
    """What a browser would see."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.said = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.said += data


@given(st.one_of(st.text(), st.sampled_from(NASTY)), st.one_of(st.text(), st.sampled_from(NASTY)))
def test_text_and_attributes_come_out_as_they_went_in(said: str, title: str) -> None:
    seen = Seen(tag("p", said, title=title, data_x=True, hidden=False, lang=None))
    assert seen.elements == [("p", {"title": visible(title), "data-x": None})]
    assert seen.said == visible(said)


@pytest.mark.parametrize("said", NASTY)
def test_nothing_nasty_becomes_an_element(said: str) -> None:
    made = join(tag("p", said), table([said], [[said]]), bar(1, 2, said), page(said, said, links=[("/x", said)]))
    names = {name for name, _ in Seen(made).elements}
    assert names & {"img"} == {"img"}  # our own mark, and nobody else's
    assert all(attributes.get("src") == "/files/mark.svg" for name, attributes in Seen(made).elements if name == "img")
    assert [attributes["src"] for name, attributes in Seen(made).elements if name == "script"] == ["/files/page.js"]
    assert not any(key.startswith("on") for _, attributes in Seen(made).elements for key in attributes)
    assert "\x1b" not in made
    assert "\u202e" not in made
    made.encode("utf-8")


def test_markup_is_taken_as_it_is_and_only_once() -> None:
    inner = tag("b", "a & b")
    assert inner == "<b>a &amp; b</b>"
    assert tag("p", inner, ["x", None, [1, Html("<i></i>")]], class_="y", aria_label="z") == (
        '<p class="y" aria-label="z"><b>a &amp; b</b>x1<i></i></p>'
    )
    assert text(inner) is inner
    assert tag("input", "ignored", required=True) == "<input required>"


def test_no_inline_style_or_script_is_needed() -> None:
    made = page(
        "x", [bar(1, 2, "x"), chart([Bar("2026-01-01", 1, "x")], limit=1, label="x", unit="USD")], links=[("/", "x")]
    )
    assert "style=" not in made
    assert all(not said for said in Seen(made).elements if said[0] == "style")


@given(st.lists(st.floats(0, 1e9), max_size=40), st.floats(0, 1e9))
def test_a_chart_stays_in_its_frame(values: list[float], limit: float) -> None:
    bars = [Bar("2026-11-16", value, "words") for value in values]
    drawn = ElementTree.fromstring(chart(bars, limit=limit, label="a <b>", unit="USD"))
    _, _, width, height = map(float, drawn.attrib["viewBox"].split())
    rects = drawn.findall("rect")
    assert len(rects) == sum(value > 0 for value in values)
    for rect in rects:
        x, y, w, h = (float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width + 0.1
        assert 0 <= y <= y + h <= height
        assert h > 0, "what was spent is seen, however little"


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_scale_holds_every_bar(highest: float, limit: float) -> None:
    assert scale(highest, limit) >= highest
    assert scale(highest, limit) > 0


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_bar_is_never_longer_than_its_track(used: float, limit: float) -> None:
    widths = [attributes["width"] for name, attributes in Seen(bar(used, limit, "x")).elements if name == "rect"]
    assert all(0 <= float((width or "").rstrip("%")) <= 100 for width in widths)
