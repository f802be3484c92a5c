"""The end of a session, and of parts of an endless chat: what is learnt of it; and answers that cannot be read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests import homes
from tests.homes import of_files, talk

from herma import Add, Author, Herma, Origin, Who
from herma.models.models import MOST, REST, Pauses
from herma.review.rows import Review
from herma.testing import Answer, FixedClock, ScriptedModel
from herma.types import Scope

LONG = 30.0
TEA = "The user drinks green tea."
NOTHING = json.dumps({"memory": [], "episode": None, "skill": None})
AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)


def opened(home: Path, server: ScriptedModel, **flags: Any) -> Herma:
    given: dict[str, Any] = {
        "memory__nudge_interval": 0,
        "review__skill_interval": 0,
        "review__min_turns": 2,
        "review__drain": 20,
    }
    return homes.opened(home, server, **given | flags)


@contextmanager
def ended(home: Path, script: Any, *texts: str, **flags: Any) -> Iterator[tuple[Herma, str, ScriptedModel]]:
    """A session in which the user said `texts`, closed; the model answers reviews. → also its id"""
    with ScriptedModel(script) as server, opened(home, server, **flags) as h:
        with h.session() as s:
            talk(s, *texts)
        yield h, s.id, server


def looked(h: Herma) -> list[Review]:
    assert h.reviews.wait(LONG)
    return h.reviews.log()


def proposing(*changes: dict[str, str], **more: Any) -> str:
    return json.dumps({"memory": list(changes), **more})


def change(action: str, content: str = "", old: str = "", target: str = "user", reason: str = "") -> dict[str, str]:
    return {"action": action, "content": content, "old_text": old, "target": target, "reason": reason}


def test_operations_become_one_change_of_each_document(home: Path) -> None:
    answer = proposing(
        change("add", TEA),
        change("add", "The user has two cats called Ink and Paper."),
        change("add", "Tests run with make check.", target="memory"),
    )
    with ScriptedModel([f"Here it is:\n```json\n{answer}\n```"]) as server, opened(home, server) as h:
        with h.session() as s:
            talk(s, "I drink green tea", "my two cats are Ink and Paper", "tests run with make check")
        (review,) = looked(h)
        assert (review.kind, review.state, review.why, len(review.written)) == ("end", "done", "closed", 3)
        assert len(h.memory.history("user")) == len(h.memory.history("memory")) == 1
        h.memory.undo(h.memory.history("user")[0].id)
        assert h.memory.entries("user") == []
        assert h.memory.entries("memory") == ["Tests run with make check."]
        asked = server.requests[0]
        assert asked.tools == s.tools
        assert asked.messages[0] == {"role": "system", "content": s.system_prompt}
        assert [one["role"] for one in asked.messages[1:]] == ["user", "assistant"] * 3 + ["user"]
        assert "response_format" not in asked.body  # it would take another cache


def test_a_removal_needs_a_reason_and_little_may_go_at_once(home: Path) -> None:
    things = enumerate(("fork", "boat", "lamp", "tree"))
    entries = [f"The user's favourite thing number {n} is a {word} of some kind." for n, word in things]
    answer = proposing(
        change("remove", old="fork"),
        change("remove", old="boat", reason="the user sold the boat and said so"),
        change("remove", old="lamp", reason="the user no longer wants to hear of it"),
    )
    with ScriptedModel([answer]) as server, opened(home, server) as h:
        h.memory.apply("user", [Add(entry) for entry in entries], author=AGENT)
        with h.session() as s:
            talk(s, "I sold the boat", "really")
        (review,) = looked(h)
        assert review.refusals == {"no reason": 1, "loss": 1}
        assert h.memory.entries("user") == [entries[0], entries[2], entries[3]]
        newest = h.memory.history("user")[0]
        assert (newest.author.who, newest.reason) == (Who.REVIEW, "the user sold the boat and said so")
        assert "one review may change 25 %" in next(one.said for one in review.actions if one.why == "loss")


def test_the_episode_is_said_better_and_a_skill_is_proposed(home: Path) -> None:
    episode = {
        "task": "Release the shop",
        "outcome": "resolved",
        "result": "Version 2 is out.",
        "error": "The tag was missing",
        "remedy": "Fetch the tags first",
    }
    skill = {"name": "release-the-shop", "description": "Release the shop. Use for releases.", "body": "1. Fetch tags."}
    with ScriptedModel([proposing(episode=episode, skill=skill)]) as server, opened(home, server) as h:
        with h.session() as s:
            talk(s, "release the shop", "the tag was missing")
        (review,) = looked(h)
        assert [(one.what, one.result) for one in review.actions] == [
            ("episode", "applied"),
            ("skill create", "staged"),
        ]
        made = h.episodes.get(s.id)
        assert made is not None
        assert (made.task, made.outcome, made.remedy, made.built_by) == (
            "Release the shop",
            "resolved",
            "Fetch the tags first",
            "model",
        )
        (waiting,) = h.skills.pending()
        assert waiting.operation.name == "release-the-shop"
        h.skills.approve(waiting.id)
        assert h.skills.get("release-the-shop").body.strip() == "1. Fetch tags."


@of_files
@pytest.mark.parametrize("cut", [False, True])
def test_an_answer_that_cannot_be_read_is_asked_for_once_more(home: Path, cut: bool) -> None:
    whole = proposing(change("add", TEA), change("add", "The user is called Ada."))
    with ended(home, [whole[:-40] if cut else "I learnt a lot.", whole], "I drink green tea", "I am Ada") as (
        h,
        _,
        server,
    ):
        assert looked(h)[0].state == "done"
        assert h.memory.entries("user") == [TEA, "The user is called Ada."]
        assert len(server.requests) == 2
        assert "cannot be read" in server.requests[1].last


@of_files
def test_what_a_weak_model_makes_up_or_repeats_is_not_kept(home: Path) -> None:
    answer = proposing(
        change("add", "the new entry, for add and replace", target="memory"),
        change("add", "The user's name is Alice."),
        change("add", TEA),
        episode={"task": "what the user wanted, in one sentence", "outcome": "successful", "result": "Tea it is."},
        skill={"name": "small-letters-and-dashes", "description": "what it does, and when to use it", "body": "Steps."},
    )
    with ScriptedModel([answer]) as server, opened(home, server) as h:
        with h.session() as s:
            talk(s, "I drink green tea", "yes")
        (review,) = looked(h)
        assert review.refusals == {"echo": 2, "unfounded": 1}
        assert h.memory.entries("user") == [TEA]
        assert h.memory.entries("memory") == []
        assert h.skills.pending() == []
        (episode,) = h.episodes.list()
        assert (episode.task, episode.result) == ("I drink green tea", "Tea it is.")


def test_closing_does_not_wait_for_a_slow_model_and_the_next_one_makes_up_for_it(home: Path) -> None:
    with ScriptedModel([Answer("late", wait=LONG)]) as server:
        with opened(home, server, review__drain=0.05) as h, h.session() as s:
            talk(s, "I drink green tea", "yes")
        with opened(home, server) as h:
            assert h.reviews.status().owed == 1
            server.then(proposing(change("add", TEA)))
            with h.session() as other:
                talk(other, "hi")
                assert looked(h)[0].state == "done"
            assert looked(h)[0].session_id == s.id
            assert h.memory.entries("user") == [TEA]
            assert h.reviews.status().owed == 0


def test_what_fails_is_tried_three_times_and_no_more(home: Path) -> None:
    with ended(home, lambda _: Answer.failing(400, "no"), "I drink green tea", "yes") as (h, _, server):
        looked(h)
        for _ in range(4):
            with h.session() as other:
                talk(other, "hi")
                looked(h)
        assert [(one.state, one.tries) for one in h.reviews.log()] == [("failed", 3)]
        assert len(server.requests) == 3


# ── endless chats ──


def test_a_pause_another_day_and_silence_divide_an_endless_chat(home: Path, clock: FixedClock) -> None:
    script = [
        proposing(change("add", f"The user has {thing}.")) for thing in ("a boat in the harbour", "a house on a hill")
    ]
    with ScriptedModel(list(script)) as server, opened(home, server, clock=clock) as h:
        s = h.session()
        talk(s, "I have a boat in the harbour", "it is blue")
        assert looked(h) == []
        clock.advance(61 * 60)
        first = s.messages[-1].id
        talk(s, "back again")
        (review,) = looked(h)
        assert (review.kind, review.why, review.last_message) == ("boundary", "idle", first)
        sent = server.requests[0].messages
        assert sent[-2] == {"role": "assistant", "content": "Fine."}
        assert not any("back again" in str(one["content"]) for one in sent)
        assert h.memory.entries("user") == ["The user has a boat in the harbour."]
        clock.advance(60)
        talk(s, "I have a house on a hill")
        clock.advance(86_400)
        talk(s, "good morning")
        assert looked(h)[0].why == "idle"
        assert "begins with “back again”" in server.requests[1].last
        s.close()
        assert len(looked(h)) == 2  # too little was said since


def test_a_restart_does_not_repeat_a_boundary(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([proposing()]) as server:
        with opened(home, server, clock=clock, review__at_end=False) as h:
            s = h.session()
            talk(s, "I have a boat in the harbour", "it is blue")
            clock.advance(2 * 86_400)
            talk(s, "back again")
            assert len(looked(h)) == 1
            s.close()
        with opened(home, server, clock=clock, review__at_end=False) as h, h.session(resume=s.id) as s:
            clock.advance(2 * 86_400)
            talk(s, "and again")
            assert len(looked(h)) == 1  # one turn is too little to learn from


def test_another_topic_divides_too(home: Path) -> None:
    garden = [
        f"{what} in the garden behind the old house need plenty of water during summer"
        for what in ("tomatoes", "roses", "beans", "apples", "tulips", "carrots")
    ]
    code = [
        f"the {what} module of the compiler raises type errors while parsing generic functions"
        for what in ("lexer", "parser", "emitter")
    ]
    with ScriptedModel([proposing()]) as server, opened(home, server, review__idle_minutes=0) as h, h.session() as s:
        talk(s, *garden, *code[:2])
        assert looked(h) == []
        last = s.messages[11].id
        talk(s, code[2])
        (review,) = looked(h)
        assert (review.why, review.last_message) == ("topic", last)


def test_silence_alone_is_enough(home: Path) -> None:
    with (
        ScriptedModel([proposing(change("add", TEA))]) as server,
        opened(home, server, review__idle_minutes=0.001) as h,
        h.session() as s,
    ):
        talk(s, "I drink green tea", "yes")
        for _ in range(600):
            if h.reviews.log():
                break
            h.reviews.wait(0.05)
            time.sleep(0.01)
        (review,) = looked(h)
        assert (review.kind, review.why) == ("boundary", "idle")


def test_before_a_conversation_is_summed_up_it_is_looked_back_at(home: Path) -> None:
    with ScriptedModel([proposing(change("add", TEA))]) as server, opened(home, server) as h:
        with h.session() as s:
            talk(s, "I drink green tea", "yes")
            s.continue_with(s.messages[-2:])
            (review,) = looked(h)
            assert (review.kind, review.why) == ("boundary", "compression")
        assert h.memory.entries("user") == [TEA]


# ── others ──


def test_a_project_keeps_its_own_notes_and_the_homes_entry_is_changed_where_it_is(home: Path) -> None:
    answer = proposing(
        change("add", "The shop's tests run with make check.", target="memory"),
        change(
            "replace",
            "Python 3.12 with uv is used on this machine and nothing else.",
            "Python 3.11",
            "memory",
            "it was upgraded",
        ),
    )
    with ScriptedModel([answer]) as server, opened(home, server) as h:
        old = "Python 3.11 with uv is used on this machine and nothing else."
        h.memory.apply("memory", Add(old), author=AGENT)
        with h.session(project="shop") as s:
            talk(s, "tests run with make check", "I upgraded to Python 3.12")
        looked(h)
        assert h.memory.entries("memory", scope=Scope(project="shop")) == ["The shop's tests run with make check."]
        assert h.memory.entries("memory") == [old.replace("3.11", "3.12")]


def test_deleting_a_session_deletes_what_was_noted_about_it(home: Path, clock: FixedClock) -> None:
    script = [proposing(change("add", "The tests pass now, all done."))]
    flags: dict[str, Any] = {"clock": clock, "retention__grace_days": 1}
    with ended(home, script, "I drink green tea", "yes", **flags) as (h, session, _):
        assert looked(h)[0].refusals == {"status": 1}
        h.transcripts.delete([session])
        clock.advance(2 * 86_400)
        h.transcripts.purge_expired()
        assert h.reviews.log() == []


def test_the_log_of_what_came_to_nothing_is_kept_for_a_while(
    home: Path, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herma.review.review._PRUNED_EVERY", 4)
    with (
        ScriptedModel(lambda _: Answer(proposing())) as server,
        opened(home, server, clock=clock) as h,
        h.session() as s,
    ):
        for _ in range(5):
            for text in ("I drink green tea", "yes"):
                talk(s, text)
                assert h.reviews.wait(LONG)  # a new turn would stop it
            clock.advance(40 * 86_400)
        assert [review.id for review in h.reviews.log()] == [4, 3, 2], "kept for 90 days"


def test_a_review_that_is_stopped_is_due_again_however_often(home: Path) -> None:
    with ScriptedModel(lambda _: Answer("late", wait=600)) as server:
        with opened(home, server) as h:
            with h.session() as s:
                talk(s, "I drink green tea", "my two cats are Ink and Paper")
            _until_asked(server, 1)
            h.reviews.put_off("")
        for asked in range(2, 7):
            with opened(home, server) as h:
                assert h.reviews.status().owed == 1
                s = h.session()
                talk(s, "Hello")  # now there is time for what is due
                _until_asked(server, asked)
                h.reviews.put_off(s.id)
                assert [one.tries for one in h.reviews.log()] == []
    with ScriptedModel([proposing()]) as server, opened(home, server) as h:
        with h.session() as s:
            talk(s, "Hello")
            (review,) = looked(h)
        assert (review.state, review.tries, h.reviews.status().owed) == ("done", 1, 0)


def _until_asked(server: ScriptedModel, times: int) -> None:
    until = time.monotonic() + LONG
    while len(server.requests) < times and time.monotonic() < until:
        time.sleep(0.01)
    assert len(server.requests) == times


def drunk(h: Herma) -> None:
    with h.session() as s:
        talk(s, "I drink green tea", "yes")


# ── a model that does not answer in the form asked for ──


@of_files
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


@of_files
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


@of_files
def test_no_json_costs_two_calls_a_session_and_none_after_three(home: Path) -> None:
    clock = FixedClock()
    script = lambda _: Answer("I learnt a lot about tea.")  # noqa: E731
    with ScriptedModel(script) as server:
        with opened(home, server, clock=clock) as h:
            for sessions in range(1, MOST + 1):
                drunk(h)
                (review, *_) = looked(h)
                assert (review.state, review.steps, len(server.requests)) == ("failed", 2, 2 * sessions)
                assert "no whole JSON object" in review.notice
            assert "memory_update is paused until" in review.notice
            first, second = server.requests[:2]
            assert "response_format" not in first.body  # it would take another cache
            assert second.body["response_format"]["json_schema"]["strict"] is True
            assert [one["role"] for one in second.messages[-3:]] == ["user", "assistant", "user"]
            drunk(h)
            assert (looked(h)[0].state, len(server.requests)) == ("refused", 2 * MOST)
            (rests,) = h.models.pauses.list()
            assert (rests.purpose, rests.model, rests.passes) == ("memory_update", "scripted", MOST)
            assert any("memory_update is paused" in check.sentence for check in h.doctor().checks)
        clock.advance(REST + 1)
        with opened(home, server, clock=clock) as h:  # another program, a day later: once more
            assert h.models.pauses.list() == ()
            drunk(h)
            assert len(server.requests) == 2 * MOST
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 2)
            assert h.models.pauses.list() != ()
        with opened(home, server, clock=clock, model__name="another") as h:  # another model has done nothing wrong
            drunk(h)
            assert (looked(h)[0].state, len(server.requests)) == ("failed", 2 * MOST + 4)


@of_files
def test_a_server_that_knows_no_schemas(home: Path, server: ScriptedModel) -> None:
    server.then("No.", Answer.failing(400, "response_format is not supported"))
    with opened(home, server) as h:
        drunk(h)
        (review,) = looked(h)
        assert (review.state, server.left) == ("failed", 0)
        drunk(h)
        looked(h)
        assert len(server.requests) == 3  # the first session is not tried again


@of_files
def test_a_person_may_ask_all_the_same(home: Path, server: ScriptedModel) -> None:
    server.then(*["No."] * (2 * MOST))
    with opened(home, server) as h:
        for _ in range(MOST):
            drunk(h)
            looked(h)
        assert [one.purpose for one in h.models.pauses.lift("memory_update")] == ["memory_update"]
        assert h.models.pauses.lift() == ()
        server.then("No.", "No.")
        drunk(h)
        looked(h)
        assert server.left == 0
        assert h.models.pauses.list() != ()  # one more was enough
        server.then(NOTHING)
        session = h.transcripts.list(limit=1)[0]
        with h.session(resume=session.id) as s:
            talk(s, "And with milk.")
        assert h.reviews.run(session.id).state == "done"
        assert h.models.pauses.list() == ()


@of_files
def test_calls_that_are_no_json_are_told_once(home: Path) -> None:
    flags: dict[str, Any] = {"memory__nudge_interval": 1, "review__at_end": False}
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


@of_files
def test_tidying_says_that_the_answer_is_none(home: Path) -> None:
    texts = ["Deploys to staging go out on Tuesdays.", "Staging gets its deploys on Tuesdays, usually at noon."]
    with ScriptedModel(lambda _: Answer("They look alike.")) as server, opened(home, server) as h:
        for text in texts:
            h.memory.apply("memory", Add(text), author=Author(Who.TOOL, Origin.AGENT_CONCLUDED))
        said = ["did not return the JSON asked for"] * MOST + ["tidy is paused until"]
        for note in said:
            assert any(note in one for file in h.tidy("memory", dry_run=True).files for one in file.notes)
        assert len(server.requests) == MOST


@of_files
def test_shortening_goes_on_without_it_and_a_person_may_ask(home: Path) -> None:
    flags: dict[str, Any] = {"context__window": 8_000, "review__at_end": False}
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
