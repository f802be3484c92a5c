"""`herma context recall` and `show --recalled`, `herma search --expand --summarize`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.homes import talk

from herma import Herma
from herma.cli.main import cli
from herma.testing import ScriptedModel

QUESTION = "Which hash did we settle on for the passwords of the Quillon service?"


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *words])


def as_json(home: Path, *words: str) -> Any:
    return json.loads(typed(home, *words, "--json").stdout)


@pytest.fixture
def filled(home: Path) -> str:
    with Herma.open(home) as h:
        for number in range(40):
            id_ = h.transcripts.start(source="cli", title=f"Errand {number}")
            h.transcripts.append(id_, [{"role": "user", "content": f"Errand number {number} is about the garden."}])
        id_ = h.transcripts.start(source="cli", title="Hashing")
        h.transcripts.append(
            id_,
            [
                {"role": "user", "content": "Which hash should the Quillon service use for passwords?"},
                {"role": "assistant", "content": "Argon2id: we settle on it for all passwords of Quillon."},
            ],
        )
    return id_


def with_model(home: Path, server: ScriptedModel) -> None:
    (home / "config.yaml").write_text(f"model:\n  url: {server.url}\n  name: m\n  retries: 0\n", "utf-8")


# ── what is recalled ──


def test_what_would_be_told(home: Path, filled: str) -> None:
    done = typed(home, "context", "recall", QUESTION)
    assert done.exit_code == 0, done.stderr
    assert "Recalled:" in done.stdout
    assert "Argon2id" in done.stdout
    assert "score" in done.stdout
    found = as_json(home, "context", "recall", QUESTION)
    assert found["outcome"] == "recalled"
    assert found["weighed"][0]["session_id"] == filled
    assert found["weighed"][0]["told"]
    assert found["enabled"]


def test_why_nothing_would_be_told(home: Path, filled: str) -> None:
    assert filled
    assert "no words to search for" in typed(home, "context", "recall", "how", "are", "you").stdout
    garden = typed(home, "context", "recall", "bake a sourdough loaf about the garden")
    assert "no past message is relevant enough" in garden.stdout
    typed(home, "config", "set", "search.prefetch", "off")
    assert "Recall is off" in typed(home, "context", "recall", QUESTION).stdout


def test_what_was_told(home: Path, filled: str) -> None:
    assert "no session yet" in typed(home.parent / "other", "context", "show", "--recalled").stdout
    assert "Nothing was recalled" in typed(home, "context", "show", "--recalled", filled).stdout
    with Herma.open(home, flags={"search.prefetch_ms": 10_000}) as h, h.session(title="Now") as session:
        talk(session, QUESTION, reply="Argon2id.")
    done = typed(home, "context", "show", "--recalled", "Now")
    assert done.exit_code == 0, done.stderr
    assert "Argon2id" in done.stdout
    (turn,) = as_json(home, "context", "show", "--recalled", "Now")["turns"]
    assert "Argon2id" in turn["recalled"]


# ── search with a model ──


def test_search_with_other_words_and_summaries(home: Path, filled: str, server: ScriptedModel) -> None:
    with_model(home, server)
    server.then('{"words": ["argon2id"]}', "They chose Argon2id.")
    done = typed(home, "search", "bcrypt", "--expand", "--summarize")
    assert done.exit_code == 0, done.stderr
    assert "Summed up by m:\n   They chose Argon2id." in done.stdout
    assert "Also searched for, as m proposed: argon2id." in done.stdout
    server.then('{"words": ["argon2id"]}', "They chose Argon2id.")
    found = as_json(home, "search", "bcrypt", "--expand", "--summarize")
    assert found["also"] == ["argon2id"]
    assert found["summaries"][0]["text"] == "They chose Argon2id."
    assert found["hits"][0]["session_id"] == filled
