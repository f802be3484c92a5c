"""`herma learned`: for people, for programs, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.homes import Ran, herma, talk

from herma import Herma
from herma.testing import Answer, ScriptedModel

Type = Callable[..., Ran]
TEA = "The user drinks green tea."


@pytest.fixture
def typed(home: Path) -> Type:
    return partial(herma, home)


@pytest.fixture
def session(home: Path, server: ScriptedModel, typed: Type) -> str:
    """A conversation that was looked back at once: one entry kept, one not."""
    for key, value in (("model.url", server.url), ("model.name", "scripted"), ("review.at_end", "false")):
        assert typed("config", "set", key, value).code == 0
    for key, value in (("memory.nudge_interval", "2"), ("embedding.model", "none"), ("model.retries", "0")):
        assert typed("config", "set", key, value).code == 0
    server.then(
        Answer.calling("memory", {"action": "add", "target": "user", "content": TEA}),
        Answer.calling("memory", {"action": "add", "target": "user", "content": "The tests pass now."}),
        "nothing",
    )
    with Herma.open(home) as h, h.session() as s:
        for text in ("I drink green tea", "yes"):
            talk(s, text)
        assert h.reviews.wait(60)
    return s.id


def test_without_a_model_it_says_what_one_would_add(typed: Type) -> None:
    shown = typed("learned", "list")
    assert shown.code == 0
    assert "No model is set" in shown.out
    assert "in your own words" in shown.out
    value = typed("learned", "list", "--json").json
    assert (value["ok"], value["model"], value["owed"], value["last"]) == (True, None, 0, None)
    assert "No reviews yet" in typed("learned", "list").out


def test_log_and_show(typed: Type, session: str) -> None:
    listed = typed("learned", "list").out
    assert "after a reply" in listed
    assert "1 written, 1 refused" in listed
    shown = typed("learned", "show", "1").out
    for text in (TEA, "The tests pass now.", "outdated soon", "scripted", "3 steps", session, "learned undo 1"):
        assert text in shown
    (one,) = typed("learned", "list", "--session", session, "--json").json["reviews"]
    assert (one["state"], one["refusals"], one["kind"]) == ("done", {"status": 1}, "turn")
    assert typed("learned", "show", "1", "--json").json["review"] == one
    status = typed("learned", "list").out
    assert "scripted" in status
    assert "1 written" in status


def test_undo_after_a_dry_run(home: Path, typed: Type, session: str) -> None:
    assert session
    tried = typed("learned", "show", "1", "--undo", "--dry-run").out
    assert "would be undone" in tried
    with Herma.open(home) as h:
        assert h.memory.entries("user") == [TEA]
    assert "undone" in typed("learned", "show", "1", "--undo").out
    with Herma.open(home) as h:
        assert h.memory.entries("user") == []
    assert "undone already" in typed("learned", "show", "1", "--undo").out


def test_run(home: Path, typed: Type, session: str, server: ScriptedModel) -> None:
    server.then('{"memory": [{"action": "add", "target": "memory", "content": "Tests run with make check."}]}')
    ran = typed("learned", "run", session)
    assert ran.code == 0
    assert "1 written" in ran.out
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["Tests run with make check."]
    again = typed("learned", "run", session)
    assert again.code != 0
    assert "was already" in again.err


def test_what_is_wrong_is_said(typed: Type) -> None:
    for words, said in (
        (("learned", "show", "7"), "There is no review 7."),
        (("learned", "show", "7", "--undo"), "There is no review 7."),
        (("learned", "run", "nowhere"), "nowhere"),
        (("learned", "shw"), "Did you mean show?"),
    ):
        result = typed(*words)
        assert result.code != 0
        assert said in result.err
