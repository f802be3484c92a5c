"""The step of `herma tour` about what is learnt by doing: a skill, an episode, and both found for the next task."""

from __future__ import annotations

import json
from typing import Any

from herma.cli.tour_guide import Facts, Guide

TASK = "Deploy the shop to production"
SKILL = """\
---
name: deploy-the-shop
description: Deploy the shop to production, and roll back when that fails
---
1. `make migrate`; wait until it says done.
2. `make deploy`, then look at /health.
3. When it is red: `make rollback`.
"""
_TRIED = "make deploy"
_HELPED = "make migrate && make deploy"


def practises(guide: Guide) -> Facts:
    """What was worked out once is there the next time"""
    guide.tell("An agent deploys the shop. It fails at first, then works. How to do it becomes a skill, a file again:")
    asked = {"action": "create", "name": "deploy-the-shop", "content": SKILL}
    with guide.h.session(source="tour") as session:
        session.before_model(f"{TASK}, please.")
        session.after_model([*_ran("1", _TRIED, "make: *** [deploy] Error 1"), *_ran("2", _HELPED, "deployed: ok")])
        session.before_model()
        answer = json.loads(session.call_tool("skill_manage", asked))
        session.after_model("Deployed. The migrations have to run first.")
        session.before_model("Great, that works now.")
        session.after_model("Good.")
    guide.show(
        'session.call_tool(\'skill_manage\', {"action": "create", "name": "deploy-the-shop", …})',
        json.dumps(answer, ensure_ascii=False),
    )
    guide.expect(answer["success"] is True, "the skill was not written")
    guide.tell("When the session ended, an episode was made of it, without a model: how it went, and what helped.")
    guide.h.episodes.wait()
    made = guide.h.episodes.list()
    told = guide.type("episodes", "show", str(made[0].id if made else 0))
    guide.expect(_HELPED in told, "the episode does not know what helped")
    guide.tell("Any agent, of any make, can ask what is known for a task; besides curated memory it is this:")
    blocks = [block.text for block in guide.h.restore(TASK).blocks if block.kind != "memory"]
    known = "\n\n".join(blocks)
    guide.show(f'$ herma restore "{TASK}"', known)
    guide.expect("deploy-the-shop" in known, "the task does not find its skill")
    guide.expect(_HELPED in known, "the task does not find what helped")
    return {"skill": answer["name"], "episode": made[0].id, "ended": str(made[0].outcome)}


def _ran(number: str, command: str, printed: str) -> list[dict[str, Any]]:
    """A tool call and its result."""
    function = {"name": "shell", "arguments": json.dumps({"command": command})}
    calls = [{"id": number, "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": number, "content": printed},
    ]
