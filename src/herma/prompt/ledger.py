"""The prefix ledger: for each call to a model, how many tokens a provider's cache could reuse, and why not more.

Providers charge a tenth for the beginning of a request that they have seen before, as long as it is the same to the
last byte and was used in the last minutes. So what matters is where two requests in a row begin to differ, and how much
time lay between them. The ledger only computes: it is given requests, and gives back frozen entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from herma.prompt.fence import sanitize
from herma.prompt.weight import count_message, count_tools, plain_json

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
