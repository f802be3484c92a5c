"""Where calls to models are written down: what each could reuse of the one before, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from herma.types import Usage

Counts: TypeAlias = Literal["measured", "exact", "estimated"]
"""Where numbers come from: the provider, the model's own vocabulary, or an estimate that is rather too high."""
CallReason: TypeAlias = Literal[
    "first call",
    "grew only",
    "rewound",
    "branched",
    "resumed",
    "idle",
    "model changed",
    "tools changed",
    "system prompt changed",
    "reload",
    "compression",
]
"""Why a call could reuse as much as it could. `resumed` and `idle`: the cache's lifetime had passed."""
WHOLE: tuple[CallReason, ...] = ("first call", "grew only")
"""The reasons that are no break."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a model. `naive_…`: the same call, had memory been written afresh into the system prompt.

    `at_message` is where the prefix broke; the system prompt is 0.
    """

    session: str
    at: float
    reusable: int
    fresh: int
    reason: CallReason
    naive_reusable: int
    naive_fresh: int
    output: int = 0
    model: str = ""
    at_message: int | None = None
    idle: float | None = None
    counts: Counts = "estimated"
    cost_usd: float | None = None
    """What the caller says it cost; `None` when it does not say."""
    messages: int = 0
    """How many messages were sent, without the system prompt."""
    last_message: int = 0
    """The id of the last of them."""
    tools: str = ""
    prompt: str = ""
    """Digests of the tool definitions and of the system prompt."""
    id: int = 0

    @property
    def input(self) -> int:
        return self.reusable + self.fresh


@dataclass(frozen=True, slots=True)
class CallSum:
    """Calls of one session that have a model, a reason and a source of numbers in common, added up."""

    session: str
    model: str
    reason: CallReason
    counts: Counts
    paid: bool
    """Whether their callers said what they cost: then `cost_usd` is that."""
    calls: int
    reusable: int
    fresh: int
    output: int
    naive_reusable: int
    naive_fresh: int
    cost_usd: float
    first: float
    last: float


class CallRows(Protocol):
    """The ledger's rows. They are only ever added."""

    def add(self, call: Call, usage: Usage | None = None) -> None:
        """Write down a call, and in the same step what it adds to the totals of its session."""
        ...

    def last(self, sessions: Sequence[str]) -> Call | None:
        """The newest call of these sessions."""
        ...

    def sums(self, sessions: Sequence[str] | None, since: float) -> Sequence[CallSum]:
        """Of these sessions, or of all; calls made since then. The session called last comes first."""
        ...

    def newest(
        self, sessions: Sequence[str] | None, since: float, limit: int, *, breaks: bool = False
    ) -> Sequence[Call]:
        """The newest calls in the order they were made; with `breaks`, those at which the prefix broke."""
        ...
