"""A model that does not answer in the form asked for: what that costs at most, who is told, and how it goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.homes import opened, talk

from herma import Add, Author, Herma, Origin, Who
from herma.models.models import MOST, REST, Pauses
from herma.review.rows import Review
from herma.testing import Answer, FixedClock, ScriptedModel

LONG = 30.0
NOTHING = json.dumps({"memory": [], "episode": None, "skill": None})
FLAGS: dict[str, Any] = {
    "memory__nudge_interval": 0,
    "review__skill_interval": 0,
    "review__min_turns": 2,
    "review__drain": 20,
}


def ended(h: Herma) -> None:
    with h.session() as session:
        talk(session, "I drink green tea", "yes")


def looked(h: Herma) -> list[Review]:
    assert h.reviews.wait(LONG)
    return h.reviews.log()


# ── deciding ──


def test_three_unusable_answers_in_a_row_pause_for_a_day(home: Path) -> None:
    clock = FixedClock()
    pauses = Pauses(home, clock)
    for passes in range(1, MOST + 1):
        made = pauses.judge("compress", "m", "no headings")
        assert (made is not None) == (passes == MOST)
    other = Pauses(home, clock)  # another program
    assert other.of("compress", "m") == made
    assert other.of("compress", "other") is other.of("review", "m") is None
    assert "no headings" in other.list()[0].notice
    clock.advance(-2 * REST)
    assert other.list() == (), "a clock that was set back pauses nothing for years"
    clock.advance(2 * REST)
    assert other.lift("review") == ()
    assert len(other.lift("compress")) == 1
    assert pauses.list() == ()
    assert pauses.judge("compress", "m", "again") is not None, "one more is enough"
    clock.advance(REST)
    assert pauses.list() == ()
    pauses.judge("compress", "m")
    assert pauses.judge("compress", "m", "again") is None, "a usable answer starts the count anew"


def test_the_file_may_be_missing_broken_or_not_writable(home: Path) -> None:
    pauses = Pauses(home, FixedClock())
    assert pauses.list() == ()
    path = home / "logs" / "pauses.json"
    path.parent.mkdir()
    for broken in (b"", b"{", b"[1]", b'[{"purpose": "x"}]', b"\xff", b'[{"purpose":1,"model":2,"passes":"x"}]'):
        path.write_bytes(broken)
        assert pauses.list() == ()
    path.unlink()
    path.mkdir()
    for _ in range(MOST):
        pauses.judge("review", "m", "no JSON")  # not recorded; the work goes on
    assert pauses.list() == ()


# ── at the end of a session ──


def test_no_json_costs_two_calls_a_session_and_none_after_three(home: Path) -> None:
    clock = FixedClock()
    script = lambda _: Answer("I learnt a lot about tea.")  # noqa: E731
    with ScriptedModel(script) as server:
        with opened(home, server, clock=clock, **FLAGS) as h:
            for sessions in range(1, MOST + 1):
                ended(h)
                (review, *_) = looked(h)
                assert (review.state, review.steps, len(server.requests)) == ("failed", 2, 2 * sessions)
                assert "no whole JSON object" in review.notice
            assert "memory_update is paused until" in review.notice
            first, second = server.requests[:2]
            assert "response_format" not in first.body  # it would take another cache
            assert second.body["response_format"]["json_schema"]["strict"] is True
            assert [one["role"] for one in second.messages[-3:]] == ["user", "assistant", "user"]
            ended(h)
            assert (looked(h)[0].state, len(server.requests)) == ("refused", 2 * MOST)
            (rests,) = h.models.pauses.list()
            assert (rests.purpose, rests.model, rests.passes) == ("memory_update", "scripted", MOST)
            assert any("memory_update is paused" in check.sentence for check in h.doctor().checks)
        clock.advance(REST + 1)
        with opened(home, server, clock=clock, **FLAGS) as h:  # another program, a day later: once more
            assert h.models.pauses.list() == ()
            ended(h)
            assert len(server.requests) == 2 * MOST
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 2)
            assert h.models.pauses.list() != ()
        with opened(
            home, server, clock=clock, **FLAGS | {"model__name": "another"}
        ) as h:  # another model has done nothing wrong
            ended(h)
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 4)


def test_a_server_that_knows_no_schemas(home: Path, server: ScriptedModel) -> None:
    server.then("No.", Answer.failing(400, "response_format is not supported"))
    with opened(home, server, **FLAGS) as h:
        ended(h)
        (review,) = looked(h)
        assert (review.state, server.left) == ("failed", 0)
        ended(h)
        looked(h)
        assert len(server.requests) == 3  # the first session is not tried again


def test_a_person_may_ask_all_the_same(home: Path, server: ScriptedModel) -> None:
    server.then(*["No."] * (2 * MOST))
    with opened(home, server, **FLAGS) as h:
        for _ in range(MOST):
            ended(h)
            looked(h)
        assert [one.purpose for one in h.models.pauses.lift("memory_update")] == ["memory_update"]
        assert h.models.pauses.lift() == ()
        server.then("No.", "No.")
        ended(h)
        looked(h)
        assert server.left == 0
        assert h.models.pauses.list() != ()  # one more was enough
        server.then(NOTHING)
        session = h.transcripts.list(limit=1)[0]
        with h.session(resume=session.id) as s:
            talk(s, "And with milk.")
        assert h.reviews.run(session.id).state == "done"
        assert h.models.pauses.list() == ()


# ── after a reply ──


def test_calls_that_are_no_json_are_told_once(home: Path) -> None:
    flags = FLAGS | {"memory__nudge_interval": 1, "review__at_end": False}
    broken = Answer.calling("memory", '{"action": "add", "content": ')
    with ScriptedModel(lambda _: broken) as server, opened(home, server, **flags) as h, h.session() as s:
        for turn in range(1, MOST + 1):
            talk(s, "hi")
            assert looked(h)[0].steps == 2
            assert len(server.requests) == 2 * turn
        assert "not valid JSON" in server.requests[1].messages[-1]["content"]
        assert any("review is paused until" in warning for warning in s.warnings)
        talk(s, "Remember that my cat is called Ink.")
        looked(h)
        assert len(server.requests) == 2 * MOST
        assert "My cat is called Ink" in h.memory.entries("user")[0]  # the user's own words do


# ── tidying and shortening ──


def test_tidying_says_that_the_answer_is_none(home: Path) -> None:
    texts = ["Deploys to staging go out on Tuesdays.", "Staging gets its deploys on Tuesdays, usually at noon."]
    with ScriptedModel(lambda _: Answer("They look alike.")) as server, opened(home, server, **FLAGS) as h:
        for text in texts:
            h.memory.apply("memory", Add(text), author=Author(Who.TOOL, Origin.AGENT_CONCLUDED))
        said = ["did not return the JSON asked for"] * MOST + ["tidy is paused until"]
        for note in said:
            assert any(note in one for file in h.tidy("memory", dry_run=True).files for one in file.notes)
        assert len(server.requests) == MOST


def test_shortening_goes_on_without_it_and_a_person_may_ask(home: Path) -> None:
    flags = FLAGS | {"context__window": 8_000, "review__at_end": False}
    with ScriptedModel(lambda _: Answer("It was a long talk.")) as server, opened(home, server, **flags) as h:
        for conversation in range(MOST + 1):
            with h.session() as s:
                for turn in range(12):
                    talk(s, f"Step {turn}: " + "word " * 300, reply="Done. " + "word " * 300)
            assert len(server.requests) == min(conversation + 1, MOST), s.warnings
        assert [one.purpose for one in h.models.pauses.list()] == ["compress"]
        with h.session(resume=s.id) as again:
            again.compress("the words")
        assert len(server.requests) == MOST + 1
