"""The curator: skills, snapshots and reports under it, and how it follows sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.errors import ConfigError
from herma.ports import ChatModel
from herma.ports.observer import Watcher
from herma.settings import CuratorSettings
from herma.turn.company import Company, Invite
from herma.types import MOVES, CompletedTurn, SessionView
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.reflect.curator import Curator
    from herma.reflect.curator_desk import CuratorOptions
    from herma.skills import SkillLibrary
    from herma.types import SkillOrigin

_HOUR, _DAY = 3_600.0, 86_400.0
_ORIGINS: dict[str, SkillOrigin] = {"agent": "agent", "installed": "installed", "user": "user", "found": "found"}
_WORKING = ("primary", "cron")


def curator(ground: Ground, library: Callable[[], SkillLibrary], model: Callable[[], ChatModel | None]) -> Curator:
    from herma.providers.guard import Trouble
    from herma.reflect.curator import Curator
    from herma.reflect.curator_desk import CuratorDesk
    from herma.skills.catalogue import Catalogue, Surroundings
    from herma.skills.document import read_skill
    from herma.store.curator_book import CuratorFiles
    from herma.store.skill_files import SkillFiles, external_folders
    from herma.store.skill_snapshots import SkillSnapshotFiles
    from herma.store.skill_writing import SkillFileWriting
    from herma.store.sqlite.skills import SkillRows, SqliteSkillUsage
    from herma.wiring.troubles import written_down

    settings = ground.settings
    rows = SkillRows(ground.database, settings.profile)
    usage = SqliteSkillUsage(ground.database, settings.profile)
    folders = SkillFiles(ground.home, rows, read_skill, external_folders(ground.home, settings.skills.external_dirs))
    writing = SkillFileWriting(ground.home, rows, lock_timeout=settings.memory.lock_timeout, clock=ground.clock)
    shown = written_down(ground)
    desk = CuratorDesk(
        library=library,
        catalogue=Catalogue(folders, usage, Surroundings()),
        usage=usage,
        hold=writing.hold,
        snapshots=SkillSnapshotFiles(ground.home),
        book=CuratorFiles(ground.home, ground.database, settings.profile),
        clock=ground.clock,
        model=model,
        alive=ground.alive,
        failed=lambda what, why: shown(Trouble("the curator", what, why)),
    )
    return Curator(desk, curator_options(settings.curator, approval=settings.skills.write_approval))


def curator_options(settings: CuratorSettings, *, approval: bool = False) -> CuratorOptions:
    """`curator.*`, checked."""
    from herma.reflect.curator_desk import CuratorOptions
    from herma.types.curator import CuratorRules

    named = [part.strip() for part in settings.origins.split(",") if part.strip()]
    unknown = [name for name in named if name not in _ORIGINS]
    if unknown:
        raise ConfigError(
            f"curator.origins names {unknown[0]!r}.", hint=f"Use {', '.join(_ORIGINS)}, separated by commas."
        )
    if settings.archive_days < settings.stale_days:
        raise ConfigError(
            f"curator.archive_days ({settings.archive_days:g}) is less than curator.stale_days"
            f" ({settings.stale_days:g}).",
            hint="A skill is stale before it goes to the archive.",
        )
    rules = CuratorRules(
        stale=settings.stale_days * _DAY,
        archive=settings.archive_days * _DAY,
        notice=settings.notice_days * _DAY,
        interval=settings.interval_hours * _HOUR,
        most=settings.most_archived,
        origins=frozenset(_ORIGINS[name] for name in named),
        uses=settings.review_uses,
        rate=settings.review_rate,
    )
    idle = settings.min_idle_hours * _HOUR
    return CuratorOptions(rules, settings.enabled, idle, settings.keep_snapshots, approval, settings.consolidate)


def with_curator(ground: Ground, made: Callable[[], Curator]) -> Invite:
    """In every session: a run in the background when it is due and nobody is at work."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.curator.enabled or view.circumstances.context not in _WORKING:
            return Company()
        return Company(watchers=[CuratorWatcher(made, (ground.home / "skills").is_dir)])

    return invite


class CuratorWatcher(Watcher):
    """Says when a reply was given and when a session ended."""

    name = "the curator"

    def __init__(self, made: Callable[[], Curator], needed: Callable[[], bool]) -> None:
        self._made = made
        self._needed = needed

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        if self._needed():
            self._made().later(view.id, ended=False)

    def closing(self, view: SessionView, reason: str) -> None:
        if reason not in MOVES and view.messages and self._needed():
            self._made().later(view.id, ended=True)
