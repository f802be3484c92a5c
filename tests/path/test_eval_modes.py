"""Measuring by words, by vectors and by both, with an embedder that is a stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files

from herma import Herma
from herma.evals import retrieval
from herma.evals.data import DataSet, EvalDocument, EvalQuestion
from herma.testing import HashEmbedder

TEXTS = {
    "darkroom": "The photographer's darkroom smells of vinegar and fixing salt.",
    "tractor": "Grandfather repaired the tractor with a borrowed wrench on Sunday.",
    "herons": "We watched herons at the reservoir until dusk with the neighbours.",
    "crumble": "Rhubarb crumble needs less sugar than the recipe says.",
}


@pytest.fixture(autouse=True)
def embedded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Homes that evals open have an embedder."""

    class Opened(Herma):
        @classmethod
        def open(cls, *given: Any, **named: Any) -> Any:
            return Herma.open(*given, embedder=HashEmbedder(), **named)

    monkeypatch.setattr(retrieval, "Herma", Opened)


def data() -> DataSet:
    documents = tuple(EvalDocument(name, "g", text) for name, text in TEXTS.items())
    questions = (
        EvalQuestion("q1", "g", "a", "photographers darkrooms and vinegars", ("darkroom",)),
        EvalQuestion("q2", "g", "b", "tractor wrench", ("tractor",)),
    )
    return DataSet("small", {"g": documents}, {"g": questions})


def test_each_mode_is_measured_on_the_same_home(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    results = retrieval.run(data(), ["words", "vectors", "hybrid"], progress=lambda *given: told.append(given))
    assert [one.mode for one in results] == ["words", "vectors", "hybrid"]
    assert all(len(one.answers) == 2 for one in results)
    assert [answer.places for answer in results[2].answers] == [(1,), (1,)]
    assert told[-1] == (6, 6)
    assert tmp_path.exists()


@of_files
def test_ones_own_history_is_asked_in_every_mode_and_with_every_setting(home: Path) -> None:
    with Herma.open(home=home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": text} for text in TEXTS.values()])
    variants = {"": {}, "wait": {"search.model_wait": 2}}
    results = retrieval.take(home, ["words", "hybrid"], variants, count=4, seed=0)
    assert [one.mode for one in results] == ["words", "hybrid", "wait: words", "wait: hybrid"]
    assert len({len(one.answers) for one in results}) == 1
    assert not (home / "index.db.vectors").exists()


@of_files
def test_a_copy_takes_what_is_derived_with_it_and_makes_again_what_is_damaged(home: Path) -> None:
    embedder = HashEmbedder()
    with Herma.open(home=home, embedder=embedder) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": text} for text in TEXTS.values()])
        h.index.wait()
    with retrieval.copied(home) as copy, Herma.open(home=copy, embedder=embedder) as h:
        before = len(embedder.seen)
        h.index.wait()
        assert len(embedder.seen) == before
        assert h.search("tractor", level="message").hits
    (home / "index.db").write_bytes(b"no database at all" * 100)
    with retrieval.copied(home) as copy, Herma.open(home=copy) as h:
        assert not (copy / "index.db").exists()
        assert h.search("tractor", level="message").hits
