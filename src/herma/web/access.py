"""Who may come in."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herma.cli.output import Json, json_text
from herma.errors import ConfigError, HermaError, StoreBusy, StoreError
from herma.store.files import exclusive, replace_file
from herma.web import pages as frame
from herma.web import pages as health
from herma.web.pages import PAGES, Html, Page, card, join, nothing, tag

if TYPE_CHECKING:
    from herma.web.app import House


# ---------- web.access
#
# Who may come in, decided from what a request says about itself. Pure: no socket, no file; time is a number.
#
# Three things are looked at, in this order. The *name* under which we were called: a page of somebody else's that has
# its own name point at this machine must get nothing. The *origin* of whatever would change something: only our own
# pages may send that. And the *key*: the home's token, or the cookie that was given for it.

COOKIE_SECONDS = 7 * 86_400
"""How long a browser stays let in."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HERE = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request says about itself; "" where it says nothing."""

    method: str
    path: str
    host: str
    origin: str = ""
    fetch_site: str = ""
    bearer: str = ""
    cookie: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why somebody is not let in."""

    status: int
    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for one server."""

    token: str
    port: int
    bound_to: str = "127.0.0.1"
    names: frozenset[str] = frozenset()
    """More names under which it may be called: behind a proxy, or in a local network."""

    @property
    def cookie_name(self) -> str:
        """Browsers do not tell ports apart: two servers on one machine must not overwrite each other's."""
        return f"herma-{self.port}"


def refusal(rules: Rules, asked: Asked, now: float) -> Refusal | None:
    """Why this request is not answered; `None` if it is."""
    if not known_name(rules, asked.host):
        return Refusal(
            421,
            "This server does not answer under that name.",
            "Use the address that herma serve printed, or allow the name: herma serve --allow-host NAME",
        )
    if asked.method not in SAFE and not own_page(asked):
        return Refusal(403, "This was not sent by a page of this server.", "Open the page here and try again.")
    if open_to_all(asked.path) or is_token(rules, asked.bearer) or is_cookie(rules, asked.cookie, now):
        return None
    if asked.bearer:
        return Refusal(401, "That token is not the one of this home.", "herma serve prints it.")
    return Refusal(
        401, "This page is for whoever started the server.", "Open the link that herma serve printed; it lets you in."
    )


def open_to_all(path: str) -> bool:
    """The door itself, and what it looks like: nothing of anybody's."""
    return path == "/enter" or path.startswith("/files/")


def known_name(rules: Rules, host: str) -> bool:
    """Whether we may be called by this name. A number cannot be made to point elsewhere, a name can."""
    name = host_name(host)
    if name in rules.names or name == host_name(rules.bound_to):
        return True
    if name in _HERE:
        return True
    return not is_loopback(rules.bound_to) and _address(name) is not None


def own_page(asked: Asked) -> bool:
    """Whether what wants to change something was sent by one of our pages, or by a program with the token.

    A browser always says where from; a program has no pages and cannot be lured.
    """
    if asked.origin:
        return bool(asked.host) and urlsplit(asked.origin).netloc.casefold() == asked.host.casefold()
    if asked.fetch_site:
        return asked.fetch_site == "same-origin"
    return bool(asked.bearer)


def host_name(host: str) -> str:
    """`127.0.0.1:8765` → `127.0.0.1`; `[::1]:8765` → `::1`; lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].casefold()
    return (host if host.count(":") > 1 else host.partition(":")[0]).casefold().rstrip(".")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
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
    """What a browser gets in place of the token: it ends by itself, and the token cannot be read from it."""
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


# ---------- web.answers
#
# What is sent back: a page or JSON, also where something went wrong. JSON for whoever asked under /api/.

LINKS = [(page.path, page.name) for page in PAGES]
_API = "/api/"


def log() -> logging.Logger:
    return logging.getLogger("herma.web")  # not while importing, which has no effect


def as_json(value: Json, status: int = 200) -> Response:
    return Response(json_text(value) + "\n", status, media_type="application/json")


def as_page(title: str, body: Html, *, here: str = "", api: str = "", status: int = 200) -> Response:
    return HTMLResponse(frame.page(title, body, links=LINKS, here=here, api=api), status)


def answer(house: House, page: Page, path: str) -> Response:
    """One page, or its values as JSON. Runs in a thread of its own. Whatever goes wrong is said, here and there."""
    try:
        found = page.gather(house)
        if path == page.api:
            return as_json(page.tell(found))
        return as_page(page.name, page.show(found), here=page.path, api=page.api)
    except HermaError as error:
        return troubled(house, error, path)
    except Exception as error:  # noqa: BLE001 (nothing may reach a browser as a traceback, and nobody be told nothing)
        log().exception("%s could not be shown: %s: %s", path, type(error).__name__, error)
        sentence = f"Internal error: {type(error).__name__}"
        return wrong(path, 500, sentence, "herma serve --debug shows more, where it was started.")


def troubled(house: House, error: HermaError, path: str) -> Response:
    """What is broken, what to do, and what the doctor says about the home."""
    busy = isinstance(error, StoreBusy)
    status = 503 if busy or isinstance(error, ConfigError) else 500
    if path.startswith(_API):
        response = as_json(_error_json(str(error), error.hint, type(error).__name__), status)
    else:
        said = _said(str(error), error.hint)
        response = as_page("Something is wrong", join(said, None if busy else _doctor(house)), here=path, status=status)
    if busy:
        response.headers["Retry-After"] = "2"
    return response


def wrong(path: str, status: int, sentence: str, hint: str = "", kind: str = "") -> Response:
    """An answer that is none, for whoever is let in."""
    if path.startswith(_API):
        return as_json(_error_json(sentence, hint, kind), status)
    return as_page("Something is wrong", _said(sentence, hint), here=path, status=status)


def refused(path: str, why: Refusal) -> Response:
    """An answer that is none, for whoever is not: nothing of the home is in it."""
    if path.startswith(_API):
        response = as_json(_error_json(why.sentence, why.hint, "Refused"), why.status)
        if why.status == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response
    if why.status == 401:
        return door(why.sentence, why.hint)
    return HTMLResponse(frame.page("Not here", _said(why.sentence, why.hint)), why.status)


def door(sentence: str, hint: str = "", *, status: int = 401) -> Response:
    """Where somebody who has the token, and not the link, comes in."""
    field = tag("input", id="token", name="token", type="password", autocomplete="off", required=True)
    form = tag(
        "form",
        tag("label", "Token", for_="token"),
        field,
        tag("button", "Come in", type="submit"),
        method="post",
        action="/enter",
        class_="door",
    )
    again = tag("p", tag("a", "If a link on another site brought you here, go on from here.", href="/"), class_="quiet")
    return HTMLResponse(frame.page("Who is there?", join(_said(sentence, hint), form, again)), status)


def welcome(to: str = "/") -> Response:
    """Goes on by itself to a page of ours, the first unless told otherwise. A plain redirect would not: after a link
    on another site, a browser keeps the cookie back until one of our own pages asks.
    """
    page = next((page for page in PAGES if page.path == to), PAGES[0])
    head = tag("meta", http_equiv="refresh", content=f"0; url={page.path}")
    body = tag("p", tag("a", f"Go on to {page.name}", href=page.path))
    return HTMLResponse(frame.page("Welcome", body, head=head))


def _said(sentence: str, hint: str) -> Html:
    return tag(
        "div", tag("p", tag("strong", sentence)), tag("p", hint) if hint else None, class_="card notice", role="alert"
    )


def _doctor(house: House) -> Html:
    try:
        found = house.doctor(at_most=5.0)
    except HermaError as error:
        return card("What the doctor says", nothing(str(error)))
    telling = tuple(check for check in found.checks if check.state != "ok")
    return card("What the doctor says", health.checks(telling or found.checks), wide=True)


def _error_json(sentence: str, hint: str, kind: str) -> Json:
    """As the command line says it with --json."""
    return {"ok": False, "error": sentence, "hint": hint, "kind": kind}


# ---------- web.gate
#
# Stands before everything else: lets in whoever may, and says on every answer what a browser may do with it.

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


class Gate:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, rules: Rules, clock: Callable[[], float]) -> None:
        self._app = app
        self._rules = rules
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is spoken here

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        asked = asked_by(Request(scope), self._rules)
        why = refusal(self._rules, asked, self._clock())
        answer = self._app if why is None else refused(asked.path, why)
        await answer(scope, receive, with_headers)


def asked_by(request: Request, rules: Rules) -> Asked:
    kind, _, key = request.headers.get("authorization", "").partition(" ")
    return Asked(
        method=request.method,
        path=request.url.path,
        host=request.headers.get("host", ""),
        origin=request.headers.get("origin", ""),
        fetch_site=request.headers.get("sec-fetch-site", ""),
        bearer=key.strip() if kind.casefold() == "bearer" else "",
        cookie=request.cookies.get(rules.cookie_name, ""),
    )


class Codes:
    """Codes that let somebody in once, soon. A browser that is started is given its address where other users of the
    machine can read it, so it gets one of these and not the token.
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
        """Whether it was good; it is not any more."""
        with self._mutex:
            return time.monotonic() < self._until.pop(code, float("-inf"))


# ---------- web.token
#
# The home's token: made once, kept in a file that only its owner can read, so that a browser stays let in.

FILE = "web.token"
_PATIENCE = 5.0
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32,128}\n?")


@dataclass(frozen=True, slots=True)
class Token:
    """`note` is a sentence for whoever started the server, where there is something to say."""

    value: str
    note: str = ""


def home_token(home: Path, *, renew: bool = False) -> Token:
    """The token of this home; a new one if there is none, if others could read it, or on request.

    A home that cannot be written gets one that holds until the server ends.
    """
    path = home / FILE
    found = None if renew else _read(path)
    if found is not None and not _exposed(path):
        return Token(found)
    made = secrets.token_urlsafe(32)
    if not home.exists():  # looking makes no home, which may only be mistyped
        return Token(made, f"There is nothing at {home} yet; the link holds only until this server ends.")
    try:
        with exclusive(home / f".{FILE}.lock", _PATIENCE):
            now = _read(path)
            if now is not None and now != found and not renew:  # another server of this home was first
                return Token(now)
            path.unlink(missing_ok=True)  # a file that takes its place would take over its mode
            replace_file(path, f"{made}\n".encode())
    except (OSError, StoreError):
        return Token(made, f"{path} cannot be written, so the link holds only until this server ends.")
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


def _exposed(path: Path) -> bool:
    return os.name != "nt" and bool(path.stat().st_mode & 0o077)
