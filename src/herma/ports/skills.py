"""Where skills are kept: folders with SKILL.md files, their history, the inbox, and how each skill did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from herma.errors import UsageError
from herma.types import Author, Skill, SkillChange, SkillFile, SkillPending, SkillState, SkillUsage, UnreadableSkill


class UnsafePath(UsageError):
    """A path that leads out of where it should stay, or that another system would take for another file."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Every skill there is, the home's own first, and the files that are refused. `stamp` differs when they do."""

    skills: tuple[Skill, ...] = ()
    refused: tuple[UnreadableSkill, ...] = ()
    categories: Mapping[str, str] | None = None
    """What is said about categories: name → description."""
    stamp: str = ""


@dataclass(frozen=True, slots=True)
class ArchivedSkill:
    """A skill in the archive: its folder there, and where it was. `at` is when it was put there, if that is known."""

    name: str
    folder: str
    path: str
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Incoming:
    """A skill from outside, as files in memory: (path, bytes, executable). `odd`: what could not be taken as a file, a
    link that leads out for one."""

    source: str
    folder: str
    files: Sequence[tuple[str, bytes, bool]]
    odd: Sequence[SkillFile] = ()


@dataclass(frozen=True, slots=True)
class NewSkillChange:
    """A change about to be made, as the history will keep it."""

    author: Author
    skill: str
    action: str
    reason: str = ""
    undoes: int | None = None


class SkillFolders(Protocol):
    """Skills as they lie on disk. Reading takes no lock and never fails because of one skill."""

    def look(self) -> Shelf: ...

    def files(self, skill: Skill, *, texts: bool = True) -> Sequence[SkillFile]:
        """Every file of a skill, SKILL.md first. Links that lead out are named and not read."""
        ...

    def read(self, skill: Skill, file: str) -> bytes | None:
        """One file, None when there is none. `UnsafePath` when the path leads out of the skill."""
        ...

    def archived(self) -> Sequence[ArchivedSkill]: ...

    def where(self, skill: Skill) -> str:
        """The folder, for people."""
        ...


class SkillWriting(Protocol):
    """Changing skills. Files and history change in one step, or not at all."""

    def hold(self, path: str | None = None) -> AbstractContextManager[None]:
        """Exclusive use until the block ends: earlier changes settled, edits by hand recorded (to the skill at `path`,
        which is taken into the history; or to all that are in it). `StoreBusy` after the deadline.
        """
        ...

    def write(self, path: str, file: str, expected: str, data: bytes | None, change: NewSkillChange) -> int:
        """Replace one file, or remove it (None), if its hash is still `expected` ('' for no file), else `StoreChanged`.
        → change id. `UnsafePath` when the path leads out, or another differs from it in nothing but case.
        """
        ...

    def move(self, source: str, target: str, change: NewSkillChange) -> int:
        """Move a skill's folder, to or from the archive. → change id."""
        ...

    def take_in(self, path: str, files: Sequence[tuple[str, bytes, bool]], change: NewSkillChange) -> int:
        """Make a whole skill at once: (file, bytes, executable). → change id."""
        ...


class SkillHistory(Protocol):
    """What happened to skills."""

    def changes(self, skill: str | None = None, *, limit: int | None = None) -> Sequence[SkillChange]:
        """Newest first: of one skill, or of all."""
        ...

    def change(self, change_id: int) -> SkillChange | None: ...


class SkillInbox(Protocol):
    """Staged writes that wait for a person."""

    def put(self, pending: SkillPending) -> SkillPending:
        """Keep it; an identical one that is already waiting, or that a person rejected, is returned instead."""
        ...

    def list(self, now: float) -> Sequence[SkillPending]:
        """What is waiting and not expired, oldest first."""
        ...

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        """Take one out, remembering the decision. False when it is not waiting (any more)."""
        ...


@dataclass(frozen=True, slots=True)
class Counted:
    """What happened to a skill just now."""

    uses: int = 0
    views: int = 0
    successes: int = 0
    failures: int = 0
    patches: int = 0
    resolves: bool = False
    """This is the outcome of a use: one that began with reading the skill is not counted again."""


class SkillUsageRows(Protocol):
    """How each skill is used."""

    def all(self) -> Mapping[str, SkillUsage]: ...

    def count(self, name: str, counted: Counted, at: float) -> SkillUsage:
        """Add to the numbers; two processes at once lose none."""
        ...

    def put(self, usage: SkillUsage) -> None:
        """Everything but the numbers: state, pin, origin, source, trust, times of creation and archiving."""
        ...

    def set_states(self, states: Mapping[str, SkillState], at: float) -> None:
        """Several states in one step."""
        ...
