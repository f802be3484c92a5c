"""`herma review`: for people, for programs, and what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.testing import Answer, ScriptedModel

Type = Callable[..., Result]
TEA = "The user drinks green tea."


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), *words])


@pytest.fixture
def session(home: Path, server: ScriptedModel, typed: Type) -> str:
    """A conversation that was looked back at once: one entry kept, one not."""
    for key, value in (("model.url", server.url), ("model.name", "scripted"), ("review.at_end", "false")):
        assert typed("config", "set", key, value).exit_code == 0
    for key, value in (("memory.nudge_interval", "2"), ("embedding.model", "none"), ("model.retries", "0")):
        assert typed("config", "set", key, value).exit_code == 0
    server.then(
        Answer.calling("memory", {"action": "add", "target": "user", "content": TEA}),
        Answer.calling("memory", {"action": "add", "target": "user", "content": "The tests pass now."}),
        "nothing",
    )
    with Herma.open(home) as h, h.session() as s:
        for text in ("I drink green tea", "yes"):
            s.before_model(text)
            s.after_model("Fine.")
        assert h.reviews.wait(60)
    return s.id


def test_without_a_model_it_says_what_one_would_add(typed: Type) -> None:
    shown = typed("review", "status")
    assert shown.exit_code == 0
    assert "No model is set" in shown.output
    assert "in your own words" in shown.output
    value = json.loads(typed("review", "status", "--json").output)
    assert (value["ok"], value["model"], value["owed"], value["last"]) == (True, None, 0, None)
    assert "Nothing was looked back at yet" in typed("review", "log").output


def test_log_and_show(typed: Type, session: str) -> None:
    listed = typed("review", "log").output
    assert "after a reply" in listed
    assert "1 written, 1 not kept" in listed
    shown = typed("review", "show", "1").output
    for text in (TEA, "The tests pass now.", "which is over soon", "scripted", "3 steps", session, "review undo 1"):
        assert text in shown
    (one,) = json.loads(typed("review", "log", "--session", session, "--json").output)["reviews"]
    assert (one["state"], one["refusals"], one["kind"]) == ("done", {"status": 1}, "turn")
    assert json.loads(typed("review", "show", "1", "--json").output)["review"] == one
    status = typed("review", "status").output
    assert "scripted" in status
    assert "1 written" in status


def test_undo_after_a_dry_run(home: Path, typed: Type, session: str) -> None:
    assert session
    tried = typed("review", "undo", "1", "--dry-run").output
    assert "would be taken back" in tried
    with Herma.open(home) as h:
        assert h.memory.entries("user") == [TEA]
    assert "undone" in typed("review", "undo", "1").output
    with Herma.open(home) as h:
        assert h.memory.entries("user") == []
    assert "undone already" in typed("review", "undo", "1").output


def test_run(home: Path, typed: Type, session: str, server: ScriptedModel) -> None:
    server.then('{"memory": [{"action": "add", "target": "memory", "content": "Tests run with make check."}]}')
    ran = typed("review", "run", session)
    assert ran.exit_code == 0
    assert "1 written" in ran.output
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["Tests run with make check."]
    again = typed("review", "run", session)
    assert again.exit_code != 0
    assert "was already" in again.stderr


def test_what_is_wrong_is_said(typed: Type) -> None:
    for words, said in (
        (("review", "show", "7"), "There is no look back 7."),
        (("review", "undo", "7"), "There is no look back 7."),
        (("review", "run", "nowhere"), "nowhere"),
        (("review", "shw"), "Did you mean show?"),
    ):
        result = typed(*words)
        assert result.exit_code != 0
        assert said in result.stderr


def test_a_mistake_in_the_settings_is_said(typed: Type) -> None:
    result = typed("config", "set", "review.writes", "maybe")
    assert result.exit_code != 0
    assert "one of apply, stage" in result.stderr
    assert typed("review", "status").exit_code == 0
