"""Moves that a session makes besides taking turns: reload, cache marks, and who and where it is for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.homes import talk, tool_messages

from herma import Add, Herma
from herma.errors import UsageError
from herma.models.apis import anthropic_request
from herma.models.client import ModelRequest
from herma.models.endpoints import Endpoint
from herma.prompt.assemble import MOST_MARKS
from herma.types import SessionEnvironment

CALL, RESULT = tool_messages("run", {}, "ran")


def marks(request: list[dict[str, Any]]) -> list[int]:
    return [at for at, message in enumerate(request) if "cache_control" in json.dumps(message)]


def test_a_reload_shows_memory_as_it_is_now(h: Herma, home: Path) -> None:
    with h.session(title="Garden", system_message="Be kind.") as session:
        talk(session, "one", reply="ok")
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


def test_a_reload_in_the_middle_of_a_turn_and_before_the_first(h: Herma) -> None:
    with h.session() as session:
        h.memory.apply("memory", Add("News."))
        unused = session.id
        session.reload()
        assert session.id == unused, "nothing was sent yet"
        assert "News." in session.system_prompt
        talk(session, "one", reply=CALL)
        session.reload()
        assert [message.role for message in session.messages] == ["user", "assistant", "tool", "assistant"]
        talk(session, "two", "three")
        assert session.rewind(3) == "one", "also behind a reload"
    with pytest.raises(UsageError):
        session.reload()


def test_every_step_of_a_loop_of_tools_is_marked(h: Herma) -> None:
    """At most four marks: the system prompt and the last three messages that can carry one, tool results too."""
    where = Endpoint("https://api.anthropic.com", "claude", kind="anthropic")
    with h.session() as session:
        session.before_model("look at everything", cache_marks="5m")
        for step in range(6):
            session.after_model(tool_messages("look", {}, f"step {step}", f"c{step}"))
            request = session.before_model(cache_marks="5m")
            found = marks(request)
            assert len(found) <= MOST_MARKS
            assert (found[0], found[-1]) == (0, len(request) - 1), "the result that came last"
            sent = anthropic_request(where, ModelRequest(request), frozenset())
            assert json.dumps(sent).count('"cache_control"') == len(found)
            last = sent["messages"][-1]["content"][-1]
            assert (last["type"], last["cache_control"]) == ("tool_result", {"type": "ephemeral"})
        assert [request[at]["role"] for at in found[1:]] == ["tool"] * 3
        assert "cache_control" not in json.dumps(session.before_model())


def test_marks_are_on_the_copy_only(h: Herma) -> None:
    with h.session() as session:
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
        with pytest.raises(UsageError, match="5m, 1h"):
            session.before_model("x", cache_marks="2h")  # type: ignore[arg-type]
        assert session.messages[-1].content == "plain"


def test_a_caller_may_change_what_it_was_given(h: Herma) -> None:
    with h.session() as session:
        talk(session, [{"type": "text", "text": "look"}], reply=[CALL, RESULT])
        request = session.before_model()
        before = json.dumps(request)
        request[1]["content"][0]["cache_control"] = {"type": "ephemeral"}
        request[2]["tool_calls"][0]["function"]["arguments"] = "changed"
        request[3]["content"] = "changed"
        assert json.dumps(session.before_model()) == before


def test_who_and_where(h: Herma) -> None:
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
    assert session.environment == SessionEnvironment("Write short messages.", "cron", "Ann", "group", "7")
    with pytest.raises(UsageError, match="somebody"):
        h.session(context="somebody")  # type: ignore[arg-type]


def test_the_model_and_the_size_of_results_are_configurable(home: Path) -> None:
    (home / "config.yaml").write_text("model:\n  name: gpt-4o\ncontext:\n  tool_result_tokens: 50\n")
    with Herma.open(home) as h:
        assert h.session().model == "gpt-4o"
        with h.session(model="claude-sonnet-4") as session:
            talk(session, "go", reply=tool_messages("run", {}, "\n".join(f"row {n}" for n in range(200))))
            assert len(str(session.before_model()[-1]["content"])) < 600
        assert h.session(resume=session.id).model == "claude-sonnet-4"
        assert h.session(resume=session.id, model="gpt-5").model == "gpt-5"
        assert h.branch(session.id).model == "gpt-5", "the session followed"


def test_digests_name_what_every_request_begins_with(h: Herma) -> None:
    one, two = h.session(), h.session()
    assert (one.prompt_digest, one.tools_digest) == (two.prompt_digest, two.tools_digest)
    h.memory.apply("memory", Add("News."))
    three = h.session()
    assert three.prompt_digest != one.prompt_digest
    assert three.tools_digest == one.tools_digest


def test_a_parent_goes_on_or_delegates(h: Herma) -> None:
    with h.session() as first:
        talk(first, "one", reply="ok")
    with h.session(parent=first.id) as on:
        assert [message["content"] for message in talk(on, "two")[1:]] == ["one", "ok", "two"]
    with h.session(parent=first.id, context="subagent") as part:
        assert [message["content"] for message in talk(part, "count")[1:]] == ["count"]
    follows, delegated = on.info, part.info
    assert (follows.reason, follows.conversation) == ("resume", first.id)
    assert (delegated.reason, delegated.conversation, delegated.parent) == ("delegation", part.id, first.id)
    assert h.session(resume=first.id).id == on.id
