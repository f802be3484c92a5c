"""Labelled data: what is read, what is left out, and how a broken line is named."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from herma.errors import UsageError
from herma.evals import data
from herma.evals.evals import Routed, measure


def folder(at: Path, documents: list[Any], questions: list[Any], name: str = "set") -> Path:
    made = at / name
    made.mkdir()
    for file, rows in ((data.CORPUS, documents), (data.QUERIES, questions)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (made / file).write_text("\n".join(lines) + "\n", "utf-8")
    return made


DOCUMENT = {"doc_id": "d1", "group": "g", "text": "The kettle is blue.", "date": "2024-05-03", "session": "s"}
QUESTION = {"qid": "q1", "group": "g", "type": 2, "query": "What colour is the kettle?", "gold_doc_ids": ["d1"]}


def test_a_set_is_read_by_group(tmp_path: Path) -> None:
    found = data.read_set(folder(tmp_path, [DOCUMENT], [QUESTION]))
    assert found.size == 1
    assert found.documents["g"][0].at is not None
    assert found.questions["g"][0].type == "2"


def test_questions_that_cannot_be_answered_are_left_out_and_counted(tmp_path: Path) -> None:
    unanswered = {**QUESTION, "qid": "q2", "gold_doc_ids": []}
    gone = {**QUESTION, "qid": "q3", "gold_doc_ids": ["nowhere"]}
    trick = {**QUESTION, "qid": "q4", "type": 5}
    found = data.read_set(folder(tmp_path, [DOCUMENT], [QUESTION, unanswered, gone, trick], "locomo_own"))
    assert found.size == 1
    assert found.left_out == {
        "nothing answers it": 1,
        "what answers it is not in the corpus": 1,
        "adversarial": 1,
    }


@pytest.mark.parametrize(
    ("documents", "questions", "said"),
    [
        ([DOCUMENT, "{"], [QUESTION], "corpus.jsonl, line 2: this is not JSON"),
        ([DOCUMENT, "[1]"], [QUESTION], "corpus.jsonl, line 2: this is no JSON object"),
        ([{"doc_id": "d"}], [QUESTION], "corpus.jsonl, line 1: text is missing"),
        ([DOCUMENT, DOCUMENT], [QUESTION], "corpus.jsonl, line 2: doc_id 'd1' stands there twice"),
        ([DOCUMENT], [{**QUESTION, "gold_doc_ids": "d1"}], "queries.jsonl, line 1: gold_doc_ids is to be a list"),
        ([DOCUMENT], [{**QUESTION, "gold_doc_ids": []}], "has no question that can be asked"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, documents: list[Any], questions: list[Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        data.read_set(folder(tmp_path, documents, questions))


def test_bytes_that_are_no_text_are_named_by_their_line(tmp_path: Path) -> None:
    made = folder(tmp_path, [DOCUMENT], [QUESTION])
    (made / data.CORPUS).write_bytes(json.dumps(DOCUMENT).encode() + b"\n\xff\xfe\n")
    with pytest.raises(UsageError, match="line 2: this is not UTF-8"):
        data.read_set(made)


def test_folders_inside_a_folder_are_found(tmp_path: Path) -> None:
    made = folder(tmp_path, [DOCUMENT], [QUESTION])
    assert data.folders([tmp_path]) == [made] == data.folders([made])
    with pytest.raises(UsageError, match=r"no corpus\.jsonl"):
        data.folders([tmp_path / "elsewhere"])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2024-05-03", "2024-05-03 12:00"),
        ("2023/06/28 (Wed) 01:51", "2023-06-28 01:51"),
        ("1:56 pm on 8 May, 2023", "2023-05-08 13:56"),
        ("12:05 am on 3 July, 2022", "2022-07-03 00:05"),
        ("March-15-2024", "2024-03-15 12:00"),
    ],
)
def test_dates_as_data_sets_write_them(written: str, read: str) -> None:
    found = data.moment(written)
    assert found is not None
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(found)) == read


@pytest.mark.parametrize("written", ["", "soon", None, True, "2024-13-41", "Foo-15-2024"])
def test_what_is_no_date_is_none(written: object) -> None:
    assert data.moment(written) is None


def test_labelled_texts(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"text": "hello", "label": 0}\n{"text": "x", "label": 1, "source": "s"}\n', "utf-8")
    assert [(row.attack, row.source) for row in data.read_labelled(file)] == [(False, "rows"), (True, "s")]
    file.write_text('{"text": "hello", "label": "no"}\n', "utf-8")
    with pytest.raises(UsageError, match="line 1: label is 'no'"):
        data.read_labelled(file)


def test_routing_counts_what_is_named_and_what_is_rightly_left_alone(tmp_path: Path) -> None:
    skills = [
        {"doc_id": "a/mail", "name": "mail", "description": "."},
        {"doc_id": "b/post", "name": "post", "description": "."},
    ]
    requests = [
        {"qid": "1", "query": "send mail", "gold_doc_ids": ["a/mail"], "also_ok": ["b/post"]},
        {"qid": "2", "query": "post it", "gold_doc_ids": ["b/post"], "also_ok": []},
        {"qid": "3", "query": "hello", "gold_doc_ids": [], "also_ok": []},
        {"qid": "4", "query": "what now", "gold_doc_ids": [], "also_ok": []},
    ]
    made = folder(tmp_path, skills, requests)
    assert data.is_about_skills(made)
    answers = {"send mail": ("post",), "post it": ("mail", "post"), "hello": (), "what now": ("mail",)}
    found = measure(*data.read_skills(made), lambda task: Routed(answers[task]))
    assert [one.places for one in found.answers] == [(1,), (2,)]
    assert (found.none_needed, found.kept_silent, found.abstains, found.wrongly_silent) == (2, 1, 0.5, 0)
