"""`herma eval skills`: labelled requests through the real routing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herma.cli.main import run


def lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    about = {"bake-bread": "Bake a loaf of sourdough bread.", "sail-boat": "Sail a boat in heavy weather."}
    lines(
        folder / "corpus.jsonl",
        [{"doc_id": f"team/{name}", "group": "all", "name": name, "description": said} for name, said in about.items()],
    )
    asked = [("bake some sourdough bread", ["team/bake-bread"]), ("how are you", []), ("ship ahoy", ["team/sail-boat"])]
    lines(
        folder / "queries.jsonl",
        [
            {"qid": str(n), "group": "all", "type": "plain", "query": query, "gold_doc_ids": gold, "also_ok": []}
            for n, (query, gold) in enumerate(asked)
        ],
    )
    return folder


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict[str, Any]]:
    assert run(["eval", "skills", *words, "--mode", "words", "--json"]) == 0
    return {result["skills"]: result for result in json.loads(capsys.readouterr().out)["results"]}


def test_names_and_descriptions_are_enough(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (result,) = found(capsys, str(data)).values()
    assert (result["hit@1"], result["hit@5"], result["abstains"]) == (0.5, 0.5, 1.0)
    assert (result["none_needed"], result["wrongly_silent"], result["requests"]) == (1, 1, 2)


def test_what_keeping_silent_costs_is_shown_by_itself(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines(
        data / "queries.jsonl",
        [
            {
                "qid": "1",
                "group": "",
                "type": "",
                "query": "the weather report of last year",
                "gold_doc_ids": ["team/sail-boat"],
            }
        ],
    )
    (result,) = found(capsys, str(data)).values()
    assert (result["hit@1"], result["ranked@1"], result["wrongly_silent"]) == (0.0, 1.0, 1)


def test_other_requests_are_counted_by_themselves(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "talk.txt").write_text("good morning\n\nbake a loaf of sourdough bread\n")
    (result,) = found(capsys, str(data), "--others", str(tmp_path / "talk.txt")).values()
    assert (result["others"], result["others_silent"], result["abstains_on_others"]) == (2, 1, 0.5)
    assert run(["eval", "skills", str(data), "--mode", "words", "--others", str(tmp_path / "talk.txt")]) == 0
    assert "others" in capsys.readouterr().out
    (tmp_path / "talk.txt").write_bytes(b"\xff\xfe")
    assert run(["eval", "skills", str(data), "--mode", "words", "--others", str(tmp_path / "talk.txt")]) == 2
    assert "cannot be read as text" in capsys.readouterr().err


def test_two_runs_can_be_compared(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = str(tmp_path / "run.json")
    assert run(["eval", "skills", str(data), "--mode", "words", "--save", saved]) == 0
    assert "Saved in" in capsys.readouterr().out
    assert run(["eval", "compare", saved, saved]) == 0
    assert "names and descriptions" in capsys.readouterr().out
    assert run(["eval", "skills", str(data), "--save", str(tmp_path / "no" / "run.json")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_the_files_themselves_say_more(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "name: sail-boat\ndescription: Sail a boat.\ntriggers: [ship ahoy]"
    for name, text in (("sail-boat", head), ("bake-bread", "name: bake-bread\ndescription: Bake sourdough bread.")):
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(f"---\n{text}\n---\nSteps.\n")
    both = found(capsys, str(data), "--skills", str(tmp_path / "skills"))
    assert both["files"]["hit@1"] == 1.0 > both["names and descriptions"]["hit@1"]
    assert run(["eval", "skills", str(data), "--mode", "words", "--mode", "words"]) == 0
    assert "hit@5" in capsys.readouterr().out


def test_an_empty_folder_is_said(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert run(["eval", "skills", str(data), "--skills", str(tmp_path / "none")]) == 2
    assert "no skills" in capsys.readouterr().err
