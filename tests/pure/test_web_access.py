"""Who is let in: decided from values alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

TOKEN = "t" * 43
HERE = Rules(TOKEN, 8765)
EVERYWHERE = Rules(TOKEN, 8765, "0.0.0.0", frozenset({"workstation.local"}))
NOW = 1_800_000_000.0


def asked(method: str = "GET", path: str = "/", host: str = "127.0.0.1:8765", **more: str) -> RequestFacts:
    return RequestFacts(method, path, host, **more)


def status(rules: Rules, one: RequestFacts) -> int:
    why = refusal(replace(rules, pace=RateLimit(9, 1), guesses=RateLimit(9, 1)), one, NOW)
    return 200 if why is None else why.status


@pytest.mark.parametrize("host", ["127.0.0.1:8765", "localhost:8765", "LOCALHOST", "[::1]:8765", "localhost.:1"])
def test_names_of_this_machine(host: str) -> None:
    assert status(HERE, asked(host=host, bearer=TOKEN)) == 200
    assert status(EVERYWHERE, asked(host=host, bearer=TOKEN)) == 200


@pytest.mark.parametrize(
    "host",
    [
        *("", " localhost", "[evil]", "192.0.2.7", "evil.example", "evil.example:8765", "127.0.0.1.evil.example"),
        *("localhost.evil.example", "127.0.0.1:8765/enter?", "127.0.0.1:8765@evil.example", "someone@127.0.0.1"),
        *("localhost:8765#", "localhost:http", "[::1]:8765/enter", "[::1"),
    ],
)
def test_other_names_get_nothing_even_with_the_key(host: str) -> None:
    assert status(HERE, asked(host=host, bearer=TOKEN)) == 421
    assert status(HERE, asked(host=host, path="/enter")) == 421
    assert status(HERE, asked(host=host, path="/files/style.css")) == 421


def test_in_a_network_numbers_are_good_and_names_must_be_allowed() -> None:
    for host, expected in (
        ("192.0.2.7:8765", 200),
        ("[2001:db8::1]:8765", 200),
        ("workstation.local:8765", 200),
        ("Workstation.Local", 200),
        ("other.local", 421),
        ("rebound.example", 421),
    ):
        assert status(EVERYWHERE, asked(host=host, bearer=TOKEN)) == expected, host


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


def test_a_client_gets_a_burst_and_others_their_own() -> None:
    limit = RateLimit(3, 0.0)
    assert [limit.has_room("a") for _ in range(4)] == [True, True, True, False]
    assert limit.has_room("b")


def test_guesses_are_refused_without_locking_out_the_token() -> None:
    rules = Rules(TOKEN, 8765, guesses=RateLimit(1, 0.0))
    found = [refusal(rules, asked(bearer="guess"), NOW) for _ in range(2)]
    assert [one.status for one in found if one] == [401, 429]
    assert refusal(rules, asked(bearer=TOKEN), NOW) is None
