"""What came of a change: one line when it was made, a sentence and the way out when it was refused."""

from __future__ import annotations

import sys
from dataclasses import fields
from typing import NoReturn

from herma.cli import output
from herma.cli.memory.desk import Desk
from herma.cli.memory.wording import excerpt, finding_json, handle, preview, usage
from herma.types import (
    Ambiguous,
    Applied,
    Blocked,
    Drifted,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Scope,
    Staged,
    Suggestion,
    Target,
)
from herma.wording.sessions import Json, count

_INDENT = "\n    "
_MOST = 12
"""Entries that a refusal names at most; `list` has them all."""


def outcome_json(outcome: MemoryOutcome, text: str = "") -> Json:
    """An outcome with everything it carries. `text` is what the findings point into."""
    value: Json = {"ok": outcome.ok, "outcome": type(outcome).__name__}
    for item in fields(outcome):
        value[item.name] = getattr(outcome, item.name)
    if isinstance(outcome, Blocked):
        value["findings"] = [finding_json(finding, text) for finding in outcome.findings]
    return value


def report(desk: Desk, outcome: MemoryOutcome, *, text: str = "", old: str = "", scope: Scope | None = None) -> None:
    """Say what came of a change; a refusal ends the command with exit code 1.

    `text` is what should have been stored, `old` what should have located an entry, `scope` whose file it was when
    that is not the desk's.
    """
    if not outcome.ok:
        refuse(desk, outcome, text=text, old=old)
    if desk.context.json:
        desk.context.print_json(outcome_json(outcome, text))
    desk.context.line(success(desk, outcome, scope))


def success(desk: Desk, outcome: MemoryOutcome, scope: Scope | None = None) -> str:
    """One line for a change that was made, or did not have to be."""
    where = f"{desk.name(outcome.target, scope)}: {usage(outcome)}."
    match outcome:
        case Applied(change=change):
            return f"{outcome.message} {where} Change {change}; to take it back: {desk.command('undo', str(change))}"
        case Staged(pending=pending):
            approve = desk.command("approve", str(pending))
            return f"{outcome.message} Nothing is stored yet. A person decides, in a terminal of their own: {approve}"
        case _:
            return f"{outcome.message} {where}"


def refuse(desk: Desk, outcome: MemoryOutcome, *, text: str = "", old: str = "") -> NoReturn:
    """One sentence on stderr, then what to do."""
    if desk.context.json:
        desk.context.print_json(outcome_json(outcome, text))
        output.write(f"herma: {outcome.message}", sys.stderr)
        desk.context.exit(1)
    desk.context.fail(outcome.message, _INDENT.join(advice(desk, outcome, text, old)))


def advice(desk: Desk, outcome: MemoryOutcome, text: str = "", old: str = "") -> list[str]:
    """What to do about a refusal, line by line."""
    match outcome:
        case OverBudget():
            return _room(desk, outcome, text)
        case NoMatch(entries=entries):
            lines = ["OLD is a part of the entry's text, not its number."] if old.strip().isdigit() else []
            return [*lines, *_list(desk, "Quote a part of one of these entries:", entries)]
        case Ambiguous(matches=matches):
            return _list(desk, "Quote more of the one you mean:", matches)
        case Blocked(findings=findings) if findings:
            found = list(dict.fromkeys(f"{f.rule}: {excerpt(text, f.span)}" for f in findings))
            return [
                f"Found {count(len(found), 'piece')} of text to object to:",
                *(f"  {line}" for line in found[:5]),
                "If it is harmless and you want it kept, say the same command again with --trust.",
            ]
        case Blocked():
            return ["Nothing was changed."]
        case Drifted(remedy=remedy, backup=backup):
            return [remedy, *([f"A copy is kept at {backup}"] if backup else []), "The file was left as it is."]
        case _:
            return []


def _room(desk: Desk, over: OverBudget, text: str) -> list[str]:
    """How to make room, each way with the characters it frees."""
    if len(text.strip()) > over.limit:
        return ["Nothing was changed."]
    if not over.suggestions:
        return ["Nothing was changed."]
    freed = sum(suggestion.frees for suggestion in over.suggestions)
    short = over.needed - over.limit
    key = "memory_char_limit" if over.target == "memory" else "user_char_limit"
    lines = ["To make room:"]
    for suggestion in over.suggestions:
        lines += [f"  {line}" for line in _suggested(desk, suggestion, over.entries, over.target)]
    if freed < short:
        lines.append(f"That frees {freed:,}; {count(short - freed, 'more character')} must go as well.")
    lines.append(f"Or allow more: {desk.setting(f'memory.{key}', -(-over.needed // 100) * 100)}")
    return lines


def _suggested(desk: Desk, suggestion: Suggestion, entries: tuple[str, ...], target: Target) -> list[str]:
    first, *others = suggestion.entries
    words = ["--target user"] if target == "user" else []
    if not others:
        command = desk.command("remove", handle(first, entries), *words, scoped=True)
        return [f"drop “{preview(first)}”: frees {suggestion.frees:,} ({suggestion.why})", f"    {command}"]
    shorter = min(suggestion.entries, key=len)
    command = desk.command("remove", handle(shorter, entries), *words, scoped=True)
    return [
        f"merge “{preview(first)}”",
        f"  and “{preview(others[0])}”: frees {suggestion.frees:,} ({suggestion.why})",
        f"    or keep only the longer one: {command}",
    ]


def _list(desk: Desk, title: str, entries: tuple[str, ...]) -> list[str]:
    if not entries:
        return [f"It has no entries. `{desk.command('list', scoped=True)}` shows what is there."]
    lines = [title, *(f"  {number}  {preview(entry)}" for number, entry in enumerate(entries[:_MOST], 1))]
    if len(entries) > _MOST:
        lines.append(f"  and {len(entries) - _MOST:,} more: {desk.command('list', scoped=True)}")
    return lines
