"""Routes, server, the opened home."""

from __future__ import annotations

import asyncio
import concurrent.futures
import errno
import importlib.util
import itertools
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from herma import config
from herma.doctor.checks import Diagnosis, diagnose
from herma.errors import HermaError, UsageError, install_command
from herma.proxy.server import ChatProxy
from herma.web import memory_views, session_views  # noqa: F401  (they declare operations)
from herma.web.access import (
    COOKIE_SECONDS,
    AccessMiddleware,
    Codes,
    Rules,
    answer,
    is_token,
    make_cookie,
    sign_in,
    signed_in,
)
from herma.web.api import (
    OPERATIONS,
    PAGES,
    V1,
    Operation,
    as_json,
    body_of,
    error_json,
    gone_on,
    openapi,
    own_path,
    render,
    said_before,
    since_seen,
    wrong,
)
from herma.web.home_views import ImportJob, change_stamp, prometheus
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.app import Herma


# ---------- the home
#
# The home: opened once for all requests, and again when its configuration changes.


_HEALTH_SECONDS, _OLD_SECONDS = 60.0, 300.0
"""From which age on a diagnosis is rebuilt in the background, and is not shown any more."""


@dataclass(slots=True)
class _Opened:
    h: Herma
    stamp: tuple[object, ...]
    users: int = 0


class HomeHandle:
    """Open the home once for the threads of all requests, and again when its configuration changes. The earlier one is
    closed when its last request ends."""

    def __init__(self, home: Path, opener: Callable[[], Herma], *, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.clock = clock
        self._opener = opener
        self._mutex = threading.Lock()  # guards the next line
        self._now: _Opened | None = None
        self._looking = threading.Lock()  # guards the next line; others wait for the same diagnosis
        self._diagnosis: tuple[float, Diagnosis, object] | None = None
        self.checked: float | None = None
        """When the diagnosis was made."""
        self.imports: dict[str, ImportJob] = {}
        """The imports that were started here, by source."""
        self.stopping = False
        """True if the server is ending: requests that wait for changes end, too."""
        self.requests: Counter[int] = Counter()
        """Answers by status."""
        self.at_end = ExitStack()
        """Work that must end before the home is closed."""

    @contextmanager
    def opened(self) -> Iterator[Herma]:
        """Return the memory for a `with` block. Raise the errors of `Herma.open`."""
        held = self._take()
        try:
            yield held.h
        finally:
            self._give_back(held)

    def doctor(self, *, at_most: float = 0.0) -> Diagnosis:
        """Return what the doctor says, at most so many seconds old. Works for a home that cannot be opened, too."""
        with self._looking:
            kept = self._diagnosis
            if kept is None or not 0 <= time.monotonic() - kept[0] < at_most:
                self.checked, stamp = self.clock(), self._stamps()
                kept = time.monotonic(), diagnose(self.home, self._settings(), clock=self.clock), stamp
                self._diagnosis = kept
            return kept[1]

    def known_health(self) -> Diagnosis | None:
        """Return the newest diagnosis without waiting; None if there is none, or the configuration changed since. If it
        is not new, another one is made in the background.
        """
        kept = self._diagnosis
        holds = kept is not None and kept[2] == self._stamps()
        age = time.monotonic() - kept[0] if kept is not None and holds else _OLD_SECONDS
        if age > _HEALTH_SECONDS and not self._looking.locked():
            BackgroundCall("doctor", lambda: self.doctor(at_most=_HEALTH_SECONDS if holds else 0.0)).start()
        return kept[1] if kept is not None and age < _OLD_SECONDS else None

    def waiting(self) -> int:
        """Return how many proposals wait; 0 if the home cannot be read, which the page itself says."""
        with suppress(HermaError), self.opened() as h:
            return len(h.memory.pending()) + len(h.skills.pending())
        return 0

    def stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        self.stop()
        self.at_end.close()
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

    def _stamps(self) -> tuple[object, ...]:
        return tuple(_stamp(path) for path in self._configuration())

    def _take(self) -> _Opened:
        with self._mutex:
            stamp = self._stamps()
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
# Threads for work that may take long. They do not delay the end of the program.
#
# The framework's own pool waits for its threads at the end: with a store that is busy, Ctrl-C would take as long as
# that.

T = TypeVar("T")


class ThreadLimit:
    """Run a limited number of calls at once, each in a thread; further ones wait without blocking the event loop."""

    def __init__(self, most: int = 16) -> None:
        self._room = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of a call, or raise its error. If this is cancelled, the call goes on alone."""
        async with self._room:
            done: concurrent.futures.Future[T] = concurrent.futures.Future()
            BackgroundCall("page", partial(_run, work, done)).start()
            return await asyncio.wrap_future(done)


def _run(work: Callable[[], T], done: concurrent.futures.Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (raised again in `run`)
        done.set_exception(error)
    else:
        done.set_result(result)


# ---------- web.app
#
# The addresses and their handlers.

FILES = {"style.css": "text/css", "page.js": "text/javascript", "mark.svg": "image/svg+xml"}
"""Our own files, by name: nothing else can be asked for."""


def make_app(handle: HomeHandle, rules: Rules, codes: Codes, *, clock: Callable[[], float] = time.time) -> ASGIApp:
    """Return everything, behind the gate."""
    threads = ThreadLimit()
    proxy = ChatProxy(handle.opened, threads.run)
    handle.at_end.callback(proxy.close)
    entering = partial(_enter, rules=rules, codes=codes, clock=clock)
    routes = [
        *(Route(V1 + one.path, _called(handle, one, threads, rules), methods=[one.method]) for one in OPERATIONS),
        *(Route(one.page, _shown(handle, one, threads, rules, clock)) for one in OPERATIONS if one.page),
        Route(f"{V1}/events", Events(handle, threads)),
        Route(f"{V1}/openapi.json", _described),
        Route("/healthz", partial(_healthz, handle=handle, threads=threads)),
        Route("/metrics", partial(_metrics, handle=handle, threads=threads)),
        Route("/enter", entering, methods=["GET", "POST"]),
        Route("/leave", partial(_leave, rules=rules), methods=["POST"]),
        Route("/files/{name}", _file),
        Route("/mcp", _McpRoute(handle)),
        *proxy.routes,
    ]
    inner = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})
    return AccessMiddleware(inner, rules, clock, handle.requests)


def _called(handle: HomeHandle, one: Operation, threads: ThreadLimit, rules: Rules) -> Callable[..., object]:
    """Answer a call of the API. A form of one of our pages goes on to the page that it names."""

    async def endpoint(request: Request) -> Response:
        path, form, back = request.scope["path"], False, ""
        given: dict[str, object] = dict(request.query_params)
        try:
            if one.method == "POST":
                given, form = await body_of(request)
                back = str(given.pop("back", "/")) if form else ""
            arguments = one.arguments({**given, **request.path_params})
        except UsageError as error:
            status = {"too_large": 413, "unsupported_media_type": 415}.get(error.code, 400)
            return wrong(_page_of(back) if form else path, status, str(error), error.hint, code=error.code)

        if (one.person or arguments.get("trust")) and "authorization" in request.headers:
            sentence = "Only a person who is signed in with a browser may do this. Nothing was changed."
            return wrong(path, 403, sentence, "Open the link that herma serve printed.", code="people_only")

        def work() -> Response:
            value = one.run(handle, arguments)
            if not value.get("ok", True):
                code = str(value.get("outcome", "refused")).lower()
                if form:
                    return wrong(_page_of(back), 409, str(value["message"]), code=code, kept=str(given.get("text", "")))
                return as_json(error_json(str(value["message"]), "", code, outcome=value), 409)
            if form:
                return gone_on(back, value, rules.cookie_name)
            return as_json(value, known=request.headers.get("if-none-match", ""))

        where, kept = (_page_of(back), str(given.get("text", ""))) if form else (path, "")
        return await _in_thread(threads, lambda: answer(handle, work, where, kept), path)

    return endpoint


def _page_of(back: str) -> str:
    return back.partition("?")[0] if own_path(back) else "/"


def _shown(
    handle: HomeHandle, one: Operation, threads: ThreadLimit, rules: Rules, clock: Callable[[], float]
) -> Callable[..., object]:
    """Answer with a page: the values of the API in the template of the operation's name."""

    async def endpoint(request: Request) -> Response:
        path = request.scope["path"]
        said = said_before(request, rules.cookie_name)
        given = {name: value for name, value in request.query_params.items() if value != ""} | request.path_params
        since, seen = since_seen(request, rules.cookie_name, clock()) if one.seen else (None, "")
        if since is not None:
            given.setdefault("since", str(int(since)))

        def work() -> Response:
            arguments = one.arguments(given, strict=False)
            found = one.run(handle, arguments)
            asked = {each.name: arguments.get(each.name, each.default) for each in one.parameters}
            here = next((page for page, _ in reversed(PAGES) if path.startswith(page)), "/")
            query = f"?{request.url.query}" if request.url.query else ""
            api = f"{V1}{one.path.format_map(request.path_params)}{query}"
            values = {"found": found, "asked": asked, "here": here, "path": path, "back": path + query, "api": api}
            page = render(f"{one.name}.html", title=one.title, said=said, inbox=handle.waiting(), **values)
            response = HTMLResponse(page)
            if said:
                response.delete_cookie(f"{rules.cookie_name}-said")
            if seen:
                age = 365 * 86_400
                response.set_cookie(f"{rules.cookie_name}-seen", seen, age, httponly=True, samesite="strict")
            return response

        return await _in_thread(threads, lambda: answer(handle, work, path), path)

    return endpoint


async def _in_thread(threads: ThreadLimit, work: Callable[[], Response], path: str) -> Response:
    try:  # it may take long; when the server ends, it is not waited for
        return await threads.run(work)
    except asyncio.CancelledError:
        return wrong(path, 503, "The server is shutting down.", code="stopping")


class Events:
    """Server-sent events: a `change` whenever something is written to the home, by whatever program."""

    EVERY, ALIVE, MOST = 1.0, 15, 64
    """Seconds between two looks; looks between two signs of life; pages that may listen."""

    def __init__(self, handle: HomeHandle, threads: ThreadLimit) -> None:
        self._handle, self._threads = handle, threads
        self._listeners = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._listeners >= self.MOST:
            await wrong(scope["path"], 503, "Too many pages listen for changes.", code="busy")(scope, receive, send)
            return
        response = StreamingResponse(self._lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        await response(scope, receive, send)

    async def _lines(self) -> AsyncIterator[str]:
        self._listeners += 1
        try:
            seen = await self._stamp()
            yield "retry: 1000\nevent: ready\ndata: {}\n\n"
            for look in itertools.count(1):
                await asyncio.sleep(self.EVERY)
                if self._handle.stopping:
                    return
                stamp = await self._stamp()
                if stamp != seen and None not in (stamp, seen):
                    yield f'event: change\ndata: {{"version": {look}}}\n\n'
                elif look % self.ALIVE == 0:
                    yield ": alive\n\n"
                seen = stamp or seen
        finally:
            self._listeners -= 1

    async def _stamp(self) -> object:
        """Return a value that changes with the home; None while it cannot be read."""

        def read() -> object:
            with self._handle.opened() as h:
                jobs = [(one.source, one.state, one.done) for one in self._handle.imports.values()]
                return change_stamp(h), jobs

        with suppress(HermaError):
            return await self._threads.run(read)
        return None


async def _described(request: Request) -> Response:
    return as_json(openapi(), known=request.headers.get("if-none-match", ""))


async def _healthz(request: Request, *, handle: HomeHandle, threads: ThreadLimit) -> Response:  # noqa: ARG001
    """Say whether the home can be read; nothing else, because anybody may ask."""

    def work() -> Response:
        try:
            with handle.opened() as h:
                change_stamp(h)
        except HermaError as error:
            return as_json({"ok": False, "error": {"code": error.code, "message": "Not ready.", "hint": ""}}, 503)
        return as_json({"ok": True})

    return await _in_thread(threads, work, "/healthz")


async def _metrics(request: Request, *, handle: HomeHandle, threads: ThreadLimit) -> Response:  # noqa: ARG001
    def work() -> Response:
        with handle.opened() as h:
            text = prometheus(h)
        lines = ["# HELP herma_http_requests_total Answers by status.", "# TYPE herma_http_requests_total counter"]
        lines += [f'herma_http_requests_total{{status="{code}"}} {n}' for code, n in sorted(handle.requests.items())]
        return Response(text + "\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return await _in_thread(threads, lambda: answer(handle, work, "/metrics"), "/metrics")


async def _enter(request: Request, *, rules: Rules, codes: Codes, clock: Callable[[], float]) -> Response:
    """Exchange the token, or a code that is valid once, for a cookie. `to` is the page to go on to."""
    given: Mapping[str, str] = request.query_params
    if request.method == "POST":
        given = {}
        with suppress(UsageError):  # too long, or cut off
            given, _ = await body_of(request)
    token, code = str(given.get("token", "")), str(given.get("code", ""))
    if not token and not code:
        return sign_in("You are not signed in.", "Open the link that herma serve printed, or paste the token.")
    if not is_token(rules, token.strip()) and not (code and codes.use(code)):
        hint = "Open the link that herma serve printed last."
        return sign_in("This link has expired." if code else "Wrong token.", hint)
    response = signed_in(request.query_params.get("to", "/"))
    response.set_cookie(
        rules.cookie_name, make_cookie(rules, clock()), max_age=COOKIE_SECONDS, httponly=True, samesite="strict"
    )
    return response


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


class _McpRoute:
    """MCP over HTTP; loaded with the first call. The gate in front asks for the token, as for everything else."""

    def __init__(self, handle: HomeHandle) -> None:
        self._handle = handle
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None and importlib.util.find_spec("mcp") is None:
            hint = f"Type: {install_command('mcp')}"
            refused = wrong("/mcp", 501, "The mcp library is not installed.", hint, code="not_installed")
            await refused(scope, receive, send)
            return
        if self._app is None:
            self._app = importlib.import_module("herma.mcp.server").McpOverHttp(self._handle.opened)
        await self._app(scope, receive, send)


async def _unknown(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.scope["path"]
    if status == 405:
        allowed = (getattr(error, "headers", None) or {}).get("Allow", "GET").replace("HEAD, ", "")
        response = wrong(path, status, f"{path[:80]} allows only {allowed}.", code="method")
        response.headers["Allow"] = allowed
        return response
    hint = f"{V1}/openapi.json lists the addresses." if path.startswith("/api") else ""
    return wrong(path, status, f"There is nothing at {path[:80]}.", hint)


# ---------- web.server
#
# The socket, and the server that runs on it until it is stopped.

_GRACE = 3
"""Seconds that answers under way have when the server ends."""
REQUEST_SECONDS = 15.0
"""Seconds in which a request must come whole, and in which its answer must be taken."""
MOST_WAITING = 96
"""Connections that may be without a whole request at the same time; one more closes the oldest of them."""
_LOGGERS = ("uvicorn.error", "herma.web")


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one. Connections wait until the server runs."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as exc:
        raise UsageError(f"{host!r} is not an address of this machine.", hint="Try --host 127.0.0.1.") from exc
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
        return HermaError(f"Port {port} is taken: another program listens there.", hint=hint)
    if exc.errno in (errno.EACCES, errno.EPERM):
        return HermaError(f"You may not use port {port}.", hint="Choose one above 1023 with --port.")
    if exc.errno == errno.EADDRNOTAVAIL:
        return UsageError(f"{host} is not an address of this machine.", hint="Try --host 127.0.0.1.")
    return HermaError(f"Cannot listen on {host}, port {port}: {exc.strerror or exc}.", hint="Try --port 0.")


def run(
    app: ASGIApp,
    listening: socket.socket,
    *,
    ready: Callable[[], None],
    tell: Callable[[str], None],
    stop: Callable[[], None] = lambda: None,
    debug: bool = False,
    request_seconds: float = REQUEST_SECONDS,
) -> None:
    """Serve until Ctrl-C or SIGTERM, then let answers under way be finished.

    `ready` is called when both are handled, `stop` when one arrives; `tell` receives errors meanwhile. A connection
    is closed when its request does not come whole, or its answer is not taken, within `request_seconds`.
    """
    import uvicorn

    class StoppingServer(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            stop()
            super().handle_exit(sig, frame)

    settings = uvicorn.Config(
        app,
        loop="asyncio",
        http=bounded_protocol(request_seconds),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,  # addresses may hold the token
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE,
        limit_concurrency=256,
        backlog=128,
    )
    server = StoppingServer(settings)
    for name in _LOGGERS:
        logging.getLogger(name).addHandler(_WarningHandler(lambda: not server.should_exit, tell, debug=debug))
        logging.getLogger(name).propagate = False
    # For the whole run: uvicorn raises the signal again at its end, which would end the program with the home open.
    before = {each: signal.signal(each, server.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        ready()
        server.run(sockets=[listening])
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def bounded_protocol(seconds: float) -> type[asyncio.Protocol]:
    """Return HTTP for one server that closes a connection whose request does not come, or whose answer is not taken.

    The library's own time limit holds between two requests only, and restarts with every byte.
    """
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol as Http1

    waiting: dict[Bounded, asyncio.TimerHandle] = {}  # the oldest first

    class Bounded(Http1):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its base class
            super().connection_made(transport)
            self._wait()

        def connection_lost(self, exc: Exception | None) -> None:
            self._go_on()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._wait()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._look()

        def _look(self) -> None:
            """Wait for the caller, unless a whole request is being answered: a page may take its time."""
            whole = self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) and self.cycle is not None
            if whole and not self.cycle.response_complete and not self.flow.write_paused:
                self._go_on()
            else:
                self._wait()

        def _wait(self) -> None:
            if self not in waiting:
                waiting[self] = self.loop.call_later(seconds, self._give_up)
                if len(waiting) > MOST_WAITING:
                    next(iter(waiting))._give_up()

        def _go_on(self) -> None:
            if timer := waiting.pop(self, None):
                timer.cancel()

        def _give_up(self) -> None:
            self._go_on()
            self.transport.abort()

    return Bounded


class _WarningHandler(logging.Handler):
    """Report each record as a sentence, with its traceback if `debug`. Ignore requests that are cut off at the end."""

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
