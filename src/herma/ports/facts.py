"""Where keyed facts are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from herma.ports.curated import Place
from herma.types import Fact, Scope


@dataclass(frozen=True, slots=True)
class FactStep:
    """What one change of a curated file does to its facts: entries that are gone, facts that are new.

    `brought_back` are entries that return because the change that took them out is undone: their facts hold again as
    if they had never gone.
    """

    at: float
    gone: tuple[str, ...] = ()
    brought_back: tuple[str, ...] = ()
    new: tuple[Fact, ...] = ()


class FactRows(Protocol):
    """Facts of all scopes. One that is superseded is still there: which value holds is decided by who reads."""

    def position(self, place: Place) -> int:
        """The last change of a curated file whose facts are here; 0 for none."""
        ...

    def follow(self, place: Place, since: int, steps: Sequence[FactStep], until: int) -> bool:
        """Do all of this in one step if the position is still `since`. → whether it was."""
        ...

    def add(self, fact: Fact) -> Fact: ...

    def select(
        self, scopes: Sequence[Scope] | None, *, subject: str | None = None, attribute: str | None = None
    ) -> Sequence[Fact]:
        """Facts of exactly these scopes, or all, oldest first: those whose entry is gone and forgotten ones too."""
        ...

    def forget(self, ids: Sequence[int], at: float | None) -> int:
        """Say that these are not wanted, or, with None, that they are after all. → how many."""
        ...

    def clear(self, place: Place | None) -> int:
        """Drop what was made from curated files, or from one: it is about to be made again. → how many.

        What is forgotten stays, so that it is not made again.
        """
        ...
