"""The `memory` tool: the model writes curated memory. There is no read action, because the prompt has the entries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from herma.memory.entries import clean, locate
from herma.tools.registry import Json, Tool, ToolContext
from herma.types import (
    CATEGORIES,
    TARGETS,
    Add,
    Ambiguous,
    Applied,
    Author,
    Blocked,
    Drifted,
    Duplicate,
    MemoryOp,
    MemoryOutcome,
    MemoryWrite,
    NoMatch,
    OverBudget,
    Remove,
    Replace,
    Scope,
    Staged,
    StoreStatus,
    Target,
)

FAILURES_PER_TURN = 3
LISTED = 20_000
"""Characters of entries that an answer repeats at most."""
_ACTIONS = ("add", "replace", "remove")
DESCRIPTION = """\
Keep a durable fact for future sessions, or correct or drop one. {shown} at the start of every session, so keep \
entries short, factual and worth their space.
{targets}
Save at once, without being asked: corrections by the user, stated preferences, facts about the environment, \
conventions, lessons from mistakes. Do not save: task progress, results, TODO lists, temporary roles, one-off \
topics, anything that is stale in a week, secrets.
Write facts ("The user prefers short answers"), not orders. "replace" puts content in the place of the whole entry \
that contains old_text; "remove" drops it. old_text is any part of the entry that occurs in no other.
To make room and add in one step, use operations: all are applied, or none."""
_HOLDS: dict[Target, str] = {
    "memory": '"memory" holds what you learned about the environment, the project and how to work here',
    "user": '"user" holds who the user is and what they prefer',
}
_OPERATION: Json = {
    "action": {"type": "string", "enum": list(_ACTIONS)},
    "content": {"type": "string", "description": "The new entry, for add and replace."},
    "old_text": {"type": "string", "description": "A part of the entry meant, unique to it, for replace and remove."},
    "category": {"type": "string", "enum": list(CATEGORIES), "description": "What kind of fact it is; optional."},
}


class Memory(Protocol):
    """The part of curated memory that the tool needs. A review has one that checks every write first."""

    def apply(
        self, target: Target, ops: Sequence[MemoryOp], *, scope: Scope | None, author: Author
    ) -> MemoryOutcome: ...

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]: ...

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]: ...


def memory_tool(store: Memory, targets: Sequence[Target] = TARGETS) -> Tool:
    """Return the tool for a store. Its schema names these targets only; the others are switched off."""
    several = len(targets) > 1
    shown = "Both stores are shown" if several else "It is shown"
    which = f"{'Targets' if several else 'Target'}: {'; '.join(_HOLDS[target] for target in targets)}."
    # inside a batch the fields are not described again: every session pays for every word
    fields = {name: {key: field[key] for key in field if key != "description"} for name, field in _OPERATION.items()}
    parameters = {
        "type": "object",
        "properties": {
            "target": {"type": "string", "enum": list(targets), "description": "Which store."},
            **_OPERATION,
            "operations": {
                "type": "array",
                "description": "Several operations as one atomic batch, instead of action.",
                "items": {"type": "object", "properties": fields, "required": ["action"]},
            },
            "scope": {
                "type": "string",
                "enum": ["home", "project"],
                "description": "In a project, memory goes to the project's notes; home keeps it for everywhere.",
            },
        },
        "required": ["target"],
    }
    description = DESCRIPTION.format(shown=shown, targets=which)
    return Tool("memory", description, parameters, lambda arguments, context: _run(store, arguments, context))


class _Invalid(Exception):
    """Invalid arguments; `extra` goes into the answer."""

    def __init__(self, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.extra = extra


def _run(store: Memory, arguments: Json, context: ToolContext) -> Json:
    try:
        target = _target(arguments)
        scope = _scope(arguments, context.scope)
        ops = _operations(arguments, store, target, scope)
    except _Invalid as exc:
        return {"success": False, "error": str(exc), **exc.extra}
    entries = store.entries(target, scope=scope)
    outsider = context.seen.outsider((op.content for op in ops if not isinstance(op, Remove)), entries)
    author = context.author if outsider is None else replace(context.author, origin=outsider)
    if target in context.turn.full:
        ops = [_making_room(op, entries) for op in ops]
    outcome = store.apply(target, ops, scope=scope, author=author)
    if isinstance(outcome, OverBudget):
        context.turn.full.add(target)
    if isinstance(outcome, Applied | Duplicate):
        context.written(MemoryWrite(target, scope, tuple(ops), outcome, author))
    if (isinstance(outcome, Applied) and outcome.freed) or (isinstance(outcome, OverBudget) and outcome.proposed):
        context.warn(outcome.message)
    return _answer(outcome, context, batch=bool(arguments.get("operations")))


def _target(arguments: Json) -> Target:
    target = arguments.get("target") or "memory"
    for known in TARGETS:
        if target == known:
            return known
    raise _Invalid(f"Invalid target {target!r}. Use 'memory' or 'user'.")


def _scope(arguments: Json, session: Scope) -> Scope:
    wanted = arguments.get("scope")
    if wanted not in (None, "", "home", "project"):
        raise _Invalid(f"Invalid scope {wanted!r}. Use 'home' or 'project'.")
    if wanted == "project" and not session.project:
        raise _Invalid("This session has no project. Leave scope out.")
    return replace(session, project="") if wanted == "home" else session


def _operations(arguments: Json, store: Memory, target: Target, scope: Scope) -> list[MemoryOp]:
    batch = arguments.get("operations")
    if isinstance(batch, str):
        try:
            batch = json.loads(batch or "null")
        except (ValueError, RecursionError):
            raise _Invalid("operations is not valid JSON; give an array of objects.") from None
    if batch is None or (not batch and arguments.get("action")):
        return [_operation(arguments, store, target, scope)]
    if not isinstance(batch, list) or not all(isinstance(item, dict) for item in batch):
        raise _Invalid("operations must be an array of objects with action, content and old_text.")
    if not batch:
        raise _Invalid("operations is empty: nothing to do.")
    ops = []
    for number, item in enumerate(batch, 1):
        try:
            ops.append(_operation(item, store, target, scope))
        except _Invalid as exc:
            raise _Invalid(f"Operation {number}: {exc} No operation was applied.", **exc.extra) from None
    return ops


def _operation(fields: Json, store: Memory, target: Target, scope: Scope) -> MemoryOp:
    action = fields.get("action")
    content = _text(fields, "content") or _text(fields, "new_text")
    old_text = _text(fields, "old_text")
    category = fields.get("category") if fields.get("category") in CATEGORIES else None
    if action not in _ACTIONS:
        raise _Invalid(f"Unknown action {action!r}. Use add, replace or remove.")
    if action == "add":
        if not content:
            raise _Invalid("content is required for 'add'.")
        return Add(content, category)
    if not old_text:
        raise _Invalid(
            f"old_text is required for {action!r}: call again with a part of the entry you mean, copied from "
            "current_entries.",
            current_entries=_listed(store.entries(target, scope=scope)),
            usage=_short_usage(store.status(scope=scope)[TARGETS.index(target)]),
        )
    if action == "remove":
        return Remove(old_text)
    if not content:
        raise _Invalid("content is required for 'replace'; use 'remove' to delete an entry.")
    return Replace(old_text, content, category)


def _text(fields: Json, name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _Invalid(f"{name} must be a string.")
    return (value or "").strip()


def _making_room(op: MemoryOp, entries: Sequence[str]) -> MemoryOp:
    """Mark an entry that the model drops or shortens after a write of this turn did not fit.

    The entry is still true, so it moves to the archive, or waits for a person if a person wrote it.
    """
    found = [] if isinstance(op, Add) else locate(entries, clean(op.old_text))
    if isinstance(op, Add) or len(found) != 1:
        return op
    entry = entries[found[0]]
    if isinstance(op, Remove):
        return replace(op, old_text=entry, kept="room")
    return replace(op, old_text=entry, reworded=True) if len(op.content) < len(entry) else op


# ── the answer ──


def _answer(outcome: MemoryOutcome, context: ToolContext, *, batch: bool) -> Json:
    match outcome:
        case Applied() | Duplicate():
            context.turn.failures = 0
            return {
                "success": True,
                "done": True,
                "target": outcome.target,
                "usage": _usage(outcome),
                "entry_count": outcome.entry_count,
                "message": outcome.message,
                "note": "It is on disk. Nothing more to do here; continue with the user's request.",
            }
        case Staged():
            context.turn.failures = 0
            return {"success": True, "staged": True, "pending_id": outcome.pending, "message": outcome.message}
        case Blocked():
            return {"success": False, "error": _blocked(outcome)}
        case Drifted():
            return {
                "success": False,
                "error": f"{outcome.message} Nothing was written.",
                "drift_backup": outcome.backup,
                "remediation": outcome.remedy,
            }
        case OverBudget() | NoMatch() | Ambiguous():
            return _retry(outcome, context, counted=batch or not isinstance(outcome, Ambiguous))


def _retry(outcome: OverBudget | NoMatch | Ambiguous, context: ToolContext, *, counted: bool) -> Json:
    """Return what is there and what to try next; after three failures in a turn, tell the model to stop."""
    context.turn.failures += counted
    if counted and context.turn.failures > FAILURES_PER_TURN:
        stop = "Memory could not be changed this turn. Stop trying and answer the user; it can be tidied up later."
        return {"success": False, "done": True, "error": stop}
    answer: Json = {"success": False, "error": outcome.message, "usage": _short_usage(outcome)}
    if isinstance(outcome, Ambiguous):
        return {**answer, "matches": _listed(outcome.matches)}
    answer["current_entries"] = _listed(outcome.entries)
    if isinstance(outcome, OverBudget):
        if outcome.needed - outcome.used <= outcome.limit:  # the new text fits, if an old entry is dropped
            answer["error"] += " Do both in one call with operations, now."
        answer["suggestions"] = [
            {"action": s.action, "entries": list(s.entries), "frees": s.frees, "why": s.why}
            for s in outcome.suggestions
        ]
    else:
        answer["error"] += " Copy a unique part of one of current_entries and try again."
    return answer


def _listed(entries: Sequence[str]) -> list[str]:
    """Return the entries up to a limit: a file edited by hand may have any length."""
    listed: list[str] = []
    room = LISTED
    for entry in entries:
        room -= len(entry)
        if room < 0 and listed:
            return [*listed, f"[{len(entries) - len(listed):,} more entries are not listed here.]"]
        listed.append(entry[:LISTED])
    return listed


def _blocked(outcome: Blocked) -> str:
    if not outcome.findings:
        return f"Blocked: {outcome.message}"
    note = "Write it as a plain fact; only a person can override this (herma memory add --trust)."
    return f"Blocked: {outcome.message.removeprefix('Blocked by the scanner, ')} {note}"


def _usage(outcome: MemoryOutcome) -> str:
    percent = min(100, outcome.used * 100 // outcome.limit) if outcome.limit else 100
    return f"{percent}% — {outcome.used:,}/{outcome.limit:,} chars"


def _short_usage(sizes: StoreStatus | MemoryOutcome) -> str:
    return f"{sizes.used:,}/{sizes.limit:,}"
