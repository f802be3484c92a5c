"""Send requests to chat models: retries, deadlines, cancellation; the `ChatModel` interface."""

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
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from herma.errors import (
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    install_command,
)
from herma.models.telemetry import MODEL, PROVIDER, traced
from herma.types import Reply
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    import httpx2

    from herma.models.endpoints import Endpoint

# ── failures: the HTTP status and the server's words become one of our errors ──
#
# No message may contain a key: if the key itself is the problem, the server is not quoted; elsewhere the key is removed
# from the server's words.

_QUOTED = 300
"""Characters of a server's own words that a message repeats."""
_LATER = frozenset({408, 409, 425, 502, 503, 504, 520, 522, 524, 529})
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens|"
    r"input is too long|reduce the length|exceeds? the (available|model)",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient.?(quota|credit|funds|balance)|billing|exceeded your current quota", re.IGNORECASE)
_CANNOT = re.compile(r"not (supported|implemented)|unsupported", re.IGNORECASE)
"""Some servers answer 500 for what they never support."""
_TURNS = re.compile(r"roles? must alternate|must alternate between|consecutive (user|messages)", re.IGNORECASE)
_BUSY = re.compile(r"overloaded|rate.?limit|unavailable|capacity", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt: the error, whether a retry may help, and how long the server asks to wait."""

    error: ModelError
    again: bool = False
    after: float | None = None
    parameter: str = ""
    """The part of the request that the server does not accept; without it, the request may work."""


def refused(where: Endpoint, status: int, body: object, headers: Mapping[str, str], now: float) -> Fault:
    """Return the fault for an answer with an HTTP status other than success."""
    words, code, parameter = words_of(body)
    quoted = quote(words, where.key)
    after = retry_after(headers, now)
    retry = headers.get("x-should-retry", "").lower() != "false"

    def no(sentence: str, hint: str) -> ModelRefused:
        return ModelRefused(sentence, hint=hint, status=status)

    if status in (401, 403):
        place = f"the variable {where.key_variable}" if where.key_variable else f"{where.section}.api_key_env names"
        place = place if where.key_variable else f"the variable that {place}"
        hint = f"Put {'the right' if where.key else 'your'} key into {place}, or into the home's .env file (mode 0600)."
        if where.key:
            return Fault(no(f"{where.host} rejected the key for {where.name} (status {status}).", hint))
        return Fault(no(f"{where.host} requires a key, and none is set (status {status}).", hint))
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(f"{code} {words}")):
        hint = "Compress the conversation, or send less; context.window sets how much may be sent."
        return Fault(ModelOverflow(f"The request is too long for {where.name}{quoted}.", hint=hint, status=status))
    if status == 402 or (status in (400, 429) and _NO_MONEY.search(f"{code} {words}")):
        hint = "Check the account that the key belongs to, or choose another model."
        return Fault(no(f"{where.host} requires payment{quoted}.", hint))
    if status == 429:
        wait = f"; it asks to retry after {after:.0f} s" if after else ""
        error = no(f"{where.host} received too many requests{wait}.", "Try again later, or less often.")
        return Fault(error, again=retry, after=after)
    if status >= 400 and _TURNS.search(words):
        hint = "Choose another model, or another chat template for this one."
        error = no(f"{where.name} requires user and assistant messages to alternate{quoted}.", hint)
        return Fault(error, parameter="messages")
    if status in _LATER or (status >= 500 and not (status == 501 or _CANNOT.search(words))):
        sentence = f"The model server {where.host} had an error (status {status}){quoted}."
        return Fault(
            ModelUnreachable(sentence, hint="Your request is fine; try again later."), again=retry, after=after
        )
    if status == 404:
        hint = f"Compare {where.section}.url and {where.section}.name with what the server offers."
        return Fault(no(f"{where.host} has no model {where.name!r}, or nothing at this address{quoted}.", hint))
    if 300 <= status < 400:
        hint = f"Set {where.section}.url to that address; a key is not sent to another server automatically."
        return Fault(no(f"{where.host} redirects to another address (status {status}).", hint))
    hint = "If the model does not support what was sent (tools, images, a schema), choose another one."
    error = no(f"{where.host} rejected the request (status {status}){quoted}.", hint)
    return Fault(error, parameter=parameter or ("temperature" if "temperature" in words else ""))


def unreachable(where: Endpoint, why: str, *, connecting: bool = True) -> Fault:
    """Return the fault for a server that cannot be reached, or that closed the connection before it answered."""
    reason = quote(why, where.key)
    if connecting:
        sentence = f"Cannot reach the model at {where.host}{reason}."
        hint = f"Start the server, or correct {where.section}.url."
    else:
        sentence = f"{where.host} closed the connection before it answered{reason}."
        hint = "Try again; the server's log may say why."
    return Fault(ModelUnreachable(sentence, hint=hint), again=True)


def broken(where: Endpoint, what: str, partial: str = "") -> Fault:
    """Return the fault for an answer that is cut off or malformed. It is final if text had come."""
    hint = f"Try again; if this repeats, check {where.section}.url and {where.section}.kind."
    error = ModelBroken(f"The answer of {where.name} {what}.", hint=hint, partial=partial)
    return Fault(error, again=not partial)


def without_key(where: Endpoint) -> ModelRefused:
    """Return the error for a server that requires a key, before it is asked."""
    return ModelRefused(
        f"{where.host} requires a key, and {where.key_variable} is not set. No request was sent.",
        hint=f"Put your key into the variable {where.key_variable}, or into the home's .env file (mode 0600).",
    )


def quote(words: str, key: str) -> str:
    """Return a server's own words in brackets, short and without the key; "" if there are none."""
    words = " ".join(words.split())
    if key:
        words = words.replace(key, "…")
    words = words.rstrip(".")
    return f" ({words if len(words) <= _QUOTED else words[: _QUOTED - 1] + '…'})" if words else ""


def words_of(body: object) -> tuple[str, str, str]:
    """Return the message, the code and the parameter of an error's body, in any of the usual shapes."""
    if isinstance(body, bytes):
        text = body.decode("utf-8", "replace")
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            body = text[:_QUOTED]
    found = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(found, Mapping):
        words = found.get("message") or found.get("detail") or found.get("msg") or ""
        code = f"{found.get('code') or ''} {found.get('type') or ''}".strip()
        return _text(words), code, _text(found.get("param") or "")
    text = _text(found or "")
    return ("" if text.lstrip().startswith("<") else text), "", ""  # an HTML page is not a message


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Return the seconds that the server asks to wait: a number, a date, or milliseconds."""
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


FIRST = 0.5
"""Seconds before the second attempt."""
LONGEST = 20.0


def pause(fault: Fault, attempt: int, retries: int, left: float, chance: float) -> float | None:
    """Return the seconds to wait before the next attempt: back-off with jitter, at least what the server asks for.
    Return `None` if the request must not be sent again, or not before the deadline.

    `attempt` counts from 1; `left` is the time until the deadline; `chance` is a random number from 0 to 1.
    """
    if not fault.again or attempt > retries:
        return None
    usual = min(LONGEST, FIRST * 2.0 ** min(attempt - 1, 16)) * (0.5 + chance / 2)
    wanted = usual if fault.after is None else max(fault.after, FIRST * chance)
    return wanted if wanted < left else None


# ── a connection that another thread can cut ──
#
# Closing a socket does not wake a thread that waits for its bytes; shutting it down does. So the connection remembers
# its socket, and a thread of its own reads from it, so that the caller can stop at any moment: at a deadline, when it
# is cancelled, or on Ctrl-C.

STEP = 0.05
"""Seconds between two checks of `cancel`."""
_CONNECT = 10.0
"""Seconds until a connection must be accepted."""
_GRACE = 0.03
"""Seconds to wait for the end of a reading thread whose connection was cut."""
_HEADERS = frozenset(
    {
        *("host", "connection", "user-agent", "accept", "accept-encoding"),
        *("content-type", "content-length", "transfer-encoding"),
        *("anthropic-version", "proxy-authorization"),
    }
)
"""Headers for servers other than the maker's own. The libraries add more: about this machine, and from variables that
users keep for the maker."""
_AHEAD = 256
"""Events that may wait for a slow caller."""


class Connection:
    """One connection for one call."""

    def __init__(self, where: Endpoint) -> None:
        import httpx2

        self._guard = threading.Lock()
        self._where = where
        self._stream: Any = None
        self._cut = False
        self.client: httpx2.Client = httpx2.Client(
            verify=_certificates(),
            trust_env=not where.loopback,  # a proxy is for remote servers
            follow_redirects=False,  # a redirect would carry the key elsewhere
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
            request.headers["x-api-key"] = self._where.key  # most servers with this API read it there

    def _trace(self, name: str, info: Mapping[str, Any]) -> None:
        if name.endswith(("connect_tcp.complete", "start_tls.complete")):
            with self._guard:
                self._stream = info["return_value"]
                late = self._cut
            if late:
                self.cut()

    def cut(self) -> None:
        """Wake the reader with an error, now or as soon as there is a connection."""
        with self._guard:
            self._cut = True
            stream = self._stream
        found = stream.get_extra_info("socket") if stream is not None else None
        if found is not None:
            with suppress(OSError):  # it is closed already
                socket.socket.shutdown(found, socket.SHUT_RDWR)  # not TLS's own shutdown, which breaks a reader


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Return the trusted certificates, read once because that is slow."""
    import httpx2

    return httpx2.create_ssl_context()


class TimedOut(Exception):
    """The deadline passed (`all`), or no event came for too long after an earlier one (`idle`)."""

    def __init__(self, which: Literal["all", "idle"]) -> None:
        super().__init__(which)
        self.which = which


class Cancelled(Exception):
    """The caller set `cancel`."""


class _End(NamedTuple):
    """The reading thread has ended."""

    error: BaseException | None


Event: TypeAlias = Mapping[str, Any]


def events(
    read: Callable[[], Generator[Event]],
    cut: Callable[[], None],
    *,
    until: float,
    idle: float,
    cancel: threading.Event | None,
) -> Generator[Event]:
    """Yield what `read` yields in a thread of its own. Raise its errors here; cut the connection when left early.

    `until` is on the monotonic clock. `idle` counts from the first event: before it, a server may load a model.
    """
    box: queue.Queue[Event | _End] = queue.Queue(_AHEAD)
    gone = threading.Event()
    reading = BackgroundCall("model", partial(_read, read, box, gone)).start()
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
        reading.done.wait(_GRACE)


def _read(read: Callable[[], Generator[Event]], box: queue.Queue[Event | _End], gone: threading.Event) -> None:
    last = _End(None)
    try:
        with closing(read()) as coming:
            for event in coming:
                if not _put(box, event, gone):
                    return
    except BaseException as exc:  # noqa: BLE001  raised in the waiting caller
        last = _End(exc)
    _put(box, last, gone)


def _put(box: queue.Queue[Event | _End], item: Event | _End, gone: threading.Event) -> bool:
    while not gone.is_set():
        try:
            box.put(item, timeout=STEP)
        except queue.Full:
            continue
        return True
    return False


# ── the two APIs: how a request is written and sent, and how its answer is read ──


class ModelRequest(NamedTuple):
    """The arguments of `ChatModel.reply` that become the request."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    json_schema: Mapping[str, Any] | None = None
    cache_marks: Sequence[int] | None = None


class Unfinished(Exception):
    """The events are not a whole answer. The text completes a sentence about the answer."""


class Collector(Protocol):
    """Puts one answer together from its events."""

    def add(self, event: Event) -> str:
        """Take an event and return its text. Raise `Unfinished` if it cannot be part of an answer."""

    def whole(self) -> Reply:
        """Return the answer. Raise `Unfinished` if it is not complete."""


class Adapter(Protocol):
    """One API."""

    @property
    def extra(self) -> str:
        """The library that it needs, which is also the name of Herma's extra."""

    def request(self, where: Endpoint, wanted: ModelRequest, unwanted: frozenset[str]) -> dict[str, Any]:
        """Return the request's body, without parameters that this server does not accept."""

    def send(self, where: Endpoint, client: Any, request: Mapping[str, Any]) -> Iterator[Event]:
        """Send it, and yield the events of the answer; runs in the reading thread."""

    def collector(self) -> Collector: ...


def library_options(where: Endpoint, client: Any) -> dict[str, Any]:
    """Return the arguments of both libraries' clients. A key is always given, so that they do not look for another."""
    options = {"api_key": where.key or "none", "base_url": where.url, "http_client": client, "timeout": client.timeout}
    return {**options, "max_retries": 0}


def answered(create: Any, request: Mapping[str, Any]) -> Iterator[Event]:
    """Call a library's function, and yield its answer as plain values: the events of a stream, or one whole."""
    if not request.get("stream"):
        yield _plain(create(**request))
        return
    with create(**request) as stream:
        kind = stream.response.headers.get("content-type", "")
        if kind.startswith("application/json"):  # the server cannot stream
            stream.response.read()
            yield _as_object(stream.response.json())
            return
        if kind and not kind.startswith("text/event-stream"):
            raise Unfinished(f"is {kind.partition(';')[0]}, not an event stream")
        coming = iter(stream)
        while True:
            try:
                event = _plain(next(coming))
            except StopIteration:
                return
            except (ValueError, TypeError, LookupError, AttributeError) as exc:
                # the libraries do not validate events, so malformed ones fail in many ways
                raise Unfinished("cannot be read") from exc
            yield event


def _plain(event: Any) -> Event:
    """Return an event of a library as the JSON that it was made from."""
    if not hasattr(event, "to_dict"):
        raise Unfinished("has an unexpected shape")
    return _as_object(event.to_dict(mode="json", exclude_unset=True, warnings=False))


def _as_object(value: object) -> Event:
    if not isinstance(value, Mapping):
        raise Unfinished("has an unexpected shape")
    return value


def count_of(values: object, *names: str) -> int:
    """Return a number of tokens in a nested mapping; 0 if it is missing or not a number."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else None
    return max(0, int(values)) if isinstance(values, int | float) and not isinstance(values, bool) else 0


# ── a model at an address: send, wait, retry, and put the answer together ──

T = TypeVar("T")
LONGEST_ANSWER = 8_000_000
"""Characters after which an answer is cut off."""


def _log() -> logging.Logger:
    return logging.getLogger("herma.models")  # importing has no effect


class Retry(NamedTuple):
    """The request is sent again: for the `attempt`-th time, after so many seconds, because of this error."""

    attempt: int
    seconds: float
    error: ModelError

    def __str__(self) -> str:
        return f"{self.error} Retrying in {self.seconds:.1f} s."


SPARE: Mapping[str, frozenset[str]] = {
    "messages": frozenset(),
    "temperature": frozenset(),
    "stream_options": frozenset(),
    "max_tokens": frozenset({"max_completion_tokens"}),
    "max_completion_tokens": frozenset({"max_tokens"}),
}
"""Parameters that may be left out if a server does not accept them, unless those of the set were refused too: a limit
on the answer's length is never given up. For `messages`, neighbours of one role are merged."""


class _Failed(Exception):
    def __init__(self, fault: Fault) -> None:
        super().__init__(str(fault.error))
        self.fault = fault


def _asked(self: RemoteModel, *_: object, **__: object) -> dict[str, Any]:
    """Return the attributes of a call for `telemetry`."""
    parts = urlsplit(self.where.url)
    place = {
        "server.address": parts.hostname or "",
        "server.port": parts.port or (443 if parts.scheme == "https" else 80),
    }
    return {MODEL: self.where.name, PROVIDER: self.where.provider, **place}


def _replied(reply: Reply) -> dict[str, Any]:
    used = reply.usage
    return {
        "gen_ai.response.model": reply.model,
        "gen_ai.response.finish_reasons": [reply.finish_reason],
        "gen_ai.usage.input_tokens": used.input + used.cache_read + used.cache_write,
        "gen_ai.usage.output_tokens": used.output,
        "gen_ai.usage.cache_read.input_tokens": used.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": used.cache_write,
    }


class RemoteModel:
    """One model of one server. Nothing is opened before a request, and nothing stays open after it."""

    def __init__(self, where: Endpoint, adapter: Adapter, *, on_retry: Callable[[Retry], None] | None = None) -> None:
        """`on_retry` is called before a request is sent again; without it, a warning is logged."""
        self.where = where
        self.adapter = adapter
        self._on_retry = on_retry or (lambda retry: _log().warning("%s", retry))
        self._unwanted: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.where.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where.name!r} at {self.where.host})"

    @traced("chat", _asked, _replied)
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
        """Return the answer; see `ChatModel`."""
        where = self.where
        if where.key_variable and not where.key:
            raise without_key(where)
        wanted = ModelRequest(messages, tools, temperature, max_tokens, json_schema, cache_marks)
        started = time.monotonic()
        until = started + (where.timeout if deadline is None else deadline)
        attempt = 1
        while True:
            request = self.adapter.request(where, wanted, self._unwanted)
            call = _Attempt(where, self.adapter, request, on_text or (lambda _: None))
            try:
                reply = call.run(until, cancel)
            except ModelError as error:
                error.attempts = attempt
                raise
            except _Failed as failed:
                fault = failed.fault
                cause = None if where.key and where.key in str(failed.__cause__) else failed.__cause__
                fault.error.attempts = attempt
                if fault.parameter and self._without(fault.parameter, request):
                    continue
                seconds = pause(fault, attempt, where.retries, until - time.monotonic(), random.random())  # noqa: S311
                if seconds is None:
                    raise fault.error from cause
            else:
                first = None if call.first_text is None else call.first_text - started
                took = time.monotonic() - started
                return replace(reply, model=reply.model or self.name, seconds=took, attempts=attempt, first_text=first)
            attempt += 1
            self._on_retry(Retry(attempt, seconds, fault.error))
            if (cancel or threading.Event()).wait(seconds):
                raise _cancelled(where, "")

    def _without(self, parameter: str, request: Mapping[str, Any]) -> bool:
        """Leave a parameter out from now on. Return False if the request does not have it, or needs it."""
        name = parameter.partition(".")[0].partition("[")[0]
        if name not in request or name not in SPARE or self._unwanted & {name, *SPARE[name]}:
            return False
        if name == "messages":
            _log().warning("%s rejects two messages of one role in a row; they are merged for it.", self.where.host)
        else:
            _log().warning("%s does not accept %s; it is left out from now on.", self.where.host, name)
        self._unwanted |= {name}
        return True


class _Attempt:
    """One request and its answer."""

    def __init__(
        self, where: Endpoint, adapter: Adapter, request: Mapping[str, Any], on_text: Callable[[str], None]
    ) -> None:
        self._where = where
        self._adapter = adapter
        self._request = request
        self._on_text = on_text
        self._partial: list[str] = []
        self._length = 0
        self._began = False
        self.first_text: float | None = None

    def run(self, until: float, cancel: threading.Event | None) -> Reply:
        """Return the answer, or raise `_Failed`. A deadline and a cancellation are final at once."""
        connection = self._guarded(lambda: Connection(self._where))
        collector = self._adapter.collector()

        def read() -> Generator[Event]:
            try:
                yield from self._adapter.send(self._where, connection.client, self._request)
            finally:
                connection.client.close()

        coming = events(read, connection.cut, until=until, idle=self._where.idle_timeout, cancel=cancel)
        with closing(coming):
            while True:
                text = self._guarded(lambda: next((collector.add(event) for event in coming), None))
                if text is None:
                    return self._guarded(collector.whole)
                self._began = True
                if text:
                    self._deliver(text)

    def _guarded(self, step: Callable[[], T]) -> T:
        """Translate errors that the server caused. Errors of `on_text` do not come through here."""
        where, partial = self._where, "".join(self._partial)
        try:
            return step()
        except Cancelled:
            raise _cancelled(where, partial) from None
        except TimedOut as exc:
            if exc.which == "idle":
                sentence = f"{where.name} stopped in the middle of its answer for {where.idle_timeout:g} s."
                raise ModelTimeout(sentence, hint="Try again.", partial=partial) from None
            hint = f"Ask for less at once, or raise {where.section}.timeout."
            raise ModelTimeout(f"{where.name} did not answer in time.", hint=hint, partial=partial) from None
        except ImportError as exc:
            extra = self._adapter.extra
            raise ModelError(
                f"{where.name} needs the package {extra}, which is not installed.",
                hint=f"Type: {install_command(extra)}",
            ) from exc
        except Exception as exc:
            fault = self._fault(exc, partial)
            if fault is not None:
                raise _Failed(fault) from exc
            raise

    def _fault(self, error: Exception, partial: str) -> Fault | None:
        """Return what an error of a library means. Both libraries have the same names for the same errors."""
        import httpx2

        library, where = import_module(self._adapter.extra), self._where
        if isinstance(error, Unfinished):
            return broken(where, str(error), partial)
        if isinstance(error, library.APIStatusError) and not self._began and error.response.status_code >= 300:
            response = error.response
            return refused(where, response.status_code, error.body, response.headers, time.time())
        if isinstance(error, library.APIConnectionError | httpx2.TransportError):
            if self._began:
                return broken(where, "was cut off", partial)
            cause = error.__cause__ or error
            connecting = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
            why = re.sub(r"^\[Errno -?\d+\] ", "", str(cause)) if connecting else ""
            return unreachable(where, why, connecting=connecting)
        if isinstance(error, library.APIError):  # reported inside an answer that had begun
            words, code, _ = words_of(body := getattr(error, "body", None))
            if _TOO_LONG.search(f"{code} {words}"):
                return refused(where, 400, body, {}, 0.0)
            if not partial and _BUSY.search(f"{code} {words}"):
                return refused(where, 503, body, {}, 0.0)
            return broken(where, f"was ended by its server{quote(words or str(error), where.key)}", partial)
        if isinstance(error, httpx2.HTTPError | json.JSONDecodeError | UnicodeDecodeError):
            return broken(where, "cannot be read", partial)
        return None

    def _deliver(self, text: str) -> None:
        if self.first_text is None:
            self.first_text = time.monotonic()
        self._partial.append(text)
        self._length += len(text)
        if self._length > LONGEST_ANSWER:
            sentence = f"The answer of {self._where.name} is longer than {LONGEST_ANSWER:,} characters."
            hint = "Ask for less at once, or choose another model."
            raise ModelBroken(sentence, hint=hint, partial="".join(self._partial))
        self._on_text(text)


def _cancelled(where: Endpoint, partial: str) -> ModelCancelled:
    return ModelCancelled(f"The request to {where.name} was cancelled.", hint="Send it again.", partial=partial)


class ChatModel(Protocol):
    """A model that answers conversations. Safe to use from several threads.

    A failure raises one of `ModelUnreachable`, `ModelRefused` (`ModelOverflow`: the request is too long),
    `ModelTimeout`, `ModelCancelled`, `ModelBroken`, and in background work `SpendRefused`: each is a `ModelError` with
    one sentence, the next step in `hint`, and the text received so far in `partial`.
    """

    @property
    def name(self) -> str:
        """The model's name in requests and prices."""

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
        """Return the model's answer to OpenAI-style messages, which are not changed.

        `deadline` is the maximum of seconds, retries included; `None`: as configured. `on_text` is called with each
        piece of text, in the caller's thread; after the first piece a failure is final. Setting `cancel` ends the call
        within a tenth of a second. `json_schema` asks for JSON of this shape. `cache_marks` are the indices of messages
        up to which the provider should cache the request; `None`: the usual ones of this API, `()`: none.
        """
        ...
