"""What the curator needs: copies of all skills, a book of its runs, and to be the only one at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from herma.types.curator import CuratorMemory, CuratorReport, SkillSnapshotContent, SkillSnapshotInfo
from herma.types.skills import SkillUsage


class SkillSnapshots(Protocol):
    """Copies of all skills, archive and copies left out."""

    def take(self, snapshot_id: str, why: str, usage: Mapping[str, SkillUsage], at: float) -> SkillSnapshotInfo:
        """Make one, read it back, and only then call it made. When nothing changed since the newest, → that one."""
        ...

    def list(self) -> Sequence[SkillSnapshotInfo]:
        """Newest first; files that are none say what is wrong with them."""
        ...

    def read(self, snapshot_id: str) -> SkillSnapshotContent:
        """Everything in one, checked. `StoreError` when it is damaged, `UsageError` when there is none."""
        ...

    def prune(self, keep: int, spare: str) -> Sequence[str]:
        """Remove the oldest beyond so many, but not `spare`. → ids."""
        ...


class CuratorBook(Protocol):
    """What the curator writes down."""

    def alone(self) -> AbstractContextManager[bool]:
        """Hold the only place at the work while the block runs, over all processes; yields whether it was free."""
        ...

    def memory(self) -> CuratorMemory: ...

    def remember(self, memory: CuratorMemory) -> None: ...

    def write(self, report: CuratorReport, text: str) -> str:
        """Keep a report, and its text for people, in place of an earlier one of the same id. → where."""
        ...

    def reports(self, limit: int | None = None) -> Sequence[CuratorReport]:
        """Newest first."""
        ...

    def changed(self) -> Mapping[str, float]:
        """When each skill was last written or restored, by the history of skills."""
        ...

    def last_said(self, besides: str = "") -> float | None:
        """When anything was last said in this home, besides in this session. None: not lately."""
        ...
