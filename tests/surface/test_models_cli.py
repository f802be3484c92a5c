"""`herma models`: embedding models, and what `check` says of a language model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.homes import Ran, herma
from tests.tiny_bert import write_folder

from herma import Herma
from herma.testing import Answer, Asked, ScriptedModel


@dataclass(frozen=True)
class Shell:
    home: Path
    folder: Path

    def __call__(self, *words: str, **env: str) -> Ran:
        environ = {"HERMA_MODELS": str(self.folder), **env}
        return herma(self.home, "models", *words, env=environ)

    def installed(self) -> Path:
        """As if e5-small had been installed: another model in its place."""
        place = write_folder(self.folder / "e5-small")
        sizes = {path.name: path.stat().st_size for path in place.iterdir()}
        said = {"name": "e5-small", "revision": "abc", "dimension": 32, "heads": 4, "max_tokens": 24, "pooling": "mean",
                "query_prefix": "", "passage_prefix": "", "multilingual": False, "sizes": sizes}  # fmt: skip
        (place / "herma.json").write_text(json.dumps(said))
        return place


@pytest.fixture
def models(home: Path, tmp_path: Path) -> Shell:
    return Shell(home, tmp_path / "models")


def test_the_list_without_any(models: Shell) -> None:
    ran = models("list")
    assert ran.code == 0
    assert "not installed" in ran.out
    assert "Search uses words alone: e5-small is not installed (herma models install e5-small)." in ran.out
    said = models("list", "--json").json
    assert said["used"] is None
    assert [model["state"] for model in said["models"]] == ["not installed"]


def test_the_list_with_one(models: Shell) -> None:
    models.installed()
    said = models("list", "--json").json
    assert said["used"] == "e5-small:abc"
    assert said["models"][0]["state"] == "installed"
    (models.folder / "e5-small" / "vocab.txt").write_text("")
    assert "damaged" in models("list").out


def test_errors_are_one_sentence_and_a_next_step(models: Shell, tmp_path: Path) -> None:
    ran = models("install", "e6")
    assert ran.code == 2
    assert "e6 is neither a model that Herma knows, nor a folder, nor a model of the hub" in ran.err
    (tmp_path / "junk.whl").write_bytes(b"junk")
    ran = models("install", "e5-small", "--from", str(tmp_path / "junk.whl"))
    assert ran.code == 3
    assert "was not found in what was given, so nothing was installed" in ran.err
    assert "→" in ran.err
    ran = models("install", "e5-small", "--json", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path / "empty"))
    assert ran.code == 3
    assert ran.json["kind"] == "EmbedderError"
    assert ran.json["hint"]


def test_removing_asks_first(models: Shell) -> None:
    place = models.installed()
    assert models("remove", "e5-small", "--dry-run").code == 0
    assert place.is_dir()
    refused = models("remove", "e5-small")
    assert refused.code == 2
    assert "--yes" in refused.err
    ran = models("remove", "e5-small", "--yes")
    assert ran.code == 0
    assert "herma models install e5-small" in ran.out
    assert not place.exists()
    assert models("remove", "e5-small", "--yes").code == 2


def test_trying_a_model(models: Shell) -> None:
    models.installed()
    ran = models("test", "abc", "abc", "xyz")
    assert ran.code == 0
    assert "32 numbers per vector" in ran.out
    said = models("test", "abc", "abc", "xyz", "--json").json
    assert said["texts"][0] == {"text": "abc", "cosine": 1.0}
    assert said["runner"] == "onnxruntime"


def test_there_is_nothing_to_try(models: Shell) -> None:
    ran = models("test", "a", "b")
    assert ran.code == 3
    assert "No model to test: e5-small is not installed" in ran.err
    ran = models("test", "a", "b", HERMA_EMBEDDING_MODEL="none")
    assert "embedding.model is none" in ran.err


# ── the language model ──

Type = Callable[..., Ran]
KEY = "sk-" + "y" * 40


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: herma(home, "models", "check", *words)


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
    assert done.code == 1
    assert "No model is set" in done.out
    assert "herma config set model.url" in done.out
    assert typed("--json").json["model"] is None


def test_a_model_that_answers(typed: Type, home: Path) -> None:
    with ScriptedModel(able, api_key=KEY) as server:
        configure(home, server.url)
        done = typed()
        assert done.code == 0, done.err
        for said in (
            "The main model is m at 127.0.0.1",
            "It answers",
            "It streams: ",
            "It calls tools.",
            "It returns JSON when asked to",
            "not known",
        ):
            assert said in done.out
        configure(home, server.url, "prices:\n  by_model: m=1/2\n")
        found = typed("--json", "--role", "auxiliary").json
    assert (found["ok"], found["reachable"], found["streams"], found["calls_tools"]) == (True, True, True, True)
    assert found["keeps_to_a_form"] is True
    assert (found["price_known"], found["key_set"], found["key_variable"]) == (True, True, "MY_KEY")
    assert KEY not in done.out + done.err + json.dumps(found)


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
        assert said in done.out
    with ScriptedModel(["one", Answer.failing(400, "no tools here"), Answer.failing(400, "no schema")]) as server:
        configure(home, server.url)
        done = typed()
    assert "It does not call tools: 127.0.0.1" in done.out
    assert "It does not return JSON: 127.0.0.1" in done.out


def test_a_model_that_does_not_answer(typed: Type, home: Path) -> None:
    with ScriptedModel(api_key="another") as server:
        configure(home, server.url)
        done = typed()
        found = typed("--json").json
    assert done.code == 3
    assert "rejected the key" in done.out
    assert (found["ok"], found["reachable"], bool(found["hint"])) == (False, False, True)
    assert KEY not in done.out + done.err + json.dumps(found)


def test_debug_shows_no_key(home: Path) -> None:
    with ScriptedModel([Answer.failing(400, f"bad key {KEY}")] * 3) as server:
        configure(home, server.url)
        for words in (["--debug"], ["--debug", "--json"]):
            done = herma(home, "models", "check", *words)
            assert KEY not in done.out + done.err


def test_a_wrong_address_is_a_clear_error(typed: Type, home: Path) -> None:
    configure(home, "localhost:8080")
    done = typed()
    assert done.code == 2
    assert "neither an address nor" in done.err


def test_work_that_rests_is_shown_and_goes_on_when_a_person_says_so(home: Path) -> None:
    configure(home, "http://127.0.0.1:9/v1")
    assert "Nothing is paused." in herma(home, "models", "check", "--resume").out
    with Herma.open(home) as h:
        for _ in range(3):
            h.models.pauses.judge("tidy", "m", "there is no list of merges in its answer")
    for words in (["cost"], ["doctor"]):
        done = herma(home, *words)
        assert "tidy is paused until" in done.out.replace("\n", " "), done.out
        assert "herma models check --resume tidy" in " ".join(done.out.split())
    (rests,) = herma(home, "cost", "--json").json["background"]["resting"]
    assert (rests["purpose"], rests["model"]) == ("tidy", "m")
    assert "review is not paused" in herma(home, "models", "check", "--resume", "review").out
    wrong = herma(home, "models", "check", "--resume", "everything")
    assert wrong.code == 2
    assert "not a purpose of background work" in wrong.err
    assert herma(home, "models", "check", "--resume", "--json").json["resumed"][0]["purpose"] == "tidy"
    assert "rests" not in herma(home, "cost").out
