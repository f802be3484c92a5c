"""The modules of herma.index:

sync          the text index follows the change feed; rebuild, verify
file          index.db: files, tables, checks
postings      shards and weighted posting lists; find
postgres      both indexes on a server
vectors       embed what is new; answer what is near
vector_store  index.db.vectors: keep, verify, drop
nearest       nearest neighbours over 8-bit vectors (numpy)
cli           herma index …

Here stands what other folders ask the indexes and get, and the texts that features have embedded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]

MESSAGE = "message"
"""The kind that the vector index makes from transcripts; every other kind comes from `Embeddables`."""


class IndexUnusable(Exception):
    """The stored index is damaged or missing. It is built again; nothing outside this folder sees this."""


class IndexMissing(IndexUnusable):
    """There is no stored index, so there is none to remove either."""


class ScoredMessage(NamedTuple):
    """A message that the index found; higher scores are better."""

    message_id: int
    score: float


class IndexQuery(NamedTuple):
    """A query as the index understands it.

    A match contains at least one of `any_of`, or, if there are groups in `all_of`, one of each group (then `any_of`
    only ranks), and nothing of `none_of`. Each innermost tuple is one alternative: a word, or the words of a phrase. Of
    words in `prefix` only the beginning is given. A long word of a script without spaces selects by its pairs of
    characters in `any_of`, as a whole elsewhere.
    """

    any_of: tuple[tuple[str, ...], ...] = ()
    all_of: tuple[tuple[tuple[str, ...], ...], ...] = ()
    none_of: tuple[tuple[str, ...], ...] = ()
    prefix: frozenset[str] = frozenset()


class IndexAnswer(NamedTuple):
    """Candidates, best first, and notes for people on what was done with common words."""

    candidates: tuple[ScoredMessage, ...]
    matches: int
    notes: tuple[str, ...] = ()
    more: bool = False
    """True if a larger limit would find more, although fewer came than were asked for."""


class TextIndex(Protocol):
    """Words and characters of every message; derived, so it may be deleted at any time."""

    def find(self, terms: IndexQuery, limit: int) -> IndexAnswer:
        """Return the best `limit` messages for these terms among what is indexed."""
        ...

    def catch_up(self, at_most: int) -> int:
        """Index what is new if that is at most so many messages. → how many messages are still missing."""
        ...

    def missing(self, limit: int) -> Sequence[int]:
        """Return the newest messages that are not indexed yet, newest first."""
        ...

    def vocabulary(self, parts: Sequence[str], beginnings: Sequence[str], limit: int) -> Sequence[str]:
        """Return words (stems) that contain one of `parts` or begin with one of `beginnings`, commonest first.

        Only the newest part of the index is read.
        """
        ...

    def schedule_check(self) -> None:
        """Check the index in the background, at most once a minute, because a result did not look right."""
        ...


class Near(NamedTuple):
    """Something whose meaning is near the question. `score` is a cosine; the key of a message is its id.

    `usual` is its cosine with the mean of all others, if that was asked for: "ok" is near everything.
    """

    kind: str
    key: str
    score: float
    session_id: str = ""
    scope: str = ""
    usual: float = 0.0

    @property
    def message_id(self) -> int:
        return int(self.key) if self.kind == MESSAGE else 0


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest, best first. `notes` tell people why there are none, or not all (each begins with `vectors: `).

    `rows` were compared; `spread` is the standard deviation of score less usual among them, if that was asked for.
    """

    hits: tuple[Near, ...] = ()
    notes: tuple[str, ...] = ()
    rows: int = 0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class VectorState:
    """The progress of embedding: `done` and `left` count messages, `vectors` those stored for this model.

    `trouble` is why it does not go on, or ""; the embedder is asked again at `retry_at` (seconds since 1970). `others`
    are other models with their vectors, which are kept until they are unused. A model that is not multilingual neither
    embeds nor is asked about text that it cannot read.
    """

    model: str = ""
    dimension: int = 0
    vectors: int = 0
    done: int = 0
    left: int = 0
    size: int = 0
    trouble: str = ""
    failures: int = 0
    retry_at: float = 0.0
    others: tuple[tuple[str, int], ...] = ()
    is_multilingual: bool = False

    @property
    def wanted(self) -> bool:
        """Return whether there is an embedder."""
        return bool(self.model)

    @property
    def ready(self) -> bool:
        """Return whether a question can find anything."""
        return self.wanted and self.vectors > 0

    @property
    def coverage(self) -> float:
        """The share of the messages that is embedded."""
        return self.done / (self.done + self.left) if self.left else 1.0


class Embeddable(NamedTuple):
    """One text with its key. `scope` is returned with what is found, and can be filtered by."""

    key: str
    text: str
    scope: str = ""


class Embeddables(NamedTuple):
    """All texts of one kind: new and changed ones are embedded, missing ones are removed.

    `version()` changes whenever a text may have changed; it is called often, so it must be cheap.
    """

    kind: str
    version: Callable[[], str]
    texts: Callable[[], Iterable[Embeddable]]
