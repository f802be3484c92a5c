"""`herma context show`: the window as a bar with numbers that add up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma import Add, Herma
from herma.cli.main import cli

Type = Callable[..., Result]
CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), "context", "show", *words])


@pytest.fixture
def stored(home: Path) -> str:
    with Herma.open(home) as h:
        h.memory.apply("user", Add("Likes tea."))
        with h.session(title="Garden", model="claude-sonnet-4") as session:
            session.before_model("look", recall="Roses need sun.")
            result = {"role": "tool", "tool_call_id": "call_1", "content": "row 1 of many\n" * 4000}
            session.after_model([{"role": "assistant", "content": None, "tool_calls": [CALL]}, result])
            session.before_model()
            session.after_model("done")
    return session.id


def test_a_stored_session(typed: Type, stored: str) -> None:
    done = typed("Garden")
    assert done.exit_code == 0, done.stderr
    title, _, bar, *lines = done.stdout.splitlines()
    assert stored in title
    assert "200,000 tokens" in title
    assert bar.startswith("[S")
    assert bar.endswith("]")
    for name in ("system prompt", "injected memory", "conversation", "tool results", "reply"):
        assert any(name in line for line in lines)
    assert "shortened; the transcript has the full results" in done.stdout
    assert "estimated" in done.stdout


def test_for_programs(typed: Type, stored: str) -> None:
    for words in ([stored], [stored[:-2]], []):
        value = json.loads(typed(*words, "--json").stdout)
        assert value["session"] == stored
    slots = value["slots"]
    assert value["used"] == sum(slot["used"] for slot in slots.values())
    assert value["used"] + value["free"] == value["window"] == 200_000
    assert slots["tools"]["room"] == 70_000
    assert all(slots[name]["used"] > 0 for name in ("system", "memory", "conversation", "tools"))
    assert slots["reply"] == {"name": "reply", "room": 30_000, "used": 0, "over": 0}


def test_an_unknown_window_is_said(typed: Type, home: Path) -> None:
    done = typed()
    assert done.exit_code == 0
    assert "A new session" in done.stdout
    assert "no model is set: taken as 32,768 tokens" in done.stdout
    assert not (home / "herma.db").exists()
    (home / "config.yaml").write_text("model:\n  name: homemade-7b\n")
    assert "the window of 'homemade-7b' is not known" in typed("--empty").stdout


def test_configuration(typed: Type, stored: str, home: Path) -> None:
    (home / "config.yaml").write_text("context:\n  window: 1000\n  profile: coding\n  shares: reply=5\n")
    value = json.loads(typed("--json").stdout)
    assert value["window"] == 1000
    assert {name: slot["room"] for name, slot in value["slots"].items()} == {
        "system": 250,
        "memory": 80,
        "conversation": 220,
        "tools": 300,
        "reply": 50,
    }
    assert "as configured" in value["note"]
    assert value["slots"]["system"]["over"] > 0
    assert {one["slot"] for one in value["overflows"]} >= {"system", "tools"}
    assert " over" in typed().stdout


@pytest.mark.parametrize("text", ["context: {profile: poker}", 'context: {shares: "memory=90, system=50"}'])
def test_shares_that_cannot_be(typed: Type, home: Path, text: str) -> None:
    (home / "config.yaml").write_text(text + "\n")
    done = typed()
    assert done.exit_code == 2
    assert "→" in done.stderr


@pytest.mark.parametrize("words", [["nosuch"], [""], ["x", "--empty"], ["a", "b"]])
def test_bad_input(typed: Type, stored: str, words: list[str]) -> None:
    done = typed(*words)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("herma: ")
