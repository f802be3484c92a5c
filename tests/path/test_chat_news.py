"""What the chat tells before a prompt: what others wrote, what waits for a decision, and that a day is used up."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from herma import Add, Author, Herma, Origin, Remove, Who
from herma.agent.chat import Notices
from herma.testing import FixedClock, ScriptedModel


@pytest.fixture
def h(home: Path) -> Iterator[Herma]:
    with Herma.open(home, clock=FixedClock()) as opened:
        yield opened


def test_what_others_write_is_told_once(h: Herma) -> None:
    h.memory.apply("memory", Add("It was there before."))
    news = Notices(h)
    assert news.look(None) == []
    h.memory.apply("memory", Add("The build runs on ARM."), author=Author(Who.REVIEW, Origin.AGENT_CONCLUDED))
    h.memory.apply("user", Add("Likes tea."), author=Author(Who.TOOL, Origin.AGENT_CONCLUDED, session="mine"))
    h.memory.apply("user", Add("Likes cats."), author=Author(Who.TOOL, Origin.AGENT_CONCLUDED, session="other"))
    assert news.look(None, "mine") == ["Saved to MEMORY.md: The build runs on ARM.", "Saved to USER.md: Likes cats."]
    assert news.look(None, "mine") == []
    h.memory.apply("memory", Remove("The build"))
    assert news.look(None, "mine") == ["Removed from MEMORY.md: The build runs on ARM."]


def test_what_tidying_proposes_is_told(home: Path) -> None:
    with Herma.open(home, flags={"memory.memory_char_limit": 300}, clock=FixedClock()) as h:
        agent = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
        for number, name in enumerate(("anvil", "bellows", "crane", "drill")):
            fact = f"Machine number {number} is the {name}, which stands in hall {number * 7 + 1} of the plant."
            h.memory.apply("memory", Add(fact), author=agent)
        before = h.memory.entries("memory")
        news = Notices(h)
        news.look(None)
        assert news.look(None) == []
        assert not h.memory.apply("memory", Add("The plant is closed on Sundays."), author=agent).ok
        (line,) = news.look(None)
        assert line == "1 memory write waits for your decision: /memory pending"
        assert h.memory.entries("memory") == before


def test_what_waits_for_a_decision_is_told_when_it_comes(h: Herma) -> None:
    news = Notices(h)
    news.look(None)
    h.memory.apply("memory", Add("Said a web page."), author=Author(Who.TOOL, Origin.WEB, session="mine"))
    assert news.look(None, "mine") == ["1 memory write waits for your decision: /memory pending"]
    assert news.look(None, "mine") == []
    h.memory.apply("memory", Add("Said another one."), author=Author(Who.TOOL, Origin.WEB, session="mine"))
    assert news.look(None, "mine") == ["2 memory writes wait for your decision: /memory pending"]


def test_a_day_that_is_used_up_is_told_once(home: Path) -> None:
    with ScriptedModel(["word " * 400]) as server:
        flags = {"model.url": server.url, "model.name": "m", "spend.daily_tokens": 120}
        with Herma.open(home, flags=flags, clock=FixedClock()) as h:
            news = Notices(h)
            assert news.look(None) == []
            model = h.model("auxiliary", purpose="review")
            assert model is not None
            model.reply([{"role": "user", "content": "hi"}], max_tokens=20)
            (said,) = news.look(None)
            assert "has reached its daily cap" in said
            assert news.look(None) == []
