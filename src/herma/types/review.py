"""Looking back at conversations: what was looked at, why, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from herma.types.transcript import Usage

ReviewKind: TypeAlias = Literal["turn", "remember", "boundary", "end"]
"""After a reply; because the user asked that something be remembered; where a long chat took a turn; at the end."""
ReviewState: TypeAlias = Literal["due", "running", "done", "cancelled", "failed", "refused"]
"""`refused`: the day had no money or tokens left for it."""
ReviewWrites: TypeAlias = Literal["apply", "stage"]
"""What becomes of a review's writes: `apply` writes them, `stage` keeps them for a person."""
Divide: TypeAlias = Literal["idle", "day", "topic"]
"""What divides an endless chat: a pause, another day, another topic."""
DIVIDES: tuple[Divide, ...] = ("idle", "day", "topic")
Result: TypeAlias = Literal["applied", "staged", "known", "refused"]


@dataclass(frozen=True, slots=True)
class ReviewAction:
    """One thing that a review wrote, or was kept from writing. `change` and `pending` are numbers of the history and
    of the inbox, by which it is taken back or decided.
    """

    what: str
    """As in `memory add`, `skill create`, `episode`."""
    result: Result
    text: str = ""
    target: str = ""
    why: str = ""
    """Of a refusal: which check, in one word, as `Review.refusals` counts them."""
    said: str = ""
    """The same in a sentence."""
    change: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """One look back at a conversation, from one message to another. Nothing of it is in the transcript."""

    conversation: str
    session_id: str
    kind: ReviewKind
    why: str
    """What made it due, in a few words."""
    first_message: int
    last_message: int
    at: float
    id: int = 0
    state: ReviewState = "due"
    tries: int = 0
    begun: float | None = None
    ended: float | None = None
    model: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    actions: tuple[ReviewAction, ...] = ()
    notice: str = ""
    """What people should know of it."""

    @property
    def refusals(self) -> dict[str, int]:
        """How often each check said no."""
        reasons = [action.why for action in self.actions if action.result == "refused"]
        return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}

    @property
    def written(self) -> tuple[ReviewAction, ...]:
        return tuple(action for action in self.actions if action.result in ("applied", "staged"))
