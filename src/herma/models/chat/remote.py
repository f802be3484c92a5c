"""A model at an address: asks, waits, asks again, and puts the answer together. Implements `ChatModel`."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar

from herma.errors import ModelBroken, ModelCancelled, ModelError, ModelTimeout
from herma.models.chat.dialect import Collected, Collector, Dialect, Wanted
from herma.models.chat.endpoint import Endpoint
from herma.models.chat.faults import Fault
from herma.models.chat.line import Cancelled, Line, TimedOut, events
from herma.models.chat.patience import pause
from herma.types import Reply, Usage

T = TypeVar("T")
LONGEST_ANSWER = 8_000_000
"""Characters after which an answer is no answer any more."""


def _log() -> logging.Logger:
    return logging.getLogger("herma.models")  # not while importing, which has no effect


@dataclass(frozen=True, slots=True)
class Retry:
    """The model is asked again: for the `attempt`-th time, after so many seconds, because of this."""

    attempt: int
    seconds: float
    error: ModelError

    def __str__(self) -> str:
        return f"{self.error} Asking again in {self.seconds:.1f} s."


SPARE: Mapping[str, frozenset[str]] = {
    "temperature": frozenset(),
    "stream_options": frozenset(),
    "max_tokens": frozenset({"max_completion_tokens"}),
    "max_completion_tokens": frozenset({"max_tokens"}),
}
"""Parameters that some servers refuse, and without which a request still asks for the same, unless these were refused
too: a limit of the answer's length is never given up.
"""


class _Failed(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault.error))
        self.fault = fault


class RemoteModel:
    """One model of one server. Nothing is opened before a question, and nothing stays open after it."""

    def __init__(self, where: Endpoint, dialect: Dialect, *, on_retry: Callable[[Retry], None] | None = None) -> None:
        """`on_retry` is told before the model is asked again; without it, that is logged as a warning."""
        self.where = where
        self._dialect = dialect
        self._on_retry = on_retry or (lambda retry: _log().warning("%s", retry))
        self._unwanted: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.where.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where.name!r} at {self.where.host})"

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
        """The answer; see `ChatModel`."""
        wanted = Wanted(messages, tools, temperature, max_tokens, json_schema, cache_marks)
        started = time.monotonic()
        until = started + (self.where.timeout if deadline is None else deadline)
        attempt = 1
        while True:
            call = _Attempt(self, wanted, until, on_text or _ignored, cancel)
            try:
                return self._reply(call.run(), call, started, attempt)
            except ModelError as error:
                error.attempts = attempt
                raise
            except _Failed as failed:
                fault = failed.fault
                cause = None if self.where.key and self.where.key in str(failed.__cause__) else failed.__cause__
                fault.error.attempts = attempt
                if fault.parameter and self._without(fault.parameter, call.request):
                    continue
                seconds = pause(fault, attempt, self.where.retries, until - time.monotonic(), random.random())  # noqa: S311
                if seconds is None:
                    raise fault.error from cause
            attempt += 1
            self._on_retry(Retry(attempt, seconds, fault.error))
            self._wait(seconds, cancel)

    def _reply(self, made: Collected, call: _Attempt, started: float, attempt: int) -> Reply:
        return Reply(
            message=made.message,
            text=made.text,
            tool_calls=made.tool_calls,
            finish_reason=made.finish,
            usage=made.usage or Usage(),
            model=made.model or self.name,
            seconds=time.monotonic() - started,
            measured=made.usage is not None,
            attempts=attempt,
            first_text=None if call.first_text is None else call.first_text - started,
        )

    def _without(self, parameter: str, request: Mapping[str, Any]) -> bool:
        """Whether the request had this parameter and can do without. It is left out from now on."""
        name = parameter.partition(".")[0].partition("[")[0]
        if name not in request or name not in SPARE or self._unwanted & {name, *SPARE[name]}:
            return False
        _log().warning("%s does not know %s; it is left out from now on.", self.where.host, name)
        self._unwanted |= {name}
        return True

    def _wait(self, seconds: float, cancel: threading.Event | None) -> None:
        if (cancel or threading.Event()).wait(seconds):
            raise cancelled(self.where, "")

    @property
    def unwanted(self) -> frozenset[str]:
        return self._unwanted

    @property
    def dialect(self) -> Dialect:
        return self._dialect


def _ignored(_: str) -> None:
    return


def _next(coming: Iterator[Mapping[str, Any]], collector: Collector) -> str | None:
    """The text of the next event; `None` when there is none."""
    for event in coming:
        return collector.add(event)
    return None


class _Attempt:
    """One request and its answer."""

    def __init__(
        self,
        model: RemoteModel,
        wanted: Wanted,
        until: float,
        on_text: Callable[[str], None],
        cancel: threading.Event | None,
    ) -> None:
        self._model, self._where, self._dialect = model, model.where, model.dialect
        self.request = self._dialect.request(self._where, wanted, model.unwanted)
        self._until = until
        self._on_text = on_text
        self._cancel = cancel
        self._partial: list[str] = []
        self._length = 0
        self._began = False
        self.first_text: float | None = None

    def run(self) -> Collected:
        """The answer, or `_Failed`; a deadline and a cancellation are final at once."""
        collector = self._dialect.collector()
        with closing(self._events(self._line())) as coming:
            while True:
                text = self._guarded(lambda: _next(coming, collector))
                if text is None:
                    return self._guarded(collector.whole)
                self._began = True
                if text:
                    self._deliver(text)

    def _guarded(self, step: Callable[[], T]) -> T:
        """What the server causes becomes one of our errors; what the caller's function raises does not come here."""
        try:
            return step()
        except Cancelled:
            raise cancelled(self._where, self._said) from None
        except TimedOut as exc:
            raise timed_out(self._where, exc.which, self._said) from None
        except ImportError as exc:
            raise missing(self._where, self._dialect.extra) from exc
        except Exception as exc:
            fault = self._dialect.fault(self._where, exc, self._said, began=self._began, now=time.time())
            if fault is not None:
                raise _Failed(fault) from exc
            raise

    def _events(self, line: Line) -> Generator[Mapping[str, Any]]:
        def read() -> Generator[Mapping[str, Any]]:
            try:
                yield from self._dialect.send(self._where, line, self.request)
            finally:
                line.close()

        return events(read, line.cut, until=self._until, idle=self._where.idle_timeout, cancel=self._cancel)

    def _line(self) -> Line:
        try:
            return Line(self._where)
        except ImportError as exc:
            raise missing(self._where, self._dialect.extra) from exc

    def _deliver(self, text: str) -> None:
        if self.first_text is None:
            self.first_text = time.monotonic()
        self._partial.append(text)
        self._length += len(text)
        if self._length > LONGEST_ANSWER:
            sentence = f"The answer of {self._where.name} does not end."
            raise ModelBroken(sentence, hint="Ask for less at once, or choose another model.", partial=self._said)
        self._on_text(text)

    @property
    def _said(self) -> str:
        return "".join(self._partial)


def missing(where: Endpoint, extra: str) -> ModelError:
    return ModelError(
        f"Speaking with {where.name} needs the {extra} library, which is not installed.",
        hint=f"Type: pip install 'herma[{extra}]'",
    )


def cancelled(where: Endpoint, partial: str) -> ModelCancelled:
    return ModelCancelled(f"The question to {where.name} was cancelled.", hint="Ask again.", partial=partial)


def timed_out(where: Endpoint, which: str, partial: str) -> ModelTimeout:
    if which == "idle":
        sentence = f"{where.name} fell silent in the middle of its answer, for {where.idle_timeout:g} s."
        hint = f"Try again; {where.section}.idle_timeout says how long to wait."
    else:
        sentence = f"{where.name} did not answer in time."
        hint = f"Ask for less at once, or give it more time: {where.section}.timeout."
    return ModelTimeout(sentence, hint=hint, partial=partial)
