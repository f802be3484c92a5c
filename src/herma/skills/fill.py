"""Filling a skill's template. Pure text: nothing is evaluated, looked up or run.

A placeholder is `{name}` for a declared parameter, or for a value that was given. Everything else in braces is code and
stays as it is, and so do `${name}` (a shell's own) and `{{name}}`. Values are put in once: what looks like a
placeholder inside a value is not one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from herma.types import Parameter

_PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_]*)\}(?!\})")


@dataclass(frozen=True, slots=True)
class Filled:
    """The text; which given values it has no place for; and which optional placeholders are still open."""

    text: str
    unknown: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingParameters:
    """Required parameters without a value: nothing was filled."""

    names: tuple[str, ...]


def fill(template: str, parameters: Sequence[Parameter], values: Mapping[str, object]) -> Filled | MissingParameters:
    """The template with its parameters put in."""
    given = {name: _text(value) for name, value in values.items() if value is not None}
    missing = tuple(p.name for p in parameters if p.required and p.default is None and p.name not in given)
    if missing:
        return MissingParameters(missing)
    known = {p.name: p.default for p in parameters if p.default is not None} | given
    places = placeholders(template)
    declared = {p.name for p in parameters}
    text = _PLACEHOLDER.sub(lambda match: known.get(match[1], match[0]), template)
    unknown = tuple(name for name in given if name not in declared and name not in places)
    left_open = tuple(name for name in places if name in declared and name not in known)
    return Filled(text, unknown, left_open)


def placeholders(template: str) -> tuple[str, ...]:
    """What could be filled, in order."""
    return tuple(dict.fromkeys(_PLACEHOLDER.findall(template)))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
