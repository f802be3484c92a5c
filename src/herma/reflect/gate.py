"""Memory and skills as a review may change them: every write is judged first, by code and not by the prompt.

What is refused is counted with its reason, and the model is told why. What belongs to a person, because they wrote it,
is changed by nobody but a person: a review can only propose it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from herma.curated import MemoryStore
from herma.curated.apply import apply
from herma.reflect.book import LONGEST, Book
from herma.reflect.loss import check_loss
from herma.reflect.precision import SAYS, Known, judge
from herma.safety.scan import scan
from herma.skills import SkillLibrary
from herma.types import (
    TARGETS,
    Add,
    Applied,
    Author,
    Blocked,
    CreateSkill,
    DeleteSkill,
    Duplicate,
    EditSkill,
    MemoryOp,
    MemoryOutcome,
    Origin,
    PatchSkill,
    Remove,
    Replace,
    ReviewAction,
    ReviewWrites,
    Scope,
    SkillOp,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUnchanged,
    SkillWritten,
    Staged,
    StoreStatus,
    Target,
    WriteSkillFile,
)

KnownOf: TypeAlias = Callable[[Target, Scope], Known]


class Propose(Protocol):
    """Keeps a write for a person's decision."""

    def __call__(
        self,
        target: Target,
        ops: Sequence[MemoryOp],
        scope: Scope,
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome: ...


class GatedMemory:
    """Curated memory for one review."""

    def __init__(
        self, store: MemoryStore, propose: Propose, known: KnownOf, book: Book, *, writes: ReviewWrites = "apply"
    ) -> None:
        self._store = store
        self._propose = propose
        self._known = known
        self._book = book
        self._writes = writes
        self._at_first: dict[tuple[Target, Scope], list[str]] = {}

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        return self._store.entries(target, scope=scope)

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]:
        return self._store.status(scope=scope)

    def apply(
        self, target: Target, ops: Sequence[MemoryOp], *, scope: Scope | None, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Judge every operation; then all of them are written or proposed as one change, or none."""
        where = scope or Scope()
        for op in ops:
            refused = self.objection(target, op, where, author)
            if refused is not None:
                why, sentence = refused
                self._book.refuse(_named(op), why, sentence, text=_content(op), target=target)
                return self._blocked(target, where, sentence)
        too_much = self._loss(target, ops, where)
        if too_much:
            for op in ops:
                self._book.refuse(_named(op), "loss", too_much, text=_content(op), target=target)
            return self._blocked(target, where, f"Not done: {too_much}")
        return self.write(target, ops, where, author, reason)

    def objection(
        self, target: Target, op: MemoryOp, scope: Scope, author: Author, besides: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Why this operation should not be carried out: in one word and in a sentence; None if it may.

        `besides` are entries that are about to be written with it.
        """
        if isinstance(op, Remove):
            return None
        findings = scan(op.content)
        if findings:
            return "scanned", f"Not saved: the scanner objects ({findings[0].rule}: {findings[0].why})."
        if not author.origin.trusted:
            return "outside", f"Not saved: {SAYS['outside']}."
        named = op.old_text if isinstance(op, Replace) else None
        replaced = next((e for e in self.entries(target, scope=scope) if named and named in e), "")
        known = self._known(target, scope)
        known = replace(known, entries=[*known.entries, *besides])
        refusal = judge(op.content, known, about_user=target == "user", replacing=replaced)
        return None if refusal is None else (refusal.reason, refusal.sentence)

    def write(
        self, target: Target, ops: Sequence[MemoryOp], scope: Scope, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Write or propose what was judged, and note it."""
        if self._writes == "stage" or self.touching_a_persons(target, ops, scope):
            outcome = self._propose(target, ops, scope, author, reason or "proposed by a review")
        else:
            outcome = self._store.apply(target, ops, scope=scope, author=author, reason=reason)
        for op in ops:
            self._book.note(action_of(op, target, outcome))
        return outcome

    def touching_a_persons(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> list[MemoryOp]:
        """The operations by which an entry would go or change that a person wrote; what nobody recorded was written
        by hand."""
        entries = [] if all(isinstance(op, Add) for op in ops) else self._store.describe(target, scope=scope)
        theirs = [entry.text for entry in entries if entry.origin is not Origin.AGENT_CONCLUDED]
        return [op for op in ops if not isinstance(op, Add) and any(op.old_text in text for text in theirs)]

    def _loss(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> str:
        """Whether too much of what was there when this review began would be gone."""
        now = self.entries(target, scope=scope)
        first = self._at_first.setdefault((target, scope), now)
        if all(isinstance(op, Add) for op in ops):
            return ""
        result = apply(now, ops, self._status(target, scope).limit, target)
        too_much = check_loss(first, result.entries, result.successors) if isinstance(result.outcome, Applied) else None
        return too_much.sentence if too_much else ""

    def _status(self, target: Target, scope: Scope) -> StoreStatus:
        return self._store.status(scope=scope)[TARGETS.index(target)]

    def _blocked(self, target: Target, scope: Scope, sentence: str) -> Blocked:
        size = self._status(target, scope)
        return Blocked(message=sentence, target=target, entry_count=size.entry_count, used=size.used, limit=size.limit)


def action_of(op: MemoryOp, target: Target, outcome: MemoryOutcome) -> ReviewAction:
    """What came of an operation, for the log."""
    made = ReviewAction(_named(op), "refused", _content(op)[:LONGEST], target)
    match outcome:
        case Applied():
            return replace(made, result="applied", change=outcome.change)
        case Staged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case Duplicate():
            return replace(made, result="known")
        case _:
            return replace(made, why=type(outcome).__name__.lower(), said=outcome.message)


@dataclass(slots=True)
class GatedSkills:
    """The skill library for one review. What it has not read in this review, it does not change."""

    library: SkillLibrary
    book: Book
    writes: ReviewWrites = "stage"
    read: set[tuple[str, str]] = field(default_factory=set)

    def viewed(self, name: str, file: str) -> None:
        """A file of a skill was shown to the model."""
        self.read.add((name.rpartition("/")[2].casefold(), file or "SKILL.md"))

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome:
        refused = self._objection(op)
        if refused is not None:
            outcome: SkillOutcome = refused
        elif self.writes == "stage":
            outcome = self.library.propose(op, author=author, reason="proposed by a review")
        else:
            outcome = self.library.apply(op, author=author, reason="review")
        self.book.note(skill_action(op, outcome))
        return outcome

    def _objection(self, op: SkillOp) -> SkillRefused | None:
        if isinstance(op, DeleteSkill) and not op.absorbed_into:
            message = "A review archives a skill only when another one takes over: say which in absorbed_into."
            return SkillRefused(name=op.name, kind="invalid", message=message)
        if isinstance(op, CreateSkill):
            return None
        file = op.file if isinstance(op, PatchSkill | WriteSkillFile) else getattr(op, "file", "SKILL.md")
        if (op.name.rpartition("/")[2].casefold(), file or "SKILL.md") in self.read or self._new_file(op):
            return None
        message = f"Read {file} of {op.name} with skill_view first; what was not read is not changed."
        return SkillRefused(name=op.name, kind="invalid", message=message)

    def _new_file(self, op: SkillOp) -> bool:
        """Whether a file is written that is not there yet: nothing can be lost."""
        if not isinstance(op, WriteSkillFile):
            return False
        skill = self.library.resolve(op.name)
        return not isinstance(skill, SkillRefused) and self.library.read_file(skill.path, op.file) is None


def skill_action(op: SkillOp, outcome: SkillOutcome) -> ReviewAction:
    """What came of an operation on a skill, for the log."""
    what = f"skill {_VERBS.get(type(op), 'change')}"
    made = ReviewAction(what, "refused", op.name[:LONGEST], "skill")
    match outcome:
        case SkillWritten():
            return replace(made, result="applied", change=outcome.change)
        case SkillStaged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case SkillUnchanged():
            return replace(made, result="known")
        case SkillRefused():
            return replace(made, why=outcome.kind, said=outcome.message)


_VERBS: dict[type, str] = {
    CreateSkill: "create",
    EditSkill: "edit",
    PatchSkill: "patch",
    DeleteSkill: "archive",
    WriteSkillFile: "write",
}


def _named(op: MemoryOp) -> str:
    return f"memory {type(op).__name__.lower()}"


def _content(op: MemoryOp) -> str:
    return op.old_text if isinstance(op, Remove) else op.content
