"""A connection that can be cut from another thread, and a thread that reads from it while the caller watches the clock.

Closing a socket does not wake a thread that waits for its bytes; shutting it down does. So the line remembers its
socket as soon as there is one, and the caller, who waits for the reading thread and for nothing else, can give up at
any moment: at a deadline, when it is cancelled, or when Ctrl-C is pressed.
"""

from __future__ import annotations

import functools
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Literal

from herma.models.chat.endpoint import Endpoint

if TYPE_CHECKING:
    import httpx2

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
