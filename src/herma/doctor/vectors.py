"""`index.db.vectors`: whole, in step with `herma.db`, and does its embedder answer?"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check, counted, size
from herma.errors import StoreError
from herma.ports import IndexUnusable
from herma.store.sqlite.checkup import Examination
from herma.store.sqlite.index_vectors import SqliteVectors

_NAME = "index.db.vectors"
_EMBED = "herma index embed"


def check_embedder(settings: Settings) -> Iterator[Check]:
    """Nothing is said where none was asked for, and nobody is asked: what fails when asked is in the file."""
    from herma.models.embedding.choose import make_embedder

    choice = make_embedder(settings.embedding, home=settings.home)
    if choice.embedder is None and choice.wanted:
        yield Check("embedder", "warning", f"{choice.reason}; words alone are searched.", "herma models list")


def embedder_name(settings: Settings) -> str:
    """What is set up here, by the name that its vectors have; empty where there is nothing."""
    from herma.models.embedding.choose import make_embedder

    chosen = make_embedder(settings.embedding, home=settings.home).embedder
    return chosen.name if chosen is not None else ""


def check_vectors(home: Path, found: Examination, now: float, embedder: str) -> Iterator[Check]:
    """Nothing is said where nothing was ever embedded: search is good without. Only what the embedder that is set up
    here has not read yet is something to do.
    """
    store = SqliteVectors(home)
    if not store.path.exists():
        return
    try:
        file = store.file()
    except IndexUnusable:
        yield Check(_NAME, "note", "It is damaged; vectors are made again in the background.", _EMBED)
        return
    except StoreError as exc:
        yield Check(_NAME, "note", str(exc))
        return
    finally:
        store.close()
    if (file.noticed.store_id, file.noticed.epoch) != (found.store_id, found.epoch):
        yield Check(_NAME, "note", "It belongs to another state of herma.db; vectors are compared anew.", _EMBED)
        return
    for model in file.models:
        if model.name == embedder:
            left = max(0, file.appended - model.reach.walked)
            rest = f"{counted(left, 'message')} to be embedded" if left else "up to date"
            what = f"{model.vectors:,} vectors by {model.name}, {rest}, {size(file.size)} in all."
            yield Check(_NAME, "note" if left else "ok", what, _EMBED if left else "")
        else:
            what = f"{model.vectors:,} vectors by {model.name}, which is not set up here; unused ones go by themselves."
            yield Check(_NAME, "ok", what)
    if embedder and file.models and all(model.name != embedder for model in file.models):
        wait = f"{counted(file.appended, 'message')} to be embedded"
        yield Check(_NAME, "note", f"None are by {embedder} yet: {wait}; words are searched meanwhile.", _EMBED)
    if file.trouble.message:
        until = datetime.fromtimestamp(file.trouble.retry_at).astimezone().strftime("%H:%M:%S")
        rest = f"it is left alone until {until}" if file.trouble.retry_at > now else "it is asked again when needed"
        times = f"{file.trouble.failures} times in a row" if file.trouble.failures > 1 else "once"
        sentence = (
            f"{file.trouble.model} failed {times} ({file.trouble.message}); {rest}. Words are searched meanwhile."
        )
        yield Check("embedder", "warning", sentence, _EMBED)
