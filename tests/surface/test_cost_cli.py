"""`herma cost`: numbers that add up, for people and for programs, and clear words where there are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma import Add, Herma
from herma.cli.main import cli
from herma.testing import FixedClock
from herma.types import Usage

Type = Callable[..., Result]


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), "cost", *words])


@pytest.fixture
def spent(home: Path) -> tuple[str, str]:
    """Two conversations, the first with a pause and a turn taken back. → their ids."""
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        with h.session(title="Garden") as first:
            for number in range(4):
                first.before_model(f"question {number}")
                first.after_model("answer")
                h.memory.apply("memory", Add(f"fact {number}"))
                clock.advance(301 if number == 1 else 10)
            first.rewind()
            first.before_model("again")
            first.after_model("answer")
        clock.advance(86_400)
        with h.session() as second:
            second.before_model("hello \x1b[31mthere")
            second.after_model("hi", usage=Usage(input=100, output=5, cache_write=900, cost_usd=0.5))
    return first.id, second.id


def test_nothing_yet(typed: Type) -> None:
    done = typed()
    assert done.exit_code == 0
    assert "No calls yet" in done.stdout
    assert json.loads(typed("--json").stdout)["total"]["calls"] == 0


def test_for_people(typed: Type, spent: tuple[str, str]) -> None:
    done = typed()
    assert done.exit_code == 0, done.stderr
    assert all(session in done.stdout for session in spent)
    assert "idle for 5 min, longer than the cache lives (5 min)" in done.stdout
    assert "turns were taken back" in done.stdout
    assert "message 7" in done.stdout
    assert "In sum: 6 calls" in done.stdout
    assert "more tokens sent anew" in done.stdout
    assert "config set prices.input" in done.stdout
    assert "\x1b" not in done.stdout


def test_for_programs(typed: Type, spent: tuple[str, str]) -> None:
    value = json.loads(typed("--json", "--calls").stdout)
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
    assert "Money: 0.5" in done.stdout
    assert "prices.input" not in done.stdout
    value = json.loads(typed("--json").stdout)
    assert value["total"]["usd"] == pytest.approx(sum(one["usd"] for one in value["sessions"]))
    assert value["total"]["afresh_every_turn"]["usd"] > value["total"]["usd"] - 0.5
    assert value["total"]["saved"]["usd"] > 0
    assert "USD" in typed("--calls").stdout


def test_one_conversation_and_a_time(typed: Type, spent: tuple[str, str]) -> None:
    first, second = spent
    for wanted in (first, "Garden", first[:17]):
        value = json.loads(typed("--session", wanted, "--json").stdout)
        assert [one["session"] for one in value["sessions"]] == [first]
    assert json.loads(typed("--since", "2023-11-15", "--json").stdout)["sessions"][0]["session"] == second
    assert "No calls yet" in typed("--since", "1d").stdout
    listed = typed("--session", "Garden", "--calls", "--limit", "2")
    assert "The newest 2 of 5" in listed.stdout
    assert "from message 7 on" in listed.stdout


def test_what_was_purged_is_still_counted(typed: Type, spent: tuple[str, str], home: Path) -> None:
    first, _ = spent
    with Herma.open(home) as h:
        h.transcripts.delete(first)
    with Herma.open(home, clock=FixedClock(9e9)) as h:
        h.transcripts.purge_expired()
    assert "(gone)" in typed().stdout
    assert json.loads(typed("--session", first, "--json").stdout)["total"]["calls"] == 5


@pytest.mark.parametrize(
    "words", [["--session", "nosuch"], ["--session", ""], ["--since", "soonish"], ["--limit", "0"], ["extra"]]
)
def test_bad_input(typed: Type, spent: tuple[str, str], words: list[str]) -> None:
    done = typed(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("herma: ")
    assert "Traceback" not in done.stderr
    assert json.loads(typed(*words, "--json").stdout)["ok"] is False
