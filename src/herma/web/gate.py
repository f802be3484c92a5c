"""Stands before everything else: lets in whoever may, and says on every answer what a browser may do with it."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from herma.web.access import Asked, Rules, refusal
from herma.web.answers import refused

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
