"""What one review does, while it does it: its writes, its refusals, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from herma.prompt.ledger import Prices
from herma.reflect.spend import cost_of
from herma.types import Reply, ReviewAction, Usage

LONGEST = 600
"""Characters of a text that the log keeps."""


@dataclass(slots=True)
class Book:
    """One per review."""

    price_of: Callable[[str], Prices | None] = lambda _: None
    actions: list[ReviewAction] = field(default_factory=list)
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    model: str = ""
    notice: str = ""
    gave_up: bool = False
    """The model's answers cannot be used: trying the same again would cost the same, and come to the same."""

    unspent: bool = False

    def note(self, action: ReviewAction) -> None:
        self.actions.append(action)

    def refuse(self, what: str, why: str, said: str, *, text: str = "", target: str = "") -> None:
        self.note(ReviewAction(what, "refused", text[:LONGEST], target, why, said))

    def answered(self, reply: Reply, name: str) -> None:
        """Count one answer of a model."""
        self.steps += 1
        self.model = name
        self.usage += reply.usage
        cost = cost_of(reply.usage, self.price_of(name))
        if cost is not None:
            self.usd = (self.usd or 0.0) + cost

    def refuse_to_spend(self, why: str) -> None:
        """The model was not asked, as nothing may be spent on it now. People are told that once a day."""
        self.unspent = True
        self.notice = why

    def give_up(self, why: str, besides: str = "") -> None:
        """The pass comes to nothing; people are told why, and what follows from it."""
        self.gave_up = True
        self.notice = " ".join(filter(None, [why, besides]))
