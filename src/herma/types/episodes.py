"""What happened before: finished conversations as episodes, and where the work stood when one ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from herma.types.common import Scope

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
