"""`herma import`: find transcripts of other programs, import them, and keep them current."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from herma.cli import output
from herma.cli.context import CommandContext, HermaCommand, dry_run_option, with_home, yes_option
from herma.cli.output import count, short_when, size
from herma.errors import UsageError
from herma.importers.base import Machine, reachable
from herma.importers.notes import NoteFile, found_notes, notes_at, propose
from herma.importers.pipeline import FileReport, Found, ImportResult, Imports, readers
from herma.privacy.export import bar, is_export, read_everything
from herma.transcript.cli import index_imported, read_moment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WATCH_EVERY = 5.0
"""Seconds between two looks at the files where nothing tells of changes."""
BATCH_SECONDS = 3_600.0
"""Seconds; imports of a watch within this time are one batch."""
_MUCH = 10_000_000
"""Bytes from which on a progress bar is shown."""
_MANY = 200
"""Conversations from which on a bar is shown."""
_SHOWN = 8
"""Files with problems that a report names."""


class ImportOptions(TypedDict):
    """The options of one import, for every source."""

    since: float
    redact: bool


@click.command("import", cls=HermaCommand)
@click.argument("source", required=False, metavar="[SOURCE]")
@click.argument("path", required=False, metavar="[PATH]")
@click.option("--since", metavar="TIME", callback=read_moment, help="Only messages from this time on: 2026-03, 30d, …")
@click.option("--redact", is_flag=True, help="Take credentials out.")
@click.option("--watch", is_flag=True, help="Keep importing what is new, until Ctrl-C.")
@dry_run_option
@yes_option
@with_home
def import_(
    context: CommandContext,
    source: str | None,
    path: str | None,
    since: float | None,
    redact: bool,
    watch: bool,
    dry_run: bool,
) -> None:
    """Import conversations of other programs, so that they can be searched.

    Without SOURCE, list what is on this machine and import all of it after a yes. SOURCE is the name of a program, for
    its usual folders or those at PATH, or a file or folder in any known format. Importing again adds only what is new;
    the originals are only read. One `herma undo` takes an import back.

    The source `notes` reads what other programs learned (CLAUDE.md, AGENTS.md, rules of Cursor, mem0, …) and puts each
    entry into the inbox: imported text never changes memory by itself. `herma connect import` writes a service file
    that keeps --watch running.

    \b
    Examples:
      herma import
      herma import claude-code --since 30d
      herma import ~/Downloads/chatgpt-export.zip --dry-run
      herma import notes ~/src/shop
    """
    imports = Imports(context.h)
    options = ImportOptions(since=since or 0.0, redact=redact)
    whole = source is not None and is_export(Path(path or source).expanduser())
    if (whole or source == "notes") and (since or redact or watch):
        kind = "an archive of `herma export`" if whole else "notes"
        raise UsageError(f"--since, --redact and --watch do not apply to {kind}; nothing was imported.")
    if source == "notes":
        notes = notes_at(_existing(path)) if path else found_notes(Machine.here(), Path.cwd())
        _notes(context, notes, dry_run=dry_run)
        return
    if source is not None and whole:
        read_everything(context, Path(path or source).expanduser(), dry_run=dry_run)
        return
    jobs = _jobs(context, imports, source, path, ask=not dry_run, watch=watch)
    if source is None and (jobs or context.yes) and not dry_run:
        _notes(context, found_notes(Machine.here(), Path.cwd()), dry_run=False, quiet=True)
    if not jobs:
        return
    if dry_run:
        _run(context, imports, jobs, options, dry_run=True)
        return
    with imports.batch(", ".join(dict.fromkeys(name for name, _ in jobs))) as batch:
        results = _run(context, imports, jobs, options, batch=batch, watch=watch)
    if watch:
        _watch(context, imports, jobs, options, results)


def _jobs(
    context: CommandContext, imports: Imports, source: str | None, path: str | None, *, ask: bool, watch: bool
) -> list[tuple[str, Path | None]]:
    """Return what to import, by source and path; nothing if there is nothing or a person said no."""
    if source is not None:
        name = source.strip().lower()
        if name in readers():
            return [(name, _existing(path) if path else None)]
        if path is None and name and (Path(source).expanduser().exists() or "/" in source or "." in source):
            place = _existing(source)
            return [(found, place) for found in imports.recognise(place)]
        raise UsageError(f"Unknown source {source!r}.", hint="Sources: " + ", ".join(sorted(readers())))
    everywhere = [(name, None) for name in readers() if imports.places(name)]
    if watch and context.yes:
        return [*everywhere]
    found = imports.discover()
    notes = found_notes(Machine.here(), Path.cwd())
    if context.json and (not ask or not context.yes):
        context.print_json(
            {"ok": True, "found": [one._asdict() for one in found], "notes": [str(one.path) for one in notes]}
        )
        return []
    if not found:
        context.line("No transcripts of other programs were found on this machine.")
        context.line("To import a file: herma import FILE")
        return []
    _show(context, found)
    if notes:
        kinds = ", ".join(dict.fromkeys(one.kind for one in notes))
        context.line(f"Also {count(len(notes), 'file')} of notes, for the inbox: {kinds}")
    fresh = [one for one in found if one.fresh]
    if not fresh and not watch:
        context.line("Everything is imported already.")
        return []
    question = "Import what these programs write" if watch else f"Import from {count(len(fresh), 'program')}"
    if not ask or not context.confirm(f"{question}?"):
        context.line("Nothing was imported.")
        return []
    return [*everywhere] if watch else [(one.source, None) for one in fresh]


def _notes(context: CommandContext, notes: Sequence[NoteFile], *, dry_run: bool, quiet: bool = False) -> None:
    """Propose the entries of files in which other programs keep what they learned."""
    done = [propose(context.h, file, dry_run=dry_run) for file in notes]
    if context.json and not quiet:
        shown = [one._asdict() | {"file": one.file._asdict() | {"path": str(one.file.path)}} for one in done]
        context.print_json({"ok": True, "dry_run": dry_run, "notes": shown})
    for one in done:
        entries = count(one.new, "entry")
        context.line(
            f"{one.file.path}: {entries} {'would go' if dry_run else 'put'} into the inbox, {one.known:,} known."
        )
        for text in one.refused[:_SHOWN]:
            context.line(f"  refused: {text}")
    if not done and not quiet:
        context.line("No notes of other programs were found.")
    if any(one.new for one in done) and not dry_run:
        context.line(f"To decide on them: {context.command('inbox', 'list')}")


def _existing(path: str) -> Path:
    place = Path(path).expanduser()
    if not place.exists():
        raise UsageError(f"{path}: there is no such file or folder.", hint="Is the name right?", code="not_found")
    return place.absolute()


def _show(context: CommandContext, found: Sequence[Found]) -> None:
    rows = []
    for one in found:
        about = "about " if one.estimated else ""
        notes = []
        if one.expiring:
            notes.append(f"{one.title} soon deletes {count(one.expiring, 'file')}")
        if one.fresh < one.files:
            notes.append(
                f"{one.files - one.fresh:,} of {count(one.files, 'file')} imported" if one.fresh else "imported"
            )
        numbers = (f"{about}{one.sessions:,}", f"{about}{one.messages:,}", size(one.bytes))
        rows.append((one.source, *numbers, short_when(one.oldest), short_when(one.newest), "; ".join(notes)))
    columns = ("source", "sessions", "messages", "size", "oldest", "newest", "")
    context.table(columns, rows, drop=("oldest", "size", "sessions"))


# ── importing ──


def _run(
    context: CommandContext,
    imports: Imports,
    jobs: Sequence[tuple[str, Path | None]],
    options: ImportOptions,
    *,
    batch: int | None = None,
    dry_run: bool = False,
    watch: bool = False,
) -> list[ImportResult]:
    """Import from each source and report it. With `watch`, a source may have nothing yet."""
    results = []
    for source, path in jobs:
        if watch and not imports.files(source, path):
            continue
        label = f"{'Reading' if dry_run else 'Importing'} {source}, MB"
        with bar(context, label, least=_MUCH, unit=1_000_000) as progress:
            result = imports.run(source, path, **options, dry_run=dry_run, batch=batch, progress=progress)
        _report(context, result)
        results.append(result)
    undo = next((f"i{result.batch}" for result in results if result.batch), None)
    if not dry_run:
        index_imported(context)
        with bar(context, "Making episodes", least=_MANY) as progress:
            imports.make_episodes(progress)
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "imports": [asdict(one) for one in results], "undo": undo})
    elif undo:
        context.line(f"To undo it: {context.command('undo', undo)}")
    return results


def _report(context: CommandContext, result: ImportResult) -> None:
    verb = "would add" if result.dry_run else "added"
    added = f"{verb} {count(result.messages, 'message')} in {count(result.sessions, 'new session')}"
    if not result.messages:
        added = f"{verb} {count(result.sessions, 'session')} and no new messages" if result.sessions else "nothing new"
    context.line(f"{result.source}: {added}.")
    notes = []
    if result.known and result.messages:
        notes.append(f"{count(result.known, 'message')} here already")
    if result.deleted:
        notes.append(f"{count(result.deleted, 'session')} left out, because you deleted them here")
    if result.skipped:
        most = sorted(result.skipped.items(), key=lambda each: -each[1])
        kinds = ", ".join(f"{kind} {number:,}" for kind, number in most[:_SHOWN])
        more = f" and {len(most) - _SHOWN} more kinds" if len(most) > _SHOWN else ""
        notes.append(f"records that are not messages: {kinds}{more}")
    for note in notes:
        context.line(f"  {note}")
    if result.problems:
        context.line(f"  {count(len(result.problems), 'file')} with records that could not be used:")
    for problem in result.problems[:_SHOWN]:
        context.line(f"    {problem.path}: {'; '.join(_kinds(problem))}")
    if len(result.problems) > _SHOWN:
        context.line(f"    and {len(result.problems) - _SHOWN:,} more (--json lists all)")


def _kinds(problem: FileReport) -> Iterable[str]:
    named = {f"unknown {kind}": number for kind, number in problem.unknown.items()} | problem.broken
    for kind, number in named.items():
        lines = [str(line) for line in problem.lines.get(kind, ()) if line]
        more = ", …" if number > len(lines) else ""
        yield f"{kind} ×{number:,}" + (f" (line {', '.join(lines)}{more})" if lines else "")


def _watch(
    context: CommandContext,
    imports: Imports,
    jobs: Sequence[tuple[str, Path | None]],
    options: ImportOptions,
    results: Sequence[ImportResult],
) -> None:
    """Import what changes, until the program is stopped. A file is read again when its size or time changes. What comes
    within an hour is one batch.
    """
    reported = {(result.source, problem.path) for result in results for problem in result.problems}
    context.line("Watching for new messages. Stop with Ctrl-C.")
    changes = _changes([place for source, path in jobs for place in ([path] if path else imports.places(source))])
    while True:
        begun = time.monotonic()
        with imports.batch(", ".join(dict.fromkeys(name for name, _ in jobs))) as batch:
            while time.monotonic() < begun + BATCH_SECONDS:
                next(changes)
                for source, path in jobs:
                    if imports.files(source, path):
                        _look(context, imports, source, path, options, batch, reported)


def _look(
    context: CommandContext,
    imports: Imports,
    source: str,
    path: Path | None,
    options: ImportOptions,
    batch: int,
    reported: set[tuple[str, str]],
) -> None:
    """Import what is new of one source, and print what was added or cannot be used, each problem once."""
    result = imports.run(source, path, **options, batch=batch)
    result.problems = [one for one in result.problems if (source, one.path) not in reported]
    reported.update((source, one.path) for one in result.problems)
    if (result.messages or result.problems) and context.json:
        context.print_json({"ok": True, **asdict(result)})
    elif result.messages or result.problems:
        output.write(f"{time.strftime('%H:%M:%S')} {source}: {count(result.messages, 'message')} added")


def _changes(places: Sequence[Path]) -> Iterator[None]:
    """Yield when files below the places may have changed: as the system tells it if `watchfiles` is installed, else
    every few seconds. Places that appear later are found within a minute.
    """
    while True:
        here = list(filter(reachable, places))
        try:
            from watchfiles import watch
        except ImportError:
            here = []
        if not here:
            time.sleep(WATCH_EVERY)
            yield
            continue
        try:
            for second, changed in enumerate(watch(*here, rust_timeout=1_000, yield_on_timeout=True)):
                if changed or not second % 60:  # at once, too: for what was written before the system was asked to tell
                    yield
                if not second % 60 and here != list(filter(reachable, places)):
                    break
        except OSError as error:  # the system allows a user so many watches
            output.write(f"The system reports no changes ({error}). Looking every {WATCH_EVERY:g} s instead.")
            while True:
                time.sleep(WATCH_EVERY)
                yield
