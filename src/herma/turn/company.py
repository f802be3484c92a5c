"""Who comes along in a session besides the user and the model: parts that follow it, add to its prompt, bring tools."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from herma.ports import Contributor, Observer
from herma.prompt.tiers import Prompt, Tiers, assemble
from herma.tools.registry import Tool
from herma.turn.compressing import Room
from herma.turn.watchers import guard_of
from herma.turn.window import memory_of
from herma.types import Contribution, Occasion, SessionView


@dataclass(frozen=True, slots=True)
class Company:
    """Made for one session, and kept through its moves."""

    watchers: Sequence[Observer] = ()
    contributors: Sequence[Contributor] = ()
    tools: Sequence[Tool] = ()
    warnings: tuple[str, ...] = ()
    room: Room | None = None
    """How the session is shortened. It is one of the watchers too."""


Invite: TypeAlias = Callable[[SessionView, bool], Company]
"""Who comes along in this session; with True, for somebody who only looks at what its prompt would be."""


def alone(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
    """Nobody."""
    return Company()


def prompt_with(
    tiers: Tiers,
    company: Company,
    view: SessionView,
    *,
    room: tuple[int, int],
    count: Callable[[str], int],
    rehearsal: bool = False,
) -> Prompt:
    """The prompt with what the company adds. `room` is what the system prompt and memory in it may take, in tokens."""
    if not company.contributors:
        return _noted(assemble(tiers), company.warnings)
    bare = assemble(tiers).text
    memory = memory_of(bare)
    taken = count(memory)
    occasion = Occasion(
        view,
        system_tokens=max(0, room[0] - count(bare) + taken),
        memory_tokens=max(0, room[1] - taken),
        count=count,
        rehearsal=rehearsal,
    )
    gathered, troubles = gather(company.contributors, occasion)
    with_them = replace(
        tiers,
        skills="\n\n".join(filter(None, (tiers.skills, *(one.skills for one in gathered)))),
        episodes=(*tiers.episodes, *(line for one in gathered for line in one.episodes)),
        providers=(*tiers.providers, *(block for one in gathered for block in one.providers)),
        hints=(*tiers.hints, *(hint for one in gathered for hint in one.hints)),
    )
    if with_them.skills and "skills" not in with_them.guidance:
        with_them = replace(with_them, guidance=(*with_them.guidance, "skills"))
    said = [warning for one in gathered for warning in one.warnings]
    return _noted(assemble(with_them), (*company.warnings, *said, *troubles))


def gather(contributors: Sequence[Contributor], occasion: Occasion) -> tuple[list[Contribution], list[str]]:
    """What each part adds, and what went wrong, in words.

    Parts of our own are asked here and now: a thread would cost more than they do. Those that have a
    `contribution_deadline` are asked at once, and waited for that long.
    """
    begun = time.monotonic()
    asked = []
    for part in contributors:
        guard, deadline = guard_of(part), getattr(part, "contribution_deadline", None)
        question = partial(part.contribute, occasion)
        asked.append((deadline, guard, guard.begin("contribute", question, wait=deadline is not None)))
    found: list[Contribution] = []
    troubles: list[str] = []
    for deadline, guard, call in asked:
        failures = guard.health.failures
        left = None if deadline is None else max(deadline - (time.monotonic() - begun), 0.0)
        given = Contribution() if call is None else guard.answer(call, Contribution(), left)
        if isinstance(given, Contribution):
            found.append(given)
        else:
            guard.count("contribute", f"answered with {type(given).__name__}")
        health = guard.health
        if health.failures > failures and health.last is not None:
            troubles.append(f"{guard.guest} added nothing to the prompt ({health.last.why}).")
    return found, troubles


def _noted(prompt: Prompt, warnings: tuple[str, ...]) -> Prompt:
    return replace(prompt, warnings=(*prompt.warnings, *warnings)) if warnings else prompt
