"""A conversation goes on with messages that stand for it: as a child session, or in its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.homes import tool_messages, tool_turn

from herma import Add, Herma, Message, Remove
from herma.errors import StoreError, UsageError
from herma.prompt.fence import fence
from herma.session import Session
from herma.transcript.log import Transcripts
from herma.transcript.messages import OPENING

SUMMARY = Message("user", "[Summary] We planted roses.")


def talk(session: Session, *texts: str) -> None:
    for text in texts:
        session.before_model(text)
        session.after_model(f"re {text}")


def contents(request: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in request[1:]]


def test_a_child_goes_on_with_a_fresh_prompt(h: Herma) -> None:
    with h.session(title="Garden") as session:
        talk(session, "one", "two", "three")
        first, prompt = session.id, session.system_prompt
        h.memory.apply("memory", Add("The roses are red."))
        session.continue_with([SUMMARY, *session.messages[-2:]])
        assert session.id != first
        assert "The roses are red." in session.system_prompt
        assert contents(session.before_model("four")) == [SUMMARY.content, "three", "re three", "four"]
        session.after_model("ok")
        old, new = h.transcripts.get(first), h.transcripts.get(session.id)
        assert old is not None
        assert new is not None
        assert (old.end_reason, new.parent, new.reason) == ("compression", first, "compression")
        assert (old.title, new.title, new.conversation) == ("Garden", "Garden #2", old.conversation)
        assert h.transcripts.system_prompt(first) == prompt
        assert len(h.transcripts.messages(first)) == 6, "every message stays"
        assert [line.id for line in h.transcripts.list()] == [session.id], "one conversation"
        talk(session, "five")
        session.continue_with([SUMMARY, session.messages[-1]])
        third = h.transcripts.get(session.id)
        assert third is not None
        assert third.title == "Garden #3"
        again = h.session(resume=first)
        assert again.id == session.id
        assert contents(again.before_model("six")) == [SUMMARY.content, "re five", "six"]


def test_in_place_the_prompt_stays_and_earlier_messages_are_hidden(h: Herma) -> None:
    with h.session() as session:
        talk(session, "one", "two")
        h.memory.apply("memory", Add("The roses are red."))
        talk(session, "three")
        first, prompt = session.id, session.system_prompt
        session.continue_with([SUMMARY, *session.messages[-2:]], in_place=True)
        assert (session.id, session.system_prompt) == (first, prompt)
        kept = h.transcripts.messages(first)
        assert [message.content for message in kept] == [SUMMARY.content, "three", "re three"]
        assert len(h.transcripts.messages(first, include_hidden=True)) == 9
        info = h.transcripts.get(first)
        assert info is not None
        assert (info.message_count, info.ended) == (3, None)
        request = session.before_model("four")
        assert contents(request)[:3] == [SUMMARY.content, "three", "re three"], "old updates are not said again"
        assert "The roses are red." in contents(request)[3], "and what the prompt does not know is told"
        session.after_model("ok")
        session.close()
        again = h.session(resume=first)
        assert again.before_model("five")[:-1] == [*request, {"role": "assistant", "content": "ok"}]


@pytest.mark.parametrize("in_place", [False, True])
def test_in_the_middle_of_a_turn(h: Herma, in_place: bool) -> None:
    with h.session() as session:
        talk(session, "one")
        session.before_model("two")
        session.after_model(tool_messages("run", {}, "x" * 30_000))
        session.before_model()
        session.continue_with([SUMMARY, *session.messages[2:]], in_place=in_place)
        request = session.before_model()
        assert [message["role"] for message in request] == ["system", "user", "user", "assistant", "tool"]
        assert len(request[-1]["content"]) < 10_000, "results stay short"
        session.after_model("done")
        assert session.rewind() == "two"


def test_messages_of_another_program_go_along(h: Herma) -> None:
    def elsewhere(text: str) -> None:
        said = [{"role": "user", "content": text}, {"role": "assistant", "content": f"re {text}"}]
        h.transcripts.append(session.id, said)

    with h.session() as session:
        talk(session, "one")
        elsewhere("there")
        session.continue_with([SUMMARY])
        assert contents(session.before_model("two")) == [SUMMARY.content, "there", "re there", "two"]
        session.after_model("ok")
        elsewhere("and again")
        session.continue_with([SUMMARY], in_place=True)
        assert contents(session.before_model("three")) == [SUMMARY.content, "and again", "re and again", "three"]


def test_when_it_cannot_be_written_nothing_has_changed(h: Herma, monkeypatch: pytest.MonkeyPatch) -> None:
    with h.session() as session:
        talk(session, "one")
        first, before = session.id, session.messages

        def full(*_: object, **__: object) -> list[int]:
            raise StoreError("The disk is full.")

        for in_place in (False, True):
            with monkeypatch.context() as patch:
                patch.setattr(Transcripts, "append", full)
                with pytest.raises(StoreError):
                    session.continue_with([SUMMARY], in_place=in_place)
            assert (session.id, session.messages) == (first, before)
        info = h.transcripts.get(first)
        assert info is not None
        assert info.ended is None
        assert contents(session.before_model("two")) == ["one", "re one", "two"]
        session.after_model("ok")
        session.close()
        assert h.session(resume=first).id == first


def test_after_a_reload_and_before_anything_was_said(h: Herma) -> None:
    with h.session() as session:
        for messages in ([SUMMARY], []):
            with pytest.raises(UsageError, match="no conversation yet"):
                session.continue_with(messages)
        talk(session, "one", "two")
        old = session.id
        session.reload()
        session.continue_with([SUMMARY, session.messages[-1]], in_place=True)
        assert contents(session.before_model("three")) == [SUMMARY.content, "re two", "three"]
        session.after_model("ok")
        info = h.transcripts.get(session.id)
        assert info is not None
        assert (info.parent, info.reason) == (old, "compression"), "a conversation in two sessions gets a third"
        session.close()
        with pytest.raises(UsageError):
            session.continue_with([SUMMARY])
        with pytest.raises(UsageError):
            session.before_compression()


MOVES = st.lists(
    st.sampled_from(["talk", "write", "remove", "child", "place", "reload", "rewind", "resume"]), max_size=14
)


@settings(max_examples=25)
@given(moves=MOVES)
@example(moves=["talk", "write", "talk", "remove", "child", "talk", "resume"])
@example(moves=["talk", "write", "talk", "remove", "place", "talk", "resume"])
@example(moves=["talk", "write", "talk", "talk", "write", "reload", "rewind", "remove", "talk"])
def test_the_model_knows_current_memory_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, moves: list[str]
) -> None:
    """After any moves, prompt and messages together say of each entry, last, whether it is there."""
    home = tmp_path_factory.mktemp("home")
    with Herma.open(home, flags={"store.tenant": f"{home.parent.name} {home.name}"}) as h:
        for entry in ("Entry number 0.", "Entry number -1."):
            h.memory.apply("memory", Add(entry))
        session = h.session()
        number = 0
        for move in moves:
            number += 1
            if move == "talk":
                talk(session, f"turn {number}")
            elif move == "write":
                h.memory.apply("memory", Add(f"Entry number {number}."))
            elif move == "remove" and h.memory.entries("memory"):
                h.memory.apply("memory", Remove(h.memory.entries("memory")[0]))
            elif move in ("child", "place") and session.messages:
                session.continue_with([SUMMARY, *session.messages[-3:]], in_place=move == "place")
            elif move == "reload":
                session.reload()
            elif move == "rewind" and any(message.role == "user" for message in session.messages):
                session.rewind()
            elif move == "resume" and session.messages:
                session.close()
                session = h.session(resume=session.id if session._stored else session._continues.id)  # type: ignore[union-attr]
        request = session.before_model("what do you know?")
        text = "\n".join(str(message["content"]) for message in request)
        there = set(h.memory.entries("memory"))
        for entry in {f"Entry number {at}." for at in range(-1, number + 1)}:
            said = [line for line in text.splitlines() if entry in line]
            known = bool(said) and "(no longer)" not in said[-1]
            assert known == (entry in there), (entry, text)
        session.close()


@pytest.mark.parametrize("way", ["rewound", "branched before a message", "reloaded and branched"])
def test_a_removed_entry_of_the_prompt_is_announced_whatever_became_of_messages(h: Herma, way: str) -> None:
    for entry in ("Alpha holds.", "Beta holds."):
        h.memory.apply("memory", Add(entry))
    session = h.session()
    if way == "rewound":
        h.memory.apply("memory", Remove("Alpha holds."))
        talk(session, "one")
        session.rewind()
    elif way == "branched before a message":
        talk(session, "one")
        session.rewind()
        session = h.branch(h.branch(session.id).id)
        h.memory.apply("memory", Remove("Alpha holds."))
    else:
        h.memory.apply("memory", Remove("Alpha holds."))
        talk(session, "one")
        h.memory.apply("memory", Add("Alpha holds."))
        session.reload()
        talk(session, "two")
        session = h.branch(session.id)
        session.close()
        session = h.session(resume=session.id)
        session.continue_with([SUMMARY, *session.messages[-1:]], in_place=True)
        h.memory.apply("memory", Remove("Alpha holds."))
    session.close()
    with h.session(resume=session.id) as again:
        assert "Alpha holds." in again.system_prompt
        assert "(no longer) Alpha holds." in str(again.before_model("two")[-1]["content"])


def test_a_summary_makes_nobody_elses_words_the_users(h: Herma) -> None:
    told = "The vault in the cellar of the old mill opens with the winter code."
    with h.session() as session:
        tool_turn(session, "What does the page say?", "run", {}, told, "Something about a mill.")
        session.continue_with([Message("user", f"{OPENING}\n\n- {told}")])
    with h.session(resume=session.id) as again:
        again.before_model("Remember it.")
        answer = again.call_tool("memory", {"action": "add", "target": "memory", "content": told})
        assert json.loads(answer).get("staged")


def test_what_cannot_be_sent_is_not_kept(h: Herma) -> None:
    """A result without its call, a fence in a summary: what is sent is what a resumed session would send."""
    with h.session() as session:
        talk(session, "one")
        stray = Message("tool", "x", tool_call_id="nobody asked")
        session.continue_with([Message("user", f"Short.\n{fence('no')}"), stray, Message("assistant", "Yes.")])
        assert contents(session.before_model("two")) == ["Short.\n", "Yes.", "two"]
        session.after_model("ok")
