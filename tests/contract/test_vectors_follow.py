"""Vectors over a real transcript: what is said is embedded once, what is purged goes, and a rebuild changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import numpy as np
import pytest

from herma import Add, Herma, Replace
from herma.errors import EmbedderError
from herma.index import MESSAGE, Embeddable, Embeddables
from herma.index.vectors import MOST_PARTS, PART, Vectors
from herma.testing import HashEmbedder
from herma.types import Scope

if TYPE_CHECKING:
    from herma.models.embedder import Vectors as Rows

DAY = 86_400.0


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Fragile(HashEmbedder):
    """Fails while `broken`, and always on a text with `poison` in it."""

    broken = False
    calls = 0

    def passages(self, texts: Sequence[str]) -> Rows:
        self.calls += 1
        if self.broken:
            raise EmbedderError("nobody answers")
        if any("poison" in text for text in texts):
            raise ValueError("too strong")
        return super().passages(texts)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def herma(home: Path, clock: Clock) -> Iterator[Herma]:
    with Herma.open(home, clock=clock) as opened:
        yield opened


def vectors(herma: Herma, embedder: HashEmbedder | None = None, clock: Clock | None = None) -> Vectors:
    return Vectors(Herma.open(herma.home, embedder=embedder, clock=clock or Clock()))


def say(herma: Herma, *texts: str, session: str | None = None, title: str | None = None) -> tuple[str, list[int]]:
    session = session or herma.transcripts.start(source="test", title=title)
    roles = ("user", "assistant")
    ids = herma.transcripts.append(
        session, [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    )
    return session, list(ids)


def stored(home: Path) -> set[tuple[object, ...]]:
    """Everything that is kept, without the order it came in."""
    with Herma.open(home) as h:
        if h.settings.store.url:
            sql = """SELECT m.name, v.kind, v.key, v.part, v.session, v.digest, v.vector::text FROM vectors v
                     JOIN vector_models m ON m.id = v.model"""
            return set(h.db.rows(sql))
    connection = apsw.Connection(str(home / "index.db.vectors"))
    try:
        sql = """SELECT m.name, v.kind, v.key, v.part, coalesce(s.session, ''), v.digest, v.vector FROM vectors v
                 JOIN models m ON m.id = v.model LEFT JOIN sessions s ON s.id = v.session"""
        return set(connection.execute(sql).fetchall())
    finally:
        connection.close(True)


def test_what_was_said_is_near_what_is_asked(herma: Herma) -> None:
    session, ids = say(herma, "the cat sleeps on the sofa", "let it sleep", "deploy the server to berlin", "deployed")
    index = vectors(herma, HashEmbedder())
    assert index.near("cat", 3).notes == ("vectors: nothing is embedded yet. To do it now: herma index embed",)
    assert index.wait()
    found = index.near("cat on a sofa", 2)
    assert found.notes == ()
    assert [hit.message_id for hit in found.hits] == ids[:2]  # the reply stands with what was asked
    assert found.hits[0].session_id == session
    assert found.hits[0].score > found.hits[1].score > 0
    assert [hit.message_id for hit in index.near("cat on a sofa", 5, allowed=ids[2:]).hits] in (ids[2:], ids[:1:-1])
    scores = index.scores("cat on a sofa", [ids[0], ids[2], 999])
    assert set(scores) == {ids[0], ids[2]}
    assert scores[ids[0]] == pytest.approx(found.hits[0].score, abs=1e-5)
    index.close()


def test_only_new_text_is_embedded_and_the_matrix_grows(herma: Herma) -> None:
    embedder = HashEmbedder()
    index = vectors(herma, embedder)
    session, _ = say(herma, "first question", "first answer")
    assert index.wait()
    assert len(index.near("question", 9).hits) == 2
    embedder.seen.clear()
    _, (third, _) = say(herma, "second question", "second answer", session=session)
    _, (again, _) = say(herma, "first question", "first answer")
    assert index.wait()
    assert not any(text == "first question" for text in embedder.seen)  # the same text has its vector already
    assert {hit.message_id for hit in index.near("question", 9).hits} >= {third, again}
    assert (index.state().coverage, index.state().vectors) == (1.0, 6)
    index.close()


def test_tools_are_not_embedded_and_long_messages_are_cut(herma: Herma) -> None:
    session = herma.transcripts.start(source="test")
    call = {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "x.py"}'}}
    endless = " ".join(f"word{number}" for number in range(PART * MOST_PARTS))
    ids = herma.transcripts.append(
        session,
        [
            {"role": "user", "content": "read it"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "1", "name": "read_file", "content": "def login(): pass"},
            {"role": "assistant", "content": endless},
        ],
    )
    embedder = HashEmbedder()
    index = vectors(herma, embedder)
    assert index.wait()
    assert index.state().vectors == 1 + MOST_PARTS
    assert max(map(len, embedder.seen)) <= 2 * PART
    assert not any("login" in text or "x.py" in text for text in embedder.seen)
    assert [hit.message_id for hit in index.near("word300 word301", 5).hits] == [ids[3], ids[0]]
    assert index.state().left == 0
    index.close()


def test_what_is_purged_is_gone_with_or_without_an_embedder(herma: Herma, clock: Clock, home: Path) -> None:
    _, kept = say(herma, "stays here")
    gone, _ = say(herma, "goes away", "soon")
    index = vectors(herma, HashEmbedder())
    assert index.wait()
    assert len(index.near("goes away", 9).hits) == 3
    herma.transcripts.delete(gone)
    clock.now += 30 * DAY
    herma.transcripts.purge_expired()
    blind = vectors(herma)
    blind.catch_up()
    assert blind.state().left == 0
    assert [hit.message_id for hit in index.near("goes away", 9).hits] == kept
    assert not any(gone in map(str, row) for row in stored(home))
    assert index.wait()
    blind.close()
    index.close()


def test_a_rebuild_gives_what_was_followed(
    herma: Herma, clock: Clock, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = vectors(herma, HashEmbedder())
    sessions = []
    for number in range(12):
        session, _ = say(herma, f"question {number}", f"answer {number}", title=f"title {number}")
        sessions.append(session)
        if number % 3 == 0:
            assert followed.wait()
        say(herma, f"more about {number}", session=sessions[number // 2])
    herma.transcripts.delete(sessions[5])
    clock.now += 30 * DAY
    herma.transcripts.purge_expired()
    assert followed.wait()
    before = stored(home)
    embedder = HashEmbedder()
    again = vectors(herma, embedder)
    assert again.rebuild()
    assert (stored(home), embedder.seen) == (before, [])
    followed.drop()
    assert again.wait()
    assert stored(home) == before
    assert len(again.near("question", 50).hits) == len([row for row in before if row[1] == MESSAGE])
    monkeypatch.setattr("herma.index.vectors.RECIPE", "2")  # texts that are made differently are embedded anew
    assert again.wait()
    assert {row[:5] for row in stored(home)} == {row[:5] for row in before}
    assert not {row[5] for row in stored(home)} & {row[5] for row in before}
    followed.close()
    again.close()


def test_a_large_change_is_walked_in_parts_newest_first(herma: Herma) -> None:
    index = vectors(herma, HashEmbedder())
    say(herma, "one", "two")
    assert index.wait()
    _, ids = say(herma, *(f"message {number}" for number in range(300)))
    seen: list[tuple[int, int]] = []
    assert index.wait(progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (302, 302)
    assert len(seen) > 4
    assert len(index.near("message", 400).hits) == 302
    fresh = vectors(herma, HashEmbedder(64))
    assert not fresh.wait(timeout=-1)
    first = vectors(herma, embedder := HashEmbedder(32))
    stop = iter([False, True, True])
    first._embed_all(lambda: next(stop), lambda *_: None)
    assert "message 299" in embedder.seen[0] or "message 299" in " ".join(embedder.seen)
    assert ids
    for one in (index, fresh, first):
        one.close()


def test_another_model_takes_over_and_the_old_one_goes_when_nobody_uses_it(herma: Herma, clock: Clock) -> None:
    say(herma, "the cat sleeps", "let it")
    old, new = vectors(herma, HashEmbedder(64), clock), vectors(herma, HashEmbedder(128), clock)
    assert old.wait()
    assert new.near("cat", 3).notes == ("vectors: nothing is embedded yet. To do it now: herma index embed",)
    assert new.state().others == (("hash-64", 2),)
    assert new.wait()
    assert len(new.near("cat", 3).hits) == 2
    assert len(old.near("cat", 3).hits) == 2  # another process may still use it
    clock.now += 7_200
    assert new.wait()
    assert new.state().others == ()
    assert old.near("cat", 3).hits == ()
    assert (new.state().model, new.state().dimension) == ("hash-128", 128)
    old.close()
    new.close()


def test_what_keepers_register_is_embedded_changed_and_forgotten(herma: Herma) -> None:
    say(herma, "hello")
    embedder, version, given = HashEmbedder(), "0", {"a": "likes tea", "b": "lives in Oslo"}

    def texts() -> list[Embeddable]:
        return [Embeddable(key, text, "home" if key < "c" else "project") for key, text in given.items()]

    index = vectors(herma, embedder)
    index.register(Embeddables("entry", lambda: version, texts))
    assert index.wait()
    (tea, oslo) = index.near("tea", 5, kinds=("entry",)).hits
    assert (tea.kind, tea.key, tea.scope, oslo.key) == ("entry", "a", "home", "b")
    embedder.seen.clear()
    given = {"b": "lives in Bergen", "c": "drinks tea"}
    assert index.wait()
    assert [hit.key for hit in index.near("tea", 5, kinds=("entry",)).hits] == ["a", "b"]  # its version is the same
    version = "1"
    assert index.wait()
    assert [hit.key for hit in index.near("drinks tea", 5, kinds=("entry",)).hits] == ["c", "b"]
    assert [hit.key for hit in index.near("drinks tea", 5, kinds=("entry",), scopes=["home"]).hits] == ["b"]
    assert [hit.key for hit in index.near("drinks tea", 5, kinds=("entry",), allowed=["b"]).hits] == ["b"]
    assert len(index.near("tea", 9, kinds=("entry", MESSAGE)).hits) == 3
    assert [text for text in embedder.seen if "lives" in text] == ["lives in Bergen"]
    other = vectors(herma, HashEmbedder())
    assert other.rebuild()  # what this process knows nothing of stays
    assert len(index.near("tea", 9, kinds=("entry",)).hits) == 2
    index.close()
    other.close()


def test_a_failing_embedder_is_said_left_alone_and_asked_again(herma: Herma, clock: Clock) -> None:
    say(herma, "the cat sleeps")
    embedder = Fragile()
    index = vectors(herma, embedder, clock)
    assert index.wait()
    embedder.broken = True
    say(herma, "the dog barks")
    assert not index.wait()
    calls = embedder.calls
    for _ in range(20):
        assert not index.wait()
        assert index.near("cat", 3).notes[0].startswith("vectors: the embedder failed (nobody answers)")
    assert embedder.calls == calls
    state = index.state()
    assert (state.trouble, state.failures, state.left) == ("nobody answers", 1, 1)
    elsewhere = vectors(herma, embedder, clock)
    assert elsewhere.state().trouble == "nobody answers"
    assert not elsewhere.wait()
    assert embedder.calls == calls  # another process knows, too
    clock.now += 1.5
    assert not index.wait()
    assert index.state().failures == 2
    assert index.state().retry_at == pytest.approx(clock.now + 2)
    clock.now += 3
    embedder.broken = False
    assert index.wait()
    assert index.state().trouble == ""
    assert len(index.near("dog", 3).hits) == 2
    index.close()
    elsewhere.close()


def test_a_text_that_is_refused_holds_up_nothing_and_odd_vectors_are_refused(herma: Herma) -> None:
    class Odd(HashEmbedder):
        def passages(self, texts: Sequence[str]) -> Rows:
            return np.full((len(texts), 3), np.nan, dtype=np.float32)

    _, ids = say(herma, "the cat sleeps", "some poison", "after it", "and more")
    index = vectors(herma, Fragile())
    assert index.wait()
    assert {hit.message_id for hit in index.near("cat", 9).hits} <= {ids[0], ids[3]}
    assert (index.state().left, index.state().trouble) == (0, "")
    index.close()
    say(herma, "hello")
    odd = vectors(herma, Odd())
    assert not odd.wait()
    assert "expected" in odd.state().trouble
    odd.close()


def test_curated_entries_and_episodes_are_embedded_with_the_transcripts(home: Path) -> None:
    with Herma.open(home, embedder=HashEmbedder()) as h:
        index = h.index.vectors
        assert index is not None
        assert h.index.wait()
        assert not (home / "index.db.vectors").exists()  # there is nothing to embed
        h.memory.apply("memory", Add("the staging server is called walnut"))
        h.memory.apply("user", Add("prefers tea"))
        h.memory.apply("memory", Add("uses tabs"), scope=Scope(h.settings.profile, project="acme"))
        assert h.index.wait()
        found = {hit.key.split("\x1f")[-1]: hit for hit in index.near("walnut server", 9, kinds=("entry",)).hits}
        assert set(found) == {"the staging server is called walnut", "prefers tea", "uses tabs"}
        assert found["uses tabs"].key.split("\x1f")[:2] == ["memory", "acme"]
        h.memory.apply("user", Replace("prefers tea", "prefers coffee"))
        assert h.index.wait()
        keys = [hit.key.split("\x1f")[-1] for hit in index.near("coffee", 9, kinds=("entry",)).hits]
        assert keys[0] == "prefers coffee"
        assert "prefers tea" not in keys


SKILL = """---
name: brew-tea
description: Use when somebody wants a cup of tea brewed properly.
---

Boil water, wait three minutes.
"""


def test_a_skill_is_embedded_sentence_by_sentence_and_found_as_one(home: Path) -> None:
    folder = home / "skills" / "brew-tea"
    folder.mkdir(parents=True)
    text = SKILL.replace("properly.", "properly. Also for iced drinks in summer.")
    (folder / "SKILL.md").write_text(text)
    for asked, expected in (("iced drinks", {"brew-tea", "brew-tea\n0", "brew-tea\n1"}), ("iced", {"brew-tea"})):
        with Herma.open(home, embedder=HashEmbedder()) as h:
            assert h.index.wait()
            assert {hit.key for hit in h.index.vectors.near(asked, 9, kinds=("skill",)).hits} == expected
            found = h.skills.find("brew iced drinks")
            assert [match.name for match in (*found.matches, *found.nearest)] == ["brew-tea"]
            if asked == "iced drinks":
                h.skills.edit("brew-tea", text.replace(" Also for iced drinks in summer.", ""))
