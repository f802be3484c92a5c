"""Routes, server, the opened home."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from herma import config
from herma.doctor.checks import Diagnosis, diagnose
from herma.errors import HermaError, UsageError
from herma.web.access import COOKIE_SECONDS, Codes, Gate, Rules, answer, door, is_token, make_cookie, welcome, wrong
from herma.web.pages import PAGES, Page

if TYPE_CHECKING:
    import uvicorn

    from herma.app import Herma


# ---------- web.house
#
# The home that is looked at: opened once for all requests, and anew when its configuration changes.


@dataclass(slots=True)
class _Opened:
    h: Herma
    stamp: tuple[object, ...]
    users: int = 0


class House:
    """Used by the threads of several requests. What the configuration said before is closed when nobody uses it."""

    def __init__(self, home: Path, opener: Callable[[], Herma], *, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.clock = clock
        self._opener = opener
        self._mutex = threading.Lock()  # guards the next line
        self._now: _Opened | None = None
        self._looking = threading.Lock()  # guards the next line; whoever comes meanwhile waits for the same answer
        self._diagnosis: tuple[float, Diagnosis] | None = None

    @contextmanager
    def opened(self) -> Iterator[Herma]:
        """The memory, for as long as the block runs. Raises what `Herma.open` raises."""
        held = self._take()
        try:
            yield held.h
        finally:
            self._give_back(held)

    def doctor(self, *, at_most: float = 0.0) -> Diagnosis:
        """What the doctor says, at most so many seconds old. Works for a home that cannot be opened, too."""
        with self._looking:
            kept = self._diagnosis
            if kept is None or not 0 <= time.monotonic() - kept[0] < at_most:
                kept = time.monotonic(), diagnose(self.home, self._settings(), clock=self.clock)
                self._diagnosis = kept
            return kept[1]

    def close(self) -> None:
        with self._mutex:
            held, self._now = self._now, None
        if held is not None and not held.users:
            held.h.close()

    def _settings(self) -> config.Settings | None:
        try:
            with self.opened() as h:
                return h.settings
        except UsageError:
            return None  # the doctor reads it once more, and says what is wrong with it

    def _configuration(self) -> tuple[Path, ...]:
        project = config.project_file(None, os.environ)
        return (self.home / config.HOME_FILE, self.home / ".env", *([project] if project else []))

    def _take(self) -> _Opened:
        with self._mutex:
            stamp = tuple(_stamp(path) for path in self._configuration())
            before = self._now
            if before is None or before.stamp != stamp:
                self._now = _Opened(self._opener(), stamp)
                if before is not None and not before.users:
                    before.h.close()
            assert self._now is not None
            self._now.users += 1
            return self._now

    def _give_back(self, held: _Opened) -> None:
        with self._mutex:
            held.users -= 1
            over = held is not self._now and not held.users
        if over:
            held.h.close()


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


# ---------- web.threads
#
# Work that may take long, beside the event loop, in threads that hold nothing up when the program ends.
#
# The framework's own pool waits for its threads at the end: with a store that is busy, Ctrl-C would take as long as
# that.

T = TypeVar("T")


class Threads:
    """At most so many at once; whoever comes then waits, and blocks nobody."""

    def __init__(self, most: int = 16) -> None:
        self._room = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """What comes of it; its error is raised here. When this is cancelled, nobody waits for it any more."""
        async with self._room:
            done: concurrent.futures.Future[T] = concurrent.futures.Future()
            threading.Thread(target=_run, args=(work, done), name="herma: page", daemon=True).start()
            return await asyncio.wrap_future(done)


def _run(work: Callable[[], T], done: concurrent.futures.Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (handed to whoever waits, who raises it)
        done.set_exception(error)
    else:
        done.set_result(result)


# ---------- web.app
#
# Which address shows what.

FILES = {"style.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
"""Our own files, by name: nothing else can be asked for."""
_LARGEST_FORM = 4_096


def make_app(house: House, rules: Rules, codes: Codes, *, clock: Callable[[], float] = time.time) -> ASGIApp:
    """Everything, behind the gate."""
    threads = Threads()
    entering = partial(_enter, rules=rules, codes=codes, clock=clock)
    routes = [
        *(Route(path, _shown(house, page, threads)) for page in PAGES for path in (page.path, page.api)),
        Route("/enter", entering, methods=["GET", "POST"]),
        Route("/leave", partial(_leave, rules=rules), methods=["POST"]),
        Route("/files/{name}", _file),
    ]
    return Gate(Starlette(routes=routes, exception_handlers={HTTPException: _unknown}), rules, clock)


def _shown(house: House, page: Page, threads: Threads) -> Callable[..., object]:
    async def endpoint(request: Request) -> Response:
        path = request.url.path
        try:  # a look may take long, and at the end of the server nobody waits for it
            return await threads.run(lambda: answer(house, page, path))
        except asyncio.CancelledError:
            return wrong(path, 503, "The server is ending.")

    return endpoint


async def _enter(request: Request, *, rules: Rules, codes: Codes, clock: Callable[[], float]) -> Response:
    """The token, or a code that is good once, for a cookie. `to` is the page to go on to."""
    if request.method == "POST":
        token, code = await _typed(request), ""
    else:
        token, code = request.query_params.get("token", ""), request.query_params.get("code", "")
    if not token and not code:
        return door("This page is for whoever started the server.", "The token stands in the link that it printed.")
    if not is_token(rules, token.strip()) and not (code and codes.use(code)):
        hint = "Open the link that herma serve printed last."
        return door("That link is no longer good." if code else "That is not the token of this home.", hint)
    response = welcome(request.query_params.get("to", "/"))
    response.set_cookie(
        rules.cookie_name, make_cookie(rules, clock()), max_age=COOKIE_SECONDS, httponly=True, samesite="strict"
    )
    return response


async def _typed(request: Request) -> str:
    """The token that was typed into the form; "" if what came is too long to be one."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_FORM:
            return ""
    return parse_qs(body.decode("utf-8", "replace")).get("token", [""])[0]


async def _leave(request: Request, *, rules: Rules) -> Response:  # noqa: ARG001 (the framework names it)
    response = RedirectResponse("/enter", 303)
    response.delete_cookie(rules.cookie_name, httponly=True, samesite="strict")
    return response


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in FILES:
        raise HTTPException(404)
    data = resources.files("herma.web").joinpath("files", name).read_bytes()
    return Response(data, media_type=FILES[name])


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path
    if status == 405:
        return wrong(path, status, f"{path} cannot be asked in this way.", "It answers to GET.")
    addresses = ", ".join(page.api if path.startswith("/api/") else page.path for page in PAGES)
    return wrong(path, status, f"There is nothing at {path[:80]}.", f"There are {addresses}.")


# ---------- web.server
#
# A socket, and what listens on it until somebody ends it.

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
