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


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert run(["eval", "skills", *words, "--json"]) == 0
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert isinstance(result, dict)
    return result


def test_names_and_descriptions_are_enough(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = found(capsys, str(data))
    assert (result["hit@1"], result["hit@5"], result["abstains"]) == (0.5, 0.5, 1.0)
    assert (result["none_needed"], result["wrongly_silent"]) == (1, 1)


def test_the_files_themselves_say_more(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = "name: sail-boat\ndescription: Sail a boat.\ntriggers: [ship ahoy]"
    for name, text in (("sail-boat", head), ("bake-bread", "name: bake-bread\ndescription: Bake sourdough bread.")):
        (tmp_path / "skills" / name).mkdir(parents=True)
        (tmp_path / "skills" / name / "SKILL.md").write_text(f"---\n{text}\n---\nSteps.\n")
    assert found(capsys, str(data), "--skills", str(tmp_path / "skills"))["hit@1"] == 1.0
    assert run(["eval", "skills", str(data)]) == 0
    assert "hit@5" in capsys.readouterr().out


def test_an_empty_folder_is_said(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "none").mkdir()
    assert run(["eval", "skills", str(data), "--skills", str(tmp_path / "none")]) == 2
    assert "no skills" in capsys.readouterr().err
