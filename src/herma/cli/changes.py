"""`herma remember`, `inbox`, `log` and `undo`: one list of proposals and one of changes, over memory, skills, imports
and deleted sessions.

An id names the kind and the number: `m12` is a change or proposal of memory, `s3` of a skill, `i4` an import, `d…` a
deleted session.
A number alone is enough where only one kind has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from typing import TYPE_CHECKING, Any, Literal

import click

from herma.cli.context import (
    CommandContext,
    HermaCommand,
    HermaGroup,
    author,
    completing,
    dry_run_option,
    for_people_only,
    limit_option,
    scope_options,
    with_home,
)
from herma.cli.encode import Json, iso, session_json
from herma.cli.encode import change_json as memory_change_json
from herma.cli.encode import pending_json as memory_pending_json
from herma.cli.output import count, name_of, short_when, when
from herma.errors import HermaError, UsageError
from herma.importers.rows import ImportBatch, ImportRows, undo_import
from herma.memory.cli import (
    TARGET,
    TextCommand,
    by,
    category_option,
    difference,
    file_name,
    operation,
    preview,
    print_diff,
    report,
    span,
    tag_option,
    text_argument,
)
from herma.memory.entries import parse, unique
from herma.review.gate import remembered
from herma.skills.cli import change_json as skill_change_json
from herma.skills.cli import described
from herma.skills.cli import pending_json as skill_pending_json
from herma.types import Add, Category, Change, Pending, Scope, Target

if TYPE_CHECKING:
    from herma.skills.rows import SkillChange, SkillPending
    from herma.types import SessionInfo

Kind = Literal["memory", "skills", "sessions", "imports"]
kind_option = click.option("--kind", type=click.Choice(("memory", "skills")), help="Only proposals of this kind.")
_LETTERS: dict[str, Kind] = {"m": "memory", "s": "skills", "d": "sessions", "i": "imports"}
_MANY = 1_000_000


# ── remember ─────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command(cls=TextCommand)
@text_argument("text", nargs=-1, required=True)
@click.option("--target", type=TARGET, help="MEMORY.md or USER.md; chosen by the text if left out.")
@category_option
@tag_option
@scope_options
@with_home
def remember(
    context: CommandContext,
    text: Sequence[str],
    target: Target | None,
    category: Category | None,
    tags: tuple[str, ...],
) -> None:
    """Store a text in memory: USER.md if it is about you, MEMORY.md otherwise.

    \b
    Examples:
      herma remember "I prefer short answers."
      herma remember "The staging database listens on port 5433." --project shop
    """
    file, content = remembered(" ".join(text))
    op = Add(content, category, tags)
    outcome = context.h.memory.apply(target or file, op, scope=context.scope, author=author())
    report(context, outcome, text=content)


def _complete_change(context: CommandContext, typed: str) -> list[tuple[str, str]]:
    return [(one.id, f"{one.what}: {one.text}") for one in logged(context, limit=200) if one.id.startswith(typed)]


def _complete_proposal(context: CommandContext, typed: str) -> list[tuple[str, str]]:
    return [(one.id, f"{one.where}: {one.lines[0]}") for one in waiting(context) if one.id.startswith(typed)]


change_argument = click.argument("change", required=False, metavar="[ID]", shell_complete=completing(_complete_change))
ids_argument = click.argument(
    "ids", nargs=-1, required=True, metavar="ID…|all", shell_complete=completing(_complete_proposal)
)


# ── log ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """One change of any kind, as the log lists it."""

    kind: Kind
    key: str
    at: float
    where: str
    what: str
    who: str
    text: str
    standing: bool
    """True if `undo` may take it back as the newest change."""
    value: Change | SkillChange | SessionInfo | ImportBatch

    @property
    def id(self) -> str:
        letter = next(letter for letter, kind in _LETTERS.items() if kind == self.kind)
        return letter + self.key

    def json(self) -> Json:
        value: Any = self.value
        if self.kind == "memory":
            removed, added = difference(value)
            more = {**memory_change_json(value), "removed": removed, "added": added}
        elif self.kind == "skills":
            more = skill_change_json(value)
        elif self.kind == "imports":
            more = {"action": "import", **value._asdict(), "at": iso(value.at), "undone": iso(value.undone)}
        else:
            more = {"action": "delete", "session": session_json(value)}
        return {**more, "id": self.id, "kind": self.kind}


def logged(context: CommandContext, kind: Kind | None = None, limit: int = _MANY) -> list[LoggedChange]:
    """Return the changes of every scope, or of the scope asked for, newest first."""
    scope, found = context.scope, []
    if kind in (None, "memory"):
        changes = context.h.memory.changes(limit=limit if scope == Scope() else None)
        found += [_of_memory(one) for one in changes if _within(one.scope, scope)]
    if kind in (None, "skills") and scope == Scope():
        found += [_of_skill(one) for one in context.h.skills.changes(limit=limit)]
    if kind in (None, "sessions"):
        undone = ImportRows(context.h.db).undone_sessions()
        deleted = [one for one in context.h.transcripts.deleted() if one.id not in undone]
        conversations = {one.conversation: one for one in deleted if _within(one.scope, scope)}
        found += [_of_session(one) for one in conversations.values()]
    if kind in (None, "imports") and scope == Scope():
        found += [_of_import(one) for one in ImportRows(context.h.db).batches(limit)]
    return sorted(found, key=lambda one: one.at, reverse=True)[:limit]


def _within(scope: Scope, asked: Scope) -> bool:
    return asked.project in ("", scope.project) and asked.user in ("", scope.user)


def _of_memory(change: Change) -> LoggedChange:
    removed, added = difference(change)
    texts = [f"- {preview(removed[0], 48)}"] if removed else []
    texts += [f"+ {preview(added[0], 48)}"] if added else []
    more = max(0, len(removed) - 1) + max(0, len(added) - 1)
    texts += [f"and {more:,} more"] if more else []
    return _of_change("memory", change, file_name(change.target, change.scope), " ".join(texts))


def _of_skill(change: SkillChange) -> LoggedChange:
    moved = f"{change.moved_from} → {change.moved_to}".removeprefix(" ")
    return _of_change("skills", change, change.skill, change.file or moved)


def _of_change(kind: Kind, change: Change | SkillChange, where: str, text: str) -> LoggedChange:
    action = change.action
    action += f" of {kind[0]}{change.undoes}" if change.undoes else ""
    action += f" (undone by {kind[0]}{change.undone_by})" if change.undone_by else ""
    text += f" ({preview(change.reason, 60)})" if change.reason and change.undoes is None else ""
    standing = change.undoes is None and change.undone_by is None
    return LoggedChange(
        kind, str(change.id), change.at, where, action, by(change.author), text.strip(), standing, change
    )


def _of_session(session: SessionInfo) -> LoggedChange:
    what = f"{name_of(session)} ({count(session.message_count, 'message')})"
    return LoggedChange(
        "sessions", session.id[-6:], session.deleted or 0, "session", "delete", "user", what, True, session
    )


def _of_import(batch: ImportBatch) -> LoggedChange:
    what = f"{count(batch.messages, 'message')} in {count(batch.sessions, 'new session')}"
    action = "import" + (" (undone)" if batch.undone else "")
    sources = batch.source.split(", ")
    where = batch.source if len(sources) < 4 else f"{len(sources)} programs"
    return LoggedChange("imports", str(batch.id), batch.at, where, action, "user", what, batch.undone is None, batch)


@click.command(cls=HermaCommand)
@change_argument
@click.option(
    "--kind", type=click.Choice(("memory", "skills", "sessions", "imports")), help="Only changes of this kind."
)
@limit_option
@scope_options
@with_home
def log(context: CommandContext, change: str | None, kind: Kind | None, limit: int) -> None:
    """List the changes of memory and skills, deletions and imports, newest first; with an ID, show that one in full.

    \b
    Examples:
      herma log
      herma log m12
      herma log --kind skills --limit 5
    """
    if change is not None:
        _show(context, find_change(context, change, kind))
        return
    changes = logged(context, kind, limit + 1)
    more, changes = len(changes) > limit, changes[:limit]
    if context.json:
        context.print_json({"ok": True, "changes": [one.json() for one in changes], "more": more})
        return
    if not changes:
        context.line("Nothing has changed yet.")
        return
    rows = [(one.id, short_when(one.at), one.where, one.what, one.who, one.text) for one in changes]
    context.table(("id", "when", "where", "what", "who", "text"), rows, drop=("who", "where", "what"))
    if more:
        words = ["--kind", kind] if kind else []
        context.line(f"There are more: {context.command('log', *words, '--limit', str(limit * 5), scoped=True)}")


def find_change(context: CommandContext, text: str, kind: Kind | None = None) -> LoggedChange:
    """Return the change that an id names."""
    word = text.strip().lower().removeprefix("#")
    wanted = _LETTERS.get(word[:1]) if not word.isdigit() else kind
    key = word if word.isdigit() else word[1:]
    found = [one for one in logged(context, wanted) if one.key == key]
    if not found:
        raise UsageError(
            f"There is no change {text!r}.",
            hint=f"Nothing was changed. `{context.command('log')}` lists the ids.",
            code="not_found",
        )
    if len(found) > 1:
        ids = " or ".join(one.id for one in found)
        raise UsageError(f"{text} is the number of several changes.", hint=f"Give the whole id: {ids}.")
    return found[0]


def _show(context: CommandContext, one: LoggedChange) -> None:
    value: Any = one.value
    if context.json:
        sides = (
            {} if one.kind in ("sessions", "imports") else {"before": _side(value.before), "after": _side(value.after)}
        )
        context.print_json({"ok": True, "change": {**one.json(), **sides}})
        return
    session = getattr(getattr(value, "author", None), "session", None)
    context.fields(
        [
            ("change", one.id),
            ("when", when(one.at)),
            ("where", one.where),
            ("what", one.what),
            ("who", one.who + (f", session {session}" if session else "")),
            ("reason", getattr(value, "reason", "") if one.kind in ("memory", "skills") else ""),
        ]
    )
    _print_difference(context, one)
    if one.standing:
        context.line(f"To undo it: {context.command('undo', one.id)}")


def _print_difference(context: CommandContext, one: LoggedChange, *, reverse: bool = False) -> None:
    value: Any = one.value
    if one.kind in ("sessions", "imports"):
        context.line(f"  {one.text}")
        return
    before, after = (value.after, value.before) if reverse else (value.before, value.after)
    if one.kind == "memory":
        print_diff(context, unique(parse(before)), unique(parse(after)))
    elif not value.file:
        context.line(f"  {value.moved_from or '(outside)'} → {value.moved_to}")
    else:
        old, new = ((_side(side) or "").splitlines() for side in (before, after))
        for line in unified_diff(old, new, value.file, value.file, lineterm=""):
            context.line(line)


def _side(content: str | bytes | None) -> str | None:
    return f"({len(content):,} bytes that are not text)" if isinstance(content, bytes) else content


# ── undo ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@click.command(cls=HermaCommand)
@change_argument
@click.option(
    "--kind", type=click.Choice(("memory", "skills", "sessions", "imports")), help="The newest change of this kind."
)
@dry_run_option
@scope_options
@with_home
def undo(context: CommandContext, change: str | None, kind: Kind | None, dry_run: bool) -> None:
    """Undo the newest change of memory or skills, deletion or import, or the change with this ID.

    Repeat it to walk further back. An undo is a change too: undo it by its ID to redo.

    \b
    Examples:
      herma undo
      herma undo m12 --dry-run
      herma undo --project shop
    """
    found = _newest(context, kind) if change is None else find_change(context, change, kind)
    if dry_run:
        if found.kind == "memory" and not (tried := context.h.memory.undo(int(found.key), dry_run=True)).ok:
            context.fail(tried.message, "Nothing was changed.")
        if context.json:
            context.print_json({"ok": True, "dry_run": True, "change": found.json()})
        context.line(f"Would undo {found.id} ({found.where}: {found.what}, {when(found.at)}):")
        _print_difference(context, found, reverse=True)
        context.line("Nothing was changed.")
        return
    value: Any = found.value
    options = context.h.settings
    if {"memory": options.memory.write_approval, "skills": options.skills.write_approval}.get(found.kind):
        for_people_only(f"With {found.kind}.write_approval on, undoing a change")
    if found.kind == "sessions":
        back = context.h.transcripts.undelete([value.id])
        _undone(context, found, f"Restored session {value.id}: {found.text}.", count=len(back))
        return
    if found.kind == "imports":
        if not found.standing:
            context.fail(f"The import {found.id} is undone already.", "To import it again: herma import")
        undo_import(context.h, value.id)
        _undone(context, found, f"Removed what import {found.id} added: {found.text}. To redo it, import it again.")
        return
    store = context.h.memory if found.kind == "memory" else context.h.skills
    outcome = store.undo(value.id, author=author())
    if not outcome.ok:
        context.fail(outcome.message, f"Nothing was changed. To see it: {context.command('log', found.id)}")
    redo = f"{found.id[0]}{getattr(outcome, 'change', '')}"
    _undone(context, found, f"Change {found.id} undone. To redo it: {context.command('undo', redo)}", change=redo)


def _undone(context: CommandContext, one: LoggedChange, sentence: str, **more: object) -> None:
    if context.json:
        context.print_json({"ok": True, "undone": one.json(), "message": sentence, **more})
    context.line(sentence)


def _newest(context: CommandContext, kind: Kind | None) -> LoggedChange:
    """Return the newest change that stands; name what is skipped on the way because it cannot be undone."""
    for one in logged(context, kind):
        if not one.standing:
            continue
        if one.kind == "skills":
            try:
                context.h.skills.undoable(int(one.key))
            except UsageError as refused:
                context.warn(f"Skipped {one.id} ({one.where}: {one.what}): {refused}")
                continue
        return one
    raise HermaError("There is nothing to undo.", hint=f"`{context.command('log')}` lists the changes.", code="nothing")


# ── inbox ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class InboxItem:
    """One proposal of any kind."""

    id: str
    where: str
    lines: list[str]
    value: Pending | SkillPending

    def json(self) -> Json:
        value: Any = self.value
        kind = _LETTERS[self.id[0]]
        made = memory_pending_json(value) if kind == "memory" else skill_pending_json(value)
        return {**made, "id": self.id, "kind": kind}


def waiting(context: CommandContext, kind: Kind | None = None) -> list[InboxItem]:
    """Return the proposals of every scope, or of the scope asked for, oldest first."""
    found = [
        InboxItem(f"m{one.id}", file_name(one.target, one.scope), list(map(operation, one.operations)), one)
        for one in context.h.memory.pending()
        if _within(one.scope, context.scope)
    ]
    if context.scope == Scope():
        found += [
            InboxItem(f"s{one.id}", f"skill {one.operation.name}", described(one.operation), one)
            for one in context.h.skills.pending()
        ]
    return sorted((one for one in found if kind in (None, _LETTERS[one.id[0]])), key=lambda one: one.value.at)


@click.group(cls=HermaGroup, order="list show approve reject", invoke_without_command=True)
@click.pass_context
def inbox(context: click.Context) -> None:
    """List, approve or reject proposals: changes of memory and skills that wait for you.

    Texts from the web, from tools and from imports wait here. With memory.write_approval or skills.write_approval on,
    everything that an agent writes does.

    \b
    Examples:
      herma inbox
      herma inbox list --project shop
      herma inbox show m3
      herma inbox approve m3 s1
      herma inbox reject all
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@inbox.command("list", hidden=True)
@scope_options
@with_home
def list_(context: CommandContext) -> None:
    """List the proposals, oldest first.

    \b
    Examples:
      herma inbox list --project shop
    """
    items = waiting(context)
    if context.json:
        context.print_json({"ok": True, "pending": [one.json() for one in items]})
        return
    if not items:
        context.line("The inbox is empty.")
        return
    for item in items:
        _print_item(context, item, lines=4)
    context.line()
    context.line(f"{count(len(items), 'proposal')} waiting. To decide:")
    for words in (("show", items[0].id), ("approve", items[0].id), ("reject", items[0].id), ("approve", "all")):
        context.line(f"  {context.command('inbox', *words)}")


def _print_item(context: CommandContext, item: InboxItem, lines: int = _MANY) -> None:
    value, now = item.value, time.time()
    session = f" in session {value.author.session}" if value.author.session else ""
    expires = f"expires in {span(value.expires - now)}"
    context.line(f"{item.id:>4}  {item.where}: from {by(value.author)}{session}, {span(now - value.at)} ago; {expires}")
    if value.reason:
        context.line(f"      reason: {value.reason}")
    shown = [line for text in item.lines for line in text.split("\n")]
    for line in shown[:lines]:
        context.line(f"      {line}")
    if len(shown) > lines:
        context.line(f"      and {count(len(shown) - lines, 'more line')}")


@inbox.command()
@ids_argument
@kind_option
@with_home
def show(context: CommandContext, ids: Sequence[str], kind: Kind | None) -> None:
    """Show proposals in full.

    \b
    Examples:
      herma inbox show m3
    """
    items = _chosen(context, ids, kind)
    if context.json:
        context.print_json({"ok": True, "pending": [one.json() for one in items]})
    for item in items:
        _print_item(context, item)


def _chosen(context: CommandContext, ids: Sequence[str], kind: Kind | None) -> list[InboxItem]:
    """Return the proposals that the ids name. An unknown id refuses all of them."""
    items = waiting(context, kind)
    if [word.lower() for word in ids] == ["all"]:
        return items
    found = []
    for word in dict.fromkeys(ids):
        named = [one for one in items if word.lower().removeprefix("#") in (one.id, one.id[1:])]
        if not named:
            hint = f"Nothing was decided. `{context.command('inbox')}` lists the ids."
            raise UsageError(f"There is no proposal {word!r} in the inbox.", hint=hint, code="not_found")
        if len(named) > 1:
            both = " or ".join(one.id for one in named)
            raise UsageError(f"{word} is the number of several proposals.", hint=f"Give the whole id: {both}.")
        found.append(named[0])
    return found


@inbox.command()
@ids_argument
@kind_option
@with_home
def approve(context: CommandContext, ids: Sequence[str], kind: Kind | None) -> None:
    """Carry out proposals. Only a person may: it is refused inside an agent.

    \b
    Examples:
      herma inbox approve m3 s1
      herma inbox approve all
    """
    for_people_only("Approving a proposal")
    _decide(context, ids, kind, _approve)


def _approve(context: CommandContext, item: InboxItem) -> Json:
    store = context.h.memory if item.id[0] == "m" else context.h.skills
    outcome = store.approve(item.value.id)
    change = getattr(outcome, "change", None)
    return {
        "ok": outcome.ok,
        "outcome": type(outcome).__name__,
        "message": outcome.message,
        "change": None if change is None else f"{item.id[0]}{change}",
    }


@inbox.command()
@ids_argument
@kind_option
@with_home
def reject(context: CommandContext, ids: Sequence[str], kind: Kind | None) -> None:
    """Drop proposals for good: the same proposal is not made again.

    \b
    Examples:
      herma inbox reject m3
      herma inbox reject all
    """
    for_people_only("Rejecting a proposal")
    _decide(context, ids, kind, _reject)


def _reject(context: CommandContext, item: InboxItem) -> Json:
    (context.h.memory if item.id[0] == "m" else context.h.skills).reject(item.value.id)
    return {"ok": True, "outcome": "Rejected", "message": "Rejected; it will not be proposed again."}


def _decide(
    context: CommandContext, ids: Sequence[str], kind: Kind | None, act: Callable[[CommandContext, InboxItem], Json]
) -> None:
    results = []
    for item in _chosen(context, ids, kind):
        result = act(context, item)
        results.append({"id": item.id, **result})
        back = f" To undo it: {context.command('undo', result['change'])}" if result.get("change") else ""
        if result["ok"]:
            context.line(f"{item.id}: {result['message']}{back}")
        else:
            context.warn(f"{item.id} stays in the inbox: {result['message']}")
    refused = any(not result["ok"] for result in results)
    if context.json:
        context.print_json({"ok": not refused, "results": results})
    if not results:
        context.line("The inbox is empty.")
    if refused:
        context.exit(1)
