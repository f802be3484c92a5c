"""Curated memory: files and their history under the keeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herma.curated import MemoryStore
from herma.curated.tail import TERMS, TailParts
from herma.settings import MemorySettings
from herma.store.files import CuratedFiles
from herma.store.sqlite.curated import CuratedRows
from herma.store.sqlite.inbox import SqliteInbox
from herma.store.sqlite.tail import SqliteTail
from herma.types import Target
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.ports.vectors import VectorIndex


def memory_store(ground: Ground, vectors: Callable[[], VectorIndex | None] = lambda: None) -> MemoryStore:
    options = ground.settings.memory
    rows = CuratedRows(ground.database)
    return MemoryStore(
        CuratedFiles(ground.home, rows, lock_timeout=options.lock_timeout, clock=ground.clock),
        rows,
        SqliteInbox(ground.database),
        limits={"memory": options.memory_char_limit, "user": options.user_char_limit},
        enabled=targets_on(options),
        profile=ground.settings.profile,
        write_approval=options.write_approval,
        inbox_days=options.inbox_days,
        clock=ground.clock,
        alive=ground.alive,
        tail=TailParts(SqliteTail(ground.database), tail_terms, vectors),
    )


def targets_on(options: MemorySettings) -> list[Target]:
    """Which curated files take part; what is switched off is neither shown nor written nor asked."""
    on: dict[Target, bool] = {"memory": options.memory_enabled, "user": options.user_profile_enabled}
    return [target for target, is_on in on.items() if is_on]


def tail_terms(text: str) -> Sequence[str]:
    """What an entry of the long tail is found by: stems of words that say something."""
    from herma.episodes.similar import Language, terms_of
    from herma.recall.stem import stem
    from herma.recall.stopwords import STOP_WORDS

    return terms_of(text, Language(STOP_WORDS, stem), TERMS)
