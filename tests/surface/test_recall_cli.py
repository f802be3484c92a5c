"""`herma context recall` and `recalled`, `herma search --expand --summarize`, `herma eval summaries`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.testing import Answer, Asked, ScriptedModel

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
    assert "This would be told:" in done.stdout
    assert "Argon2id" in done.stdout
    assert "chance" in done.stdout
    found = as_json(home, "context", "recall", QUESTION)
    assert found["outcome"] == "recalled"
    assert found["weighed"][0]["session_id"] == filled
    assert found["weighed"][0]["told"]
    assert found["enabled"]


def test_why_nothing_would_be_told(home: Path, filled: str) -> None:
    assert filled
    assert "nothing in it to look for" in typed(home, "context", "recall", "how", "are", "you").stdout
    assert "relevant enough" in typed(home, "context", "recall", "bake a sourdough loaf about the garden").stdout
    typed(home, "config", "set", "search.prefetch", "off")
    assert "It is turned off" in typed(home, "context", "recall", QUESTION).stdout


def test_what_was_told(home: Path, filled: str) -> None:
    assert "no session yet" in typed(home.parent / "other", "context", "recalled").stdout
    assert "Nothing was recalled" in typed(home, "context", "recalled", filled).stdout
    with Herma.open(home, flags={"search.prefetch_ms": 10_000}) as h, h.session(title="Now") as session:
        session.before_model(QUESTION)
        session.after_model("Argon2id.")
    done = typed(home, "context", "recalled", "Now")
    assert done.exit_code == 0, done.stderr
    assert "Argon2id" in done.stdout
    (turn,) = as_json(home, "context", "recalled", "Now")["turns"]
    assert "Argon2id" in turn["recalled"]


# ── search with a model ──


def test_search_with_other_words_and_summaries(home: Path, filled: str, server: ScriptedModel) -> None:
    with_model(home, server)
    server.then('{"words": ["argon2id"]}', "They chose Argon2id.")
    done = typed(home, "search", "bcrypt", "--expand", "--summarize")
    assert done.exit_code == 0, done.stderr
    assert "Summed up by m:\n   They chose Argon2id." in done.stdout
    assert "Searched too, as m proposed: argon2id." in done.stdout
    server.then('{"words": ["argon2id"]}', "They chose Argon2id.")
    found = as_json(home, "search", "bcrypt", "--expand", "--summarize")
    assert found["also"] == ["argon2id"]
    assert found["summaries"][0]["text"] == "They chose Argon2id."
    assert found["hits"][0]["session_id"] == filled


def test_search_without_a_model_says_what_is_missing(home: Path, filled: str) -> None:
    assert filled
    done = typed(home, "search", "Quillon", "--summarize")
    assert done.exit_code == 0
    assert "Nothing was summed up: No model is set" in done.stdout


# ── measuring summaries ──


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    rows = [
        {
            "id": "hash",
            "question": "Which password hash was chosen for Quillon?",
            "facts": ["Argon2id", ["64 MiB", "64 MB"], "1,200 users", "RFC 9106"],
            "title": "Hashing",
            "messages": [
                {"role": "user", "content": "Which password hash should Quillon have? It has 1,200 users."},
                {"role": "assistant", "content": "Argon2id with 64 MiB, after RFC 9106."},
            ],
        },
        {
            "id": "rosen",
            "question": "玫瑰什么时候修剪？",
            "facts": ["三月修剪"],
            "messages": [{"role": "user", "content": "玫瑰花在三月修剪，不要太晚。"}],
        },
    ]
    path = tmp_path / "cases.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return path


def answer(asked: Asked) -> str | Answer:
    return "Argon2id with 64 MB was chosen (RFC 9107)." if "Quillon" in asked.last else "玫瑰在三月修剪。"


def test_summaries_are_scored_against_facts(home: Path, cases: Path) -> None:
    with ScriptedModel(answer) as server:
        with_model(home, server)
        found = as_json(home, "eval", "summaries", str(cases))
        table = typed(home, "eval", "summaries", str(cases))
    by_way = {one["way"]: one for one in found["results"]}
    assert (by_way["raw"]["facts"], by_way["raw"]["found"]) == (1.0, 1.0)
    assert by_way["summaries"]["facts"] == 0.6
    (hash_,) = [one for one in found["cases"] if one["id"] == "hash" and one["way"] == "summaries"]
    assert hash_["missing"] == ["1,200 users", "RFC 9106"]
    assert "summaries" in table.stdout
    assert "0.600" in table.stdout
    with Herma.open(home) as h:
        assert h.models.spending().spent_today["eval"].calls >= 4


def test_raw_results_need_no_model(home: Path, cases: Path) -> None:
    found = as_json(home, "eval", "summaries", str(cases), "--raw")
    assert [one["way"] for one in found["results"]] == ["raw"]
    done = typed(home, "eval", "summaries", str(cases))
    assert "Only raw results: No model is set" in done.stdout


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 1: this is no JSON"),
        ('{"facts": ["x"], "messages": [{}]}', "question is missing"),
        ('{"question": "x", "messages": [{}]}', "facts is to be a list"),
        ('{"question": "x", "facts": [""], "messages": [{}]}', "a fact is a text"),
        ('{"question": "x", "facts": ["y"]}', "messages is to be a list"),
        ("", "is empty"),
    ],
)
def test_what_is_wrong_with_the_data_is_one_sentence(home: Path, tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line, "utf-8")
    done = typed(home, "eval", "summaries", str(path))
    assert done.exit_code != 0
    assert said in done.stderr
