"""Values that build, outcome, rows and episodes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from herma.types import Message, Scope, SessionInfo

# ---------- types.episodes
#
# What happened before: finished conversations as episodes, and where the work stood when one ended.

Outcome: TypeAlias = Literal["successful", "resolved", "failed", "interrupted", "unclear"]
"""How it ended. "resolved": something went wrong on the way, and what helped is known."""
BuiltBy: TypeAlias = Literal["rules", "model"]
LONGEST_RESULT = 200


@dataclass(frozen=True, slots=True)
class Episode:
    """One conversation that had something in it: what was wanted, what was done, how it ended.

    `why` says what `outcome` rests on. `built_by` is "rules" where no model had a part in it. Times are seconds since
    1970. An `archived` episode was folded into the digest of its month; it is found there and can be taken out again.
    """

    conversation: str
    session_id: str
    scope: Scope
    task: str
    outcome: Outcome
    started: float
    ended: float
    id: int = 0
    category: str = "other"
    steps: tuple[str, ...] = ()
    tools: Mapping[str, int] = field(default_factory=dict)
    why: str = ""
    result: str = ""
    error: str = ""
    remedy: str = ""
    skills_applied: tuple[str, ...] = ()
    skills_created: tuple[str, ...] = ()
    source: str = ""
    first_message: int = 0
    last_message: int = 0
    built_by: BuiltBy = "rules"
    updated: float = 0.0
    uses: int = 0
    last_used: float | None = None
    superseded_by: int | None = None
    archived: float | None = None

    @property
    def duration(self) -> float:
        """Seconds from the first message to the last."""
        return max(0.0, self.ended - self.started)

    @property
    def success(self) -> bool | None:
        """Whether the task was done; None where nothing tells."""
        return None if self.outcome == "unclear" else self.outcome in ("successful", "resolved")


@dataclass(frozen=True, slots=True)
class EpisodeHit:
    """An episode found for a task: how near it is, how much it is worth, and which paths found it.

    `words` is the share of the task's words that it has, `meaning` the cosine, where there is an embedder.
    """

    episode: Episode
    similarity: float
    value: float
    why: tuple[str, ...] = ()
    words: float = 0.0
    meaning: float | None = None


@dataclass(frozen=True, slots=True)
class Digest:
    """The archived episodes of one month, folded into a few lines."""

    month: str
    count: int
    text: str
    episodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Episodes that were folded into digests, or would be."""

    episodes: tuple[Episode, ...]
    digests: tuple[Digest, ...]
    kept: int
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class SessionState:
    """Where the work stood at a session's end: for whoever goes on with it."""

    conversation: str
    session_id: str
    scope: Scope
    at: float
    folder: str = ""
    branch: str = ""
    open_tasks: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    next_step: str = ""
    last_request: str = ""
    finished: bool = True
    """Whether the last request was answered."""
    built_by: BuiltBy = "rules"
    ended: bool = True
    """Whether somebody ended the conversation; else it was broken off, or is still open in another program."""

    @property
    def unfinished(self) -> bool:
        """Whether there is something to go on with."""
        return bool(self.open_tasks or self.next_step or not self.finished)


@dataclass(frozen=True, slots=True)
class RestoredBlock:
    """One part of what was put together for a task. `shown` is what fits the budget; `left_out` counts the rest."""

    kind: Literal["state", "memory", "skills", "episodes"]
    text: str
    tokens: int
    shown: int = 0
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class Restored:
    """What is known for a task, within a budget: as text for a model, and as blocks for a program."""

    task: str
    text: str
    blocks: tuple[RestoredBlock, ...]
    tokens: int
    budget_tokens: int
    episodes: tuple[EpisodeHit, ...] = ()
    skills: tuple[str, ...] = ()
    state: SessionState | None = None
    notes: tuple[str, ...] = ()


# ---------- ports.episodes
#
# Where episodes and the states of sessions are kept, and what is read of transcripts to make them.

SOURCES_WITHOUT = ("subagent", "review", "background_review")
"""Sources whose sessions make no episodes: their work is a step of another's, or is about another's."""


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """Which episodes are meant. What is None does not matter; `user` is always the one of the scope."""

    profile: str | None = None
    user: str | None = None
    project: str | None = None
    outcome: Outcome | None = None
    category: str | None = None
    archived: bool | None = False
    superseded: bool | None = None


@dataclass(frozen=True, slots=True)
class Weight:
    """As much of an episode as its value depends on."""

    id: int
    ended: float
    outcome: Outcome
    has_remedy: bool
    uses: int
    last_used: float | None
    superseded: bool


class EpisodeRows(Protocol):
    """Episodes, one per conversation. Those of conversations with a deleted session are not there until it is back."""

    def put(self, episode: Episode, task_key: str, terms: Sequence[str]) -> Episode:
        """Keep it in the place of what its conversation had, found by these terms; earlier ones of the same task and
        scope are superseded by it. → it with its id. `StoreChanged` when its conversation was deleted meanwhile.
        """
        ...

    def get(self, ids: Sequence[int]) -> dict[int, Episode]: ...

    def of_conversation(self, conversation: str) -> Episode | None:
        """By the conversation, or by any of its sessions."""
        ...

    def select(self, which: EpisodeFilter, limit: int, offset: int = 0) -> Sequence[Episode]:
        """The newest first."""
        ...

    def mark(self, ids: Sequence[int], *, used: float | None = None, archived: float | None = None) -> int:
        """Note that these were used, or put them away, where search does not find them. → how many."""
        ...

    def unarchive(self, terms: Mapping[int, Sequence[str]], at: float) -> int:
        """Take these out of the archive, found by these terms again; they count as used now, so that they are not put
        away at once. → how many.
        """
        ...

    def remove(self, conversation: str) -> bool:
        """Take it out for good: its conversation has nothing in it any more."""
        ...


class EpisodeLookup(Protocol):
    """Looking through many episodes at once."""

    def with_terms(self, terms: Sequence[str], most: int) -> Sequence[Sequence[int]]:
        """For each term the live episodes that have it, whoever's they are: the newest `most`."""
        ...

    def weights(self) -> Sequence[Weight]:
        """All live ones, whoever's they are."""
        ...

    def months(self, profile: str, user: str | None) -> Sequence[tuple[str, int]]:
        """Months with archived episodes and how many, newest first."""
        ...

    def archived_in(self, month: str, profile: str, user: str | None) -> Sequence[Episode]: ...

    def live_count(self) -> int: ...

    def version(self) -> str:
        """Something that changes whenever a live episode does."""
        ...


class StateRows(Protocol):
    """Where the work stood, one per conversation."""

    def put_state(self, state: SessionState) -> None: ...

    def state_of(self, conversation: str) -> SessionState | None:
        """By the conversation, or by any of its sessions."""
        ...

    def newest_state(self, scope: Scope, *, not_of: str = "") -> SessionState | None:
        """The newest one of exactly this profile, project and user, other than that of a conversation."""
        ...


class Glimpses(Protocol):
    """Transcripts as an episode is made from them: bounded, however long the conversation is."""

    def sessions(self, conversation: str) -> Sequence[SessionInfo]:
        """All sessions of a conversation, or of the one that this session belongs to, oldest first; none when one of
        them is deleted.
        """
        ...

    def glimpse(self, conversation: str, first: int, last: int, at_most: int) -> Sequence[Message]:
        """The first and the last messages that were not rewound, in order, long texts cut in their middle."""
        ...

    def unended(self, scope: Scope, since: float, not_of: Sequence[str]) -> str | None:
        """The conversation of exactly this profile, project and user that was last spoken in, after a time, and that
        nobody ended; other than these.
        """
        ...

    def without_episode(self, limit: int, after: str, everything: bool) -> Sequence[str]:
        """Conversations that were active after their state was noted, or have none, ordered by id; or all that
        make episodes.
        """
        ...
