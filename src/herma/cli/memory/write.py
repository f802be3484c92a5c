"""`herma memory add`, `replace`, `remove` and `mark`: changes a person makes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace as changed
from typing import Literal

import click

from herma.cli import output
from herma.cli.memory.desk import (
    Desk,
    TextCommand,
    memory,
    read_tags,
    reason_option,
    target_option,
    text_argument,
    with_memory,
)
from herma.cli.memory.report import outcome_json, refuse, report
from herma.cli.memory.trace import print_diff
from herma.cli.memory.wording import entry_json, preview, remarks, usage
from herma.cli.person import for_people_only
from herma.errors import UsageError
from herma.types import (
    CATEGORIES,
    Add,
    Ambiguous,
    Applied,
    Blocked,
    Category,
    Drifted,
    Entry,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Remove,
    Replace,
    StoreStatus,
    Target,
)

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
        _rehearse(desk, target, op, trust=trust)
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
        _rehearse(desk, target, Remove(old))
        return
    outcome = desk.store.apply(target, Remove(old), scope=desk.scope, author=desk.author, reason=reason)
    report(desk, outcome, old=old)


# ── trying out ──


def _rehearse(desk: Desk, target: Target, op: Replace | Remove, *, trust: bool = False) -> None:
    """Show what an operation would do, or how it would be refused. Nothing is written."""
    from herma.curated.apply import apply
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
    from herma.curated.advice import suggest

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
    from herma.curated.apply import apply, locate
    from herma.curated.entries import clean

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
