"""`herma episodes` and `herma memory facts`: for people, for programs, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.homes import talk

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
                talk(s, said, reply=answer)
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
    assert "No archived episodes" in typed("episodes", "list", "--by-month").stdout
    assert "No similar episodes" in typed("episodes", "list", "x").stdout
    assert "No facts yet" in typed("memory", "facts", "list").stdout


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
    out = typed("episodes", "list", "the", "house", "plans").stdout
    assert "draw the" in out
    value = json.loads(typed("episodes", "list", "shop tests", "--json").stdout)
    assert value["episodes"][0]["session"] == done[0]
    assert value["episodes"][0]["similarity"] > 0.5


def test_archiving_and_restoring(typed: Type, done: list[str]) -> None:
    shown = typed("episodes", "archive", "--keep", "2", "--dry-run")
    assert "1 episode would be archived. Nothing was changed." in shown.stdout
    assert "impossible" in shown.stdout
    refused = typed("episodes", "archive", "--keep", "2")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    gone = typed("episodes", "archive", "--keep", "2", "--yes")
    assert "Archived 1 episode" in gone.stdout
    assert "episodes archive --undo 3" in gone.stdout
    assert "do the impossible" in typed("episodes", "list", "--by-month").stdout
    assert json.loads(typed("episodes", "list", "--by-month", "--json").stdout)["digests"][0]["episodes"] == [3]
    assert "impossible" in typed("episodes", "list", "--archived").stdout
    assert "Would be restored: 3" in typed("episodes", "archive", "--undo", "3", "--dry-run").stdout
    assert "Restored: 3" in typed("episodes", "archive", "--undo", "3").stdout
    assert "None of these" in typed("episodes", "archive", "--undo", "3").stdout
    assert json.loads(typed("episodes", "archive", "3", "--yes", "--json").stdout)["kept"] == 2
    assert "Nothing to archive" in typed("episodes", "archive").stdout


def test_making_them_anew(typed: Type, done: list[str]) -> None:
    assert "Read 0 conversations" in typed("index", "rebuild", "--episodes").stdout
    value = json.loads(typed("index", "rebuild", "--episodes", "--all", "--json").stdout)
    assert (value["looked_at"], value["made"], value["empty"]) == (3, 3, 0)
    assert "1 episode" in typed("index", "rebuild", "--episodes", done[0]).stdout


@pytest.mark.parametrize(
    "words",
    [
        ["show", "99"],
        ["show", "nosuch"],
        ["show"],
        ["archive", "--undo", "99"],
        ["archive", "--undo"],
        ["archive", "1", "--keep", "3"],
        ["list", "--outcome", "odd"],
    ],
)
def test_what_is_wrong_is_said(typed: Type, done: list[str], words: list[str]) -> None:
    assert typed("index", "rebuild", "nosuch").exit_code == 2
    result = typed("episodes", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("herma: ")
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("episodes forget --keep 2 --dry-run", "episodes archive --keep 2 --dry-run"),
        ("episodes restore 1", "episodes archive --undo 1"),
        ("episodes digests", "episodes list --by-month"),
        ("restore the shop", "brief the shop"),
        ("review log", "learned list"),
        ("review status", "learned list"),
    ],
)
def test_old_spellings_work_and_say_the_new_one(typed: Type, done: list[str], old: str, new: str) -> None:
    before, after = typed(*old.split()), typed(*new.split())
    assert (before.exit_code, before.stdout) == (after.exit_code, after.stdout)
    assert "is now" in before.stderr


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
    out = typed("memory", "facts", "list").stdout
    assert "Oslo" in out
    assert "Rome" not in out
    assert typed("memory", "facts", "ask", "where do I live?").stdout.startswith("Oslo\n")
    history = json.loads(typed("memory", "facts", "list", "city", "--json").stdout)["facts"]
    assert [(one["value"], one["until"] is None) for one in history] == [("Oslo", True), ("Rome", False)]
    shown = typed("memory", "facts", "list", str(history[0]["id"])).stdout
    assert "User moved to Oslo" in shown
    assert "memory, change m2" in shown
    assert "No fact about" in typed("memory", "facts", "list", "shoe size").stdout


def test_questions_without_a_certain_answer(typed: Type, known: None) -> None:
    result = typed("memory", "facts", "ask", "what is my shoe size?")
    assert result.exit_code == 1
    assert "No certain answer" in result.stdout
    value = typed("memory", "facts", "ask", "--json", "tell me a joke")
    assert json.loads(value.stdout) == {"ok": True, "fact": None}


def test_facts_are_stated_and_forgotten(typed: Type, known: None) -> None:
    assert "shoe size = 42" in typed("memory", "facts", "set", "shoe size", "42").stdout
    assert typed("memory", "facts", "ask", "what is my shoe size?").stdout.startswith("42\n")
    assert typed("memory", "facts", "ask", "shoe", "size?").stdout.startswith("42\n")
    assert typed("memory", "facts", "ask", "size").exit_code == 1
    assert typed("memory", "facts", "ask", " ").exit_code == 2
    number = str(json.loads(typed("memory", "facts", "list", "shoe size", "--json").stdout)["facts"][0]["id"])
    assert "Would be forgotten" in typed("memory", "facts", "forget", number, "--dry-run").stdout
    assert "forget --undo" in typed("memory", "facts", "forget", number).stdout
    assert typed("memory", "facts", "ask", "what is my shoe size?").exit_code == 1
    assert "Used again: " in typed("facts", "unforget", number).stdout
    assert json.loads(typed("index", "rebuild", "--facts", "--json").stdout)["ok"] is True
    assert typed("memory", "facts", "ask", "what is my shoe size?").exit_code == 0


@pytest.mark.parametrize("words", [["list", "99"], ["forget", "99"], ["ask"], ["set", "a"], ["set", "a", " "]])
def test_wrong_facts(typed: Type, words: list[str]) -> None:
    result = typed("memory", "facts", *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("herma: ")
