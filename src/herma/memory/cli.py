"""`herma memory`: list, add, replace, remove, mark, status, blame, tidy, archive, adopt, reset.

`herma log`, `undo` and `inbox` (`herma.cli.changes`) cover memory and skills together; they share the wording here.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace as changed
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import click

from herma.cli import output
from herma.cli.context import (
    CommandContext,
    HermaCommand,
    HermaGroup,
    author,
    dry_run_option,
    for_people_only,
    limit_option,
    scope_options,
    with_home,
    yes_option,
)
from herma.cli.encode import (
    Json,
    change_json,
    encode,
    entry_json,
    iso,
    operation_json,
    outcome_json,
    status_json,
)
from herma.cli.output import count, percent, when
from herma.errors import StoreChanged, UsageError
from herma.facts.cli import facts
from herma.memory.entries import clean, locate, parse, unique, used
from herma.safety.scan import scan
from herma.store.files import replace_file
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
    OverBudget,
    Remove,
    Replace,
    Scope,
    Staged,
    StoreStatus,
    Suggestion,
    Target,
)

if TYPE_CHECKING:
    from herma.memory.archive import ArchivedEntry
    from herma.memory.tidy import Tidied, TidyProposal


@click.group(cls=HermaGroup, order="list add replace remove mark tidy archive facts adopt edit")
def memory() -> None:
    """See and change what agents remember: MEMORY.md (notes) and USER.md (the user's profile).

    Every change is recorded: `herma log` lists them, `herma undo` takes one back. Without --project and --user, the
    commands use the home's own files.

    \b
    Examples:
      herma memory add "The tests run with pytest -n 2."
      herma memory list
      herma memory replace "pytest -n 2" "The tests run with make test."
      herma undo

    \b
    With --json a change prints
      ok, outcome, target, message, entry_count, used, limit
    and what belongs to its outcome:
      Applied     change, backup           Duplicate   (nothing more)
      OverBudget  entries, needed, suggestions [action, entries, frees, why]
      NoMatch     entries                  Ambiguous   matches
      Blocked     findings [rule, start, end, severity, why, text]
      Drifted     reason, remedy, backup   Staged      pending
    Lists print ok and files or entries. Times are ISO 8601 in UTC.
    """


memory.add_command(facts)


# ── arguments and options ────────────────────────────────────────────────────────────────────────────────────────────

_DASHED = "\ue000"
_DASHED_TEXT = re.compile(r"(-[^=\s]*)\s")
_LARGEST_INPUT = 4_000_000
"""Bytes read from standard input at most; far above any limit a file can have."""


class TextCommand(HermaCommand):
    """A command that takes texts: a word that begins with a dash and has a blank in it is not an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._guarded, args[:end]), *args[end:]])

    def _guarded(self, word: str) -> str:
        found = _DASHED_TEXT.match(word)
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        return _DASHED + word if found and found[1] not in known else word


def _read_text(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if value is None or isinstance(value, str):
        return value and value.removeprefix(_DASHED)
    return tuple(_read_text(_, parameter, word) for word in value)


def text_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a `TextCommand`."""
    return click.argument(name, callback=_read_text, **attributes)


def _read_tags(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    tags = [tag.strip().removeprefix("#") for value in values for tag in value.split(",")]
    for tag in tags:
        if not tag or not tag.isprintable() or len(tag) > 40:
            raise click.BadParameter(f"{tag[:60]!r} is not a tag: use 1 to 40 printable characters.", param=parameter)
    return tuple(dict.fromkeys(tags))


TARGET = click.Choice(TARGETS, case_sensitive=False)
target_option = click.option("--target", type=TARGET, default="memory", show_default=True, help="MEMORY.md or USER.md.")
either_target_option = click.option("--target", type=TARGET, help="Only MEMORY.md or only USER.md.")
reason_option = click.option("--reason", default="", callback=_read_text, help="The reason, for the history.")
category_option = click.option("--category", type=click.Choice(CATEGORIES), help="The kind of fact.")
tag_option = click.option("--tag", "tags", multiple=True, callback=_read_tags, help="A word to find it by; repeatable.")
trust_option = click.option("--trust", is_flag=True, help="Store it although the scanner objects; only a person may.")


def _entry_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a new text: --target, --category, --tag, --trust, --reason, --project and --user."""
    for option in (scope_options, reason_option, trust_option, tag_option, category_option, target_option):
        function = option(function)
    return function


_number_argument = click.argument("numbers", metavar="ID…", type=click.IntRange(1, 2**63 - 1), nargs=-1, required=True)


def _check_trust(trust: bool) -> None:
    if trust:
        for_people_only("Vouching for a text with --trust")


def _for_people_under_approval(context: CommandContext, what: str) -> None:
    """With write approval on, an agent may not bypass the inbox with another command."""
    if context.h.settings.memory.write_approval:
        for_people_only(f"With memory.write_approval on, {what}")


def _standard_input() -> str:
    """Read all of standard input as text."""
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("Standard input is closed, so there is no text to read.", hint="Give the text itself.")
    if sys.stdin.isatty():
        output.write("Type the text; end with Ctrl-D on a line of its own.", sys.stderr)
    data = sys.stdin.buffer.read(_LARGEST_INPUT + 1)
    if len(data) > _LARGEST_INPUT:
        raise UsageError(f"Standard input has more than {_LARGEST_INPUT:,} bytes.", hint="Give one short fact.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(
            f"Standard input is not UTF-8 text (byte {exc.start}).", hint="Convert it first, with iconv for example."
        ) from exc


# ── wording ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def file_name(target: Target, scope: Scope) -> str:
    """Return the name of a memory file, with its project or user."""
    if target == "memory":
        return f"MEMORY.md of {scope.project}" if scope.project else "MEMORY.md"
    return f"USER.md of {scope.user}" if scope.user else "USER.md"


def usage(sized: MemoryOutcome | StoreStatus) -> str:
    """Return `12 % — 260/2,200 characters, 4 entries`."""
    full = percent(sized.used, sized.limit)
    return f"{full} % — {sized.used:,}/{sized.limit:,} characters, {count(sized.entry_count, 'entry')}"


def preview(text: str, width: int = 72) -> str:
    """Return one line of a text, cut if it is long."""
    line = " ⏎ ".join(part.strip() for part in text[: width * 4].splitlines() if part.strip())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def span(seconds: float) -> str:
    """Return a length of time, rounded to its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return count(round(seconds / length), unit)
    return "less than a minute"


def by(author: Author) -> str:
    """Return who made a change, and the origin of the text if that is not the usual one."""
    known = {("user", "user said"), ("tool", "agent concluded"), ("hand edit", "user said")}
    who = "agent" if author.who == "tool" else str(author.who)
    return who if (author.who, author.origin) in known else f"{who} ({author.origin})"


def operation(op: MemoryOp) -> str:
    match op:
        case Add(content):
            return f"add: {content}"
        case Replace(old, content, reworded=True):
            return f"take out: {old}\nin its place: {content}"
        case Replace(old, content):
            return f"replace the entry with “{preview(old, 60)}” by: {content}"
        case Remove(old, ""):
            return f"remove the entry with “{preview(old, 60)}”"
        case Remove(old, "merged"):
            return f"take out: {old}"
        case Remove(old):
            return f"move to the archive: {old}"


def difference(change: Change) -> tuple[list[str], list[str]]:
    """Return the entries that a change removed, and those it added."""
    return _compared(unique(parse(change.before)), unique(parse(change.after)))


def _compared(before: Sequence[str], after: Sequence[str]) -> tuple[list[str], list[str]]:
    old, new = set(before), set(after)
    return [entry for entry in before if entry not in new], [entry for entry in after if entry not in old]


def print_diff(context: CommandContext, before: Sequence[str], after: Sequence[str]) -> None:
    """Print removed entries with a minus, added ones with a plus, the rest as a count."""
    if context.json:
        return
    if list(before) == list(after):
        context.line("  The entries are the same.")
    for tag, from_, to, start, end in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            context.line(f"  … {count(to - from_, 'entry')} as before")
            continue
        for sign, colour, entries in (("-", "\x1b[31m", before[from_:to]), ("+", "\x1b[32m", after[start:end])):
            for line in (line for entry in entries for line in entry.split("\n")):
                text = output.visible(f"{sign} {line}")
                sys.stdout.write(f"{colour}{text}\x1b[0m\n" if output.colours(sys.stdout) else f"{text}\n")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def _remarks(entry: Entry) -> str:
    """Return what is known about an entry, in one line."""
    parts = [entry.category or "", *(f"#{tag}" for tag in entry.tags), str(entry.origin or "written by hand")]
    shown = ""
    for word in ("created", "changed", "confirmed"):
        at = getattr(entry, word)
        if at is not None and _day(at) != shown:
            shown = _day(at)
            parts.append(f"{word} {shown}")
    if entry.vouched and entry.findings:
        parts.append("trusted by a person")
    return " · ".join(part for part in parts if part)


def _rules(findings: Sequence[Finding]) -> str:
    return "; ".join(dict.fromkeys(f"{finding.rule} ({finding.why})" for finding in findings))


def _excerpt(text: str, span: tuple[int, int], around: int = 32) -> str:
    """Return the piece that the scanner found in its context: …before »piece« after…"""
    start, end = span
    piece = preview(text[start:end], 80) or ascii(text[start:end])
    head, tail = "…" if start > around else "", "…" if end + around < len(text) else ""
    shown = f"{head}{text[max(0, start - around) : start]}»{piece}«{text[end : end + around]}{tail}"
    return shown.replace("\r", "").replace("\n", " ⏎ ")


def _handle(entry: str, entries: Sequence[str]) -> str:
    """Return a piece of an entry that no other entry has: enough to locate it."""
    line = entry.splitlines()[0] if entry else ""
    for width in (32, 64, len(line)):
        piece = line[:width].strip()
        if piece and not any(piece in other for other in entries if other != entry):
            return piece
    return entry


# ── the result of a change ───────────────────────────────────────────────────────────────────────────────────────────

_MOST = 12
"""Entries that a refusal names at most; `list` has them all."""


def report(context: CommandContext, outcome: MemoryOutcome, *, text: str = "", scope: Scope | None = None) -> None:
    """Print the result of a change; a refusal ends the command with exit code 1.

    `text` is the text to store, `scope` the file's scope if it is not the command's.
    """
    if not outcome.ok:
        _refuse(context, outcome, text=text)
    if context.json:
        context.print_json(outcome_json(outcome, text))
    context.line(_success(context, outcome, scope))


def _success(context: CommandContext, outcome: MemoryOutcome, scope: Scope | None = None) -> str:
    where = f"{file_name(outcome.target, scope or context.scope)}: {usage(outcome)}."
    match outcome:
        case Applied(change=change):
            undo = context.command("undo", f"m{change}")
            return f"{outcome.message} {where} Change m{change}; to undo it: {undo}"
        case Staged(pending=pending):
            approve = context.command("inbox", "approve", f"m{pending}")
            return f"{outcome.message} Nothing is stored yet. A person decides, in a terminal of their own: {approve}"
        case _:
            return f"{outcome.message} {where}"


def _refuse(context: CommandContext, outcome: MemoryOutcome, *, text: str = "") -> NoReturn:
    """Print one sentence on stderr and what to do, and end with exit code 1."""
    if context.json:
        context.print_json(outcome_json(outcome, text))
        output.write(f"herma: {outcome.message}", sys.stderr)
        context.exit(1)
    context.fail(outcome.message, "\n    ".join(_suggestions(context, outcome, text)))


def _suggestions(context: CommandContext, outcome: MemoryOutcome, text: str) -> list[str]:
    match outcome:
        case OverBudget() if outcome.suggestions and len(text.strip()) <= outcome.limit:
            return _room(context, outcome)
        case NoMatch(entries=entries):
            return _listed(context, "Quote a part of one of these entries, or give its number:", entries)
        case Ambiguous(matches=matches):
            return _listed(context, "Quote more of the one you mean:", matches)
        case Blocked(findings=findings) if findings:
            found = list(dict.fromkeys(f"{f.rule}: {_excerpt(text, f.span)}" for f in findings))
            return [
                f"{count(len(found), 'problem')} found:",
                *(f"  {line}" for line in found[:5]),
                "If the text is harmless, run the command again with --trust.",
            ]
        case Drifted(remedy=remedy, backup=backup):
            return [remedy, *([f"A copy is kept at {backup}"] if backup else []), "The file was left as it is."]
        case _:
            return ["Nothing was changed."]


def _room(context: CommandContext, over: OverBudget) -> list[str]:
    """List the ways to make room, each with the characters it frees."""
    freed = sum(suggestion.frees for suggestion in over.suggestions)
    short = over.needed - over.limit
    key = "memory_char_limit" if over.target == "memory" else "user_char_limit"
    lines = ["To make room:"]
    for suggestion in over.suggestions:
        lines += [f"  {line}" for line in _suggested(context, suggestion, over)]
    if freed < short:
        lines.append(f"That frees {freed:,}; {count(short - freed, 'more character')} must go as well.")
    more = context.command("config", "set", f"memory.{key}", str(-(-over.needed // 100) * 100))
    return [*lines, f"Or allow more: {more}"]


def _suggested(context: CommandContext, suggestion: Suggestion, over: OverBudget) -> list[str]:
    first, *others = suggestion.entries
    piece = _handle(min(suggestion.entries, key=len), over.entries)
    command = context.command("memory", "remove", piece, *_target_words(over.target), scoped=True)
    if not others:
        return [f"drop “{preview(first)}”: frees {suggestion.frees:,} ({suggestion.why})", f"    {command}"]
    return [
        f"merge “{preview(first)}”",
        f"  and “{preview(others[0])}”: frees {suggestion.frees:,} ({suggestion.why})",
        f"    or keep only the longer one: {command}",
    ]


def _target_words(target: Target) -> list[str]:
    return ["--target", "user"] if target == "user" else []


def _listed(context: CommandContext, title: str, entries: Sequence[str]) -> list[str]:
    command = context.command("memory", "list", scoped=True)
    if not entries:
        return [f"It has no entries. `{command}` shows what is there."]
    lines = [title, *(f"  {number}  {preview(entry)}" for number, entry in enumerate(entries[:_MOST], 1))]
    if len(entries) > _MOST:
        lines.append(f"  and {len(entries) - _MOST:,} more: {command}")
    return lines


def _finish(context: CommandContext, outcomes: Sequence[MemoryOutcome], files: Sequence[Json]) -> None:
    """Print what was done to each file, and where its copy is; the first refusal ends the command."""
    refused = [outcome for outcome in outcomes if not outcome.ok]
    if context.json:
        context.print_json({"ok": not refused, "dry_run": False, "files": files})
        if refused:
            context.exit(1)
    for outcome in outcomes:
        if outcome.ok:
            context.line(_success(context, outcome))
        if isinstance(outcome, Applied) and outcome.backup:
            context.line(f"  The file as it was: {outcome.backup}")
    if refused:
        _refuse(context, refused[0])


# ── changing entries ─────────────────────────────────────────────────────────────────────────────────────────────────


@memory.command(cls=TextCommand)
@text_argument("text", nargs=-1, required=True)
@_entry_options
@with_home
def add(
    context: CommandContext,
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
    _check_trust(trust)
    content = _standard_input() if tuple(text) == ("-",) else " ".join(text)
    op = Add(content, category, tags)
    outcome = context.h.memory.apply(target, op, scope=context.scope, author=author(), reason=reason, trust=trust)
    report(context, outcome, text=content)


@memory.command("replace", cls=TextCommand, short_help="Replace the text of an entry")
@text_argument("old")
@text_argument("new")
@_entry_options
@dry_run_option
@with_home
def replace_(
    context: CommandContext,
    old: str,
    new: str,
    target: Target,
    category: Category | None,
    tags: tuple[str, ...],
    trust: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Replace the entry that contains OLD by NEW.

    OLD is any part of the entry that occurs in no other, or its number in `herma memory list`; NEW takes the place of
    the whole entry, and - reads it from standard input.

    \b
    Examples:
      herma memory replace Tuesdays "Deploys go out on Wednesdays."
      herma memory replace Tuesdays "Deploys go out on Wednesdays." --dry-run
    """
    _check_trust(trust)
    content = _standard_input() if new == "-" else new
    _change(
        context,
        target,
        Replace(_named(context, target, old), content, category, tags),
        reason,
        dry_run=dry_run,
        trust=trust,
    )


@memory.command(short_help="Edit a document in your editor")
@target_option
@click.option("--trust", is_flag=True, help="Store it although the scanner objects.")
@scope_options
@with_home
def edit(context: CommandContext, target: Target, trust: bool) -> None:
    """Open a document in $EDITOR; check and write what you saved.

    If the scanner objects, the text is too long, or the document was changed meanwhile, nothing is written and yours is
    kept in a file. Entries are separated by a line with §.

    \b
    Examples:
      herma memory edit
    """
    for_people_only("Editing a whole document")
    document = (memory := context.h.memory).document(target, scope=context.scope)
    edited = None if document.trouble else click.edit(document.text, extension=".md")
    text = document.text if edited is None else edited
    draft = context.h.home / f"draft-{time.time_ns()}.md"
    try:
        outcome = memory.edit(target, text, document.version, scope=context.scope, author=author(), trust=trust)
    except StoreChanged as exc:
        replace_file(draft, text.encode())
        raise StoreChanged(str(exc), hint=f"{exc.hint} Yours is in {draft}.") from exc
    if not outcome.ok and text != document.text:
        replace_file(draft, text.encode())
        context.warn(f"Your text is in {draft}.")
    report(context, outcome, text=text)


@memory.command(cls=TextCommand, short_help="Remove an entry")
@text_argument("old", required=False)
@click.option("--target", type=TARGET, help="MEMORY.md or USER.md; the default is memory, with --all both.")
@click.option("--all", "everything", is_flag=True, help="Empty the files. A copy is kept.")
@reason_option
@yes_option
@dry_run_option
@scope_options
@with_home
def remove(
    context: CommandContext, old: str | None, target: Target | None, everything: bool, reason: str, dry_run: bool
) -> None:
    """Remove the entry that contains OLD.

    OLD is any part of the entry that occurs in no other, or its number in `herma memory list`.

    \b
    Examples:
      herma memory remove "Deploys go out"
      herma memory remove 2 --target user
      herma memory remove --all --dry-run
      herma memory remove "Deploys go out" --dry-run
    """
    if everything is (old is not None):
        raise UsageError("Give a part of an entry, or --all.", hint="Nothing was removed.")
    if old is None:
        _empty(context, target, dry_run=dry_run)
    else:
        _change(context, target or "memory", Remove(_named(context, target or "memory", old)), reason, dry_run=dry_run)


def _named(context: CommandContext, target: Target, old: str) -> str:
    """Return `old`; or, if it is the number of an entry in the last printed list, a part of that entry alone."""
    texts = context.h.memory.entries(target, scope=context.scope)
    digits = old.removeprefix("#")
    if not (digits.isascii() and digits.isdigit() and 1 <= int(digits) <= len(texts)):
        return old
    listed = context.numbered(f"memory/{target}", old, texts)
    if old == digits and any(old in text and text != listed for text in texts):
        raise UsageError(
            f"{old} is the number of an entry, and a part of the text of another.",
            hint=f"Nothing was changed. Write #{old} for the number, or quote more of the text.",
        )
    return old if listed is None else _handle(listed, texts)


def _change(
    context: CommandContext,
    target: Target,
    op: Replace | Remove,
    reason: str,
    *,
    dry_run: bool,
    trust: bool = False,
) -> None:
    store, scope, text = context.h.memory, context.scope, op.content if isinstance(op, Replace) else ""
    if not dry_run:
        outcome = store.apply(target, op, scope=scope, author=author(), reason=reason, trust=trust)
        report(context, outcome, text=text)
        return
    before = store.entries(target, scope=scope)
    outcome, after, _ = store.rehearse(target, op, scope=scope, trust=trust)
    if not outcome.ok:
        _refuse(context, outcome, text=text)
    if context.json:
        removed, added = _compared(before, after)
        value = outcome_json(outcome, text) | {"dry_run": True, "removed": removed, "added": added}
        context.print_json(value)
    print_diff(context, before, after)
    context.line(f"Nothing was changed. It would make {file_name(target, scope)}: {usage(outcome)}.")


@memory.command(cls=TextCommand, short_help="Change the category, tags or dates of an entry")
@text_argument("substring")
@target_option
@click.option("--category", type=click.Choice((*CATEGORIES, "none")), help="The kind of fact.")
@tag_option
@click.option("--untag", "untags", multiple=True, callback=_read_tags, help="Remove a tag; repeatable.")
@click.option("--confirm", is_flag=True, help="Record that it still holds.")
@click.option("--trust", is_flag=True, help="Show it to the model although the scanner objects.")
@scope_options
@with_home
def mark(
    context: CommandContext,
    substring: str,
    target: Target,
    category: Category | Literal["none"] | None,
    tags: tuple[str, ...],
    untags: tuple[str, ...],
    confirm: bool,
    trust: bool,
) -> None:
    """Change what is known about the entry that contains SUBSTRING, or has this number; its text stays.

    \b
    Examples:
      herma memory mark "Deploys go out" --category convention --tag deploy
      herma memory mark "Deploys go out" --confirm
      herma memory mark "Deploys go out" --category none --untag deploy
    """
    if not (category or tags or untags or confirm or trust):
        raise UsageError("Nothing to mark.", hint="Give --category, --tag, --untag, --confirm or --trust.")
    _check_trust(trust)
    store, scope = context.h.memory, context.scope
    substring = _named(context, target, substring)
    store.history(target, scope=scope, limit=1)  # records edits by hand, so that there is a row to mark
    found = store.rehearse(target, Remove(substring), scope=scope).outcome
    if not found.ok:
        _refuse(context, found)
    entries = store.describe(target, scope=scope)
    (at,) = locate([entry.text for entry in entries], clean(substring))
    entry = entries[at]
    marked = changed(
        entry,
        category=None if category == "none" else category or entry.category,
        tags=tuple(dict.fromkeys([*(tag for tag in entry.tags if tag not in untags), *tags])),
        confirmed=time.time() if confirm else entry.confirmed,
        vouched=entry.vouched or (trust and bool(entry.findings)),
    )
    if marked.vouched and not entry.vouched:  # a change of its own, so that the history keeps who trusted it
        trusted = store.apply(target, Add(entry.text), scope=scope, author=author(), trust=True)
        if not trusted.ok:
            _refuse(context, trusted, text=entry.text)
    if marked != entry:
        store.annotate(target, [marked], scope=scope)
    if context.json:
        about = {"target": target, "marked": marked != entry, "entry": entry_json(at + 1, marked)}
        context.print_json({"ok": True, **about})
    done = "Marked" if marked != entry else "Nothing to change in"
    context.line(f"{done} entry {at + 1} of {file_name(target, scope)}: {preview(marked.text)}")
    context.line(f"  {_remarks(marked)}")


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────

Numbered = tuple[int, Entry]


@memory.command("list")
@either_target_option
@click.option("--category", type=click.Choice(CATEGORIES), help="Only entries of this kind.")
@click.option("--tag", metavar="TAG", help="Only entries with this tag.")
@click.option("--full", is_flag=True, help="Show long entries in full.")
@click.option("--status", is_flag=True, help="Show how full the files are, what waits in the inbox, and what is wrong.")
@click.option("--changes", is_flag=True, help="Show which change added each entry: when, by whom, in which session.")
@scope_options
@with_home
def list_(
    context: CommandContext,
    target: Target | None,
    category: str | None,
    tag: str | None,
    full: bool,
    status: bool,
    changes: bool,
) -> None:
    """List the entries of both files.

    The number of an entry is its place in the file. Categories, tags and dates are kept outside the file's text.

    \b
    Examples:
      herma memory list
      herma memory list --target user --full
      herma memory list --category lesson
      herma memory list --changes
      herma memory list --status
      herma memory list --project shop --json
    """
    if status or changes:
        _status(context) if status else _blame(context, target)
        return

    def wanted(entry: Entry) -> bool:
        return category in (None, entry.category) and (tag is None or tag.removeprefix("#") in entry.tags)

    files: list[Json] = []
    whole = True
    store = context.h.memory
    for one in _statuses(context, target):
        enabled = store.is_enabled(one.target)
        described = store.describe(one.target, scope=context.scope) if enabled else []
        everything = list(enumerate(described, 1))
        context.number_list(f"memory/{one.target}", [entry.text for entry in described])
        chosen = [item for item in everything if wanted(item[1])]
        entries = [entry_json(*item) for item in chosen]
        files.append({**status_json(one, enabled=enabled), "entries": entries})
        if context.json:
            continue
        if len(files) > 1:
            context.line()
        _print_heading(context, one)
        if everything and not chosen:
            context.line(f"  None of its {count(len(everything), 'entry')} matches.")
        whole &= _print_entries(context, one.target, chosen, described, full=full)
    if context.json:
        context.print_json({"ok": True, "files": files})
    if not whole:
        context.line()
        context.line("Long entries are cut; --full shows them in full.")


def _statuses(context: CommandContext, target: Target | None = None) -> list[StoreStatus]:
    found = context.h.memory.status(scope=context.scope)
    return [status for status in found if target in (None, status.target)]


def _print_heading(context: CommandContext, status: StoreStatus) -> None:
    """Print the usage line of a file, and what is wrong with it."""
    context.line(f"{file_name(status.target, status.scope)}  {usage(status)}")
    _print_problems(context, status)
    if context.h.memory.is_enabled(status.target) and not status.entry_count and not status.trouble:
        words = ["add", "what should be remembered", *_target_words(status.target)]
        context.line(f"  Nothing yet. To add the first entry: {context.command('memory', *words, scoped=True)}")


def _print_problems(context: CommandContext, status: StoreStatus) -> None:
    found = []
    if not context.h.memory.is_enabled(status.target):
        key = "memory_enabled" if status.target == "memory" else "user_profile_enabled"
        switch = context.command("config", "set", f"memory.{key}", "true")
        found.append(f"Switched off: no session sees it. To switch it on: {switch}")
    if status.trouble:
        found.append(f"{status.trouble}. Sessions start without it, and nothing is written to it.")
        if "UTF-8" in status.trouble:
            found.append(f"To split it into entries: {context.command('memory', 'adopt', scoped=True)}")
    if status.used > status.limit:
        over = count(status.used - status.limit, "character")
        found.append(f"Over its limit by {over}: the model sees only the beginning.")
    for line in found:
        context.line(f"  ! {line}")


def _print_entries(
    context: CommandContext, target: Target, chosen: Sequence[Numbered], everything: Sequence[Entry], *, full: bool
) -> bool:
    """Print the entries; → whether each was shown in full."""
    whole = True
    for number, entry in chosen:
        shown = entry.text if full else preview(entry.text, 160)
        whole &= full or shown == entry.text or ("\n" in entry.text and not shown.endswith("…"))
        context.line(f"{number:>3}  " + shown.replace("\n", "\n     "))
        context.line(f"     {_remarks(entry)}")
        if not entry.trusted:
            words = [_handle(entry.text, [one.text for one in everything]), *_target_words(target)]
            drop = context.command("memory", "remove", *words, scoped=True)
            trust = context.command("memory", "mark", *words, "--trust", scoped=True)
            context.line(f"     ! Withheld from the model by the scanner: {_rules(entry.findings)}.")
            context.line(f"       To remove it: {drop}")
            context.line(f"       If it is harmless: {trust}")
    return whole


def _status(context: CommandContext) -> None:
    """Show how full both files are, what waits in the inbox, and what is wrong."""
    files, store, settings = _statuses(context), context.h.memory, context.h.settings
    waiting, approval = len(store.pending()), settings.memory.write_approval
    if context.json:
        about = {"profile": settings.profile, "write_approval": approval, "pending": waiting}
        listed = [status_json(item, enabled=store.is_enabled(item.target)) for item in files]
        context.print_json({"ok": True, "home": settings.home, **about, "files": listed})
        return
    for item in files:
        full = min(24, -(-item.used * 24 // item.limit)) if item.limit else 24
        context.line(f"{file_name(item.target, item.scope)}  {'█' * full}{'░' * (24 - full)}  {usage(item)}")
        context.line(f"  {item.path}")
        context.line(f"  {count(item.changes, 'change')} recorded, {item.pending:,} waiting for a decision")
        if item.findings:
            command = context.command("memory", "list", scoped=True)
            context.line(f"  ! The scanner objects to {count(item.findings, 'entry')}: {command}")
        _print_problems(context, item)
    context.line()
    how = "on: what agents write waits for a person" if approval else "off: agents write without asking"
    context.line(f"Write approval is {how}.")
    inbox = f"{count(waiting, 'write')} in the inbox: {context.command('inbox')}"
    context.line(inbox if waiting else "The inbox is empty.")


def _blame(context: CommandContext, target: Target | None) -> None:
    """Show which change added each entry: when, by whom, in which session."""
    rows: list[tuple[object, ...]] = []
    listed = []
    store, scope = context.h.memory, context.scope
    for one in (target,) if target else TARGETS:
        if not store.is_enabled(one):
            continue
        # an undo only brings back what a change had added
        made_by = [change for change in reversed(store.history(one, scope=scope)) if change.undoes is None]
        added = {text: change for change in made_by for text in difference(change)[1]}
        for number, entry in enumerate(store.describe(one, scope=scope), 1):
            cause = added.get(entry.text)
            brought_by = change_json(cause) if cause else None
            listed.append({"target": one, **entry_json(number, entry), "brought_by": brought_by})
            made = (cause.id, when(cause.at), by(cause.author)) if cause else ("-", "-", "-")
            origin = entry.origin or (cause.author.origin if cause else "-")
            session = (cause.author.session if cause else None) or "-"
            name = f"{'MEMORY.md' if one == 'memory' else 'USER.md'} {number}"
            rows.append((name, *made, origin, session, preview(entry.text, 60)))
    if context.json:
        context.print_json({"ok": True, "entries": listed})
    elif rows:
        context.table(("entry", "change", "when", "who", "origin", "session", "text"), rows)
    else:
        context.line("There are no entries.")


# ── tidying ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_TITLES = {
    "duplicate": "exact duplicate",
    "merge": "say once",
    "superseded": "replaced by a newer entry, to the archive",
    "expired": "expired, to the archive",
    "move": "to the archive",
}


@memory.command(short_help="Tidy the files: duplicates, outdated and expired entries")
@either_target_option
@dry_run_option
@click.option("--no-model", is_flag=True, help="Do not let a model word merges.")
@yes_option
@scope_options
@with_home
def tidy(context: CommandContext, target: Target | None, dry_run: bool, no_model: bool) -> None:
    """Tidy the files: drop entries that another one repeats, archive entries that a newer one contradicts or whose date
    has passed, and in a file over its limit archive the least valuable ones.

    It shows the difference and asks about each step; --yes takes them all. Each file becomes one change, which
    `herma undo` takes back. Entries that you tagged `pinned` or trusted are left alone. Nothing is deleted: an entry
    that goes is repeated by another one, or is in `herma memory archive`.

    \b
    Examples:
      herma memory tidy --dry-run
      herma memory tidy --target user --yes
      herma memory tidy --project shop
    """
    from herma.memory.tidy import TidyReport

    tidying = context.h.tidy
    planned = tidying(target, scope=context.scope, dry_run=True, model=not no_model).files
    if not context.json:
        for file in planned:
            _print_plan(context, file)
    busy = any(file.proposals for file in planned)
    if dry_run or not busy:
        if context.json:
            context.print_json({"ok": True, "dry_run": dry_run, "files": [_tidied_json(file) for file in planned]})
        context.line("Nothing was changed." if busy else "Everything is in order.")
        return
    chosen = tuple(changed(file, proposals=_accepted(context, file)) for file in planned)
    if not any(file.proposals for file in chosen):
        context.declined()
    done = tidying.apply(TidyReport(chosen), author=author()).files
    _finish(context, [file.outcome for file in done if file.outcome], [_tidied_json(file) for file in done])


def _accepted(context: CommandContext, file: Tidied) -> tuple[TidyProposal, ...]:
    """Ask about the proposals for a file one by one; → those with a yes."""
    name = file_name(file.target, file.scope)
    return tuple(
        one
        for number, one in enumerate(file.proposals, 1)
        if context.confirm(f"{name}: do {number} ({_TITLES[one.kind]}: {preview(one.entries[0], 40)})?")
    )


def _print_plan(context: CommandContext, file: Tidied) -> None:
    for note in file.notes:
        context.warn(note)
    if not file.proposals:
        return
    room = f"{file.used:,} → {file.used_after:,} of {file.limit:,} characters"
    context.line(f"{file_name(file.target, file.scope)}: {count(len(file.proposals), 'proposal')}, {room}")
    for number, one in enumerate(file.proposals, 1):
        model = ", worded by a model" if one.by_model else ""
        context.line(f"{number:>3}  {_TITLES[one.kind]}: {one.reason} (frees {one.frees:,}{model})")
        for text in one.entries:
            context.line(f"       {preview(text, 100)}")
    context.line()
    print_diff(context, file.before, file.after)
    context.line()


def _tidied_json(file: Tidied) -> Json:
    proposals = [
        encode(
            one,
            omit=["operations"],
            result=one.result or None,
            frees=one.frees,
            operations=[operation_json(op) for op in one.operations],
        )
        for one in file.proposals
    ]
    outcome = None if file.outcome is None else outcome_json(file.outcome)
    return encode(file, omit=["proposals", "outcome"], proposals=proposals, outcome=outcome)


# ── the archive ──────────────────────────────────────────────────────────────────────────────────────────────────────

_WHY = {"room": "to make room", "expired": "because its date had passed", "superseded": "for a newer entry"}


@memory.group(
    "archive",
    cls=HermaGroup,
    order="list restore forget",
    short_help="Find and restore entries that left the files",
)
def archive() -> None:
    """Find and restore entries that left MEMORY.md and USER.md.

    Entries are archived when you approve that, and when an agent drops its own to make room. A session recalls them
    where they help, and proposes those for the prompt again that several conversations needed. Entries that you remove
    yourself are not archived.

    \b
    Examples:
      herma memory archive list
      herma memory archive list "staging database"
      herma memory archive restore 3
      herma memory archive forget 3
    """


@archive.command("list", cls=TextCommand, short_help="List the archive, or find entries in it")
@text_argument("text", nargs=-1)
@either_target_option
@click.option("--forgotten", is_flag=True, help="List the forgotten entries instead.")
@limit_option
@scope_options
@with_home
def list_archive(
    context: CommandContext, text: tuple[str, ...], target: Target | None, forgotten: bool, limit: int
) -> None:
    """List the archive, newest first: when and why each entry left, and in how many conversations it was recalled. With
    a TEXT, list the entries that a session of this scope could recall for it, best first.

    \b
    Examples:
      herma memory archive list
      herma memory archive list which port is staging on
      herma memory archive list --project shop --json
    """
    if text:
        _search_archive(context, " ".join(text), limit)
        return
    found = context.h.memory.archive.list(target, scope=context.scope, forgotten=forgotten)
    if context.json:
        listed = [archived_json(one) for one in found[:limit]]
        context.print_json({"ok": True, "total": len(found), "entries": listed})
        return
    if not found:
        context.line("Nothing was forgotten." if forgotten else "The archive is empty.")
    for one in found[:limit]:
        _print_archived(context, one)
    if len(found) > limit:
        context.line(f"and {len(found) - limit:,} more; --limit shows them.")


def _search_archive(context: CommandContext, text: str, limit: int) -> None:
    hits = context.h.memory.archive.search(text, scope=context.scope, limit=limit)
    if context.json:
        found = [{**archived_json(hit.entry), "score": round(hit.score, 3), "found_by": hit.why} for hit in hits]
        context.print_json({"ok": True, "entries": found})
        return
    if not hits:
        context.line(f"No matching entries. {context.command('memory', 'archive', 'list')} shows all of them.")
    for hit in hits:
        _print_archived(context, hit.entry)
        context.line(f"     {hit.score:.2f}: {'; '.join(hit.why)}")


@archive.command(short_help="Put an entry back into its file")
@click.argument("number", metavar="ID", type=click.IntRange(1, 2**63 - 1))
@scope_options
@with_home
def restore(context: CommandContext, number: int) -> None:
    """Put an entry back into its file, with what is known about it. `herma undo` takes it out again.

    \b
    Examples:
      herma memory archive restore 3
    """
    entry = context.h.memory.archive.get(number)
    outcome = context.h.memory.archive.restore(number, author=author())
    report(context, outcome, text=entry.text if entry else "", scope=entry.scope if entry else None)


@archive.command(short_help="Stop finding and recalling entries")
@_number_argument
@click.option("--undo", is_flag=True, help="Find and recall them again.")
@dry_run_option
@scope_options
@with_home
def forget(context: CommandContext, numbers: Sequence[int], undo: bool, dry_run: bool) -> None:
    """Stop finding and recalling entries. With --undo, find and recall them again.

    \b
    Examples:
      herma memory archive forget 3 5 --dry-run
      herma memory archive forget 3
      herma memory archive forget 3 --undo
    """
    _for_people_under_approval(context, "bringing forgotten entries back" if undo else "forgetting entries")
    archived = context.h.memory.archive
    if dry_run:
        known = [one for number in numbers if (one := archived.get(number)) is not None]
        found = [one for one in known if (one.forgotten is not None) == undo]
    else:
        found = archived.unforget(numbers) if undo else archived.forget(numbers)
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "entries": [archived_json(one) for one in found]})
    words = ("Would restore", "Restored to the archive") if undo else ("Would forget", "Forgotten")
    for one in found:
        context.line(f"{words[0] if dry_run else words[1]}: {one.id}  {preview(one.text, 90)}")
    if not found:
        context.line("Nothing to restore: not forgotten." if undo else "Nothing to forget: forgotten already.")
    elif not dry_run and not undo:
        ids = [str(one.id) for one in found]
        context.line(f"To undo it: {context.command('memory', 'archive', 'forget', '--undo', *ids)}")


def _print_archived(context: CommandContext, one: ArchivedEntry) -> None:
    context.line(f"{one.id:>3}  " + one.text.replace("\n", "\n     "))
    recalled = f", recalled in {count(one.uses, 'conversation')}" if one.uses else ""
    name = file_name(one.target, one.scope)
    context.line(f"     left {name} on {_day(one.left)} {_WHY[one.why]}{recalled}; change m{one.change}")


def archived_json(one: ArchivedEntry) -> Json:
    return encode(one, left=iso(one.left), proposed=iso(one.proposed))


# ── whole files ──────────────────────────────────────────────────────────────────────────────────────────────────────


@memory.command(short_help="Split an existing Markdown file into entries")
@click.option("--target", type=TARGET, help="Only this file; without it, every file that is not in order.")
@yes_option
@dry_run_option
@scope_options
@with_home
def adopt(context: CommandContext, target: Target | None, dry_run: bool) -> None:
    """Split an existing file into entries: Markdown, another encoding, one long text.

    A list becomes one entry per bullet, with its heading in front. The file as it was is kept beside it.

    \b
    Examples:
      herma memory adopt --dry-run
      herma memory adopt --target user --yes
    """
    _for_people_under_approval(context, "adopting a file")
    store, scope = context.h.memory, context.scope
    plans: list[tuple[StoreStatus, list[str]]] = []
    for status in _statuses(context, target):
        if store.is_enabled(status.target) or target:
            entries = store.adoption(status.target, scope=scope)
            if status.trouble and not entries and not dry_run:
                _refuse(context, store.adopt(status.target, scope=scope))
            if status.trouble or entries != store.entries(status.target, scope=scope):
                plans.append((status, entries))
                _print_adoption(context, status, entries)
    if not plans:
        context.line("Nothing to adopt: every entry is in order already.")
    if dry_run or not plans:
        if context.json:
            listed = [
                {
                    "target": status.target,
                    "path": status.path,
                    "trouble": status.trouble,
                    "entries": [{"number": n, "text": text, "size": len(text)} for n, text in enumerate(entries, 1)],
                    "used": used(entries),
                    "limit": status.limit,
                }
                for status, entries in plans
            ]
            context.print_json({"ok": True, "dry_run": dry_run, "files": listed})
        elif plans:
            context.line("Nothing was changed.")
        return
    names = " and ".join(file_name(status.target, scope) for status, _ in plans)
    if not context.confirm(f"Rewrite {names} as these entries? A copy of the file is kept."):
        context.declined()
    outcomes = [store.adopt(status.target, scope=scope) for status, _ in plans]
    _finish(context, outcomes, [outcome_json(outcome) for outcome in outcomes])


def _print_adoption(context: CommandContext, status: StoreStatus, entries: Sequence[str]) -> None:
    if status.trouble:
        context.line(f"{status.trouble}.")
    if not entries:
        return
    total = used(entries)
    over = f", {total - status.limit:,} over its limit" if total > status.limit else ""
    name = file_name(status.target, status.scope)
    context.line(f"{name} would have {count(len(entries), 'entry')}: {total:,}/{status.limit:,} characters{over}")
    for number, entry in enumerate(entries, 1):
        context.line(f"{number:>3}  {preview(entry, 100)}  ({count(len(entry), 'character')})")
        if findings := scan(entry):
            context.line(f"     ! The scanner will withhold it from the model: {_rules(findings)}.")


def _empty(context: CommandContext, target: Target | None, *, dry_run: bool) -> None:
    """Empty one file or both. Ask first, and keep a copy."""
    _for_people_under_approval(context, "emptying a file")
    store = context.h.memory
    wanted = [
        one for one in _statuses(context) if target == one.target or (target is None and store.is_enabled(one.target))
    ]
    full = [(one, file_name(one.target, one.scope)) for one in wanted if one.entry_count or one.trouble]
    if full and not dry_run:
        names = " and ".join(f"{name} ({count(one.entry_count, 'entry')})" for one, name in full)
        if not context.confirm(f"Empty {names}? A copy is kept."):
            context.declined()
        outcomes = [store.reset(one.target, scope=context.scope) for one, _ in full]
        _finish(context, outcomes, [outcome_json(outcome) for outcome in outcomes])
        return
    if context.json:
        listed = [{"target": one.target, "path": one.path, "entry_count": one.entry_count} for one, _ in full]
        context.print_json({"ok": True, "dry_run": dry_run, "files": listed})
    if not full:
        context.line("Nothing to remove: it is empty already.")
    for one, name in full:
        context.line(f"Would empty {name}: {count(one.entry_count, 'entry')} at {one.path}")
