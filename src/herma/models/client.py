"""Ask a chat model: retry, deadline, cancel; the ChatModel interface."""

from __future__ import annotations

import functools
import json
import logging
import queue
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from herma.errors import (
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
)
from herma.types import Finish, Reply, ToolCall, Usage

if TYPE_CHECKING:
    import httpx2

    from herma.models.endpoints import Endpoint


# ---------- models.chat.faults
#
# What went wrong with a model, as one of our errors: by the server's number and words, the same for every library.
#
# Nothing of a key may reach a message: where the key itself is the matter the server is not quoted, and anywhere else
# the key is taken out of what it says.

_QUOTED = 300
"""Characters of a server's own words that a message repeats."""
_LATER = frozenset({408, 409, 425, 502, 503, 504, 520, 522, 524, 529})
"""Answers that mean: not now."""
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens|"
    r"input is too long|reduce the length|exceeds? the (available|model)",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient.?(quota|credit|funds|balance)|billing|exceeded your current quota", re.IGNORECASE)
_CANNOT = re.compile(r"not (supported|implemented)|unsupported", re.IGNORECASE)
"""Some servers say with 500 what they will never do."""
_BUSY = re.compile(r"overloaded|rate.?limit|unavailable|capacity", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt: the error, whether another one may help, and when the server wants to be asked again."""

    error: ModelError
    again: bool = False
    after: float | None = None
    parameter: str = ""
    """The part of the request that the server does not know; without it, it may work."""


def refused(where: Endpoint, status: int, body: object, headers: Mapping[str, str], now: float) -> Fault:
    """The fault for an answer with an HTTP status other than success."""
    said, code, parameter = _said(body)
    quoted = quote(said, where.key)
    after = retry_after(headers, now)
    if status in (401, 403):
        return Fault(_about_the_key(where, status))
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(f"{code} {said}")):
        return Fault(
            ModelOverflow(
                f"The request is longer than what {where.name} can take{quoted}.",
                hint="A shorter history, or a summary of it, would fit; context.window says how much may be sent.",
                status=status,
            )
        )
    if status == 402 or (status in (400, 429) and _NO_MONEY.search(f"{code} {said}")):
        hint = "Look at the account that the key belongs to, or choose another model."
        return Fault(ModelRefused(f"{where.host} wants to be paid first{quoted}.", hint=hint, status=status))
    if status == 429:
        wait = f", and asks for {after:.0f} s of patience" if after else ""
        error = ModelRefused(
            f"{where.host} has had too many requests{wait}.", hint="Try again later, or less often.", status=status
        )
        return Fault(error, again=_may_retry(headers), after=after)
    if status in _LATER or (status >= 500 and not (status == 501 or _CANNOT.search(said))):
        error_ = ModelUnreachable(
            f"{where.host} cannot answer now (status {status}){quoted}.",
            hint="Try again later; it is not your request.",
        )
        return Fault(error_, again=_may_retry(headers), after=after)
    if status == 404:
        return Fault(
            ModelRefused(
                f"{where.host} has no model {where.name!r}, or nothing at this address{quoted}.",
                hint=f"Compare {where.section}.url and {where.section}.name with what the server offers.",
                status=status,
            )
        )
    if 300 <= status < 400:
        hint = f"Set {where.section}.url to the address that it names; a key is not sent after somebody who moved."
        return Fault(ModelRefused(f"{where.host} says that it moved (status {status}).", hint=hint, status=status))
    error = ModelRefused(
        f"{where.host} does not accept the request (status {status}){quoted}.",
        hint="If the model cannot do what was asked (tools, images, a schema), choose another one.",
        status=status,
    )
    return Fault(error, parameter=parameter or ("temperature" if "temperature" in said else ""))


def unreachable(where: Endpoint, why: str, *, connecting: bool = True) -> Fault:
    """Nobody answered, or the connection was lost before anything came."""
    reason = quote(why, where.key)
    if connecting:
        sentence, hint = (
            f"Nobody answers at {where.host}{reason}.",
            f"Is the server running? Is {where.section}.url right?",
        )
        if where.loopback:
            hint = f"Start the server, or set {where.section}.url to where it runs."
    else:
        sentence, hint = f"{where.host} hung up before it answered{reason}.", "Try again; look into the server's log."
    return Fault(ModelUnreachable(sentence, hint=hint), again=True)


def broken(where: Endpoint, what: str, partial: str = "", *, again: bool = True) -> Fault:
    """It answered, but what it says is cut off or makes no sense. Text that had come makes it final."""
    sentence = f"The answer of {where.name} {what}."
    hint = f"Try again; if it stays so, look whether {where.section}.url and {where.section}.kind are right."
    return Fault(ModelBroken(sentence, hint=hint, partial=partial), again=again and not partial)


def in_the_middle(where: Endpoint, body: object, message: str, partial: str) -> Fault:
    """The server reported an error inside an answer that had begun."""
    said, code, _ = _said(body)
    if _TOO_LONG.search(f"{code} {said}"):
        return refused(where, 400, body, {}, 0.0)
    fault = broken(where, f"was broken off by its server{quote(said or message, where.key)}", partial)
    if not partial and _BUSY.search(f"{code} {said}"):
        return refused(where, 503, body, {}, 0.0)
    return fault


def _about_the_key(where: Endpoint, status: int) -> ModelError:
    place = (
        f"the variable {where.key_variable}"
        if where.key_variable
        else f"a variable that {where.section}.api_key_env names"
    )
    hint = f"Put the right key into {place}, or into the home's .env file (mode 0600)."
    if where.key:
        return ModelRefused(
            f"{where.host} does not accept the key for {where.name} (status {status}).", hint=hint, status=status
        )
    return ModelRefused(
        f"{where.host} wants a key, and none is set (status {status}).",
        hint=hint.replace("the right", "your"),
        status=status,
    )


def quote(said: str, key: str) -> str:
    """A server's own words in brackets, short and without the key; "" if it said nothing."""
    words = " ".join(said.split())
    if key:
        words = words.replace(key, "…")
    words = words.rstrip(".")
    return f" ({words if len(words) <= _QUOTED else words[: _QUOTED - 1] + '…'})" if words else ""


def _said(body: object) -> tuple[str, str, str]:
    """The words, the code and the parameter that an error's body names, in any of the usual shapes."""
    found = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(found, Mapping):
        words = found.get("message") or found.get("detail") or found.get("msg") or ""
        code = f"{found.get('code') or ''} {found.get('type') or ''}".strip()
        return _text(words), code, _text(found.get("param") or "")
    text = _text(found or "")
    return ("" if text.lstrip().startswith("<") else text), "", ""  # a page for people is no message


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _may_retry(headers: Mapping[str, str]) -> bool:
    return headers.get("x-should-retry", "").lower() != "false"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait: a number, a date, or milliseconds; `None` if it does not say."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "").strip()
    seconds = _number(given)
    if seconds is not None or not given:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None


# ---------- models.chat.line
#
# A connection that can be cut from another thread, and a thread that reads from it while the caller watches the clock.
#
# Closing a socket does not wake a thread that waits for its bytes; shutting it down does. So the line remembers its
# socket as soon as there is one, and the caller, who waits for the reading thread and for nothing else, can give up at
# any moment: at a deadline, when it is cancelled, or when Ctrl-C is pressed.

STEP = 0.05
"""Seconds between two looks at `cancel`."""
_CONNECT = 10.0
"""Seconds until somebody has to accept a connection."""
_GRACE = 0.03
"""Seconds that a reading thread whose line was cut gets to end before it is left to itself."""
_HEADERS = frozenset(
    {
        *("host", "connection", "user-agent", "accept", "accept-encoding"),
        *("content-type", "content-length", "transfer-encoding"),
        *("anthropic-version", "proxy-authorization"),
    }
)
"""What a server that is not the maker's own is told. The libraries add more: about this machine, and what their users
keep for the maker in variables of the environment.
"""
_AHEAD = 256
"""Events that may wait for a slow caller."""


class Line:
    """One connection for one call."""

    def __init__(self, where: Endpoint) -> None:
        import httpx2

        self._guard = threading.Lock()
        self._where = where
        self._stream: Any = None
        self._cut = False
        self.client: httpx2.Client = httpx2.Client(
            verify=_trusted(),
            trust_env=not where.loopback,  # a proxy is for what is far away
            follow_redirects=False,  # a key is not carried elsewhere
            timeout=httpx2.Timeout(None, connect=_CONNECT),
            event_hooks={"request": [self._watch]},
        )

    def _watch(self, request: httpx2.Request) -> None:
        request.extensions["trace"] = self._trace
        if self._where.official:
            return
        for name in [name for name in request.headers if name not in _HEADERS]:
            del request.headers[name]
        request.headers["authorization"] = f"Bearer {self._where.key or 'none'}"
        if self._where.key and self._where.kind == "anthropic":
            request.headers["x-api-key"] = self._where.key  # as most servers of this kind read it

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._guard:
                self._stream = info["return_value"]
                late = self._cut
            if late:
                self.cut()

    def cut(self) -> None:
        """Whoever reads from it wakes up with an error, now or as soon as there is a connection."""
        with self._guard:
            self._cut = True
            stream = self._stream
        found = stream.get_extra_info("socket") if stream is not None else None
        if found is not None:
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(found, socket.SHUT_RDWR)  # not the TLS layer's own, which a reader stumbles over

    def close(self) -> None:
        self.client.close()


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted: read once, as that takes a while."""
    import httpx2

    return httpx2.create_ssl_context()


class TimedOut(Exception):
    """The deadline passed (`all`), or nothing came for too long after something had come (`idle`)."""

    def __init__(self, which: Literal["all", "idle"]) -> None:
        super().__init__(which)
        self.which = which


class Cancelled(Exception):
    """The caller set `cancel`."""


class _End:
    """The reading thread is done; with an error, or not."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def events(
    read: Callable[[], Generator[Mapping[str, Any]]],
    cut: Callable[[], None],
    *,
    until: float,
    idle: float,
    cancel: threading.Event | None,
) -> Generator[Mapping[str, Any]]:
    """What `read` yields in a thread of its own, here. Its errors are raised here; leaving early cuts the line.

    `until` is on the monotonic clock; `idle` holds from the first event on: before, a server may have to load a model.
    """
    box: queue.Queue[Mapping[str, Any] | _End] = queue.Queue(_AHEAD)
    gone = threading.Event()
    thread = threading.Thread(target=_read, args=(read, box, gone), name="herma model", daemon=True)
    thread.start()
    ended = False
    quiet_since: float | None = None
    try:
        while True:
            now = time.monotonic()
            if cancel is not None and cancel.is_set():
                raise Cancelled
            if now >= until:
                raise TimedOut("all")
            if quiet_since is not None and now >= quiet_since + idle:
                raise TimedOut("idle")
            try:
                item = box.get(timeout=min(STEP, until - now))
            except queue.Empty:
                continue
            if isinstance(item, _End):
                ended = True
                if item.error is not None:
                    raise item.error
                return
            yield item
            quiet_since = time.monotonic()
    finally:
        gone.set()
        if not ended:
            cut()
        thread.join(_GRACE)


def _read(
    read: Callable[[], Generator[Mapping[str, Any]]], box: queue.Queue[Mapping[str, Any] | _End], gone: threading.Event
) -> None:
    last = _End()
    try:
        with closing(read()) as coming:
            for event in coming:
                if not _put(box, event, gone):
                    return
    except BaseException as exc:  # noqa: BLE001  whatever it is, the caller gets it
        last = _End(exc)
    _put(box, last, gone)


def _put(box: queue.Queue[Mapping[str, Any] | _End], item: Mapping[str, Any] | _End, gone: threading.Event) -> bool:
    while not gone.is_set():
        try:
            box.put(item, timeout=STEP)
        except queue.Full:
            continue
        return True
    return False


# ---------- models.chat.dialect
#
# What differs between the families of servers: how a request is written, sent and answered.


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `ChatModel.reply` was asked for."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    json_schema: Mapping[str, Any] | None = None
    cache_marks: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """An answer put together from its pieces. `usage` is `None` where the server did not say."""

    message: Mapping[str, Any]
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    usage: Usage | None
    model: str


class Unfinished(Exception):
    """The pieces make no whole answer; the text says how, as the end of a sentence about the answer."""


class Collector(Protocol):
    """Takes the events of one answer in turn."""

    def add(self, event: Mapping[str, Any]) -> str:
        """→ the text that came with it. `Unfinished` for what cannot be part of an answer."""

    def whole(self) -> Collected:
        """The answer; `Unfinished` if it is not complete."""


class Dialect(Protocol):
    """One family."""

    @property
    def extra(self) -> str:
        """The extra of this package, and the library, that it needs."""

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        """The request's body, without parameters that this server was found to refuse."""

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Send it, and give the events of the answer as plain values; runs in the reading thread."""

    def collector(self) -> Collector: ...

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        """What an error of the library means; `None` if it is none of a server's."""


def fault_of(
    library: Any, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float
) -> Fault | None:
    """Both libraries have the same names for the same errors. `began`: something of the answer had come."""
    import httpx2

    if isinstance(error, Unfinished):
        return broken(where, str(error), partial)
    if isinstance(error, library.APIStatusError) and not began and error.response.status_code >= 300:
        response = error.response
        return refused(where, response.status_code, error.body, response.headers, now)
    if isinstance(error, library.APIConnectionError | httpx2.TransportError):
        cause = error.__cause__ or error
        if began:
            return broken(where, "was cut off in the middle", partial)
        connecting = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
        return unreachable(where, str(cause) if connecting else "", connecting=connecting)
    if isinstance(error, library.APIError):
        return in_the_middle(where, getattr(error, "body", None), str(error), partial)
    if isinstance(error, httpx2.HTTPError | json.JSONDecodeError | UnicodeDecodeError):
        return broken(where, "cannot be read", partial)
    return None


def answered(create: Any, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Call a library's function, and give what it answers as plain values: the events of a stream, or one whole."""
    if not request.get("stream"):
        yield _plain(create(**request))
        return
    with create(**request) as stream:
        kind = stream.response.headers.get("content-type", "")
        if kind.startswith("application/json"):  # a server that cannot stream
            stream.response.read()
            yield _as_object(stream.response.json())
            return
        if kind and not kind.startswith("text/event-stream"):
            raise Unfinished(f"is {kind.partition(';')[0]} and not what was asked for")
        coming = iter(stream)
        while True:
            try:
                event = _plain(next(coming))
            except StopIteration:
                return
            except (ValueError, TypeError, LookupError, AttributeError) as exc:
                # the libraries take a server's word for it: events of another shape make them stumble in many ways
                raise Unfinished("cannot be read") from exc
            yield event


def _plain(event: Any) -> Mapping[str, Any]:
    """An event of a library as the JSON it came from."""
    if not hasattr(event, "to_dict"):
        raise Unfinished("is not of the expected shape")
    return _as_object(event.to_dict(mode="json", exclude_unset=True, warnings=False))


def _as_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfinished("is not of the expected shape")
    return value


def count_of(values: object, *names: str) -> int:
    """A number of tokens in a nested mapping; 0 if it is missing, or no number."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else None
    return max(0, int(values)) if isinstance(values, int | float) and not isinstance(values, bool) else 0


# ---------- models.chat.patience
#
# When to ask again: back-off with jitter, the server's own wish, and never beyond the deadline. Pure.

FIRST = 0.5
"""Seconds before the second attempt."""
LONGEST = 20.0


def pause(fault: Fault, attempt: int, retries: int, left: float, chance: float) -> float | None:
    """Seconds to wait before the next attempt; `None`: do not ask again.

    `attempt` counts from 1; `left` is what remains until the deadline; `chance` is a random number from 0 to 1, so
    that many who were refused at once do not come back at once. What the server asks for is never cut short.
    """
    if not fault.again or attempt > retries:
        return None
    usual = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 16)) * (0.5 + chance / 2)
    wanted = usual if fault.after is None else max(fault.after, FIRST * chance)
    return wanted if wanted < left else None


# ---------- models.chat.remote
#
# A model at an address: asks, waits, asks again, and puts the answer together. Implements `ChatModel`.

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


# ---------- ports.chat
#
# Asking a language model.


class ChatModel(Protocol):
    """A model that answers conversations. Safe to use from several threads.

    What fails raises one of `ModelUnreachable`, `ModelRefused` (`ModelOverflow`: the request is too long),
    `ModelTimeout`, `ModelCancelled`, `ModelBroken`, and with background work `SpendRefused`: each of them a
    `ModelError` with one sentence, the next step in `hint`, and the text that had come by then in `partial`.
    """

    @property
    def name(self) -> str:
        """The model's name, as requests and prices know it."""

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
        """The model's answer to OpenAI-style messages, which are not changed.

        `deadline` is how many seconds it may take in all, with every new attempt; `None`: as configured. `on_text` is
        given each piece of text as it comes, in the caller's thread; once it has been given one, a failure is final.
        Setting `cancel` ends the call within a tenth of a second. `json_schema` asks for a text that is JSON of this
        shape. `cache_marks` are the places of messages up to which the provider should keep the request for the next
        one; `None`: where the model's kind usually has them, `()`: nowhere.
        """
        ...
