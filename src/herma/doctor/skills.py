"""The skills on disk: what is refused and why, what the scanner calls dangerous, and what waits for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check, counted, some
from herma.skills.document import read_skill
from herma.skills.guard import inspect
from herma.store.skill_files import SkillFiles, external_folders
from herma.store.sqlite.checkup import state_of
from herma.store.sqlite.database import Database
from herma.store.sqlite.skills import SkillRows, SqliteSkillInbox, SqliteSkillUsage
from herma.types import Skill


@dataclass(frozen=True, slots=True)
class _Rows:
    vouched: frozenset[str] = frozenset()
    waiting: int = 0


def check_skills(home: Path, settings: Settings, *, now: float, full: bool) -> Iterator[Check]:
    """Quickly: what is there and what is refused. With `full`, every file of every skill is scanned too."""
    external = external_folders(home, settings.skills.external_dirs)
    if not external and not (home / "skills").is_dir():
        return
    database = Database(home / "herma.db", busy_timeout=settings.memory.lock_timeout)
    with closing(database):
        files = SkillFiles(home, SkillRows(database, settings.profile), read_skill, external)
        shelf = files.look()
        rows = _rows(home, settings, database, now)
        dangerous = [skill.path for skill in shelf.skills if full and _is_dangerous(files, skill, rows)]
    if dangerous:
        called = f"{counted(len(dangerous), 'skill')} dangerous ({some(dangerous)})"
        sentence = f"The scanner calls {called}; agents are not shown what is dangerous."
        yield Check("skills", "warning", sentence, "herma skills scan NAME")
    if shelf.refused:
        listed = some([f"{each.path or each.root}: {each.reason}" for each in shelf.refused])
        sentence = f"{counted(len(shelf.skills), 'skill')}; refused: {len(shelf.refused)} ({listed})."
        yield Check("skills", "note", sentence, "herma skills list --all")
    elif not dangerous:
        yield Check("skills", "ok", f"{counted(len(shelf.skills), 'skill')}, nothing wrong.")
    if rows.waiting:
        waiting = counted(rows.waiting, "write to a skill waits", "writes to skills wait")
        yield Check("skills", "note", f"{waiting} for a person.", "herma skills pending")


def _rows(home: Path, settings: Settings, database: Database, now: float) -> _Rows:
    if state_of(home / "herma.db")[0] != "ours":
        return _Rows()
    usage = SqliteSkillUsage(database, settings.profile).all()
    waiting = SqliteSkillInbox(database, settings.profile).list(now)
    return _Rows(frozenset(each.vouched for each in usage.values() if each.vouched), len(waiting))


def _is_dangerous(files: SkillFiles, skill: Skill, rows: _Rows) -> bool:
    return skill.hash not in rows.vouched and inspect(files.files(skill)).verdict == "dangerous"
