"""Skill, operations, outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol, TypeAlias

from herma.errors import UsageError
from herma.types import Author, Finding

# ---------- types.skills
#
# Skills: what one is, what is kept about it, what may be done to it, and what came of that.

SkillState: TypeAlias = Literal["active", "needs_review", "stale", "deprecated", "archived"]
SKILL_STATES: tuple[SkillState, ...] = ("active", "needs_review", "stale", "deprecated", "archived")
SkillOrigin: TypeAlias = Literal["user", "agent", "installed", "found", "external"]
"""Who made it: a person, an agent, somebody outside (installed), somebody who put it into the folder (found), or it
lies in a folder that is only read (external)."""
SUPPORT_FOLDERS = ("references", "templates", "scripts", "assets")
"""The folders that a skill may have beside its SKILL.md."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One `{name}` of a skill's template."""

    name: str
    description: str = ""
    required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    """A written procedure: what its SKILL.md says.

    `path` is its folder under `root`, `category/name` or `name`; `root` is empty for the home's own skills.
    """

    name: str
    description: str
    body: str = ""
    path: str = ""
    root: str = ""
    category: str = ""
    license: str = ""
    release: str = ""
    """The author's version string; `version` is the integer that Herma keeps."""
    version: int | None = None
    triggers: tuple[str, ...] = ()
    template: str = ""
    language: str = ""
    """What the template is written in, if it says so."""
    parameters: tuple[Parameter, ...] = ()
    dependencies: tuple[str, ...] = ()
    pitfalls: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    related: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    compatibility: str = ""
    requires_tools: tuple[str, ...] = ()
    fallback_for_tools: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Environment variables that it needs."""
    hash: str = field(default="", compare=False)
    """Of the bytes of its SKILL.md."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """What was odd about the file, for people."""

    @property
    def external(self) -> bool:
        return bool(self.root)

    @property
    def required(self) -> tuple[str, ...]:
        """Parameters without which the template cannot be filled."""
        return tuple(parameter.name for parameter in self.parameters if parameter.required)


@dataclass(frozen=True, slots=True)
class UnreadableSkill:
    """A SKILL.md that is refused, and why."""

    path: str
    reason: str
    root: str = ""


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill. `text` is None where the file is not text."""

    path: str
    size: int
    text: str | None = None
    executable: bool = False
    link: str = ""
    """Where it leads, if it is a symbolic link that leaves the folder, or leads nowhere."""


@dataclass(frozen=True, slots=True)
class SkillUsage:
    """What is known about the use of a skill. Times are seconds since 1970."""

    name: str
    uses: int = 0
    views: int = 0
    successes: int = 0
    failures: int = 0
    patches: int = 0
    created: float | None = None
    last_used: float | None = None
    last_viewed: float | None = None
    last_patched: float | None = None
    state: SkillState = "active"
    pinned: bool = False
    origin: SkillOrigin = "found"
    source: str = ""
    """Where it came from, in words or as an address."""
    vouched: str = ""
    """The hash of the SKILL.md that a person trusts although the scanner objects."""
    archived_at: float | None = None

    @property
    def success_rate(self) -> float:
        """1.0 until something is known."""
        known = self.successes + self.failures
        return self.successes / known if known else 1.0

    @property
    def last_touched(self) -> float | None:
        """The newest of used, viewed and patched, else when it was created."""
        times = [t for t in (self.last_used, self.last_viewed, self.last_patched) if t is not None]
        return max(times, default=self.created)


@dataclass(frozen=True, slots=True)
class SkillOffer:
    """Whether a skill is offered here and now, and if not, why."""

    offered: bool
    reason: str = ""
    missing_environment: tuple[str, ...] = ()

    @property
    def readiness(self) -> Literal["available", "setup_needed", "unsupported"]:
        if not self.offered:
            return "unsupported"
        return "setup_needed" if self.missing_environment else "available"


# ── what may be done ──


@dataclass(frozen=True, slots=True)
class CreateSkill:
    """Write a new skill: `content` is the whole SKILL.md."""

    name: str
    content: str
    category: str = ""
    despite_similar: bool = False


@dataclass(frozen=True, slots=True)
class EditSkill:
    """Put `content` in the place of the whole SKILL.md."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class PatchSkill:
    """Put `new` in the place of the one passage `old` of a file."""

    name: str
    old: str
    new: str
    file: str = "SKILL.md"
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSkill:
    """Move a skill to the archive; `absorbed_into` names the skill that does its work from now on."""

    name: str
    absorbed_into: str = ""


@dataclass(frozen=True, slots=True)
class WriteSkillFile:
    """Write a file under references/, templates/, scripts/ or assets/."""

    name: str
    file: str
    content: str


@dataclass(frozen=True, slots=True)
class RemoveSkillFile:
    """Remove a file under references/, templates/, scripts/ or assets/."""

    name: str
    file: str


SkillOp: TypeAlias = CreateSkill | EditSkill | PatchSkill | DeleteSkill | WriteSkillFile | RemoveSkillFile


# ── what came of it ──

RefusalKind: TypeAlias = Literal[
    "not found",
    "ambiguous",
    "exists",
    "similar",
    "invalid",
    "no match",
    "several matches",
    "blocked",
    "pinned",
    "read only",
    "unsafe path",
    "too large",
    "rejected",
    "overtaken",
    "not allowed",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _SkillOutcome:
    name: str
    message: str

    ok: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillWritten(_SkillOutcome):
    """It is on disk; `change` is its number in the history."""

    ok: ClassVar[bool] = True
    path: str = ""
    change: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUnchanged(_SkillOutcome):
    """It is like that already."""

    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillStaged(_SkillOutcome):
    """Waiting in the inbox for a person's decision."""

    ok: ClassVar[bool] = True
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRefused(_SkillOutcome):
    """Nothing was written, and why."""

    kind: RefusalKind
    matches: tuple[str, ...] = ()
    preview: str = ""
    findings: tuple[Finding, ...] = ()


SkillOutcome: TypeAlias = SkillWritten | SkillUnchanged | SkillStaged | SkillRefused


@dataclass(frozen=True, slots=True)
class SkillChange:
    """One row of history. `before` and `after` are the file's text, None where there was none; a folder that was moved
    or installed has no texts, but `moved_from` and `moved_to`."""

    id: int
    at: float
    skill: str
    path: str
    file: str
    author: Author
    action: str
    before: str | bytes | None = None
    after: str | bytes | None = None
    moved_from: str = ""
    moved_to: str = ""
    reason: str = ""
    undoes: int | None = None
    undone_by: int | None = None


@dataclass(frozen=True, slots=True)
class SkillPending:
    """One staged write, waiting for a person's decision."""

    id: int
    at: float
    expires: float
    author: Author
    operation: SkillOp
    reason: str = ""
    decision: Literal["", "approved", "rejected"] = ""


# ── finding one for a task ──

FindMode: TypeAlias = Literal["words", "vectors", "hybrid"]


@dataclass(frozen=True, slots=True)
class SkillMatch:
    """A skill that fits a task: how well, and why."""

    skill: Skill
    score: float
    similarity: float
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.skill.name


@dataclass(frozen=True, slots=True)
class SkillMatches:
    """The skills that fit a task, best first; or none, and why: no skill is better than a wrong one."""

    task: str
    matches: tuple[SkillMatch, ...] = ()
    abstained: str = ""
    nearest: tuple[SkillMatch, ...] = ()
    """What came nearest, when nothing fits."""
    notes: tuple[str, ...] = ()


# ── skills from outside ──

Verdict: TypeAlias = Literal["safe", "caution", "dangerous"]
Trust: TypeAlias = Literal["builtin", "trusted", "community", "agent-created"]
TRUSTS: tuple[Trust, ...] = ("builtin", "trusted", "community", "agent-created")
Severity: TypeAlias = Literal["critical", "high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class SkillFinding:
    """One thing the skill scanner objects to."""

    rule: str
    category: str
    severity: Severity
    file: str
    line: int
    why: str
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class SkillReport:
    """What the scanner says of a skill as a whole."""

    verdict: Verdict
    findings: tuple[SkillFinding, ...] = ()
    files: int = 0


# ---------- ports.skills
#
# Where skills are kept: folders with SKILL.md files, their history, the inbox, and how each skill did.


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
