"""How curated memory follows sessions: what the long tail has for a turn, and tidying after the reply."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.curated import MemoryStore
from herma.reflect.tail_watch import CuratedWatcher
from herma.turn.company import Company, Invite
from herma.types import SessionView
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.wiring.tidy import Tidy


def with_curated(ground: Ground, memory: Callable[[], MemoryStore], tidy: Callable[[], Tidy]) -> Invite:
    """In every session. Tidying is made after the first reply: before that there is nothing to stop."""
    options = ground.settings.memory
    begun = threading.Event()

    def submit(what: str, work: Callable[[threading.Event], None], owner: str) -> None:
        begun.set()
        tidy().worker.submit(what, work, owner=owner)

    def stop(owner: str) -> None:
        if begun.is_set():
            tidy().worker.cancel(owner)

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        if rehearsal or not (options.memory_enabled or options.user_profile_enabled):
            return Company()
        watcher = CuratedWatcher(
            memory,
            tidy,
            submit,
            stop,
            recalled=options.tail_recall,
            uses=options.tail_uses,
        )
        return Company([watcher])

    return invite
