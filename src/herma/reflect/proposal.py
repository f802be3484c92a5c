"""What a model proposes at the end of a session, read out of its answer. Pure: whatever it says, nothing raises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from herma.reflect.grounds import is_echo
from herma.types import Add, MemoryOp, Remove, Replace, Target
from herma.types.episodes import LONGEST_RESULT, Outcome

MOST_CHANGES = 12
"""Changes of memory that one pass may propose."""
SHORTEST_REASON = 10
_KEYS = frozenset(("memory", "episode", "skill"))
_LONGEST = {"task": 200, "result": LONGEST_RESULT, "error": 200, "remedy": 200, "outcome": 20}

_TEXT = {"type": "string"}


def _closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


SCHEMA: Mapping[str, Any] = _closed(
    {
        "memory": {
            "type": "array",
            "items": _closed(
                {
                    "target": {"type": "string", "enum": ["memory", "user"]},
                    "action": {"type": "string", "enum": ["add", "replace", "remove"]},
                    **dict.fromkeys(("content", "old_text", "reason"), _TEXT),
                }
            ),
        },
        "episode": _closed(
            {
                "task": _TEXT,
                "outcome": {"type": "string", "enum": list(get_args(Outcome))},
                **dict.fromkeys(("result", "error", "remedy"), _TEXT),
            }
        ),
        "skill": {"anyOf": [{"type": "null"}, _closed(dict.fromkeys(("name", "description", "body"), _TEXT))]},
    }
)
"""The shape of an answer, for servers that can hold a model to it."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """One change of curated memory, and why."""

    target: Target
    op: MemoryOp
    reason: str


@dataclass(frozen=True, slots=True)
class SkillProposed:
    """A procedure worth writing down."""

    name: str
    description: str
    body: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """Everything that was proposed, and what could not be read, with the reason."""

    changes: tuple[Proposed, ...] = ()
    episode: Mapping[str, str] | None = None
    """Words by field: task, outcome, result, error, remedy; only what is there and of the right length."""
    skill: SkillProposed | None = None
    refused: tuple[tuple[str, str, str], ...] = ()
    """What, which check, and a sentence."""


def read_proposal(text: str) -> Proposal | str:
    """The proposal in an answer; or, in words, why there is none."""
    found = _object_in(text)
    if found is None:
        return "there is no whole JSON object with memory, episode or skill in it"
    refused: list[tuple[str, str, str]] = []
    given = found.get("memory", [])
    if not isinstance(given, list):
        return "memory is no list"
    changes = [change for item in given[:MOST_CHANGES] if (change := _change(item, refused)) is not None]
    if len(given) > MOST_CHANGES:
        refused.append(("memory", "too many", f"More than {MOST_CHANGES} changes were proposed; the first ones count."))
    return Proposal(tuple(changes), _episode(found.get("episode")), _skill(found.get("skill"), refused), tuple(refused))


def _change(item: object, refused: list[tuple[str, str, str]]) -> Proposed | None:
    if not isinstance(item, Mapping):
        refused.append(("memory", "malformed", "A change is an object."))
        return None
    fields = {name: _line(item.get(name)) for name in ("target", "action", "content", "old_text", "reason")}
    what, content, old = f"memory {fields['action'] or 'change'}", fields["content"], fields["old_text"]
    target: Target = "user" if fields["target"] == "user" else "memory"
    match fields["action"]:
        case "add" if content:
            return Proposed(target, Add(content), fields["reason"])
        case "replace" if content and old:
            return Proposed(target, Replace(old, content), fields["reason"])
        case "remove" if old and len(fields["reason"]) >= SHORTEST_REASON:
            return Proposed(target, Remove(old), fields["reason"])
        case "remove" if old:
            refused.append((what, "no reason", f"Not removed, because no reason was given: “{old[:120]}”."))
        case _:
            refused.append((what, "malformed", "A change has an action, and the texts that it needs."))
    return None


def _episode(item: object) -> Mapping[str, str] | None:
    if not isinstance(item, Mapping):
        return None
    words = {name: _line(item.get(name)) for name in _LONGEST}
    kept = {name: text for name, text in words.items() if text and len(text) <= _LONGEST[name] and not is_echo(text)}
    if kept.get("outcome") not in get_args(Outcome):
        kept.pop("outcome", None)
    return kept if "task" in kept or "result" in kept else None


def _skill(item: object, refused: list[tuple[str, str, str]]) -> SkillProposed | None:
    if not isinstance(item, Mapping) or not item:
        return None
    name, description, body = _line(item.get("name")), _line(item.get("description")), item.get("body")
    if not name or not description or not isinstance(body, str) or not body.strip():
        refused.append(("skill create", "malformed", "A skill has a name, a description and a body."))
        return None
    if is_echo(description) or is_echo(body):
        refused.append(("skill create", "echo", "It repeats the question that was asked."))
        return None
    return SkillProposed(name, description, body.strip())


def _line(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _object_in(text: str) -> Mapping[str, Any] | None:
    """The first JSON object in a text that is one of ours, whatever stands round it: models put it into fences and say
    a word before it. Where an answer was cut off, the objects inside of it are whole: they are not what was asked for.
    """
    decoder = json.JSONDecoder()
    at = text.find("{")
    for _ in range(20):
        if at < 0:
            return None
        try:
            value, _end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        if isinstance(value, Mapping) and (not value or not _KEYS.isdisjoint(value)):
            return value
        at = text.find("{", at + 1)
    return None
