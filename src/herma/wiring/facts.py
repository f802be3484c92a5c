"""Keyed facts over the history of curated memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from herma.curated import MemoryStore
from herma.curated.entries import join, parse, unique
from herma.facts import Facts
from herma.ports.curated import Place
from herma.recall.stem import stem
from herma.store.sqlite.curated import CuratedRows
from herma.store.sqlite.facts import SqliteFacts
from herma.store.sqlite.tail import SqliteTail
from herma.types import Change
from herma.wiring.ground import Ground
from herma.wiring.memory import targets_on

_FEW = 20
"""Changes that are read first: as a rule there are no more new ones."""


def facts(ground: Ground, memory: Callable[[], MemoryStore]) -> Facts:
    rows = CuratedRows(ground.database)
    tail = SqliteTail(ground.database)

    def changes(place: Place, since: int) -> Sequence[Change]:
        """Oldest first. Asking for the history records edits by hand."""
        newest = memory().history(place.target, scope=place.scope, limit=_FEW)
        if len(newest) == _FEW and newest[-1].id > since:
            newest = memory().history(place.target, scope=place.scope)
        return [_with_tail(change, tail) for change in reversed(newest) if change.id > since]

    def places() -> Iterable[Place]:
        return dict.fromkeys(Place.of(change.target, change.scope) for change in rows.changes())

    return Facts(
        SqliteFacts(ground.database),
        changes,
        places,
        lambda text: unique(parse(text)),
        enabled=targets_on(ground.settings.memory),
        profile=ground.settings.profile,
        stem=stem,
        clock=ground.clock,
        alive=ground.alive,
    )


def _with_tail(change: Change, tail: SqliteTail) -> Change:
    """A change as facts see it: an entry that only moved to the long tail to make room says what it said."""
    moved = tail.moved_by(change.id)
    return replace(change, after=join([*unique(parse(change.after)), *moved])) if moved else change
