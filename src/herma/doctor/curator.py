"""How skills are kept in shape: when that was last done, when it will be, and what it left behind."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check, counted, some
from herma.store.curator_book import CuratorFiles
from herma.store.skill_files import ARCHIVE
from herma.store.skill_snapshots import SkillSnapshotFiles

_HOUR = 3_600.0


def check_curator(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Nothing, where there were no skills yet."""
    book = CuratorFiles(home)
    memory = book.memory()
    snapshots = SkillSnapshotFiles(home).list()
    if broken := [each.id for each in snapshots if each.trouble]:
        yield Check("curator", "warning", f"Snapshots that cannot be used: {some(broken)}.", "herma curator run")
    last = next(iter(book.reports(1)), None)
    if last is not None and last.state in ("interrupted", "failed", "running"):
        said = {"running": "is at work, or was cut off", "interrupted": "was cut off", "failed": "failed in part"}
        yield Check("curator", "note", f"The run {last.id} {said[last.state]}.", "herma curator report")
    if memory.seen is None and memory.last_run is None:
        return
    try:
        archived = sum(1 for each in (home / "skills" / ARCHIVE).iterdir() if each.is_dir())
    except OSError:
        archived = 0
    ran = f"last run {_day(memory.last_run)}" if memory.last_run is not None else "no run yet"
    since = memory.last_run if memory.last_run is not None else memory.seen or now
    due = since + settings.curator.interval_hours * _HOUR
    then = "next when nobody is at work" if due <= now else f"next from {_day(due)} on"
    if not settings.curator.enabled:
        then = "switched off"
    kept = f"{counted(archived, 'skill')} in the archive, {counted(len(snapshots), 'snapshot')}"
    yield Check("curator", "ok", f"{ran}, {then}; {kept}.")


def _day(at: float | None) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
