"""A socket, and what listens on it until somebody ends it."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from herma.errors import HermaError, UsageError

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp

_GRACE = 3
"""Seconds that answers under way have when the server ends."""
_LOGGERS = ("uvicorn.error", "herma.web")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; 0 is any free port. From now on whoever calls is answered, a little later."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as exc:
        raise UsageError(f"{host!r} is no address of this machine.", hint="Try --host 127.0.0.1.") from exc
    made = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # there it would let two servers share a port
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen(128)
    except OSError as exc:
        made.close()
        raise _refused(exc, host, port) from exc
    return made


def _refused(exc: OSError, host: str, port: int) -> HermaError:
    if exc.errno == errno.EADDRINUSE:
        hint = "Choose another with --port, or let one be chosen: --port 0"
        return HermaError(f"Port {port} is taken: something listens there already.", hint=hint)
    if exc.errno in (errno.EACCES, errno.EPERM):
        return HermaError(f"Port {port} may not be used by you.", hint="Choose one above 1023 with --port.")
    if exc.errno == errno.EADDRNOTAVAIL:
        return UsageError(f"{host} is no address of this machine.", hint="Try --host 127.0.0.1.")
    return HermaError(f"{host}, port {port}, cannot be listened on: {exc.strerror or exc}.", hint="Try --port 0.")


def run(
    app: ASGIApp,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    tell: Callable[[str], None],
    debug: bool = False,
) -> None:
    """Serve until Ctrl-C or SIGTERM, then let answers under way be finished.

    `ready` is called when both would be heard; `tell` gets what goes wrong meanwhile.
    """
    import uvicorn

    settings = uvicorn.Config(
        app,
        loop="asyncio",
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # addresses may hold the token
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
        limit_concurrency=256,
    )
    server = uvicorn.Server(settings)
    with _logged(lambda: not server.should_exit, tell, debug=debug), _ended_by_signals(server):
        ready()
        server.run(sockets=[listening])


@contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """The framework hears signals, and afterwards sends them once more to whoever heard them before. That must not end
    the program in the middle of its clearing up.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, server.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Told(logging.Handler):
    """A sentence for each record; the traceback where that was asked for. Answers that are given up at the end are
    nobody's fault.
    """

    def __init__(self, serving: Callable[[], bool], tell: Callable[[str], None], *, debug: bool) -> None:
        super().__init__(logging.WARNING)
        self._serving = serving
        self._tell = tell
        self._debug = debug

    def emit(self, record: logging.LogRecord) -> None:
        if not self._serving():
            return
        self._tell(record.getMessage())
        if self._debug and record.exc_info:
            self._tell("".join(traceback.format_exception(*record.exc_info)).rstrip())


@contextmanager
def _logged(serving: Callable[[], bool], tell: Callable[[str], None], *, debug: bool) -> Iterator[None]:
    handler = _Told(serving, tell, debug=debug)
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
