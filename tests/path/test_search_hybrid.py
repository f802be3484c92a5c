"""Search by words and by meaning: what each finds, what holds for both, and what happens without a model."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from herma import Herma, Scope
from herma.cli.main import cli
from herma.errors import ConfigError, UsageError
from herma.search.candidates import Gatherer
from herma.search.search import Pending
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


def test_what_has_none_of_the_words_is_found_by_meaning(h: Herma) -> None:
    first = fill(h)[0]
    report = h.search("photographic darkrooms of the past", level="message", mode="vectors")
    assert report.hits[0].message_id == first
    assert (report.mode, report.hits[0].why[-1]) == ("vectors", "is near in meaning")


def test_both_are_weighed_and_explained(h: Herma) -> None:
    first = fill(h)[0]
    report = h.search("photographic darkroom vinegar", level="message", explain=True)
    assert report.mode == "hybrid"
    assert report.hits[0].message_id == first
    assert "is near in meaning" in report.hits[0].why
    assert "words " in report.hits[0].why[-1]
    assert "meaning " in report.hits[0].why[-1]
    assert "cosine" in report.hits[0].why[-1]
    assert report.embedding_ms > 0


def test_words_alone_when_asked_for(h: Herma) -> None:
    fill(h)
    report = h.search("tractor", level="message", mode="words")
    assert (report.mode, len(report.hits), report.embedding_ms) == ("words", 1, 0.0)


def test_without_an_embedder_search_is_by_words_and_says_nothing_of_it(home: Path) -> None:
    with Herma.open(home=home) as h:
        fill(h)
        report = h.search("tractor wrench", level="message")
    assert report.mode == "words"
    assert len(report.hits) > 0
    assert not any(note.startswith("vectors:") for note in report.notes)


def test_a_failing_embedder_breaks_nothing_and_is_told(home: Path) -> None:
    with Herma.open(home=home, embedder=Broken()) as h:
        fill(h)
        report = h.search("tractor wrench", level="message")
    assert report.mode == "words"
    assert "tractor" in report.hits[0].snippet
    assert any("no such model any more" in note for note in report.notes)


def test_a_slow_embedder_is_not_waited_for_and_that_is_told(home: Path) -> None:
    embedder = Slow()
    with Herma.open(home=home, embedder=embedder, flags={"search.model_wait": 0.05}) as h:
        fill(h)
        report = h.search("tractor wrench", level="message")
        again = h.search("tractor wrench", level="message")
        embedder.go.set()
    assert report.mode == "words"
    assert "tractor" in report.hits[0].snippet
    assert any("did not answer within 0.05 s" in note for note in report.notes)
    assert again.mode == "words"


def test_what_is_read_while_a_question_is_embedded_changes_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Slow()
    read_ahead, asked = Gatherer.read_ahead, 0

    def then_go(*given: Any) -> None:
        nonlocal asked
        read_ahead(*given)
        asked += 1
        embedder.go.set()

    monkeypatch.setattr(Gatherer, "read_ahead", then_go)
    questions = ("the tractor and the receipts", "the choir -house", '"borrowed wrench" at dusk', "herons")
    with Herma.open(home=home, embedder=embedder, flags={"search.model_wait": 30.0}) as h:
        fill(h)
        fill(h, [f"{text} {text.lower()}" for text in MESSAGES])
        reports = []
        for question in questions:
            embedder.go.clear()
            reports.append(h.search(question, level="message", explain=True))
        assert asked == len(questions)
        monkeypatch.setattr(Pending, "waiting", False)
        for question, before in zip(questions, reports, strict=True):
            after = h.search(question, level="message", explain=True)
            assert before.mode == "hybrid"
            assert (before.hits, before.notes, before.dropped) == (after.hits, after.notes, after.dropped)
    assert asked == len(questions)


def test_what_must_occur_must_occur_in_what_is_near_too(h: Herma) -> None:
    fill(h)
    required = h.search('photographic darkroom "vinegar"', level="message")
    assert all("vinegar" in hit.snippet.replace(">>>", "") for hit in required.hits)
    without = h.search("photographic darkroom -vinegar", level="message")
    assert all("vinegar" not in hit.snippet for hit in without.hits)


def test_what_may_not_be_shown_is_not_shown_for_being_near(h: Herma) -> None:
    fill(h, user="ana")
    own = fill(h, ["The photograph hangs in the hall."], user="bo")
    report = h.search("photographic darkrooms", level="message", scope=Scope(user="bo"))
    assert {hit.message_id for hit in report.hits} <= set(own)


def test_archived_conversations_stay_away(h: Herma) -> None:
    fill(h)
    session = h.transcripts.list()[0].id
    h.transcripts.archive(session)
    assert h.search("photographic darkrooms", level="message").hits == ()
    assert h.search("photographic darkrooms", level="message", include_archived=True).hits


def test_one_hit_for_each_conversation(h: Herma) -> None:
    fill(h)
    fill(h, ["A photograph of the darkroom fell off the wall."])
    report = h.search("photographic darkrooms")
    assert len({hit.conversation for hit in report.hits}) == len(report.hits) == 2


def test_a_mode_that_is_none_is_said(h: Herma) -> None:
    with pytest.raises(UsageError, match="is no way to search"):
        h.search("tractor", mode="magic")  # type: ignore[arg-type]


def test_a_setting_that_is_no_mode_is_said(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"search\.mode cannot be 'magic'.* one of hybrid, words, vectors"):
        Herma.open(home=home, flags={"search.mode": "magic"})
    with Herma.open(home=home, flags={"search.mode": " Words "}) as h:
        assert h.settings.search.mode == "words"


def test_the_setting_decides_where_nothing_is_said(home: Path) -> None:
    with Herma.open(home=home, embedder=HashEmbedder(), flags={"search.mode": "words"}) as h:
        fill(h)
        assert h.search("photographic darkroom").mode == "words"
        assert h.search("photographic darkroom", mode="hybrid").mode == "hybrid"


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


def test_the_later_claim_comes_first_and_the_earlier_is_marked(h: Herma) -> None:
    earlier, _, later = fill(h, BANKS)
    hits = {hit.message_id: hit for hit in h.search("which bank is my bank", level="message").hits}
    order = list(hits)
    assert order.index(later) < order.index(earlier)
    assert (hits[earlier].outdated_by, hits[later].outdated_by) == (later, None)
    assert any("possibly outdated" in why for why in hits[earlier].why)


def test_who_asks_for_the_past_gets_the_past_first_and_marked(h: Herma) -> None:
    earlier, _, later = fill(h, ["My bank is Sparkasse in Bremen, my bank.", BANKS[1], BANKS[2]])
    hits = h.search("my bank Sparkasse originally", level="message").hits
    assert hits[0].message_id == earlier
    assert hits[0].outdated_by == later


def test_the_command_line_shows_the_mark(home: Path) -> None:
    with Herma.open(home=home) as h:
        fill(h, BANKS)
    words = ["--home", str(home), "search", "my", "bank", "--level", "message", "--mode", "words"]
    assert "possibly outdated" in CliRunner().invoke(cli, words).stdout
    found = json.loads(CliRunner().invoke(cli, [*words, "--json"]).stdout)
    assert any(hit["outdated_by"] for hit in found["hits"])
    assert found["mode"] == "words"


def test_a_model_for_english_is_not_asked_about_chinese(home: Path) -> None:
    with Herma.open(home=home, embedder=HashEmbedder(is_multilingual=False)) as h:
        fill(h, [*MESSAGES, "退款要多久？"])
        assert [hit.why for hit in h.search("退款", level="message").hits] == [("has 退款",)]
        nothing = h.search("仓库", level="message")
        assert nothing.hits == ()
        assert any("仓库" in note for note in nothing.notes)
