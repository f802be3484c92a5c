"""The tool `skill_manage`: how the model writes down what it learnt to do, and corrects it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from herma.tools.registry import Json, Tool, ToolContext
from herma.tools.shown import ACTIONS, skill_manage_shown
from herma.types import (
    Author,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    RemoveSkillFile,
    SkillOp,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUnchanged,
    SkillWritten,
    WriteSkillFile,
)

PREVIEW = 1_500


class Skills(Protocol):
    """What the tool needs of the library; a review has one that looks at every write first."""

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome: ...


def skill_manage_tool(library: Skills) -> Tool:
    """The tool over this library."""
    return skill_manage_shown(lambda arguments, context: _run(library, arguments, context))


class _Invalid(Exception):
    """Arguments that ask for nothing we can do."""


def _run(library: Skills, arguments: Json, context: ToolContext) -> Json:
    try:
        op = _operation(arguments)
    except _Invalid as exc:
        return {"success": False, "error": str(exc)}
    return _answer(library.apply(op, author=_author(op, context)))


def _operation(arguments: Json) -> SkillOp:
    action = arguments.get("action")
    if action not in ACTIONS:
        raise _Invalid(f"Unknown action {action!r}. Use one of: {', '.join(ACTIONS)}.")
    name = _text(arguments, "name").strip()
    if not name:
        raise _Invalid("name is required.")
    match action:
        case "create":
            content = _needed(arguments, "content", action)
            flag = _flag(arguments, "despite_similar")
            return CreateSkill(name, content, _text(arguments, "category"), flag)
        case "edit":
            return EditSkill(name, _needed(arguments, "content", action))
        case "patch":
            old = _needed(arguments, "old_string", action)
            if "new_string" not in arguments:
                raise _Invalid("new_string is required for 'patch'; it may be empty.")
            file = _text(arguments, "file_path") or "SKILL.md"
            return PatchSkill(name, old, _text(arguments, "new_string"), file, _flag(arguments, "replace_all"))
        case "delete":
            return DeleteSkill(name, _text(arguments, "absorbed_into"))
        case "write_file":
            if "file_content" not in arguments:
                raise _Invalid("file_content is required for 'write_file'.")
            return WriteSkillFile(name, _needed(arguments, "file_path", action), _text(arguments, "file_content"))
        case _:
            return RemoveSkillFile(name, _needed(arguments, "file_path", "remove_file"))


def _text(arguments: Json, name: str) -> str:
    value = arguments.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Invalid(f"{name} must be a string.")
    return value


def _needed(arguments: Json, name: str, action: str) -> str:
    value = _text(arguments, name)
    if not value.strip():
        raise _Invalid(f"{name} is required for {action!r}.")
    return value


def _flag(arguments: Json, name: str) -> bool:
    value = arguments.get(name)
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def _author(op: SkillOp, context: ToolContext) -> Author:
    """The model's own conclusion, unless it says again what somebody outside said."""
    texts: list[str] = [value for value in _written(op) if value]
    outsider = context.heard.outsider(texts)
    return context.author if outsider is None else replace(context.author, origin=outsider)


def _written(op: SkillOp) -> tuple[str, ...]:
    match op:
        case CreateSkill() | EditSkill() | WriteSkillFile():
            return (op.content,)
        case PatchSkill():
            return (op.new,)
        case _:
            return ()


def _answer(outcome: SkillOutcome) -> Json:
    match outcome:
        case SkillWritten():
            answer: Json = {"success": True, "message": outcome.message, "name": outcome.name, "path": outcome.path}
            return {**answer, "change": outcome.change, **_said("warnings", outcome.warnings)}
        case SkillUnchanged():
            return {"success": True, "message": outcome.message, "name": outcome.name, "unchanged": True}
        case SkillStaged():
            return {"success": True, "staged": True, "pending_id": outcome.pending, "message": outcome.message}
        case SkillRefused():
            return _refusal(outcome)


def _refusal(outcome: SkillRefused) -> Json:
    answer: Json = {"success": False, "error": outcome.message, "reason": outcome.kind}
    if outcome.preview:
        answer["file_preview"] = outcome.preview[:PREVIEW]
    if outcome.findings:
        answer["findings"] = [f"{finding.rule}: {finding.why}" for finding in outcome.findings[:10]]
        answer["hint"] = "Leave that out. Only a person can decide otherwise."
    if outcome.kind == "similar":
        answer["hint"] = "Read it with skill_view; patch it, or call again with despite_similar if this one differs."
    return answer | _said("matches", outcome.matches)


def _said(name: str, values: tuple[Any, ...]) -> Json:
    return {name: list(values)} if values else {}
