"""Herma sessions export, import, delete, prune."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from herma.cli import output
from herma.cli.frame import yes_option
from herma.cli.output import Json, count, iso, name_of, session_json, size, when
from herma.errors import HermaError, StoreError, UsageError
from herma.transcript.cli import Desk, dry_run_option, read_days, read_moment, sessions, table, with_sessions
from herma.transcript.log import Keeping
from herma.types import Deletion, Message, SessionFilter, SessionInfo

if TYPE_CHECKING:
    from herma.transcript.transfer import ImportReport, Redactor


# ---------- cli.sessions.move
#
# `herma sessions export` and `import`: transcripts as files.

_MOVE_NAMED = 8
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
    from herma.transcript import transfer as exporting

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
    from herma.transcript.transfer import Redactor

    return Redactor()


def _pieces(desk: Desk, found: list[SessionInfo], kind: str, redactor: Redactor | None) -> Iterator[str]:
    """The pieces of the file, each made when its turn comes; says on the way how far it is."""
    from herma.transcript import transfer as exporting
    from herma.transcript import transfer as pages

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
    from herma.transcript.transfer import Importer

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
    for line in lines[:_MOVE_NAMED]:
        desk.context.line(f"    {line}")
    if len(lines) > _MOVE_NAMED:
        desk.context.line(f"    and {len(lines) - _MOVE_NAMED:,} more (--json lists all)")


# ---------- cli.sessions.sweep
#
# `herma sessions delete`, `undelete` and `prune`: shown first, asked for, and undoable for some days.

_SHOWN = 20
"""Sessions that are listed before the question."""
_SWEEP_NAMED = 5
"""Conversations that are named one by one in what brings them back."""


@sessions.command(short_help="Delete conversations; undoable for some days")
@click.argument("session", metavar="ID…", nargs=-1, required=True)
@yes_option
@dry_run_option
@with_sessions
def delete(desk: Desk, session: tuple[str, ...], dry_run: bool) -> None:
    """Delete whole conversations, with what was delegated from them. They can be brought back for some days.

    \b
    Examples:
      herma sessions delete 20261231_2359 --dry-run
      herma sessions delete "Login bug" "Old notes" --yes
      herma sessions undelete 20261231_2359
    """
    found = {one.conversation: one for one in desk.find_all(session)}
    would = desk.transcripts.delete([one.id for one in found.values()], dry_run=True)
    if dry_run:
        _report(desk, would)
        return
    _preview(desk, would.sessions)
    what = count(len(found), "conversation")
    if not desk.context.confirm(f"Delete {what if len(found) > 1 else 'this conversation'}?"):
        _declined(desk)
    _report(desk, desk.transcripts.delete([one.id for one in found.values()]))
    _purge(desk)


@sessions.command(short_help="Bring deleted conversations back")
@click.argument("session", metavar="ID…", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All that can still be brought back.")
@with_sessions
def undelete(desk: Desk, session: tuple[str, ...], everything: bool) -> None:
    """Bring deleted conversations back, with what was delegated from them.

    \b
    Examples:
      herma sessions list --deleted
      herma sessions undelete 20261231_2359
      herma sessions undelete --all
    """
    if bool(session) == everything:
        hint = f"`{desk.command('sessions', 'list', '--deleted')}` shows what can be brought back."
        raise UsageError("Which sessions?" if not session else "IDs and --all contradict.", hint=hint)
    waiting = desk.deleted()
    wanted = [one.id for one in waiting] if everything else [_deleted(desk, text, waiting).id for text in session]
    back = desk.transcripts.undelete(wanted) if wanted else []
    if desk.context.json:
        desk.context.print_json({"ok": True, "sessions": [session_json(one) for one in back]})
        return
    if not back:
        desk.context.line("Nothing is deleted.")
    for one in back:
        desk.context.line(f"Back again: {one.id}  {count(one.message_count, 'message')}  {name_of(one)}")


def _deleted(desk: Desk, text: str, waiting: Sequence[SessionInfo]) -> SessionInfo:
    """The deleted session meant by an id, its beginning, or a title."""
    exact = [one for one in waiting if text in (one.id, one.title)]
    found = exact or [one for one in waiting if one.id.startswith(text)]
    if text and len({one.conversation for one in found}) == 1:
        return found[0]
    if text and found:
        hint = "\n      ".join(["Say more of the one you mean:", *(f"{one.id}  {name_of(one)}" for one in found[:8])])
        raise UsageError(f"Several deleted sessions begin with {text!r}.", hint=hint)
    if text and desk.transcripts.get(text) is not None:
        raise UsageError(f"Session {text} is not deleted.", hint=f"{desk.command('sessions', 'show', text)}")
    raise UsageError(
        f"There is no deleted session {text!r}.",
        hint=f"`{desk.command('sessions', 'list', '--deleted')}` shows what can be brought back.",
    )


# ── prune ──


_THEN = "then: 2026-03-05, 2026-03, 7d, yesterday."


def _read_folder(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    """As sessions keep it: `.` is where one is now. It need not be there any more."""
    return value if value is None or not value.strip() else os.path.abspath(Path(value).expanduser())  # noqa: PTH100


def _filter_options(function: Any) -> Any:
    """Which sessions are meant; bounds are inclusive."""
    for option in reversed(
        (
            click.option("--source", metavar="NAME", help="Only sessions from there."),
            click.option("--exclude-source", "exclude_sources", metavar="NAME", multiple=True, help="None from there."),
            click.option("--title", "search", metavar="TEXT", help="Only those with this in their title or id."),
            click.option("--end-reason", metavar="REASON", help="Only those that ended so: closed, reset, error, …"),
            click.option("--model", metavar="TEXT", help="Only those with this in the name of their model."),
            click.option("--project", metavar="NAME", help="Only those of this project, or below this folder."),
            click.option("--user", metavar="ID", help="Only those of this user."),
            click.option("--chat", metavar="ID", help="Only those of this chat."),
            click.option("--chat-type", metavar="KIND", help="Only those in such a chat: direct, group, channel, …"),
            click.option("--provider", metavar="NAME", help="Only those whose model this provider ran."),
            click.option(
                "--folder", metavar="PATH", callback=_read_folder, help="Only those in this folder, or below it."
            ),
            click.option("--branch", metavar="TEXT", help="Only those with this in the name of their git branch."),
            click.option(
                "--before", "started_before", metavar="TIME", callback=read_moment, help=f"Begun before {_THEN}"
            ),
            click.option("--after", "started_after", metavar="TIME", callback=read_moment, help=f"Begun after {_THEN}"),
            click.option("--archived/--not-archived", default=None, help="Only archived ones, or none of them."),
            *_bounds("messages", "messages", click.IntRange(0)),
            *_bounds("tool-calls", "tool calls", click.IntRange(0)),
            *_bounds("tokens", "tokens", click.IntRange(0)),
            *_bounds("cost", "dollars", click.FloatRange(0)),
        )
    ):
        function = option(function)
    return function


def _bounds(name: str, what: str, kind: click.ParamType[Any]) -> list[Any]:
    return [
        click.option(f"--min-{name}", type=kind, metavar="N", help=f"Only those with at least N {what}."),
        click.option(f"--max-{name}", type=kind, metavar="N", help=f"Only those with at most N {what}."),
    ]


@sessions.command(short_help="Delete old conversations, by what they have in common")
@click.option(
    "--older-than",
    metavar="TIME",
    default="90d",
    show_default=True,
    callback=read_days,
    help="Quiet for at least so long: 90d, 12h, 6w, 3mo, 1y.",
)
@_filter_options
@click.option("--open", "also_open", is_flag=True, help="Also sessions that never ended.")
@click.option("--retention", is_flag=True, help="Instead: what retention.days and retention.by_source keep no longer.")
@yes_option
@dry_run_option
@with_sessions
def prune(desk: Desk, /, older_than: float, also_open: bool, retention: bool, dry_run: bool, **filters: Any) -> None:
    """Delete old conversations. It shows what it would take, and asks; they can be brought back for some days.

    A conversation goes as a whole: when one of its sessions matches, none was active lately or is still open, and all
    of it together is no more than what you allow.

    \b
    Examples:
      herma sessions prune --dry-run
      herma sessions prune --older-than 30d --source cron --max-messages 4
      herma sessions prune --older-than 1y --yes
      herma sessions prune --branch feature/ --chat-type group --dry-run
      herma sessions prune --retention --yes
    """
    which = SessionFilter(**filters)
    keeping = _keeping(desk, which) if retention else None

    def candidates() -> Deletion:
        if keeping is not None:
            return desk.transcripts.expire(keeping, dry_run=True)
        return desk.transcripts.prune(which, older_than_days=older_than, ended_only=not also_open, dry_run=True)

    found = candidates()
    if dry_run or not found.sessions:
        _report(desk, found, since=None if keeping else time.time() - older_than * 86_400, also_open=also_open)
        return
    _preview(desk, found.sessions)
    if not desk.context.confirm(f"Delete {count(len(found.sessions), 'session')}?"):
        _declined(desk)
    shown = {one.id for one in found.sessions}
    still = [one.id for one in candidates().sessions if one.id in shown]  # only what was shown, and is quiet still
    _report(desk, desk.transcripts.delete(still, whole=False))
    _purge(desk)


def _keeping(desk: Desk, which: SessionFilter) -> Keeping:
    """What the configuration says; it has no use for filters besides."""
    if which != SessionFilter(exclude_sources=()):
        raise UsageError("--retention goes by the configuration only.", hint="Leave the filters out.")
    options = desk.h.settings.retention
    keeping = Keeping.read(options.days, options.by_source)
    if not keeping.days and not any(keeping.by_source.values()):
        hint = f"For example: {desk.command('config', 'set', 'retention.by_source', 'cron=30, subagent=7')}"
        raise UsageError("The configuration keeps everything for ever.", hint=hint)
    return keeping


# ── what came of it ──


def _preview(desk: Desk, members: Sequence[SessionInfo]) -> None:
    if desk.context.json:
        return
    table(desk, list(members[:_SHOWN]))
    if len(members) > _SHOWN:
        desk.context.line(f"and {count(len(members) - _SHOWN, 'more session')}")
    messages = sum(one.message_count for one in members)
    desk.context.line(f"{count(len(members), 'session')} with {count(messages, 'message')}.")


def _report(desk: Desk, done: Deletion, since: float | None = None, also_open: bool = False) -> None:
    if desk.context.json:
        desk.context.print_json(
            {
                "ok": True,
                "dry_run": done.dry_run,
                "sessions": [session_json(one) for one in done.sessions],
                "messages": done.messages,
                "until": None if done.dry_run else iso(done.until),
            }
        )
        return
    if done.dry_run:
        _preview(desk, done.sessions) if done.sessions else _nothing(desk, since, also_open)
        desk.context.line("Nothing was deleted.")
        return
    what = f"{count(len(done.sessions), 'session')} with {count(done.messages, 'message')}"
    desk.context.line(f"Deleted {what}.")
    first: dict[str, str] = {}
    for one in sorted(done.sessions, key=lambda one: one.reason == "delegation"):
        if one.reason != "delegation" or one.parent not in {other.id for other in done.sessions}:
            first.setdefault(one.conversation, one.id)
    words = ["sessions", "undelete", *first.values()]
    if len(first) > _SWEEP_NAMED:
        only_these = {one.id for one in desk.deleted()} == {one.id for one in done.sessions}
        words = ["sessions", "undelete", "--all"] if only_these else ["sessions", "list", "--deleted"]
    whom = "it" if len(done.sessions) == 1 else "they"
    desk.context.line(f"Until {when(done.until)} {whom} can be brought back: {desk.command(*words)}")


def _purge(desk: Desk) -> None:
    """Whoever clears out also takes out what was deleted long ago."""
    gone = desk.transcripts.purge_expired()
    if gone:
        desk.context.line(f"Gone for good, because deleted longer ago: {count(len(gone), 'session')}.")


def _nothing(desk: Desk, since: float | None, also_open: bool) -> None:
    if since is None:
        desk.context.line("Nothing to delete.")
        return
    open_ones = "" if also_open else " Sessions that have not ended are left alone, unless you add --open."
    desk.context.line(f"No conversation that fits has been quiet since {when(since)}.{open_ones}")


def _declined(desk: Desk) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was deleted."})
    desk.context.line("Nothing was deleted.")
    desk.context.exit(1)
