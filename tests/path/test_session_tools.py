"""What the model of a session may call: our tools, more that the caller brings, or nothing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.homes import talk

from herma import Herma
from herma.tools.registry import Json, Tool, ToolContext

SKILL = "---\nname: deploy\ndescription: How to deploy the shop.\n---\nPush the button.\n"


def say(arguments: Json, context: ToolContext) -> Json:
    return {"result": f"{arguments.get('word')} {context.author.session}"}


ECHO = Tool("echo__say", "Says it again.", {"type": "object", "properties": {"word": {"type": "string"}}}, say)
TAKEN = Tool("memory", "Not ours.", {"type": "object"}, say)


def names(tools: list[Json]) -> list[str]:
    return [schema["function"]["name"] for schema in tools]


def test_more_tools_come_after_ours_and_take_no_name(h: Herma) -> None:
    with h.session(tools=[ECHO, TAKEN]) as s:
        assert names(s.tools) == [*names(h.tools.schemas()), "echo__say"]
        assert json.loads(s.call_tool("echo__say", {"word": "hi"}))["result"] == f"hi {s.id}"
        assert s.tools_digest != h.session().tools_digest
        talk(s, "Hi!", reply="Hello.")
        tools, first = s.tools, s.id
        s.compress()
        s.reload()
        assert s.tools == tools
        again = s.reset()
        assert again.tools == tools
        again.close()
    with h.session(resume=first, tools=[ECHO]) as resumed:
        assert "echo__say" in names(resumed.tools)
    with h.branch(first, tools=[ECHO]) as branched:
        assert "echo__say" in names(branched.tools)
    with h.session(resume=first) as without:
        assert "echo__say" not in names(without.tools)
        assert "no tool" in without.call_tool("echo__say", {})


def test_no_tools_at_all(home: Path) -> None:
    (home / "skills" / "deploy").mkdir(parents=True)
    (home / "skills" / "deploy" / "SKILL.md").write_text(SKILL)
    with Herma.open(home) as h:
        with h.session() as usual:
            assert "How to deploy the shop." in usual.system_prompt
        with h.session(tools=None) as s:
            assert s.tools == []
            assert "session_search" not in s.system_prompt
            assert "`memory` tool" not in s.system_prompt
            assert "How to deploy the shop." not in s.system_prompt
            assert "no tool" in s.call_tool("memory", {"action": "add", "content": "x"})
            talk(s, "Hi!", reply="Hello.")
