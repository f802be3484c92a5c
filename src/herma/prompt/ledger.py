"""The ledger: what each call to a model could reuse of the call before, what it cost, and the report on it.

A provider charges about a tenth for the beginning of a request that it saw in the last minutes, if it is the same to
the last byte. `PrefixTracker` follows what a session sends and says where two requests in a row begin to differ;
`CallRecorder` writes each call into the table `calls`; `report` adds them up.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from herma.errors import ConfigError, HermaWarning, StoreError, UsageError
from herma.prompt.fence import NOTES, TAG
from herma.prompt.tokens import Count, TokenCounter, count_message, count_tools, plain_json
from herma.store.database import Database, DatabaseConnection
from herma.transcript.messages import INTERRUPTED, as_sent, text_of
from herma.transcript.rows import SessionRows

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.transcript.log import Transcripts
    from herma.types import Content, Message, Usage

FIVE_MINUTES, ONE_HOUR = 300.0, 3_600.0
"""Seconds for which providers cache the beginning of a request."""


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens; reading from and writing to the cache are factors on the input price."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.1
    cache_write: float = 1.25

    def cost(self, reusable: int, new: int, output: int) -> float:
        return (self.input * (self.cache_read * reusable + self.cache_write * new) + self.output * output) / 1_000_000


FREE = Prices()

Counts: TypeAlias = Literal["measured", "exact", "estimated"]
"""The source of the numbers: the provider, the model's own vocabulary, or an estimate that errs on the high side."""
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
"""Why a call could reuse no more. `resumed` and `idle`: the cache's lifetime had passed."""
WHOLE: tuple[CallReason, ...] = ("first call", "grew only")
"""The reasons that are not a break."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call to a model.

    `at_message` is where the prefix broke; the system prompt is 0. `naive_…` is what the same call would have reused if
    memory were rewritten into the system prompt every turn.
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
    """The cost that the caller reported, if any."""
    messages: int = 0
    """Messages sent, without the system prompt."""
    last_message: int = 0
    """The id of the last of them."""
    tools: str = ""
    prompt: str = ""
    """Digests of the tool definitions and of the system prompt."""
    provider: str = ""
    folder: str = ""
    branch: str = ""
    answered: bool = True
    """True if a complete reply came; if not, the numbers are estimated."""
    id: int = 0

    @property
    def input(self) -> int:
        return self.reusable + self.fresh


class CallSum(NamedTuple):
    """The sum of the calls of one session with the same model, reason and source of numbers."""

    session: str
    model: str
    reason: CallReason
    counts: Counts
    paid: bool
    """True if the callers reported the cost: then `cost_usd` has it."""
    calls: int
    reusable: int
    fresh: int
    output: int
    naive_reusable: int
    naive_fresh: int
    cost_usd: float
    first: float
    last: float
    unanswered: int = 0
    """Calls without a complete reply."""


Start: TypeAlias = Literal["new", "resumed", "branched", "reload", "compression"]
_RECALLED = f"<{TAG}>\n{NOTES['recall']}"
_END = f"</{TAG}>"


@dataclass(frozen=True, slots=True)
class PreviousCall:
    """The call that a session continues from, and how many of its messages the session still begins with."""

    call: Call
    common: int
    start: Start


def before(call: Call | None, kept: Iterable[Message], start: Start) -> PreviousCall | None:
    """Return what a session continues from. `kept` are its first messages, with the ids they had at that call."""
    if call is None:
        return None
    common = sum(message.id <= call.last_message for message in kept)
    return PreviousCall(call, min(common, call.messages), start)


class PromptFrame(NamedTuple):
    """The parts of every request that do not change while a session runs."""

    session: str
    system_prompt: str
    tools: Sequence[Mapping[str, Any]]
    model: str
    counter: TokenCounter
    lifetime: float
    provider: str = ""
    folder: str = ""
    branch: str = ""

    @property
    def prompt_digest(self) -> str:
        return _digest(self.system_prompt)

    @property
    def tools_digest(self) -> str:
        return _digest(plain_json(self.tools))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class PrefixTracker:
    """Keep running sums of the tokens that a session sends, so that no message is counted twice.

    A conversation only grows, or is cut at a known place: two requests share a number of messages.
    """

    def __init__(self, frame: PromptFrame, previous_call: PreviousCall | None = None) -> None:
        self.frame = frame
        self._tools = 0
        self._system = 0
        self._weighed = False
        self._sums = [0]
        self._recalled = [0]
        self._last = previous_call.call if previous_call else None
        self._common = previous_call.common if previous_call else 0
        self._start: Start = previous_call.start if previous_call else "new"
        self._taken_back: list[Message] = []
        self._digests = ("", "")
        self._lifetime = frame.lifetime
        self._shown: tuple[str, str] | None = None  # memory and recalled text in the last call
        self._before: tuple[Any, ...] = (self._last, self._common, self._start, None, [], self._lifetime)

    def weighed(self, message: Message) -> Message:
        """Return the message with its tokens counted as it is sent."""
        if message.tokens is not None:
            return message
        return replace(message, tokens=count_message(as_sent(message), self.frame.counter.count))

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self._taken_back:
                # a message sent again in the place where it was taken back leaves the prefix as it was
                if as_sent(self._taken_back.pop(0)) == as_sent(message):
                    self._common += 1
                else:
                    self._taken_back.clear()
            self._sums.append(self._sums[-1] + (self.weighed(message).tokens or 0))
            recalled = recalled_in(message.sent)
            self._recalled.append(self._recalled[-1] + (self.frame.counter.count(recalled) if recalled else 0))

    def cut(self, length: int, taken_back: Sequence[Message]) -> None:
        """Keep only the first `length` messages."""
        del self._sums[length + 1 :], self._recalled[length + 1 :]
        if length < self._common:
            self._taken_back[:0] = taken_back[: self._common - length]
            self._common = length

    def carry_on(self, history: Sequence[Message]) -> None:
        """Take over a stored conversation, and what its last call showed the model."""
        self.add(history)
        if self._last is not None:
            self._shown = shown_memory(history[: self._common])

    @property
    def tokens(self) -> int:
        """Tokens of the whole request: tools, system prompt and messages."""
        self._weigh()
        return self._tools + self._system + self._sums[-1]

    @property
    def last(self) -> Call | None:
        return self._last

    def call(self, history: Sequence[Message], now: float, lifetime: float | None = None) -> Call:
        """Record a call with the whole conversation; later calls are compared with it.

        `lifetime` is how many seconds a cache keeps this request, if not as long as usual.
        """
        total = self.tokens
        length = len(self._sums) - 1
        reason, reusable, place = self._compared()
        idle = None if self._last is None else now - self._last.at
        expired = idle is not None and idle > self._lifetime
        if expired:
            reusable = 0
            if reason == "grew only":
                reason = "resumed" if self._start == "resumed" else "idle"
        current = shown_memory(history)
        begins = next((at for at in reversed(range(len(history))) if history[at].role == "user"), len(history))
        naive = total - self._recalled[begins]  # recalled text of earlier turns would be gone
        if current == self._shown:
            naive_reusable = max(0, reusable - self._recalled[min(self._common, begins)])
        else:
            naive_reusable = min(reusable, self._tools)
        made = Call(
            session=self.frame.session,
            at=now,
            reusable=reusable,
            fresh=total - reusable,
            reason=reason,
            naive_reusable=naive_reusable,
            naive_fresh=naive - naive_reusable,
            model=self.frame.model,
            at_message=place,
            idle=idle,
            counts="exact" if self.frame.counter.exact else "estimated",
            messages=length,
            last_message=history[-1].id if history else 0,
            tools=self._digests[0],
            prompt=self._digests[1],
            provider=self.frame.provider,
            folder=self.frame.folder,
            branch=self.frame.branch,
        )
        self._before = self._last, self._common, self._start, self._shown, [*self._taken_back], self._lifetime
        self._last, self._common, self._start, self._shown = made, length, "new", current
        self._taken_back.clear()
        self._lifetime = self.frame.lifetime if lifetime is None else lifetime
        return made

    def uncall(self) -> None:
        """Forget the last call because no model received it."""
        self._last, self._common, self._start, self._shown, self._taken_back, self._lifetime = self._before

    def _compared(self) -> tuple[CallReason, int, int | None]:
        """Compare with the last call. → the reason, the tokens that both share, and the message where they differ."""
        last = self._last
        if last is None:
            return "first call", 0, None
        if last.model != self.frame.model:
            return "model changed", 0, None
        if last.tools != self._digests[0]:
            return "tools changed", 0, None
        if last.prompt != self._digests[1]:
            moved = self._start if self._start in ("reload", "compression") else "system prompt changed"
            return moved, self._tools, 0
        reusable = self._tools + self._system + self._sums[self._common]
        if self._common == last.messages:
            return "grew only", reusable, None
        reason: CallReason = self._start if self._start in ("branched", "compression") else "rewound"
        return reason, reusable, self._common + 1

    def _weigh(self) -> None:
        if not self._weighed:
            count = self.frame.counter.count
            self._system = prompt_weight(count, self.frame.system_prompt)
            self._tools = tools_weight(count, plain_json(self.frame.tools))
            self._digests = self.frame.tools_digest[:16], self.frame.prompt_digest[:16]
            self._weighed = True


def shown_memory(history: Sequence[Message]) -> tuple[str, str]:
    """Return the version of memory and the recalled text that the last turn of a conversation shows the model."""
    for message in reversed(history):
        if message.role == "user":
            return message.memory_version or "", recalled_in(message.sent)
    return "", ""


def recalled_in(sent: Content) -> str:
    """Return the recalled text in a sent message, with its fence, or "". Memory updates are not recall."""
    text = text_of(sent[-1:]) if isinstance(sent, list) else sent or ""
    start = text.rfind(_RECALLED)
    return text[start : text.find(_END, start) + len(_END)] if start >= 0 else ""


def with_usage(call: Call, output: int, usage: Usage | None) -> Call:
    """Return the call with its output. The provider's measurement replaces Herma's own count.

    A provider that says nothing about its cache has measured only the sum: the shares stay as counted.
    """
    if usage is None:
        return replace(call, output=output)
    paid = usage.cost_usd or None
    output = usage.output or output
    total = usage.input + usage.cache_read + usage.cache_write
    if not total:
        return replace(call, output=output, cost_usd=paid)
    scale = total / call.input if call.input else 1.0
    reusable, served = min(total, round(call.reusable * scale)), scale
    if usage.cache_read or usage.cache_write:
        reusable = usage.cache_read
        served = usage.cache_read / call.reusable if call.reusable else 0.0
    naive = round((call.naive_reusable + call.naive_fresh) * scale)
    naive_reusable = min(naive, round(call.naive_reusable * served))
    return replace(
        call,
        output=output,
        reusable=reusable,
        fresh=total - reusable,
        naive_reusable=naive_reusable,
        naive_fresh=naive - naive_reusable,
        counts="measured",
        cost_usd=paid,
    )


@lru_cache(maxsize=64)
def prompt_weight(count: Count, system_prompt: str) -> int:
    """Return the tokens of a system prompt. Cached, because most sessions of a process have the same one."""
    return count_message({"role": "system", "content": system_prompt}, count)


@lru_cache(maxsize=16)
def tools_weight(count: Count, tools: str) -> int:
    """Return the tokens of tool definitions, given as JSON."""
    return count_tools(json.loads(tools), count)


KEPT_BACK = 1_000
"""Calls kept in memory while the store cannot be written."""


class CallRecorder:
    """Write each call of a session into the ledger. A failed write never fails a turn; it is repeated later."""

    def __init__(self, prefix: PrefixTracker, rows: CallRows) -> None:
        self.prefix = prefix
        self._rows = rows
        self._made: Call | None = None
        self._waiting: list[tuple[Call, Usage | None]] = []
        self._warned = False

    def called(self, history: Sequence[Message], now: float, lifetime: float | None = None) -> None:
        """Record that a request was sent. It counts even if no reply comes."""
        self.answered(())
        self._made = self.prefix.call(history, now, lifetime)

    def unsent(self) -> None:
        """Drop the last request: no model received it, or it was refused, so it cost nothing."""
        if self._made is not None:
            self._made = None
            self.prefix.uncall()

    def answered(self, replies: Sequence[Message], usage: Usage | None = None) -> bool:
        """Write the call whose replies were stored. → whether they belong to a request; a second reply does not.

        Without a reply, or with one that was cut off, the call's usage is estimated and marked `answered=False`.
        """
        if self._made is None:
            return False
        said = [message for message in replies if message.role == "assistant"]
        output = sum(message.tokens or 0 for message in said)
        whole = bool(said) and all(message.finish_reason != INTERRUPTED for message in said)
        self._waiting.append((replace(with_usage(self._made, output, usage), answered=whole), usage))
        self._made = None
        self._write()
        return True

    def _write(self) -> None:
        while self._waiting:
            try:
                self._rows.add(*self._waiting[0])
            except StoreError as exc:
                del self._waiting[:-KEPT_BACK]
                if not self._warned:
                    self._warned = True
                    warnings.warn(f"The cost of this session is not recorded yet: {exc}", HermaWarning, 2)
                return
            del self._waiting[0]


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by the beginning of a model's name; `usual` for every other model."""

    usual: Prices = FREE
    by_model: Mapping[str, Prices] = field(default_factory=dict)

    def of(self, model: str) -> Prices:
        """Return the prices of a model: those with the longest beginning of its name."""
        fitting = [start for start in self.by_model if model.startswith(start)]
        return self.by_model[max(fitting, key=len)] if fitting else self.usual

    def knows(self, model: str) -> bool:
        prices = self.of(model)
        return prices.input > 0 or prices.output > 0


def read_prices(usual: Prices, by_model: str) -> PriceTable:
    """Read `prices.by_model`: `claude-opus=15/75, gpt-4o=2.5/10`, input and output per million tokens."""
    table: dict[str, Prices] = {}
    for row in filter(None, map(str.strip, by_model.split(","))):
        model, _, money = (part.strip() for part in row.partition("="))
        try:
            paid_in, paid_out = (float(part) for part in money.split("/"))
        except ValueError:
            paid_in = paid_out = -1.0
        if not model or not (0 <= paid_in < float("inf") and 0 <= paid_out < float("inf")):
            raise ConfigError(
                f"prices.by_model: {row!r} is not MODEL=INPUT/OUTPUT.",
                hint="For example: herma config set prices.by_model 'claude-opus=15/75, gpt-4o=2.5/10'",
            )
        table[model] = replace(usual, input=paid_in, output=paid_out)
    return PriceTable(usual, table)


BREAKS = 20
"""Breaks of the prefix that a report names."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The sum of calls. Money is `None` where neither the callers nor the configuration know it."""

    calls: int = 0
    reusable: int = 0
    fresh: int = 0
    output: int = 0
    naive_reusable: int = 0
    naive_fresh: int = 0
    measured: int = 0
    exact: int = 0
    unanswered: int = 0
    """Calls without a complete reply: their tokens and money are estimated."""
    reasons: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    naive_cost: float | None = None
    saved: float | None = None
    """Extra cost of the naive way, both by the configured prices."""

    @property
    def input(self) -> int:
        return self.reusable + self.fresh

    @property
    def share(self) -> float:
        """The fraction of the tokens sent that a cache could reuse."""
        return self.reusable / self.input if self.input else 0.0

    @property
    def naive_share(self) -> float:
        total = self.naive_reusable + self.naive_fresh
        return self.naive_reusable / total if total else 0.0

    @property
    def saved_tokens(self) -> int:
        """Tokens that only the naive way would have sent again."""
        return self.naive_fresh - self.fresh

    @property
    def breaks(self) -> int:
        return sum(count for reason, count in self.reasons.items() if reason not in WHOLE)


class SessionCost(NamedTuple):
    """The cost of one session. `name` is its title or its beginning; "" if it was deleted."""

    session: str
    name: str
    first: float
    last: float
    tally: Tally


@dataclass(frozen=True, slots=True)
class CostReport:
    """Sessions, the latest call first; their sum; and the newest breaks."""

    sessions: tuple[SessionCost, ...]
    total: Tally
    breaks: tuple[Call, ...]
    prices: PriceTable
    lifetime: float
    _rows: CallRows = field(repr=False, compare=False)
    _members: tuple[str, ...] | None = None
    _since: float = 0.0

    def calls(self, limit: int = 1_000) -> list[Call]:
        """Return the newest calls, oldest first."""
        return list(self._rows.newest(self._members, self._since, limit))

    def price(self, call: Call) -> float | None:
        """Return the cost of a call, if it is known."""
        if call.cost_usd is not None:
            return call.cost_usd
        if not self.prices.knows(call.model):
            return None
        return self.prices.of(call.model).cost(call.reusable, call.fresh, call.output)


def report(app: Herma, session: str | None = None, since: float | None = None) -> CostReport:
    """Report on one conversation or on all, on the calls made since then."""
    rows, transcripts, prices = app.calls, app.transcripts, app.models.prices
    members = None if session is None else _conversation(rows, transcripts, session)
    start = float("-inf") if since is None else since
    sums = rows.sums(members, start)
    sessions = []
    known = SessionRows(app.db).get(list({part.session for part in sums}))
    for one, parts in groupby(sums, key=lambda part: part.session):
        own = list(parts)
        info = known.get(one)
        name = (info.title or info.preview) if info else ""
        first, last = min(part.first for part in own), max(part.last for part in own)
        sessions.append(SessionCost(one, name, first, last, tally(own, prices)))
    broken = rows.newest(members, start, BREAKS, breaks=True)
    lifetime = app.settings.prices.cache_minutes * 60.0
    return CostReport(tuple(sessions), tally(sums, prices), tuple(broken), prices, lifetime, rows, members, start)


def tally(sums: Sequence[CallSum], prices: PriceTable) -> Tally:
    """Add up calls. A cost that callers reported counts as it is; the rest by the prices, if they are known."""
    reasons: Counter[str] = Counter()
    for part in sums:
        reasons[part.reason] += part.calls
    priced = all(prices.knows(part.model) for part in sums) if sums else prices.knows("")
    unpaid = [part for part in sums if not part.paid]
    paid = sum(part.cost_usd for part in sums if part.paid)

    def price(parts: Iterable[CallSum]) -> float:
        return sum(prices.of(part.model).cost(part.reusable, part.fresh, part.output) for part in parts)

    naive = sum(prices.of(part.model).cost(part.naive_reusable, part.naive_fresh, part.output) for part in sums)
    return Tally(
        calls=sum(part.calls for part in sums),
        reusable=sum(part.reusable for part in sums),
        fresh=sum(part.fresh for part in sums),
        output=sum(part.output for part in sums),
        naive_reusable=sum(part.naive_reusable for part in sums),
        naive_fresh=sum(part.naive_fresh for part in sums),
        measured=sum(part.calls for part in sums if part.counts == "measured"),
        exact=sum(part.calls for part in sums if part.counts == "exact"),
        unanswered=sum(part.unanswered for part in sums),
        reasons=dict(reasons),
        cost=paid + price(unpaid) if priced or (sums and not unpaid) else None,
        naive_cost=naive if priced else None,
        saved=naive - price(sums) if priced else None,
    )


def why(call: Call, lifetime: float = FIVE_MINUTES) -> str:
    """Return a call's reason in words."""
    idle = call.idle or 0.0
    lapsed = f"; the cache had also lapsed after {span(idle)}" if idle > lifetime else ""
    match call.reason:
        case "idle":
            return f"idle for {span(idle)}, longer than the cache lives ({span(lifetime)})"
        case "resumed":
            return f"resumed after {span(idle)}, longer than the cache lives ({span(lifetime)})"
        case "rewound":
            return f"turns were rewound{lapsed}"
        case "branched":
            return f"branched off an earlier message{lapsed}"
        case "reload":
            return f"the prompt was reloaded on request{lapsed}"
        case "compression":
            return f"the conversation was compressed{lapsed}"
        case reason:
            return f"{reason}{lapsed}"


def where(call: Call) -> str:
    """Return the place at which the prefix broke."""
    if call.reason in ("idle", "resumed"):
        return "everything"
    if call.at_message is None:
        return "everything" if call.reason in ("model changed", "tools changed") else ""
    return "the system prompt" if call.at_message == 0 else f"message {call.at_message}"


def span(seconds: float) -> str:
    """Return a length of time in one unit."""
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


def _conversation(rows: CallRows, transcripts: Transcripts, session: str) -> tuple[str, ...]:
    """Return the sessions of a conversation, named by id, its beginning, or title. A purged one has only its id."""
    found = transcripts.resolve(session)
    if found is not None:
        return tuple(member.id for member in transcripts.conversation(found))
    if rows.last([session]) is not None:
        return (session,)
    raise UsageError(f"There is no session {session!r}.", hint="`herma sessions list` shows them.")


_COLUMNS = [field.name for field in fields(Call) if field.name != "id"]


class CallRows:
    """Read and write the table `calls`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("prompt.ledger")
        self._spend = database.queries("transcript.sessions")["spend"]

    def add(self, call: Call, usage: Usage | None = None) -> None:
        """Write a call and, in the same transaction, add its usage to the totals of its session."""
        bindings = {name: getattr(call, name) for name in _COLUMNS}
        spent = None if usage is None else {"id": call.session, **asdict(usage)}

        def work(connection: DatabaseConnection) -> None:
            connection.run(self._sql["insert"], bindings)
            if spent is not None:
                connection.run(self._spend, spent)

        self._db.write(work)

    def last(self, sessions: Sequence[str]) -> Call | None:
        """Return the newest call of these sessions."""
        found = self._calls("last", sessions=list(sessions))
        return found[0] if found else None

    def sums(self, sessions: Sequence[str] | None, since: float) -> list[CallSum]:
        """Add up calls since then, of these sessions or of all. The session with the latest call comes first."""
        name, which = ("sums", {}) if sessions is None else ("sums_of", {"sessions": list(sessions)})
        found = [CallSum(*row) for row in self._db.rows(self._sql[name], {"since": since, **which})]
        newest: dict[str, float] = {}
        for one in found:
            newest[one.session] = max(one.last, newest.get(one.session, one.last))
        return sorted(found, key=lambda one: (-newest[one.session], one.session, one.first))

    def newest(self, sessions: Sequence[str] | None, since: float, limit: int, *, breaks: bool = False) -> list[Call]:
        """Return the newest calls, oldest first; with `breaks`, only those at which the prefix broke."""
        which: dict[str, Any] = {"since": since, "limit": limit, "breaks": breaks, "whole": list(WHOLE)}
        if sessions is None:
            return self._calls("newest", **which)[::-1]
        return self._calls("newest_of", sessions=list(sessions), **which)[::-1]

    def _calls(self, name: str, **bindings: Any) -> list[Call]:
        return [_call(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


def _call(row: Sequence[Any]) -> Call:
    values: list[Any] = [*row]
    values[-2] = bool(values[-2])
    return Call(*values)
