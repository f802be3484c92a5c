"""One module a page: what it gathers, how it shows it, and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from herma.web.house import House
from herma.web.html import Html
from herma.web.pages import health, overview, spending
from herma.wording.sessions import Json


@dataclass(frozen=True, slots=True)
class Page:
    """`gather` may take its time, and runs in a thread; `show` and `tell` are pure."""

    path: str
    name: str
    api: str
    gather: Callable[[House], Any]
    show: Callable[[Any], Html]
    tell: Callable[[Any], Json]


PAGES: tuple[Page, ...] = (
    Page("/", "Overview", "/api/overview", overview.gather, overview.show, overview.tell),
    Page("/spending", "Spending", "/api/spending", spending.gather, spending.show, spending.tell),
    Page("/health", "Health", "/api/health", health.gather, health.show, health.tell),
)
