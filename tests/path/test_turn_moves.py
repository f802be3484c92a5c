"""Moves that a session makes besides taking turns: reload, cache marks, and who and where it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herma import Add, Herma
from herma.errors import UsageError
from herma.prompt.assemble import MOST_MARKS
from herma.types import Circumstances

CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}


def marks(request: list[dict[str, Any]]) -> list[int]:
    return [at for at, message in enumerate(request) if "cache_control" in json.dumps(message)]


def test_a_reload_shows_memory_as_it_is_now(home: Path) -> None:
    with Herma.open(home) as h, h.session(title="Garden", system_message="Be kind.") as session:
        session.before_model("one")
        session.after_model("ok")
        first, prompt, digest = session.id, session.system_prompt, session.prompt_digest
        h.memory.apply("memory", Add("The roses are red."))
        (home / "SOUL.md").write_text("You are a gardener.")
        session.reload()
        assert session.id != first
        assert "The roses are red." in session.system_prompt
        assert "Be kind." in session.system_prompt
        assert session.system_prompt.startswith("You are a gardener.")
        assert session.prompt_digest != digest
        request = session.before_model("two")
        assert [message["content"] for message in request[1:]] == ["one", "ok", "two"], "it need not be told"
        session.after_model("fine")
        old, new = h.transcripts.get(first), h.transcripts.get(session.id)
        assert old is not None
        assert new is not None
        assert (old.end_reason, new.parent, new.reason) == ("reload", first, "resume")
        assert old.conversation == new.conversation
        assert h.transcripts.system_prompt(first) == prompt, "what was sent before stays on record"
        session.close()
        again = h.session(resume=first, system_message="Be kind.")
        assert again.id == session.id
        assert again.before_model("three")[:4] == request


def test_a_reload_in_the_middle_of_a_turn_and_before_the_first(home: Path) -> None:
    with Herma.open(home) as h, h.session() as session:
        h.memory.apply("memory", Add("News."))
        unused = session.id
        session.reload()
        assert session.id == unused, "nothing was sent yet"
        assert "News." in session.system_prompt
        session.before_model("one")
        session.after_model({"role": "assistant", "content": None, "tool_calls": [CALL]})
        session.reload()
        assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant"]
        session.before_model("two")
        session.after_model("ok")
        session.close()
        with pytest.raises(UsageError):
            session.reload()


def test_rewinding_reaches_behind_a_reload(home: Path) -> None:
    with Herma.open(home) as h, h.session() as session:
        for text in ("one", "two"):
            session.before_model(text)
            session.after_model("ok")
        session.reload()
        session.before_model("three")
        session.after_model("ok")
        assert session.rewind(2) == "two"
        request = session.before_model("another")
        assert [message["content"] for message in request[1:]] == ["one", "ok", "another"]


def test_marks_are_on_the_copy_only(home: Path) -> None:
    with Herma.open(home) as h, h.session() as session:
        for number in range(4):
            request = session.before_model(f"question {number}", cache_marks="1h")
            session.after_model("answer")
        found = marks(request)
        assert found[0] == 0
        assert len(found) == MOST_MARKS
        assert found[-1] == len(request) - 1
        assert '"ttl": "1h"' in json.dumps(request)
        assert marks(session.before_model("plain")) == []
        assert "cache_control" not in json.dumps([m.content for m in h.transcripts.messages(session.id)])
        with pytest.raises(UsageError, match="5m or 1h"):
            session.before_model("x", cache_marks="2h")  # type: ignore[arg-type]
        assert session.messages[-1].content == "plain"


def test_a_caller_may_change_what_it_was_given(home: Path) -> None:
    with Herma.open(home) as h, h.session() as session:
        session.before_model([{"type": "text", "text": "look"}])
        result = {"role": "tool", "tool_call_id": "call_1", "content": "a"}
        session.after_model([{"role": "assistant", "content": None, "tool_calls": [CALL]}, result])
        request = session.before_model()
        before = json.dumps(request)
        request[1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        request[2]["tool_calls"][0]["function"]["arguments"] = "changed"
        request[3]["content"] = "changed"
        assert json.dumps(session.before_model()) == before


def test_who_and_where(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.session(
            source="telegram",
            platform="Write short messages.",
            context="cron",
            user="ann",
            user_name="Ann",
            chat="garden",
            chat_type="group",
            thread="7",
        )
        assert "Write short messages." in session.system_prompt
        assert (session.info.scope.user, session.info.scope.chat) == ("ann", "garden")
        assert session.circumstances == Circumstances("Write short messages.", "cron", "Ann", "group", "7")
        with pytest.raises(UsageError, match="somebody"):
            h.session(context="somebody")  # type: ignore[arg-type]


def test_the_model_of_a_session(home: Path) -> None:
    (home / "config.yaml").write_text("model:\n  name: gpt-4o\n")
    with Herma.open(home) as h:
        assert h.session().model == "gpt-4o"
        with h.session(model="claude-sonnet-4") as session:
            session.before_model("one")
            session.after_model("ok")
        assert h.session(resume=session.id).model == "claude-sonnet-4"
        assert h.session(resume=session.id, model="gpt-5").model == "gpt-5"
        assert h.branch(session.id).model == "claude-sonnet-4"


def test_digests_name_what_every_request_begins_with(home: Path) -> None:
    with Herma.open(home) as h:
        one, two = h.session(), h.session()
        assert (one.prompt_digest, one.tools_digest) == (two.prompt_digest, two.tools_digest)
        h.memory.apply("memory", Add("News."))
        three = h.session()
        assert three.prompt_digest != one.prompt_digest
        assert three.tools_digest == one.tools_digest


def test_how_much_of_a_result_is_sent_is_configurable(home: Path) -> None:
    (home / "config.yaml").write_text("context:\n  tool_result_tokens: 50\n")
    with Herma.open(home) as h, h.session() as session:
        session.before_model("go")
        result = {"role": "tool", "tool_call_id": "call_1", "content": "\n".join(f"row {n}" for n in range(200))}
        session.after_model([{"role": "assistant", "content": None, "tool_calls": [CALL]}, result])
        assert len(str(session.before_model()[-1]["content"])) < 600


def test_a_parent_goes_on_or_delegates(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session() as first:
            first.before_model("one")
            first.after_model("ok")
        with h.session(parent=first.id) as on:
            assert [message["content"] for message in on.before_model("two")[1:]] == ["one", "ok", "two"]
            on.after_model("fine")
        with h.session(parent=first.id, context="subagent") as part:
            assert [message["content"] for message in part.before_model("count")[1:]] == ["count"]
            part.after_model("7")
        follows, delegated = h.transcripts.get(on.id), h.transcripts.get(part.id)
        assert follows is not None
        assert delegated is not None
        assert (follows.reason, follows.conversation) == ("resume", first.id)
        assert (delegated.reason, delegated.conversation, delegated.parent) == ("delegation", part.id, first.id)
        assert h.session(resume=first.id).id == on.id


def test_a_prompt_that_is_rebuilt_says_what_changed(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session(system_message="Be brief.") as session:
            session.before_model("one")
            session.after_model("1")
        other = h.session(resume=session.id, system_message="Be long.")
        assert other.warnings == ("The prompt was rebuilt: the system message changed.",)
        (home / "SOUL.md").write_text("You are a stone.\n")
        other = h.session(resume=session.id, system_message="Be brief.")
        assert other.warnings == ("The prompt was rebuilt: the identity (SOUL.md) changed.",)
