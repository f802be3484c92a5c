"""Define the values of skills (skills, operations, outcomes, reports), and keep their rows; on a server also
their files, for all hosts.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from herma.errors import StoreBusy, StoreError, UsageError
from herma.memory.files import author_columns
from herma.store.database import Blob, Database, DatabaseConnection, parsed
from herma.store.files import make_folder, replace_file
from herma.types import Author, Finding, Origin, Who

SkillState: TypeAlias = Literal["active", "needs_review", "stale", "deprecated", "archived"]
SKILL_STATES: tuple[SkillState, ...] = ("active", "needs_review", "stale", "deprecated", "archived")
SkillOrigin: TypeAlias = Literal["user", "agent", "installed", "found", "external"]
"""Its author: a person, an agent, another author (installed), unknown (found in the folder), or it is in a read-only
folder (external)."""
SUPPORT_FOLDERS = ("references", "templates", "scripts", "assets")
"""The folders that a skill may have beside its SKILL.md."""


class UnsafePath(UsageError):
    """A path that leads out of where it should stay, or that another system would take for another file."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One `{name}` of a skill's template."""

    name: str
    description: str = ""
    required: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Skill:
    """A written procedure, as its SKILL.md has it.

    `path` is its folder under `root`, `category/name` or `name`; `root` is empty for the home's own skills. `release`
    is the author's version string, `version` the integer that Herma keeps, `language` that of the template,
    `environment` names the variables that it needs. `hash` is that of the bytes of its SKILL.md, `warnings` says what
    is odd about the file.
    """

    name: str
    description: str
    body: str = ""
    path: str = ""
    root: str = ""
    category: str = ""
    license: str = ""
    release: str = ""
    version: int | None = None
    triggers: tuple[str, ...] = ()
    template: str = ""
    language: str = ""
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
    hash: str = field(default="", compare=False)
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def external(self) -> bool:
        return bool(self.root)

    @property
    def required(self) -> tuple[str, ...]:
        """Parameters without which the template cannot be filled."""
        return tuple(parameter.name for parameter in self.parameters if parameter.required)


class UnreadableSkill(NamedTuple):
    """A SKILL.md that is refused, and why."""

    path: str
    reason: str
    root: str = ""


class SkillListing(NamedTuple):
    """All skills, the home's own first, and the files that are refused. `categories`: name → description. `stamp`
    changes when any of them does."""

    skills: tuple[Skill, ...]
    refused: tuple[UnreadableSkill, ...]
    categories: Mapping[str, str]
    stamp: str


@dataclass(frozen=True, slots=True)
class SkillFile:
    """One file of a skill. `text` is None if the file is not text. `link`: where a symbolic link leads that leaves the
    folder ("?": nowhere)."""

    path: str
    size: int
    text: str | None = None
    executable: bool = False
    link: str = ""


@dataclass(frozen=True, slots=True)
class SkillUsage:
    """The use of a skill. Times are seconds since 1970.

    `source` is where it came from. `vouched` is the hash of the SKILL.md that a person trusts although the scanner
    objects.
    """

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
    vouched: str = ""
    archived_at: float | None = None

    @property
    def success_rate(self) -> float:
        """The share of known outcomes that were successes; 1.0 if none is known."""
        known = self.successes + self.failures
        return self.successes / known if known else 1.0

    @property
    def last_touched(self) -> float | None:
        """The newest of used, viewed and patched, else when it was created."""
        times = [t for t in (self.last_used, self.last_viewed, self.last_patched) if t is not None]
        return max(times, default=self.created)


class SkillOffer(NamedTuple):
    """The answer whether a skill can be used here and now, and if not, why."""

    offered: bool
    reason: str = ""
    missing_environment: tuple[str, ...] = ()

    @property
    def readiness(self) -> Literal["available", "setup_needed", "unsupported"]:
        if not self.offered:
            return "unsupported"
        return "setup_needed" if self.missing_environment else "available"


class ArchivedSkill(NamedTuple):
    """A skill in the archive: its folder there, where it was, and when it was archived, if that is known."""

    name: str
    folder: str
    path: str
    at: float | None = None


# ── operations ──


@dataclass(frozen=True, slots=True)
class CreateSkill:
    """Write a new skill. `content` is the whole SKILL.md."""

    name: str
    content: str
    category: str = ""
    despite_similar: bool = False


@dataclass(frozen=True, slots=True)
class EditSkill:
    """Replace the whole SKILL.md."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class PatchSkill:
    """Replace the one passage `old` of a file."""

    name: str
    old: str
    new: str
    file: str = "SKILL.md"
    replace_all: bool = False


@dataclass(frozen=True, slots=True)
class DeleteSkill:
    """Move a skill to the archive. `absorbed_into` names the skill that replaces it."""

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


# ── outcomes ──

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
    """The change is on disk. `change` is its number in the history."""

    ok: ClassVar[bool] = True
    path: str = ""
    change: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillUnchanged(_SkillOutcome):
    """Say that nothing had to be changed."""

    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillStaged(_SkillOutcome):
    """The operation waits in the inbox for a person's decision."""

    ok: ClassVar[bool] = True
    pending: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillRefused(_SkillOutcome):
    """Say that nothing was written, and why."""

    kind: RefusalKind
    matches: tuple[str, ...] = ()
    preview: str = ""
    findings: tuple[Finding, ...] = ()


SkillOutcome: TypeAlias = SkillWritten | SkillUnchanged | SkillStaged | SkillRefused


@dataclass(frozen=True, slots=True)
class SkillChange:
    """One row of history. `before` and `after` are the file's content, None if there was no file. A folder that was
    moved or installed has `moved_from` and `moved_to` instead."""

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
class NewSkillChange:
    """The author of a change and the reason, for the history."""

    author: Author
    skill: str
    action: str
    reason: str = ""
    undoes: int | None = None


@dataclass(frozen=True, slots=True)
class SkillPending:
    """One operation in the inbox."""

    id: int
    at: float
    expires: float
    author: Author
    operation: SkillOp
    reason: str = ""
    decision: Literal["", "approved", "rejected"] = ""


# ── finding a skill for a task ──


class SkillMatch(NamedTuple):
    """A skill that fits a task, how well, and why."""

    skill: Skill
    score: float
    similarity: float
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.skill.name


class SkillMatches(NamedTuple):
    """The skills that fit a task, best first. If none does, `abstained` says why, and `nearest` names the best."""

    task: str
    matches: tuple[SkillMatch, ...] = ()
    abstained: str = ""
    nearest: tuple[SkillMatch, ...] = ()
    notes: tuple[str, ...] = ()


# ── skills from outside ──

Verdict: TypeAlias = Literal["safe", "caution", "dangerous"]
Trust: TypeAlias = Literal["builtin", "trusted", "community", "agent-created"]
TRUSTS: tuple[Trust, ...] = ("builtin", "trusted", "community", "agent-created")
Severity: TypeAlias = Literal["critical", "high", "medium", "low"]


@dataclass(frozen=True, slots=True)
class SkillFinding:
    """One finding of the skill scanner."""

    rule: str
    category: str
    severity: Severity
    file: str
    line: int
    why: str
    excerpt: str = ""


class SkillReport(NamedTuple):
    """The scanner's verdict on a skill."""

    verdict: Verdict
    findings: tuple[SkillFinding, ...] = ()
    files: int = 0


class Incoming(NamedTuple):
    """A skill from outside in memory, as (path, bytes, executable). `odd`: what is not a plain file, a link that leads
    out for example."""

    source: str
    folder: str
    files: Sequence[tuple[str, bytes, bool]]
    odd: Sequence[SkillFile] = ()


# ── the curator ──


@dataclass(frozen=True, slots=True)
class Flag:
    """The curator marked a skill for review. Once the skill was changed, earlier outcomes no longer count."""

    at: float
    why: str
    successes: int = 0
    failures: int = 0
    lifted: bool = False


@dataclass(frozen=True, slots=True)
class CuratorMemory:
    """The curator's knowledge from earlier runs.

    `seen`: when it first saw skills in this home. `noticed`: skill → since when reports name it as unused. `flagged`:
    skills that it marked for review; it lifts only its own marks. `asked`: hashes of pairs that a model was asked to
    merge. `clean`: hashes of texts that this version of the `scanner` finds safe.
    """

    seen: float | None = None
    last_run: float | None = None
    runs: int = 0
    noticed: Mapping[str, float] = field(default_factory=dict)
    flagged: Mapping[str, Flag] = field(default_factory=dict)
    asked: tuple[str, ...] = ()
    clean: tuple[str, ...] = ()
    scanner: str = ""


MoveResult: TypeAlias = Literal["planned", "done", "staged", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class CuratorMove:
    """One skill that changes its state, and why. `said`: why it was skipped or failed. `change` is its number in the
    history if files moved, `pending` its number in the inbox if a person decides."""

    skill: str
    path: str
    before: SkillState
    after: SkillState
    reason: str
    result: MoveResult = "planned"
    said: str = ""
    change: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class MergeCandidate:
    """Two skills that say nearly the same. Only a person merges them. `pending`: numbers in the inbox, if a model
    proposed one text for both. `said`: the result of asking a model."""

    skills: tuple[str, str]
    why: str
    degree: float
    pending: tuple[int, ...] = ()
    said: str = ""


@dataclass(frozen=True, slots=True)
class CuratorReport:
    """One run: what was done to which skill and why, what was kept, what could be merged. `diff` is the list of skills
    before and after."""

    id: str
    begun: float
    why: str
    state: Literal["running", "done", "interrupted", "failed"] = "running"
    ended: float | None = None
    dry_run: bool = False
    checked: int = 0
    moves: tuple[CuratorMove, ...] = ()
    kept: Mapping[str, str] = field(default_factory=dict)
    merges: tuple[MergeCandidate, ...] = ()
    notes: tuple[str, ...] = ()
    diff: str = ""

    @property
    def done(self) -> tuple[CuratorMove, ...]:
        return tuple(move for move in self.moves if move.result == "done")

    @property
    def summary(self) -> str:
        """The run in one sentence."""
        done = Counter(move.after for move in self.moves if move.result in ("done", "planned"))
        parts = [f"{count} {_STATE_WORDS[state]}" for state, count in done.items()] or ["nothing to do"]
        rest = Counter(move.result for move in self.moves if move.result in ("staged", "skipped", "failed"))
        parts += [f"{count} {result}" for result, count in rest.items()]
        parts += [f"{len(self.merges)} nearly identical pairs"] if self.merges else []
        return f"{self.checked} skills checked: {', '.join(parts)}."


_STATE_WORDS: Mapping[SkillState, str] = {
    "active": "active again",
    "stale": "stale",
    "needs_review": "marked for review",
    "deprecated": "deprecated",
    "archived": "archived",
}


# ── rows ──

_KINDS: dict[str, type[SkillOp]] = {
    "create": CreateSkill,
    "edit": EditSkill,
    "patch": PatchSkill,
    "delete": DeleteSkill,
    "write_file": WriteSkillFile,
    "remove_file": RemoveSkillFile,
}
_ACTIONS = {kind: action for action, kind in _KINDS.items()}


class OpenChange(NamedTuple):
    """A change that was begun; the files tell whether it happened."""

    id: int
    path: str
    file: str
    before_hash: str
    after_hash: str
    moved_from: str
    moved_to: str


class KnownFile(NamedTuple):
    """A file as the history has it."""

    hash: str
    content: str | bytes | None
    skill: str


class _Rows:
    """Rows of one profile."""

    def __init__(self, database: Database, profile: str = "") -> None:
        self._db = database
        self._sql = database.queries("skills.rows")
        self._profile = {"profile": profile}


class SkillHistory(_Rows):
    """The changes of skills: what was done to which file, by whom, and what undid it."""

    def intend(
        self,
        path: str,
        file: str,
        change: NewSkillChange,
        at: float,
        *,
        before: bytes | None = None,
        after: bytes | None = None,
        moved: tuple[str, str] = ("", ""),
        done: bool = False,
    ) -> int:
        """Write a change to the history before (a hand edit: after) it is on disk. Return its id."""
        bindings = {
            **self._profile,
            **author_columns(change.author),
            "at": at,
            "skill": change.skill,
            "path": path,
            "file": file,
            "action": change.action,
            "reason": change.reason,
            "undoes": change.undoes,
            "before_hash": hash_of(before),
            "after_hash": hash_of(after),
            "before": _kept(before),
            "after": _kept(after),
            "moved_from": moved[0],
            "moved_to": moved[1],
            "state": "done" if done else "open",
        }
        return self._db.insert(self._sql["insert_change"], bindings)

    def settle(self, change_id: int, state: Literal["done", "void"]) -> None:
        self._db.run(self._sql["settle"], {"id": change_id, "state": state})

    def open(self) -> list[OpenChange]:
        return [OpenChange(*row) for row in self._db.rows(self._sql["open_changes"], self._profile)]

    def known(self, path: str) -> dict[str, KnownFile]:
        """Return the files of a skill as the history has them; removed ones have no hash."""
        rows = self._db.rows(self._sql["known_files"], {**self._profile, "path": path})
        return {file: KnownFile(hash_, content, skill) for file, hash_, content, skill, _ in rows}

    def known_paths(self) -> list[str]:
        return [path for (path,) in self._db.rows(self._sql["known_paths"], self._profile)]

    def is_moved_away(self, path: str) -> bool:
        """Return whether the last change of the folder as a whole moved it away."""
        row = self._db.row(self._sql["last_move"], {**self._profile, "path": path})
        return row is not None and row[1] == path

    def changes(self, skill: str | None = None, *, limit: int | None = None) -> list[SkillChange]:
        """Return the changes of one skill, or of all, newest first."""
        which = "all_changes" if skill is None else "changes_of"
        bindings = {**self._profile, "limit": -1 if limit is None else limit}
        return self._changes(which, bindings if skill is None else {**bindings, "skill": skill})

    def change(self, change_id: int) -> SkillChange | None:
        found = self._changes("change", {**self._profile, "id": change_id})
        return found[0] if found else None

    def archived_from(self) -> dict[str, tuple[str, float]]:
        """Return by folder in the archive where it was before, and when it was archived."""
        rows = self._db.rows(self._sql["archived_from"], self._profile)
        return {target: (source, at) for target, source, at in rows}

    def _changes(self, which: str, bindings: Mapping[str, Any]) -> list[SkillChange]:
        rows = self._db.rows(f"{self._sql['columns']}\n {self._sql[which]}", bindings)
        undone_by: dict[int, int] = {}
        undos = self._db.rows(self._sql["undos"]) if rows else []
        for change_id, undo_id in sorted(undos, key=lambda pair: -pair[1]):  # the newest first
            if undo_id not in undone_by:  # an undo that was itself undone does not count
                undone_by.setdefault(change_id, undo_id)
        return [_change(row, undone_by) for row in rows]


class SkillInbox(_Rows):
    """The inbox of skills: operations that wait for a person's decision."""

    def put(self, pending: SkillPending) -> SkillPending:
        """Store an operation. Return an identical one instead that is waiting already, or that a person rejected."""
        fields = {"action": _ACTIONS[type(pending.operation)], **asdict(pending.operation)}
        operation = json.dumps(fields, ensure_ascii=False, sort_keys=True)
        fingerprint = sha256(f"{self._profile['profile']}\n{operation}".encode()).hexdigest()
        bindings = {
            **self._profile,
            **author_columns(pending.author),
            "at": pending.at,
            "expires": pending.expires,
            "reason": pending.reason,
            "operation": operation,
            "fingerprint": fingerprint,
        }

        def work(connection: DatabaseConnection) -> SkillPending:
            known = {"fingerprint": fingerprint, "now": pending.at}
            if same := connection.row(self._sql["same_proposal"], known):
                return _pending(same)
            return replace(pending, id=connection.insert(self._sql["insert_pending"], bindings))

        return self._db.write(work)

    def list(self, now: float) -> Sequence[SkillPending]:
        """Return what is waiting and not expired, oldest first."""
        rows = self._db.rows(self._sql["waiting"], {**self._profile, "now": now, "id": None})
        return [_pending(row) for row in rows]

    def rejected(self) -> Sequence[SkillPending]:
        """Return what a person rejected, newest first."""
        return [_pending(row) for row in self._db.rows(self._sql["rejected"], self._profile)]

    def decide(self, pending_id: int, decision: Literal["approved", "rejected"], now: float) -> bool:
        """Store the decision on an operation. Return False if it is not waiting."""

        def work(connection: DatabaseConnection) -> bool:
            bindings = {**self._profile, "now": now, "id": pending_id}
            if not connection.rows(self._sql["waiting"], bindings):
                return False
            connection.run(self._sql["decide"], {"decision": decision, "now": now, "id": pending_id})
            return True

        return self._db.write(work)


class SkillUsageRows(_Rows):
    """The usage rows: how often each skill was used, its outcomes, its state."""

    def all(self) -> dict[str, SkillUsage]:
        rows = self._db.rows(self._sql["usage"], {**self._profile, "name": None})
        return {row[0]: _usage(row) for row in rows}

    def count(self, name: str, at: float, *, resolves: bool = False, **counts: int) -> SkillUsage:
        """Add to the numbers. `resolves`: the outcome of a use that was counted when the skill was read."""
        named = ("uses", "views", "successes", "failures", "patches")
        bindings = {**dict.fromkeys(named, 0), **counts, **self._profile, "name": name, "at": at, "resolves": resolves}

        def work(connection: DatabaseConnection) -> SkillUsage:
            connection.run(self._sql["count"], bindings)
            return _usage(connection.rows(self._sql["usage"], {**self._profile, "name": name})[0])

        return self._db.write(work)

    def put(self, usage: SkillUsage) -> None:
        """Store everything but the numbers: state, pin, origin, source, trust, times of creation and archiving."""
        self._db.run(self._sql["put_usage"], {**self._profile, **asdict(usage), "pinned": int(usage.pinned)})

    def set_states(self, states: Mapping[str, SkillState], at: float) -> None:
        """Store several states in one transaction."""

        def work(connection: DatabaseConnection) -> None:
            for name, state in states.items():
                connection.run(self._sql["set_state"], {**self._profile, "name": name, "state": state, "at": at})

        self._db.write(work)


def hash_of(data: bytes | None) -> str:
    """Return '' for no file."""
    return "" if data is None else sha256(data).hexdigest()


def _kept(data: bytes | None) -> str | Blob | None:
    """Return text as text, so that any database browser can show it, and other bytes as they are."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Blob(data)
    return Blob(data) if "\x00" in text or text.startswith(Blob.MARK) else text


def _pending(row: Sequence[Any]) -> SkillPending:
    id_, at, expires, who, origin, session, message, reason, operation, decision = row
    author, fields = Author(Who(who), Origin(origin), session, message), parsed(operation)
    return SkillPending(id_, at, expires, author, _KINDS[fields.pop("action")](**fields), reason, decision)


def _usage(row: Sequence[Any]) -> SkillUsage:
    usage = SkillUsage(*row)  # the query names the columns in this order
    return replace(usage, pinned=bool(usage.pinned))


def _change(row: Sequence[Any], undone_by: Mapping[int, int]) -> SkillChange:
    id_, at, skill, path, file, who, origin, session, message, action, reason, undoes = row[:12]
    before, after, moved_from, moved_to = row[12:]
    author = Author(Who(who), Origin(origin), session, message)
    content = (before, after, moved_from, moved_to)
    return SkillChange(id_, at, skill, path, file, author, action, *content, reason, undoes, undone_by.get(id_))


# ── the files themselves, on a server ──
#
# Every host works with files. A file that differs from what it was at the last comparison goes to the server; a row
# that differs comes to the host. If both differ, the row is taken, and the host's file is kept beside the skills.

ARCHIVE = ".archive"
CONFLICTS = ".conflicts"
_KNOWN = ".skills.shared.json"
_MOST_BYTES = 32 * 2**20
_PAUSE = 0.05


class _File(NamedTuple):
    hash: str
    executable: bool
    data: bytes | None = None


class SharedSkills:
    """The skills in one folder, compared with the rows of its tenant."""

    def __init__(self, database: Database, root: Path, lock_timeout: float = 10.0, *, remember: bool = True) -> None:
        """`remember`: keep in the folder what the last comparison found; otherwise each one starts over."""
        self._db, self._root, self._lock_timeout, self._remember = database, root, lock_timeout, remember
        self._sql = database.queries("skills.rows")
        self._holder = 0

    def is_current(self, stamp: str) -> bool:
        """Return whether nothing has changed since the last comparison, or this thread is changing something. `stamp`:
        of the files here.
        """
        if self._holder == threading.get_ident():
            return True
        known = self._known()
        return (known["seq"], known["stamp"]) == (self._last(), stamp)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock on the skills of the tenant, for all hosts. `StoreBusy` after the deadline."""
        deadline = time.monotonic() + self._lock_timeout
        while True:
            with self._db.lock("skills") as free:
                if free:
                    self._holder = threading.get_ident()
                    try:
                        yield
                    finally:
                        self._holder = 0
                    return
            if time.monotonic() > deadline:
                raise StoreBusy("Another host has been changing skills for too long.", hint="Try again.")
            time.sleep(_PAUSE)

    def compare(self, stamp: str = "") -> None:
        """Take over what changed on either side. The caller holds the lock."""
        known = self._known()
        base: dict[str, str] = known["files"]
        rows = {row[0]: row[1:] for row in self._db.rows(self._sql["files_since"], {"seq": known["seq"]})}
        here = dict(self._walk())
        sent: dict[str, _File | None] = {}
        for path in sorted(base.keys() | rows.keys() | here.keys()):
            before, found = base.get(path, ""), here.get(path)
            now = found.hash if found else ""
            there = rows[path][0] if path in rows else before
            if now != there and there == before:
                sent[path] = found
            elif now != there:
                if found is not None and now != before:
                    self._keep(path)
                self._write(path, rows[path])
            base[path] = now if path in sent else there
        if sent:
            self._db.write(lambda connection: self._send(connection, sent))
        files = {path: hash_ for path, hash_ in base.items() if hash_}
        if self._remember and (files or self._root.is_dir()):
            make_folder(self._root)
            text = json.dumps({"seq": self._last(), "stamp": stamp, "files": files})
            replace_file(self._root.with_name(_KNOWN), text.encode())

    def _send(self, connection: DatabaseConnection, sent: dict[str, _File | None]) -> None:
        for path, file in sent.items():
            given: dict[str, Any] = {"path": path, "hash": "", "executable": False, "data": None}
            if file is not None:
                given |= {"hash": file.hash, "executable": file.executable, "data": (self._root / path).read_bytes()}
            connection.run(self._sql["files_put"], given)

    def _write(self, path: str, row: tuple[Any, ...]) -> None:
        hash_, executable, data = row
        target = self._root / path
        if not target.parent.resolve().is_relative_to(self._root.resolve()) or ".." in target.parts:
            raise StoreError(f"{path} on the server leads out of {self._root}; nothing was written.")
        if not hash_:
            target.unlink(missing_ok=True)
            for folder in target.relative_to(self._root).parents:
                with suppress(OSError):  # of a folder with other files
                    (self._root / folder).rmdir()
            return
        make_folder(target.parent)
        replace_file(target, data)
        target.chmod(0o700 if executable else 0o600)

    def _keep(self, path: str) -> None:
        """Keep a file that was changed here and on another host."""
        kept = self._root / CONFLICTS / time.strftime("%Y%m%d-%H%M%S") / path
        make_folder(kept.parent)
        replace_file(kept, (self._root / path).read_bytes())

    def _walk(self) -> Iterator[tuple[str, _File]]:
        for folder, folders, names in os.walk(self._root):
            at_root = Path(folder) == self._root
            folders[:] = sorted(name for name in folders if not name.startswith(".") or (at_root and name == ARCHIVE))
            for name in sorted(names):
                file = Path(folder) / name
                if name.startswith(".") or file.is_symlink() or not file.is_file():
                    continue
                status = file.stat()
                if status.st_size <= _MOST_BYTES:
                    found = _File(sha256(file.read_bytes()).hexdigest(), bool(status.st_mode & 0o100))
                    yield file.relative_to(self._root).as_posix(), found

    def _known(self) -> dict[str, Any]:
        known: dict[str, Any] = {"seq": 0, "stamp": "", "files": {}}
        if self._remember:
            with suppress(OSError, ValueError):
                known = json.loads(self._root.with_name(_KNOWN).read_text("utf-8"))
        return known

    def _last(self) -> int:
        return int((self._db.row(self._sql["files_last"]) or [0])[0])
