"""The round: every check in order, each on its own, so that one that fails hides no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from herma import config
from herma.doctor import database, distilled, files, guests, models
from herma.doctor.check import Check, State
from herma.doctor.curator import check_curator
from herma.doctor.engine import check_engine
from herma.doctor.guests import GuestFailures
from herma.doctor.servers import check_servers
from herma.doctor.skills import check_skills
from herma.doctor.vectors import check_embedder, embedder_name
from herma.errors import ConfigError, StoreError

__all__ = ["Check", "Diagnosis", "State", "diagnose"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything that was looked at. Healthy means that there is no problem; warnings are for later."""

    home: Path
    checks: tuple[Check, ...]
    guests: tuple[GuestFailures, ...] = ()
    """Who failed in the last week; also told by a check each."""

    @property
    def healthy(self) -> bool:
        return not any(check.state == "problem" for check in self.checks)

    def of(self, state: State) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.state == state)


def diagnose(
    home: Path,
    settings: config.Settings | None = None,
    *,
    full: bool = False,
    clock: Callable[[], float] = time.time,
    progress: Progress | None = None,
) -> Diagnosis:
    """Look at everything under `home`. Without settings, its configuration is read here, and may be broken."""
    checks: list[Check] = []
    trouble: list[Check] = []
    if settings is None:
        settings, trouble = read_settings(home)
    now = clock()
    rounds: list[Callable[[], Iterator[Check]]] = [
        lambda: files.check_home(home),
        lambda: files.check_permissions(home),
        lambda: iter(trouble) if trouble else files.check_config(settings),
        lambda: files.check_curated(home, settings),
        lambda: check_skills(home, settings, now=now, full=full),
        lambda: check_curator(home, settings, now),
        lambda: files.check_leftovers(home),
        lambda: database.check_database(
            home, now=now, full=full, busy_timeout=settings.memory.lock_timeout, embedder=embedder_name(settings)
        ),
        lambda: check_embedder(settings),
        lambda: distilled.check_episodes(home, busy_timeout=settings.memory.lock_timeout),
        lambda: guests.check_provider(home, settings, now),
        lambda: models.check_models(settings),
        lambda: models.check_pauses(home, now),
        lambda: check_engine(home, settings),
        lambda: check_servers(settings),
        lambda: files.check_space(home),
        lambda: files.check_backups(home, now),
        lambda: files.check_neighbours(home),
        database.check_sqlite,
    ]
    if files.closed(home):  # everything else would only say so again
        rounds = [lambda: files.check_home(home), database.check_sqlite]
    for done, look in enumerate(rounds, 1):
        try:
            checks += look()
        except (StoreError, OSError) as exc:
            checks.append(Check("doctor", "problem", str(exc), getattr(exc, "hint", "")))
        if progress:
            progress(done, len(rounds))
    return Diagnosis(home, tuple(checks), guests.failures(home, now))


def read_settings(home: Path) -> tuple[config.Settings, list[Check]]:
    """The settings of this home, or the defaults and what is wrong with the file."""
    try:
        return config.load(home=home), []
    except ConfigError as exc:
        return config.Settings(home=home), [Check("configuration", "problem", str(exc), exc.hint)]
