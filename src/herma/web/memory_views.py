"""Memory as the dashboard and the API show it: entries, the timeline of changes, the archive and the inbox."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Literal

from herma.cli.changes import InboxItem, LoggedChange, find_change, logged, waiting
from herma.cli.context import CommandContext
from herma.cli.encode import Json, entry_json, iso, outcome_json, scope_json, status_json
from herma.cli.output import name_of
from herma.errors import HermaError, UsageError
from herma.importers.rows import undo_import
from herma.memory.archive import ArchiveRows
from herma.memory.cli import archived_json, by, file_name
from herma.memory.entries import parse, unique
from herma.memory.files import MemoryRows
from herma.review.gate import remembered
from herma.skills.cli import outcome_json as skill_outcome_json
from herma.transcript.rows import SessionRows
from herma.types import (
    CATEGORIES,
    Add,
    MemoryOp,
    MemoryOutcome,
    Replace,
    Scope,
    SessionFilter,
    StoreStatus,
    Target,
)
from herma.web.api import Limit, LongText, Number, Offset, action, address, later, rows_of, view, without_secrets

if TYPE_CHECKING:
    from herma.app import Herma

OneCategory = Literal["", "identity", "preference", "environment", "convention", "lesson"]
OneTarget = Literal["memory", "user"]
_LATEST = 8
"""Sessions whose prompts are read, to say when an entry was last in one."""
_SCOPES = 100


def context_of(h: Herma) -> CommandContext:
    """Return the context in which the commands list changes and proposals."""
    made = CommandContext()
    made.h = h
    return made


# ── entries ──────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/memory", page="/memory", title="Memory")
def memory(h: Herma, project: str = "", user: str = "") -> Json:
    """Show the entries of MEMORY.md and USER.md of a scope, how full both are, and which other scopes there are."""
    scope = Scope(project=project, user=user)
    prompts = _latest_prompts(h)
    files = []
    for status in h.memory.status(scope=scope):
        if (project or user) and not (status.scope.project if status.target == "memory" else status.scope.user):
            continue  # this file is the home's
        described = h.memory.describe(status.target, scope=scope) if h.memory.is_enabled(status.target) else []
        entries = [
            entry_json(number, one) | {"in_prompt": next((at for at, text in prompts if one.text in text), None)}
            for number, one in enumerate(described, 1)
        ]
        files.append(_file_json(h, status) | {"entries": entries})
    return {
        "ok": True,
        **scope_json(scope),
        "files": files,
        "scopes": _scopes(h),
        "prompts_read": len(prompts),
        "categories": CATEGORIES,
    }


def _file_json(h: Herma, status: StoreStatus) -> Json:
    shown = status_json(status, enabled=h.memory.is_enabled(status.target))
    return shown | {"name": file_name(status.target, status.scope)}


def _scopes(h: Herma) -> list[Json]:
    """Return the sizes of the files of every project and user."""
    rows = MemoryRows(h.db)
    scopes = [("memory", Scope(project=key)) for key in rows.keys("project")]
    scopes += [("user", Scope(user=key)) for key in rows.keys("user")]
    found = []
    for target, scope in scopes[:_SCOPES]:
        found += [_file_json(h, one) for one in h.memory.status(scope=scope) if one.target == target]
    return found


def _latest_prompts(h: Herma) -> list[tuple[str | None, str]]:
    """Return the system prompts of the latest sessions, with the time at which each began."""
    latest = h.transcripts.list(SessionFilter(imported=False), limit=_LATEST)
    return [(iso(one.started), h.transcripts.system_prompt(one.id) or "") for one in latest]


@action("/memory/add")
def add_entry(
    h: Herma,
    text: LongText,
    target: Literal["", "memory", "user"] = "",
    category: OneCategory = "",
    tags: str = "",
    project: str = "",
    user: str = "",
    trust: bool = False,
) -> Json:
    """Add an entry. Without a target, a text about the user goes to USER.md, any other to MEMORY.md."""
    file, content = remembered(text)
    op = Add(content, category or None, _tags(tags))
    return _written(h, target or file, op, Scope(project=project, user=user), trust=trust, text=content)


@action("/memory/replace")
def replace_entry(
    h: Herma,
    target: OneTarget,
    old: LongText,
    text: LongText,
    category: OneCategory = "",
    tags: str = "",
    project: str = "",
    user: str = "",
    trust: bool = False,
) -> Json:
    """Replace the entry `old` by another text."""
    scope = Scope(project=project, user=user)
    op = Replace(_stored(h, target, old, scope), text, category or None, _tags(tags))
    return _written(h, target, op, scope, trust=trust, text=text)


@action("/memory/remove")
def remove_entry(h: Herma, target: OneTarget, old: LongText, project: str = "", user: str = "") -> Json:
    """Remove the entry `old`. It can be undone."""
    scope = Scope(project=project, user=user)
    return done(h.memory.remove(target, _stored(h, target, old, scope), scope=scope))


def _stored(h: Herma, target: Target, shown: str, scope: Scope) -> str:
    """Return the text of the entry that is shown as this one, without its credentials."""
    found = (text for text in h.memory.entries(target, scope=scope) if without_secrets(text) == shown)
    return next(found, shown) if "redacted" in shown else shown


def _tags(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(one for part in text.split(",") if (one := part.strip().removeprefix("#"))))


def _written(h: Herma, target: Target, op: MemoryOp, scope: Scope, *, trust: bool, text: str) -> Json:
    return done(h.memory.apply(target, op, scope=scope, trust=trust), text)


def done(outcome: MemoryOutcome, text: str = "") -> Json:
    """Return the outcome of a change, with the id that undoes it."""
    value = outcome_json(outcome, text)
    return value | ({"undo": f"m{value['change']}"} if value.get("change") else {})


# ── changes ──────────────────────────────────────────────────────────────────────────────────────────────────────


def change_json(one: LoggedChange) -> Json:
    shown = {"at": iso(one.at), "where": one.where, "what": one.what, "by": one.who, "summary": one.text}
    return one.json() | shown | {"standing": one.standing}


def page_of(h: Herma, value: Any) -> str:
    """Return the page of what a change or a proposal is about: a memory file, a skill; "" if it has none."""
    if hasattr(value, "target"):
        return address("/memory", project=value.scope.project, user=value.scope.user) + f"#{value.target}"
    name = value.operation.name if hasattr(value, "operation") else getattr(value, "skill", "")
    return address(f"/skills/{name}") if name in {one.name for one in h.skills.list(everything=True)} else ""


@view("/changes", page="/memory/changes", title="Timeline")
def changes(
    h: Herma,
    kind: Literal["", "memory", "skills", "sessions", "imports"] = "",
    limit: Limit = 30,
    offset: Offset = 0,
) -> Json:
    """List the changes of memory and skills, deletions and imports, newest first."""
    found, more = rows_of(logged(context_of(h), kind or None, offset + limit + 1)[offset:], limit)
    return {"ok": True, "changes": [change_json(one) for one in found], "next": later(more, offset, limit)}


@view("/changes/{id}", page="/memory/changes/{id}", title="Change")
def change(h: Herma, id: str) -> Json:  # noqa: A002  (the name in the address)
    """Show one change with what it removed and added, line by line."""
    one = find_change(context_of(h), id)
    author = getattr(one.value, "author", None)
    info = h.transcripts.get(author.session) if author and author.session else None
    return {
        "ok": True,
        "change": change_json(one) | {"page": page_of(h, one.value)},
        "diff": _diff(one),
        "conversation": {"id": info.id, "name": name_of(info), "message": author.message} if info and author else None,
    }


def _diff(one: LoggedChange) -> list[list[str]]:
    """Return the lines of a change, each with "-", "+" or " " before it."""
    value: Any = one.value
    if one.kind in ("sessions", "imports") or (one.kind == "skills" and not value.file):
        return [[" ", one.text]]
    if one.kind == "memory":
        before, after = (
            [line for entry in unique(parse(side)) for line in (*entry.split("\n"), "§")][:-1]
            for side in (value.before, value.after)
        )
    else:
        sides = (value.before, value.after)
        if any(isinstance(side, bytes) for side in sides):
            return [[" ", "This file is not text."]]
        before, after = ((side or "").splitlines() for side in sides)
    lines = list(unified_diff(before, after, lineterm="", n=2))[2:]
    return [["…", ""] if line.startswith("@@") else [line[0], line[1:]] for line in lines]


@action("/changes/{id}/undo")
def undo_change(h: Herma, id: str) -> Json:  # noqa: A002
    """Undo one change. An undo is a change too, and can be undone."""
    one = find_change(context_of(h), id)
    value: Any = one.value
    if one.kind == "memory":
        return done(h.memory.undo(value.id))
    if one.kind == "skills":
        return skill_done(h.skills.undo(value.id))
    if one.kind == "imports":
        if not one.standing:
            raise HermaError(f"The import {one.id} is undone already.", hint="Import it again.", code="undone")
        return {"ok": True, "message": f"Removed what import {one.id} added.", "sessions": undo_import(h, value.id)}
    back = h.transcripts.undelete([value.id])
    return {"ok": True, "message": f"Restored: {one.text}.", "sessions": len(back)}


def skill_done(outcome: Any) -> Json:
    """Return the outcome of a change of skills, with the id that undoes it."""
    value = skill_outcome_json(outcome)
    return value | ({"undo": f"s{value['change']}"} if value.get("change") else {})


# ── archive ──────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/archive", page="/memory/archive", title="Archive")
def archive(h: Herma, forgotten: bool = False, limit: Limit = 50, offset: Offset = 0) -> Json:
    """List the entries that left the files and can be recalled where they help, newest first."""
    everything = [one for one in ArchiveRows(h.db).select(None) if (one.forgotten is not None) == forgotten]
    found, more = rows_of(everything[offset:], limit)
    return {
        "ok": True,
        "entries": [archived_json(one) | {"file": file_name(one.target, one.scope)} for one in found],
        "total": len(everything),
        "next": later(more, offset, limit),
    }


@action("/archive/{number}/restore")
def restore_entry(h: Herma, number: Number) -> Json:
    """Put an archived entry back into its file."""
    _archived(h, number)
    return done(h.memory.archive.restore(number))


@action("/archive/{number}/forget")
def forget_entry(h: Herma, number: Number, undo: bool = False) -> Json:
    """Stop recalling an archived entry; with `undo`, recall it again."""
    _archived(h, number)
    found = h.memory.archive.unforget([number]) if undo else h.memory.archive.forget([number])
    words = "It is recalled again." if undo else "It is not recalled any more."
    return {"ok": True, "message": words if found else "Nothing had to be changed."}


def _archived(h: Herma, number: int) -> None:
    if h.memory.archive.get(number) is None:
        raise UsageError(f"There is no archived entry {number}.", hint="Nothing was changed.", code="not_found")


# ── inbox ────────────────────────────────────────────────────────────────────────────────────────────────────────


def proposals(h: Herma, items: Iterable[InboxItem]) -> list[Json]:
    """Return proposals with what each would do, why it waits, and the conversation that it came from."""
    chosen = list(items)
    authors = {one.id: getattr(one.value, "author", None) for one in chosen}
    sessions = SessionRows(h.db).get([each.session for each in authors.values() if each and each.session])
    found = []
    for one in chosen:
        author = authors[one.id]
        info = sessions.get(author.session or "") if author else None
        found.append(
            one.json()
            | {"where": one.where, "lines": one.lines, "by": by(author) if author else "", "editable": _editable(one)}
            | {
                "diff": _proposed(one),
                "page": page_of(h, one.value),
                "conversation": name_of(info) if info else "",
                "outside": bool(author and not author.origin.trusted),
            }
        )
    return found


def _editable(one: InboxItem) -> str:
    """Return the text that a person may change before approving it; "" where there is none."""
    operations: tuple[MemoryOp, ...] = getattr(one.value, "operations", ())
    only: Any = operations[0] if len(operations) == 1 else getattr(one.value, "operation", None)
    return str(getattr(only, _text_field(only), ""))


def _text_field(op: Any) -> str:
    """Return the name of the field that holds what an operation would write; "" where it writes nothing."""
    return next((name for name in ("content", "new") if isinstance(getattr(op, name, None), str)), "")


def _proposed(one: InboxItem) -> list[list[str]]:
    """Return what a proposal would remove and add, as the lines of a difference."""
    operations: tuple[Any, ...] = getattr(one.value, "operations", ()) or (getattr(one.value, "operation", None),)
    lines: list[list[str]] = []
    for op in operations:
        old = getattr(op, "old_text", "") or getattr(op, "old", "")
        lines += [["-", line] for line in old.splitlines()]
        lines += [["+", line] for line in str(getattr(op, _text_field(op), "")).splitlines()]
    return lines


@view("/inbox", page="/inbox", title="Inbox")
def inbox(h: Herma, limit: Limit = 50, offset: Offset = 0) -> Json:
    """List what waits for a person: changes of memory and skills, oldest first, and why each is here."""
    items = waiting(context_of(h))
    found, more = rows_of(items[offset:], limit)
    return {"ok": True, "pending": proposals(h, found), "total": len(items), "next": later(more, offset, limit)}


def _proposal(h: Herma, key: str) -> InboxItem:
    for one in waiting(context_of(h)):
        if one.id == key.lower():
            return one
    raise UsageError(
        f"There is no proposal {key[:60]!r} in the inbox.", hint="It may have been decided already.", code="not_found"
    )


@action("/inbox/{id}/approve", person=True)
def approve(h: Herma, id: str, text: str = "") -> Json:  # noqa: A002
    """Carry out a proposal; with a text, write that in its place."""
    one = _proposal(h, id)
    value: Any = one.value
    edited = text.strip().replace("\r\n", "\n")
    of_skill, proposed = one.id[0] == "s", _editable(one)
    if not edited or edited in (proposed.strip(), without_secrets(proposed).strip()):
        return skill_done(h.skills.approve(value.id)) if of_skill else done(h.memory.approve(value.id))
    if not proposed:
        raise UsageError(f"{one.id} is not one text, so it cannot be edited. Nothing was changed.", code="invalid")
    op = value.operation if of_skill else value.operations[0]
    mine: Any = replace(op, **{_text_field(op): edited + proposed[len(proposed.rstrip()) :]})
    mine = replace(mine, reworded=False) if isinstance(mine, Replace) else mine
    reason = f"edited proposal {one.id}"
    if of_skill:
        written = h.skills.apply(mine, reason=reason)
        if written.ok:
            h.skills.reject(value.id)
        return skill_done(written)
    outcome = h.memory.apply(value.target, mine, scope=value.scope, reason=reason)
    if outcome.ok:
        h.memory.reject(value.id)
    return done(outcome, edited)


@action("/inbox/{id}/reject", person=True)
def reject(h: Herma, id: str) -> Json:  # noqa: A002
    """Drop a proposal for good: the same proposal is not made again."""
    one = _proposal(h, id)
    (h.memory if one.id[0] == "m" else h.skills).reject(one.value.id)
    return {"ok": True, "outcome": "Rejected", "message": "Rejected; it will not be proposed again."}
