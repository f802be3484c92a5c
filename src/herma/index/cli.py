"""`herma index`: the derived search index. It can be dropped at any time; transcripts are not in it."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from herma.cli.frame import HermaGroup, yes_option
from herma.cli.output import count, size
from herma.index.sync import SEARCH_INDEXES, IndexStatus, silent
from herma.index.types import VectorState
from herma.search.candidates import SCANS
from herma.transcript.cli import Desk, with_sessions

_MANY = 50
"""Messages from which on embedding takes a while."""


@click.group(cls=HermaGroup)
def index() -> None:
    """Look after the search index, which is made from the transcripts.

    It holds nothing that is not in them, and searching keeps it up to date: none of this is needed in everyday use.

    \b
    Examples:
      herma index status
      herma index verify
      herma index rebuild
      herma index embed
    """


@index.command()
@with_sessions
def status(desk: Desk) -> None:
    """Show how far the index is, and how large.

    \b
    Examples:
      herma index status
      herma index status --json
    """
    found = desk.h.index.status()
    stored = _stored(desk)
    if desk.context.json:
        desk.context.print_json(
            {
                "ok": not found.trouble,
                "file": _file(desk),
                "there": _file(desk).exists(),
                "messages": found.messages,
                "stored_messages": stored,
                "lag": found.lag,
                "size": found.size,
                "rebuilding": found.rebuilding,
                "built": found.built,
                "trouble": found.trouble or None,
                "vectors": _vectors(found.vectors),
            }
        )
        return
    desk.context.line(_described(found, stored))
    if found.built:
        desk.context.line(f"One is being built: {found.built:,} of {count(stored, 'message')} so far.")
    if found.rebuilding and found.messages:
        desk.context.line("It belongs to other transcripts, or is damaged: the next search begins to build it anew.")
    if found.trouble:
        desk.context.line(f"! {found.trouble}")
        desk.context.line(f"To build it anew: {desk.command('index', 'rebuild')}")
    elif found.lag and not os.access(desk.h.home, os.W_OK):
        read = f"searches read the newest {SCANS:,} of them one by one instead"
        desk.context.line(f"This home cannot be written, so they stay without an index: {read}.")
    elif found.lag:
        now = desk.command("index", "rebuild")
        many = found.lag > SEARCH_INDEXES
        desk.context.line(f"{'To index them now' if many else 'The next search indexes them, or do it now'}: {now}")
    if stored:
        _tell_vectors(desk, found.vectors)


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


def _tell_vectors(desk: Desk, found: VectorState) -> None:
    if found.wanted:
        done = f"{count(found.left, 'message')} to be embedded" if found.left else "up to date"
        desk.context.line(f"Vectors by {found.model}: {found.vectors:,}, {done}, {size(found.size)}.")
    for name, vectors in found.others:
        desk.context.line(f"Vectors by {name}: {vectors:,}, of no use to the model in use; they go by themselves.")
    if found.trouble:
        desk.context.line(f"! Embedding: {found.trouble}")
    if found.wanted and (found.left or found.trouble):
        desk.context.line(f"Searches go on with words. To embed the rest now: {desk.command('index', 'embed')}")


def _stored(desk: Desk) -> int:
    total = desk.transcripts.stats()
    return total.messages + total.hidden_messages


def _file(desk: Desk) -> Path:
    return desk.h.home / "index.db"


def _described(found: IndexStatus, stored: int) -> str:
    if not stored and not found.messages:
        return "There are no messages yet, so there is nothing to index."
    if not found.messages:
        return f"There is no index yet; {count(stored, 'message')} to be indexed."
    behind = f", {count(found.lag, 'message')} behind" if found.lag else ", up to date"
    return f"{count(found.messages, 'message')} indexed{behind}, {size(found.size)}."


@index.command()
@with_sessions
def rebuild(desk: Desk) -> None:
    """Build the index anew from the transcripts. Searches go on with the old one meanwhile.

    \b
    Examples:
      herma index rebuild
    """
    stored = _stored(desk)
    if stored or _file(desk).exists():
        with desk.progress("Indexing messages", stored) as report:
            desk.h.index.rebuild(report, embedding=None)
    whole = _embed(desk, anew=True)
    found = desk.h.index.status()
    if desk.context.json:
        built = {"messages": found.messages, "lag": found.lag, "size": found.size}
        desk.context.print_json({"ok": whole, **built, "vectors": _vectors(found.vectors)})
    desk.context.line(f"Built anew: {_described(found, stored)}" if stored else _described(found, stored))
    if stored:
        _tell_vectors(desk, found.vectors)
    if not whole:
        desk.context.exit(1)


@index.command()
@with_sessions
def embed(desk: Desk) -> None:
    """Embed everything that is not embedded yet, for searching by meaning. It can be stopped and run again.

    Programs that stay open do this by themselves, a little at a time; commands that end at once never do.

    \b
    Examples:
      herma index embed
      herma index embed --json
    """
    whole = _embed(desk, anew=False)
    found = desk.h.index.status().vectors
    whole = whole and not found.trouble
    if desk.context.json:
        desk.context.print_json({"ok": whole, "vectors": _vectors(found)})
    elif not found.wanted:
        desk.context.line("There is no embedder, so there is nothing to do: searches go by words.")
        if found.trouble:
            desk.context.line(f"! {found.trouble}")
        else:
            desk.context.line(f"To have one: {desk.command('models', 'install', 'e5-small')}")
    else:
        _tell_vectors(desk, found)
    if not whole:
        desk.context.exit(1)


def _embed(desk: Desk, *, anew: bool) -> bool:
    """With a progress bar, where there is anything to do. → whether all of it is done."""
    vectors = desk.h.index.vectors
    if vectors is None or not (state := vectors.state()).wanted:
        return True
    many = _stored(desk) if anew else state.left
    shown = desk.context.progress("Embedding messages", many) if many > _MANY else nullcontext(silent)
    with shown as report:
        return vectors.rebuild(report) if anew else vectors.wait(progress=report)


@index.command()
@with_sessions
def verify(desk: Desk) -> None:
    """Compare the index with the transcripts; build it anew if they differ.

    \b
    Examples:
      herma index verify
      herma index verify --json
    """
    stored = _stored(desk)
    if not stored and not _file(desk).exists():
        if desk.context.json:
            desk.context.print_json({"ok": True, "trouble": None, "rebuilt": False})
        desk.context.line("There are no messages yet, so there is nothing to compare.")
        return
    desk.context.line(f"Comparing {count(stored, 'message')} with the index …")
    found = desk.h.index.verify()
    if desk.context.json:
        desk.context.print_json({"ok": True, "trouble": found.trouble or None, "rebuilt": found.rebuilt})
        return
    if found.trouble:
        desk.context.line(f"They differed ({found.trouble}), so it was built anew.")
    else:
        desk.context.line("The index is what the transcripts say.")


@index.command()
@yes_option
@with_sessions
def drop(desk: Desk) -> None:
    """Delete the index. Nothing is lost: the next search builds a new one.

    \b
    Examples:
      herma index drop --yes
    """
    there = _file(desk).exists()
    if there and not desk.context.confirm("Delete the index? The next search builds it again, which may take a while."):
        if desk.context.json:
            desk.context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was deleted."})
        desk.context.line("Nothing was deleted.")
        desk.context.exit(1)
    if there:
        desk.h.index.drop()
    if desk.context.json:
        desk.context.print_json({"ok": True, "dropped": there})
    desk.context.line("The index is deleted." if there else "There is no index.")
