"""Which part of a conversation is summed up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.search.expand import CLOSE, Cut, best_window, cut, places_of
from herma.search.match import Unit, units
from herma.search.query import parse


def asked(text: str) -> list[Unit]:
    return units(parse(text, 0.0))


def test_a_short_text_is_taken_whole() -> None:
    assert cut("we chose argon2", "argon2", asked("argon2"), 100) == Cut(0, 15, "whole")


def test_the_whole_question_wins_over_its_words() -> None:
    text = "deploy " * 50 + "x" * 2_000 + " the deploy failed " + "y" * 2_000
    found = cut(text, "The  deploy failed", asked("the deploy failed"), 400)
    assert found.by == "phrase"
    assert "the deploy failed" in found.of_text(text)
    before = text.index("the deploy failed") - found.start
    assert before == 100  # a quarter of the window


def test_words_close_together_win_over_single_ones() -> None:
    text = "proxy " * 30 + "x" * 2_000 + " the proxy sat before nginx " + "y" * 2_000 + " nginx " * 30
    found = cut(text, "nginx proxy", asked("nginx proxy"), 400)
    assert found.by == "close"
    assert "proxy sat before nginx" in found.of_text(text)


def test_single_words_where_nothing_better_is_there() -> None:
    text = "a" * 1_000 + " nginx " + "b" * 1_000 + " nginx nginx " + "c" * 1_000
    found = cut(text, "nginx kubernetes", asked("nginx kubernetes"), 300)
    assert found.by == "words"
    assert (found.places, found.of) == (2, 3)
    assert "nginx nginx" in found.of_text(text)


def test_without_any_match_the_beginning() -> None:
    assert cut("z" * 500, "nginx", asked("nginx"), 100) == Cut(0, 100, "nothing")


def test_chinese() -> None:
    text = "天气" * 300 + "登录失败的原因是密钥过期" + "天气" * 300
    found = cut(text, "登录失败", asked("登录失败"), 200)
    assert found.by == "phrase"
    assert "密钥过期" in found.of_text(text)


def test_how_close_is_close() -> None:
    folded = "alpha" + " " * (CLOSE - 5) + "beta" + "." * 1_000 + "alpha" + " " * (CLOSE + 5) + "beta"
    assert places_of(folded, "alpha beta", asked("alpha beta")) == ("close", [0])


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=60), st.integers(1, 6_000), st.integers(10, 2_000))
def test_the_window_holds_as_many_as_any_such_window(places: list[int], length: int, most: int) -> None:
    inside = sorted(place for place in places if place < length)
    if not inside or length <= most:
        return
    found = best_window(inside, length, most)
    assert 0 <= found.start < found.end <= length
    assert found.end - found.start == most
    held = sum(found.start <= place < found.end for place in inside)
    assert held == found.places
    for place in inside:
        start = max(0, min(place - int(most * 0.25), length - most))
        assert held >= sum(start <= other < start + most for other in inside)


@given(
    st.text(alphabet="ab nginx.登录", max_size=400), st.text(alphabet="ab nginx登录", max_size=20), st.integers(1, 200)
)
def test_never_longer_than_allowed(text: str, question: str, most: int) -> None:
    found = cut(text, question, asked(question), most)
    assert len(found.of_text(text)) == min(len(text), most)


def test_a_megabyte_is_no_trouble() -> None:
    text = "nginx proxy " * 100_000
    assert cut(text, "nginx proxy tls", asked("nginx proxy tls")).by == "words"
