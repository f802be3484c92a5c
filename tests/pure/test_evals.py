"""Labelled data, measures of ranked answers, and questions made from a history."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import UsageError
from herma.evals import data
from herma.evals.data import MEASURES, Answered, EvalQuestion, answered, by_type, figures, percentile
from herma.evals.retrieval import KINDS, ExamMessage, questions

DOCUMENT = {"doc_id": "d1", "group": "g", "text": "The kettle is blue.", "date": "2024-05-03", "session": "s"}
QUESTION = {"qid": "q1", "group": "g", "type": 2, "query": "What colour is the kettle?", "gold_doc_ids": ["d1"]}


def folder(at: Path, documents: list[Any], asked: list[Any], name: str = "set") -> Path:
    made = at / name
    made.mkdir()
    for file, rows in ((data.CORPUS, documents), (data.QUERIES, asked)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (made / file).write_text("\n".join(lines) + "\n", "utf-8")
    return made


def test_a_set_is_read_by_group_and_unanswerable_questions_are_counted(tmp_path: Path) -> None:
    more = [{**QUESTION, "qid": "q2", "gold_doc_ids": []}, {**QUESTION, "qid": "q3", "gold_doc_ids": ["nowhere"]}]
    made = folder(tmp_path, [DOCUMENT], [QUESTION, *more, {**QUESTION, "qid": "q4", "type": 5}], "locomo_own")
    found = data.read_set(made)
    assert (found.size, found.questions["g"][0].type) == (1, "2")
    assert found.documents["g"][0].at is not None
    assert found.left_out == {
        "nothing answers it": 1,
        "what answers it is not in the corpus": 1,
        "adversarial": 1,
    }
    assert data.folders([tmp_path]) == [made] == data.folders([made])
    with pytest.raises(UsageError, match=r"no corpus\.jsonl"):
        data.folders([tmp_path / "elsewhere"])


@pytest.mark.parametrize(
    ("documents", "asked", "said"),
    [
        ([DOCUMENT, "{"], [QUESTION], "corpus.jsonl, line 2: this is not JSON"),
        ([DOCUMENT, "[1]"], [QUESTION], "corpus.jsonl, line 2: this is not a JSON object"),
        ([{"doc_id": "d"}], [QUESTION], "corpus.jsonl, line 1: text is missing"),
        ([DOCUMENT, DOCUMENT], [QUESTION], "corpus.jsonl, line 2: doc_id 'd1' occurs twice"),
        ([DOCUMENT], [{**QUESTION, "gold_doc_ids": "d1"}], "queries.jsonl, line 1: gold_doc_ids must be a list"),
        ([DOCUMENT], [{**QUESTION, "gold_doc_ids": []}], "has no question to ask"),
    ],
)
def test_an_error_names_the_line(tmp_path: Path, documents: list[Any], asked: list[Any], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace(".", r"\.")):
        data.read_set(folder(tmp_path, documents, asked))


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2024-05-03", "2024-05-03 12:00"),
        ("2023/06/28 (Wed) 01:51", "2023-06-28 01:51"),
        ("1:56 pm on 8 May, 2023", "2023-05-08 13:56"),
        ("12:05 am on 3 July, 2022", "2022-07-03 00:05"),
        ("March-15-2024", "2024-03-15 12:00"),
        *((none, None) for none in ("", "soon", None, True, "2024-13-41", "Foo-15-2024")),
    ],
)
def test_dates_of_public_data_sets(written: object, read: str | None) -> None:
    found = data.moment(written)
    assert (None if found is None else time.strftime("%Y-%m-%d %H:%M", time.localtime(found))) == read


def one(places: tuple[int, ...], gold: int = 1, type_: str = "t") -> Answered:
    return Answered("q", "g", type_, places, gold, 1.0)


def places(found: list[str], *gold: str) -> tuple[int, ...]:
    return answered(EvalQuestion("q", "g", "t", "", gold), found, 2.0).places


def test_measures_are_what_they_are_by_definition() -> None:
    second = answered(EvalQuestion("q", "g", "t", "", ("b", "z")), ["a", "b", "c"], 2.0)
    assert [second.measure(name) for name in ("hit@1", "hit@5", "recall@5", "mrr")] == [0.0, 1.0, 0.5, 0.5]
    assert places(["a", "a"], "a") == (1,)  # found twice counts once
    assert places([*"bcdefghijk", "a"], "a") == ()  # beyond the tenth place
    assert one((1,), gold=2).measure("ndcg@10") == pytest.approx(1 / (1 + 1 / math.log2(3)))  # of all, found or not
    assert one((1, 2), gold=2).measure("ndcg@10") == pytest.approx(1.0)
    assert (percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.95)) == (2.0, 4.0)


@given(st.lists(st.integers(1, 10), unique=True, max_size=10), st.integers(1, 12))
def test_every_measure_is_a_share_and_a_better_rank_is_never_worse(ranks: list[int], more: int) -> None:
    answer = one(tuple(sorted(ranks)), gold=len(ranks) + more)
    better = one(tuple(sorted({1, *sorted(ranks)[1:]})), gold=len(ranks) + more)
    for name in MEASURES:
        assert 0.0 <= answer.measure(name) <= 1.0
        assert better.measure(name) >= answer.measure(name)


def test_figures_count_questions_and_show_types_if_there_are_several() -> None:
    found = figures([one((1,)), one(())])
    assert (found["questions"], found["hit@1"], found["p95_ms"]) == (2, 0.5, 1.0)
    assert figures([]) == {"questions": 0}
    assert by_type([one((1,))]) == {}
    types = by_type([one((1,), type_="a"), one((), type_="b")])
    assert (types["a"]["hit@1"], types["b"]["hit@1"]) == (1.0, 0.0)


TOPICS = (
    "The harbour crane needs a replacement gearbox before the autumn storms arrive",
    "Grandmother's plum dumplings want curd cheese, semolina and brown butter crumbs",
    "The seismometer logs drift whenever the basement boiler cycles overnight",
    "Nightly exports fail because the warehouse collation rejects Turkish capitals",
    "京都の古い喫茶店で珈琲豆の焙煎を習い始めたので週末は早起きします",
)


def history(repeat: int = 1) -> list[ExamMessage]:
    return [
        ExamMessage(number, f"s{number % 3}", text, 1_700_000_000.0 + 86_400 * number)
        for number, text in enumerate(TOPICS * repeat, 1)
    ]


def test_the_exam_asks_every_kind_of_question_about_every_message() -> None:
    asked = questions(history(), 10)
    assert {one.type for one in asked} == set(KINDS)
    assert len(asked) == len(KINDS) * len(TOPICS)
    texts = {str(one.id): one.text.lower() for one in history()}
    for one in asked:
        if one.type == "content":
            assert all(word in texts[one.gold[0]] for word in one.text.split())
    assert any(one.text not in texts[one.gold[0]] for one in asked if one.type == "paraphrase")
    assert all(len(one.gold) == 2 for one in questions(history(repeat=2), 20))  # equal messages are all right
    assert questions(history(), 5, seed=1) == questions(history(), 5, seed=1) != questions(history(), 5, seed=2)
    assert questions([], 5) == questions([ExamMessage(1, "s", "ok then, yes")], 5) == []


@given(st.lists(st.text(max_size=200), max_size=12), st.integers(0, 5))
def test_any_history_can_be_asked_about(texts: list[str], seed: int) -> None:
    said = [ExamMessage(number, "s", text, 1.0) for number, text in enumerate(texts, 1)]
    for one in questions(said, 3, seed):
        assert one.text.strip()
        assert set(one.gold) <= {str(message.id) for message in said}
