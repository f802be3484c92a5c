"""Search by words and by meaning: what each finds, what holds for both, and what happens without a model."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.homes import herma

from herma import Herma, Scope
from herma.search.candidates import Candidates
from herma.search.search import PendingAnswer
from herma.testing import HashEmbedder

if TYPE_CHECKING:
    from herma.models.embedder import Vectors

MESSAGES = (
    "The photographer's darkroom smells of vinegar.",
    "Grandfather repaired the tractor with a borrowed wrench.",
    "We watched herons at the reservoir until dusk.",
    "The accountant wants the receipts by Thursday.",
    "Rhubarb crumble needs less sugar than you think.",
    "The choir rehearses in the old customs house.",
)


class Broken(HashEmbedder):
    """Embeds what is told, and fails at every question."""

    def queries(self, texts: Sequence[str]) -> Vectors:
        raise RuntimeError("no such model any more")


class Slow(HashEmbedder):
    """Answers questions when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def queries(self, texts: Sequence[str]) -> Vectors:
        self.go.wait(30)
        return super().queries(texts)


def fill(h: Herma, messages: Sequence[str] = MESSAGES, **scope: str) -> list[int]:
    session = h.transcripts.start("cli", scope=Scope(**scope) if scope else None)
    ids = h.transcripts.append(session, [{"role": "user", "content": text} for text in messages])
    h.index.wait()
    return list(ids)


@pytest.fixture
def h(home: Path) -> Iterator[Herma]:
    with Herma.open(home=home, embedder=HashEmbedder()) as opened:
        yield opened


def test_words_and_meaning_are_weighed_and_explained(h: Herma) -> None:
    first = fill(h)[0]
    report = h.search("photographic darkrooms of the past", level="message", mode="vectors")
    assert (report.mode, report.hits[0].message_id, report.hits[0].why[-1]) == ("vectors", first, "is near in meaning")
    report = h.search("photographic darkroom vinegar", level="message", explain=True)
    assert (report.mode, report.hits[0].message_id) == ("hybrid", first)
    assert "is near in meaning" in report.hits[0].why
    assert all(part in report.hits[0].why[-1] for part in ("words ", "meaning ", "cosine"))
    assert report.embedding_ms > 0
    fill(h, ["A photograph of the darkroom fell off the wall."])
    report = h.search("photographic darkrooms")
    assert len({hit.conversation for hit in report.hits}) == len(report.hits) == 2


def test_a_search_is_by_words_when_asked_for_when_set_and_without_an_embedder(home: Path) -> None:
    with Herma.open(home) as h:
        fill(h)
        report = h.search("tractor wrench", level="message")
        assert (report.mode, len(report.hits) > 0) == ("words", True)
        assert not any(note.startswith("vectors:") for note in report.notes)
    with Herma.open(home, embedder=HashEmbedder(), flags={"search.mode": " Words "}) as h:
        h.index.wait()
        report = h.search("photographic darkroom", level="message")
        assert (report.mode, len(report.hits) > 0, report.embedding_ms) == ("words", True, 0.0)
        assert h.search("photographic darkroom", mode="hybrid").mode == "hybrid"


@pytest.mark.parametrize(("kind", "told"), [(Broken, "no such model any more"), (Slow, "did not answer within 0.05 s")])
def test_an_embedder_that_fails_or_is_slow_breaks_nothing_and_is_told(
    home: Path, kind: type[HashEmbedder], told: str
) -> None:
    embedder = kind()
    with Herma.open(home, embedder=embedder, flags={"search.model_wait": 0.05}) as h:
        fill(h)
        reports = [h.search("tractor wrench", level="message") for _ in range(2)]
        if isinstance(embedder, Slow):
            embedder.go.set()
    assert {report.mode for report in reports} == {"words"}
    assert "tractor" in reports[0].hits[0].snippet
    assert any(told in note for note in reports[0].notes)


def test_what_is_read_while_a_question_is_embedded_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Slow()
    read_ahead, asked = Candidates.read_ahead, 0

    def then_go(*given: Any) -> None:
        nonlocal asked
        read_ahead(*given)
        asked += 1
        embedder.go.set()

    monkeypatch.setattr(Candidates, "read_ahead", then_go)
    questions = ("the tractor and the receipts", "the choir -house", '"borrowed wrench" at dusk', "herons")
    with Herma.open(home=home, embedder=embedder, flags={"search.model_wait": 30.0}) as h:
        fill(h)
        fill(h, [f"{text} {text.lower()}" for text in MESSAGES])
        reports = []
        for question in questions:
            embedder.go.clear()
            reports.append(h.search(question, level="message", explain=True))
        assert asked == len(questions)
        monkeypatch.setattr(PendingAnswer, "waiting", False)
        for question, before in zip(questions, reports, strict=True):
            after = h.search(question, level="message", explain=True)
            assert before.mode == "hybrid"
            assert (before.hits, before.notes, before.dropped) == (after.hits, after.notes, after.dropped)
    assert asked == len(questions)


def test_being_near_overrules_no_condition_no_user_and_no_archive(h: Herma) -> None:
    fill(h, user="ana")
    ann = Scope(user="ana")
    for question, has in (('photographic darkroom "vinegar"', True), ("photographic darkroom -vinegar", False)):
        hits = h.search(question, level="message", scope=ann).hits
        assert all(("vinegar" in hit.snippet.replace(">>>", "")) == has for hit in hits)
    h.transcripts.archive(h.transcripts.list()[0].id)
    assert h.search("photographic darkrooms", level="message", scope=ann).hits == ()
    assert h.search("photographic darkrooms", level="message", scope=ann, include_archived=True).hits
    own = fill(h, ["The photograph hangs in the hall."], user="bo")
    report = h.search("photographic darkrooms", level="message", scope=Scope(user="bo"), include_archived=True)
    assert {hit.message_id for hit in report.hits} == set(own)


def test_a_title_is_shown_where_no_message_has_its_words(h: Herma) -> None:
    session = h.transcripts.start("cli", title="Photographic archive")
    near = h.transcripts.append(session, [{"role": "user", "content": "The photogravure is archaic, a photogram."}])
    fill(h, MESSAGES[1:])
    assert h.search("photographic archive", level="message").hits[0].message_id == near[0]
    (first, *_) = h.search("photographic archive").hits
    assert (first.session_id, first.role) == (session, "session_title")
    assert first.snippet == ">>>Photographic<<< >>>archive<<<"
    with_the_word = h.transcripts.append(session, [{"role": "user", "content": "The archive is full."}])
    h.index.wait()
    assert h.search("photographic archive").hits[0].message_id == with_the_word[0]


class Backwards:
    """Likes best what is shown last."""

    def scores(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        return [float(at) for at in range(len(texts))]


def test_a_programs_own_reranker_has_the_last_word(h: Herma) -> None:
    fill(h, [f"The tractor number {number} stands in the barn." for number in range(4)])
    before = [hit.message_id for hit in h.search("tractor barn", level="message").hits]
    h.reranker = Backwards()
    after = [hit.message_id for hit in h.search("tractor barn", level="message").hits]
    assert after == before[::-1]


# ── claims that were overtaken ──

BANKS = ["My bank is Sparkasse in Bremen.", "The bank has long queues.", "My bank is now Revolut."]


def test_the_later_claim_comes_first_and_the_earlier_is_marked(h: Herma, home: Path) -> None:
    earlier, _, later = fill(h, BANKS)
    hits = {hit.message_id: hit for hit in h.search("which bank is my bank", level="message").hits}
    order = list(hits)
    assert order.index(later) < order.index(earlier)
    assert (hits[earlier].outdated_by, hits[later].outdated_by) == (later, None)
    assert any("possibly outdated" in why for why in hits[earlier].why)
    words = ["search", "my", "bank", "--level", "message", "--mode", "words"]
    assert "possibly outdated" in herma(home, *words).out
    found = herma(home, *words, "--json").json
    assert any(hit["outdated_by"] for hit in found["hits"])
    assert found["mode"] == "words"
    past = h.search("my bank Sparkasse Bremen originally", level="message").hits
    assert (past[0].message_id, past[0].outdated_by) == (earlier, later), "who asks for the past gets it first"


def test_a_model_for_english_is_not_asked_about_chinese(home: Path) -> None:
    with Herma.open(home=home, embedder=HashEmbedder(is_multilingual=False)) as h:
        fill(h, [*MESSAGES, "退款要多久？"])
        assert [hit.why for hit in h.search("退款", level="message").hits] == [("has 退款",)]
        nothing = h.search("仓库", level="message")
        assert nothing.hits == ()
        assert any("仓库" in note for note in nothing.notes)
