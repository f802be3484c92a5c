"""What a session sends, kept up to date message by message.

For each call: how many tokens the request has in common with the one before, so that a provider's cache can serve
them, and why not more. Nothing sent is ever looked at twice: a message is counted when it comes, and since a
conversation only grows, or is cut off at a known place, what two requests share is a number. `prompt.ledger` says the
same for any list of requests, by comparing them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from herma.ports import Call, CallReason, Counts, TokenCounter
from herma.prompt.fence import NOTES
from herma.prompt.tags import TAG
from herma.prompt.weight import Count, count_message, count_tools, plain_json
from herma.transcript.replay import as_sent
from herma.transcript.wire import text_of
from herma.types import Content, Message, Usage

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
