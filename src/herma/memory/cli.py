"""Herma memory: list, add, replace, remove, log, undo, …"""

from __future__ import annotations

import functools
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from dataclasses import replace as changed
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, ParamSpec, Protocol

import click

from herma.cli import frame as person
from herma.cli import output
from herma.cli.frame import Context, HermaCommand, HermaGroup, for_people_only, pass_context, yes_option
from herma.cli.output import Json, count, iso, percent, scope_json, status_json, when
from herma.errors import UsageError
from herma.memory.entries import parse, unique, used
from herma.types import (
    CATEGORIES,
    TARGETS,
    Add,
    Ambiguous,
    Applied,
    Author,
    Blocked,
    Category,
    Change,
    Drifted,
    Entry,
    Finding,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    Origin,
    OverBudget,
    Pending,
    Remove,
    Replace,
    Scope,
    Staged,
    StoreStatus,
    Suggestion,
    Target,
)

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.config import Settings
    from herma.memory.store import MemoryStore


# ---------- cli.memory.desk
#
# What the memory commands share: the group, the choice of scope, and who is sitting at the keyboard.

P = ParamSpec("P")


class MemoryGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list add replace remove mark status log diff blame undo pending approve reject tidy tail adopt reset"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.index)


@click.group(cls=MemoryGroup)
def memory() -> None:
    """See and change what agents remember: MEMORY.md (notes) and USER.md (the user's profile).

    Every change is recorded and can be undone. Without --project and --user the home's own files are meant.

    \b
    Examples:
      herma memory add "The tests run with pytest -n 2."
      herma memory list
      herma memory replace "pytest -n 2" "The tests run with make test."
      herma memory undo

    \b
    With --json a change prints
      ok, outcome, target, message, entry_count, used, limit
    and what belongs to its outcome:
      Applied     change, backup           Duplicate   (nothing more)
      OverBudget  entries, needed, suggestions [action, entries, frees, why]
      NoMatch     entries                  Ambiguous   matches
      Blocked     findings [rule, start, end, severity, why, text]
      Drifted     reason, remedy, backup   Staged      pending
    Lists print ok and files, changes, entries or pending. Times are ISO 8601 in UTC.
    """


@dataclass(frozen=True, slots=True)
class Desk:
    """What a memory command works with: the frame's context, the opened store, and whose memory is meant."""

    context: Context
    store: MemoryStore
    settings: Settings
    scope: Scope
    h: Herma

    def statuses(self, target: Target | None = None) -> list[StoreStatus]:
        """The files of the scope: both, or the one asked for."""
        return [status for status in self.store.status(scope=self.scope) if target in (None, status.target)]

    def enabled(self, target: Target) -> bool:
        options = self.settings.memory
        return options.memory_enabled if target == "memory" else options.user_profile_enabled

    def name(self, target: Target, scope: Scope | None = None) -> str:
        """A file as people call it."""
        scope = scope or self.scope
        if target == "memory":
            return f"MEMORY.md of project {scope.project}" if scope.project else "MEMORY.md"
        return f"USER.md of user {scope.user}" if scope.user else "USER.md"

    def command(self, *words: str, scoped: bool = False) -> str:
        """A command line to type next, on the same home."""
        chosen = [("--project", self.scope.project), ("--user", self.scope.user)] if scoped else []
        return " ".join(["herma memory", *words, *_flags(chosen), *self._home])

    def setting(self, key: str, value: object) -> str:
        """A command line that changes the configuration of the same home."""
        return " ".join([f"herma config set {key} {value}", *self._home])

    @property
    def _home(self) -> list[str]:
        return _flags([("--home", self.context.home), ("--profile", self.context.profile)])

    @property
    def author(self) -> Author:
        return person.author()

    def for_people_under_approval(self, what: str) -> None:
        """With write approval on, an agent may not go round the inbox either."""
        if self.settings.memory.write_approval:
            for_people_only(f"With memory.write_approval on, {what}")


def _flags(chosen: Sequence[tuple[str, str | None]]) -> list[str]:
    return [word for name, value in chosen if value for word in (name, shlex.quote(value))]


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _key(_: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """A project or user as it is kept. An empty one is a mistake (an unset variable, say), not the home."""
    key = (value or "").strip()
    if value is not None and not key:
        raise UsageError(f"--{parameter.name} is empty.", hint="Give a name, or leave the option out.")
    if not key.isprintable():
        raise UsageError(
            f"--{parameter.name} has characters in it that cannot be printed.", hint="Leave out what is not text."
        )
    return key


def with_memory(function: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Open the memory for a command, and give it --project and --user."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, project: str, user: str, **options: Any) -> None:
        with context.open() as opened:
            desk = Desk(context, opened.memory, opened.settings, Scope(project=project, user=user), opened)
            function(desk, **options)  # type: ignore[call-arg]  # click hands over what the options declare

    scope = [
        click.Option(["--user"], metavar="ID", callback=_key, help="The profile of this user instead of the home's."),
        click.Option(["--project"], metavar="NAME", callback=_key, help="The notes of this project."),
    ]
    run.__click_params__ = [*scope, *getattr(function, "__click_params__", ())]  # type: ignore[attr-defined]
    return run


_DASHED = "\ue000"
_DASHED_TEXT = re.compile(r"(-[^=\s]*)\s")


class TextCommand(HermaCommand):
    """A command that takes texts: one that begins with a dash and has a blank in it cannot be an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._guarded, args[:end]), *args[end:]])

    def _guarded(self, word: str) -> str:
        found = _DASHED_TEXT.match(word)
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        return _DASHED + word if found and found[1] not in known else word


def text_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a `TextCommand`: any text that can be written as UTF-8."""
    return click.argument(name, callback=_read_text, **attributes)


def _read_text(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(_read_text(_, parameter, word) for word in value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("it has bytes in it that are not text.", param=parameter) from None
    return value.removeprefix(_DASHED)


reason_option = click.option("--reason", default="", callback=_read_text, help="Why, for the history.")


def _read_change(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    text = (value or "").removeprefix("#")
    if value is not None and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise click.BadParameter(f"{text[:40]!r} is not the number of a change; the log has them.", param=parameter)
    return None if value is None else int(text)


change_argument = click.argument("change", required=False, callback=_read_change)
TARGET = click.Choice(TARGETS, case_sensitive=False)
target_option = click.option("--target", type=TARGET, default="memory", show_default=True, help="MEMORY.md or USER.md.")
either_target_option = click.option("--target", type=TARGET, help="Only MEMORY.md or only USER.md.")


def read_tags(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Tags as given, several in one option being separated by commas."""
    tags = [tag.strip().removeprefix("#") for value in values for tag in value.split(",")]
    for tag in tags:
        if not tag or not tag.isprintable() or len(tag) > 40:
            raise click.BadParameter(f"{tag[:60]!r} is not a tag: use 1 to 40 printable characters.", param=parameter)
    return tuple(dict.fromkeys(tags))


# ---------- cli.memory.wording
#
# How curated memory is put into words for people, and into JSON for programs. Pure.

BAR = 24


class Sized(Protocol):
    """A file or an outcome that says how full the file is."""

    @property
    def used(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def entry_count(self) -> int: ...


def usage(sized: Sized) -> str:
    """`12 % — 260/2,200 characters, 4 entries`."""
    full = percent(sized.used, sized.limit)
    return f"{full} % — {sized.used:,}/{sized.limit:,} characters, {count(sized.entry_count, 'entry')}"


def bar(sized: Sized) -> str:
    full = min(BAR, -(-sized.used * BAR // sized.limit)) if sized.limit else BAR
    return "█" * full + "░" * (BAR - full)


def preview(text: str, width: int = 72) -> str:
    """One line of a text, cut where it is long."""
    line = " ⏎ ".join(part.strip() for part in text[: width * 4].splitlines() if part.strip())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def excerpt(text: str, span: tuple[int, int], around: int = 32) -> str:
    """The offending piece in its context: …before »piece« after…"""
    start, end = span
    piece = preview(text[start:end], 80) or ascii(text[start:end])
    before, after = text[max(0, start - around) : start], text[end : end + around]
    head = "…" if start > around else ""
    tail = "…" if end + around < len(text) else ""
    return f"{head}{_flat(before)}»{piece}«{_flat(after)}{tail}"


def _flat(text: str) -> str:
    return text.replace("\r", "").replace("\n", " ⏎ ")


def handle(entry: str, entries: Sequence[str]) -> str:
    """A piece of an entry that no other entry has, quoted for the shell: enough to locate it."""
    line = entry.splitlines()[0] if entry else ""
    for width in (32, 64, len(line)):
        piece = line[:width].strip()
        if piece and not any(piece in other for other in entries if other != entry):
            return shlex.quote(piece)
    return shlex.quote(entry)


# ── times ──


def day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def span(seconds: float) -> str:
    """A length of time, rounded in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return count(round(seconds / length), unit)
    return "less than a minute"


# ── entries, changes, proposals ──


def by(author: Author) -> str:
    """Who made a change, and where the knowledge came from when that says more."""
    known = {("user", "user said"), ("tool", "agent concluded"), ("hand edit", "user said")}
    who = {"tool": "agent", "hand edit": "hand edit"}.get(author.who, str(author.who))
    return who if (author.who, author.origin) in known else f"{who} ({author.origin})"


def remarks(entry: Entry) -> str:
    """What is known about an entry, in one line."""
    parts = [entry.category or "", *(f"#{tag}" for tag in entry.tags), str(entry.origin or "written by hand")]
    if entry.created is not None:
        parts.append(f"created {day(entry.created)}")
    if entry.changed is not None and (entry.created is None or day(entry.changed) != day(entry.created)):
        parts.append(f"changed {day(entry.changed)}")
    if entry.confirmed is not None and (entry.changed is None or day(entry.confirmed) != day(entry.changed)):
        parts.append(f"confirmed {day(entry.confirmed)}")
    if entry.vouched and entry.findings:
        parts.append("vouched for by a person")
    return " · ".join(part for part in parts if part)


def rules(findings: Sequence[Finding]) -> str:
    """Each rule once, with its reason."""
    return "; ".join(dict.fromkeys(f"{finding.rule} ({finding.why})" for finding in findings))


def operation(op: MemoryOp) -> str:
    match op:
        case Add(content):
            return f"add: {content}"
        case Replace(old, content):
            return f"replace the entry with “{preview(old, 60)}” by: {content}"
        case Remove(old, "" | "merged"):
            return f"remove the entry with “{preview(old, 60)}”"
        case Remove(old):
            return f"move the entry “{preview(old, 60)}” to the long tail"


# ── JSON ──


def author_json(author: Author) -> Json:
    return {"who": author.who, "origin": author.origin, "session": author.session, "message": author.message}


def finding_json(finding: Finding, text: str) -> Json:
    start, end = finding.span
    return {
        "rule": finding.rule,
        "start": start,
        "end": end,
        "severity": finding.severity,
        "why": finding.why,
        "text": text[start:end],
    }


def entry_json(number: int, entry: Entry) -> Json:
    return {
        "number": number,
        "text": entry.text,
        "size": len(entry.text),
        "category": entry.category,
        "tags": list(entry.tags),
        "origin": entry.origin,
        "created": iso(entry.created),
        "changed": iso(entry.changed),
        "confirmed": iso(entry.confirmed),
        "change": entry.change,
        "vouched": entry.vouched,
        "withheld": not entry.trusted,
        "findings": [finding_json(finding, entry.text) for finding in entry.findings],
    }


def change_json(change: Change) -> Json:
    return {
        "change": change.id,
        "at": iso(change.at),
        "target": change.target,
        **scope_json(change.scope),
        **author_json(change.author),
        "action": change.action,
        "reason": change.reason,
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


def operation_json(op: MemoryOp) -> Json:
    fields: Json = {"action": type(op).__name__.lower()}
    if not isinstance(op, Add):
        fields["old_text"] = op.old_text
    if isinstance(op, Remove) and op.kept:
        fields["kept"] = op.kept
    if not isinstance(op, Remove):
        fields |= {"content": op.content, "category": op.category, "tags": list(op.tags)}
    return fields


def pending_json(pending: Pending) -> Json:
    return {
        "id": pending.id,
        "at": iso(pending.at),
        "expires": iso(pending.expires),
        "target": pending.target,
        **scope_json(pending.scope),
        **author_json(pending.author),
        "reason": pending.reason,
        "operations": [operation_json(op) for op in pending.operations],
    }


# ---------- cli.memory.report
#
# What came of a change: one line when it was made, a sentence and the way out when it was refused.

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


# ---------- cli.memory.trace
#
# `herma memory log`, `diff`, `blame` and `undo`: what happened, and how to take it back.

_RED, _GREEN, _PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


@memory.command(short_help="List the changes, newest first")
@click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many, newest first."
)
@either_target_option
@with_memory
def log(desk: Desk, limit: int, target: Target | None) -> None:
    """List the changes, newest first. Edits made by hand are among them.

    \b
    Examples:
      herma memory log
      herma memory log --limit 5 --target user
    """
    changes = desk.store.history(target, scope=desk.scope, limit=limit + 1)
    more, changes = len(changes) > limit, changes[:limit]
    if desk.context.json:
        listed = [
            change_json(change) | {"removed": removed, "added": added}
            for change in changes
            for removed, added in [difference(change)]
        ]
        desk.context.print_json({"ok": True, "changes": listed, "more": more})
        return
    if not changes:
        desk.context.line("Nothing has changed yet.")
        return
    columns, rows = ["change", "when", "file", "what", "who", "text"], [_row(change) for change in changes]
    reasons = [preview(change.reason, 60) if change.undoes is None else "" for change in changes]
    if any(reasons):
        columns.append("reason")
        rows = [(*row, reason) for row, reason in zip(rows, reasons, strict=True)]
    desk.context.table(columns, rows)
    if more:
        desk.context.line(f"There are more: {desk.command('log', '--limit', str(limit * 5), scoped=True)}")


def _row(change: Change) -> tuple[object, ...]:
    what = change.action + (f" of {change.undoes}" if change.undoes else "")
    if change.undone_by:
        what += f" (undone by {change.undone_by})"
    removed, added = difference(change)
    texts = [f"- {preview(removed[0], 48)}"] if removed else []
    texts += [f"+ {preview(added[0], 48)}"] if added else []
    left = max(0, len(removed) - 1) + max(0, len(added) - 1)
    text = " ".join([*texts, *([f"and {left:,} more"] if left else [])])
    name = "MEMORY.md" if change.target == "memory" else "USER.md"
    return (change.id, when(change.at), name, what, by(change.author), text)


def difference(change: Change) -> tuple[list[str], list[str]]:
    """The entries that a change removed, and those it added."""
    before, after = unique(parse(change.before)), unique(parse(change.after))
    old, new = set(before), set(after)
    return [entry for entry in before if entry not in new], [entry for entry in after if entry not in old]


# ── diff ──


@memory.command(short_help="Show what a change did")
@change_argument
@with_memory
def diff(desk: Desk, change: int | None) -> None:
    """Show what a change did, entry by entry; without a number, the newest one.

    \b
    Examples:
      herma memory diff
      herma memory diff 12
    """
    found = _change(desk, change)
    if found is None:
        if desk.context.json:
            desk.context.print_json({"ok": True, "change": None})
        desk.context.line("Nothing has changed yet.")
        return
    before, after = unique(parse(found.before)), unique(parse(found.after))
    if desk.context.json:
        removed, added = difference(found)
        texts = {"removed": removed, "added": added, "before": before, "after": after}
        desk.context.print_json({"ok": True, **change_json(found), **texts})
        return
    session = f", session {found.author.session}" if found.author.session else ""
    name = desk.name(found.target, found.scope)
    desk.context.line(f"Change {found.id} of {name}: {found.action} by {by(found.author)}{session}, {when(found.at)}")
    if found.reason:
        desk.context.line(f"Reason: {found.reason}")
    if found.undone_by:
        desk.context.line(f"Undone by change {found.undone_by}.")
    print_diff(desk.context, before, after)


def _change(desk: Desk, number: int | None) -> Change | None:
    """One change by its number, or the newest of the scope."""
    newest = desk.store.history(scope=desk.scope, limit=1)
    if number is None:
        return newest[0] if newest else None
    found = desk.store.change(number)
    if found is None:
        raise UsageError(f"There is no change {number}.", hint=f"`{desk.command('log')}` lists the changes.")
    return found


def print_diff(context: Context, before: Sequence[str], after: Sequence[str]) -> None:
    """Entries that go with a minus, entries that come with a plus, what stays as a count."""
    if context.json:
        return
    if list(before) == list(after):
        context.line("  The entries are the same.")
        return
    for tag, from_, to, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            context.line(f"  … {count(to - from_, 'entry')} as before")
            continue
        for entry in before[from_:to]:
            _signed("-", _RED, entry)
        for entry in after[start:end]:
            _signed("+", _GREEN, entry)


def _signed(sign: str, colour: str, entry: str) -> None:
    for line in entry.split("\n"):
        text = output.visible(f"{sign} {line}")
        sys.stdout.write(f"{colour}{text}{_PLAIN}\n" if output.colours(sys.stdout) else f"{text}\n")


# ── blame ──


@memory.command(short_help="Say which change brought each entry")
@either_target_option
@with_memory
def blame(desk: Desk, target: Target | None) -> None:
    """Say of each entry which change brought it: when, by whom, in which session.

    \b
    Examples:
      herma memory blame
      herma memory blame --target user --json
    """
    rows: list[tuple[object, ...]] = []
    listed = []
    for status in desk.statuses(target):
        if not desk.enabled(status.target):
            continue
        brought = _brought(desk.store.history(status.target, scope=desk.scope))
        for number, entry in enumerate(desk.store.describe(status.target, scope=desk.scope), 1):
            change = brought.get(entry.text)
            listed.append(
                {
                    "target": status.target,
                    **entry_json(number, entry),
                    "brought_by": change_json(change) if change else None,
                }
            )
            name = "MEMORY.md" if status.target == "memory" else "USER.md"
            origin = entry.origin or (change.author.origin if change else "-")
            made = (
                (change.id, when(change.at), by(change.author), origin, change.author.session or "-")
                if change
                else ("-", "-", "-", origin, "-")
            )
            rows.append((f"{name} {number}", *made, preview(entry.text, 60)))
    if desk.context.json:
        desk.context.print_json({"ok": True, "entries": listed})
        return
    if not rows:
        desk.context.line("There are no entries.")
        return
    desk.context.table(("entry", "change", "when", "who", "origin", "session", "text"), rows)


def _brought(changes: Sequence[Change]) -> dict[str, Change]:
    """Entry → the change that brought it last. An undo only brings back, so what it restored keeps its first cause."""
    brought: dict[str, Change] = {}
    for change in reversed(changes):
        for entry in difference(change)[1]:
            if change.undoes is None or entry not in brought:
                brought[entry] = change
    return brought


# ── undo ──


@memory.command(short_help="Take back a change")
@change_argument
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@with_memory
def undo(desk: Desk, change: int | None, dry_run: bool) -> None:
    """Take back a change; without a number, the newest that still stands.

    Repeated, it walks back. An undo is a change itself, so it can be undone by its number.

    \b
    Examples:
      herma memory undo
      herma memory undo 12 --dry-run
    """
    desk.for_people_under_approval("undoing a change")
    if dry_run:
        _trace_rehearse(desk, change)
        return
    outcome = desk.store.undo(change, scope=desk.scope, author=desk.author)
    undone = desk.store.change(outcome.change) if isinstance(outcome, Applied) else None
    report(desk, outcome, scope=undone.scope if undone else None)


def _trace_rehearse(desk: Desk, number: int | None) -> None:
    """Show what an undo would do. Nothing is written."""
    from herma.memory.entries import join, sizes
    from herma.memory.store import Overtaken, revert

    history = desk.store.history(scope=desk.scope)
    standing = (item for item in history if item.undoes is None and item.undone_by is None)
    found = next(standing, None) if number is None else _change(desk, number)
    if found is None or found.undone_by:
        what = "There is nothing to undo." if found is None else f"Change {found.id} is undone already."
        raise UsageError(what, hint=f"`{desk.command('log')}` lists the changes.")
    (status,) = (item for item in desk.store.status(scope=found.scope) if item.target == found.target)
    before = desk.store.entries(found.target, scope=found.scope)
    reverted = revert(join(before), found)
    if isinstance(reverted, Overtaken):
        message = f"Change {found.id} cannot be undone alone: what it wrote was changed again since."
        size = sizes(before, status.limit, found.target)
        refuse(desk, NoMatch(message=message, entries=tuple(before), **size))
    after = unique(parse(reverted.text))
    if not reverted.exact and used(after) > max(status.limit, used(before)):
        message = f"Undoing change {found.id} needs {used(after):,} of {status.limit:,} characters. Make room first."
        size = sizes(before, status.limit, found.target)
        refuse(desk, OverBudget(message=message, entries=tuple(before), needed=used(after), **size))
    if desk.context.json:
        removed = [entry for entry in before if entry not in after]
        added = [entry for entry in after if entry not in before]
        value = {"ok": True, "dry_run": True, **change_json(found), "removed": removed, "added": added}
        desk.context.print_json(value)
    desk.context.line(f"Undoing change {found.id} ({found.action}, {when(found.at)}) would do this:")
    print_diff(desk.context, before, after)
    would = Applied(message="", **sizes(after, status.limit, found.target))
    desk.context.line(f"Nothing was changed. It would make {desk.name(found.target, found.scope)}: {usage(would)}.")


# ---------- cli.memory.write
#
# `herma memory add`, `replace`, `remove` and `mark`: changes a person makes.

_LARGEST_INPUT = 4_000_000
"""Characters read from standard input at most; far above any limit a file can have."""

category_option = click.option("--category", type=click.Choice(CATEGORIES), help="What kind of fact it is.")
tag_option = click.option("--tag", "tags", multiple=True, callback=read_tags, help="A word to find it by; repeatable.")
trust_option = click.option("--trust", is_flag=True, help="Keep it although the scanner objects; a person's decision.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would change.")


@memory.command(cls=TextCommand)
@text_argument("text", nargs=-1, required=True)
@target_option
@category_option
@tag_option
@trust_option
@reason_option
@with_memory
def add(
    desk: Desk,
    text: Sequence[str],
    target: Target,
    category: Category | None,
    tags: tuple[str, ...],
    trust: bool,
    reason: str,
) -> None:
    """Add one entry. TEXT - reads it from standard input.

    A single word that begins with a dash comes after --.

    \b
    Examples:
      herma memory add "Deploys go out on Tuesdays." --category convention --tag deploy
      herma memory add --target user "Prefers short answers."
      git log -1 --format=%s | herma memory add -
      herma memory add -- --verbose
    """
    content = _standard_input() if tuple(text) == ("-",) else " ".join(text)
    _vouched(trust)
    outcome = desk.store.apply(
        target,
        Add(content, category, tags),
        scope=desk.scope,
        author=desk.author,
        reason=reason,
        trust=trust,
    )
    report(desk, outcome, text=content)


@memory.command("replace", cls=TextCommand, short_help="Put a new text in the place of an entry")
@text_argument("old")
@text_argument("new")
@target_option
@category_option
@tag_option
@trust_option
@reason_option
@dry_run_option
@with_memory
def replace_(
    desk: Desk,
    old: str,
    new: str,
    target: Target,
    category: Category | None,
    tags: tuple[str, ...],
    trust: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Put NEW in the place of the entry that contains OLD.

    OLD is any part of the entry that occurs in no other; NEW takes the place of the whole entry, and - reads it from
    standard input.

    \b
    Examples:
      herma memory replace Tuesdays "Deploys go out on Wednesdays."
      herma memory replace Tuesdays "Deploys go out on Wednesdays." --dry-run
    """
    content = _standard_input() if new == "-" else new
    _vouched(trust)
    op = Replace(old, content, category, tags)
    if dry_run:
        _write_rehearse(desk, target, op, trust=trust)
        return
    outcome = desk.store.apply(target, op, scope=desk.scope, author=desk.author, reason=reason, trust=trust)
    report(desk, outcome, text=content, old=old)


@memory.command(cls=TextCommand, short_help="Drop an entry")
@text_argument("old")
@target_option
@reason_option
@dry_run_option
@with_memory
def remove(desk: Desk, old: str, target: Target, reason: str, dry_run: bool) -> None:
    """Drop the entry that contains OLD.

    OLD is any part of the entry that occurs in no other.

    \b
    Examples:
      herma memory remove "Deploys go out"
      herma memory remove "Deploys go out" --dry-run
    """
    if dry_run:
        _write_rehearse(desk, target, Remove(old))
        return
    outcome = desk.store.apply(target, Remove(old), scope=desk.scope, author=desk.author, reason=reason)
    report(desk, outcome, old=old)


# ── trying out ──


def _write_rehearse(desk: Desk, target: Target, op: Replace | Remove, *, trust: bool = False) -> None:
    """Show what an operation would do, or how it would be refused. Nothing is written."""
    from herma.memory.entries import apply
    from herma.safety.scan import scan

    (status,) = desk.statuses(target)
    _refuse_trouble(desk, status)
    before = desk.store.entries(target, scope=desk.scope)
    result = apply(before, [op], status.limit, target)
    outcome = result.outcome
    findings = tuple(scan(op.content)) if isinstance(op, Replace) else ()
    if findings and not trust and outcome.ok:
        message = f"Blocked by the scanner, rule {findings[0].rule}: {findings[0].why}."
        outcome = Blocked(
            target=target,
            message=message,
            findings=findings,
            entry_count=status.entry_count,
            used=status.used,
            limit=status.limit,
        )
    if isinstance(outcome, OverBudget):
        outcome = _advised(desk, outcome)
    _tell_rehearsal(desk, outcome, op, before, result.entries)


def _tell_rehearsal(
    desk: Desk, outcome: MemoryOutcome, op: Replace | Remove, before: Sequence[str], after: Sequence[str]
) -> None:
    text = op.content if isinstance(op, Replace) else ""
    if not outcome.ok:
        refuse(desk, outcome, text=text, old=op.old_text)
    if desk.context.json:
        removed = [entry for entry in before if entry not in after]
        added = [entry for entry in after if entry not in before]
        value = outcome_json(outcome, text) | {"dry_run": True, "removed": removed, "added": added}
        desk.context.print_json(value)
    if not isinstance(outcome, Applied):
        desk.context.line(outcome.message)
        return
    print_diff(desk.context, before, after)
    desk.context.line(f"Nothing was changed. It would make {desk.name(outcome.target)}: {usage(outcome)}.")


def _advised(desk: Desk, over: OverBudget) -> OverBudget:
    from herma.memory.entries import suggest

    known = desk.store.describe(over.target, scope=desk.scope)
    touched = {entry.text: max(entry.changed or 0.0, entry.confirmed or 0.0) for entry in known}
    return changed(over, suggestions=suggest(over.entries, touched, over.needed - over.limit))


def _refuse_trouble(desk: Desk, status: StoreStatus) -> None:
    """A file that cannot be read is refused as a write to it would be."""
    if status.trouble:
        refuse(
            desk,
            Drifted(
                target=status.target,
                message=f"{status.trouble}.",
                reason=status.trouble,
                remedy=f"Put it right first; {desk.command('status', scoped=True)} says more.",
                entry_count=status.entry_count,
                used=status.used,
                limit=status.limit,
            ),
        )


# ── what is known about an entry ──


@memory.command(cls=TextCommand, short_help="Change the category, tags or dates of an entry")
@text_argument("substring")
@target_option
@click.option("--category", type=click.Choice((*CATEGORIES, "none")), help="What kind of fact it is.")
@tag_option
@click.option("--untag", "untags", multiple=True, callback=read_tags, help="Take a tag away; repeatable.")
@click.option("--confirm", is_flag=True, help="It still holds, as of now.")
@click.option("--trust", is_flag=True, help="Show it to the model although the scanner objects.")
@with_memory
def mark(
    desk: Desk,
    substring: str,
    target: Target,
    category: Category | Literal["none"] | None,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    confirm: bool,
    trust: bool,
) -> None:
    """Change what is known about the entry that contains SUBSTRING; its text stays.

    \b
    Examples:
      herma memory mark "Deploys go out" --category convention --tag deploy
      herma memory mark "Deploys go out" --confirm
      herma memory mark "Deploys go out" --category none --untag deploy
    """
    if not (category or tags or untags or confirm or trust):
        raise UsageError("Nothing to mark.", hint="Give --category, --tag, --untag, --confirm or --trust.")
    _vouched(trust)
    desk.store.history(target, scope=desk.scope, limit=1)  # records edits by hand, so that there is a row to mark
    number, entry = _locate(desk, target, substring)
    kept = [tag for tag in entry.tags if tag not in untags]
    marked = changed(
        entry,
        category=None if category == "none" else category or entry.category,
        tags=tuple(dict.fromkeys([*kept, *tags])),
        confirmed=time.time() if confirm else entry.confirmed,
        vouched=entry.vouched or (trust and bool(entry.findings)),
    )
    if marked.vouched and not entry.vouched:  # a change of its own, so that the history keeps who trusted it
        trusted = desk.store.apply(target, Add(entry.text), scope=desk.scope, author=desk.author, trust=True)
        if not isinstance(trusted, Applied):
            refuse(desk, trusted, text=entry.text)
    if marked != entry:
        desk.store.annotate(target, [marked], scope=desk.scope)
    if desk.context.json:
        desk.context.print_json(
            {"ok": True, "target": target, "marked": marked != entry, "entry": entry_json(number, marked)}
        )
    done = "Marked" if marked != entry else "Nothing to change in"
    desk.context.line(f"{done} entry {number} of {desk.name(target)}: {preview(marked.text)}")
    desk.context.line(f"  {remarks(marked)}")


def _locate(desk: Desk, target: Target, substring: str) -> tuple[int, Entry]:
    """The one entry meant, with its number; none or several are refused as `replace` refuses them."""
    from herma.memory.entries import apply, clean, locate

    entries = desk.store.describe(target, scope=desk.scope)
    texts = [entry.text for entry in entries]
    (status,) = desk.statuses(target)
    _refuse_trouble(desk, status)
    op: MemoryOp = Remove(substring)
    outcome = apply(texts, [op], status.limit, target).outcome
    if isinstance(outcome, NoMatch | Ambiguous):
        refuse(desk, outcome, old=substring)
    at = locate(texts, clean(substring))[0]
    return at + 1, entries[at]


# ── reading what was given ──


def _vouched(trust: bool) -> None:
    if trust:
        for_people_only("Vouching for a text with --trust")


def _standard_input() -> str:
    """All of standard input, as text."""
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("Standard input is closed, so there is no text to read.", hint="Give the text itself.")
    if sys.stdin.isatty():
        output.write("Type the text; end with Ctrl-D on a line of its own.", sys.stderr)
    try:
        data = sys.stdin.buffer.read(_LARGEST_INPUT + 1)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(
            f"Standard input is not UTF-8 text (byte {exc.start}).", hint="Convert it first, with iconv for example."
        ) from exc
    except OSError as exc:
        raise UsageError(f"Standard input cannot be read: {exc.strerror}.", hint="Give the text itself.") from exc
    if len(data) > _LARGEST_INPUT:
        raise UsageError(f"Standard input has more than {_LARGEST_INPUT:,} bytes.", hint="Give one short fact.")
    return text


# ---------- cli.memory.look
#
# `herma memory list` and `status`: what is remembered now.

Numbered = tuple[int, Entry]

_SORTS: dict[str, Callable[[Numbered], float]] = {
    "file": lambda item: item[0],
    "created": lambda item: -(item[1].created or 0.0),
    "changed": lambda item: -(item[1].changed or 0.0),
    "confirmed": lambda item: -(item[1].confirmed or 0.0),
    "size": lambda item: -len(item[1].text),
}
_SWITCHES: dict[Target, str] = {"memory": "memory_enabled", "user": "user_profile_enabled"}


@memory.command("list")
@either_target_option
@click.option("--category", type=click.Choice(CATEGORIES), help="Only entries of this kind.")
@click.option("--tag", metavar="TAG", help="Only entries with this tag.")
@click.option("--origin", type=click.Choice([str(origin) for origin in Origin]), help="Only knowledge from there.")
@click.option(
    "--sort",
    type=click.Choice(list(_SORTS)),
    default="file",
    show_default=True,
    help="In the file's order, newest first, or largest first.",
)
@click.option("--full", is_flag=True, help="Show long entries whole.")
@with_memory
def list_(
    desk: Desk, target: Target | None, category: str | None, tag: str | None, origin: str | None, sort: str, full: bool
) -> None:
    """List the entries of both files.

    The number of an entry is its place in the file. Categories, tags and dates are kept outside the file's text.

    \b
    Examples:
      herma memory list
      herma memory list --target user --full
      herma memory list --category lesson --sort changed
      herma memory list --project shop --json
    """

    def wanted(entry: Entry) -> bool:
        return (
            category in (None, entry.category)
            and (tag is None or tag.removeprefix("#") in entry.tags)
            and (origin is None or origin == entry.origin)
        )

    files: list[Json] = []
    whole = True
    for at, status in enumerate(desk.statuses(target)):
        if at:
            desk.context.line()
        everything = _described(desk, status)
        chosen = sorted((item for item in everything if wanted(item[1])), key=_SORTS[sort])
        files.append({**_status_json(desk, status), "entries": [entry_json(*item) for item in chosen]})
        if not desk.context.json:
            _heading(desk, status)
            whole &= _entries(desk, chosen, everything, full=full)
    if desk.context.json:
        desk.context.print_json({"ok": True, "files": files})
    if not whole:
        desk.context.line()
        desk.context.line("Long entries are cut; --full shows them whole.")


def _described(desk: Desk, status: StoreStatus) -> list[Numbered]:
    if not desk.enabled(status.target):
        return []
    return list(enumerate(desk.store.describe(status.target, scope=desk.scope), 1))


def _heading(desk: Desk, status: StoreStatus) -> None:
    """The usage line of a file, and what is wrong with it."""
    desk.context.line(f"{desk.name(status.target)}  {usage(status)}")
    for line in _troubles(desk, status):
        desk.context.line(f"  ! {line}")
    if desk.enabled(status.target) and not status.entry_count and not status.trouble:
        words = ["add", '"what should be remembered"', *(["--target user"] if status.target == "user" else [])]
        desk.context.line(f"  Nothing yet. To add the first entry: {desk.command(*words, scoped=True)}")


def _troubles(desk: Desk, status: StoreStatus) -> list[str]:
    found = []
    if not desk.enabled(status.target):
        switch = desk.setting(f"memory.{_SWITCHES[status.target]}", "true")
        found.append(f"Switched off: no session sees it. To switch it on: {switch}")
    if status.trouble:
        found.append(f"{status.trouble}. Sessions start without it, and nothing is written to it.")
        if "UTF-8" in status.trouble:
            found.append(f"To turn it into entries: {desk.command('adopt', scoped=True)}")
    if status.used > status.limit:
        found.append(
            f"Over its limit by {count(status.used - status.limit, 'character')}: the model sees only the beginning."
        )
    return found


def _entries(desk: Desk, chosen: list[Numbered], everything: list[Numbered], *, full: bool) -> bool:
    """Print the entries; → whether each was shown whole."""
    if everything and not chosen:
        desk.context.line(f"  None of its {count(len(everything), 'entry')} fits what you asked for.")
    texts = [entry.text for _, entry in everything]
    whole = True
    for number, entry in chosen:
        shown = entry.text if full else preview(entry.text, 160)
        whole &= full or shown == entry.text or ("\n" in entry.text and not shown.endswith("…"))
        first, *rest = shown.split("\n")
        desk.context.line(f"{number:>3}  {first}")
        for line in rest:
            desk.context.line(f"     {line}")
        desk.context.line(f"     {remarks(entry)}")
        if not entry.trusted:
            piece = handle(entry.text, texts)
            desk.context.line(f"     ! Withheld from the model by the scanner: {rules(entry.findings)}.")
            words = _target_words(desk, entry)
            desk.context.line(f"       To drop it: {desk.command('remove', piece, *words, scoped=True)}")
            vouch = desk.command("mark", piece, "--trust", *words, scoped=True)
            desk.context.line(f"       If it is harmless: {vouch}")
    return whole


def _target_words(desk: Desk, entry: Entry) -> list[str]:
    """What makes the next command mean the same file."""
    words = []
    if not desk.enabled("memory") or entry.text not in desk.store.entries("memory", scope=desk.scope):
        words.append("--target user")
    return words


# ── status ──


@memory.command(short_help="Both files at a glance")
@with_memory
def status(desk: Desk) -> None:
    """Show both files at a glance: how full, what waits, what is wrong.

    \b
    Examples:
      herma memory status
      herma memory status --project shop --json
    """
    files = desk.statuses()
    waiting = len(desk.store.pending())
    approval = desk.settings.memory.write_approval
    if desk.context.json:
        desk.context.print_json(
            {
                "ok": True,
                "home": desk.settings.home,
                "profile": desk.settings.profile,
                "write_approval": approval,
                "pending": waiting,
                "files": [_status_json(desk, item) for item in files],
            }
        )
        return
    for item in files:
        desk.context.line(f"{desk.name(item.target)}  {bar(item)}  {usage(item)}")
        desk.context.line(f"  {item.path}")
        desk.context.line(f"  {count(item.changes, 'change')} recorded, {item.pending:,} waiting for a decision")
        if item.findings:
            desk.context.line(
                f"  ! The scanner objects to {count(item.findings, 'entry')}: {desk.command('list', scoped=True)}"
            )
        for line in _troubles(desk, item):
            desk.context.line(f"  ! {line}")
    desk.context.line()
    how = "on: what agents write waits for a person" if approval else "off: agents write without asking"
    desk.context.line(f"Write approval is {how}.")
    if waiting:
        desk.context.line(f"{count(waiting, 'write')} in the inbox: {desk.command('pending')}")
    else:
        desk.context.line("The inbox is empty.")


def _status_json(desk: Desk, status: StoreStatus) -> Json:
    return status_json(status, enabled=desk.enabled(status.target))


# ---------- cli.memory.files
#
# `herma memory adopt` and `reset`: changes of a whole file, asked for first and backed up.


@memory.command(short_help="Turn a file that was written otherwise into entries")
@click.option("--target", type=TARGET, help="Only this file; without it, every file that is not in order.")
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show the entries it would make.")
@with_memory
def adopt(desk: Desk, target: Target | None, dry_run: bool) -> None:
    """Turn a file that was written otherwise into entries: Markdown, another encoding, one long text.

    A list becomes one entry per bullet, with its heading in front. The file as it was is kept beside it.

    \b
    Examples:
      herma memory adopt --dry-run
      herma memory adopt --target user --yes
    """
    desk.for_people_under_approval("adopting a file")
    plans: list[tuple[StoreStatus, list[str]]] = []
    for status in desk.statuses(target):
        if desk.enabled(status.target) or target:
            entries = desk.store.adoption(status.target, scope=desk.scope)
            if status.trouble and not entries and not dry_run:
                refuse(desk, desk.store.adopt(status.target, scope=desk.scope))
            if status.trouble or entries != desk.store.entries(status.target, scope=desk.scope):
                plans.append((status, entries))
    if not desk.context.json:
        for status, entries in plans:
            _show_plan(desk, status, entries)
    if not plans:
        desk.context.line("Nothing to adopt: every entry is in order already.")
    if dry_run or not plans:
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": dry_run, "files": [_plan_json(*plan) for plan in plans]})
        elif plans:
            desk.context.line("Nothing was changed.")
        return
    names = " and ".join(desk.name(status.target) for status, _ in plans)
    if not desk.context.confirm(f"Write {names} that way? A copy of the file as it is now will be kept."):
        _declined(desk)
    _finish(desk, [desk.store.adopt(status.target, scope=desk.scope) for status, _ in plans])


def _show_plan(desk: Desk, status: StoreStatus, entries: list[str]) -> None:
    from herma.safety.scan import scan

    if status.trouble:
        desk.context.line(f"{status.trouble}.")
    if not entries:
        return
    total = sum(map(len, entries)) + 3 * (len(entries) - 1)
    over = f", {total - status.limit:,} over its limit" if total > status.limit else ""
    desk.context.line(
        f"{desk.name(status.target)} would have {count(len(entries), 'entry')}: "
        f"{total:,}/{status.limit:,} characters{over}"
    )
    for number, entry in enumerate(entries, 1):
        desk.context.line(f"{number:>3}  {preview(entry, 100)}  ({count(len(entry), 'character')})")
        if findings := scan(entry):
            desk.context.line(f"     ! The scanner will withhold it from the model: {rules(findings)}.")


def _plan_json(status: StoreStatus, entries: list[str]) -> Json:
    return {
        "target": status.target,
        "path": status.path,
        "trouble": status.trouble,
        "entries": [{"number": n, "text": text, "size": len(text)} for n, text in enumerate(entries, 1)],
        "used": sum(map(len, entries)) + 3 * max(0, len(entries) - 1),
        "limit": status.limit,
    }


@memory.command(short_help="Empty the files, with a copy kept")
@click.option(
    "--target",
    type=click.Choice((*TARGETS, "all"), case_sensitive=False),
    default="all",
    show_default=True,
    help="Which file to empty.",
)
@yes_option
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@with_memory
def reset(desk: Desk, target: str, dry_run: bool) -> None:
    """Empty the files. It asks first, keeps a copy, and can be undone.

    \b
    Examples:
      herma memory reset --dry-run
      herma memory reset --target user
    """
    desk.for_people_under_approval("emptying a file")
    files = [
        item for item in desk.statuses() if target == item.target or (target == "all" and desk.enabled(item.target))
    ]
    full = [item for item in files if item.entry_count or item.trouble]
    if not dry_run and full:
        what = " and ".join(f"{desk.name(item.target)} ({count(item.entry_count, 'entry')})" for item in full)
        if not desk.context.confirm(f"Empty {what}? A copy will be kept."):
            _declined(desk)
    if full and not dry_run:
        _finish(desk, [desk.store.reset(item.target, scope=desk.scope) for item in full])
        return
    if desk.context.json:
        listed = [{"target": item.target, "path": item.path, "entry_count": item.entry_count} for item in full]
        desk.context.print_json({"ok": True, "dry_run": dry_run, "files": listed})
    if not full:
        desk.context.line("Nothing to remove: it is empty already.")
    for item in full:
        desk.context.line(f"Would empty {desk.name(item.target)}: {count(item.entry_count, 'entry')} at {item.path}")


def _declined(desk: Desk) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was changed."})
    desk.context.line("Nothing was changed.")
    desk.context.exit(1)


def _finish(desk: Desk, outcomes: list[MemoryOutcome]) -> None:
    """Say what was done to each file, and where its copy is."""
    refused = [outcome for outcome in outcomes if not outcome.ok]
    if desk.context.json:
        desk.context.print_json({"ok": not refused, "files": [outcome_json(outcome) for outcome in outcomes]})
        if refused:
            desk.context.exit(1)
    for outcome in outcomes:
        if outcome.ok:
            desk.context.line(success(desk, outcome))
        if isinstance(outcome, Applied) and outcome.backup:
            desk.context.line(f"  The file as it was: {outcome.backup}")
    if refused:
        refuse(desk, refused[0])


import herma.memory.cli_upkeep  # noqa: E402, F401  adds its commands
