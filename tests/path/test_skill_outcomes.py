"""How skills did, by how the conversations ended in which they were read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.homes import talk

from herma import Herma
from herma.skills.rows import Skill, SkillWritten

BAKE = Skill("bake", "How to bake bread properly.", "1. Heat the oven.\n2. Bake.")
CALL = {"id": "c1", "type": "function", "function": {"name": "skill_view", "arguments": '{"name": "bake"}'}}
DONE = "The bread is baked and cooling."
THANKS = "thanks, it works perfectly now"


def baked(h: Herma, said: str = THANKS) -> str:
    """A conversation in which the skill was read, and what the user said last. → its id."""
    with h.session() as s:
        talk(s, "bake the bread for Sunday", reply=[{"role": "assistant", "content": "", "tool_calls": [CALL]}])
        answer = s.call_tool("skill_view", {"name": "bake"})
        s.after_model(
            [{"role": "tool", "tool_call_id": "c1", "content": answer}, {"role": "assistant", "content": DONE}]
        )
        talk(s, said, reply=[{"role": "assistant", "content": "Enjoy."}])
    return s.id


def test_how_a_session_ended_is_how_the_skills_did_that_were_read_in_it(h: Herma) -> None:
    assert isinstance(h.skills.create(BAKE), SkillWritten)
    first = baked(h)
    made = h.episodes.get(first)
    assert made is not None
    assert (made.outcome, made.skills_applied) == ("successful", ("bake",))
    usage = h.skills.usage()["bake"]
    assert (usage.uses, usage.successes, usage.failures) == (1, 1, 0), "reading it was the use"
    h.episodes.rebuild(everything=True)
    assert h.skills.usage()["bake"].successes == 1, "a conversation counts once"
    h.episodes.improve(first, lambda known: replace(known, outcome="failed", why="it burnt"))
    usage = h.skills.usage()["bake"]
    assert (usage.successes, usage.failures) == (0, 1), "what is known better takes the place of what was thought"
    assert isinstance(h.skills.delete("bake"), SkillWritten)
    better = h.episodes.improve(first, lambda known: replace(known, outcome="successful"))
    assert better is not None, "a skill that is gone is passed over"


def test_the_outcome_is_counted_though_the_program_ends_at_once(home: Path) -> None:
    with Herma.open(home) as h:
        h.skills.create(BAKE)
        baked(h)
    with Herma.open(home) as h:
        assert h.skills.usage()["bake"].successes == 1
        assert not h.episodes.trouble
