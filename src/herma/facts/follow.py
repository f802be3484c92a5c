"""How changes of a curated file become facts. Pure: the same history gives the same facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from herma.facts.extract import USER, statements
from herma.ports.facts import FactStep
from herma.safety.scan import scan
from herma.types import Change, Fact

Entries = Callable[[str], Sequence[str]]


def steps_of(changes: Sequence[Change], entries: Entries) -> list[FactStep]:
    """What these changes of one file, oldest first, do to its facts."""
    return [step_of(change, entries) for change in changes]


def step_of(change: Change, entries: Entries) -> FactStep:
    before, after = list(entries(change.before)), list(entries(change.after))
    was, is_now = set(before), set(after)
    gone = tuple(entry for entry in before if entry not in is_now)
    fresh = [entry for entry in after if entry not in was]
    if change.undoes is not None:
        return FactStep(change.at, gone, tuple(fresh), tuple(_facts(change, fresh, undone=True)))
    return FactStep(change.at, gone, (), tuple(_facts(change, fresh, undone=False)))


def _facts(change: Change, fresh: Sequence[str], *, undone: bool) -> list[Fact]:
    """What new entries state. Of entries that an undo brings back, what they stated holds again by itself."""
    if undone:
        return []
    # what the scanner objects to is not shown to a model, so it answers nothing either
    clean = [entry for entry in fresh if not scan(entry[:4_000])]
    return [
        Fact(
            said.subject,
            said.attribute,
            said.value,
            valid_from=change.at,
            scope=change.scope,
            text=entry,
            change=change.id,
            session=change.author.session,
            message=change.author.message,
        )
        for entry in clean
        for said in statements(entry, subject_of(change))
    ]


def subject_of(change: Change) -> str:
    """What a bare label in this file is about."""
    if change.target == "user":
        return USER
    return "project" if change.scope.project else "home"
