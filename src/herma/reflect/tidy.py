"""What could be put in order in a curated file: entries with what is known of them in, proposals out. Pure.

In this order: say once what is said twice, let newer facts stand for older ones, let go of what is over, mark what a
check cannot confirm, and, above four fifths of the limit, move the least valuable to the long tail. Entries that are
pinned, or that a person vouched for, are never touched. At most a quarter of the text changes in one pass.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

from herma.curated.apply import apply
from herma.curated.entries import used
from herma.facts.attributes import folded
from herma.facts.extract import USER, Statement, statements
from herma.recall.stem import stem
from herma.reflect.loss import check_loss
from herma.reflect.tidy_merge import clauses, merged, saved
from herma.reflect.tidy_stale import Checks, NoChecks, bare, confirmed, marked, overtaken
from herma.reflect.tidy_value import FULL, least_valuable
from herma.types import DELIMITER, Applied, Entry, MemoryOp, Proposal, Remove, Replace, Target

PINNED = "pinned"
"""A tag that keeps an entry where and as it is."""
_COMPARED = 150
"""So many entries are compared with each other: the work grows with the square."""
_ROUNDS = 8
_TRIED = 3
_MANY_VALUED = frozenset(
    (
        *("language", "allergy", "diet", "email", "phone", "programming language", "team", "nickname", "tool", "hobby"),
        *("database", "test framework", "deployment", "framework", "server", "host", "repository", "repo", "user"),
    )
)
"""Attributes of which somebody may have several at once: the newer does not replace the older."""
_ONE_VALUED = frozenset(
    ("time zone", "location", "employer", "job", "birthday", "age", "editor", "shell", "package manager", "deadline")
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in order; what was left for another pass, and why; and the entries before and after."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    proposals: tuple[Proposal, ...] = ()
    held: tuple[tuple[Proposal, str], ...] = ()

    @property
    def operations(self) -> tuple[MemoryOp, ...]:
        return tuple(op for proposal in self.proposals for op in proposal.operations)


def plan(
    entries: Sequence[Entry],
    *,
    limit: int,
    now: float,
    target: Target = "memory",
    subject: str = USER,
    checks: Checks | None = None,
    alone: Collection[str] = (),
    wordings: Sequence[Proposal] = (),
    least: float = 0.0,
) -> Plan:
    """Everything worth doing to a file. `alone`: texts that a person wants left as they are, because they took a change
    of them back. `wordings`: merges that a model put better; they are taken where they apply. `least`: the confidence
    that a proposal must have.
    """
    work = _Work(tuple(entry.text for entry in entries), list(entries), limit, target, least)
    today = datetime.datetime.fromtimestamp(now).date()  # noqa: DTZ006  the user's own day
    checks = checks or NoChecks()
    for _ in range(_ROUNDS):
        free = [one for one in work.entries if is_free(one) and one.text not in alone]
        steps = (_wordings(wordings, free), _merges(free), _superseded(free, subject), _stale(free, today, checks))
        taken = sum(work.take(proposal) for found in steps for proposal in found)
        if not taken + _make_room(work, now, alone):
            break
    return Plan(work.before, tuple(one.text for one in work.entries), tuple(work.taken), tuple(work.held))


def is_free(entry: Entry) -> bool:
    """Whether tidying may touch it: not what is pinned or vouched for, and not what the scanner objects to."""
    return not entry.vouched and PINNED not in entry.tags and not entry.findings


@dataclass(slots=True)
class _Work:
    """A file while it is put in order."""

    before: tuple[str, ...]
    entries: list[Entry]
    limit: int
    target: Target
    least: float = 0.0
    taken: list[Proposal] = field(default_factory=list)
    held: list[tuple[Proposal, str]] = field(default_factory=list)
    heirs: dict[str, str] = field(default_factory=dict)
    """Entry before → what stands in its place; nothing where it left the file."""

    @property
    def used(self) -> int:
        return used([one.text for one in self.entries])

    def take(self, proposal: Proposal) -> bool:
        """Do it if its entries are still there, it fits, and not too much changes; else hold it back. → whether."""
        texts = [one.text for one in self.entries]
        there = set(texts)
        known_too_much = any(one == proposal for one, _ in self.held)
        if proposal.confidence < self.least or known_too_much or not all(text in there for text in proposal.entries):
            return False
        result = apply(texts, proposal.operations, self.limit, self.target)
        if not isinstance(result.outcome, Applied) or (
            proposal.frees < 0 and used(result.entries) > FULL * self.limit  # a mark must not push others out
        ):
            return False
        gone = [text for text in proposal.entries if text not in result.entries]
        heirs = {old: proposal.result if new in gone else new for old, new in self.heirs.items()}
        heirs |= dict.fromkeys(gone, proposal.result)
        too_much = check_loss(self.before, result.entries, {old: new for old, new in heirs.items() if new})
        if too_much is not None:
            self.held.append((proposal, too_much.sentence))
            return False
        known = {one.text: one for one in self.entries}
        source = max((known[text] for text in proposal.entries), key=lambda one: len(one.text))
        self.entries = [known.get(text) or replace(source, text=text) for text in result.entries]
        self.heirs = heirs
        self.taken.append(proposal)
        return True


# ── each kind ──


def _wordings(wordings: Sequence[Proposal], free: Sequence[Entry]) -> Iterator[Proposal]:
    there = {one.text for one in free}
    yield from (one for one in wordings if all(text in there for text in one.entries))


def merge_of(one: str, other: str, result: str, reason: str, confidence: float, *, by_model: bool = False) -> Proposal:
    """Two entries as one: it takes the place of the longer, whose dates and category it keeps."""
    kept, gone = (one, other) if len(one) >= len(other) else (other, one)
    replaced: tuple[MemoryOp, ...] = () if result == kept else (Replace(kept, result, reworded=True),)
    if result == gone:
        replaced, gone = (), kept
    operations = (Remove(gone, kept="merged"), *replaced)
    return Proposal(
        "merge", (one, other), result, reason, saved((one, other), result), confidence, operations, by_model
    )


def _merges(free: Sequence[Entry]) -> Iterator[Proposal]:
    texts = [one.text for one in free][:_COMPARED]
    for at, one in enumerate(texts):
        for other in texts[at + 1 :]:
            result = merged(bare(one), bare(other))
            if result is not None:
                whole = result in (bare(one), bare(other))
                why = (
                    "one of them says all that the other says" if whole else "they say the same, and each a little more"
                )
                yield merge_of(one, other, result, why, 0.95 if whole else 0.85)


def _superseded(free: Sequence[Entry], subject: str) -> Iterator[Proposal]:
    """The same attribute of the same subject with another value: the older entry goes, where nothing else is in it."""
    newest: dict[tuple[str, str], tuple[Entry, Statement]] = {}
    for entry in sorted(free, key=lambda one: one.changed or 0.0):
        said = _only_statement(bare(entry.text), subject)
        if said is None or entry.changed is None or said.attribute in _MANY_VALUED:
            continue
        key = (said.subject, said.attribute)
        if key in newest:
            older, before = newest[key]
            touched = max(older.changed or 0.0, older.confirmed or 0.0)
            if touched < entry.changed and _contradicts(before.value, said.value):
                why = f"a newer entry says that the {said.attribute} is {said.value}"
                yield _leave("superseded", older.text, why, 0.85 if said.attribute in _ONE_VALUED else 0.75)
        newest[key] = (entry, said)


def _only_statement(text: str, subject: str) -> Statement | None:
    """What an entry states, if it states that and nothing else."""
    found = statements(text, subject, stem) if len(clauses(text)) == 1 else ()
    return found[0] if len(found) == 1 else None


def _contradicts(one: str, other: str) -> bool:
    """Two values of which neither is the other said more exactly."""
    first, second = set(folded(one).split()), set(folded(other).split())
    return not first <= second and not second <= first


def _stale(free: Sequence[Entry], today: datetime.date, checks: Checks) -> Iterator[Proposal]:
    for entry in free:
        found = overtaken(entry.text, today, checks)
        plain = bare(entry.text)
        if found is None:
            if plain != entry.text and confirmed(entry.text, today, checks):
                yield _reword("unmark", entry.text, plain, "the check no longer fails", 0.9)
        elif found.whole:
            yield _leave("expired", entry.text, found.why, 0.9)
        elif plain == entry.text:
            sure = {"date": 0.85, "path": 0.8, "version": 0.75}[found.what]
            yield _reword("mark", entry.text, marked(entry.text, found.note, today), found.why, sure)


def _make_room(work: _Work, now: float, alone: Collection[str]) -> int:
    """Move the least valuable until the file is no fuller than it should be. → how many."""
    moved = 0
    for entry in least_valuable([one for one in work.entries if is_free(one) and one.text not in alone], now):
        if work.used <= FULL * work.limit:
            break
        share = round(100 * work.used / work.limit)
        why = f"the file is {share} % full, and nothing in it is worth less"
        moved += work.take(_leave("move", entry.text, why, 0.9))
        if sum(one.kind == "move" for one, _ in work.held) > _TRIED:
            break  # what is left is too large as well
    return moved


def _leave(kind: str, text: str, why: str, confidence: float) -> Proposal:
    frees = len(text) + len(DELIMITER)
    match kind:
        case "expired":
            return Proposal("expired", (text,), "", why, frees, confidence, (Remove(text, kept="expired"),))
        case "superseded":
            return Proposal("superseded", (text,), "", why, frees, confidence, (Remove(text, kept="superseded"),))
        case _:
            return Proposal("move", (text,), "", why, frees, confidence, (Remove(text, kept="room"),))


def _reword(kind: str, old: str, new: str, why: str, confidence: float) -> Proposal:
    operations = (Replace(old, new, reworded=True),)
    frees = len(old) - len(new)
    if kind == "mark":
        return Proposal("mark", (old,), new, why, frees, confidence, operations)
    return Proposal("unmark", (old,), new, why, frees, confidence, operations)
