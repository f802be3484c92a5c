"""`herma index embed`, and vectors in status and rebuild: with an embedder that answers, that is dead, and without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.testing import ScriptedModel

MESSAGES = 60


def herma(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *words])


def as_json(home: Path, *words: str) -> Any:
    return json.loads(herma(home, *words, "--json").stdout)


def settle(home: Path, url: str) -> None:
    lines = ["embedding:", "  model: endpoint", f"  url: {url}", "  endpoint_model: tiny", "  timeout: 1"]
    (home / "config.yaml").write_text("\n".join(lines), encoding="utf-8")


@pytest.fixture
def full(home: Path) -> Path:
    with Herma.open(home) as h:
        one = h.transcripts.start("cli")
        h.transcripts.append(one, [{"role": "user", "content": f"kingfisher {n}"} for n in range(MESSAGES)])
    return home


@pytest.fixture
def endpoint() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


def test_everything_is_embedded_and_told(full: Path, endpoint: ScriptedModel) -> None:
    settle(full, endpoint.url)
    before = as_json(full, "index", "status")["vectors"]
    assert (before["vectors"], before["messages_left"], before["trouble"]) == (0, MESSAGES, None)
    assert f"{MESSAGES} messages to be embedded" in herma(full, "index", "status").stdout
    done = herma(full, "index", "embed")
    assert done.exit_code == 0, done.output
    assert f": {MESSAGES + 1}, up to date" in done.stdout
    asked = len(endpoint.requests)
    assert asked > 0
    after = as_json(full, "index", "embed")
    assert after["ok"] is True
    assert (after["vectors"]["messages_left"], after["vectors"]["vectors"]) == (0, MESSAGES + 1)
    assert "tiny" in after["vectors"]["model"]
    rebuilt = herma(full, "index", "rebuild")
    assert rebuilt.exit_code == 0, rebuilt.output
    assert f"{MESSAGES + 1}, up to date" in rebuilt.stdout
    texts = [text for one in endpoint.requests[asked:] for text in one.body.get("input", [])]
    assert not any("kingfisher" in text for text in texts)  # nothing that has its vector is embedded again


def test_another_model_begins_anew(full: Path, endpoint: ScriptedModel) -> None:
    settle(full, endpoint.url)
    assert herma(full, "index", "embed").exit_code == 0
    config = full / "config.yaml"
    config.write_text(config.read_text().replace("tiny", "other"))
    status = as_json(full, "index", "status")["vectors"]
    assert status["messages_left"] == MESSAGES
    assert list(status["other_models"].values()) == [MESSAGES + 1]
    assert "of another model; they will be removed" in herma(full, "index", "status").stdout
    assert herma(full, "search", "kingfisher").exit_code == 0


def test_a_dead_endpoint_is_said_and_costs_no_search(full: Path) -> None:
    with ScriptedModel() as model:
        settle(full, model.url)
    failed = herma(full, "index", "embed")
    assert failed.exit_code == 1
    assert "! Embedding:" in failed.stdout
    assert as_json(full, "index", "embed")["ok"] is False
    assert as_json(full, "index", "status")["vectors"]["failures"] >= 1
    assert "failed" in herma(full, "doctor").stdout
    assert herma(full, "search", "kingfisher").exit_code == 0


def test_without_an_embedder_it_says_what_to_type(full: Path) -> None:
    done = herma(full, "index", "embed")
    assert done.exit_code == 1
    assert "Type: herma models install e5-small" in done.stderr
    assert as_json(full, "index", "embed")["error"]["code"] == "no_embedder"
    assert as_json(full, "index", "status")["vectors"] is None


def test_a_model_that_is_asked_for_and_missing_is_named(full: Path) -> None:
    (full / "config.yaml").write_text("embedding:\n  model: e5-small\n")
    done = herma(full, "index", "embed")
    assert done.exit_code == 1
    assert "herma models install e5-small" in done.stderr
    assert "herma models install e5-small" in herma(full, "index", "status").stdout
    assert herma(full, "search", "kingfisher").exit_code == 0
