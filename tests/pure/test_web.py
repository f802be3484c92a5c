"""Access decided from values alone, and templates in which the text of others never becomes markup."""

from __future__ import annotations

import time
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.cli.output import visible
from herma.web.access import (
    COOKIE_SECONDS,
    SAFE,
    RateLimit,
    RequestFacts,
    Rules,
    is_cookie,
    is_token,
    make_cookie,
    refusal,
)
from herma.web.api import address, environment, marked, own_path, render, short, time_ago

TOKEN = "t" * 43
HERE = Rules(TOKEN, 8765)
EVERYWHERE = Rules(TOKEN, 8765, "0.0.0.0", frozenset({"workstation.local"}))
NOW = 1_800_000_000.0


def asked(method: str = "GET", path: str = "/", host: str = "127.0.0.1:8765", **more: str) -> RequestFacts:
    return RequestFacts(method, path, host, **more)


def status(rules: Rules, one: RequestFacts) -> int:
    why = refusal(replace(rules, pace=RateLimit(9, 1), guesses=RateLimit(9, 1)), one, NOW)
    return 200 if why is None else why.status


OURS = ("127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765", "localhost.:1")
NETWORK = ("192.0.2.7", "[2001:db8::1]:8765", "workstation.local:8765", "Workstation.Local")
FOREIGN = (
    *("", " localhost", "[evil]", "evil.example", "evil.example:8765", "127.0.0.1.evil.example", "other.local"),
    *("localhost.evil.example", "127.0.0.1:8765/enter?", "127.0.0.1:8765@evil.example", "someone@127.0.0.1"),
    *("localhost:8765#", "localhost:http", "[::1]:8765/enter", "[::1"),
)


def test_only_our_own_names_are_answered() -> None:
    """In a network, numbers are good, and other names must be allowed."""
    for hosts, here, everywhere in ((OURS, 200, 200), (NETWORK, 421, 200), (FOREIGN, 421, 421)):
        for host in hosts:
            assert status(HERE, asked(host=host, bearer=TOKEN)) == here, host
            assert status(EVERYWHERE, asked(host=host, bearer=TOKEN)) == everywhere, host
            assert status(HERE, asked(host=host, path="/enter")) == here, host


def test_without_a_key_only_the_door_is_open() -> None:
    for path in ("/", "/cost", "/api/v1/health", "/metrics", "/files", "/entering", "/leave", "/nosuch"):
        assert status(HERE, asked(path=path)) == 401, path
    for path in ("/enter", "/healthz", "/files/style.css"):
        assert status(HERE, asked(path=path)) == 200, path
    assert status(HERE, asked(bearer="wrong")) == 401
    assert status(HERE, asked(cookie="wrong")) == 401


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "ANY"])
def test_what_changes_something_comes_from_our_own_pages(method: str) -> None:
    key = {"cookie": make_cookie(HERE, NOW)}
    same = {"origin": "http://127.0.0.1:8765"}
    assert status(HERE, asked(method, **key, **same)) == 200
    assert status(HERE, asked(method, **key, fetch_site="same-origin")) == 200
    assert status(HERE, asked(method, bearer=TOKEN)) == 200, "a program"
    for more in (
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://localhost:8765"},
        {"origin": "null"},
        {"origin": "http://["},
        {"origin": "http://evil.example", "fetch_site": "same-origin"},
        {"fetch_site": "cross-site"},
        {"fetch_site": "same-site"},
        {},
    ):
        assert status(HERE, asked(method, **key, **more)) == 403, more
    assert status(HERE, asked(method, bearer=TOKEN, origin="http://evil.example")) == 403


@given(st.sampled_from(sorted(SAFE)), st.text(), st.text())
def test_looking_is_judged_by_the_key_alone(method: str, origin: str, site: str) -> None:
    assert status(HERE, asked(method, bearer=TOKEN, origin=origin, fetch_site=site)) == 200


@given(st.text(max_size=90))
def test_nothing_else_is_the_token_and_nothing_made_up_is_a_cookie(given_: str) -> None:
    assert is_token(HERE, given_) == (given_ == TOKEN)
    assert not is_cookie(HERE, given_, NOW)


@given(st.floats(-COOKIE_SECONDS, 2 * COOKIE_SECONDS), st.integers(0, 76))
def test_a_cookie_ends_by_itself_and_cannot_be_changed(later: float, at: int) -> None:
    cookie = make_cookie(HERE, NOW)
    assert TOKEN not in cookie
    assert is_cookie(HERE, cookie, NOW)
    assert is_cookie(HERE, cookie, NOW + later) == (-1 <= later < COOKIE_SECONDS or abs(later) < 1)
    at = min(at, len(cookie) - 1)
    changed = cookie[:at] + ("1" if cookie[at] != "1" else "2") + cookie[at + 1 :]
    assert not is_cookie(HERE, changed, NOW)
    assert not is_cookie(Rules("other" * 10, 8765), cookie, NOW)
    assert not is_cookie(Rules(TOKEN, 8766), cookie, NOW), "another server's"


def test_guesses_are_refused_without_locking_out_the_token() -> None:
    rules = Rules(TOKEN, 8765, guesses=RateLimit(1, 0.0))
    found = [refusal(rules, asked(bearer="guess"), NOW) for _ in range(2)]
    assert [one.status for one in found if one] == [401, 429]
    assert refusal(rules, asked(bearer=TOKEN), NOW) is None
    limit = RateLimit(3, 0.0)
    assert [limit.has_room("a") for _ in range(4)] == [True, True, True, False]
    assert limit.has_room("b"), "others have their own"


# ── templates ──

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
    assert time_ago(None if at is None else now + at, now) == said
    numbers = (0, 999, 9_999, 12_340, 4_100_000, 2e9)
    assert [short(number) for number in numbers] == ["0", "999", "9,999", "12.3k", "4.1M", "2G"]
