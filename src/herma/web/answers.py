"""What is sent back: a page or JSON, also where something went wrong. JSON for whoever asked under /api/."""

from __future__ import annotations

import logging

from starlette.responses import HTMLResponse, Response

from herma.errors import ConfigError, HermaError, StoreBusy
from herma.web import frame
from herma.web.access import Refusal
from herma.web.house import House
from herma.web.html import Html, join, tag
from herma.web.pages import PAGES, Page, health
from herma.web.pages.parts import card, nothing
from herma.wording.plain import json_text
from herma.wording.sessions import Json

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
