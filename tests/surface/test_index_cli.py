"""`herma index`: looked at, checked, rebuilt, embedded and dropped; nothing of it can cost a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.index.sync import MOST_INDEXED
from herma.testing import ScriptedModel

MESSAGES = 60


def herma(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *words])


def index(home: Path, *words: str) -> Result:
    return herma(home, "index", *words)


def as_json(home: Path, *words: str) -> Any:
    return json.loads(index(home, *words, "--json").stdout)


@pytest.fixture
def full(home: Path) -> Path:
    with Herma.open(home) as h:
        one = h.transcripts.start("cli")
        h.transcripts.append(one, [{"role": "user", "content": f"kingfisher {n}"} for n in range(MESSAGES)])
    return home


def finds(home: Path) -> bool:
    return herma(home, "search", "kingfisher").exit_code == 0


def test_from_nothing_to_up_to_date_and_dropped(full: Path) -> None:
    assert f"{MESSAGES} messages" in index(full, "status").stdout
    assert index(full, "rebuild").stdout.startswith(f"Rebuilt: {MESSAGES} messages indexed, up to date")
    status = as_json(full, "status")
    assert (status["messages"], status["stored_messages"], status["lag"]) == (MESSAGES, MESSAGES, 0)
    assert status["there"] is True
    assert status["size"] > 0
    assert "The index matches the transcripts." in index(full, "status", "--verify").stdout
    assert as_json(full, "status", "--verify") == {"ok": True, "trouble": None, "rebuilt": False}
    refused = index(full, "rebuild", "--drop")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert as_json(full, "status")["there"] is True
    assert as_json(full, "rebuild", "--drop", "--yes") == {"ok": True, "dropped": True}
    assert as_json(full, "status")["messages"] == 0
    assert finds(full)


def test_messages_that_are_indexed_in_part_are_counted(full: Path) -> None:
    long = MOST_INDEXED // 2 * "汉"  # more bytes, but not more characters
    with Herma.open(full) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": text} for text in (long, 2 * long + "尾")])
    assert as_json(full, "status")["cut"] == 1
    assert "1 message longer than 4,000,000 characters" in index(full, "status").stdout


def test_an_empty_home_stays_empty(tmp_path: Path) -> None:
    home = tmp_path / "empty"
    assert "no messages yet" in index(home, "status").stdout
    assert index(home, "rebuild", "--drop", "--yes").stdout == "There is no index.\n"
    for words in ("status", "rebuild"):
        assert index(home, words).exit_code == 0, words


@pytest.mark.parametrize("harm", [b"", b"not a database at all" * 1000])
def test_a_damaged_index_is_found_and_built_anew(full: Path, harm: bytes) -> None:
    index(full, "rebuild")
    (full / "index.db").write_bytes(harm)
    checked = as_json(full, "status", "--verify")
    assert checked["rebuilt"] is True
    assert checked["trouble"]
    assert as_json(full, "status")["messages"] == MESSAGES
    assert finds(full)


def test_every_command_has_examples_and_refuses_what_it_does_not_know(full: Path) -> None:
    for name in ("status", "rebuild", "embed"):
        assert "Examples:" in index(full, name, "--help").stdout
        refused = index(full, name, "--nonsense", "--json")
        assert refused.exit_code == 2
        assert json.loads(refused.stdout)["ok"] is False


def test_a_home_that_cannot_be_written_is_told_what_happens_instead(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    assert "searches read the newest 500 of them one by one instead" in index(full, "status").stdout


# ── embedding ──


def settle(home: Path, url: str) -> None:
    lines = ["embedding:", "  model: endpoint", f"  url: {url}", "  endpoint_model: tiny", "  timeout: 1"]
    (home / "config.yaml").write_text("\n".join(lines), encoding="utf-8")


def test_everything_is_embedded_once_and_another_model_begins_anew(full: Path) -> None:
    with ScriptedModel() as endpoint:
        settle(full, endpoint.url)
        before = as_json(full, "status")["vectors"]
        assert (before["vectors"], before["messages_left"], before["trouble"]) == (0, MESSAGES, None)
        assert f"{MESSAGES} messages to be embedded" in index(full, "status").stdout
        assert f": {MESSAGES}, up to date" in index(full, "embed").stdout
        asked = len(endpoint.requests)
        after = as_json(full, "embed")
        assert after["ok"] is True
        assert (after["vectors"]["messages_left"], after["vectors"]["vectors"]) == (0, MESSAGES)
        assert "tiny" in after["vectors"]["model"]
        assert f"{MESSAGES}, up to date" in index(full, "rebuild").stdout
        texts = [text for one in endpoint.requests[asked:] for text in one.body.get("input", [])]
        assert not any("kingfisher" in text for text in texts)  # nothing that has its vector is embedded again
        config = full / "config.yaml"
        config.write_text(config.read_text().replace("tiny", "other"))
        status = as_json(full, "status")["vectors"]
        assert status["messages_left"] == MESSAGES
        assert list(status["other_models"].values()) == [MESSAGES]
        assert "of another model; they will be removed" in index(full, "status").stdout
        assert finds(full)


def test_a_dead_endpoint_is_said_and_costs_no_search(full: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.models.embedder._FIRST_PAUSE", 3_600.0)  # it is not tried again
    with ScriptedModel() as model:
        settle(full, model.url)
    failed = index(full, "embed")
    assert failed.exit_code == 1
    assert "! Embedding:" in failed.stdout
    assert as_json(full, "status")["vectors"]["failures"] >= 1
    assert "failed" in herma(full, "doctor").stdout
    assert finds(full)


@pytest.mark.parametrize("config", ["", "embedding:\n  model: e5-small\n"])
def test_without_an_embedder_it_says_what_to_type(full: Path, config: str) -> None:
    (full / "config.yaml").write_text(config)
    done = index(full, "embed")
    assert done.exit_code == 1
    assert "herma models install e5-small" in done.stderr
    assert as_json(full, "embed")["error"]["code"] == "no_embedder"
    assert ("herma models install e5-small" in index(full, "status").stdout) is bool(config)
    assert finds(full)
