"""`herma brief`: what is known for a task, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.homes import talk

from herma import Add, Herma
from herma.cli.main import cli


@pytest.fixture
def filled(home: Path) -> Path:
    with Herma.open(home) as h:
        h.memory.apply("user", Add("User moved to Oslo"))
        with h.session(source="cli", project="shop") as s:
            talk(s, "run the tests of the shop", reply="All tests pass now.\n\nNext steps:\n- deploy it")
    return home


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "brief", *words])


def test_for_people(filled: Path) -> None:
    out = typed(filled, "run the shop tests", "--project", "shop").stdout
    assert "User moved to Oslo" in out
    assert "unfinished: run the tests of the shop → All tests pass now." in out
    assert "Next step: deploy it" in out


def test_for_programs(filled: Path) -> None:
    value = json.loads(typed(filled, "run the shop tests", "--json", "--project", "shop").stdout)
    assert [one["kind"] for one in value["blocks"]] == ["state", "memory", "episodes"]
    assert value["state"]["next_step"] == "deploy it"
    small = json.loads(typed(filled, "run", "the", "shop tests", "--json", "--budget", "5").stdout)
    assert [one["kind"] for one in small["blocks"]] == ["memory"]
    assert small["budget_tokens"] == 5
    assert any("never shortened" in note for note in small["notes"])


@pytest.mark.parametrize("words", [[], [" "], ["x", "--budget", "0"], ["x", "--project", ""]])
def test_what_is_wrong_is_said(filled: Path, words: list[str]) -> None:
    result = typed(filled, *words)
    assert result.exit_code == 2
    assert result.stderr.startswith("herma: ")
    assert result.stdout == ""
