"""The dashboard's templates: text of others never becomes markup, and drawings stay in their frame."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.cli.output import visible
from herma.web.api import address, environment, marked, own_path, render, short, told

NASTY = [
    "<script>alert(1)</script>",
    "</td><script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "&lt;script&gt;",
    "{{ 7 * 7 }}",
    "<!-- ",
    "]]>",
    "\x00\x1b[31m\u202egnp.exe",
    "\ud800",
]


class Seen(HTMLParser):
    """The elements and the text that a browser would see."""

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
    page = environment().from_string('<p title="{{ title }}">{{ said }}</p>').render(said=said, title=title)
    seen = Seen(page)
    assert [name for name, _ in seen.elements] == ["p"]
    assert seen.elements[0][1] == {"title": visible(title)}
    assert seen.said == visible(said)


@pytest.mark.parametrize("said", NASTY)
def test_nothing_nasty_becomes_an_element(said: str) -> None:
    page = render(
        "message.html", title=said, sentence=said, hint=said, sign_in=True, problems=(), kept=said, here="/x", to=said
    )
    seen = Seen(page).elements
    assert [attributes["src"] for name, attributes in seen if name == "img"] == ["/files/mark.svg"]
    assert [attributes["src"] for name, attributes in seen if name == "script"] == ["/files/page.js"]
    assert not any(key.startswith("on") for _, attributes in seen for key in attributes)
    assert not set(page) & {"\x1b", "\u202e", "\ud800"}
    assert "49" not in page


def test_no_template_has_inline_style_or_script() -> None:
    loader = environment().loader
    assert loader is not None
    names = loader.list_templates()
    assert "home.html" in names
    for name in names:
        source, _, _ = loader.get_source(environment(), name)
        assert "style=" not in source, name
        assert "|safe" not in source, name
        assert source.count("<script") == source.count('<script src="/files/page.js"'), name


@given(st.one_of(st.text(), st.sampled_from([*NASTY, ">>>a<<< >>><script><<<"])))
def test_a_marked_snippet_has_marks_and_no_other_element(said: str) -> None:
    assert {name for name, _ in Seen(str(marked(said))).elements} <= {"mark"}


@given(st.text(), st.text())
def test_a_link_stays_on_this_server(path: str, value: str) -> None:
    made = address("/sessions/" + path, q=value)
    assert made.startswith("/sessions/")
    assert made.isascii()
    assert not set(made) & set("\"'<> ")


@pytest.mark.parametrize("path", ["//evil", "/\\evil", "https://evil", "evil", "", "/a\n", "/a b", "/\t/evil"])
def test_a_form_goes_on_to_our_own_pages_only(path: str) -> None:
    assert not own_path(path)
    assert own_path("/memory?project=a%2Fb&user=#m1")


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_bar_is_never_longer_than_its_track(used: float, limit: float) -> None:
    source = '{% from "parts.html" import bar with context %}{{ bar(used, limit, "x") }}'
    page = environment().from_string(source).render(used=used, limit=limit)
    widths = [attributes["width"] for name, attributes in Seen(page).elements if name == "rect"]
    assert all(0 <= float((width or "").rstrip("%")) <= 100 for width in widths)


@pytest.mark.parametrize(
    ("at", "said"),
    [
        (None, "-"),
        (0, "today 12:30"),
        (-3_600, "today 11:30"),
        (-86_400, "yesterday 12:30"),
        (-8 * 86_400, "12 Nov 12:30"),
        (-400 * 86_400, "2025-10-16"),
    ],
)
def test_times_are_said_as_people_say_them(at: float | None, said: str) -> None:
    now = time.mktime((2026, 11, 20, 12, 30, 0, 0, 0, 0))
    assert told(None if at is None else now + at, now) == said


def test_numbers_are_short() -> None:
    assert [short(number) for number in (0, 999, 9_999, 12_340, 4_100_000, 2e9)] == [
        *("0", "999", "9,999", "12.3k", "4.1M", "2G")
    ]
