"""`herma index`: looked at, checked, rebuilt and dropped; nothing of it can cost a message."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.index.sync import MOST_INDEXED


def index(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "index", *words])


def as_json(home: Path, *words: str) -> Any:
    done = index(home, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def full(home: Path) -> Path:
    with Herma.open(home) as h:
        for n in range(30):
            one = h.transcripts.start("cli")
            h.transcripts.append(one, [{"role": "user", "content": f"kingfisher {n}"}])
    return home


def finds(home: Path) -> bool:
    return CliRunner().invoke(cli, ["--home", str(home), "search", "kingfisher"]).exit_code == 0


def test_from_nothing_to_up_to_date(full: Path) -> None:
    assert "30 messages" in index(full, "status").stdout
    assert index(full, "rebuild").stdout.startswith("Rebuilt: 30 messages indexed, up to date")
    status = as_json(full, "status")
    assert (status["messages"], status["stored_messages"], status["lag"]) == (30, 30, 0)
    assert status["there"] is True
    assert status["size"] > 0
    assert "The index is what the transcripts say." in index(full, "status", "--verify").stdout
    assert as_json(full, "status", "--verify") == {"ok": True, "trouble": None, "rebuilt": False}
    assert as_json(full, "rebuild")["messages"] == 30
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


def test_dropping_is_asked_for_and_costs_nothing(full: Path) -> None:
    index(full, "rebuild")
    refused = index(full, "rebuild", "--drop")
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert as_json(full, "status")["there"] is True
    assert as_json(full, "rebuild", "--drop", "--yes") == {"ok": True, "dropped": True}
    assert as_json(full, "status")["messages"] == 0
    assert finds(full)


@pytest.mark.parametrize("harm", [b"", b"not a database at all" * 1000])
def test_a_damaged_index_is_found_and_built_anew(full: Path, harm: bytes) -> None:
    index(full, "rebuild")
    (full / "index.db").write_bytes(harm)
    checked = as_json(full, "status", "--verify")
    assert checked["rebuilt"] is True
    assert checked["trouble"]
    assert as_json(full, "status")["messages"] == 30
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
