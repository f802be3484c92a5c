"""A model that does not answer in the form that was asked for is not asked for ever.

Each pass of background work tries once more at most. Where three passes in a row came to nothing, that purpose rests
for a day with that model; then it is tried again, once. Another model is asked at once, and so is this one when a
person says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herma.errors import SpendRefused
from herma.ports import ChatModel
from herma.ports.pauses import REST, Missed, PauseRows
from herma.reflect.spend import Meter, MeteredModel
from herma.types import Reply

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
