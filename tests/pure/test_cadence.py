"""When looking back is due, and what the user asked to be remembered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.review.gate import remember_request
from herma.review.rows import Counters, Due, after, due, hydrated, reviewed
from herma.types import CompletedTurn, Message


def call(name: str) -> Message:
    return Message("assistant", None, tool_calls=({"id": "1", "function": {"name": name, "arguments": "{}"}},))


def turn(*steps: str) -> CompletedTurn:
    messages = (Message("user", "hi"), *map(call, steps), Message("assistant", "ok"))
    return CompletedTurn(1, "hi", "ok", messages)


def test_counts_turns_and_work_and_begins_anew_after_a_write() -> None:
    counters = after(after(Counters(), turn("run", "run")), turn("run"))
    assert counters == Counters(turns=2, iterations=3)
    assert after(counters, turn("memory")) == Counters(turns=0, iterations=4)
    assert after(counters, turn("skill_manage", "run")) == Counters(turns=3, iterations=1)


def test_due_by_interval_and_never_with_zero() -> None:
    assert due(Counters(10, 3), 10, 10) == Due(memory=True)
    assert due(Counters(9, 10), 10, 10) == Due(skills=True)
    assert not due(Counters(1000, 1000), 0, 0)
    assert reviewed(Counters(10, 5), Due(memory=True)) == Counters(0, 5)


@given(st.lists(st.sampled_from(["", "run", "memory", "skill_manage"]), max_size=40), st.integers(1, 12))
def test_a_resumed_session_counts_on(steps: list[str], every: int) -> None:
    counters = Counters()
    messages: list[Message] = []
    for step in steps:
        one = turn(step) if step else turn()
        counters = after(counters, one)
        if (what := due(counters, every, 0)).memory:
            counters = reviewed(counters, what)
        messages += one.messages
    assert hydrated(messages, every) == counters


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Remember that I use tabs.", "I use tabs."),
        ("please remember: the staging host is db7", "the staging host is db7"),
        ("Thanks! Also, keep in mind the API limit is 50.", "the API limit is 50."),
        ("Can you remember that my cat is called Miso?", "my cat is called Miso"),
        ("Don't forget that we deploy on Fridays", "we deploy on Fridays"),
        ("From now on, remember that I prefer short answers", "I prefer short answers"),
        ("记住：我住在柏林", "我住在柏林"),
        ("请记住我喜欢简短的回答", "我喜欢简短的回答"),
        ("私はベルリンに住んでいると覚えておいて", "私はベルリンに住んでいる"),
        ("I want you to remember I use fish", "I use fish"),
        ("For future reference, I prefer metric units", "I prefer metric units"),
        ("note to self: standup is at nine", "standup is at nine"),
        ("store this: staging is at port 8099", "staging is at port 8099"),
        ("We deploy on Tuesdays, remember that.", "We deploy on Tuesdays"),
        ("never use emojis, and please keep it in mind!", "never use emojis"),
        ("Merk dir bitte, dass ich in Wien wohne", "ich in Wien wohne"),
        ("Bitte nicht vergessen: der Kunde heißt Hofer", "der Kunde heißt Hofer"),
        ("retiens que je préfère le thé", "je préfère le thé"),
        ("Recuerda que trabajo de noche", "trabajo de noche"),
        ("ricordati che uso i tab", "uso i tab"),
        ("запомни, что я живу в Риге", "я живу в Риге"),
        ("覚えておいて、私はベジタリアンです", "私はベジタリアンです"),
        ("기억해 줘, 나는 부산에 살아", "나는 부산에 살아"),
        ("Remember this.", ""),
        ("Save this to memory", ""),
        ("Please remember what this page says.", ""),
        ("Remember everything in the attachment.", ""),
        ("Hey, could you please remember that I'm allergic to nuts?", "I'm allergic to nuts"),
        ("Note that for later: our son is called Ben.", "our son is called Ben."),
    ],
)
def test_requests_to_remember(text: str, what: str) -> None:
    assert remember_request(text) == what


@pytest.mark.parametrize(
    "text",
    [
        "Do you remember my name?",
        "I remember that we fixed it.",
        "What did you remember about me?",
        "> remember that I use tabs",
        "```\nremember that x = 1\n```",
        "Remember when we deployed on a Friday?",
        "The function remembers the last value.",
        "Note the difference between the two",
        "Can you remember how this works?",
        "store this in the cache",
        "Recuerdas que trabajo de noche?",
        "Ich merke mir nie, wie das heißt",
        "I wrote it down, I remember that.",
        "",
    ],
)
def test_not_a_request_to_remember(text: str) -> None:
    assert remember_request(text) is None


@pytest.mark.parametrize("mark", ["-", "a, ", "bitte,", "remember -", "merk dir "])
def test_long_lines_ask_for_nothing_twice(mark: str) -> None:
    """Reading is linear: a line of dashes is no riddle."""
    found = remember_request(mark * 4_000)
    assert found is None or len(found) <= 600
