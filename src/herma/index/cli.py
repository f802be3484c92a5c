"""`herma index`: the derived search index. It can be dropped at any time; transcripts are not in it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.context import CommandContext, HermaGroup, with_home, yes_option
from herma.cli.encode import encode
from herma.cli.output import count, size
from herma.errors import UsageError
from herma.index.sync import MOST_INDEXED, SEARCH_INDEXES, IndexStatus
from herma.index.vectors import silent
from herma.search.candidates import SCANS
from herma.transcript.cli import MANY, complete_session, find_sessions

if TYPE_CHECKING:
    from herma.index import VectorState

_MANY = 50
"""Messages from which on embedding takes a while."""


@click.group(cls=HermaGroup)
def index() -> None:
    """Look after the search index, which is made from the transcripts.

    It holds nothing that is not in them, and searching keeps it up to date: none of this is needed in everyday use.

    \b
    Examples:
      herma index status --verify
      herma index rebuild
      herma index embed
    """


@index.command()
@click.option("--verify", is_flag=True, help="Compare the index with the transcripts; rebuild it if they differ.")
@with_home
def status(context: CommandContext, verify: bool) -> None:
    """Show how far the index is, and how large.

    The first 4,000,000 characters of each message are indexed; it says how many messages are longer.

    \b
    Examples:
      herma index status
      herma index status --verify --json
    """
    if verify:
        _verify(context)
        return
    found = context.h.index.status()
    stored = _stored(context)
    if context.json:
        context.print_json(
            {
                "ok": not found.trouble,
                "file": _file(context),
                "there": _file(context).exists(),
                "messages": found.messages,
                "stored_messages": stored,
                "lag": found.lag,
                "size": found.size,
                "rebuilding": found.rebuilding,
                "built": found.built,
                "cut": found.cut,
                "trouble": found.trouble or None,
                "vectors": _vectors(found.vectors),
            }
        )
        return
    context.line(_described(found, stored))
    if found.built:
        context.line(f"One is being built: {found.built:,} of {count(stored, 'message')} so far.")
    if found.cut:
        line = f"{count(found.cut, 'message')} longer than {MOST_INDEXED:,} characters: the rest is not found by words."
        context.line(line)
    if found.rebuilding and found.messages:
        context.line("It belongs to other transcripts, or is damaged: the next search starts to rebuild it.")
    if found.trouble:
        context.line(f"! {found.trouble}")
        context.line(f"To rebuild it: {context.command('index', 'rebuild')}")
    elif found.lag and not os.access(context.h.home, os.W_OK):
        read = f"searches read the newest {SCANS:,} of them one by one instead"
        context.line(f"This home cannot be written, so they stay without an index: {read}.")
    elif found.lag:
        now = context.command("index", "rebuild")
        many = found.lag > SEARCH_INDEXES
        context.line(f"{'To index them now' if many else 'The next search indexes them, or do it now'}: {now}")
    if stored:
        _tell_vectors(context, found.vectors)


def _vectors(found: VectorState) -> dict[str, Any] | None:
    if not found.wanted and not found.others and not found.trouble:
        return None
    return {
        "model": found.model or None,
        "dimension": found.dimension or None,
        "vectors": found.vectors,
        "messages_done": found.done,
        "messages_left": found.left,
        "size": found.size,
        "trouble": found.trouble or None,
        "failures": found.failures,
        "retry_at": found.retry_at or None,
        "other_models": dict(found.others),
    }


def _tell_vectors(context: CommandContext, found: VectorState) -> None:
    if found.wanted:
        done = f"{count(found.left, 'message')} to be embedded" if found.left else "up to date"
        context.line(f"Vectors by {found.model}: {found.vectors:,}, {done}, {size(found.size)}.")
    for name, vectors in found.others:
        context.line(f"Vectors by {name}: {vectors:,} of another model; they will be removed.")
    if found.trouble:
        context.line(f"! Embedding: {found.trouble}")
    if found.wanted and (found.left or found.trouble):
        context.line(f"Searches go on with words. To embed the rest now: {context.command('index', 'embed')}")


def _stored(context: CommandContext) -> int:
    total = context.h.transcripts.stats()
    return total.messages + total.hidden_messages


def _file(context: CommandContext) -> Path:
    return context.h.home / "index.db"


def _described(found: IndexStatus, stored: int) -> str:
    if not stored and not found.messages:
        return "There are no messages yet, so there is nothing to index."
    if not found.messages:
        return f"There is no index yet; {count(stored, 'message')} to be indexed."
    behind = f", {count(found.lag, 'message')} behind" if found.lag else ", up to date"
    return f"{count(found.messages, 'message')} indexed{behind}, {size(found.size)}."


@index.command(short_help="Rebuild the index, the episodes or the facts")
@click.argument("session", metavar="[SESSION]…", nargs=-1, shell_complete=complete_session)
@click.option("--episodes", is_flag=True, help="Store missing episodes instead, of all sessions or of SESSION.")
@click.option("--all", "everything", is_flag=True, help="With --episodes: store those of all sessions again.")
@click.option("--facts", is_flag=True, help="Rebuild the facts instead, from the history of memory.")
@click.option("--drop", is_flag=True, help="Only delete the index: the next search builds a new one.")
@yes_option
@with_home
def rebuild(
    context: CommandContext, session: tuple[str, ...], episodes: bool, everything: bool, facts: bool, drop: bool
) -> None:
    """Rebuild the index from the transcripts. Searches go on with the old one meanwhile.

    Episodes are missing after an import or a crash, or if a session was continued since.

    \b
    Examples:
      herma index rebuild
      herma index rebuild --drop --yes
      herma index rebuild --episodes
    """
    if (session or everything) and not episodes:
        raise UsageError("SESSION and --all need --episodes.", hint="Nothing was changed.")
    if episodes:
        _rebuild_episodes(context, session, everything=everything)
        return
    if drop:
        _drop(context)
        return
    if facts:
        held = context.h.facts.rebuild()
        if context.json:
            context.print_json({"ok": True, "facts": held})
        context.line(f"{count(held, 'fact')}. Forgotten facts stay forgotten.")
        return
    stored = _stored(context)
    if stored or _file(context).exists():
        with context.progress("Indexing messages", stored, least=MANY) as report:
            context.h.index.rebuild(report, embedding=None)
    whole = _embed(context, rebuild=True)
    found = context.h.index.status()
    if context.json:
        built = {"messages": found.messages, "lag": found.lag, "size": found.size}
        context.print_json({"ok": whole, **built, "vectors": _vectors(found.vectors)})
    context.line(f"Rebuilt: {_described(found, stored)}" if stored else _described(found, stored))
    if stored:
        _tell_vectors(context, found.vectors)
    if not whole:
        context.exit(1)


@index.command()
@with_home
def embed(context: CommandContext) -> None:
    """Embed everything that is not embedded yet, for searching by meaning. It can be stopped and run again.

    Programs that stay open do this by themselves, a little at a time; commands that end at once never do.

    \b
    Examples:
      herma index embed
      herma index embed --json
    """
    whole = _embed(context, rebuild=False)
    found = context.h.index.status().vectors
    if not found.wanted:
        sentence = found.trouble or "There is no embedding model. Nothing was embedded; searches use words."
        context.fail(sentence, f"Type: {context.command('models', 'install', 'e5-small')}", code="no_embedder")
    whole = whole and not found.trouble
    if context.json:
        context.print_json({"ok": whole, "vectors": _vectors(found)})
    else:
        _tell_vectors(context, found)
    if not whole:
        context.exit(1)


def _embed(context: CommandContext, *, rebuild: bool) -> bool:
    """With a progress bar, where there is anything to do. → whether all of it is done."""
    vectors = context.h.index.vectors
    if not (state := vectors.state()).wanted:
        return True
    many = _stored(context) if rebuild else state.left
    shown = context.progress("Embedding messages", many) if many > _MANY else nullcontext(silent)
    with shown as report:
        return vectors.rebuild(report) if rebuild else vectors.wait(progress=report)


def _verify(context: CommandContext) -> None:
    stored = _stored(context)
    if not stored and not _file(context).exists():
        if context.json:
            context.print_json({"ok": True, "trouble": None, "rebuilt": False})
        context.line("There are no messages yet, so there is nothing to compare.")
        return
    context.line(f"Comparing {count(stored, 'message')} with the index …")
    found = context.h.index.verify()
    if context.json:
        context.print_json({"ok": True, "trouble": found.trouble or None, "rebuilt": found.rebuilt})
        return
    if found.trouble:
        context.line(f"They differed ({found.trouble}), so it was rebuilt.")
    else:
        context.line("The index matches the transcripts.")


def _drop(context: CommandContext) -> None:
    there = _file(context).exists()
    if there and not context.confirm("Delete the index? The next search builds it again, which may take a while."):
        context.declined("Nothing was deleted.")
    if there:
        context.h.index.drop()
    if context.json:
        context.print_json({"ok": True, "dropped": there})
    context.line("The index is deleted." if there else "There is no index.")


def _rebuild_episodes(context: CommandContext, session: tuple[str, ...], *, everything: bool) -> None:
    wanted = [one.conversation for one in find_sessions(context, session)] if session else None
    with context.progress("Reading sessions") as report:
        done = context.h.episodes.rebuild(wanted, everything=everything, progress=report)
    if context.json:
        context.print_json({"ok": True, **encode(done)})
        return
    read = count(done.looked_at, "conversation")
    context.line(f"Read {read}: {count(done.made, 'episode')}; {done.empty:,} without content.")
