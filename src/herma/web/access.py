"""Who may come in, decided from what a request says about itself. Pure: no socket, no file; time is a number.

Three things are looked at, in this order. The *name* under which we were called: a page of somebody else's that has its
own name point at this machine must get nothing. The *origin* of whatever would change something: only our own pages
may send that. And the *key*: the home's token, or the cookie that was given for it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from dataclasses import dataclass
from urllib.parse import urlsplit

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
