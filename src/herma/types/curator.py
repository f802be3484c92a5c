"""Keeping skills in shape: what the curator may do, what it decided and why, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from herma.types.skills import Skill, SkillOrigin, SkillState, SkillUsage

_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class CuratorRules:
    """By what the curator goes. Times are seconds."""

    stale: float = 30 * _DAY
    """Unused for so long: stale."""
    archive: float = 90 * _DAY
    """Unused for so long: to the archive."""
    notice: float = 7 * _DAY
    """So long before that, at least, a report must have named it."""
    interval: float = 7 * _DAY
    most: int = 10
    """Skills that go to the archive in one interval, at most."""
    origins: frozenset[SkillOrigin] = frozenset(("agent",))
    """Whose skills may become stale and go to the archive."""
    uses: int = 5
    """So many outcomes must be known before failures count."""
    rate: float = 0.5
    """Below this part of successes a skill needs review."""


@dataclass(frozen=True, slots=True)
class Flag:
    """That the curator said a skill needs review. Once the skill was changed, what it did before counts no more."""

    at: float
    why: str
    successes: int = 0
    failures: int = 0
    lifted: bool = False


@dataclass(frozen=True, slots=True)
class CuratorMemory:
    """What the curator knows from earlier runs."""

    seen: float | None = None
    """When it first looked at this home."""
    last_run: float | None = None
    runs: int = 0
    noticed: Mapping[str, float] = field(default_factory=dict)
    """Skill → since when reports name it as unused."""
    flagged: Mapping[str, Flag] = field(default_factory=dict)
    """Skill → that the curator said it needs review: only what it said itself it takes back."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Pair of skills → their texts when a model was last asked for one text: it is not asked again for the same."""
    clean: tuple[str, ...] = ()
    """Texts (beginnings of their hashes) that the scanner has nothing against: they are not read again."""
    scanner: str = ""
    """Which scanner said so."""


@dataclass(frozen=True, slots=True)
class SkillStanding:
    """One skill of the home, with what is known of it."""

    skill: Skill
    usage: SkillUsage | None = None
    changed: float | None = None
    """When it was last written or restored, by the history."""
    broken: str = ""
    """What is wrong with it: the scanner's verdict, a dependency that is not there."""


MoveResult: TypeAlias = Literal["planned", "done", "staged", "skipped", "failed"]
"""`staged`: it waits for a person in the inbox of skills."""


@dataclass(frozen=True, slots=True)
class CuratorMove:
    """One skill in another state, and why. `change` is its number in the history of skills, where files moved."""

    skill: str
    path: str
    before: SkillState
    after: SkillState
    reason: str
    result: MoveResult = "planned"
    said: str = ""
    """Why it was skipped, or what went wrong."""
    change: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """Two skills that say nearly the same. They are never merged without a person."""

    skills: tuple[str, str]
    why: str
    degree: float
    pending: tuple[int, ...] = ()
    """Numbers in the inbox, where a model proposed one text for both."""
    said: str = ""
    """What came of asking a model."""


@dataclass(frozen=True, slots=True)
class CuratorPlan:
    """What should be done now. `kept`: skills that would go, if something did not protect them: name → why."""

    moves: tuple[CuratorMove, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    seeds: tuple[str, ...] = ()
    """Skills of which nothing is known yet: from now on their age is counted."""
    aging: frozenset[str] = frozenset()
    """Skills that are unused for long enough to be named."""


RunState: TypeAlias = Literal["running", "done", "interrupted", "failed"]


@dataclass(frozen=True, slots=True)
class CuratorReport:
    """One run: what was done to which skill and why, what protects others, and what could be merged."""

    id: str
    begun: float
    why: str
    state: RunState = "running"
    ended: float | None = None
    dry_run: bool = False
    snapshot: str = ""
    checked: int = 0
    moves: tuple[CuratorMove, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    merges: tuple[MergeCandidate, ...] = ()
    notes: tuple[str, ...] = ()
    diff: str = ""
    """The list of skills before and after, line by line."""

    @property
    def done(self) -> tuple[CuratorMove, ...]:
        return tuple(move for move in self.moves if move.result == "done")


@dataclass(frozen=True, slots=True)
class SkillSnapshotInfo:
    """A copy of all skills as they were. `trouble`: why it cannot be used, if so."""

    id: str
    at: float
    why: str
    skills: int
    size: int
    digest: str = ""
    """Of files and states: two snapshots of the same have the same."""
    skipped: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class SkillSnapshotContent:
    """What is in a snapshot: per folder of a skill its files (path, bytes, executable), and what was known of each."""

    info: SkillSnapshotInfo
    folders: Mapping[str, tuple[tuple[str, bytes, bool], ...]]
    usage: Mapping[str, SkillUsage]


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did, or would do: each skill and how. `left`: what is otherwise than then, and stays so."""

    snapshot: str
    dry_run: bool = False
    before: str = ""
    """The snapshot of how things were before the rollback."""
    done: tuple[tuple[str, str], ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()

    @property
    def ok(self) -> bool:
        return not self.failed


@dataclass(frozen=True, slots=True)
class CuratorStatus:
    """How things stand: when it ran and will run, how many skills are in which state, and what a run would do now."""

    enabled: bool
    last_run: float | None
    next_run: float | None
    """None: nothing is known of skills here yet, or it is switched off."""
    runs: int
    states: Mapping[str, int]
    pinned: int
    archived: int
    snapshots: int
    last: CuratorReport | None = None
    plan: CuratorPlan = field(default_factory=CuratorPlan)
