"""What each call could reuse and cost; rows, report."""

from __future__ import annotations

import hashlib
import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

import apsw

from herma.errors import ConfigError, HermaWarning, StoreError, UsageError
from herma.prompt.fence import NOTES, TAG, sanitize
from herma.prompt.tokens import Count, TokenCounter, count_message, count_tools, plain_json
from herma.store.database import Database, queries
from herma.transcript.log import Transcripts
from herma.transcript.messages import as_sent, text_of
from herma.types import Content, Message, Usage

# ---------- prompt.ledger
#
# The prefix ledger: for each call to a model, how many tokens a provider's cache could reuse, and why not more.
#
# Providers charge a tenth for the beginning of a request that they have seen before, as long as it is the same to the
# last byte and was used in the last minutes. So what matters is where two requests in a row begin to differ, and how
# much time lay between them. The ledger only computes: it is given requests, and gives back frozen entries.

Reason: TypeAlias = Literal[
    "first call",
    "grew only",
    "tools changed",
    "system prompt changed",
    "message changed",
    "compression",
    "reload",
    "idle",
]
CountMessage: TypeAlias = Callable[[Mapping[str, Any]], int]
FIVE_MINUTES, ONE_HOUR = 300.0, 3_600.0


@dataclass(frozen=True, slots=True)
class Request:
    """One call: its messages, when it was made (seconds), the output, and whether the prefix was moved on purpose."""

    messages: Sequence[Mapping[str, Any]]
    at: float | None = None
    output_tokens: int = 0
    tools: Sequence[Mapping[str, Any]] = ()
    moved: Literal["", "compression", "reload"] = ""


@dataclass(frozen=True, slots=True)
class Prices:
    """Money per million tokens; reading from and writing to the cache are factors on the input price."""

    input: float = 0.0
    output: float = 0.0
    cache_read: float = 0.1
    cache_write: float = 1.25

    def cost(self, reusable: int, new: int, output: int) -> float:
        return (self.input * (self.cache_read * reusable + self.cache_write * new) + self.output * output) / 1_000_000


FREE = Prices()


@dataclass(frozen=True, slots=True)
class Entry:
    """One call in the ledger. `at_message` is where the prefix broke; `expired` that the cache had lapsed anyway."""

    call: int
    reusable: int
    new: int
    output: int
    reason: Reason
    at_message: int | None = None
    idle: float | None = None
    expired: bool = False
    cost: float = 0.0

    @property
    def input(self) -> int:
        return self.reusable + self.new

    @property
    def why(self) -> str:
        """The reason in words."""
        lapsed = (
            f"; the cache had also lapsed after {self.idle:,.0f} s" if self.expired and self.reason != "idle" else ""
        )
        match self.reason:
            case "message changed":
                return f"message {self.at_message} changed{lapsed}"
            case "idle":
                return f"idle for {self.idle:,.0f} s, longer than the cache lives"
            case "reload":
                return f"memory was reloaded on request{lapsed}"
            case "compression":
                return f"the conversation was compressed{lapsed}"
            case reason:
                return f"{reason}{lapsed}"


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the cache may hold after a call: the identity and the tokens of every message, tool definitions first."""

    keys: tuple[str, ...]
    tokens: tuple[int, ...]
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Ledger:
    """All calls of a session, in order."""

    entries: tuple[Entry, ...] = ()

    @property
    def reusable(self) -> int:
        return sum(entry.reusable for entry in self.entries)

    @property
    def new(self) -> int:
        return sum(entry.new for entry in self.entries)

    @property
    def output(self) -> int:
        return sum(entry.output for entry in self.entries)

    @property
    def cost(self) -> float:
        return sum(entry.cost for entry in self.entries)

    @property
    def hit_share(self) -> float:
        """The part of all input tokens that the cache could serve."""
        total = self.reusable + self.new
        return self.reusable / total if total else 0.0

    @property
    def breaks(self) -> tuple[Entry, ...]:
        """The calls at which the prefix did not simply grow."""
        return tuple(entry for entry in self.entries if entry.reason not in ("first call", "grew only"))


@dataclass(frozen=True, slots=True)
class Comparison:
    """This ledger next to another scheme on the same session."""

    ours: Ledger
    other: Ledger

    @property
    def saved_tokens(self) -> int:
        """Tokens that the other scheme would have had to send anew."""
        return self.other.new - self.ours.new

    @property
    def saved_money(self) -> float:
        return self.other.cost - self.ours.cost


def enter(
    before: Prefix | None,
    request: Request,
    *,
    call: int = 0,
    lifetime: float = FIVE_MINUTES,
    prices: Prices = FREE,
    count: CountMessage = count_message,
) -> tuple[Entry, Prefix]:
    """The entry for one more call, and the prefix to give to the next."""
    after = _prefix(request, before, count)
    total = sum(after.tokens)
    idle = None if before is None or before.at is None or request.at is None else request.at - before.at
    expired = idle is not None and idle > lifetime
    if before is None:
        entry = Entry(call, 0, total, request.output_tokens, "first call")
    else:
        shared = _shared(before.keys, after.keys)
        reusable = 0 if expired else sum(after.tokens[:shared])
        reason, place = _reason(before, request, shared, expired=expired)
        entry = Entry(call, reusable, total - reusable, request.output_tokens, reason, place, idle, expired)
    return replace(entry, cost=prices.cost(entry.reusable, entry.new, entry.output)), after


def keep(
    requests: Iterable[Request],
    *,
    lifetime: float = FIVE_MINUTES,
    prices: Prices = FREE,
    count: CountMessage = count_message,
) -> Ledger:
    """The ledger of consecutive requests."""
    entries: list[Entry] = []
    prefix: Prefix | None = None
    for call, request in enumerate(requests):
        entry, prefix = enter(prefix, request, call=call, lifetime=lifetime, prices=prices, count=count)
        entries.append(entry)
    return Ledger(tuple(entries))


def compare_with_naive(
    requests: Sequence[Request],
    injected: Sequence[str],
    *,
    lifetime: float = FIVE_MINUTES,
    prices: Prices = FREE,
    count: CountMessage = count_message,
) -> Comparison:
    """The same session, had memory been written afresh into the system prompt for every call.

    `injected` is, for each call, the memory and recall that the model should see at that moment.
    """
    naive = [_naively(request, text) for request, text in zip(requests, injected, strict=True)]
    ours = keep(requests, lifetime=lifetime, prices=prices, count=count)
    return Comparison(ours, keep(naive, lifetime=lifetime, prices=prices, count=count))


def _naively(request: Request, text: str) -> Request:
    messages: list[Mapping[str, Any]] = []
    for message in request.messages:
        content = message.get("content")
        if message.get("role") == "system" and isinstance(content, str):
            messages.append({**message, "content": f"{content}\n\n{text}"})
        elif isinstance(content, str):
            messages.append({**message, "content": sanitize(content)})
        else:
            messages.append(message)
    return replace(request, messages=messages)


def _prefix(request: Request, before: Prefix | None, count: CountMessage) -> Prefix:
    """Keys and tokens of a request. What was counted for the request before is not counted again."""
    known = dict(zip(before.keys, before.tokens, strict=True)) if before else {}
    tools = _key(request.tools)
    keys, tokens = [tools], [known[tools] if tools in known else count_tools(request.tools)]
    for message in request.messages:
        key = _key(message)
        keys.append(key)
        tokens.append(known[key] if key in known else count(message))
    return Prefix(tuple(keys), tuple(tokens), request.at)


def _key(value: object) -> str:
    """Equal canonical JSON, equal key."""
    return hashlib.sha256(plain_json(value).encode("utf-8", "surrogatepass")).hexdigest()


def _shared(before: Sequence[str], after: Sequence[str]) -> int:
    """How many keys the two have in common from the front."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return at
    return min(len(before), len(after))


def _reason(before: Prefix, request: Request, shared: int, *, expired: bool) -> tuple[Reason, int | None]:
    """Why the prefix is what it is, and the number of the message at which it broke (the system prompt is 0)."""
    if shared == len(before.keys):
        return ("idle", None) if expired else ("grew only", None)
    place = max(0, shared - 1)
    if request.moved:
        return request.moved, place
    if shared == 0:
        return "tools changed", None
    first = request.messages[0] if request.messages else {}
    if place == 0 and first.get("role") == "system":
        return "system prompt changed", 0
    return "message changed", place


# ---------- ports.calls
#
# Where calls to models are written down: what each could reuse of the one before, and what it took.

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


# ---------- turn.account
#
# What a session sends, kept up to date message by message.
#
# For each call: how many tokens the request has in common with the one before, so that a provider's cache can serve
# them, and why not more. Nothing sent is ever looked at twice: a message is counted when it comes, and since a
# conversation only grows, or is cut off at a known place, what two requests share is a number. `prompt.ledger` says the
# same for any list of requests, by comparing them.

Start: TypeAlias = Literal["new", "resumed", "branched", "reload", "compression"]
_RECALLED = f"<{TAG}>\n{NOTES['recall']}"
_END = f"</{TAG}>"
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Before:
    """What a session goes on from: the last call that was made, how many of its messages are still the first ones."""

    call: Call
    common: int
    start: Start


def before(call: Call | None, kept: Iterable[Message], start: Start) -> Before | None:
    """`kept`: the messages that the session begins with, under the ids they had when the call was made."""
    if call is None:
        return None
    common = sum(message.id <= call.last_message for message in kept)
    return Before(call, min(common, call.messages), start)


@dataclass(frozen=True, slots=True)
class Frame:
    """What does not change while a session runs."""

    session: str
    system_prompt: str
    tools: Sequence[Mapping[str, Any]]
    model: str
    counter: TokenCounter
    lifetime: float

    @property
    def prompt_digest(self) -> str:
        return hashlib.sha256(self.system_prompt.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def tools_digest(self) -> str:
        return hashlib.sha256(plain_json(self.tools).encode("utf-8", "surrogatepass")).hexdigest()


class Account:
    """Running sums over what is sent."""

    def __init__(self, frame: Frame, goes_on_from: Before | None = None) -> None:
        self.frame = frame
        self._tools = 0
        self._system = 0
        self._weighed = False
        self._sums = [0]
        self._recalled = [0]
        self._last = goes_on_from.call if goes_on_from else None
        self._common = goes_on_from.common if goes_on_from else 0
        self._start: Start = goes_on_from.start if goes_on_from else "new"
        self._taken_back: list[Message] = []
        self._digests = ("", "")
        self._lifetime = frame.lifetime
        self._afresh: tuple[str, str] | None = None  # memory and recall as the last call showed them

    # ── messages come and go ──

    def weighed(self, message: Message) -> Message:
        """The message with the tokens that it takes as it is sent."""
        if message.tokens is not None:
            return message
        return replace(message, tokens=count_message(as_sent(message), self.frame.counter.count))

    def add(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if self._taken_back:
                self._say_again(message)
            self._sums.append(self._sums[-1] + (self.weighed(message).tokens or 0))
            recalled = recalled_in(message.sent)
            self._recalled.append(self._recalled[-1] + (self.frame.counter.count(recalled) if recalled else 0))

    def cut(self, length: int, taken_back: Sequence[Message]) -> None:
        """Only the first so many messages are left."""
        del self._sums[length + 1 :], self._recalled[length + 1 :]
        if length < self._common:
            self._taken_back[:0] = taken_back[: self._common - length]
            self._common = length

    def _say_again(self, message: Message) -> None:
        """A message that is sent again in the place where it was taken back leaves the prefix as it was."""
        if as_sent(self._taken_back.pop(0)) == as_sent(message):
            self._common += 1
        else:
            self._taken_back.clear()

    def carry_on(self, history: Sequence[Message]) -> None:
        """Take over a conversation that was stored before, and what the last call showed."""
        self.add(history)
        if self._last is not None:
            self._afresh = shown(history[: self._common])

    # ── calls ──

    @property
    def tokens(self) -> int:
        """What the whole request takes as it stands: tools, prompt and messages."""
        self._weigh()
        return self._tools + self._system + self._sums[-1]

    @property
    def last(self) -> Call | None:
        return self._last

    def call(self, history: Sequence[Message], now: float, lifetime: float | None = None) -> Call:
        """The call that is made now, with the whole conversation. From now on it is the last one.

        `lifetime`: how many seconds a cache keeps this request, if not as long as usual.
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
        afresh = shown(history)
        begins = _turn_begins(history)
        naive = total - self._recalled[begins]  # what was recalled for earlier turns would be gone
        if afresh == self._afresh:
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
        )
        self._last, self._common, self._start, self._afresh = made, length, "new", afresh
        self._taken_back.clear()
        self._lifetime = self.frame.lifetime if lifetime is None else lifetime
        return made

    def _compared(self) -> tuple[CallReason, int, int | None]:
        """Why the request shares what it shares with the last one, how many tokens that are, and where it ends."""
        last = self._last
        if last is None:
            return "first call", 0, None
        if last.model != self.frame.model:
            return "model changed", 0, None
        if last.tools != self._digests[0]:
            return "tools changed", 0, None
        if last.prompt != self._digests[1]:
            return (
                (self._start if self._start in ("reload", "compression") else "system prompt changed"),
                self._tools,
                0,
            )
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
            self._digests = self.frame.tools_digest[:_DIGITS], self.frame.prompt_digest[:_DIGITS]
            self._weighed = True


def _turn_begins(history: Sequence[Message]) -> int:
    """How many messages stand before the one that began the last turn."""
    for at in range(len(history) - 1, -1, -1):
        if history[at].role == "user":
            return at
    return len(history)


def shown(history: Sequence[Message]) -> tuple[str, str]:
    """The state of memory, and the recalled text, that the last turn of a conversation shows the model."""
    for message in reversed(history):
        if message.role == "user":
            return message.told or "", recalled_in(message.sent)
    return "", ""


def recalled_in(sent: Content) -> str:
    """The recalled text that was put into a message, with its fence; updates of memory are not recall."""
    text = text_of(sent[-1:]) if isinstance(sent, list) else sent or ""
    start = text.rfind(_RECALLED)
    return text[start : text.find(_END, start) + len(_END)] if start >= 0 else ""


def with_usage(call: Call, output: int, usage: Usage | None) -> Call:
    """The call with what came of it. What the provider measured wins over what was counted here.

    A provider that says nothing about its cache has measured the sum only; the shares stay as they were counted.
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
        served = usage.cache_read / call.reusable if call.reusable else 0.0  # of what could be reused, this was
    naive = round((call.naive_reusable + call.naive_fresh) * scale)
    naive_reusable = min(naive, round(call.naive_reusable * served))
    counts: Counts = "measured"
    return replace(
        call,
        output=output,
        reusable=reusable,
        fresh=total - reusable,
        naive_reusable=naive_reusable,
        naive_fresh=naive - naive_reusable,
        counts=counts,
        cost_usd=paid,
    )


@lru_cache(maxsize=64)
def prompt_weight(count: Count, system_prompt: str) -> int:
    """Tokens of a system prompt; sessions that are opened after one another mostly have the same."""
    return count_message({"role": "system", "content": system_prompt}, count)


@lru_cache(maxsize=16)
def tools_weight(count: Count, tools: str) -> int:
    """Tokens of tool definitions, given as JSON."""
    return count_tools(json.loads(tools), count)


# ---------- turn.meter
#
# Writes each call of a session into the ledger: begun when the request is made, finished when the reply is stored.

KEPT_BACK = 1_000
"""Calls that wait at most to be written, when the store cannot be written for a while."""


class Meter:
    """One per session. A ledger that cannot be written never fails a turn: what it lacks is written later."""

    def __init__(self, account: Account, rows: CallRows) -> None:
        self.account = account
        self._rows = rows
        self._made: Call | None = None
        self._waiting: list[tuple[Call, Usage | None]] = []
        self._warned = False

    def called(self, history: Sequence[Message], now: float, lifetime: float | None = None) -> None:
        """A request was made. One that got no reply counts all the same: it was sent."""
        self.answered(())
        self._made = self.account.call(history, now, lifetime)

    def answered(self, replies: Sequence[Message], usage: Usage | None = None) -> bool:
        """What came back was stored. → whether it belongs to a request; a second reply to the same one does not."""
        if self._made is None:
            return False
        output = sum(message.tokens or 0 for message in replies if message.role == "assistant")
        self._waiting.append((with_usage(self._made, output, usage), usage))
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
                    warnings.warn(f"What the session costs could not be written down yet: {exc}", HermaWarning, 2)
                return
            del self._waiting[0]


# ---------- turn.prices
#
# What tokens cost, by model.


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by the beginning of a model's name; `usual` for every other model."""

    usual: Prices = FREE
    by_model: Mapping[str, Prices] = field(default_factory=dict)

    def of(self, model: str) -> Prices:
        """The prices of a model: the longest beginning that fits its name counts."""
        fitting = [start for start in self.by_model if model.startswith(start)]
        return self.by_model[max(fitting, key=len)] if fitting else self.usual

    def knows(self, model: str) -> bool:
        prices = self.of(model)
        return prices.input > 0 or prices.output > 0


def read_prices(usual: Prices, by_model: str) -> PriceTable:
    """A table from configuration: `claude-opus=15/75, gpt-4o=2.5/10`, input and output per million tokens."""
    table: dict[str, Prices] = {}
    for row in filter(None, map(str.strip, by_model.split(","))):
        model, _, money = (part.strip() for part in row.partition("="))
        try:
            paid_in, paid_out = (float(part) for part in money.split("/"))
        except ValueError:
            paid_in = paid_out = -1.0
        if not model or not (0 <= paid_in < float("inf") and 0 <= paid_out < float("inf")):
            raise ConfigError(
                f"prices.by_model has {row!r}, which is not a model with its two prices.",
                hint="For example: herma config set prices.by_model 'claude-opus=15/75, gpt-4o=2.5/10'",
            )
        table[model] = replace(usual, input=paid_in, output=paid_out)
    return PriceTable(usual, table)


# ---------- turn.cost
#
# What calls to models took, by session and in sum, next to writing memory into the system prompt every turn.

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


# ---------- store.sqlite.calls
#
# The prefix ledger in `herma.db`: implements `CallRows`.

_COLUMNS = [field.name for field in fields(Call) if field.name != "id"]


class SqliteCalls:
    """Rows of the table `calls`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("calls")
        self._spend = queries("sessions")["spend"]

    def add(self, call: Call, usage: Usage | None = None) -> None:
        bindings = {name: getattr(call, name) for name in _COLUMNS}
        spent = None if usage is None else {"id": call.session, **asdict(usage)}

        def work(connection: apsw.Connection) -> None:
            connection.execute(self._sql["insert"], bindings)
            if spent is not None:
                connection.execute(self._spend, spent)

        self._db.write(work)

    def last(self, sessions: Sequence[str]) -> Call | None:
        found = self._calls("last", sessions=json.dumps(list(sessions)))
        return found[0] if found else None

    def sums(self, sessions: Sequence[str] | None, since: float) -> list[CallSum]:
        name, which = ("sums", {}) if sessions is None else ("sums_of", {"sessions": json.dumps(list(sessions))})
        found = [_sum(row) for row in self._db.rows(self._sql[name], {"since": since, **which})]
        newest: dict[str, float] = {}
        for one in found:
            newest[one.session] = max(one.last, newest.get(one.session, one.last))
        return sorted(found, key=lambda one: (-newest[one.session], one.session, one.first))

    def newest(self, sessions: Sequence[str] | None, since: float, limit: int, *, breaks: bool = False) -> list[Call]:
        which: dict[str, Any] = {"since": since, "limit": limit, "breaks": breaks, "whole": json.dumps(WHOLE)}
        if sessions is None:
            return self._calls("newest", **which)[::-1]
        return self._calls("newest_of", sessions=json.dumps(list(sessions)), **which)[::-1]

    def _calls(self, name: str, **bindings: Any) -> list[Call]:
        return [_call(row) for row in self._db.rows(f"{self._sql['columns']} {self._sql[name]}", bindings)]


def _call(row: Sequence[Any]) -> Call:
    return Call(*row)


def _sum(row: Sequence[Any]) -> CallSum:
    session, model, reason, counts, paid, *numbers = row
    return CallSum(session, model, reason, counts, bool(paid), *numbers)
