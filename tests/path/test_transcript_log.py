"""Transcripts as their users have them: one home, real files, what happens to sessions from beginning to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from herma import Herma
from herma.errors import UsageError
from herma.testing import FixedClock
from herma.transcript.log import Transcripts
from herma.types import Scope, SessionFilter, SessionInfo, Usage

DAY = 86_400.0


@pytest.fixture
def log(h: Herma) -> Transcripts:
    return h.transcripts


def user(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def test_a_session_from_beginning_to_end(log: Transcripts, clock: FixedClock) -> None:
    session = log.start("cli", title=" Fix the login ", system_prompt="You are.", scope=Scope(project="/w"), model="m")
    ids = log.append(session, [user("it fails", name="ann"), {"role": "assistant", "content": "Fixed."}])
    for _ in range(2):
        log.record_usage(session, Usage(1, 2, 3, 4, 5, 0.25))
    clock.advance(60)
    assert log.end(session, "done")
    assert not log.end(session, "again")
    info = log.get(session)
    assert info is not None
    assert (info.title, info.scope.project, info.model, info.reason) == ("Fix the login", "/w", "m", "new")
    assert (info.message_count, info.usage, info.end_reason, info.ended) == (
        2,
        Usage(2, 4, 6, 8, 10, 0.5),
        "done",
        clock.now,
    )
    assert (info.preview, info.last_active, info.conversation) == ("it fails", clock.now - 60, session)
    assert [message.id for message in log.messages(session)] == ids
    assert log.messages(session)[0].extra == {"name": "ann"}
    assert log.system_prompt(session) == "You are."
    log.reopen(session)
    assert log.end(session, "later")


def test_unknown_sessions_are_named(log: Transcripts) -> None:
    log.start("cli")
    for call in (
        lambda: log.append("nope", [user("x")]),
        lambda: log.messages("nope"),
        lambda: log.end("nope", "x"),
        lambda: log.reopen("nope"),
        lambda: log.rename("nope", "x"),
        lambda: log.archive("nope"),
        lambda: log.delete("nope"),
        lambda: log.tip("nope"),
        lambda: log.record_usage("nope", Usage()),
        lambda: log.restore_rewound("nope"),
    ):
        with pytest.raises(UsageError, match="'nope'"):
            call()
    with pytest.raises(UsageError, match="no deleted session"):
        log.undelete("nope")


def test_wrong_beginnings(log: Transcripts) -> None:
    log.start("cli", session_id="mine")
    log.delete("mine")
    rows: list[tuple[str, dict[str, Any]]] = [
        *(("cannot be the id", {"session_id": bad}) for bad in ("", " ", "a\nb", " a", "x" * 201, "a\x00")),
        *(("already", {"session_id": "mine", "title": title}) for title in (None, "Name")),
        *(
            ("source", {"source": " "}),
            ("reason of start", {"reason": "boredom"}),
            ("at most 100", {"title": "x" * 101}),
        ),
    ]
    for said, arguments in rows:
        with pytest.raises(UsageError, match=said):
            log.start(**{"source": "cli", **arguments})
    session = log.start("cli")
    with pytest.raises(UsageError, match="Message 1"):
        log.append(session, [user("fine"), {"role": "user", "content": 7}])
    assert log.messages(session) == []


def test_a_conversation_goes_on_and_keeps_its_name(log: Transcripts, clock: FixedClock) -> None:
    first = log.start("cli", title="Name", scope=Scope(user="u"))
    log.append(first, [user("one")])
    clock.advance(1)
    second = log.start("cli", parent=first, reason="compression")
    third = log.start("cli", parent=second)
    branch = log.start("cli", parent=second, reason="branch")
    helper = log.start("cli", parent=second, reason="delegation")
    log.append(second, [user("two")])
    found = {id_: log.get(id_) for id_ in (second, third, branch, helper)}
    assert [info.title for info in found.values() if info] == ["Name #2", "Name #3", "Name #4", None]
    assert [info.reason for info in found.values() if info] == ["compression", "resume", "branch", "delegation"]
    assert [info.conversation for info in found.values() if info] == [first, first, branch, helper]
    assert {info.scope.user for info in found.values() if info} == {"u"}
    assert log.conversation(third)[0].id == first
    assert log.resume_target(first) == second
    assert log.tip(first) in (second, third)
    assert [line.conversation for line in log.list()] == [branch, first]
    assert [line.conversation for line in log.list(delegated=None)][-1] == first
    line = log.list()[1]
    assert (line.started, line.message_count) == (clock.now - 1, 2)


def test_titles_are_unique_but_may_move(log: Transcripts) -> None:
    first = log.start("cli", title="Name")
    assert [info.title for info in [log.get(log.start("cli", title="Name"))] if info] == ["Name #2"]
    second = log.start("cli", parent=first, title="Other")
    assert log.rename(second, " Name\u200b ") == "Name"
    assert (info := log.get(first)) is not None
    assert info.title is None
    stranger = log.start("cli")
    with pytest.raises(UsageError, match="Another conversation") as caught:
        log.rename(stranger, "Name")
    assert "Name #3" in caught.value.hint
    assert log.rename(stranger, "  ") is None
    assert log.next_title("Name") == "Name #3"
    long = "x" * 100
    titles = [(log.get(log.start("cli", title=long)) or SessionInfo("", "", Scope(), 0, "")).title for _ in range(12)]
    assert len(set(titles)) == 12


def test_sessions_are_found_by_id_beginning_and_title(log: Transcripts) -> None:
    for session_id in ("2026_a1", "2026_b", "7", "work-2026"):
        log.start("cli", session_id=session_id)
    log.rename("7", "Name")
    assert log.resolve("2026_a") == "2026_a1"
    assert log.resolve("7") == log.resolve("Name") == "7"
    assert log.resolve("x") is log.resolve("") is None
    assert log.resolve("work") == "work-2026"
    titled = log.start("cli", title="work")
    log.start("cli", session_id="work-2027")
    assert log.resolve("work") == titled, "a whole title counts before the beginning of an id"
    for several in ("2026", "work-"):
        with pytest.raises(UsageError, match="Several"):
            log.resolve(several)
    composed, taken_apart = log.start("cli", title="Café"), log.start("cli", title="Cafe\u0301")
    assert (log.get(taken_apart) or pytest.fail("gone")).title == "Café #2", "titles that look the same are the same"
    log.delete(taken_apart)
    assert log.resolve("  Cafe\u0301 ") == composed
    assert log.resolve("\u200b") is log.resolve("Café" + "x" * 200) is None


def test_rewinding_hides_and_restores(log: Transcripts) -> None:
    session = log.start("cli")
    ids = log.append(session, [user("one"), {"role": "assistant", "content": "1"}, user("two"), user("three")])
    for wrong in (ids[1], 999):
        with pytest.raises(UsageError, match="not a visible user message"):
            log.rewind(session, wrong)
    assert log.rewind(session, ids[2]) == 2
    assert [message.id for message in log.messages(session)] == ids[:2]
    assert [message.id for message in log.messages(session, include_hidden=True)] == ids
    assert [message.id for message in log.around(ids[1], 5)] == ids[:2]
    with pytest.raises(UsageError):
        log.rewind(session, ids[3])
    log.rewind(session, ids[0])
    log.append(session, [user("anew")])
    assert (info := log.get(session)) is not None
    assert (info.preview, info.message_count) == ("anew", 1)
    assert log.restore_rewound(session) == 4
    assert [message.content for message in log.messages(session)] == ["one", "1", "two", "three", "anew"]


def test_compacted_messages_leave_the_context_only(log: Transcripts) -> None:
    session = log.start("cli")
    ids = log.append(session, [user("", name="picture"), user("the first words"), *(user(str(n)) for n in range(3))])
    assert log.compact(session, ids[0], ids[3]) == 4
    assert [message.id for message in log.messages(session)] == ids[4:]
    assert [message.id for message in log.around(ids[2], 1)] == ids[1:4]
    assert [[one.id for one in end] for end in log.bookends(session, 1)] == [[ids[1]], [ids[4]]]

    def preview() -> str:
        return (log.get(session) or pytest.fail("gone")).preview

    assert preview() == "the first words", "compacted messages still tell how a session began"
    log.rewind(session, ids[4])
    assert preview() == "the first words"
    assert log.restore_compacted(session) == 4
    log.rewind(session, ids[1])
    assert preview() == ""


def test_archiving_takes_the_whole_conversation(log: Transcripts) -> None:
    first = log.start("import")
    log.append(first, [user("a", timestamp=1000.0), user("b", timestamp=2000.0)])
    info = log.get(first)
    assert info is not None
    assert (info.started, info.last_active) == (1000.0, 2000.0), "the times of the messages"
    second = log.start("cli", parent=first)
    assert log.archive(first) == 2
    assert log.list() == []
    assert [line.conversation for line in log.list(archived=True)] == [first]
    assert log.archive(second, False) == 2
    assert len(log.list()) == 1


def test_deleting_can_be_taken_back_until_it_cannot(log: Transcripts, clock: FixedClock) -> None:
    first = log.start("cli", title="Name")
    ids = log.append(first, [user("one")])
    second = log.start("cli", parent=first)
    helper = log.start("cli", parent=second, reason="delegation")
    deeper = log.start("cli", parent=helper, reason="delegation")
    branch = log.start("cli", parent=second, reason="branch", title="Branch")
    gone = log.delete(second)
    assert {one.id for one in gone.sessions} == {first, second, helper, deeper}
    assert (gone.messages, gone.until) == (1, clock.now + 7 * DAY)
    assert [line.id for line in log.list(delegated=None)] == [branch]
    assert log.around(ids[0]) == []
    assert {one.id for one in log.deleted()} == {first, second, helper, deeper}
    usurper = log.start("cli", title="Name")
    clock.advance(6 * DAY)
    assert log.purge_expired() == []
    assert {one.id for one in log.undelete(first)} == {first, second, helper, deeper}
    assert (info := log.get(first)) is not None
    assert info.title == "Name #2"  # the name itself is somebody else's by now
    assert [message.id for message in log.messages(first)] == ids
    log.delete([first, usurper], whole=False)
    assert log.get(second) is not None
    clock.advance(7 * DAY + 1)
    with pytest.raises(UsageError, match="no deleted session"):
        log.undelete(first)
    assert {one.id for one in log.purge_expired()} == {first, usurper}
    assert log.deleted() == []
    assert (info := log.get(second)) is not None
    assert (info.parent, info.conversation) == (first, first)
    assert [line.id for line in log.list()][-1] in (second, branch)


def test_pruning_spares_what_is_open_or_recent(log: Transcripts, clock: FixedClock) -> None:
    old = log.start("cli", title="old")
    log.append(old, [user("x")])
    log.end(old, "compression")
    crashed = log.start("cron")
    goes_on = log.start("cli", title="goes on")
    log.end(goes_on, "compression")
    clock.advance(100 * DAY)
    log.append(log.start("cli", parent=goes_on), [user("still here")])
    plan = log.prune(dry_run=True)
    assert ([one.id for one in plan.sessions], plan.messages, plan.dry_run) == ([old], 1, True)
    assert log.get(old) is not None
    assert log.prune(SessionFilter(source="cron")).sessions == ()
    assert [one.id for one in log.prune(SessionFilter(source="cron"), ended_only=False).sessions] == [crashed]
    assert log.prune(older_than_days=101).sessions == ()
    assert [one.id for one in log.prune().sessions] == [old]
    assert log.get(old) is None
    assert [one.id for one in log.undelete(old)] == [old]


def test_titles_that_were_taken_meanwhile_get_numbers_all_in_one_step(log: Transcripts) -> None:
    first = log.start("cli", title="Name")
    log.delete(first)
    second = log.start("cli", title="Name", parent=first)
    log.delete(second)
    third = log.start("cli", title="Name")
    assert sorted(str(one.title) for one in log.undelete(first)) == ["Name #2", "Name #3"]
    assert (log.get(third) or pytest.fail("gone")).title == "Name"


def test_pruning_takes_a_conversation_as_a_whole(log: Transcripts, clock: FixedClock) -> None:
    long = log.start("cli")
    log.append(long, [user(str(number)) for number in range(50)])
    short = log.start("cron", parent=long, reason="resume")
    log.append(short, [user("and on")])
    for session in (long, short):
        log.end(session)
    clock.advance(100 * DAY)
    for too_much in (SessionFilter(max_messages=4), SessionFilter(exclude_sources=("cron",))):
        assert log.prune(too_much, dry_run=True).sessions == ()
    assert {one.id for one in log.prune(SessionFilter(source="cron"), dry_run=True).sessions} == {long, short}
    log.archive(short)
    log.append(log.start("cli", parent=short, started=clock() - 99 * DAY), [user("x", timestamp=clock() - 99 * DAY)])
    for some in (True, False):
        assert log.prune(SessionFilter(archived=some), ended_only=False, dry_run=True).sessions == ()


def test_pruning_spares_who_waits_for_something_delegated(log: Transcripts, clock: FixedClock) -> None:
    parent, done = log.start("cli"), log.start("cli")
    left = log.start("subagent", parent=done, reason="delegation")
    for session in (parent, done):
        log.end(session)
    clock.advance(100 * DAY)
    task = log.start("subagent", parent=parent, reason="delegation")
    log.append(log.start("subagent", parent=task, reason="delegation"), [user("at work")])
    assert {one.id for one in log.prune(dry_run=True).sessions} == {done, left}


def test_a_state_database_beside_ours_is_left_alone(home: Path) -> None:
    state = home / "state.db"
    state.write_bytes(b"SQLite format 3\x00 somebody else's")
    before = (state.read_bytes(), state.stat().st_mtime_ns)
    with Herma.open(home) as h:
        h.transcripts.append(h.transcripts.start("cli"), [user("x")])
    assert (state.read_bytes(), state.stat().st_mtime_ns) == before


def test_a_closed_herma_says_so(h: Herma) -> None:
    t = h.transcripts
    h.close()
    for call in (lambda: t.list(limit=1), lambda: t.stats().messages, lambda: t.start("cli"), lambda: t.get("a")):
        with pytest.raises(UsageError, match="closed"):
            call()
