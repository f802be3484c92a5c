"""Where the long tail of curated memory is kept. What moves there is written with the change that takes it out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from herma.ports.curated import Place
from herma.types import TailEntry


class TailRows(Protocol):
    """Entries that are in no curated document any more and are still kept; whatever was undone is left out."""

    def select(self, place: Place | None) -> Sequence[TailEntry]:
        """Those of one document, or all, newest first; forgotten ones are among them."""
        ...

    def get(self, ids: Sequence[int]) -> dict[int, TailEntry]: ...

    def with_terms(self, terms: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        """For each term the entries that have it, the newest `most`."""
        ...

    def kept(self, place: Place, texts: Collection[str]) -> set[str]:
        """Which of these texts are in the long tail of a document and still hold."""
        ...

    def used(self, ids: Sequence[int], conversation: str, at: float) -> None:
        """They were recalled in this conversation; each conversation counts once."""
        ...

    def mark(self, ids: Sequence[int], what: Literal["proposed", "forgotten"], at: float | None) -> None:
        """They were proposed for the prompt; or a person does not want them, or (None) does again."""
        ...

    def is_empty(self, places: Sequence[Place]) -> bool:
        """Whether nothing was ever moved out of these documents: cheap enough to be asked at every turn."""
        ...


@dataclass(frozen=True, slots=True)
class LastTidied:
    """When a curated document was last tidied, and the version that it had afterwards."""

    at: float
    version: str


class TidyRows(Protocol):
    """When curated documents were tidied."""

    def tidied(self, place: Place) -> LastTidied | None: ...

    def note_tidied(self, place: Place, at: float, version: str) -> None: ...
