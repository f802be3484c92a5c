"""What was distilled of conversations: whether every one that ended has its episode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from herma.doctor.check import Check, counted
from herma.store.sqlite.checkup import state_of
from herma.store.sqlite.database import Database
from herma.store.sqlite.episodes import SqliteEpisodes
from herma.store.sqlite.glimpses import SqliteGlimpses

_MANY = 1_000


def check_episodes(home: Path, *, busy_timeout: float) -> Iterator[Check]:
    """How many there are, and how many conversations went on or ended without getting one."""
    path = home / "herma.db"
    if state_of(path)[0] != "ours":
        return
    with closing(Database(path, busy_timeout=busy_timeout)) as database:
        live = SqliteEpisodes(database).live_count()
        without = len(SqliteGlimpses(database).without_episode(_MANY, "", everything=False))
    if not without:
        yield Check("episodes", "ok", f"{live:,} at hand; every conversation was looked at.")
        return
    which = counted(without, "conversation has", "conversations have")
    many = f"at least {which}" if without == _MANY else which
    said = f"{live:,} at hand; {many} none yet, or went on since: those that are open, or broke off."
    yield Check("episodes", "note", said, "herma episodes rebuild")
