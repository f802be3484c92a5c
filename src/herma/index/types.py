"""Values that postings, sync, vectors and search share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from herma.transcript.rows import Position


# ---------- ports.index
#
# The text index: what search asks it, and where it is kept.


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


# ---------- ports.vectors
#
# Nearness in meaning: what search asks the vector index, what keepers give it to embed, and where it is kept.

if TYPE_CHECKING:
    Vector: TypeAlias = NDArray[np.float32]

MESSAGE, SESSION = "message", "session"
"""Kinds the index makes itself out of transcripts; every other kind comes from `Embeddables`."""


@dataclass(frozen=True, slots=True)
class Near:
    """Something whose meaning is near what was asked. `score` is a cosine. The key of a message is its number."""

    kind: str
    key: str
    score: float
    session_id: str = ""
    scope: str = ""

    @property
    def message_id(self) -> int:
        return int(self.key) if self.kind == MESSAGE else 0


@dataclass(frozen=True, slots=True)
class Nearest:
    """The nearest, best first. `notes` say to people why there are none, or not all (each begins `vectors: `)."""

    hits: tuple[Near, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class VectorState:
    """How much of what could be embedded is: `done` and `left` count messages, `vectors` what is stored of this model.

    `trouble` is why it does not go on, or empty; `retry_at` (seconds since 1970) is when the embedder is asked again.
    `others`: models whose vectors are kept until they are of no use, with how many they have. `is_multilingual` is what
    the embedder says of itself: one that is not is not asked about what it cannot read, and embeds none of it.
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
        """Whether there is an embedder at all."""
        return bool(self.model)

    @property
    def ready(self) -> bool:
        """Whether asking can give anything."""
        return self.wanted and self.vectors > 0

    @property
    def coverage(self) -> float:
        """The share of the messages that is embedded: 1.0 when none are left."""
        return self.done / (self.done + self.left) if self.left else 1.0


class VectorIndex(Protocol):
    """Vectors of messages, sessions and whatever else was registered; derived, so it may be deleted at any time.

    Nothing here raises because of an embedder: one that fails is asked again later, and the notes say so.
    """

    def near(
        self,
        query: str | Vector,
        k: int,
        *,
        kinds: Collection[str] = (MESSAGE,),
        allowed: Collection[int] | Collection[str] | None = None,
        scopes: Collection[str] | None = None,
    ) -> Nearest:
        """The `k` nearest of these kinds, each key once; only keys (numbers of messages) in `allowed`, only these
        scopes. Hidden and deleted messages are among them, as in the text index: whoever asks looks at their heads.
        """
        ...

    def scores(self, query: str | Vector, message_ids: Sequence[int]) -> Mapping[int, float]:
        """The cosine for each of these messages that has a vector."""
        ...

    def state(self) -> VectorState: ...


# ── what is embedded besides transcripts ──


@dataclass(frozen=True, slots=True)
class Embeddable:
    """One text with its key. `scope` is handed back with what is found, and can be asked for."""

    key: str
    text: str
    scope: str = ""


class Embeddables(Protocol):
    """Texts of one kind, all of them: new and changed ones are embedded, what is no longer there is forgotten."""

    @property
    def kind(self) -> str: ...

    def version(self) -> str:
        """Something that changes whenever a text may have changed; asked often, so it must be cheap."""
        ...

    def texts(self) -> Iterable[Embeddable]: ...


# ── what is read of transcripts ──


@dataclass(frozen=True, slots=True)
class Said:
    """A message to be embedded: what was said in it, and the end of what was said before it."""

    id: int
    session_id: str
    role: str
    text: str
    before: str = ""


@dataclass(frozen=True, slots=True)
class Outline:
    """What a session is about: its title, and its first and last messages as (role, text)."""

    session_id: str
    title: str
    first: tuple[tuple[str, str], ...]
    last: tuple[tuple[str, str], ...]


class PassageSource(Protocol):
    """Transcripts as the vector index reads them. What is gone is left out; flags play no part."""

    def said(self, message_ids: Sequence[int], at_most: int, before: int) -> Sequence[Said]:
        """Messages of users and assistants that have prose, each cut to `at_most` characters, with up to `before`
        characters of the end of what was said before in the same session.
        """
        ...

    def outlines(self, session_ids: Sequence[str], messages: int, at_most: int) -> Sequence[Outline]: ...

    def titles(self) -> Mapping[str, str]:
        """Every session there is, with its title or an empty string."""
        ...


# ── where vectors are kept: three views of one file ──


@dataclass(frozen=True, slots=True)
class Spot:
    """What a vector belongs to: a part of the text of something. Messages have a number for a key."""

    kind: str
    key: int | str
    part: int = 0
    session_id: str = ""
    scope: str = ""


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A vector in 8-bit numbers, and the digest of the text it stands for. No bytes: the embedder refuses the text."""

    spot: Spot
    digest: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class Reach:
    """How much of the feed one model has: all changes after `low` up to `high`, and of the change on either side the
    messages nearest to these. New messages come first, then older ones: what was said last is asked for most.
    `walked` is how many messages that makes.
    """

    low: int
    high: int
    low_part: int = 0
    high_part: int = 0
    walked: int = 0


@dataclass(frozen=True, slots=True)
class ModelRow:
    """One model: its number, how far it is, how many vectors it has, when it was last asked for. `checking`: everything
    is walked once more, and what was not met on that walk goes.
    """

    id: int
    name: str
    dimension: int
    reach: Reach
    vectors: int
    used: float
    checking: bool
    versions: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EmbedderTrouble:
    """What an embedder last failed with, how often in a row, and until when it is left alone."""

    model: str = ""
    message: str = ""
    failures: int = 0
    retry_at: float = 0.0


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of vectors at a glance. `noticed`: up to there everything that was purged is gone; `appended`: how many
    messages came up to there, purged or not.
    """

    noticed: Position
    appended: int
    models: tuple[ModelRow, ...]
    trouble: EmbedderTrouble
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """What one step of embedding changes, all or nothing. `met`: keys whose vectors stay as they are; `stale`: keys of
    which everything else goes. `touched`: sessions with this many new messages; `outlined`: (session, digest of its
    title) whose gist is done now; `ended`: sessions that have none. `version`: all of this kind is done.
    """

    rows: Sequence[VectorRow] = ()
    kind: str = MESSAGE
    met: Sequence[int | str] = ()
    stale: Sequence[int | str] = ()
    reach: Reach | None = None
    touched: Mapping[str, int] | None = None
    outlined: Sequence[tuple[str, int]] = ()
    ended: Sequence[str] = ()
    version: str | None = None


class VectorTables(Protocol):
    """The stored vectors, for whoever embeds. Every call may raise `IndexUnusable`."""

    def hold(self, timeout: float) -> AbstractContextManager[object]:
        """Be the only one of this home who embeds. `StoreBusy` after the deadline."""
        ...

    def file(self) -> VectorFile: ...

    def notice(self, since: int, position: Position, appended: int, gone: Sequence[int]) -> None:
        """The feed was read from `since` to `position`: so many messages came, these are gone. Makes the file if need
        be; one of another store or epoch is walked once more, and `since` is then 0. Nothing happens when somebody
        else noticed it first.
        """
        ...

    def model(self, name: str, dimension: int, at: float) -> ModelRow:
        """The row of a model, made if need be, and that it is in use at this time."""
        ...

    def digests(
        self, model: ModelRow, kind: str, keys: Sequence[int | str] | None
    ) -> Mapping[tuple[int | str, int], int]:
        """What is stored for these keys, or for all of a kind: (key, part) → digest. Damaged vectors are left out."""
        ...

    def known(self, model: ModelRow, digests: Sequence[int]) -> Mapping[int, bytes]:
        """Vectors of texts that are stored already, wherever they occur."""
        ...

    def put(self, model: ModelRow, step: Step) -> None: ...


class VectorUpkeep(Protocol):
    """The stored vectors, besides adding to them. Every call may raise `IndexUnusable`."""

    def trouble(self, found: EmbedderTrouble) -> None:
        """Tell other processes that the embedder fails, or works again."""
        ...

    def gists(self, model: ModelRow, after: int, limit: int) -> Sequence[str]:
        """Sessions that have no gist yet, then those with at least so many messages since the last."""
        ...

    def titles(self, model: ModelRow) -> Mapping[str, int]:
        """Every session that has or awaits a gist → the digest of the title it was made with, or 0."""
        ...

    def check(self) -> str:
        """Whether the file is whole (what is wrong, in a few words), and walk everything once more."""
        ...

    def sweep(self, model: ModelRow, kinds: Sequence[str], unused_since: float) -> bool:
        """Remove some of what the last walk did not meet, and of what belongs to models that nobody used since.
        → whether there is more.
        """
        ...

    def drop(self) -> None:
        """Delete the file."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Loaded:
    """Vectors that were added since, of messages (then without kinds and scopes) or of the rest. `last` is the id to
    go on from.
    """

    ids: Sequence[int] = ()
    keys: Sequence[int | str] = ()
    sessions: Sequence[int] = ()
    vectors: bytes = b""
    kinds: Sequence[str] = ()
    scopes: Sequence[str] = ()
    last: int = 0


class VectorReader(Protocol):
    """The stored vectors, for whoever compares them. Every call may raise `IndexUnusable`."""

    def changed(self) -> object:
        """Something that is different after every change, and costs nothing to ask for."""
        ...

    def find(self, name: str, dimension: int) -> tuple[str, int, int]:
        """Which file this is, the number of a model in it (0 when nothing was embedded with it), its vectors."""
        ...

    def load(self, model: int, dimension: int, *, messages: bool, after: int, limit: int) -> Loaded: ...

    def removed(self, after: int) -> tuple[Sequence[int] | None, int]:
        """Vectors that were removed after this number, and the number to go on from (-1 begins with what is removed
        from now on). None: too many to tell.
        """
        ...

    def sessions(self, after: int) -> Mapping[int, str]:
        """Names of sessions with larger numbers."""
        ...
