"""Access to the dashboard: who may read it, the answers to those who may not, and the token of the home.

`refusal` decides from what a request says about itself, in this order: the *name* under which we were called (a page on
another site may point its own name at this machine), the *origin* of a change (only our own pages may send one), and
the *key*: the home's token, or the cookie that was given for it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herma.errors import HermaError, StoreError
from herma.store.files import exclusive, replace_file
from herma.web.api import as_json, error_at, failed, is_api, log, message, own_path, wrong

if TYPE_CHECKING:
    from herma.web.app import HomeHandle


COOKIE_SECONDS = 7 * 86_400
"""Seconds for which a browser stays signed in."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+(?:%[\w.~-]+)?\]|[\w.~-]+)(?::\d*)?")
"""A Host header is a name or a number, and a port: no path, no user, no blank."""


@dataclass(frozen=True, slots=True)
class RequestFacts:
    """The headers of a request that decide about access; "" where one is missing."""

    method: str
    path: str
    host: str
    origin: str = ""
    fetch_site: str = ""
    bearer: str = ""
    cookie: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class AccessRefusal:
    """Why a request is refused."""

    status: int
    sentence: str
    hint: str = ""


TOO_MANY = AccessRefusal(429, "Too many requests.", "Wait a few seconds, and try again.")


class RateLimit:
    """Let each client make `burst` requests at once, and `rate` more in each second."""

    _MOST = 1_000
    """Clients that are remembered."""

    def __init__(self, burst: int, rate: float) -> None:
        self._burst, self._rate = burst, rate
        self._left: dict[str, tuple[float, float]] = {}

    def has_room(self, client: str) -> bool:
        """Count a request, and return whether it is allowed. Used by one thread, that of the event loop."""
        now = time.monotonic()
        left, at = self._left.pop(client, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._rate)
        self._left[client] = max(0.0, left - 1), now
        if len(self._left) > self._MOST:
            del self._left[next(iter(self._left))]
        return left >= 1


@dataclass(frozen=True, slots=True)
class Rules:
    """The access rules of one server."""

    token: str
    port: int
    bound_to: str = "127.0.0.1"
    names: frozenset[str] = frozenset()
    """More host names that it accepts: behind a proxy, or in a local network."""
    pace: RateLimit = field(default_factory=lambda: RateLimit(1_000, 100))
    """Of who is signed in."""
    guesses: RateLimit = field(default_factory=lambda: RateLimit(200, 5))
    """Of everybody else. A request with the token is never refused because of them."""

    @property
    def cookie_name(self) -> str:
        """Browsers do not tell ports apart: two servers on one machine must not overwrite each other's."""
        return f"herma-{self.port}"


def refusal(rules: Rules, asked: RequestFacts, now: float) -> AccessRefusal | None:
    """Return why a request is refused, or None if it is allowed."""
    if not known_name(rules, asked.host):
        return AccessRefusal(
            421,
            "This server does not accept that host name.",
            "Use the address that herma serve printed, or allow the name: herma serve --allow-host NAME",
        )
    if asked.method not in SAFE and not own_page(asked):
        return AccessRefusal(
            403, "This request was not sent by a page of this server.", "Open the page here, and try again."
        )
    if is_token(rules, asked.bearer) or is_cookie(rules, asked.cookie, now):
        return None if rules.pace.has_room(asked.client) else TOO_MANY
    if not rules.guesses.has_room(asked.client):
        return TOO_MANY
    if open_to_all(asked.path):
        return None
    if asked.bearer:
        return AccessRefusal(401, "Wrong token.", "Use the token that herma serve printed.")
    return AccessRefusal(401, "You are not signed in.", "Open the link that herma serve printed, or paste the token.")


def open_to_all(path: str) -> bool:
    """Return whether anybody may read this path: the sign-in form, its style, and whether the server is well."""
    return path in ("/enter", "/healthz") or path.startswith("/files/")


def known_name(rules: Rules, host: str) -> bool:
    """Return whether this host name is ours. An address cannot be pointed elsewhere, a name can."""
    if not _HOST.fullmatch(host):
        return False
    name = host_name(host)
    if name in rules.names or name == host_name(rules.bound_to):
        return True
    if name in _HERE:
        return True
    return not is_loopback(rules.bound_to) and _address(name) is not None


def own_page(asked: RequestFacts) -> bool:
    """Return whether a change was sent by one of our pages, or by a program with the token.

    A browser always names the origin; a program has no pages, so no other site can make it send one.
    """
    if asked.origin:
        try:
            origin = urlsplit(asked.origin).netloc
        except ValueError:  # `http://[`
            return False
        return bool(asked.host) and origin.casefold() == asked.host.casefold()
    if asked.fetch_site:
        return asked.fetch_site == "same-origin"
    return bool(asked.bearer)


def host_name(host: str) -> str:
    """`127.0.0.1:8765` → `127.0.0.1`; `[::1]:8765` → `::1`; lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].casefold()
    return (host if host.count(":") > 1 else host.partition(":")[0]).casefold().rstrip(".")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach this host."""
    address = _address(host_name(host))
    return host_name(host) == "localhost" if address is None else address.is_loopback


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None


# ── keys ──


def is_token(rules: Rules, given: str) -> bool:
    return bool(given) and hmac.compare_digest(given.encode("utf-8", "replace"), rules.token.encode())


def make_cookie(rules: Rules, now: float) -> str:
    """Return a cookie that expires, and from which the token cannot be read."""
    until = str(int(now + COOKIE_SECONDS))
    return f"{until}.{_signature(rules, until)}"


def is_cookie(rules: Rules, given: str, now: float) -> bool:
    until, _, signature = given.partition(".")
    if not until.isascii() or not until.isdigit() or len(until) > 12:
        return False
    genuine = hmac.compare_digest(signature.encode("utf-8", "replace"), _signature(rules, until).encode())
    return genuine and now < int(until) <= now + COOKIE_SECONDS + 1


def _signature(rules: Rules, until: str) -> str:
    return hmac.new(rules.token.encode(), f"cookie {rules.port} {until}".encode(), hashlib.sha256).hexdigest()


# ── responses ────────────────────────────────────────────────────────────────────────────────────────────────────


def answer(handle: HomeHandle, work: Callable[[], Response], path: str, kept: str = "") -> Response:
    """Return a response, or the error as one: a page, or JSON where the path is the API's. Runs in a thread."""
    try:
        return work()
    except HermaError as error:
        return failed(handle, error, path, kept)
    except Exception as error:  # noqa: BLE001 (no traceback may reach a browser)
        log().exception("%s failed: %s: %s", path, type(error).__name__, error)
        sentence = f"Internal error: {type(error).__name__}"
        return wrong(path, 500, sentence, "Start the server with --debug to see more.", code="internal")


def refused(path: str, why: AccessRefusal) -> Response:
    """Return an error to a reader who is not signed in: nothing of the home is in it."""
    if is_api(path):
        response = as_json(error_at(path, why.sentence, why.hint, "refused"), why.status)
        if why.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
    elif why.status == 401:
        response = sign_in(why.sentence, why.hint)
    else:
        response = message("Refused", why.sentence, why.hint, status=why.status)
    if why.status == 429:
        response.headers["Retry-After"] = "5"
    return response


def sign_in(sentence: str, hint: str = "") -> Response:
    """Return the form that takes the token."""
    return message("Sign in", sentence, hint, status=401, sign_in=True)


def signed_in(to: str = "/") -> Response:
    """Return a page that goes on to one of our pages, by default the first.

    A redirect would not do: after a link on another site, a browser sends the cookie only if one of our pages asks.
    """
    return message("Signed in", "", to=to if own_path(to) else "/")


# ── middleware ───────────────────────────────────────────────────────────────────────────────────────────────────

HEADERS = {
    # Only our own files, no inline script or style, no frames, no other place to send a form to.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class AccessMiddleware:
    """Refuse or pass on each request, and add the security headers to each response."""

    def __init__(self, app: ASGIApp, rules: Rules, clock: Callable[[], float], counts: Counter[int]) -> None:
        self._app = app
        self._rules = rules
        self._clock = clock
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # other protocols are not supported

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
                self._counts[message["status"]] += 1
            await send(message)

        asked = asked_by(Request(scope), self._rules)
        why = refusal(self._rules, asked, self._clock())
        answer = self._app if why is None else refused(asked.path, why)
        await answer(scope, receive, with_headers)


def asked_by(request: Request, rules: Rules) -> RequestFacts:
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return RequestFacts(
        method=request.method,
        path=request.scope["path"],  # request.url is put together with the Host header, which a caller may choose
        host=request.headers.get("host", ""),
        origin=request.headers.get("origin", ""),
        fetch_site=request.headers.get("sec-fetch-site", ""),
        bearer=key.strip() if kind.casefold() == "bearer" else "",
        cookie=request.cookies.get(rules.cookie_name, ""),
        client=request.client.host if request.client else "",
    )


class Codes:
    """Codes that sign in once, within two minutes.

    Other users of the machine can read the address that a browser is started with, so it has a code and not the token.
    """

    SECONDS = 120.0

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._until: dict[str, float] = {}

    def make(self) -> str:
        code = secrets.token_urlsafe(24)
        with self._mutex:
            self._until[code] = time.monotonic() + self.SECONDS
        return code

    def use(self, code: str) -> bool:
        """Return whether a code is valid, and invalidate it."""
        with self._mutex:
            return time.monotonic() < self._until.pop(code, float("-inf"))


# ── token ────────────────────────────────────────────────────────────────────────────────────────────────────────

FILE = "web.token"
_LOCK_WAIT = 5.0
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32,128}\n?")


@dataclass(frozen=True, slots=True)
class Token:
    """`note` is a warning for the person who started the server, if there is one."""

    value: str
    note: str = ""


def home_token(home: Path, *, renew: bool = False) -> Token:
    """Return the token of a home: a new one if there is none, if others could read it, or on request.

    In a home that cannot be written, the token is valid until the server ends.
    """
    path = home / FILE
    found = None if renew else _read(path)
    exposed = found is not None and os.name != "nt" and bool(path.stat().st_mode & 0o077)
    if found is not None and not exposed:
        return Token(found)
    made = secrets.token_urlsafe(32)
    if not home.exists():  # do not create a home that may be mistyped
        return Token(made, f"{home} does not exist yet; the link is valid until this server ends.")
    try:
        with exclusive(home / f".{FILE}.lock", _LOCK_WAIT):
            now = _read(path)
            if now is not None and now != found and not renew:  # another server of this home was first
                return Token(now)
            path.unlink(missing_ok=True)  # a file that takes its place would take over its mode
            replace_file(path, f"{made}\n".encode())
    except (OSError, StoreError):
        return Token(made, f"{path} cannot be written, so the link is valid only until this server ends.")
    if found is not None:
        return Token(made, f"Others on this machine could read {path}, so a new token was made.")
    return Token(made)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(200)
    except OSError:
        return None
    return data.decode("ascii").strip() if _TOKEN.fullmatch(data) else None
