"""What background work may spend: one meter, a hard cap per day, written down before each call.

A call reserves the most that it may take, in the same step that looks whether the day has room for it; afterwards what
it really took stands in its place. A process that dies in between leaves its reservation, so that many processes, and
any number of crashes, cannot spend more than one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from herma.configkey import BY_PURPOSE
from herma.errors import (
    ConfigError,
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    SpendRefused,
    StoreError,
)
from herma.ports import ChatModel, Reservation, SpendRows, Spent
from herma.prompt.ledger import Prices
from herma.prompt.tokens import estimate
from herma.prompt.weight import count_messages, count_tools
from herma.types import Reply, Usage

OUTPUT_TOKENS = 4_096
"""How long an answer to background work may become if nobody says."""
PriceOf: TypeAlias = Callable[[str], Prices | None]
"""The prices of a model; `None` where they are not known."""
Limit: TypeAlias = Literal["off", "tokens", "money"]


def _log() -> logging.Logger:
    return logging.getLogger("herma.spend")  # not while importing, which has no effect


@dataclass(frozen=True, slots=True)
class Cap:
    """The most of one day; `None`: no limit of this kind."""

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Caps:
    """For everything together, and for single purposes."""

    all: Cap
    by_purpose: Mapping[str, Cap] = field(default_factory=dict)

    @property
    def off(self) -> bool:
        return self.all.usd == 0 or self.all.tokens == 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that is not made: the day has no room for it."""

    purpose: str
    limit: Limit
    spent: Spent
    cap: Cap
    tokens: int
    """What the call would have been allowed to take."""
    usd: float | None
    own: bool = False
    """Whether it is the purpose's own cap that is reached."""

    @property
    def never_fits(self) -> bool:
        """Whether an empty day has no room for it either, so that waiting does not help. What was spent is not said
        then: nobody looked."""
        if self.limit == "tokens":
            return self.tokens > (self.cap.tokens or 0)
        return (self.usd or 0) > (self.cap.usd or 0)

    @property
    def notice(self) -> str:
        """One sentence."""
        if self.limit == "off":
            return f"Background work ({self.purpose}) is switched off: its daily cap is 0."
        whose = f"what {self.purpose} may spend" if self.own else "what background work may spend"
        if self.limit == "tokens" and self.never_fits:
            numbers = f"it may take {self.tokens:,} tokens, and the whole day has {self.cap.tokens:,}"
        elif self.never_fits:
            numbers = f"it may take {self.usd or 0:.4f} USD, and the whole day has {self.cap.usd or 0:.2f}"
        elif self.limit == "tokens":
            numbers = f"{self.spent.tokens:,} of {self.cap.tokens:,} tokens used, {self.tokens:,} more needed at most"
        else:
            numbers = (
                f"{self.spent.usd:.4f} of {self.cap.usd or 0:.2f} USD used, {self.usd or 0:.4f} more needed at most"
            )
        return f"Today's limit of {whose} does not allow {self.purpose}: {numbers}."

    @property
    def hint(self) -> str:
        wait = "" if self.never_fits else ", or wait until tomorrow"
        if self.own:
            return f"Raise it in spend.by_purpose{wait}."
        key = "spend.daily_tokens" if self.limit == "tokens" else "spend.daily_usd"
        return f"Raise it with: herma config set {key} AMOUNT{wait}."


@dataclass(frozen=True, slots=True)
class Reserved:
    """Room that is held for one call."""

    number: int
    model: str
    worst: Usage


def decide(spent: Mapping[str, Spent], purpose: str, tokens: int, usd: float | None, caps: Caps) -> Refused | None:
    """Whether a call that takes at most so much still fits into the day; `None` means yes. Pure."""
    total = add(spent.values())
    if caps.off:
        return Refused(purpose, "off", total, caps.all, tokens, usd)
    own = caps.by_purpose.get(purpose)
    checked = [(caps.all, total, False)]
    if own is not None:
        checked.append((own, spent.get(purpose, Spent()), True))
    for cap, so_far, is_own in checked:
        if cap.tokens is not None and so_far.tokens + tokens > cap.tokens:
            return Refused(purpose, "tokens", so_far, cap, tokens, usd, is_own)
        if cap.usd is not None and usd is not None and so_far.usd + usd > cap.usd:
            return Refused(purpose, "money", so_far, cap, tokens, usd, is_own)
    return None


def add(parts: Any) -> Spent:
    """Several sums in one."""
    total = Spent()
    for one in parts:
        total = Spent(
            total.calls + one.calls,
            total.tokens + one.tokens,
            total.usd + one.usd,
            total.unpriced + one.unpriced,
            total.open + one.open,
        )
    return total


def tokens_of(usage: Usage) -> int:
    """Every token that went over the wire counts, those from the cache too."""
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def cost_of(usage: Usage, prices: Prices | None) -> float | None:
    """What the caller was told that it cost, else by the prices; `None` where neither is known."""
    if usage.cost_usd:
        return usage.cost_usd
    if prices is None:
        return None
    sent = usage.input + prices.cache_read * usage.cache_read + prices.cache_write * usage.cache_write
    return (prices.input * sent + prices.output * usage.output) / 1_000_000


def spent_by(error: ModelError, worst: Usage, count: Callable[[str], int]) -> Usage:
    """What a call that failed has taken, rather too much than too little.

    Who was refused pays nothing. Where text had come, everything that was sent and that text; otherwise nobody knows,
    and the whole reservation counts.
    """
    if isinstance(error, ModelRefused | ModelUnreachable):
        return Usage()
    if isinstance(error, ModelCancelled | ModelBroken) and error.partial:
        return Usage(input=worst.input, output=min(worst.output, count(error.partial)))
    return worst


def read_caps(daily_usd: float, daily_tokens: int, by_purpose: str) -> Caps:
    """Caps from configuration: `review=0.10, tidy=50000t` are US dollars and tokens of single purposes."""
    try:
        amounts = BY_PURPOSE.read(by_purpose)
    except ValueError as exc:
        raise ConfigError(
            f"spend.by_purpose has {str(exc)!r}, which is not a purpose with its limit.",
            hint="For example: herma config set spend.by_purpose 'review=0.10, tidy=50000t'",
        ) from exc
    own: dict[str, Cap] = {}
    for purpose, amount, in_tokens in amounts:
        before = own.get(purpose, Cap())
        own[purpose] = Cap(before.usd, int(amount)) if in_tokens else Cap(amount, before.tokens)
    return Caps(Cap(daily_usd, daily_tokens), own)


@dataclass(frozen=True, slots=True)
class SpendReport:
    """What background work took: today, and since a day."""

    today: str
    since: str
    spent_today: Mapping[str, Spent]
    spent_since: Mapping[str, Spent]
    caps: Caps

    @property
    def total_today(self) -> Spent:
        return add(self.spent_today.values())

    @property
    def total_since(self) -> Spent:
        return add(self.spent_since.values())


class Meter:
    """The one way to a model for work that nobody asked for. Safe in several threads and processes."""

    def __init__(
        self,
        rows: SpendRows,
        caps: Caps,
        *,
        price_of: PriceOf = lambda _: None,
        count: Callable[[str], int] = estimate,
        clock: Callable[[], float] = time.time,
        stopped: Callable[[float, Refused], None] = lambda *_: None,
    ) -> None:
        """`stopped` is told once a day and purpose that a call was refused, and when."""
        self._rows = rows
        self.caps = caps
        self._price_of = price_of
        self.count = count
        self._clock = clock
        self._stopped = stopped
        self._told: set[tuple[str, str]] = set()

    def reserve(self, purpose: str, model: str, worst: Usage) -> Reserved | Refused:
        """Hold room for a call that takes at most `worst`."""
        tokens, usd = tokens_of(worst), self._dearest(model, worst)
        refusals: list[Refused] = []
        now = self._clock()
        wish = Reservation(local_day(now), now, purpose, model, tokens, usd)

        def allows(spent: Mapping[str, Spent]) -> bool:
            refused = decide(spent, purpose, tokens, usd, self.caps)
            if refused is not None:
                refusals.append(refused)
            return refused is None

        number = None if self._impossible(wish, refusals) else self._rows.reserve(wish, allows)
        if number is None:
            return self._refuse(wish, refusals[-1])
        return Reserved(number, model, worst)

    def refusal(self, purpose: str, model: str, worst: Usage) -> Refused | None:
        """Why such a call would be refused now; `None` if it would not. Holds no room."""
        today = local_day(self._clock())
        spent = self._rows.by_purpose(today, today)
        return decide(spent, purpose, tokens_of(worst), self._dearest(model, worst), self.caps)

    def settle(self, held: Reserved, usage: Usage) -> None:
        """Put down what the call really took. If that cannot be written, the reservation goes on counting."""
        usd = cost_of(usage, self._price_of(held.model))
        try:
            self._rows.settle(held.number, tokens_of(usage), usd, usage)
        except StoreError as error:
            _log().warning(
                "What %s took could not be written down, so the most that it may take counts: %s", held.model, error
            )
            return
        _log().info(
            "%s took %s tokens%s.", held.model, f"{tokens_of(usage):,}", "" if usd is None else f", {usd:.4f} USD"
        )

    def report(self, since: float | None = None) -> SpendReport:
        """What was spent today, and since a time; without one, ever."""
        today = local_day(self._clock())
        first = min([today, *self._rows.days()[:1]]) if since is None else local_day(since)
        spent_since = self._rows.by_purpose(first, max(today, first))
        return SpendReport(today, first, self._rows.by_purpose(today, today), spent_since, self.caps)

    def _dearest(self, model: str, worst: Usage) -> float | None:
        """The price of the worst case: everything new, and written to the cache."""
        prices = self._price_of(model)
        if prices is None:
            return None
        dear = Usage(cache_write=worst.input, output=worst.output) if prices.cache_write > 1 else worst
        return cost_of(dear, prices)

    def _impossible(self, wish: Reservation, refusals: list[Refused]) -> bool:
        """Whether it would not even fit into an empty day: then nothing is opened to look."""
        refused = decide({}, wish.purpose, wish.tokens, wish.usd, self.caps)
        if refused is not None:
            refusals.append(refused)
        return refused is not None

    def _refuse(self, wish: Reservation, refused: Refused) -> Refused:
        if (wish.day, refused.purpose) not in self._told:  # once a day is enough
            self._told.add((wish.day, refused.purpose))
            _log().warning("%s %s", refused.notice, refused.hint)
            self._stopped(wish.at, refused)
        return refused


def local_day(now: float) -> str:
    """The day where this machine is, as 2026-12-31."""
    return time.strftime("%Y-%m-%d", time.localtime(now))


class MeteredModel:
    """A model for one purpose, behind the meter. Implements `ChatModel`; at the cap it raises `SpendRefused`."""

    def __init__(self, model: ChatModel, meter: Meter, purpose: str) -> None:
        self._model = model
        self._meter = meter
        self.purpose = purpose

    @property
    def name(self) -> str:
        return self._model.name

    def worst(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> Usage:
        """The most that a call may take."""
        count = self._meter.count
        sent = count_messages(messages, count) + count_tools(tools, count)
        return Usage(input=sent, output=max_tokens or OUTPUT_TOKENS)

    def refusal(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
    ) -> Refused | None:
        """Why `reply` would be refused now, as a value; `None` if it would not."""
        return self._meter.refusal(self.purpose, self.name, self.worst(messages, tools, max_tokens))

    def reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        on_text: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
        json_schema: Mapping[str, Any] | None = None,
        cache_marks: Sequence[int] | None = None,
    ) -> Reply:
        """The answer; see `ChatModel`. Its length is always limited, as a cap that is hard must know it beforehand."""
        worst = self.worst(messages, tools, max_tokens)
        held = self._meter.reserve(self.purpose, self.name, worst)
        if isinstance(held, Refused):
            raise SpendRefused(held.notice, hint=held.hint)
        try:
            reply = self._model.reply(
                messages,
                tools=tools,
                temperature=temperature,
                max_tokens=worst.output,
                deadline=deadline,
                on_text=on_text,
                cancel=cancel,
                json_schema=json_schema,
                cache_marks=cache_marks,
            )
        except ModelError as error:
            self._meter.settle(held, spent_by(error, worst, self._meter.count))
            raise
        self._meter.settle(held, reply.usage if reply.measured else worst)
        return reply
