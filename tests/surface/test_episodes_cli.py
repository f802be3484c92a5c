"""`herma episodes` and `herma facts`: for people, for programs, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Add, Herma
from herma.cli.main import cli
from herma.testing import FixedClock

Type = Callable[..., Result]


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), *words])


@pytest.fixture
def done(home: Path) -> list[str]:
    """Three conversations: one that failed and was resolved, one that succeeded, one that failed. → their ids."""
    clock = FixedClock()
    found = []
    with Herma.open(home, clock=clock) as h:
        with h.session(source="cli", project="shop") as s:
            s.before_model("run the tests of the shop")
            for number, command, output in (("1", "pytest", "ImportError: yaml"), ("2", "pip install yaml", "ok")):
                s.after_model(used(number, command, output))
            s.after_model(used("3", "pytest", "9 passed"))
            s.after_model("All tests pass now.\n\nNext steps:\n- deploy it")
        found.append(s.id)
        for said, answer in (
            ("draw the \x1b[31mhouse plan", "Drawn, done."),
            ("do the impossible", "I couldn't do it."),
        ):
            clock.advance(86_400)
            with h.session(source="cli") as s:
                s.before_model(said)
                s.after_model(answer)
            found.append(s.id)
    return found


def used(number: str, command: str, output: str) -> list[dict[str, Any]]:
    function = {"name": "terminal", "arguments": json.dumps({"command": command})}
    return [
        {"role": "assistant", "tool_calls": [{"id": number, "function": function}]},
        {"role": "tool", "tool_call_id": number, "content": output},
    ]


def test_nothing_yet(typed: Type) -> None:
    assert "No episodes yet" in typed("episodes", "list").stdout
    assert json.loads(typed("episodes", "list", "--json").stdout) == {"ok": True, "episodes": [], "more": False}
    assert "Nothing was put away" in typed("episodes", "digests").stdout
    assert "Nothing like it" in typed("episodes", "search", "x").stdout
    assert "No facts yet" in typed("facts", "list").stdout


def test_a_list_for_people_and_for_programs(typed: Type, done: list[str]) -> None:
    out = typed("episodes", "list").stdout
    assert "failed but resolved" in out
    assert "run the tests of the shop" in out
    assert "\x1b" not in out
    value = json.loads(typed("episodes", "list", "--json", "--limit", "2").stdout)
    assert [one["session"] for one in value["episodes"]] == [done[2], done[1]]
    assert value["more"] is True
    only = json.loads(typed("episodes", "list", "--json", "--outcome", "resolved", "--project", "shop").stdout)
    assert [one["session"] for one in only["episodes"]] == [done[0]]
    assert only["episodes"][0]["built_by"] == "rules"
    assert only["episodes"][0]["success"] is True


def test_one_episode(typed: Type, done: list[str]) -> None:
    for wanted in ("1", done[0]):
        out = typed("episodes", "show", wanted).stdout
        assert "failed but resolved: the error was overcome" in out
        assert "ImportError: yaml" in out
        assert "pip install yaml" in out
        assert "rules, without a model" in out
        assert "Next step: deploy it" in out
    value = json.loads(typed("episodes", "show", "1", "--json").stdout)
    assert value["episode"]["remedy"] == "terminal: pip install yaml; then terminal: pytest worked"
    assert value["state"]["open_tasks"] == ["deploy it"]


def test_finding(typed: Type, done: list[str]) -> None:
    out = typed("episodes", "search", "the", "house", "plans").stdout
    assert "draw the" in out
    value = json.loads(typed("episodes", "search", "shop tests", "--json").stdout)
    assert value["episodes"][0]["session"] == done[0]
    assert value["episodes"][0]["similarity"] > 0.5


def test_putting_away_and_bringing_back(typed: Type, done: list[str]) -> None:
    shown = typed("episodes", "forget", "--keep", "2", "--dry-run")
    assert "1 episode would be put away. Nothing was done." in shown.stdout
    assert "impossible" in shown.stdout
    refused = typed("episodes", "forget", "--keep", "2")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    gone = typed("episodes", "forget", "--keep", "2", "--yes")
    assert "Put away: 1 episode" in gone.stdout
    assert "episodes restore 3" in gone.stdout
    assert "do the impossible" in typed("episodes", "digests").stdout
    assert json.loads(typed("episodes", "digests", "--json").stdout)["digests"][0]["episodes"] == [3]
    assert "impossible" in typed("episodes", "list", "--archived").stdout
    assert "Back again: 3" in typed("episodes", "restore", "3").stdout
    assert "None of them" in typed("episodes", "restore", "3").stdout
    assert json.loads(typed("episodes", "forget", "3", "--yes", "--json").stdout)["kept"] == 2
    assert "Nothing to put away" in typed("episodes", "forget").stdout


def test_making_them_anew(typed: Type, done: list[str]) -> None:
    assert "Looked at 0 conversations" in typed("episodes", "rebuild").stdout
    value = json.loads(typed("episodes", "rebuild", "--all", "--json").stdout)
    assert (value["looked_at"], value["made"], value["empty"]) == (3, 3, 0)
    assert "1 episode" in typed("episodes", "rebuild", done[0]).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["show", "99"],
        ["show", "nosuch"],
        ["show"],
        ["restore", "99"],
        ["forget", "1", "--keep", "3"],
        ["list", "--outcome", "odd"],
        ["search"],
        ["rebuild", "nosuch"],
    ],
)
def test_what_is_wrong_is_said(typed: Type, done: list[str], words: list[str]) -> None:
    result = typed("episodes", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("herma: ")
    assert result.stdout == ""


# ── facts ──


@pytest.fixture
def known(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        h.memory.apply("user", Add("User lives in Rome"))
        clock.advance(60)
        h.memory.apply("user", Add("User moved to Oslo"))
        h.memory.apply("user", Add("Timezone: Europe/Oslo"))


def test_facts(typed: Type, known: None) -> None:
    out = typed("facts", "list").stdout
    assert "Oslo" in out
    assert "Rome" not in out
    assert typed("facts", "ask", "where do I live?").stdout.startswith("Oslo\n")
    history = json.loads(typed("facts", "history", "city", "--json").stdout)["facts"]
    assert [(one["value"], one["until"] is None) for one in history] == [("Oslo", True), ("Rome", False)]
    shown = typed("facts", "show", str(history[0]["id"])).stdout
    assert "User moved to Oslo" in shown
    assert "memory, change 2" in shown
    assert "Nothing is known" in typed("facts", "history", "shoe size").stdout


def test_questions_without_a_certain_answer(typed: Type, known: None) -> None:
    result = typed("facts", "ask", "what is my shoe size?")
    assert result.exit_code == 1
    assert "No certain answer" in result.stdout
    value = typed("facts", "ask", "--json", "tell me a joke")
    assert json.loads(value.stdout) == {"ok": False, "fact": None}


def test_facts_are_stated_and_forgotten(typed: Type, known: None) -> None:
    assert "shoe size = 42" in typed("facts", "set", "shoe size", "42").stdout
    assert typed("facts", "ask", "what is my shoe size?").stdout.startswith("42\n")
    assert typed("facts", "ask", "shoe", "size?").stdout.startswith("42\n")
    assert typed("facts", "ask", "size").exit_code == 1
    assert typed("facts", "ask", " ").exit_code == 2
    number = str(json.loads(typed("facts", "history", "shoe size", "--json").stdout)["facts"][0]["id"])
    assert "Would be forgotten" in typed("facts", "forget", number, "--dry-run").stdout
    assert "unforget" in typed("facts", "forget", number).stdout
    assert typed("facts", "ask", "what is my shoe size?").exit_code == 1
    assert "1 fact back again." in typed("facts", "unforget", number).stdout
    assert json.loads(typed("facts", "rebuild", "--json").stdout)["ok"] is True
    assert typed("facts", "ask", "what is my shoe size?").exit_code == 0


@pytest.mark.parametrize(
    "words", [["show", "99"], ["forget", "99"], ["ask"], ["set", "a"], ["show", "x"], ["set", "a", " "]]
)
def test_wrong_facts(typed: Type, words: list[str]) -> None:
    result = typed("facts", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("herma: ")
