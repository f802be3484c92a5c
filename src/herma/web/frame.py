"""What every page has around it: head, navigation, foot. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from herma import __version__
from herma.web.html import Child, Html, document, join, tag

REFRESH_SECONDS = 30
"""How often the script fetches a page anew while somebody looks at it."""


def page(
    title: str,
    body: Child,
    *,
    links: Sequence[tuple[str, str]] = (),
    here: str = "",
    api: str = "",
    head: Child = None,
) -> Html:
    """A whole page. `links` are (address, name) of the navigation; without them nobody is let in yet. `api` is where
    the same is as JSON.
    """
    return document(
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("title", f"{title} · Herma"),
            tag("link", rel="icon", href="/files/mark.svg", type="image/svg+xml"),
            tag("link", rel="stylesheet", href="/files/style.css"),
            tag("script", src="/files/page.js", defer=True) if links else None,
            head,
        ),
        tag(
            "body",
            tag("a", "To the content", href="#content", class_="skip"),
            tag("header", _brand(), _navigation(links, here), _leave() if links else None),
            tag("main", tag("h1", title), body, id="content", data_refresh=REFRESH_SECONDS if links else None),
            tag("footer", f"Herma {__version__}", _as_json(api) if api else None),
        ),
    )


def _brand() -> Html:
    return tag("a", tag("img", src="/files/mark.svg", alt="", width=24, height=24), "Herma", href="/", class_="brand")


def _navigation(links: Sequence[tuple[str, str]], here: str) -> Html | None:
    if not links:
        return None
    listed = [
        tag("li", tag("a", name, href=address, aria_current="page" if address == here else None))
        for address, name in links
    ]
    return tag("nav", tag("ul", listed), aria_label="Pages")


def _leave() -> Html:
    return tag("form", tag("button", "Sign out", type="submit"), method="post", action="/leave", class_="leave")


def _as_json(api: str) -> Html:
    return join(" · ", tag("a", "this page as JSON", href=api))
