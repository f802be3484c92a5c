"""A model that does not answer in the form asked for: what that costs at most, who is told, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma import Add, Author, Herma, Origin, Who
from herma.review.proposal import problem_of
from herma.review.rows import Review
from herma.review.spending import MOST, REST, Missed, PauseFile, Pauses, lifted, missed
from herma.session import Session
from herma.testing import Answer, Asked, FixedClock, ScriptedModel
from herma.types import ToolCall

LONG = 30.0
NOTHING = json.dumps({"memory": [], "episode": None, "skill": None})


@contextmanager
def opened(home: Path, server: ScriptedModel, clock: FixedClock, **flags: Any) -> Iterator[Herma]:
    given_: dict[str, Any] = {
        "memory.nudge_interval": 0,
        "review.skill_interval": 0,
        "review.min_turns": 2,
        "review.drain": 20,
        "embedding.model": "none",
        "model.url": server.url,
        "model.name": "scripted",
        "model.retries": 0,
    }
    given_ |= {name.replace("__", "."): value for name, value in flags.items()}
    with Herma.open(home, flags=given_, clock=clock) as h:
        yield h


def ended(h: Herma, *texts: str) -> Session:
    with h.session() as session:
        for text in texts or ("I drink green tea", "yes"):
            session.before_model(text)
            session.after_model("Fine.")
    return session


def looked(h: Herma) -> list[Review]:
    assert h.reviews.wait(LONG)
    return h.reviews.log()


# ── deciding ──


@given(st.integers(0, 10), st.floats(0, 1e9))
def test_three_in_a_row_are_enough_and_a_rest_ends(passes: int, now: float) -> None:
    state = None
    for _ in range(passes):
        state = missed(state, now, "no JSON")
    rests = state is not None and state.rests(now)
    assert rests == (passes >= MOST)
    if state is not None and rests:
        assert not state.rests(state.until)
        assert not lifted(state).rests(now)
        assert missed(lifted(state), now, "again").rests(now)
        assert missed(state, now + REST, "again").rests(now + REST)


def test_a_clock_that_was_set_back_leaves_nothing_at_rest_for_years() -> None:
    state = Missed(3, 2e9, "no JSON", 2e9 + REST)
    assert state.rests(2e9)
    assert not state.rests(1e9)


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_a_model_calls_it_is_judged(name: str, arguments: str) -> None:
    assert isinstance(problem_of(ToolCall("1", name, arguments), ("memory",)), str)
    assert problem_of(ToolCall("1", "memory", '{"action": "add"}'), ("memory",)) == ""
    assert "no JSON" in problem_of(ToolCall("1", "memory", "{add"), ("memory",))
    assert "no JSON object" in problem_of(ToolCall("1", "memory", "[1]"), ("memory",))


def test_the_file_may_be_missing_broken_or_not_writable(home: Path) -> None:
    file = PauseFile(home)
    assert file.read() == {}
    known = {("review", "m"): Missed(3, 5.0, "no JSON", 6.0)}
    file.write(known)
    assert file.read() == known
    path = home / "logs" / "pauses.json"
    for broken in (b"", b"{", b"[1]", b'[{"purpose": "x"}]', b"\xff", b'[{"purpose":1,"model":2,"passes":"x"}]'):
        path.write_bytes(broken)
        assert file.read() == {}
    path.unlink()
    path.mkdir()
    file.write(known)  # nobody is kept from working by it
    assert file.read() == {}


# ── at the end of a session ──


def test_no_json_costs_two_calls_a_session_and_none_after_three(home: Path) -> None:
    clock = FixedClock()
    script = lambda _: Answer("I learnt a lot about tea.")  # noqa: E731
    with ScriptedModel(script) as server:
        with opened(home, server, clock) as h:
            for sessions in range(1, MOST + 1):
                ended(h)
                (review, *_) = looked(h)
                assert (review.state, review.steps, len(server.requests)) == ("failed", 2, 2 * sessions)
                assert "no whole JSON object" in review.notice
            assert "memory_update rests until" in review.notice
            first, second = server.requests[:2]
            assert "response_format" not in first.body  # it would take another cache
            assert second.body["response_format"]["json_schema"]["strict"] is True
            assert [one["role"] for one in second.messages[-3:]] == ["user", "assistant", "user"]
            ended(h)
            assert (looked(h)[0].state, len(server.requests)) == ("refused", 2 * MOST)
            (rests,) = h.models.pauses.list()
            assert (rests.purpose, rests.model, rests.missed.passes) == ("memory_update", "scripted", MOST)
            assert any("memory_update rests" in check.sentence for check in h.doctor().checks)
        clock.advance(REST + 1)
        with opened(home, server, clock) as h:  # another program, a day later: once more
            assert h.models.pauses.list() == ()
            ended(h)
            assert len(server.requests) == 2 * MOST
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 2)
            assert h.models.pauses.list() != ()
        with opened(home, server, clock, model__name="another") as h:  # another model has done nothing wrong
            ended(h)
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 4)


def test_an_answer_in_form_ends_the_row(home: Path) -> None:
    clock = FixedClock()
    with ScriptedModel(["No."] * 4 + [NOTHING] + ["No."] * 4) as server, opened(home, server, clock) as h:
        for _ in range(5):
            ended(h)
            looked(h)
        assert server.left == 0
        assert h.models.pauses.list() == ()


def test_a_server_that_knows_no_schemas(home: Path) -> None:
    script: list[Any] = ["No.", Answer.failing(400, "response_format is not supported")]
    with ScriptedModel(script) as server, opened(home, server, FixedClock()) as h:
        ended(h)
        (review,) = looked(h)
        assert (review.state, server.left) == ("failed", 0)
        ended(h)
        looked(h)
        assert len(server.requests) == 3  # the first session is not tried again


def test_a_person_may_ask_all_the_same(home: Path) -> None:
    script: list[Any] = ["No."] * (2 * MOST)
    with ScriptedModel(script) as server, opened(home, server, FixedClock()) as h:
        for _ in range(MOST):
            ended(h)
            looked(h)
        assert h.models.pauses.list() != ()
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
            s.before_model("And with milk.")
            s.after_model("Fine.")
        assert h.reviews.run(session.id).state == "done"
        assert h.models.pauses.list() == ()


# ── after a reply ──


def test_calls_that_are_no_json_are_told_once(home: Path) -> None:
    def script(asked: Asked) -> Answer:
        return Answer.calling("memory", '{"action": "add", "content": ')

    with ScriptedModel(script) as server:
        flags = {"memory__nudge_interval": 1, "review__at_end": False}
        with opened(home, server, FixedClock(), **flags) as h, h.session() as s:
            for turn in range(1, MOST + 1):
                s.before_model("hi")
                s.after_model("ho")
                assert looked(h)[0].steps == 2
                assert len(server.requests) == 2 * turn
            assert "not valid JSON" in server.requests[1].messages[-1]["content"]
            assert any("review rests until" in warning for warning in s.warnings)
            s.before_model("Remember that my cat is called Ink.")
            s.after_model("I will.")
            looked(h)
            assert len(server.requests) == 2 * MOST
            assert "my cat is called Ink" in h.memory.entries("user")[0]  # the user's own words do


# ── tidying and shortening ──


def test_tidying_says_that_the_answer_is_none(home: Path) -> None:
    texts = ["Deploys to staging go out on Tuesdays.", "Staging gets its deploys on Tuesdays, usually at noon."]
    with ScriptedModel(lambda _: Answer("They look alike.")) as server, opened(home, server, FixedClock()) as h:
        for text in texts:
            h.memory.apply("memory", Add(text), author=Author(Who.TOOL, Origin.AGENT_CONCLUDED))
        for _ in range(MOST):
            report = h.tidy("memory", dry_run=True)
            assert any("did not answer in the form" in note for file in report.files for note in file.notes)
        assert len(server.requests) == MOST
        report = h.tidy("memory", dry_run=True)
        assert len(server.requests) == MOST
        assert any("tidy rests until" in note for file in report.files for note in file.notes)


def test_shortening_goes_on_without_it_and_a_person_may_ask(home: Path) -> None:
    clock = FixedClock()
    flags = {"context__window": 8_000, "review__at_end": False}
    with ScriptedModel(lambda _: Answer("It was a long talk.")) as server, opened(home, server, clock, **flags) as h:
        for conversation in range(MOST + 1):
            with h.session() as s:
                for turn in range(12):
                    s.before_model(f"Step {turn}: " + "word " * 300)
                    s.after_model("Done. " + "word " * 300)
            assert len(server.requests) == min(conversation + 1, MOST), s.warnings
        assert [one.purpose for one in h.models.pauses.list()] == ["compress"]
        with h.session(resume=s.id) as again:
            again.compress("the words")
        assert len(server.requests) == MOST + 1


@pytest.mark.parametrize("words", [[], ["compress"]])
def test_pauses_are_those_of_the_file(home: Path, words: list[str]) -> None:
    clock = FixedClock()
    pauses = Pauses(PauseFile(home), clock)
    for _ in range(MOST):
        pauses.judge("compress", "m", "no headings")
    assert "no headings" in pauses.list()[0].notice
    assert len(Pauses(PauseFile(home), clock).lift(*words)) == 1
    assert pauses.list() == ()
