"""HTML put together from values: text is always escaped, as only `Html` is taken for markup. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

from herma.wording.plain import visible

_EMPTY = frozenset({"meta", "link", "input", "br", "hr", "img"})
"""Elements that have no content and no end."""


class Html(str):
    """Markup. Plain strings are text, whatever they look like."""

    __slots__ = ()


Child: TypeAlias = "str | int | Iterable[Child] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def text(value: str) -> Html:
    """Text as markup that shows it: nothing in it can act, and nothing can reorder what stands around it."""
    return value if isinstance(value, Html) else Html(escape(visible(value)))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `class_` is class, `aria_label` is aria-label; `None` and `False` leave an attribute out."""
    inside = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _EMPTY:
        return Html(f"<{name}{inside}>")
    return Html(f"<{name}{inside}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """One after the other, with nothing between them."""
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, str):
        return text(child)
    if isinstance(child, int):
        return str(child)
    return "".join(_child(one) for one in child)


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(visible(str(value)))}"'


def document(*children: Child) -> Html:
    return Html(f"<!doctype html>\n{tag('html', *children, lang='en')}\n")
