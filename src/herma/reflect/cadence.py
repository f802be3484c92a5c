"""When looking back is due: after so many turns of the user without a memory saved, after so much work with tools.

Pure: counters in, counters out. A resumed session counts on from what its messages show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from herma.types import CompletedTurn, Message

MEMORY_TOOL, SKILL_TOOL = "memory", "skill_manage"


@dataclass(frozen=True, slots=True)
class Counters:
    """Since memory, or a skill, was last written or reviewed."""

    turns: int = 0
    """Turns of the user."""
    iterations: int = 0
    """Steps in which the model called tools."""


@dataclass(frozen=True, slots=True)
class Due:
    """What a review should look for."""

    memory: bool = False
    skills: bool = False

    def __bool__(self) -> bool:
        return self.memory or self.skills


def hydrated(messages: Iterable[Message], every: int) -> Counters:
    """The counters of a conversation that is taken up again: as if it had gone on without a pause."""
    counters = Counters()
    for message in messages:
        if message.role == "user":
            turns = counters.turns + 1
            counters = replace(counters, turns=turns % every if every else turns)
        elif message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def after(counters: Counters, turn: CompletedTurn) -> Counters:
    """One turn later. A write of the model's own in it begins the count anew."""
    counters = replace(counters, turns=counters.turns + 1)
    for message in turn.messages:
        if message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def due(counters: Counters, memory_every: int, skills_every: int) -> Due:
    """What is due; an interval of 0 means never."""
    return Due(
        memory=0 < memory_every <= counters.turns,
        skills=0 < skills_every <= counters.iterations,
    )


def reviewed(counters: Counters, what: Due) -> Counters:
    """The counters once a review has begun, whatever comes of it: a failing one must not be tried every turn."""
    return Counters(0 if what.memory else counters.turns, 0 if what.skills else counters.iterations)


def calls(message: Message, name: str) -> bool:
    return any(_name(call) == name for call in message.tool_calls)


def _worked(counters: Counters, message: Message) -> Counters:
    if calls(message, MEMORY_TOOL):
        counters = replace(counters, turns=0)
    if calls(message, SKILL_TOOL):
        return replace(counters, iterations=0)
    return replace(counters, iterations=counters.iterations + bool(message.tool_calls))


def _name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""
