"""Curated memory: files and their history under the keeper."""

from __future__ import annotations

from herma.curated import MemoryStore
from herma.store.files import CuratedFiles
from herma.store.sqlite.curated import CuratedRows
from herma.store.sqlite.inbox import SqliteInbox
from herma.types import Target
from herma.wiring.ground import Ground


def memory_store(ground: Ground) -> MemoryStore:
    options = ground.settings.memory
    enabled: dict[Target, bool] = {"memory": options.memory_enabled, "user": options.user_profile_enabled}
    rows = CuratedRows(ground.database)
    return MemoryStore(
        CuratedFiles(ground.home, rows, lock_timeout=options.lock_timeout, clock=ground.clock),
        rows,
        SqliteInbox(ground.database),
        limits={"memory": options.memory_char_limit, "user": options.user_char_limit},
        enabled=[target for target, on in enabled.items() if on],
        profile=ground.settings.profile,
        write_approval=options.write_approval,
        inbox_days=options.inbox_days,
        clock=ground.clock,
        alive=ground.alive,
    )
