"""Which address shows what."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from importlib import resources
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from herma.web.access import COOKIE_SECONDS, Rules, is_token, make_cookie
from herma.web.answers import answer, door, welcome, wrong
from herma.web.gate import Codes, Gate
from herma.web.house import House
from herma.web.pages import PAGES, Page
from herma.web.threads import Threads

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
