"""`herma cost`: numbers that add up, for people and for programs, and clear words where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.homes import Ran, herma, talk

from herma import Add, Herma
from herma.errors import SpendRefused
from herma.testing import Answer, FixedClock, ScriptedModel
from herma.types import Usage

Type = Callable[..., Ran]


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: herma(home, "cost", *words)


@pytest.fixture
def spent(home: Path) -> tuple[str, str]:
    """Two conversations, the first with a pause and a turn taken back. → their ids."""
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        with h.session(title="Garden") as first:
            for number in range(4):
                talk(first, f"question {number}", reply="answer")
                h.memory.apply("memory", Add(f"fact {number}"))
                clock.advance(301 if number == 1 else 10)
            first.rewind()
            talk(first, "again", reply="answer")
        clock.advance(86_400)
        with h.session() as second:
            second.before_model("hello \x1b[31mthere")
            second.after_model("hi", usage=Usage(input=100, output=5, cache_write=900, cost_usd=0.5))
    return first.id, second.id


def test_for_people(typed: Type, spent: tuple[str, str]) -> None:
    done = typed()
    assert done.code == 0, done.err
    assert all(session in done.out for session in spent)
    assert "idle for 5 min, longer than the cache lives (5 min)" in done.out
    assert "turns were rewound" in done.out
    assert "message 7" in done.out
    assert "Total: 6 calls" in done.out
    assert "more new tokens sent" in done.out
    assert "config set prices.input" in done.out
    assert "\x1b" not in done.out


def test_for_programs(typed: Type, spent: tuple[str, str]) -> None:
    value = typed("--json", "--calls").json
    assert value["ok"] is True
    assert [one["session"] for one in value["sessions"]] == list(reversed(spent))
    for key in ("calls", "reusable", "new", "output"):
        assert value["total"][key] == sum(one[key] for one in value["sessions"])
    assert value["total"]["calls"] == len(value["calls"]) == 6
    assert value["total"]["new"] == sum(call["new"] for call in value["calls"])
    assert [call["reason"] for call in value["breaks"]] == ["idle", "rewound"]
    assert value["total"]["usd"] is None
    assert value["sessions"][0]["usd"] == 0.5
    assert value["total"]["saved"]["tokens"] > 0


def test_money(typed: Type, spent: tuple[str, str], home: Path) -> None:
    (home / "config.yaml").write_text("prices: {input: 3, output: 15}\n")
    done = typed()
    assert "Money: 0.5" in done.out
    assert "prices.input" not in done.out
    value = typed("--json").json
    assert value["total"]["usd"] == pytest.approx(sum(one["usd"] for one in value["sessions"]))
    assert value["total"]["afresh_every_turn"]["usd"] > value["total"]["usd"] - 0.5
    assert value["total"]["saved"]["usd"] > 0
    assert "USD" in typed("--calls").out


def test_one_conversation_and_a_time(typed: Type, spent: tuple[str, str]) -> None:
    first, second = spent
    for wanted in (first, "Garden", first[:17]):
        value = typed("--session", wanted, "--json").json
        assert [one["session"] for one in value["sessions"]] == [first]
    assert typed("--since", "2023-11-15", "--json").json["sessions"][0]["session"] == second
    assert "No calls yet" in typed("--since", "1d").out
    listed = typed("--session", "Garden", "--calls", "--limit", "2")
    assert "The newest 2 of 5" in listed.out
    assert "from message 7 on" in listed.out


@pytest.mark.parametrize(
    "words", [["--session", "nosuch"], ["--session", ""], ["--since", "soonish"], ["--limit", "0"], ["extra"]]
)
def test_bad_input(typed: Type, spent: tuple[str, str], words: list[str]) -> None:
    done = typed(*words)
    assert done.code == 2
    assert done.out == ""
    assert done.err.startswith("herma: ")
    assert "Traceback" not in done.err
    assert typed(*words, "--json").json["ok"] is False


def test_background_work_has_a_part_of_its_own(typed: Type, home: Path) -> None:
    done = typed()
    assert (done.code, "No calls yet" in done.out, "Background" in done.out) == (0, True, False)
    empty = typed("--json").json["background"]
    assert (empty["model_set"], empty["daily_usd"], empty["daily_tokens"]) == (False, 0.0, 0)
    with ScriptedModel([Answer("x", usage=Usage(100, 20)), Answer("y", usage=Usage(10, 2))]) as server:
        (home / "config.yaml").write_text(
            f"model:\n  url: {server.url}\n  name: m\nprices:\n  by_model: m=1/10\n", "utf-8"
        )
        assert "Background work today: 0 calls, 0 of 1,000,000 tokens, 0.0000 of 0.50 USD." in typed().out
        with Herma.open(home) as h:
            for purpose in ("review", "tidy"):
                model = h.model("auxiliary", purpose=purpose)
                assert model is not None
                model.reply([{"role": "user", "content": "hi"}])
        done = typed()
        assert done.code == 0, done.err
        assert "Background work today: 2 calls, 132 of 1,000,000 tokens, 0.0003 of 0.50 USD." in done.out
        assert "review" in done.out
        found = typed("--json").json["background"]
        assert found["by_purpose_today"]["review"]["tokens"] == 120
        assert found["spent_since"]["calls"] == 2
        assert "background" not in json.loads(typed("--json", "--session", "none such").out or "{}")
        assert [(one["purpose"], one["tokens"], one["ended"]) for one in found["newest_calls"]] == [
            ("tidy", 12, True),
            ("review", 120, True),
        ]
        assert len(found["days"]) == 30
        assert found["days"][-1] == {"day": found["today"], **found["spent_today"]}
        assert found["stopped"] == []
    (home / "config.yaml").write_text("spend:\n  daily_usd: 0\n", "utf-8")
    assert "no model is configured" in typed().out


def test_what_the_cap_stopped_is_said_to_whoever_looks_later(typed: Type, home: Path) -> None:
    with ScriptedModel() as server:
        (home / "config.yaml").write_text(
            f"model:\n  url: {server.url}\n  name: m\nspend:\n  daily_tokens: 9\n", "utf-8"
        )
        for _ in range(2):  # two programs, one after the other
            with Herma.open(home) as h:
                model = h.model("auxiliary", purpose="tidy")
                assert model is not None
                for _ in range(2):
                    with pytest.raises(SpendRefused):
                        model.reply([{"role": "user", "content": "hi"}])
        assert server.requests == []
        done = typed()
        assert done.out.count("The daily cap on background work does not allow tidy") == 1
        (stopped,) = typed("--json").json["background"]["stopped"]
    assert (stopped["purpose"], stopped["times"]) == ("tidy", 2)
    assert "spend.daily_tokens" in stopped["notice"]
    assert (home / "logs" / "spending.jsonl").stat().st_mode & 0o077 == 0
