"""`herma eval`: measured through the real search, saved, compared; the user's own home stays as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli

FACTS = {
    "kettle": "I bought a blue kettle with a whistle at the flea market.",
    "boiler": "The boiler in the basement was repaired by a plumber from Bremen.",
    "violin": "My violin lessons moved to Thursdays because of the choir.",
    "garden": "We planted rhubarb and gooseberries behind the garage.",
}


def evaluate(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "eval", *words])


def script(name: str, *words: str) -> str:
    """Run a script of benchmarks/ and return what it prints."""
    place = Path(__file__).parents[2] / "benchmarks" / name
    done = subprocess.run([sys.executable, str(place), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def as_json(home: Path, *words: str) -> Any:
    done = evaluate(home, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    made = tmp_path / "data" / "small"
    made.mkdir(parents=True)
    documents = [
        {"doc_id": name, "group": f"g{number % 2}", "text": text, "date": f"2024-05-0{number + 1}"}
        for number, (name, text) in enumerate(FACTS.items())
    ]
    questions = [
        {"qid": f"q{number}", "group": f"g{number % 2}", "type": "plain", "query": query, "gold_doc_ids": [gold]}
        for number, (gold, query) in enumerate(
            {
                "kettle": "what colour is the kettle",
                "boiler": "who repaired the boiler",
                "violin": "when are violin lessons",
                "garden": "accordion",
            }.items()
        )
    ]
    nothing = {"qid": "none", "group": "g0", "type": "plain", "query": "what else", "gold_doc_ids": []}
    (made / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents), "utf-8")
    (made / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*questions, nothing]), "utf-8")
    return made


def test_search_is_measured_on_a_folder_of_sets(home: Path, labelled: Path) -> None:
    found = as_json(home, "retrieval", str(labelled.parent), "--mode", "words")["results"][0]
    assert (found["set"], found["mode"], found["questions"]) == ("small", "words", 4)
    assert found["hit@1"] == found["hit@10"] == found["mrr"] == 0.75
    assert found["left_out"] == {"nothing answers it": 1}
    found = as_json(home, "retrieval", str(labelled), "--level", "session")["results"][0]
    assert (found["hit@10"], found["mode"]) == (0.75, "words"), "without a model, words are the default"
    shown = evaluate(home, "retrieval", str(labelled), "--mode", "words").stdout
    assert "0.750" in shown
    assert "left out 1 (nothing answers it)" in shown


def test_kept_homes_are_used_again_and_other_data_is_refused(home: Path, labelled: Path, tmp_path: Path) -> None:
    kept = tmp_path / "homes"
    first = as_json(home, "retrieval", str(labelled), "--mode", "words", "--homes", str(kept))
    again = as_json(home, "retrieval", str(labelled), "--mode", "words", "--homes", str(kept))
    assert first["results"][0]["mrr"] == again["results"][0]["mrr"]
    with (labelled / "corpus.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps({"doc_id": "new", "group": "g0", "text": "one more"}) + "\n")
    done = evaluate(home, "retrieval", str(labelled), "--mode", "words", "--homes", str(kept))
    assert done.exit_code == 2
    assert "holds 2 messages where the data has 3" in done.stderr


def test_two_saved_runs_are_compared(home: Path, labelled: Path, tmp_path: Path) -> None:
    files = [tmp_path / "a.json", tmp_path / "b.json"]
    for file in files:
        done = evaluate(home, "retrieval", str(labelled), "--mode", "words", "--save", str(file))
        assert done.exit_code == 0, done.stderr
    saved = json.loads(files[1].read_text("utf-8"))
    for answer in saved["results"][0]["answers"]:
        answer[3] = [1]  # every right message comes first now
    files[1].write_text(json.dumps(saved), "utf-8")
    compared = script("compare_runs.py", *map(str, files), "--measure", "hit@1")
    assert "0.750 → 1.000  +0.250" in compared
    assert "4 questions" in compared


def test_skill_routing_counts_named_skills_and_silence(tmp_path: Path) -> None:
    about = {"bake-bread": "Bake a loaf of sourdough bread.", "sail-boat": "Sail a boat in heavy weather."}
    corpus = [{"doc_id": f"team/{name}", "name": name, "description": said} for name, said in about.items()]
    asked = [("bake some sourdough bread", ["team/bake-bread"]), ("how are you", []), ("ship ahoy", ["team/sail-boat"])]
    queries = [{"qid": str(n), "query": text, "gold_doc_ids": gold} for n, (text, gold) in enumerate(asked)]
    for name, rows in (("corpus.jsonl", corpus), ("queries.jsonl", queries)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "talk.txt").write_text("good morning\n\nbake a loaf of sourdough bread\n", "utf-8")
    others = str(tmp_path / "talk.txt")
    found = json.loads(script("skill_routing.py", str(tmp_path), "--mode", "words", "--json", "--others", others))
    assert (found["hit@1"], found["silent_wrongly"], found["requests"]) == (0.5, 1, 2)
    assert (found["none_needed"], found["silent_rightly"], found["others"], found["others_silent"]) == (1, 1, 2, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["retrieval", "DATA", "--mode", "hybrid"], "There is no embedding model"),
        (["retrieval", "BROKEN"], "queries.jsonl, line 6: this is not JSON."),
        (["retrieval", "EMPTY"], "queries.jsonl is empty"),
        (["retrieval", "DATA", "--save", "nowhere/run.json"], "nowhere is not a folder"),
        (["self", "--save", "nowhere/run.json"], "nowhere is not a folder"),
        (["self", "--with", "search.model_wait"], "is not a setting"),
        (["self"], "There is no herma.db"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(home: Path, labelled: Path, words: list[str], said: str) -> None:
    if "BROKEN" in words or "EMPTY" in words:
        text = (labelled / "queries.jsonl").read_text("utf-8") + "not json\n" if "BROKEN" in words else ""
        (labelled / "queries.jsonl").write_text(text, "utf-8")
    done = evaluate(home, *(str(labelled) if word in ("DATA", "BROKEN", "EMPTY") else word for word in words))
    assert done.exit_code == 2
    assert said in done.stderr
    assert "small" not in done.stdout


def test_the_exam_over_ones_own_history_changes_nothing(home: Path) -> None:
    with Herma.open(home=home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": text} for text in FACTS.values()])
    before = (home / "herma.db").read_bytes()
    found = as_json(home, "self", "--mode", "words", "--questions", "4")["results"][0]
    assert found["set"] == "own history"
    assert found["questions"] == 12
    assert found["types"]["content"]["hit@5"] == 1.0
    assert (home / "herma.db").read_bytes() == before
    assert not (home / "index.db").exists()
