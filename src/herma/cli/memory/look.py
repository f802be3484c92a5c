"""`herma memory list` and `status`: what is remembered now."""

from __future__ import annotations

from collections.abc import Callable

import click

from herma.cli.memory.desk import Desk, either_target_option, memory, with_memory
from herma.cli.memory.wording import bar, entry_json, handle, preview, remarks, rules, usage
from herma.types import CATEGORIES, Entry, Origin, StoreStatus, Target
from herma.wording.memory import status_json
from herma.wording.sessions import Json, count

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
