"""Curated memory: operations, what came of them, and what is kept about entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from herma.types.common import Author, Finding, Origin, Scope

Target: TypeAlias = Literal["memory", "user"]
TARGETS: tuple[Target, ...] = ("memory", "user")
DELIMITER = "\n§\n"
"""What separates the entries of a curated file."""

Category: TypeAlias = Literal["identity", "preference", "environment", "convention", "lesson"]
CATEGORIES: tuple[Category, ...] = ("identity", "preference", "environment", "convention", "lesson")


@dataclass(frozen=True, slots=True)
class Add:
    """Append one entry."""

    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Replace:
    """Put `content` in the place of the one entry that contains `old_text`.

    With `reworded`, `old_text` is the whole entry, and `content` says the same: what is known of it stays as it was.
    """

    old_text: str
    content: str
    category: Category | None = None
    tags: tuple[str, ...] = ()
    reworded: bool = False


Kept: TypeAlias = Literal["", "merged", "room", "expired", "superseded"]
"""What becomes of an entry that is taken out: nothing; another entry says it too; or it goes to the long tail, because
room was needed, because its date has passed, or because a newer entry says otherwise.
"""


@dataclass(frozen=True, slots=True)
class Remove:
    """Drop the one entry that contains `old_text`.

    With `kept`, `old_text` is the whole entry, and what it says is kept elsewhere.
    """

    old_text: str
    kept: Kept = ""


MemoryOp: TypeAlias = Add | Replace | Remove


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A concrete way to make room: entries to merge into one, or an entry to drop, and the characters it would free."""

    action: Literal["merge", "drop"]
    entries: tuple[str, ...]
    frees: int
    why: str


# ── outcomes ──


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    target: Target
    message: str
    entry_count: int
    used: int
    limit: int

    ok: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(_Outcome):
    """The change is on disk.

    `change` is its id in the history; `backup` a copy of the file as it was, where one was made.
    """

    ok: ClassVar[bool] = True
    change: int = 0
    backup: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Duplicate(_Outcome):
    """Already there, word for word; nothing was added."""

    ok: ClassVar[bool] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OverBudget(_Outcome):
    """It would not fit. Nothing was written; `suggestions` says what could make room."""

    entries: tuple[str, ...]
    needed: int
    suggestions: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoMatch(_Outcome):
    """No entry contains the text that should locate it."""

    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ambiguous(_Outcome):
    """Several different entries contain the text that should locate one."""

    matches: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked(_Outcome):
    """The text may not be stored: the scanner objects, or it cannot be an entry at all (then `findings` is empty)."""

    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drifted(_Outcome):
    """The file is not safe to rewrite. It is untouched, and backed up when there was something to back up."""

    reason: str
    remedy: str
    backup: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged(_Outcome):
    """Waiting in the inbox for a person's decision."""

    ok: ClassVar[bool] = True
    pending: int


MemoryOutcome: TypeAlias = Applied | Duplicate | OverBudget | NoMatch | Ambiguous | Blocked | Drifted | Staged


# ── what is kept about curated memory ──


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry with what is known about it. Times are seconds since 1970; `None` means nobody recorded it."""

    text: str
    category: Category | None = None
    tags: tuple[str, ...] = ()
    origin: Origin | None = None
    vouched: bool = False
    created: float | None = None
    changed: float | None = None
    confirmed: float | None = None
    change: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether its text reaches the prompt: the scanner found nothing, or a person vouched for it."""
        return self.vouched or not self.findings


@dataclass(frozen=True, slots=True)
class Change:
    """One row of history: who changed which file when, in which session, why, and the text before and after."""

    id: int
    at: float
    scope: Scope
    target: Target
    author: Author
    action: str
    before: str
    after: str
    reason: str = ""
    undoes: int | None = None
    undone_by: int | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """One staged write, waiting for a person's decision."""

    id: int
    at: float
    expires: float
    scope: Scope
    target: Target
    author: Author
    operations: tuple[MemoryOp, ...]
    reason: str = ""
    decision: Literal["", "approved", "rejected"] = ""


@dataclass(frozen=True, slots=True)
class Block:
    """One rendered piece of the prompt and the file it shows."""

    target: Target
    source: str
    text: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Curated memory as a session was shown it:

    captured once, never changed. `warnings` are for people, not the model.
    """

    blocks: tuple[Block, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return "\n\n".join(block.text for block in self.blocks)


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """One curated file at a glance."""

    target: Target
    scope: Scope
    path: str
    entry_count: int
    used: int
    limit: int
    pending: int
    changes: int
    trouble: str = ""
    findings: int = 0
