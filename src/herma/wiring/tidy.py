"""Curated memory in order: tidying, and how the texts of the long tail are embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from herma.curated import MemoryStore
from herma.curated.tail import KIND, scope_key
from herma.jobs.worker import Worker
from herma.ports import ChatModel, Place
from herma.ports.vectors import Embeddable
from herma.providers.guard import Trouble
from herma.reflect.tidying import Tidying, TidyNeeds
from herma.store.local_checks import LocalChecks
from herma.store.locks import exclusive
from herma.store.sqlite.tail import SqliteTail
from herma.wiring.ground import Ground
from herma.wiring.troubles import written_down

LOCK = ".tidy.lock"
DRAIN = 2.0
"""Seconds that closing waits for tidying; it is due again the next time."""


class Tidy(Tidying):
    """`h.tidy`: call it, or let it happen by itself after a reply."""

    def __init__(self, needs: TidyNeeds, worker: Worker) -> None:
        super().__init__(needs)
        self.worker = worker

    def wait(self, timeout: float = 10.0) -> bool:
        """Until nothing is being tidied. → whether that was so in time."""
        return self.worker.wait(timeout)

    def close(self) -> None:
        self.worker.close(DRAIN)


def tidy(ground: Ground, memory: MemoryStore, model: Callable[[], ChatModel | None]) -> Tidy:
    options = ground.settings.memory
    shown = written_down(ground)
    needs = TidyNeeds(
        memory,
        SqliteTail(ground.database),
        checks=lambda scope: LocalChecks(scope.project),
        model=model,
        alone=lambda: _alone(ground),
        policy=options.tidy,
        days=options.tidy_days,
        clock=ground.clock,
    )
    return Tidy(needs, Worker("herma: tidying", failed=lambda what, why: shown(Trouble("tidying", what, why))))


@dataclass(frozen=True, slots=True)
class TailTexts:
    """The long tail as the vector index takes it."""

    rows: SqliteTail
    kind: str = KIND

    def version(self) -> str:
        return self.rows.version()

    def texts(self) -> Iterator[Embeddable]:
        for one in self.rows.select(None):
            if one.forgotten is None:
                yield Embeddable(str(one.id), one.text, scope_key(Place.of(one.target, one.scope)))


def tail_texts(ground: Ground) -> TailTexts:
    return TailTexts(SqliteTail(ground.database))


def _alone(ground: Ground) -> AbstractContextManager[object]:
    """Held by whoever tidies this home; somebody else is waited for only a moment."""
    ground.home.mkdir(parents=True, exist_ok=True)
    return exclusive(ground.home / LOCK, min(0.2, ground.settings.memory.lock_timeout))
