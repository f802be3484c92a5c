"""What calls to models took, by session and in sum, next to writing memory into the system prompt every turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

from herma.errors import UsageError
from herma.ports import WHOLE, Call, CallRows, CallSum
from herma.prompt.ledger import FIVE_MINUTES
from herma.transcript import Transcripts
from herma.turn.prices import PriceTable

BREAKS = 20
"""How many places at which the prefix broke a report names."""
_NO_REASONS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tally:
    """Calls, added up. Money is `None` where neither the callers nor the configuration know what it was."""

    calls: int = 0
    reusable: int = 0
    fresh: int = 0
    output: int = 0
    naive_reusable: int = 0
    naive_fresh: int = 0
    measured: int = 0
    exact: int = 0
    reasons: Mapping[str, int] = field(default_factory=lambda: _NO_REASONS)
    cost: float | None = None
    naive_cost: float | None = None
    saved: float | None = None
    """Money that the naive way would have cost more, both by the configured prices."""

    @property
    def input(self) -> int:
        return self.reusable + self.fresh

    @property
    def share(self) -> float:
        """The part of all tokens sent that a cache could reuse."""
        return self.reusable / self.input if self.input else 0.0

    @property
    def naive_share(self) -> float:
        total = self.naive_reusable + self.naive_fresh
        return self.naive_reusable / total if total else 0.0

    @property
    def saved_tokens(self) -> int:
        """Tokens that the naive way would have sent anew and this one did not."""
        return self.naive_fresh - self.fresh

    @property
    def breaks(self) -> int:
        return sum(count for reason, count in self.reasons.items() if reason not in WHOLE)


@dataclass(frozen=True, slots=True)
class SessionCost:
    """One session. `name` is its title, or how it begins; "" when it is not there any more."""

    session: str
    name: str
    first: float
    last: float
    tally: Tally


@dataclass(frozen=True, slots=True)
class CostReport:
    """Sessions, the one called last first; all of them in sum; and the newest breaks."""

    sessions: tuple[SessionCost, ...]
    total: Tally
    breaks: tuple[Call, ...]
    prices: PriceTable
    lifetime: float
    _rows: CallRows = field(repr=False, compare=False)
    _members: tuple[str, ...] | None = None
    _since: float = 0.0

    def calls(self, limit: int = 1_000) -> list[Call]:
        """The newest single calls, in the order they were made."""
        return list(self._rows.newest(self._members, self._since, limit))

    def price(self, call: Call) -> float | None:
        """What one call cost."""
        if call.cost_usd is not None:
            return call.cost_usd
        if not self.prices.knows(call.model):
            return None
        return self.prices.of(call.model).cost(call.reusable, call.fresh, call.output)


def report(
    rows: CallRows,
    transcripts: Transcripts,
    prices: PriceTable,
    *,
    session: str | None = None,
    since: float | None = None,
    lifetime: float = FIVE_MINUTES,
) -> CostReport:
    """The report on one conversation or on all, on calls made since then."""
    members = None if session is None else _conversation(rows, transcripts, session)
    start = float("-inf") if since is None else since
    sums = rows.sums(members, start)
    sessions = []
    for one, parts in groupby(sums, key=lambda part: part.session):
        own = list(parts)
        info = transcripts.get(one)
        name = (info.title or info.preview) if info else ""
        first, last = min(part.first for part in own), max(part.last for part in own)
        sessions.append(SessionCost(one, name, first, last, tally(own, prices)))
    broken = rows.newest(members, start, BREAKS, breaks=True)
    return CostReport(tuple(sessions), tally(sums, prices), tuple(broken), prices, lifetime, rows, members, start)


def tally(sums: Sequence[CallSum], prices: PriceTable) -> Tally:
    """Add up. What callers paid counts as they said it; the rest by the prices, if there are any."""
    reasons: Counter[str] = Counter()
    for part in sums:
        reasons[part.reason] += part.calls
    priced = all(prices.knows(part.model) for part in sums) if sums else prices.knows("")
    unpaid = [part for part in sums if not part.paid]
    paid = sum(part.cost_usd for part in sums if part.paid)
    naive = sum(prices.of(part.model).cost(part.naive_reusable, part.naive_fresh, part.output) for part in sums)
    ours = _price(prices, sums)
    rest = _price(prices, unpaid)
    return Tally(
        calls=sum(part.calls for part in sums),
        reusable=sum(part.reusable for part in sums),
        fresh=sum(part.fresh for part in sums),
        output=sum(part.output for part in sums),
        naive_reusable=sum(part.naive_reusable for part in sums),
        naive_fresh=sum(part.naive_fresh for part in sums),
        measured=sum(part.calls for part in sums if part.counts == "measured"),
        exact=sum(part.calls for part in sums if part.counts == "exact"),
        reasons=MappingProxyType(dict(reasons)),
        cost=paid + rest if priced or (sums and not unpaid) else None,
        naive_cost=naive if priced else None,
        saved=naive - ours if priced else None,
    )


def why(call: Call, lifetime: float = FIVE_MINUTES) -> str:
    """A call's reason in words."""
    idle = call.idle or 0.0
    lapsed = f"; the cache had also lapsed after {span(idle)}" if idle > lifetime else ""
    match call.reason:
        case "idle":
            return f"idle for {span(idle)}, longer than the cache lives ({span(lifetime)})"
        case "resumed":
            return f"resumed after {span(idle)}, longer than the cache lives ({span(lifetime)})"
        case "rewound":
            return f"turns were taken back{lapsed}"
        case "branched":
            return f"branched off an earlier message{lapsed}"
        case "reload":
            return f"the prompt was reloaded on request{lapsed}"
        case "compression":
            return f"the conversation was compressed{lapsed}"
        case reason:
            return f"{reason}{lapsed}"


def where(call: Call) -> str:
    """The place at which the prefix broke."""
    if call.reason in ("idle", "resumed"):
        return "everything"
    if call.at_message is None:
        return "everything" if call.reason in ("model changed", "tools changed") else ""
    return "the system prompt" if call.at_message == 0 else f"message {call.at_message}"


def span(seconds: float) -> str:
    """A length of time in one unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def _price(prices: PriceTable, parts: Iterable[CallSum]) -> float:
    return sum(prices.of(part.model).cost(part.reusable, part.fresh, part.output) for part in parts)


def _conversation(rows: CallRows, transcripts: Transcripts, session: str) -> tuple[str, ...]:
    """All sessions of a conversation, by an id, the beginning of one, or a title. What was purged has its id left."""
    found = transcripts.resolve(session)
    if found is not None:
        return tuple(member.id for member in transcripts.conversation(found))
    if rows.last([session]) is not None:
        return (session,)
    raise UsageError(f"There is no session {session!r}.", hint="`herma sessions list` shows them.")
