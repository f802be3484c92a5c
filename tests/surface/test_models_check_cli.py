"""`herma models check`: what it says of a language model that answers, of one that does not, and of none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.testing import Answer, Asked, ScriptedModel

Type = Callable[..., Result]
KEY = "sk-" + "y" * 40


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), "models", "check", *words])


def configure(home: Path, url: str, more: str = "") -> None:
    (home / "config.yaml").write_text(f"model:\n  url: {url}\n  name: m\n  api_key_env: MY_KEY\n{more}", "utf-8")
    (home / ".env").write_text(f"MY_KEY={KEY}\n", "utf-8")
    (home / ".env").chmod(0o600)


def able(asked: Asked) -> Answer:
    if "response_format" in asked.body:
        return Answer('{"colours": ["red", "blue"]}')
    return Answer.calling("current_time") if asked.tools else Answer("one two three four")


def test_no_model(typed: Type) -> None:
    done = typed()
    assert done.exit_code == 1
    assert "No model is set" in done.stdout
    assert "herma config set model.url" in done.stdout
    assert json.loads(typed("--json").stdout)["model"] is None


def test_a_model_that_answers(typed: Type, home: Path) -> None:
    with ScriptedModel(able, api_key=KEY) as server:
        configure(home, server.url)
        done = typed()
        assert done.exit_code == 0, done.stderr
        for said in (
            "The main model is m at 127.0.0.1",
            "It answers",
            "It streams: ",
            "It calls tools.",
            "It returns JSON when asked to",
            "not known",
        ):
            assert said in done.stdout
        configure(home, server.url, "prices:\n  by_model: m=1/2\n")
        found = json.loads(typed("--json", "--role", "auxiliary").stdout)
    assert (found["ok"], found["reachable"], found["streams"], found["calls_tools"]) == (True, True, True, True)
    assert found["keeps_to_a_form"] is True
    assert (found["price_known"], found["key_set"], found["key_variable"]) == (True, True, "MY_KEY")
    assert KEY not in done.stdout + done.stderr + json.dumps(found)


def test_a_model_that_can_less(typed: Type, home: Path) -> None:
    with ScriptedModel([Answer("one", says_usage=False), "I cannot.", "Red and blue."]) as server:
        configure(home, server.url)
        done = typed()
    for said in (
        "does not return valid JSON when asked to",
        "does not stream: one piece",
        "did not call a tool when asked to",
        "does not report token usage",
    ):
        assert said in done.stdout


def test_a_model_that_does_not_answer(typed: Type, home: Path) -> None:
    with ScriptedModel(api_key="another") as server:
        configure(home, server.url)
        done = typed()
        found = json.loads(typed("--json").stdout)
    assert done.exit_code == 3
    assert "rejected the key" in done.stdout
    assert (found["ok"], found["reachable"], bool(found["hint"])) == (False, False, True)
    assert KEY not in done.stdout + done.stderr + json.dumps(found)


def test_debug_shows_no_key(home: Path) -> None:
    with ScriptedModel([Answer.failing(400, f"bad key {KEY}")] * 3) as server:
        configure(home, server.url)
        for words in (["--debug"], ["--debug", "--json"]):
            done = CliRunner().invoke(cli, ["--home", str(home), "models", "check", *words])
            assert KEY not in done.stdout + done.stderr


def test_a_wrong_address_is_a_clear_error(typed: Type, home: Path) -> None:
    configure(home, "localhost:8080")
    done = typed()
    assert done.exit_code == 2
    assert "neither an address nor" in done.stderr


def test_work_that_rests_is_shown_and_goes_on_when_a_person_says_so(home: Path) -> None:
    typed_: Type = lambda *words: CliRunner().invoke(cli, ["--home", str(home), *words])  # noqa: E731
    configure(home, "http://127.0.0.1:9/v1")
    assert "Nothing is paused." in typed_("models", "check", "--resume").stdout
    with Herma.open(home) as h:
        for _ in range(3):
            h.models.pauses.judge("tidy", "m", "there is no list of merges in its answer")
    for words in (["cost"], ["doctor"]):
        done = typed_(*words)
        assert "tidy is paused until" in done.stdout.replace("\n", " "), done.stdout
        assert "herma models check --resume tidy" in " ".join(done.stdout.split())
    (rests,) = json.loads(typed_("cost", "--json").stdout)["background"]["resting"]
    assert (rests["purpose"], rests["model"]) == ("tidy", "m")
    assert "review is not paused" in typed_("models", "check", "--resume", "review").stdout
    wrong = typed_("models", "check", "--resume", "everything")
    assert wrong.exit_code == 2
    assert "not a purpose of background work" in wrong.stderr
    assert json.loads(typed_("models", "check", "--resume", "--json").stdout)["resumed"][0]["purpose"] == "tidy"
    assert "rests" not in typed_("cost").stdout
