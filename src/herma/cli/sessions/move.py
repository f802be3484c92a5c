"""`herma sessions export` and `import`: transcripts as files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from herma.cli import output
from herma.cli.frame import yes_option
from herma.cli.sessions.desk import Desk, dry_run_option, sessions, with_sessions
from herma.cli.sessions.wording import Json, count, name_of, size
from herma.errors import HermaError, StoreError, UsageError
from herma.types import Message, SessionInfo

if TYPE_CHECKING:
    from herma.transcript.importing import ImportReport
    from herma.transcript.redact import Redactor

_NAMED = 8
"""Sessions that a report names one by one."""
_USUAL_LINE = 300
"""Bytes of a line, to guess beforehand whether an import will take a while."""
_SPOOL = 8 * 1024 * 1024


@sessions.command(short_help="Write conversations to a file: JSON lines, Markdown, a web page")
@click.argument("session", metavar="[ID]…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every session: archived ones and those of subagents too.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(("jsonl", "md", "html")),
    help="What to write; without it, what the name of the file ends with, else jsonl.",
)
@click.option("-o", "--output", "target", metavar="FILE", default="-", help="Where to; - is standard output.")
@click.option("--redact", is_flag=True, help="Replace passwords, keys and tokens by a marker.")
@yes_option
@with_sessions
def export(desk: Desk, session: tuple[str, ...], everything: bool, kind: str | None, target: str, redact: bool) -> None:
    """Write whole conversations to a file, with what was delegated from them.

    JSON lines hold everything and can be imported again; Markdown and HTML are for reading. Deleted sessions stay out.

    \b
    Examples:
      herma sessions export --all -o sessions.jsonl
      herma sessions export "Login bug" -o login.html --redact
      herma sessions export 20261231_2359 --format md
    """
    from herma.transcript import export as exporting

    if bool(session) == everything:
        hint = "Give the IDs of some, or --all."
        raise UsageError("Which sessions?" if not session else "IDs and --all contradict.", hint=hint)
    if target == "-" and desk.context.json:
        raise UsageError(
            "With --json the export needs a file.", hint="Add -o FILE; --json then reports what was written."
        )
    kind = kind or {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html"}.get(Path(target).suffix.lower())
    wanted = [one.id for one in desk.find_all(session)]
    found = exporting.everything(desk.transcripts) if everything else exporting.chosen(desk.transcripts, wanted)
    redactor = _redactor() if redact else None
    written = _write(desk, target, _pieces(desk, found, kind or "jsonl", redactor))
    _told(desk, found, target, written, redactor)


def _redactor() -> Redactor:
    from herma.transcript.redact import Redactor

    return Redactor()


def _pieces(desk: Desk, found: list[SessionInfo], kind: str, redactor: Redactor | None) -> Iterator[str]:
    """The pieces of the file, each made when its turn comes; says on the way how far it is."""
    from herma.transcript import export as exporting
    from herma.transcript import pages

    total = sum(one.message_count for one in found)
    done = 0
    with desk.progress("Exporting messages", total) as report:

        def conversations() -> Iterator[pages.Conversation]:
            for one in exporting.told(desk.transcripts, found):
                yield redactor.session(one) if redactor else one, messages(one.session.id)

        def messages(session_id: str) -> Iterator[Message]:
            nonlocal done
            for message in exporting.messages_of(desk.transcripts, session_id):
                yield redactor.message(message) if redactor else message
                done += 1
                if done % 100 == 0:
                    report(min(done, total), total)

        if kind == "md":
            yield from pages.markdown(conversations())
        elif kind == "html":
            yield from pages.web_page(conversations(), _title(found, redactor))
        else:
            yield exporting.header()
            for one, said in conversations():
                yield exporting.session_line(one)
                for message in said:
                    line = exporting.message_line(message)
                    if len(line) > exporting.LONGEST_LINE // 4 and len(line.encode()) > exporting.LONGEST_LINE:
                        desk.context.warn(f"Message {message.id} has more than 50 MB: an import will refuse this file.")
                    yield line
        report(total, total)


def _title(found: list[SessionInfo], redactor: Redactor | None) -> str:
    """What the page is about: one conversation, or how many."""
    conversations = {one.conversation: one for one in reversed(found)}
    if len(conversations) != 1:
        return count(len(conversations), "conversation")
    (one,) = conversations.values()
    return (redactor.text(one.title) if one.title else one.id) if redactor else name_of(one)


def _write(desk: Desk, target: str, pieces: Iterable[str]) -> int:
    """Write to standard output, or to a file that takes its place only when it is complete. → how many bytes."""
    if target == "-":
        return sum(_put(sys.stdout.buffer, piece) for piece in pieces)
    path = Path(target)
    if path.is_dir():
        raise UsageError(f"{path} is a folder.", hint="Give the name of a file.")
    if path.exists() and not desk.context.confirm(f"{path} exists already. Replace it?"):
        desk.context.line("Nothing was written.")
        desk.context.exit(1)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("wb") as file:
            partial.chmod(0o600)  # transcripts are private
            written = sum(_put(file, piece) for piece in pieces)
        partial.replace(path)
    except OSError as exc:
        raise StoreError(f"{path} cannot be written: {exc.strerror}.", hint="Choose another place with -o.") from exc
    finally:
        with suppress(OSError):
            partial.unlink()
    return written


def _put(file: BinaryIO, piece: str) -> int:
    return file.write(piece.encode())


def _told(desk: Desk, found: list[SessionInfo], target: str, written: int, redactor: Redactor | None) -> None:
    """Say what was written; on stderr when the export itself went to stdout."""
    conversations = len({one.conversation for one in found})
    redacted = dict(redactor.found) if redactor else None
    if desk.context.json:
        value: Json = {"ok": True, "file": target, "bytes": written, "sessions": len(found)}
        desk.context.print_json(value | {"conversations": conversations, "redacted": redacted})
        return
    lines = []
    if target != "-":
        what = f"{count(conversations, 'conversation')} ({count(len(found), 'session')})"
        lines.append(f"Wrote {what} to {target}: {size(written)}")
    if redacted is not None:
        kinds = ", ".join(f"{number:,} × {kind}" for kind, number in sorted(redacted.items()))
        lines.append(f"Redacted: {kinds}." if kinds else "Nothing in it looked like a credential.")
    for line in lines:
        output.write(line, sys.stderr if target == "-" else None)


# ── import ──


@sessions.command("import", short_help="Bring in what was exported as JSON lines")
@click.argument("file", metavar="FILE…", nargs=-1, required=True)
@dry_run_option
@with_sessions
def import_(desk: Desk, file: tuple[str, ...], dry_run: bool) -> None:
    """Bring in what `herma sessions export` wrote as JSON lines. FILE - reads standard input.

    A file is checked whole before anything is written, and imported whole or not at all. Sessions that are here already
    are left as they are.

    \b
    Examples:
      herma sessions import sessions.jsonl --dry-run
      herma sessions import sessions.jsonl
      ssh laptop herma sessions export --all | herma sessions import -
    """
    reports: list[Json] = []
    failure: HermaError | None = None
    for name in file:
        try:
            report = _import(desk, name, dry_run)
        except HermaError as exc:
            if len(file) == 1:
                raise
            failure = exc
            reports.append({"file": name, "ok": False, "error": str(exc), "hint": exc.hint})
            output.write(f"herma: {exc}", sys.stderr)
        else:
            reports.append({"ok": True, **asdict(report)})
            if not desk.context.json:
                _imported(desk, report)
    if not dry_run:
        _index(desk)
    if desk.context.json:
        desk.context.print_json({"ok": failure is None, "dry_run": dry_run, "files": reports})
    if failure is not None:
        desk.context.exit(failure.exit_code)


def _import(desk: Desk, name: str, dry_run: bool) -> ImportReport:
    from herma.transcript.importing import Importer

    importer = Importer(desk.transcripts)
    shown = "standard input" if name == "-" else name
    with _opened(name) as file:
        lines = file.seek(0, os.SEEK_END) // _USUAL_LINE
        with desk.progress("Importing, per cent", lines) as report:

            def checked(done: int, total: int | None = None) -> None:  # which takes as long as the rest
                report((100 if dry_run else 50) * done // (total or done or 1), 100)

            def written(done: int, total: int | None = None) -> None:
                report(50 + 50 * done // (total or done or 1), 100)

            return importer.run(file, shown, dry_run=dry_run, checking=checked, progress=written)


def _index(desk: Desk) -> None:
    """Index what was imported, if that is more than the next search would do by itself."""
    from herma.index.sync import SEARCH_INDEXES

    status = desk.h.index.status()
    if status.lag > SEARCH_INDEXES:
        with desk.progress("Indexing messages", status.lag) as report:
            if status.messages:
                desk.h.index.wait(embedding=False)
            else:
                desk.h.index.rebuild(report, embedding=None)


def _opened(name: str) -> BinaryIO:
    """The file, or a copy of standard input or of a pipe, which can be read only once."""
    if name == "-":
        if sys.stdin is None or sys.stdin.isatty():
            raise UsageError("There is nothing on standard input.", hint="Give the name of a file, or use a pipe.")
        return _spooled(sys.stdin.buffer, "standard input")
    path = Path(name)
    try:
        if path.is_dir():
            raise UsageError(f"{name} is a folder.", hint="Give the name of a file.")
        file = path.open("rb")
    except OSError as exc:
        raise UsageError(f"{name} cannot be read: {exc.strerror}.", hint="Is the name right?") from exc
    if file.seekable():
        return file
    with file:
        return _spooled(file, name)


def _spooled(source: BinaryIO, name: str) -> BinaryIO:
    """A copy of what can be read only once: a pipe."""
    import shutil

    spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL)  # noqa: SIM115 (the caller closes it)
    try:
        shutil.copyfileobj(source, spool)
    except OSError as exc:
        spool.close()
        hint = "It is copied to a temporary file first: free some space there, or give the name of a file."
        raise StoreError(f"{name} could not be read: {exc.strerror}.", hint=hint) from exc
    return spool  # type: ignore[return-value]  # it is one in all but name


def _imported(desk: Desk, report: ImportReport) -> None:
    what = f"{count(len(report.imported), 'session')} with {count(report.messages, 'message')}"
    desk.context.line(f"{report.file}: {'would import' if report.dry_run else 'imported'} {what}.")
    _some(
        desk,
        f"{count(len(report.skipped), 'session')} skipped, because they are here already",
        [_skipped(desk, one.id, one.here, one.there, one.deleted) for one in report.skipped],
    )
    _some(
        desk,
        f"{count(len(report.detached), 'session')} detached from their parents",
        [f"{one.id} (from {one.parent}: {one.why})" for one in report.detached],
    )
    _some(
        desk,
        f"{count(len(report.renamed), 'session')} renamed, because their titles are taken",
        [f"{one.id}  {one.old} → {one.new}" for one in report.renamed],
    )
    if report.dry_run:
        desk.context.line("Nothing was imported.")


def _skipped(desk: Desk, session_id: str, here: int, there: int, deleted: bool) -> str:
    if deleted:
        return f"{session_id} (deleted here; to bring it back: {desk.command('sessions', 'undelete', session_id)})"
    return f"{session_id} (it has {here:,} messages here, {there:,} in the file)" if here != there else session_id


def _some(desk: Desk, title: str, lines: list[str]) -> None:
    if not lines:
        return
    desk.context.line(f"  {title}:")
    for line in lines[:_NAMED]:
        desk.context.line(f"    {line}")
    if len(lines) > _NAMED:
        desk.context.line(f"    and {len(lines) - _NAMED:,} more (--json lists all)")
