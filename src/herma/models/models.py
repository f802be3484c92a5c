"""The models that the settings name: the main one, and the auxiliary one for background work with its daily cap.

A background call reserves the most that it may cost, in the transaction that checks the cap; afterwards its real cost
replaces the reservation. A process that dies in between leaves its reservation, so no number of processes or crashes
can spend more than the cap. A model that gives no usable answers is paused.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.errors import (
    EmbedderError,
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelUnreachable,
    SpendRefused,
    StoreError,
    UsageError,
)
from herma.features import lazy_property
from herma.models.endpoints import Endpoint, Role, endpoint_of
from herma.prompt.ledger import Prices, PriceTable, read_prices
from herma.prompt.tokens import count_messages, count_tools, estimate
from herma.store.database import Database, DatabaseConnection
from herma.store.files import make_folder, replace_file
from herma.types import Reply, Usage
from herma.worker import Trouble, TroubleLog

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.models.client import ChatModel, RemoteModel, Retry
    from herma.models.embedder import Embedder, Vectors


WITHOUT = (
    "Herma stores and finds everything without a model. With one, `herma chat` answers, long conversations get "
    "summaries in words, and Herma learns from them in the background."
)
"""The benefits of a model, in sentences for people."""
PURPOSES = (
    *("review", "memory_update", "compress", "episodes", "skills", "tidy", "boundary", "title", "curate"),
    *("search_summary", "query_expansion", "eval"),
)
"""The kinds of background work."""


class Models:
    """The models that the settings name. Nothing is opened before a model is asked."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._made: dict[Endpoint, RemoteModel] = {}
        self._watched: dict[tuple[RemoteModel, str], CountedModel] = {}

    def get(
        self, role: Role = "main", *, purpose: str | None = None, on_retry: Callable[[Retry], None] | None = None
    ) -> ChatModel | None:
        """Return the model of a role; `None` if there is none, and `why_not` says why.

        With a `purpose`, the model is for background work and its calls are metered; the auxiliary model is for such
        work only. `on_retry` is called before a request is sent again.
        """
        self._app.ensure_open()
        if role == "auxiliary" and purpose is None:
            raise UsageError(
                "The auxiliary model is for background work, which has a purpose.",
                hint=f"Say which: {', '.join(PURPOSES)}.",
            )
        if purpose is not None and purpose not in PURPOSES:
            raise UsageError(
                f"{purpose!r} is not a purpose of background work.", hint=f"Use one of: {', '.join(PURPOSES)}."
            )
        where = self.endpoint(role)
        if where is None:
            return None
        model = self._counted(self.client(where, on_retry), purpose or "answering")
        if purpose is None:
            return model
        return MeteredModel(model, self.meter, purpose, self.pauses)

    def ask(self, purpose: str, rules: str, text: str, *, deadline: float = 10.0) -> str:
        """Return a short answer of the auxiliary model; "" if there is none, or it fails."""
        model = self.get("auxiliary", purpose=purpose)
        messages = [{"role": "system", "content": rules}, {"role": "user", "content": text}]
        try:
            return model.reply(messages, max_tokens=300, deadline=deadline).text.strip() if model else ""
        except ModelError:
            return ""

    def why_not(self, role: Role = "main") -> str:
        """Say why there is no such model, what it would add and how to set one; "" if there is one."""
        if self.endpoint(role) is not None:
            return ""
        model = self._app.settings.model
        missing = (
            "model.url" if model.name and not model.url else "model.name" if model.url else "model.url and model.name"
        )
        how = "herma config set model.url ollama, and herma config set model.name NAME"
        return f"No model is set ({missing}: empty). {WITHOUT} To set one: {how}."

    def endpoint(self, role: Role = "main") -> Endpoint | None:
        """Return where the model of a role is; `None` if the settings name none."""
        return endpoint_of(self._app.settings, role)

    def embedder(self) -> Embedder | None:
        """Return the embedder. One with a key is assumed to cost money, so its calls are metered."""
        found, settings = self._app.embedder, self._app.settings.embedding
        if found is None or self._app.embedder_given or settings.model != "endpoint" or not settings.api_key_env:
            return found
        return MeteredEmbedder(found, self.meter, settings.endpoint_model)

    @lazy_property
    def meter(self) -> SpendingMeter:
        """Return what background work may spend, and has spent."""
        spend = self._app.settings.spend

        def stopped(at: float, refused: Refused) -> None:
            if refused.limit != "off":  # a person who switched it off knows
                why = f"{refused.notice} {refused.hint}"
                TroubleLog(self._app.home, "spending").add(Trouble(refused.purpose, refused.limit, why), at)

        rows = SpendRows(self._app.db)
        return SpendingMeter(
            rows,
            Caps(spend.daily_usd, spend.daily_tokens),
            price_of=self.price_of,
            clock=self._app.clock,
            stopped=stopped,
        )

    @lazy_property
    def pauses(self) -> Pauses:
        """Return which background work is paused because a model's answers could not be used."""
        return Pauses(self._app.home, self._app.clock)

    def spending(self, since: float | None = None) -> SpendReport:
        """Return what background work cost today, and since `since`."""
        self._app.ensure_open()
        return self.meter.report(since)

    def spending_history(self, *, days: int = 30, calls: int = 20) -> SpendHistory:
        """Return what background work cost day by day, its newest calls, and what the cap stopped in these days."""
        self._app.ensure_open()
        now = self._app.clock()
        noted = TroubleLog(self._app.home, "spending").since(now - days * DAY)
        stopped = together([Stopped(one.at, one.name, one.why) for one in noted])
        rows, last = SpendRows(self._app.db), date.fromisoformat(local_day(now))
        wanted = [(last - timedelta(days=back)).isoformat() for back in range(days - 1, -1, -1)]
        found = rows.by_day(wanted[0], wanted[-1]) if wanted else {}
        return SpendHistory(tuple((day, found.get(day, Spent())) for day in wanted), tuple(rows.newest(calls)), stopped)

    @lazy_property
    def prices(self) -> PriceTable:
        """Return what tokens cost, by model."""
        given = self._app.settings.prices
        return read_prices(Prices(given.input, given.output, given.cache_read, given.cache_write), given.by_model)

    def price_of(self, model: str) -> Prices | None:
        """Return what a model's tokens cost; `None` if that is not known."""
        return self.prices.of(model) if self.prices.knows(model) else None

    def _counted(self, model: RemoteModel, what: str) -> CountedModel:
        """Return the same model with its failures written down. A model that is kept is wrapped once."""
        watched = CountedModel(model, self._app.record_trouble, what)
        return self._watched.setdefault((model, what), watched) if model in self._made.values() else watched

    def client(self, where: Endpoint, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
        """Return the client of an endpoint, not metered: for what a person asked for."""
        if on_retry is None and where in self._made:
            return self._made[where]
        from herma.models.apis import remote_model

        model = remote_model(where, on_retry=on_retry)
        if on_retry is None:
            self._made[where] = model
        return model


class CountedModel:
    """A `ChatModel` whose failures are written down for the doctor, unless the caller caused them."""

    def __init__(self, model: ChatModel, troubled: Callable[[Trouble], None], what: str) -> None:
        self._model = model
        self._troubled = troubled
        self._what = what

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        """Answer; see `ChatModel`."""
        try:
            return self._model.reply(messages, **options)
        except (ModelCancelled, ModelOverflow):
            raise
        except ModelError as error:
            self._troubled(Trouble(f"model {self.name}", self._what, str(error)))
            raise


DAY = 86_400.0
OUTPUT_TOKENS = 4_096
"""The longest answer to background work if the caller sets no limit."""
PriceOf: TypeAlias = Callable[[str], Prices | None]
"""The prices of a model; `None` if they are not known."""


def _log() -> logging.Logger:
    return logging.getLogger("herma.spend")  # importing has no effect


@dataclass(frozen=True, slots=True)
class Spent:
    """Tokens and money, added up. `usd` counts calls with a known price; `unpriced` calls have none."""

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0
    unpriced: int = 0
    open: int = 0
    """Calls that began and have not ended: their reservation counts."""
    estimated: int = 0
    """Calls that failed, or whose server did not report usage: estimated on the high side."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


class SpentCall(NamedTuple):
    """One call of background work: its cost; while it runs, its reservation."""

    at: float
    purpose: str
    model: str
    settled: bool
    tokens: int
    usd: float | None
    usage: Usage
    estimated: bool = False


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that background work may spend in a day; `None`: no limit of this kind."""

    usd: float | None = None
    tokens: int | None = None

    @property
    def off(self) -> bool:
        return self.usd == 0 or self.tokens == 0


@dataclass(frozen=True, slots=True)
class Refused:
    """A call that was not made because it does not fit under the cap."""

    purpose: str
    limit: Literal["off", "tokens", "money"]
    spent: Spent
    caps: Caps
    tokens: int
    """The most that the call may take."""
    usd: float | None

    @property
    def never_fits(self) -> bool:
        """Return whether the call does not fit into an empty day either, so that waiting does not help."""
        if self.limit == "tokens":
            return self.tokens > (self.caps.tokens or 0)
        return (self.usd or 0) > (self.caps.usd or 0)

    @property
    def notice(self) -> str:
        if self.limit == "off":
            return f"Background work ({self.purpose}) is switched off: its daily cap is 0."
        if self.limit == "tokens":
            wanted, used, cap = f"{self.tokens:,}", f"{self.spent.tokens:,}", f"{self.caps.tokens:,} tokens"
        else:
            wanted, used = f"{self.usd or 0:.4f}", f"{self.spent.usd:.4f}"
            cap = f"{self.caps.usd or 0:.2f} USD"
        what = f"{self.purpose} may need {wanted}"
        if self.never_fits:
            return f"The daily cap on background work does not allow {self.purpose}: {what}, the whole day has {cap}."
        return f"The daily cap on background work does not allow {self.purpose}: {used} of {cap} used, {what}."

    @property
    def hint(self) -> str:
        key = "spend.daily_tokens" if self.limit == "tokens" else "spend.daily_usd"
        return f"Raise it with: herma config set {key} AMOUNT{'' if self.never_fits else ', or wait until tomorrow'}."


def decide(spent: Spent, purpose: str, tokens: int, usd: float | None, caps: Caps) -> Refused | None:
    """Return why a call that takes at most so much does not fit into the day; `None` if it fits."""
    limit: Literal["off", "tokens", "money"] | None = None
    if caps.off:
        limit = "off"
    elif caps.tokens is not None and spent.tokens + tokens > caps.tokens:
        limit = "tokens"
    elif caps.usd is not None and usd is not None and spent.usd + usd > caps.usd:
        limit = "money"
    return Refused(purpose, limit, spent, caps, tokens, usd) if limit else None


def tokens_of(usage: Usage) -> int:
    """Every token that was sent or received counts, cached ones too."""
    return usage.input + usage.output + usage.cache_read + usage.cache_write


def cost_of(usage: Usage, prices: Prices | None) -> float | None:
    """Return the cost that the server reported, else the cost by the prices; `None` if neither is known."""
    if usage.cost_usd:
        return usage.cost_usd
    if prices is None:
        return None
    sent = usage.input + prices.cache_read * usage.cache_read + prices.cache_write * usage.cache_write
    return (prices.input * sent + prices.output * usage.output) / 1_000_000


def spent_by(error: ModelError, worst: Usage, count: Callable[[str], int]) -> Usage:
    """Estimate what a failed call cost, on the high side.

    A refused call costs nothing. If part of the answer came, the request and that part count; else the reservation.
    """
    if isinstance(error, ModelRefused | ModelUnreachable):
        return Usage()
    if isinstance(error, ModelCancelled | ModelBroken) and error.partial:
        return Usage(input=worst.input, output=min(worst.output, count(error.partial)))
    return worst


@dataclass(frozen=True, slots=True)
class SpendReport:
    """The spending of background work: today, and since a day."""

    today: str
    since: str
    spent_today: Mapping[str, Spent]
    spent_since: Mapping[str, Spent]
    caps: Caps

    @property
    def total_today(self) -> Spent:
        return sum(self.spent_today.values(), Spent())

    @property
    def total_since(self) -> Spent:
        return sum(self.spent_since.values(), Spent())


class SpendingMeter:
    """Count and cap calls for background work. Safe in several threads and processes."""

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
        """`stopped` is called at most once per day and purpose when calls are refused."""
        self._rows = rows
        self.caps = caps
        self._price_of = price_of
        self.count = count
        self._clock = clock
        self._stopped = stopped
        self._warned: set[tuple[str, str]] = set()

    def reserve(self, purpose: str, model: str, worst: Usage) -> int | Refused:
        """Reserve room for a call that takes at most `worst`. Return the number of the reservation."""
        now = self._clock()
        day, tokens, usd = local_day(now), tokens_of(worst), self._dearest(model, worst)
        refused = decide(Spent(), purpose, tokens, usd, self.caps)  # then no database is opened
        number = None
        if refused is None:

            def refuses(spent: Spent) -> bool:
                nonlocal refused
                refused = decide(spent, purpose, tokens, usd, self.caps)
                return refused is not None

            row = {"day": day, "at": now, "purpose": purpose, "model": model, "tokens": tokens, "usd": usd}
            number = self._rows.reserve(row, refuses)
        if refused is not None:
            if (day, purpose) not in self._warned:
                self._warned.add((day, purpose))
                _log().warning("%s %s", refused.notice, refused.hint)
                self._stopped(now, refused)
            return refused
        assert number is not None
        return number

    def settle(self, number: int, model: str, usage: Usage, *, estimated: bool = False) -> None:
        """Record the real cost of a call. If that fails, its reservation goes on counting."""
        usd = cost_of(usage, self._price_of(model))
        try:
            self._rows.settle(number, tokens_of(usage), usd, usage, estimated=estimated)
        except StoreError as error:
            _log().warning("The cost of a call of %s was not recorded, so its reservation counts: %s", model, error)
            return
        _log().info("%s took %s tokens%s.", model, f"{tokens_of(usage):,}", "" if usd is None else f", {usd:.4f} USD")

    def report(self, since: float | None = None) -> SpendReport:
        """Return what was spent today, and since a time; without one, ever."""
        today = local_day(self._clock())
        first = min([today, *self._rows.days()[:1]]) if since is None else local_day(since)
        spent_since = self._rows.by_purpose(first, max(today, first))
        return SpendReport(today, first, self._rows.by_purpose(today, today), spent_since, self.caps)

    def _dearest(self, model: str, worst: Usage) -> float | None:
        """Return the price of the worst case: all input is new and written to the cache."""
        prices = self._price_of(model)
        if prices is None:
            return None
        return cost_of(Usage(cache_write=worst.input, output=worst.output) if prices.cache_write > 1 else worst, prices)


def local_day(now: float) -> str:
    """Return the local date, such as 2026-12-31."""
    return time.strftime("%Y-%m-%d", time.localtime(now))


class MeteredModel:
    """A `ChatModel` for one purpose of background work. It raises `SpendRefused` at the cap and while it is paused."""

    def __init__(self, model: ChatModel, meter: SpendingMeter, purpose: str, pauses: Pauses | None = None) -> None:
        self._model = model
        self._meter = meter
        self.pauses = pauses
        self.purpose = purpose

    @property
    def name(self) -> str:
        return self._model.name

    def reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        max_tokens: int | None = None,
        **options: Any,
    ) -> Reply:
        """Answer; see `ChatModel`. The answer always has a limit, because a hard cap must know the most it can cost."""
        paused = self.pauses.of(self.purpose, self.name) if self.pauses else None
        if paused is not None:
            raise SpendRefused(paused.notice, hint=paused.hint)
        count = self._meter.count
        worst = Usage(input=count_messages(messages, count) + count_tools(tools, count))
        worst += Usage(output=max_tokens or OUTPUT_TOKENS)
        held = self._meter.reserve(self.purpose, self.name, worst)
        if isinstance(held, Refused):
            raise SpendRefused(held.notice, hint=held.hint)
        try:
            reply = self._model.reply(messages, tools=tools, max_tokens=worst.output, **options)
        except ModelError as error:
            taken = spent_by(error, worst, count)
            self._meter.settle(held, self.name, taken, estimated=taken != Usage())
            raise
        self._meter.settle(held, self.name, reply.usage if reply.measured else worst, estimated=not reply.measured)
        return reply


class MeteredEmbedder:
    """An `Embedder` that costs money. Stored texts count under `embedding` and raise `SpendRefused` at the cap;
    questions are asked by a person and are not capped.
    """

    PURPOSE = "embedding"

    def __init__(self, embedder: Embedder, meter: SpendingMeter, model: str) -> None:
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
        held = self._meter.reserve(self.PURPOSE, self._model, worst)
        if isinstance(held, Refused):
            raise SpendRefused(held.notice, hint=held.hint)
        try:
            found = self._embedder.passages(texts)
        except EmbedderError:  # an endpoint that fails for hours must not use up what reviews may spend
            self._meter.settle(held, self._model, Usage())
            raise
        self._meter.settle(held, self._model, worst)
        return found


# ── history ──


@dataclass(frozen=True, slots=True)
class Stopped:
    """Calls that the cap refused: the newest notice of a day and purpose, and how many programs gave it."""

    at: float
    purpose: str
    notice: str
    times: int = 1


class SpendHistory(NamedTuple):
    """Every day in order, also those without calls; calls and notices, newest first."""

    days: tuple[tuple[str, Spent], ...]
    calls: tuple[SpentCall, ...]
    stopped: tuple[Stopped, ...]


def together(noted: Sequence[Stopped]) -> tuple[Stopped, ...]:
    """Return the newest notice of each day and purpose; newest first."""
    found: dict[tuple[str, str], Stopped] = {}
    for one in sorted(noted, key=lambda one: one.at):
        key = (local_day(one.at), one.purpose)
        before = found.pop(key, None)
        found[key] = Stopped(one.at, one.purpose, one.notice, one.times + (before.times if before else 0))
    return tuple(reversed(found.values()))


# ── pauses ──
#
# A purpose whose answers could not be used three times in a row is paused for a day with that model; then it is tried
# once. Another model is used at once, and so is this one when a person asks for it.

MOST = 3
"""Unusable answers in a row after which a purpose is paused."""
REST = DAY
_PAUSES_KEPT, _LARGEST, _WHY_LONGEST = 100, 256 * 1024, 200


@dataclass(frozen=True, slots=True)
class Pause:
    """Background work whose answers could not be used, `passes` times in a row; paused `until` a time."""

    purpose: str
    model: str
    passes: int
    at: float
    why: str
    until: float = 0.0

    def active(self, now: float) -> bool:
        """Return whether it is paused. An end further away than a pause is long comes from a clock that was changed."""
        return now < self.until <= now + REST

    @property
    def notice(self) -> str:
        until = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.until))
        return (
            f"{self.purpose} is paused until {until}: answers of {self.model} could not be used "
            f"{self.passes} times in a row (last: {self.why.rstrip('.')})."
        )

    @property
    def hint(self) -> str:
        return (
            f"Set a more capable model (auxiliary.name), or try again now: herma models check --resume {self.purpose}"
        )


class Pauses:
    """The pauses of a home, in `logs/pauses.json`. The file is derived: it may be deleted at any time."""

    def __init__(self, home: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = home / "logs" / "pauses.json"
        self._clock = clock
        self._mutex = threading.Lock()

    def of(self, purpose: str, model: str) -> Pause | None:
        """Return the pause of a purpose with a model; `None` if there is none."""
        known = self._read().get((purpose, model))
        return known if known is not None and known.active(self._clock()) else None

    def list(self) -> tuple[Pause, ...]:
        now = self._clock()
        return tuple(one for _, one in sorted(self._read().items()) if one.active(now))

    def judge(self, purpose: str, model: str, why: str = "") -> Pause | None:
        """Record that an answer was unusable, and why; or usable, without a reason. Return a pause that begins."""
        with self._mutex:
            known = self._read()
            before = known.pop((purpose, model), None)
            now, made = self._clock(), None
            if why:
                passes = (before.passes if before else 0) + 1
                made = Pause(purpose, model, passes, now, why[:_WHY_LONGEST], now + REST if passes >= MOST else 0.0)
                known[purpose, model] = made
            if why or before:
                self._write(known)
        return made if made is not None and made.active(now) else None

    def lift(self, purpose: str = "", model: str = "") -> tuple[Pause, ...]:
        """End pauses: all of them, or those of a purpose or a model. One more failure pauses them again."""
        with self._mutex:
            paused = tuple(one for one in self.list() if purpose in ("", one.purpose) and model in ("", one.model))
            if paused:
                known = self._read()
                for one in paused:
                    passes = min(one.passes, MOST - 1)
                    known[one.purpose, one.model] = Pause(one.purpose, one.model, passes, one.at, one.why)
                self._write(known)
        return paused

    def _read(self) -> dict[tuple[str, str], Pause]:
        try:
            with self._path.open("rb") as file:
                rows = json.loads(file.read(_LARGEST))
            found = [
                Pause(
                    str(row["purpose"]),
                    str(row["model"]),
                    int(row["passes"]),
                    float(row["at"]),
                    str(row["why"]),
                    float(row["until"]),
                )
                for row in rows
            ]
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return {}
        return {(one.purpose, one.model): one for one in found}

    def _write(self, known: Mapping[tuple[str, str], Pause]) -> None:
        newest = sorted(known.values(), key=lambda one: one.at)[-_PAUSES_KEPT:]
        try:
            make_folder(self._path.parent)
            replace_file(self._path, json.dumps([asdict(one) for one in newest], indent=1).encode("ascii"))
        except (OSError, StoreError):  # a read-only home: the model is asked once more
            return


def lift_pause(model: ChatModel) -> None:
    """End the pause of a model: a person asked for this work."""
    if isinstance(model, MeteredModel) and model.pauses:
        model.pauses.lift(model.purpose, model.name)


def record_usable(model: ChatModel) -> None:
    """Record that background work could use the answer of a model."""
    record_unusable(model, "")


def record_unusable(model: ChatModel, why: str) -> str:
    """Record that it could not, and why. Return a notice if the work is paused now."""
    if not isinstance(model, MeteredModel) or not model.pauses:
        return ""
    paused = model.pauses.judge(model.purpose, model.name, why)
    return f"{paused.notice} {paused.hint}" if paused is not None else ""


class SpendRows:
    """Rows of the table `spending`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("models.spending")

    def reserve(self, row: Mapping[str, Any], refuses: Callable[[Spent], bool]) -> int | None:
        """Insert a reservation unless `refuses`, which is given what that day took so far; in one transaction."""

        def work(connection: DatabaseConnection) -> int | None:
            that_day = {"first": row["day"], "last": row["day"]}
            spent = _sums(connection.rows(self._sql["by_purpose"], that_day)).values()
            return None if refuses(sum(spent, Spent())) else connection.insert(self._sql["reserve"], row)

        return self._db.write(work)

    def settle(self, number: int, tokens: int, usd: float | None, usage: Usage, *, estimated: bool = False) -> None:
        """Replace a reservation by the real cost."""
        taken = {name: value for name, value in asdict(usage).items() if name != "cost_usd"}
        self._db.run(self._sql["settle"], {"id": number, "tokens": tokens, "usd": usd, "estimated": estimated, **taken})

    def by_purpose(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """Sum up these days, both included, by purpose."""
        return _sums(self._db.rows(self._sql["by_purpose"], {"first": first_day, "last": last_day}))

    def by_day(self, first_day: str, last_day: str) -> Mapping[str, Spent]:
        """Sum up each day that has calls."""
        return _sums(self._db.rows(self._sql["by_day"], {"first": first_day, "last": last_day}))

    def newest(self, limit: int) -> list[SpentCall]:
        return [_call(row) for row in self._db.rows(self._sql["newest"], {"limit": limit})]

    def days(self) -> list[str]:
        """Return the days with calls, oldest first."""
        return [day for (day,) in self._db.rows(self._sql["days"])]


def _sums(rows: Iterable[Any]) -> dict[str, Spent]:
    return {name: Spent(*numbers) for name, *numbers in rows}


def _call(row: Sequence[Any]) -> SpentCall:
    at, purpose, model, settled, tokens, usd, *taken, estimated = row
    return SpentCall(at, purpose, model, bool(settled), tokens, usd, Usage(*taken), bool(estimated))
