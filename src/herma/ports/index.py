"""The text index: what search asks it, and where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from herma.ports.transcript import Position


@dataclass(frozen=True, slots=True)
class Scored:
    """A message the index found, best first; higher scores are better."""

    message_id: int
    score: float


@dataclass(frozen=True, slots=True)
class Terms:
    """A query as the index understands it: what is selected contains at least one of `any_of`, or, where groups are
    given in `all_of`, one of each group (then `any_of` only ranks), and nothing of `none_of`.

    Each innermost tuple is one alternative: a word, or the words of a phrase. Of words in `prefix` only the beginning
    is given. A long word of a script without spaces selects by its pairs of characters in `any_of`, as a whole
    elsewhere.
    """

    any_of: tuple[tuple[str, ...], ...] = ()
    all_of: tuple[tuple[tuple[str, ...], ...], ...] = ()
    none_of: tuple[tuple[str, ...], ...] = ()
    prefix: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Found:
    """What the index answers: candidates best first, and what it did with common words (`notes` is for people)."""

    candidates: tuple[Scored, ...]
    matches: int
    exhausted: bool
    notes: tuple[str, ...] = ()
    more: bool = False
    """Whether there is more to be had for the asking, though fewer came than were asked for."""


class TextIndex(Protocol):
    """Words and characters of every message; derived, so it may be deleted at any time."""

    def find(self, terms: Terms, limit: int) -> Found:
        """The best `limit` messages for these terms among what is indexed."""
        ...

    def catch_up(self, at_most: int) -> int:
        """Index what is new if that is at most so many messages. → how many messages are still missing."""
        ...

    def missing(self, limit: int) -> Sequence[int]:
        """The newest messages that are not indexed yet, newest first."""
        ...

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str], limit: int) -> Sequence[str]:
        """Words (stems) with one of `parts` in them or one of `beginnings` at the front, commonest first; only the
        newest part of the index is looked at.
        """
        ...

    def suspect(self) -> None:
        """Something found does not look right: have the index checked in the background, at most once a minute."""
        ...


# ── where the text index is kept ──


class IndexUnusable(Exception):
    """The stored index is damaged or missing. Its keeper builds a new one; nobody else sees this."""


class IndexMissing(IndexUnusable):
    """There is no stored index at all, so there is none to be put away either."""


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One message, prepared: text with its words apart, names of what was taken apart, a digest of what it was."""

    id: int
    text: str
    names: str
    digest: int


@dataclass(frozen=True, slots=True)
class Sought:
    """One alternative, prepared: the words of `text` side by side (the last perhaps only begun), or the name."""

    text: str
    name: str = ""
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Sieve:
    """`Terms`, prepared."""

    any_of: tuple[Sought, ...] = ()
    all_of: tuple[tuple[Sought, ...], ...] = ()
    none_of: tuple[Sought, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far an index is, and how large. No position: nothing was ever indexed."""

    position: Position | None = None
    messages: int = 0
    size: int = 0


class IndexTables(Protocol):
    """One stored index. Every call may raise `IndexUnusable`."""

    def state(self) -> IndexState: ...

    def position(self) -> Position | None:
        """How far it is; nothing when nothing was ever indexed."""
        ...

    def put(self, rows: Sequence[IndexRow], gone: Sequence[int], position: Position) -> None:
        """Add or replace rows, forget others, and move on to `position`: all or nothing."""
        ...

    def tidy(self) -> bool:
        """A few milliseconds of upkeep. → whether there is more to do."""
        ...

    def find(self, sieve: Sieve, limit: int) -> Found: ...

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str], limit: int) -> Sequence[str]: ...

    def digests(self, message_ids: Sequence[int]) -> Mapping[int, int]: ...

    def check(self, rows: Callable[[Sequence[int]], Sequence[IndexRow]], *, thorough: bool) -> str:
        """Compare what is stored with what these rows give: everything, or a sample in a moment. → what is wrong, in a
        few words; empty when nothing is.
        """
        ...


class IndexFiles(Protocol):
    """The stored index in use, and the one that is being built to take its place."""

    def current(self) -> IndexTables:
        """The index in use; `IndexUnusable` when there is none."""
        ...

    def hold(self, timeout: float) -> AbstractContextManager[object]:
        """Be the only one who writes an index of this home. `StoreBusy` after the deadline."""
        ...

    def building(self, *, anew: bool) -> IndexTables:
        """The index that is being built: a new one, or (not `anew`) what an interrupted attempt left."""
        ...

    def built(self) -> int:
        """How many messages the index that is being built has, by whichever process; 0 when there is none."""
        ...

    def publish(self) -> None:
        """Put what was built in the place of the index in use."""
        ...

    def drop(self, *, building: bool = True) -> None:
        """Delete both; without `building`, only the index in use: what is being built is to take its place."""
        ...

    def obstacle(self) -> str:
        """What stands where an index should be and is none of ours, as a sentence with the remedy; mostly nothing."""
        ...

    def close(self, *, building: bool = True) -> None:
        """Let go of both; without `building`, of the index in use."""
        ...
