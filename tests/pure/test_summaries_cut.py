"""Which part of a conversation is summarized."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.search.expand import CLOSE, best_start, cut
from herma.search.match import units
from herma.search.query import parse


def cut_for(question: str, text: str, most: int) -> str:
    return cut(text, question, units(parse(question, 0.0)), most)


@pytest.mark.parametrize(
    ("question", "text", "most", "part"),
    [
        ("argon2", "we chose argon2", 100, "we chose argon2"),
        # the whole question counts more than its words
        (
            "The  deploy failed",
            "deploy " * 50 + "x" * 2_000 + " the deploy failed " + "y" * 2_000,
            400,
            "the deploy failed",
        ),
        # words close together count more than single ones
        (
            "nginx proxy",
            "proxy " * 30 + "x" * 2_000 + " the proxy sat before nginx " + "y" * 2_000 + " nginx " * 30,
            400,
            "proxy sat before nginx",
        ),
        (
            "beta alpha",
            "alpha" + " " * (CLOSE + 5) + "beta" + "." * 2_000 + "alpha" + " " * (CLOSE - 5) + "beta",
            300,
            "alpha" + " " * (CLOSE - 5) + "beta",
        ),
        (
            "nginx kubernetes",
            "a" * 1_000 + " nginx " + "b" * 1_000 + " nginx nginx " + "c" * 1_000,
            300,
            "nginx nginx",
        ),
        ("nginx", "start" + "z" * 500, 100, "start"),
        ("登录失败", "天气" * 300 + "登录失败的原因是密钥过期" + "天气" * 300, 200, "密钥过期"),
        ("nginx proxy tls", "nginx proxy " * 100_000, 100_000, "nginx proxy"),
    ],
)
def test_the_part_that_matters_is_taken(question: str, text: str, most: int, part: str) -> None:
    found = cut_for(question, text, most)
    assert part in found
    assert len(found) == min(most, len(text))


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60), st.integers(1, 6_000), st.integers(10, 2_000))
def test_the_window_holds_as_many_as_any_such_window(places: list[int], length: int, most: int) -> None:
    inside = sorted(place for place in places if place < length)
    if not inside or length <= most:
        return
    found = best_start(inside, length, most)
    assert 0 <= found <= length - most
    held = sum(found <= place < found + most for place in inside)
    for place in inside:
        start = max(0, min(place - int(most * 0.25), length - most))
        assert held >= sum(start <= other < start + most for other in inside)
