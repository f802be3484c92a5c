"""Meter, daily cap, pauses of background work; rows."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import apsw

from herma.config import BY_PURPOSE
from herma.errors import (
    ConfigError,
    EmbedderError,
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelRefused,
    ModelUnreachable,
    SpendRefused,
    StoreError,
)
from herma.models.client import ChatModel
from herma.prompt.ledger import Prices
from herma.prompt.tokens import count_messages, count_tools, estimate
from herma.store.database import Database, insert_returning_id, queries
from herma.store.files import make_folder, replace_file
from herma.types import Reply, Usage

if TYPE_CHECKING:
    from herma.models.embedder import Embedder, Vectors


# ---------- ports.spend
#
# Where spending on background work is written down, for every process of a home.


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money, added up. `usd` counts what has a known price; `unpriced` calls have none."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    open: int = 0
    """Calls that were begun and not ended: they count with the most that they may take."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """The most that a call may take, before it is made. `usd` is `None` where the price is not known."""

    day: str
    at: float
    purpose: str
    model: str
    tokens: int
    usd: float | None


@dataclass(frozen=True, slots=True)
class SpentCall:
    """One call that nobody asked for: when, for what, and what it took; while it runs, the most that it may take."""

    at: float
    purpose: str
    model: str
    settled: bool
    tokens: int
    usd: float | None
    usage: Usage


class SpendRows(Protocol):
    """One row per call."""

    def reserve(self, wish: Reservation, allows: Callable[[Mapping[str, Spent]], bool]) -> int | None:
        """Write a reservation down if `allows` says so, which is given what that day took so far, by purpose.

        Nobody else can reserve in between. → its number; `None` if it is not allowed.
        """
        ...

    def settle(self, number: int, tokens: int, usd: float | None, usage: Usage) -> None:
        """Put what a call really took in the place of its reservation."""
        ...

    def by_purpose(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """What these days took, both included."""
        ...

    def by_day(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """What each of these days took, all purposes together; a day without calls is not among them."""
        ...

    def newest(self, limit: int) -> Sequence[SpentCall]:
        """The calls made last, the newest first."""
        ...

    def days(self) -> Sequence[str]:
        """The days on which anything was spent, oldest first."""
        ...


# ---------- reflect.spend
#
# What background work may spend: one meter, a hard cap per day, written down before each call.
#
# A call reserves the most that it may take, in the same step that looks whether the day has room for it; afterwards
# what it really took stands in its place. A process that dies in between leaves its reservation, so that many
# processes, and any number of crashes, cannot spend more than one.

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


# ---------- reflect.spend_embedding
#
# An embedder that is paid for, behind the meter: what it embeds unasked counts like other background work.

PURPOSE = "embedding"


class MeteredEmbedder:
    """Implements `Embedder`. Texts that are stored count under `embedding`, and at the cap `SpendRefused` is raised
    before anything is sent. Questions are what somebody asked for: they are let through.
    """

    def __init__(self, embedder: Embedder, meter: Meter, model: str) -> None:
        self._embedder = embedder
        self._meter = meter
        self._model = model

    @property
    def name(self) -> str:
        return self._embedder.name

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    @property
    def is_multilingual(self) -> bool:
        return self._embedder.is_multilingual

    def queries(self, texts: Sequence[str]) -> Vectors:
        return self._embedder.queries(texts)

    def passages(self, texts: Sequence[str]) -> Vectors:
        worst = Usage(input=sum(map(self._meter.count, texts)))
        held = self._meter.reserve(PURPOSE, self._model, worst)
        if isinstance(held, Refused):
            raise SpendRefused(held.notice, hint=held.hint)
        try:
            found = self._embedder.passages(texts)
        except EmbedderError:  # an endpoint that fails for hours must not use up what reviews may spend
            self._meter.settle(held, Usage())
            raise
        self._meter.settle(held, worst)
        return found


# ---------- reflect.spend_history
#
# What background work took, day by day and call by call, and what the daily cap stopped.

DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Stopped:
    """The cap left no room for something: when, for what, and the notice that was given."""

    at: float
    purpose: str
    notice: str
    times: int = 1
    """How often that was said that day: once by each program."""


@dataclass(frozen=True, slots=True)
class SpendHistory:
    """Every day in order, also those on which nothing was spent; calls and notices, the newest first."""

    days: tuple[tuple[str, Spent], ...]
    calls: tuple[SpentCall, ...]
    stopped: tuple[Stopped, ...]


def history(rows: SpendRows, noted: Sequence[Stopped], now: float, *, days: int, calls: int) -> SpendHistory:
    wanted = last_days(local_day(now), days)
    found = rows.by_day(wanted[0], wanted[-1]) if wanted else {}
    each = tuple((day, found.get(day, Spent())) for day in wanted)
    return SpendHistory(each, tuple(rows.newest(calls)), together(noted))


def last_days(today: str, count: int) -> list[str]:
    """So many days of the calendar, today the last of them. Pure."""
    last = date.fromisoformat(today)
    return [(last - timedelta(days=back)).isoformat() for back in range(count - 1, -1, -1)]


def together(noted: Sequence[Stopped]) -> tuple[Stopped, ...]:
    """One notice for each day and purpose, as it was given last; the newest first. Pure."""
    found: dict[tuple[str, str], Stopped] = {}
    for one in sorted(noted, key=lambda one: one.at):
        key = (local_day(one.at), one.purpose)
        before = found.pop(key, None)
        found[key] = Stopped(one.at, one.purpose, one.notice, one.times + (before.times if before else 0))
    return tuple(reversed(found.values()))


# ---------- ports.pauses
#
# Where it is written down which background work rests, for every program of a home.

REST = 86_400.0
"""Seconds for which work is left alone whose answers could not be used."""
PauseKey: TypeAlias = tuple[str, str]
"""A purpose of background work, and a model's name."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Passes in a row whose answers could not be used, and until when nothing is asked because of it."""

    passes: int
    at: float
    why: str
    until: float = 0.0

    def rests(self, now: float) -> bool:
        """Whether it is left alone. An end further away than a rest is long comes of a clock that was set."""
        return now < self.until <= now + REST


class PauseRows(Protocol):
    """A few rows. What cannot be read or written is forgotten: then it is asked once more."""

    def read(self) -> Mapping[PauseKey, Missed]: ...

    def write(self, known: Mapping[PauseKey, Missed]) -> None: ...


# ---------- reflect.pauses
#
# A model that does not answer in the form that was asked for is not asked for ever.
#
# Each pass of background work tries once more at most. Where three passes in a row came to nothing, that purpose rests
# for a day with that model; then it is tried again, once. Another model is asked at once, and so is this one when a
# person says so.

MOST = 3
"""Passes in a row that may come to nothing."""
_LONGEST = 200


def missed(before: Missed | None, now: float, why: str) -> Missed:
    """One pass more that came to nothing. Pure."""
    passes = (before.passes if before else 0) + 1
    return Missed(passes, now, why[:_LONGEST], now + REST if passes >= MOST else 0.0)


def lifted(before: Missed) -> Missed:
    """Asked again now; one more failure is enough to rest again. Pure."""
    return Missed(min(before.passes, MOST - 1), before.at, before.why)


@dataclass(frozen=True, slots=True)
class Pause:
    """Background work that rests."""

    purpose: str
    model: str
    missed: Missed

    @property
    def notice(self) -> str:
        """One sentence."""
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.missed.until))
        why = self.missed.why.rstrip(".")
        return (
            f"{self.purpose} rests until {until}: {self.model} did not answer in the form that was asked for, "
            f"{self.missed.passes} times in a row (last: {why})."
        )

    @property
    def hint(self) -> str:
        return f"Set a more capable model (auxiliary.name), or try again now: herma models resume {self.purpose}"


class Pauses:
    """One per opened memory."""

    def __init__(self, rows: PauseRows, clock: Callable[[], float] = time.time) -> None:
        self._rows = rows
        self._clock = clock

    def of(self, purpose: str, model: str) -> Pause | None:
        """Why this is not asked now; nothing where it may be."""
        known = self._rows.read().get((purpose, model))
        return Pause(purpose, model, known) if known is not None and known.rests(self._clock()) else None

    def list(self) -> tuple[Pause, ...]:
        """Everything that rests now."""
        now = self._clock()
        known = sorted(self._rows.read().items())
        return tuple(Pause(*key, each) for key, each in known if each.rests(now))

    def judge(self, purpose: str, model: str, why: str = "") -> Pause | None:
        """A pass was of use, or not, and why. → the rest that begins with it."""
        known = dict(self._rows.read())
        key = (purpose, model)
        if not why:
            if known.pop(key, None) is not None:
                self._rows.write(known)
            return None
        now = self._clock()
        known[key] = missed(known.get(key), now, why)
        self._rows.write(known)
        return Pause(purpose, model, known[key]) if known[key].rests(now) else None

    def lift(self, purpose: str = "", model: str = "") -> tuple[Pause, ...]:
        """Let it be asked again: everything that rests, or that of a purpose or a model. → what rested."""
        rested = tuple(one for one in self.list() if purpose in ("", one.purpose) and model in ("", one.model))
        if rested:
            known = dict(self._rows.read())
            for one in rested:
                known[one.purpose, one.model] = lifted(one.missed)
            self._rows.write(known)
        return rested


class RestingModel(MeteredModel):
    """A metered model that is left alone while its purpose rests: then it raises `SpendRefused`."""

    def __init__(self, model: ChatModel, meter: Meter, purpose: str, pauses: Pauses) -> None:
        super().__init__(model, meter, purpose)
        self._pauses = pauses

    def reply(self, messages: Sequence[Mapping[str, Any]], **how: Any) -> Reply:
        """The answer; see `ChatModel`."""
        rests = self._pauses.of(self.purpose, self.name)
        if rests is not None:
            raise SpendRefused(rests.notice, hint=rests.hint)
        return super().reply(messages, **how)

    def judge(self, why: str) -> Pause | None:
        return self._pauses.judge(self.purpose, self.name, why)

    def lift(self) -> None:
        self._pauses.lift(self.purpose, self.name)


def at_a_persons_wish(model: ChatModel) -> None:
    """Say that somebody asked for this pass: then it is tried, whatever came of the passes before."""
    if isinstance(model, RestingModel):
        model.lift()


def was_of_use(model: ChatModel) -> None:
    """Say that a pass ended with an answer that could be read."""
    if isinstance(model, RestingModel):
        model.judge("")


def was_of_no_use(model: ChatModel, why: str) -> str:
    """Say that it did not. → what people should know: that it rests from now on, or nothing."""
    rests = model.judge(why) if isinstance(model, RestingModel) else None
    return f"{rests.notice} {rests.hint}" if rests is not None else ""


# ---------- store.pause_file
#
# `logs/pauses.json`: which background work rests because of which model. Derived: it may be deleted at any time.

_MOST = 100
_LARGEST = 256 * 1024
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class PauseFile:
    """Implements `PauseRows`."""

    def __init__(self, home: Path) -> None:
        self._path = home / "logs" / "pauses.json"

    def read(self) -> dict[PauseKey, Missed]:
        try:
            with self._path.open("rb") as file:
                rows = json.loads(file.read(_LARGEST))
            return {(str(row["purpose"]), str(row["model"])): _missed(row) for row in rows}
        except (OSError, *_BROKEN):
            return {}

    def write(self, known: Mapping[PauseKey, Missed]) -> None:
        newest = sorted(known.items(), key=lambda row: row[1].at)[-_MOST:]
        rows = [{"purpose": purpose, "model": model, **asdict(each)} for (purpose, model), each in newest]
        try:
            make_folder(self._path.parent)
            replace_file(self._path, json.dumps(rows, ensure_ascii=True, indent=1).encode("ascii"))
        except (OSError, StoreError):  # a home that cannot be written: it is asked once more, that is all
            return


def _missed(row: Mapping[str, object]) -> Missed:
    passes, at, until = (float(str(row[name])) for name in ("passes", "at", "until"))
    return Missed(int(passes), at, str(row["why"]), until)


# ---------- store.sqlite.spend
#
# Spending on background work in `herma.db`: implements `SpendRows`.


class SqliteSpend:
    """Rows of the table `spending`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("spend")

    def reserve(self, wish: Reservation, allows: Callable[[Mapping[str, Spent]], bool]) -> int | None:
        def work(connection: apsw.Connection) -> int | None:
            that_day = {"first": wish.day, "last": wish.day}
            if not allows(_sums(connection.execute(self._sql["by_purpose"], that_day))):
                return None
            return insert_returning_id(connection, self._sql["reserve"], asdict(wish))

        return self._db.write(work)

    def settle(self, number: int, tokens: int, usd: float | None, usage: Usage) -> None:
        taken = {name: value for name, value in asdict(usage).items() if name != "cost_usd"}
        bindings = {"id": number, "tokens": tokens, "usd": usd, **taken}
        self._db.write(lambda connection: connection.execute(self._sql["settle"], bindings) and None)

    def by_purpose(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        return _sums(self._db.rows(self._sql["by_purpose"], {"first": first_day, "last": last_day}))

    def by_day(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        return _sums(self._db.rows(self._sql["by_day"], {"first": first_day, "last": last_day}))

    def newest(self, limit: int) -> list[SpentCall]:
        return [_call(row) for row in self._db.rows(self._sql["newest"], {"limit": limit})]

    def days(self) -> list[str]:
        return [day for (day,) in self._db.rows(self._sql["days"])]


def _sums(rows: Iterable[Any]) -> dict[str, Spent]:
    """By purpose, or by day: whatever stands first."""
    return {name: Spent(*numbers) for name, *numbers in rows}


def _call(row: Sequence[Any]) -> SpentCall:
    at, purpose, model, settled, tokens, usd, *taken = row
    names = ("input", "output", "cache_read", "cache_write", "reasoning")
    return SpentCall(at, purpose, model, bool(settled), tokens, usd, Usage(**dict(zip(names, taken, strict=True))))
